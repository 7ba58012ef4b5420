# Sourced in the guest: the daemons end cleanly when they are asked to.
stop_ftb_ib
kill -TERM $ftb_agent
wait $ftb_agent || exit 1
