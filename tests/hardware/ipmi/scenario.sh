# Runs in the guest: what can happen to a node, seen through the kernel's IPMI driver. At each mark
# the host changes something in the BMC behind /dev/ipmi0; the guest waits for what it must cause.
. /lib.sh
events=/share/events.jsonl

# seen COUNT NAME [TEXT]: the subscriber has got so many of these events.
seen() { await 60 at_least "$1" $events "$2\".*${3:-}"; }
start_ftb_ipmi() {
  ftb-ipmi --config "$1" 2>>/share/ftb-ipmi.log &
  ftb_ipmi=$!
}
stop_ftb_ipmi() {
  kill -TERM $ftb_ipmi
  wait $ftb_ipmi || exit 1
}

mkdir -p /run/ftb
ftb-agent --config /etc/ftb/agent.toml 2>/share/ftb-agent.log &
ftb_agent=$!
await 60 test -S /run/ftb/agent.sock
ftbctl --timeout 60s --json subscribe 'event_space=ftb.ipmi' >$events 2>/share/ftbctl.log &
# The subscription is active when an event of its own space comes through it.
trial() { ftbctl publish ftb.ipmi TRIAL && at_least 1 $events TRIAL; }
await 60 trial

echo "== the device is there and readable"
await 30 test -c /dev/ipmi0
ftb-ipmi --config /etc/ftb/fast.toml --once --json >/share/once.jsonl || exit 1

echo "== polling: a fan fails and recovers"
start_ftb_ipmi /etc/ftb/fast.toml
seen 1 FTB_IPMI_NORMAL
mark fan-fails
seen 1 FTB_IPMI_FANFAIL
mark fan-recovers
seen 2 FTB_IPMI_NORMAL

echo "== the BMC hangs and returns"
mark bmc-hangs
seen 1 FTB_IPMI_BMC_LOST
mark bmc-returns
seen 1 FTB_IPMI_BMC_BACK
seen 3 FTB_IPMI_NORMAL
stop_ftb_ipmi

echo "== events: two thresholds at once, of which the buffer holds one"
start_ftb_ipmi /etc/ftb/slow.toml
seen 4 FTB_IPMI_NORMAL
mark node-overheats
seen 1 FTB_IPMI_OVERTEMP "P2 Therm Margin"
seen 1 FTB_IPMI_OVERTEMP "Baseboard Temp"
mark node-cools
seen 5 FTB_IPMI_NORMAL
stop_ftb_ipmi

kill -TERM $ftb_agent
wait $ftb_agent || exit 1
