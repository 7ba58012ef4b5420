#!/bin/sh
# build.sh DIRECTORY [OPTION of cargo build...]: a static agent and the files of its image in
# DIRECTORY/root, and with buildah or podman the image ftb-agent:VERSION. OPTION: such as
# --release.
set -eu
[ $# -ge 1 ] || { echo "usage: build.sh DIRECTORY [OPTION of cargo build]..." >&2; exit 2; }
mkdir -p "$1"
out=$(cd "$1" && pwd)
shift
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
cd "$top"
host=$(rustc -vV | sed -n 's/^host: //p')
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)

target=${CARGO_TARGET_DIR:-$top/target}/static
# With --target, build scripts and macros are built without the flag.
RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked -p ftb-agent --bin ftb-agent \
    --target "$host" --target-dir "$target" "$@"
binary=$(ls -t "$target/$host"/*/ftb-agent | head -n 1)
if readelf -l "$binary" | grep -q INTERP; then
    echo "$binary is not static" >&2
    exit 1
fi

root=$out/root
rm -rf "$root"
install -d "$root/usr/bin" "$root/etc/ftb" "$root/run/ftb" "$root/usr/share/doc/ftb"
install -d -m 1777 "$root/tmp"
install -d -m 0750 "$root/var/lib/ftb"
install "$binary" "$root/usr/bin/ftb-agent"
strip --strip-debug "$root/usr/bin/ftb-agent"
install -m 0644 deploy/config/agent.toml "$root/etc/ftb/agent.toml.sample"
install -m 0644 LICENSE NOTICE "$root/usr/share/doc/ftb"
printf 'root:x:0:0::/:\nftb:x:65532:65532:fault tolerance backplane:/var/lib/ftb:\n' \
    > "$root/etc/passwd"
printf 'root:x:0:\nftb:x:65532:\n' > "$root/etc/group"
# Names: the files of the container, then DNS. Both are in the binary.
printf 'hosts: files dns\npasswd: files\ngroup: files\n' > "$root/etc/nsswitch.conf"
if [ "$(id -u)" = 0 ]; then
    chown 65532:65532 "$root/run/ftb" "$root/var/lib/ftb"
fi
cp "$here/Containerfile" "$out/Containerfile"

exec "$here/pack.sh" "$out" "ftb-agent:$version"
