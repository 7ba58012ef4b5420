# Sourced in the guest: the daemon under test, and who gets its events.
ftb-ib --config /etc/ftb/ib.toml --print >$events 2>/share/ftb-ib.log &
ftb_ib=$!
