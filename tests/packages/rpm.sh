# The life of the RPM packages: their scriptlets under a booted systemd, by rpm itself and by dnf.
# It runs in Debian, so rpm leaves out dependencies, which have other names there. /share/one and
# /share/two have the packages of two versions, /share/system one that provides all that they need
# of an RPM distribution.
set -eu
. /share/steps.sh
pid_of() { systemctl show -p MainPID --value "$1"; }
rpm() { command rpm --force-debian --nodeps "$@"; }

step "install: users are there, no service is enabled or started"
await sh -c '! systemctl list-jobs | grep -v scenario | grep -q running'
mkdir -p /run/udev
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("/run/udev/control")'
printf '#!/bin/sh\necho "$*" >>/tmp/udevadm\n' >/usr/bin/udevadm
rpm -i /share/one/*.rpm
for unit in ftb-agent ftb-ipmi ftb-ib ftb-slurm ftb-act ftb-bridge; do
    is enabled $unit.service disabled
    is active $unit.service inactive
done
for user in ftb ftb-ipmi ftb-ib ftb-act ftb-bridge; do
    getent passwd $user >/dev/null || fail "no user $user"
done
grep -A1 -e '--reload' /tmp/udevadm | grep -q 'trigger .*=ipmi .*=infiniband_verbs' ||
    fail "udev: $(cat /tmp/udevadm)"

step "start"
configure_agent
cp /etc/ftb/ib.toml.sample /etc/ftb/ib.toml
systemctl enable --now ftb-agent.service
systemctl start ftb-ib.service
await ftbctl tree

step "upgrade and downgrade: what runs is restarted, nothing else"
for version in two one two; do
    agent=$(pid_of ftb-agent) ib=$(pid_of ftb-ib)
    rpm -U --oldpackage /share/$version/*.rpm
    is active ftb-agent.service active
    is enabled ftb-agent.service enabled
    is active ftb-ib.service active
    is active ftb-ipmi.service inactive
    [ "$(pid_of ftb-agent)" != "$agent" ] || fail "the old agent runs"
    [ "$(pid_of ftb-ib)" != "$ib" ] || fail "the old ftb-ib runs"
    [ "$(command rpm -q --qf '%{VERSION}' ftb-agent)" = "$(cat /share/$version/version)" ] ||
        fail "not version $version"
    await ftbctl tree
done

step "upgrade with a configuration that the new release rejects: the old program goes on"
agent=$(pid_of ftb-agent) ib=$(pid_of ftb-ib)
echo 'no_key = 1' >>/etc/ftb/agent.toml
rpm -U --oldpackage /share/one/*.rpm >/tmp/said 2>&1
[ "$(pid_of ftb-agent)" = "$agent" ] || fail "the agent was restarted: $(cat /tmp/said)"
is active ftb-agent.service active
grep -q 'ftb-agent.service is not restarted' /tmp/said && grep -q no_key /tmp/said ||
    fail "nobody hears of it: $(cat /tmp/said)"
[ "$(pid_of ftb-ib)" != "$ib" ] || fail "the old ftb-ib runs"
held_back ftb-agent

step "remove: services stop, configuration stays"
rpm -e $(command rpm -qa --qf '%{NAME}\n' | grep ftb)
is active ftb-agent.service inactive
[ ! -e /etc/systemd/system/multi-user.target.wants/ftb-agent.service ] || fail "it is enabled"
if cat /proc/[0-9]*/comm | grep ftb-; then fail "a process is left"; fi
[ -e /etc/ftb/agent.toml ] && [ -d /var/lib/ftb ] || fail "configuration or log is gone"
[ ! -e /usr/bin/ftb-agent ] || fail "a program is left"
step "dnf: dependencies are resolved, an upgrade restarts what runs, nothing else"
dnf() { command dnf --assumeyes --quiet --releasever=1 --disablerepo='*' "$@" >/tmp/dnf 2>&1; }
said() { fail "$1: $(cat /tmp/dnf)"; }
rm -rf /etc/ftb /var/lib/ftb
! dnf install /share/one/ftb-launcher-*.rpm || said "dnf installs ftb-launcher without ftb-agent"
# What the packages need of an RPM distribution is in one package here.
dnf install /share/system/*.rpm /share/one/ftb-*.rpm || said install
is enabled ftb-agent.service disabled
configure_agent
systemctl enable --now ftb-agent.service
await ftbctl tree
agent=$(pid_of ftb-agent)
dnf upgrade /share/two/*.rpm || said upgrade
[ "$(pid_of ftb-agent)" != "$agent" ] || fail "dnf: the old agent runs"
[ "$(command rpm -q --qf '%{VERSION}' ftb-agent)" = "$(cat /share/two/version)" ] || said upgrade
# No package is left behind by an upgrade, and none comes.
ours=$(command rpm -qa --qf '%{NAME}\n' | grep -c '^ftb-')
[ "$ours" = "$(ls /share/two/ftb-*.rpm | wc -l)" ] ||
    fail "dnf: packages: $(command rpm -qa)"
agent=$(pid_of ftb-agent)
dnf downgrade /share/one/ftb-*.rpm || said downgrade
[ "$(pid_of ftb-agent)" != "$agent" ] || fail "dnf: the agent of the later release runs"
await ftbctl tree
# With the agent goes what needs it.
dnf remove ftb-agent || said remove
if command rpm -q ftb-launcher >/dev/null; then fail "ftb-launcher is left without ftb-agent"; fi
[ ! -e /usr/bin/ftb-agent ] || fail "dnf: a program is left"
if cat /proc/[0-9]*/comm | grep ftb-; then fail "dnf: a process is left"; fi
step "done"
