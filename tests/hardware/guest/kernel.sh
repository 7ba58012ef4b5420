#!/bin/bash
# kernel.sh: puts a Debian kernel into the cache and prints the folder that has
#   vmlinux   uncompressed: under emulation it boots seconds sooner than the packed one
#   root      boot/ and lib/modules/ as Debian ships them, with modules.dep
#   version   such as 6.1.0-56-amd64
# The ordinary image, not the cloud one, which has neither rdma_rxe nor IPMI. A cached one is kept.
source "$(dirname "$0")/common.sh"
need xzcat:xz-utils depmod:kmod

exec 9>"$GUEST_CACHE/lock"
flock 9

pack_to_elf() { # the kernel inside vmlinuz, whichever way it is packed
  local magic unpacker offset
  while read -r magic unpacker; do
    for offset in $(LC_ALL=C grep -aboP "$magic" "$1" | cut -d: -f1); do
      tail -c +$((offset + 1)) "$1" | $unpacker >"$2" 2>/dev/null || true
      [ "$(head -c 4 "$2" | tail -c 3)" = ELF ] && return
    done
  done <<'MAGIC'
\xfd7zXZ\x00 xzcat
\x28\xb5\x2f\xfd zstdcat
\x1f\x8b\x08 zcat
MAGIC
  die "no packed kernel found in $1"
}

dir=$GUEST_CACHE/kernel
if [ ! -e "$dir/version" ]; then
  package=$(apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image/ { print $2 }')
  [ -n "$package" ] || skip "apt knows no linux-image-amd64 (run apt-get update?)"
  rm -rf "$dir"
  unpack "$package" "$dir/root"
  version=${package#linux-image-}
  depmod -b "$dir/root" "$version"
  pack_to_elf "$dir/root/boot/vmlinuz-$version" "$dir/vmlinux"
  echo "$version" >"$dir/version"
fi
echo "$dir"
