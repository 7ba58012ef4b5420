# Sourced in the guest: the daemons end cleanly when they are asked to.
kill -TERM $ftb_ib
wait $ftb_ib || exit 1
kill -TERM $ftb_agent
wait $ftb_agent || exit 1
