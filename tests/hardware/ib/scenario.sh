# Runs in the guest: everything that can happen to an adapter, one after the other. Each step waits
# until the subscriber has seen what it must cause, so the host can assert the order of all.
. /lib.sh
events=/share/events.jsonl
ibinject=/sys/module/ibinject/parameters/event
. /start.sh

# seen COUNT NAME [TEXT]: the subscriber has got so many of these events.
seen() { await 300 at_least "$1" $events "$2\".*${3:-}"; }

echo "== no adapter"
seen 1 FTB_IB_ADAPTER_UNAVAILABLE

echo "== an adapter appears"
ip link add ve0 type veth peer name ve1
ip link set ve0 up
ip link set ve1 up
rdma link add rxe0 type rxe netdev ve0 || exit 1
seen 1 FTB_IB_PORT_INFO

echo "== its link goes down and comes up"
ip link set ve0 down
seen 1 FTB_IB_PORT_ERR
ip link set ve0 up
seen 1 FTB_IB_PORT_ACTIVE

echo "== its carrier is lost and found"
ip link set ve1 down
seen 2 FTB_IB_PORT_ERR
ip link set ve1 up
seen 2 FTB_IB_PORT_ACTIVE

echo "== an address is added"
gids=$(lines $events FTB_IB_EVENT_GID_CHANGE)
ip addr add 10.9.0.1/24 dev ve0
seen $((gids + 1)) FTB_IB_EVENT_GID_CHANGE

echo "== what only InfiniBand has (numbers of enum ib_event_type)"
insmod /mod/ibinject.ko || exit 1
for pair in 11:LID_CHANGE 12:PKEY_CHANGE 13:SM_CHANGE 17:CLIENT_REREGISTER 8:DEVICE_FATAL; do
  echo "rxe0 1 ${pair%%:*}" >$ibinject || exit 1
  seen 1 "FTB_IB_EVENT_${pair#*:}"
done
# After that it is closed, and opened again with the next listing.
await 30 at_least 2 /share/ftb-ib.log 'reading events of the adapter'

echo "== it flaps until that is told, and its counter shows it too"
told_last() { grep -E 'PORT_(ERR|ACTIVE)"' $events | tail -n 1 | grep -q "$1"; }
round=0
flapping=$(lines $events FTB_IB_PORT_FLAPPING)
degraded='FTB_IB_PORT_DEGRADED".*link_downed'
# What is told of flapping is a matter of time, of the counter a matter of number: until both are.
both_told() { at_least $((flapping + 1)) $events FTB_IB_PORT_FLAPPING && at_least 1 $events "$degraded"; }
until both_told; do
  [ $round -lt 2000 ] || exit 1
  ip link set ve1 down
  ip link set ve1 up
  round=$((round + 1))
done
await 30 told_last FTB_IB_PORT_ACTIVE

echo "== a second adapter, the first goes and comes back"
rdma link add rxe1 type rxe netdev ve1 || exit 1
seen 2 FTB_IB_PORT_INFO
rdma link delete rxe0 || exit 1
seen 1 FTB_IB_ADAPTER_REMOVED
rdma link add rxe0 type rxe netdev ve0 || exit 1
seen 3 FTB_IB_PORT_INFO

echo "== the driver is reloaded: the open adapter holds it until it is asked for"
rdma link delete rxe1 || exit 1
seen 2 FTB_IB_ADAPTER_REMOVED
rmmod rdma_rxe 2>/dev/null && exit 1
kill -HUP $ftb_ib
await 10 rmmod rdma_rxe
seen 2 FTB_IB_ADAPTER_UNAVAILABLE
readings=$(lines /share/ftb-ib.log 'reading events of the adapter')
insmod /mod/rdma_rxe.ko || exit 1
rdma link add rxe0 type rxe netdev ve0 || exit 1
seen 4 FTB_IB_PORT_INFO
await 30 at_least $((readings + 1)) /share/ftb-ib.log 'reading events of the adapter'
errors=$(lines $events FTB_IB_PORT_ERR)
ip link set ve1 down
seen $((errors + 1)) FTB_IB_PORT_ERR

echo "== the verbs library is missing, and installed later"
library=/usr/lib/x86_64-linux-gnu/libibverbs.so.1
stop_ftb_ib
mv $library /library
start_ftb_ib /etc/ftb/ib.toml
seen 5 FTB_IB_PORT_INFO
await 30 grep -q 'install libibverbs1' /share/ftb-ib.log
active=$(lines $events FTB_IB_PORT_ACTIVE)
ip link set ve1 up
seen $((active + 1)) FTB_IB_PORT_ACTIVE # found by reading: no event can tell it
mv /library $library
await 30 grep -q 'reading events of the adapter' /share/ftb-ib.log
echo "rxe0 1 11" >$ibinject || exit 1
seen 2 FTB_IB_EVENT_LID_CHANGE

. /stop.sh
