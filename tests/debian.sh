#!/bin/bash
# debian.sh SUITE PACKAGE[,PACKAGE...] PROGRAM [ARG...]: runs a program in the files of another
# Debian suite with these packages: for tests with other versions of Slurm, Prometheus and so on than
# this machine has. The program sees kernel, network, /proc, /dev, /sys and /tmp of this machine, and
# this repository. It is meant as the runner of `cargo test` (CARGO_TARGET_<TRIPLE>_RUNNER).
#
# The files are made once, by mmdebstrap from the mirror of this machine, in target/debian. Where
# that cannot be, one line says why; the exit status is 0, but with FTB_REQUIRE_ALL=1 it is 1.
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: debian.sh SUITE PACKAGE[,PACKAGE...] PROGRAM [ARG...]" >&2; exit 2; }
suite=$1 packages=$2
shift 2
top=$(cd "$(dirname "$0")/.." && pwd)
target=${CARGO_TARGET_DIR:-$top/target}

cannot() {
  echo "skipped: $suite with $packages: $1"
  [ "${FTB_REQUIRE_ALL:-}" != 1 ] || exit 1
  exit 0
}
[ "$(id -u)" = 0 ] || cannot "only root can"
for tool in apt-get mmdebstrap unshare; do
  command -v $tool >/dev/null || cannot "there is no $tool"
done
cache=$target/debian
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
root=$cache/$suite-$(cksum <<<"$packages" | cut -d' ' -f1)
exec 9>"$root.lock"
flock 9
if [ ! -d "$root" ]; then
  # The mirror that this machine uses, and what it says about dates of lists.
  mirror=$(grep -rhE '^(URIs:|deb )' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null |
    grep -oE 'https?://[^ ]+/debian/?' | head -n 1 || true)
  [ -n "$mirror" ] || cannot "apt has no Debian mirror"
  rm -rf "$root.new"
  mmdebstrap --quiet --variant=minbase --include="$packages" \
    --aptopt="Acquire::Check-Valid-Until \"$(apt-config dump Acquire::Check-Valid-Until |
      cut -d'"' -f2)\"" \
    "$suite" "$root.new" "$mirror" >"$root.log" 2>&1 || cannot "see $root.log"
  mv "$root.new" "$root"
fi
flock -u 9
exec 9>&-

# Mounts of this process and its children alone: they end with it.
export ROOT=$root PLACES="/proc /dev /sys /tmp $top $target" FOLDER=$PWD
exec unshare --mount --propagation private bash -euc '
  # The root of the program is a mount of its own: some programs mount it anew.
  mount --bind "$ROOT" "$ROOT"
  for place in $PLACES; do
    mkdir -p "$ROOT$place"
    mount --rbind "$place" "$ROOT$place"
  done
  cp /etc/hosts /etc/hostname "$ROOT/etc/" 2>/dev/null || true
  exec chroot "$ROOT" sh -c "cd \"\$FOLDER\" && exec \"\$@\"" sh "$@"' bash "$@"
