# What the scenarios of a booted Debian share. Sourced.
fail() { echo "FAILED: $*"; exit 1; }
step() { echo "== $* ($(cut -d' ' -f1 /proc/uptime) s)"; }
# is QUESTION UNIT ANSWER: of `systemctl is-QUESTION`.
is() { [ "$(systemctl "is-$1" "$2" 2>/dev/null || true)" = "$3" ] || fail "$2 is not $3"; }
# await COMMAND...: repeats it until it succeeds, for a minute.
await() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || fail "it never succeeds: $*"
        sleep 0.1
    done
}
# configure_agent: for this host alone, without TLS. A journal needs the state folder of the unit.
configure_agent() {
    sed -e 's/^members = .*/members = "node01"\nhost = "node01"\ninsecure = true/' \
        -e '/^\[tls\]/,/^key/d' -e '/^\[journal\]/,$s/^#enabled = true/enabled = true/' \
        /etc/ftb/agent.toml.sample >/etc/ftb/agent.toml
    grep -q '^enabled = true' /etc/ftb/agent.toml || fail "the sample has no journal"
}
# held_back NAME: an upgrade has not restarted it, and who was not there hears of it.
held_back() {
    journalctl -u "$1" --no-pager | grep 'is not restarted.*no_key' >/dev/null ||
        fail "the journal of $1 does not say it: $(journalctl -u "$1" -n 5 --no-pager)"
    ftbctl doctor >/tmp/doctor 2>&1 || true
    grep -A1 "$1 runs another program" /tmp/doctor | grep "systemctl restart $1" >/dev/null ||
        fail "ftbctl doctor does not find it: $(cat /tmp/doctor)"
}
