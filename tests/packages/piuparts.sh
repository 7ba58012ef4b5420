#!/bin/bash
# piuparts.sh CACHE DEB...: piuparts on packages, all together, in a minimal Debian with systemd:
# they are installed, removed and purged; no script may fail and no file may be left.
#
# CACHE keeps the root that mmdebstrap makes once. Exit status 77 and one line where that cannot be.
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: piuparts.sh CACHE DEB..." >&2; exit 64; }
cache=$1
shift

cannot() { echo "piuparts cannot run: $1"; exit 77; }
[ "$(id -u)" = 0 ] || cannot "only root can"
for program in piuparts mmdebstrap; do
  command -v $program >/dev/null || cannot "$program is missing (apt-get install $program)"
done

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
base=$cache/minimal-$suite.tar.gz
if [ ! -e "$base" ]; then
  mmdebstrap --quiet --variant=minbase --include=systemd "$suite" "$cache/new.tar.gz" \
    >"$cache/mmdebstrap.log" 2>&1 || cannot "see $cache/mmdebstrap.log"
  mv "$cache/new.tar.gz" "$base"
fi
flock -u 9

log=$cache/piuparts.log
rm -f "$log"
piuparts --basetgz "$base" --distribution "$suite" --no-upgrade-test --log-level info \
  --log-file "$log" "$@" >/dev/null 2>&1 || { sed -n '/ERROR/,$p' "$log"; exit 1; }
