# The life of the packages in a booted Debian: installed, started, upgraded under load, downgraded,
# removed, purged. /share/one and /share/two have the packages of two versions, /share/upgrade and
# /share/downgrade the commands of the upgrade guide.
set -eu
export DEBIAN_FRONTEND=noninteractive
. /share/steps.sh
installed() { dpkg-query -W -f '${Version}' "$1"; }
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp \
        -o -path /share -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/log -o -path /var/cache \) -prune \
        -o -not -type d -print |
        grep -v -E '/__pycache__/|^/etc/(passwd|group|g?shadow|subuid|subgid)-?$' | sort
}

step "a booted system"
await sh -c '! systemctl list-jobs | grep -v scenario | grep -q running'
# The guide's commands ask before they change anything.
echo 'APT::Get::Assume-Yes "true";' >/etc/apt/apt.conf.d/yes
files >/tmp/before

step "install: no service is enabled or started, and udev hears of the rules"
# No udev runs in a container: a script in its place writes down what it is asked.
mkdir -p /run/udev
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("/run/udev/control")'
printf '#!/bin/sh\necho "$*" >>/tmp/udevadm\n' >/usr/local/bin/udevadm
chmod 0755 /usr/local/bin/udevadm
PATH=/usr/local/bin:$PATH dpkg -i /share/one/*.deb
rm /usr/local/bin/udevadm
grep -A1 -e '--reload' /tmp/udevadm | grep -q 'trigger .*=ipmi .*=infiniband_verbs' ||
    fail "udev: $(cat /tmp/udevadm)"
for unit in ftb-agent ftb-ipmi ftb-ib ftb-slurm ftb-act ftb-bridge; do
    is enabled $unit.service disabled
    is active $unit.service inactive
done
for user in ftb ftb-ipmi ftb-ib ftb-act ftb-bridge; do
    getent passwd $user >/dev/null || fail "no user $user"
done
dpkg --verify || fail "files differ from the packages"
python3 -c 'import ftb; ftb.Client'

step "a wrong file: the unit fails and stays so"
# It runs as the user of Slurm, which no package makes.
useradd --system slurm
for name in agent ipmi ib slurm act bridge; do
    unit=ftb-$name.service
    (umask 022 && echo 'no_key = 1' >/etc/ftb/$name.toml)
    ! systemctl start $unit 2>/dev/null || fail "$unit starts with a wrong file"
    is failed $unit failed
    [ "$(systemctl show -p NRestarts --value $unit)" = 0 ] || fail "$unit was started again"
    [ "$(systemctl show -p ExecMainStatus --value $unit)" = 64 ] || {
        journalctl -u $unit -n 20 --no-pager
        fail "$unit: another exit code than 64"
    }
    systemctl reset-failed $unit
    rm /etc/ftb/$name.toml
done
userdel slurm

step "start"
configure_agent
ftb-agent --check-config --config /etc/ftb/agent.toml
systemctl enable --now ftb-agent.service
is active ftb-agent.service active
await ftbctl tree
cp /etc/ftb/ib.toml.sample /etc/ftb/ib.toml
systemctl start ftb-ib.service
is active ftb-ib.service active
pid=$(systemctl show -p MainPID --value ftb-agent)
[ "$(stat -c %U "/proc/$pid")" = ftb ] || fail "not the user ftb"
for unit in ftb-agent ftb-ib; do
    # A container may not be allowed to set it.
    [ "$(systemctl show -p OOMScoreAdjust --value $unit)" = -500 ] || fail "$unit ends before jobs"
done
systemd-analyze security --no-pager --threshold=20 ftb-agent.service >/dev/null ||
  fail "too exposed"

step "upgrade and downgrade under load"
python3 /share/load.py >/tmp/load 2>&1 &
load=$!
await grep -q ready /tmp/load
all=$(dpkg-query -W -f '${Package}\n' | wc -l)
for version in two one two; do
    before=$(systemctl show -p MainPID --value ftb-agent)
    guide=upgrade
    [ $version != one ] || guide=downgrade
    sed "s/VERSION/$(cat /share/$version/version)/" /share/$guide >/tmp/commands
    (cd /share/$version && sh -ex /tmp/commands) || fail "the guide: $guide"
    [ "$(dpkg-query -W -f '${Package}\n' | wc -l)" = "$all" ] || fail "packages came or went"
    for package in ftb-publishers ftb-launcher ftb-slurm ftb-act ftb-bridge libftb0; do
        [ "$(installed $package)" = "$(installed ftb-agent)" ] || fail "$package is left behind"
    done
    is active ftb-agent.service active
    is enabled ftb-agent.service enabled
    is active ftb-ipmi.service inactive
    [ "$(systemctl show -p MainPID --value ftb-agent)" != "$before" ] || fail "the old program runs"
    [ "$(installed ftb-agent)" = "$(cat /share/$version/version)" ] || fail "not version $version"
    await ftbctl tree
done
step "upgrade with a configuration that the new release rejects: the old program goes on"
pid_of() { systemctl show -p MainPID --value $1; }
before=$(pid_of ftb-agent) ib=$(pid_of ftb-ib)
cp /etc/ftb/agent.toml /tmp/agent.toml
echo 'no_key = 1' >>/etc/ftb/agent.toml
dpkg -i /share/one/ftb-agent_*.deb /share/one/ftb-publishers_*.deb >/tmp/said 2>&1
[ "$(pid_of ftb-agent)" = "$before" ] || fail "the agent was restarted: $(cat /tmp/said)"
is active ftb-agent.service active
grep -q 'ftb-agent.service is not restarted' /tmp/said && grep -q no_key /tmp/said ||
    fail "nobody hears of it: $(cat /tmp/said)"
[ "$(pid_of ftb-ib)" != "$ib" ] || fail "the old ftb-ib runs"
held_back ftb-agent
cp /tmp/agent.toml /etc/ftb/agent.toml
dpkg -i /share/two/ftb-agent_*.deb /share/two/ftb-publishers_*.deb
[ "$(pid_of ftb-agent)" != "$before" ] || fail "the old agent runs"
await ftbctl tree
touch /tmp/stop
wait $load || { cat /tmp/load; fail "the load"; }
cat /tmp/load

step "remove: services stop, configuration stays"
packages=$(dpkg-query -W -f '${Package}\n' 'ftb*' libftb0 libftb-dev python3-ftb)
dpkg -r $packages
is active ftb-agent.service inactive
if cat /proc/[0-9]*/comm | grep ftb-; then fail "a process is left"; fi
[ -e /etc/ftb/agent.toml ] && [ -d /var/lib/ftb ] || fail "configuration or log is gone"

step "purge: nothing is left"
dpkg -P $packages
files >/tmp/after
diff /tmp/before /tmp/after || fail "files are left"
for folder in /etc/ftb /var/lib/ftb /var/lib/private/ftb; do
  [ ! -e "$folder" ] || fail "$folder is left"
done
step "done"
