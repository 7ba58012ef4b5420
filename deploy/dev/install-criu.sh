#!/bin/sh
# install-criu.sh [DIR [SUITE]]: puts a CRIU from a newer Debian suite (default: sid) with the libraries that it was
# built for into DIR (default: /usr/local/lib/ftb/criu), beside the system, and prints the path of the program. For
# machines whose own CRIU is too old for their kernel; one that is there and works is kept. Nothing is installed, and
# the lists of apt stay as they are. Exit status 77: it cannot be had here, with the reason in one line.
set -eu
dir=${1:-/usr/local/lib/ftb/criu} suite=${2:-sid}
cannot() { echo "SKIPPED: no CRIU for this kernel: $*" >&2; exit 77; }

mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
log=$dir/install.log
exec 9>"$dir/lock"
flock 9
if [ -x "$dir/criu" ] && "$dir/criu" check >"$log" 2>&1; then
    echo "$dir/criu"
    exit 0
fi

[ "$(id -u)" -eq 0 ] || cannot "run this as root"
command -v apt-get >/dev/null || cannot "this is no Debian"
[ "$(dpkg --print-architecture)" = amd64 ] || cannot "only for amd64"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -e "$keys" ] || cannot "there is no $keys"
# The mirror that this machine uses, another suite.
mirror=$(grep -rhE '^(URIs:|deb )' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null |
    grep -oE 'https?://[^ ]+/debian/?' | head -n 1 || true)
[ -n "$mirror" ] || cannot "apt has no Debian mirror"
if ! command -v patchelf >/dev/null; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends patchelf >"$log" 2>&1 ||
        cannot "patchelf cannot be installed: see $log"
fi

mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial" "$dir/debs" "$dir/root"
echo "deb [signed-by=$keys] $mirror $suite main" >"$dir/apt/sources.list"
apt() {
    program=$1
    shift
    "$program" -q -o Dir::Etc::sourcelist="$dir/apt/sources.list" -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists="$dir/apt/lists" -o Dir::Cache="$dir/apt/cache" -o APT::Sandbox::User=root "$@"
}
apt apt-get update >"$log" 2>&1 || cannot "the lists of $suite cannot be had: see $log"
libnet=$(apt apt-cache depends criu 2>>"$log" | awk '/Depends: libnet[0-9]/ { print $2; exit }')
rm -f "$dir"/debs/*.deb
(
    cd "$dir/debs"
    apt apt-get download criu libc6 "$libnet" libnl-3-200 libprotobuf-c1 libnftables1 libbsd0 libnftnl11
) >>"$log" 2>&1 || cannot "its packages cannot be had: see $log"
for deb in "$dir"/debs/*.deb; do
    dpkg -x "$deb" "$dir/root"
done
rm -rf "$dir/apt" "$dir/debs"
libraries=$dir/root/usr/lib/x86_64-linux-gnu
cp "$dir/root/usr/sbin/criu" "$dir/criu.new"
patchelf --set-interpreter "$libraries/ld-linux-x86-64.so.2" --force-rpath \
    --set-rpath "$libraries:/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu" "$dir/criu.new" >>"$log" 2>&1 ||
    cannot "its program cannot be adapted: see $log"
"$dir/criu.new" check >>"$log" 2>&1 || cannot "$(tail -n 1 "$log")"
mv "$dir/criu.new" "$dir/criu"
echo "$dir/criu"
