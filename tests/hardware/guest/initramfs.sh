#!/bin/bash
# initramfs.sh OPTIONS --script TEST.sh --out FILE: builds what the guest boots from.
#   --module NAME    a module of the Debian kernel, with all it depends on, loaded before the test
#   --ko FILE        a module built by module.sh; put into /mod, the test loads it
#   --program PATH   a program with its shared libraries, put into /bin (stripped)
#   --file SRC:DST   any file or folder, with shared libraries when it is one
#   --switch-root    leave the initramfs for a tmpfs first (CRIU cannot dump what runs on rootfs)
# Every option but --out, --script and --switch-root may be given many times.
source "$(dirname "$0")/common.sh"
need busybox:busybox-static cpio:cpio modprobe:kmod strip:binutils ldd:libc-bin

modules=() kos=() programs=() files=() script='' out='' switch_root=''
while [ $# -gt 0 ]; do
  case $1 in
    --module) modules+=("$2"); shift 2 ;;
    --ko) kos+=("$2"); shift 2 ;;
    --program) programs+=("$2"); shift 2 ;;
    --file) files+=("$2"); shift 2 ;;
    --script) script=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --switch-root) switch_root=yes; shift ;;
    *) die "unknown option $1" ;;
  esac
done
[ -n "$script" ] && [ -n "$out" ] || die "--script and --out are needed"

kernel=$("$GUEST_DIR/kernel.sh")
version=$(cat "$kernel/version")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/usr/{bin,sbin,lib,lib64} "$root"/{etc,proc,sys,dev,tmp,run,root,share,mod,var}
# As on the host: one folder under two names, or a library could be there twice.
for folder in bin sbin lib lib64; do ln -s "usr/$folder" "$root/$folder"; done
ln -s ../run "$root/var/run"
echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"
echo '127.0.0.1 localhost guest' >"$root/etc/hosts"

cp "$(command -v busybox)" "$root/bin/busybox"
for applet in $("$root/bin/busybox" --list); do
  [ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
done

: >"$root/mod/order"
add_module() { # copies one module file and notes when to load it
  local name
  name=$(basename "$1")
  [ ! -e "$root/mod/$name" ] || return 0
  cp "$1" "$root/mod/"
  echo "$name" >>"$root/mod/order"
}
# virtio_pci and 9p carry the folder that host and guest share.
for module in virtio_pci 9pnet_virtio 9p "${modules[@]}"; do
  modprobe -d "$kernel/root" -S "$version" --show-depends "$module" >"$root/depends" ||
    die "the kernel $version has no module $module"
  while read -r verb file _; do
    [ "$verb" = insmod ] && add_module "$file"
  done <"$root/depends"
done
rm "$root/depends"
for file in "${kos[@]}"; do
  cp "$file" "$root/mod/"
  strip -g "$root/mod/$(basename "$file")"
done

add_libraries() { # the shared libraries of a program, at the paths where its loader looks
  local library
  for library in $(ldd "$1" 2>/dev/null | grep -oE '/[^ ]+' | sort -u || true); do
    [ -e "$root$library" ] || { mkdir -p "$root$(dirname "$library")" && cp -L "$library" "$root$library"; }
  done
}
for program in "${programs[@]}"; do
  path=$(command -v "$program") || die "no program $program"
  target=$root/bin/$(basename "$program")
  rm -f "$target" # busybox may have an applet of that name
  cp -L "$path" "$target"
  strip "$target" 2>/dev/null || true # scripts are programs too
  add_libraries "$path"
done
for pair in "${files[@]}"; do
  source=${pair%%:*} target=$root${pair#*:}
  mkdir -p "$(dirname "$target")"
  cp -rL "$source" "$target" || die "no file $source"
  [ -d "$source" ] || add_libraries "$source"
done

cp "$GUEST_DIR/init" "$root/init"
cp "$GUEST_DIR/lib.sh" "$root/lib.sh"
cp "$script" "$root/test.sh"
[ -z "$switch_root" ] || touch "$root/switch-root"
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet) | gzip -1 >"$out"
