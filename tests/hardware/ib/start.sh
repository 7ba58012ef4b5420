# Sourced in the guest: the agent, a subscriber beside it, and then the daemon under test.
mkdir -p /run/ftb
ftb-agent --config /etc/ftb/agent.toml 2>/share/ftb-agent.log &
ftb_agent=$!
await 60 test -S /run/ftb/agent.sock
ftbctl --timeout 60s --json subscribe 'event_space=ftb.ib' >$events 2>/share/ftbctl.log &
# The subscription is active when an event of its own space comes through it.
trial() { ftbctl publish ftb.ib TRIAL && at_least 1 $events TRIAL; }
await 60 trial
start_ftb_ib() {
  ftb-ib --config "$1" 2>/share/ftb-ib.log &
  ftb_ib=$!
}
# It ends cleanly when it is asked to.
stop_ftb_ib() {
  kill -TERM $ftb_ib
  wait $ftb_ib || exit 1
}
start_ftb_ib /etc/ftb/ib.toml
