#!/bin/bash
# build.sh CACHE: builds the previous release from the history of this repository, once, and prints
# the folder with what a site would still run of it: ftb-agent, libftb.a, include, python/ftb.
#
# Exit status 77 and one line where that cannot be: no git, or a history that does not reach back to
# that release (a shallow clone, an unpacked archive). A release changes the line below.
set -euo pipefail

# The last commit before agents signed events: protocol 7, without features of today's links.
release=f5beeb49c4550ff4ff84f4e5648d7efd2c8390aa

[ $# -eq 1 ] || { echo "usage: build.sh CACHE" >&2; exit 2; }
top=$(cd "$(dirname "$0")/../.." && pwd)
cannot() { echo "the previous release cannot be built: $1"; exit 77; }
command -v git >/dev/null || cannot "install git"
git -C "$top" cat-file -e "$release^{commit}" 2>/dev/null ||
  cannot "the history has no commit $release (a shallow clone? git fetch --unshallow)"

folder=$1/$release
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
if [ ! -e "$folder/done" ]; then
  rm -rf "$folder/source"
  mkdir "$folder/source"
  git -C "$top" archive "$release" | tar -x -C "$folder/source"
  # Line tables would double what is built and kept.
  CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR=$folder/target cargo build --quiet --locked \
    --manifest-path "$folder/source/Cargo.toml" -p ftb-agent -p ftb-capi -p ftb-python \
    --lib --bins >&2
  mkdir -p "$folder/python"
  cp "$folder/target/debug/ftb-agent" "$folder/target/debug/libftb.a" "$folder/"
  cp -r "$folder/source/ftb-client/capi/include" "$folder/"
  cp -r "$folder/source/ftb-client/python/python/ftb" "$folder/python/"
  cp "$folder/target/debug/lib_native.so" "$folder/python/ftb/_native.abi3.so"
  rm -rf "$folder/target" "$folder/source"
  touch "$folder/done"
fi
echo "$folder"
