#!/bin/sh
# Installs programs and libraries without debug information, which goes into separate files.
#
#   install-stripped.sh SOURCE TARGET DEBUG_FOLDER
#
# SOURCE is a program, a shared library, or an archive (`.a`). TARGET is a file. A debugger finds
# DEBUG_FOLDER/NAME.debug by the link that is added to TARGET. An archive is stripped only: the
# programs that are linked with it have no use for separate files. A script is copied.
set -eu
source=$1 target=$2 debug=$3
case $source in
*.a)
    objcopy --strip-debug "$source" "$target"
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
