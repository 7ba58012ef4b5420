#!/bin/sh
# Installs the Debian or Ubuntu packages that the named purposes need and that are missing.
# As root it installs them; as another user it prints the one line to run, and fails.
set -eu

usage="usage: install-deps.sh PURPOSE... (build, test, python, package, demo, demo-memory, bench)"
packages=""
for purpose in "$@"; do
    case $purpose in
    # ftb-ib takes its types from the C headers of rdma-core.
    build) packages="$packages gcc libc6-dev make pkg-config cmake libclang-dev libibverbs-dev librdmacm-dev libnl-3-dev libnl-route-3-dev" ;;
    # A BMC simulator; hosts as network namespaces; Debian's kernel in QEMU with soft-RoCE and
    # /dev/ipmi0; a real MPI; CRIU (install-criu.sh brings a newer one where the kernel needs
    # it); a real Slurm and its PMI-2 client; sshd, and script(1) for a terminal; Python with pip
    # for the wheel; systemd-analyze, which needs no systemd that runs; the packages, what judges
    # them, and a Debian that boots in a container; Prometheus and Alertmanager; nodeset; groff;
    # NATS; container images; Chromium and its driver, and a font for the pictures of the page.
    test)
      packages="$packages
        openipmi ipmitool iproute2 nftables qemu-system-x86 busybox-static cpio kmod zstd
        xz-utils ibverbs-utils ibverbs-providers mpich libmpich-dev criu patchelf munge
        slurmctld slurmd slurm-client slurm-wlm-basic-plugins libpmi2-0-dev openssh-server
        openssh-client bsdutils valgrind systemd python3-venv python3-pip dpkg-dev rpm jq
        lintian piuparts mmdebstrap systemd-container prometheus prometheus-alertmanager clustershell
        groff-base nats-server buildah chromium chromium-driver fonts-dejavu-core" ;;
    python) packages="$packages python3-venv python3-pip" ;;
    # dpkg-shlibdeps; rpmbuild; the bill of materials.
    package) packages="$packages dpkg-dev rpm jq" ;;
    demo) packages="$packages openipmi" ;;
    demo-memory) packages="$packages mpich libmpich-dev criu patchelf iproute2 nftables" ;;
    bench) packages="$packages nats-server mosquitto" ;;
    *) echo "$usage" >&2; exit 2 ;;
    esac
done
[ -n "$packages" ] || { echo "$usage" >&2; exit 2; }

if ! command -v dpkg-query >/dev/null; then
    echo "not a Debian machine: make sure that the equivalents of these are installed:$packages" >&2
    exit 0
fi
missing=""
for package in $packages; do
    status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
    [ "$status" = "install ok installed" ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "packages are missing; run: sudo apt-get install --no-install-recommends$missing" >&2
    exit 1
fi
echo "installing$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# Tests start the servers that they need, with settings of their own. A package must not start one
# on this machine: while policy-rc.d answers 101, maintainer scripts start no service.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    trap 'rm -f $policy' EXIT INT TERM
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 0755 $policy
fi
# shellcheck disable=SC2086 # a list of words is meant
apt-get install -y -qq --no-install-recommends $missing >/dev/null
