#!/bin/sh
# Installs programs and libraries without debug information, which goes into separate files.
#
#   install-stripped.sh SOURCE TARGET DEBUG_FOLDER
#
# SOURCE is a program, a shared library, or an archive (`.a`). TARGET is a file. A debugger finds
# DEBUG_FOLDER/NAME.debug by the link that is added to TARGET. A script is copied.
#
# An archive becomes one object: what the functions need that the shared library beside it exports
# (a tenth of all that Rust puts there), without debug information and without other names, so that
# it does not collide with other archives of Rust code.
set -eu
source=$1 target=$2 debug=$3
case $source in
*.a)
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    nm -D --defined-only "${source%.a}.so" | sed 's/.* //' >"$work/exported"
    # One section of each kind: thousands of small ones are larger than what is in them. Tables for
    # unwinding are no use to the linker's search, but to panics. Bitcode of the compiler is dropped.
    cat >"$work/merge.ld" <<'SCRIPT'
SECTIONS {
  .init_array 0 : { KEEP(*(.init_array .init_array.*)) }
  .text 0 : { *(.text .text.*) }
  .rodata 0 : { *(.rodata .rodata.*) }
  .data.rel.ro 0 : { *(.data.rel.ro .data.rel.ro.*) }
  .data 0 : { *(.data .data.[!D]*) }
  .tdata 0 : { *(.tdata .tdata.*) }
  .tbss 0 : { *(.tbss .tbss.*) }
  .bss 0 : { *(.bss .bss.*) }
  .gcc_except_table 0 : { *(.gcc_except_table .gcc_except_table.*) }
  .eh_frame 0 : { KEEP(*(.eh_frame)) }
  /DISCARD/ : { *(.llvmbc .llvmcmd .comment) }
}
SCRIPT
    # shellcheck disable=SC2046 # names of functions
    ld -r --gc-sections --strip-debug $(sed 's/^/-u /' "$work/exported") -T "$work/merge.ld" \
        -o "$work/all.o" "$source"
    objcopy --keep-global-symbols="$work/exported" --strip-unneeded \
        "$work/all.o" "$work/$(basename "$source" .a).o"
    rm -f "$target"
    ar rcsD "$target" "$work/$(basename "$source" .a).o"
    chmod 0644 "$target"
    exit
    ;;
esac
install -m 0755 "$source" "$target"
[ "$(head -c 4 "$source" | tail -c 3)" = ELF ] || exit 0
install -d "$debug"
file=$debug/$(basename "$target").debug
objcopy --only-keep-debug "$source" "$file"
chmod 0644 "$file"
objcopy --strip-unneeded --add-gnu-debuglink="$file" "$target"
