#!/bin/sh
# pack.sh DIRECTORY NAME: makes the container image NAME of DIRECTORY/root and
# DIRECTORY/Containerfile with buildah or podman. In a container, where neither can mount, set
# STORAGE_DRIVER=vfs and BUILDAH_ISOLATION=chroot.
set -eu
[ $# -eq 2 ] || { echo "usage: pack.sh DIRECTORY NAME" >&2; exit 2; }
for tool in buildah podman; do
    if command -v "$tool" >/dev/null; then
        exec "$tool" build -f "$1/Containerfile" -t "$2" "$1"
    fi
done
echo "no buildah, no podman: the files of the image are in $1/root, the rest is in $1/Containerfile"
