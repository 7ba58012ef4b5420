#!/bin/bash
# podman.sh FOLDER ARG...: podman loads FOLDER/image.tar and runs it with these arguments, until its
# input ends. For a container, in which a test runs: without cgroups, overlays and higher limits.
set -euo pipefail
folder=$1
shift
# A system with both versions of cgroups mounted is none that crun knows. This mount ends with us.
mount -t cgroup2 none /sys/fs/cgroup
export CONTAINERS_STORAGE_CONF=$folder/podman.conf
printf '[storage]\ndriver = "vfs"\ngraphroot = "%s"\nrunroot = "%s"\n' \
  "$folder/podman-images" "$folder/podman-run" >"$CONTAINERS_STORAGE_CONF"
run() { podman --runtime=crun --cgroup-manager=cgroupfs "$@"; }
run load --input "$folder/image.tar"
# Its exit status is that of the agent that it stops.
run run --cgroups=disabled --ulimit=nofile=1024:1024 --ulimit=nproc=1024:1024 "$@" &
agent=$!
cat >/dev/null
run stop --all
wait "$agent"
