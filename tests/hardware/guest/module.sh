#!/bin/bash
# module.sh SOURCE_DIR: builds an out-of-tree module (a folder with a Kbuild file) for the guest's
# kernel and prints the path of the .ko. Headers are unpacked into the cache, not installed.
source "$(dirname "$0")/common.sh"
[ $# = 1 ] && [ -e "$1/Kbuild" ] || die "usage: module.sh SOURCE_DIR (with a Kbuild file)"
need make:make gcc:gcc
kernel=$("$GUEST_DIR/kernel.sh")
version=$(cat "$kernel/version")

exec 9>"$GUEST_CACHE/lock"
flock 9
headers=$GUEST_CACHE/headers-$version
if [ ! -e "$headers/done" ]; then
  rm -rf "$headers"
  common=${version%-*}-common
  unpack "linux-headers-$version" "$headers"
  unpack "linux-headers-$common" "$headers"
  unpack "linux-kbuild-$(echo "$version" | cut -d. -f1,2)" "$headers"
  # Debian's makefiles name their other half by its installed path.
  grep -rlI --include=Makefile --include='.kernelvariables' /usr/src/linux-headers \
    "$headers/usr/src/linux-headers-$version" |
    xargs -r sed -i "s,/usr/src/linux-headers,$headers/usr/src/linux-headers,g"
  touch "$headers/done"
fi

name=$(basename "$1")
build=$GUEST_CACHE/modules/$name
mkdir -p "$build"
# Only what is newer: another suite may be copying the module that is there.
cp -up "$1"/Kbuild "$1"/*.c "$build/"
make -s -C "$headers/usr/src/linux-headers-$version" M="$build" modules >"$build/build.log" 2>&1 ||
  die "cannot build $name: see $build/build.log"
echo "$build/$name.ko"
