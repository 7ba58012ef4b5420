#!/bin/sh
# root.sh UID FOLDER FILE PATH COMMAND...: becomes the command, as that user and without a capability, with the folder
# for its root, FOLDER/passwd for its /etc/passwd, and the file at that path of it: the system's programs and libraries to be read, its own /proc without
# other users' processes, a handful of devices, an empty /tmp, and what else the folder has (FOLDER/run and FOLDER/var
# can be written where the user may). Meant for a mount namespace of its own (unshare --mount).
set -eu
user=$1
root=${2%/}
file=$3
path=$4
shift 4
mount --bind "$root" "$root"
mount --bind "$file" "$root$path"
mkdir -p "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/run" "$root/var"
for folder in bin sbin lib lib32 lib64 usr etc; do
    if [ -L "/$folder" ]; then
        [ -L "$root/$folder" ] || cp -P "/$folder" "$root/$folder"
    elif [ -d "/$folder" ]; then
        mkdir -p "$root/$folder"
        mount --bind "/$folder" "$root/$folder"
        mount -o remount,bind,ro "$root/$folder"
    fi
done
mount --bind "$root/passwd" "$root/etc/passwd"
mount -t proc -o hidepid=invisible,subset=pid proc "$root/proc"
mount --bind /sys "$root/sys"
mount -o remount,bind,ro "$root/sys"
mount -t tmpfs -o mode=0755 tmpfs "$root/dev"
for device in null zero full random urandom; do
    : >"$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mount -o remount,ro "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount --bind "$root/run" "$root/run"
mount --bind "$root/var" "$root/var"
mount -o remount,bind,ro "$root"
cd "$root"
exec chroot . setpriv --reuid="$user" --regid="$user" --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs "$@"
