# Runs in the guest: only how long an event takes, with nothing else going on (docs/ib.md).
. /lib.sh
mkdir -p /run/ftb
ftb-agent --config /etc/ftb/agent.toml 2>/share/ftb-agent.log &
ftb_agent=$!
await 60 test -S /run/ftb/agent.sock
ip link add ve0 type veth peer name ve1
ip link set ve0 up
ip link set ve1 up
rdma link add rxe0 type rxe netdev ve0 || exit 1
insmod /mod/ibinject.ko || exit 1
ftb-ib --config /etc/ftb/quick.toml 2>/share/ftb-ib.log &
ftb_ib=$!
await 30 grep -q 'reading events of the adapter' /share/ftb-ib.log
# The first round warms caches and, under emulation, the translation of the programs.
event_latency rxe0 50 >/dev/null || exit 1
event_latency rxe0 300 >/share/latency.json || exit 1
kill -TERM $ftb_ib $ftb_agent
wait $ftb_ib $ftb_agent
