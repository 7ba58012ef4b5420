# Sourced in the guest: the daemon ends cleanly when it is asked to.
kill -TERM $ftb_ib
wait $ftb_ib || exit 1
