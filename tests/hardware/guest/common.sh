# Shared by the host-side scripts of this folder; sourced, never run.
#
# Where downloads are kept: .cache/guest in the checkout (ignored by git), or FTB_GUEST_CACHE.
set -euo pipefail

GUEST_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
GUEST_CACHE=${FTB_GUEST_CACHE:-$GUEST_DIR/../../../.cache/guest}
mkdir -p "$GUEST_CACHE"
GUEST_CACHE=$(cd "$GUEST_CACHE" && pwd)

# Exit status that says "not run", as automake and meson use it.
SKIPPED=77

# A machine that must run these tests says FTB_REQUIRE_ALL=1: then skipping is failing.
skip() {
  echo "SKIPPED: $*" >&2
  [ -z "${FTB_REQUIRE_ALL:-}" ] || exit 1
  exit $SKIPPED
}
die() { echo "$(basename "$0"): $*" >&2; exit 1; }

# need PROGRAM:PACKAGE...: installs what is missing, skips where that is not possible.
need() {
  local pair missing=()
  for pair in "$@"; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
  done
  [ ${#missing[@]} -eq 0 ] && return
  local install=(apt-get install -y -q --no-install-recommends "${missing[@]}")
  command -v apt-get >/dev/null || skip "needs ${missing[*]}, and this is no Debian"
  [ "$(id -u)" = 0 ] || skip "needs ${missing[*]}: run as root: ${install[*]}"
  DEBIAN_FRONTEND=noninteractive "${install[@]}" >"$GUEST_CACHE/apt.log" 2>&1 ||
    skip "cannot install ${missing[*]}: see $GUEST_CACHE/apt.log"
}

# unpack PACKAGE DIR: downloads a Debian package once and unpacks it; nothing is installed.
unpack() {
  local package=$1 dir=$2 debs
  mkdir -p "$GUEST_CACHE/debs" "$dir"
  (
    cd "$GUEST_CACHE/debs"
    debs=("${package}"_*.deb)
    [ -e "${debs[0]}" ] || apt-get download -q "$package" >apt.log 2>&1 ||
      skip "cannot download the package $package: see $GUEST_CACHE/debs/apt.log (run apt-get update?)"
    debs=("${package}"_*.deb)
    dpkg -x "${debs[-1]}" "$dir"
  )
}
