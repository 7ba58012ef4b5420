# The life of the RPM packages: their scriptlets under a booted systemd, by rpm itself. It runs in
# Debian, so dependencies, which have other names there, are left out. /share/one and /share/two
# have the packages of two versions.
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

step "remove: services stop, configuration stays"
rpm -e $(command rpm -qa --qf '%{NAME}\n' | grep ftb)
is active ftb-agent.service inactive
[ ! -e /etc/systemd/system/multi-user.target.wants/ftb-agent.service ] || fail "it is enabled"
if cat /proc/[0-9]*/comm | grep ftb-; then fail "a process is left"; fi
[ -e /etc/ftb/agent.toml ] && [ -d /var/lib/ftb ] || fail "configuration or log is gone"
[ ! -e /usr/bin/ftb-agent ] || fail "a program is left"
step "done"
