#!/bin/bash
# boot.sh CACHE SHARE [PACKAGE[,PACKAGE...]]: boots a minimal Debian with systemd in a container
# (systemd-nspawn), runs SHARE/scenario.sh there as a service, and ends with its exit status. The
# container sees SHARE at /share, has no network but its own loopback, and is thrown away. Each
# PACKAGE is one more of Debian.
#
# CACHE keeps the root that mmdebstrap makes once. Exit status 77 and one line where that cannot be.
set -euo pipefail
[ $# -eq 2 ] || [ $# -eq 3 ] || { echo "usage: boot.sh CACHE SHARE [PACKAGE,...]" >&2; exit 2; }
cache=$1 share=$2 more=${3:-}

cannot() { echo "no Debian can be booted: $1"; exit 77; }
[ "$(id -u)" = 0 ] || cannot "only root can"
command -v apt-get >/dev/null || cannot "this is no Debian"
missing=()
command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
command -v systemd-nspawn >/dev/null || missing+=(systemd-container)
if [ ${#missing[@]} -gt 0 ]; then
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" \
    >/dev/null 2>&1 || cannot "install ${missing[*]}"
fi

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
base=$cache/$suite${more:+-$more}.tar
if [ ! -e "$base" ]; then
  # What the packages depend on, so that they install without a network.
  mmdebstrap --quiet --variant=minbase \
    --include=systemd-sysv,python3,libibverbs1,udev${more:+,$more} \
    "$suite" "$cache/new.tar" >"$cache/mmdebstrap.log" 2>&1 ||
    cannot "see $cache/mmdebstrap.log"
  mv "$cache/new.tar" "$base"
fi
root=$(mktemp -d "$cache/root.XXXXXX")
trap 'rm -rf "$root"' EXIT
tar -xf "$base" -C "$root"
flock -u 9

mkdir "$root/share"
cat >"$root/etc/systemd/system/scenario.service" <<'UNIT'
[Unit]
Description=the test
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'sh /share/scenario.sh >/share/scenario.log 2>&1; echo $? >/share/status'
ExecStopPost=systemctl --no-block poweroff
UNIT
mkdir -p "$root/etc/systemd/system/multi-user.target.wants"
ln -s ../scenario.service "$root/etc/systemd/system/multi-user.target.wants/"
rm -f "$share/status"
timeout "${DEADLINE_S:-600}" systemd-nspawn --quiet --boot --register=no --keep-unit \
  --private-network --console=pipe --bind="$share:/share" --directory="$root" \
  </dev/null >"$share/console.log" 2>&1 || true
[ -s "$share/status" ] || cannot "it did not boot: $(tail -n 3 "$share/console.log" | tr '\n\r' '  ')"
exit "$(cat "$share/status")"
