# Sourced by test scripts inside the guest: `. /lib.sh`.
#
# /share is a folder of the host: what is written there is there at once, on both sides.

# Busybox prefers its own applets over programs of the same name in /bin.
ip() { /bin/ip "$@"; }

# mark NAME: tells the host that the test is at this point (a file in the share, a console line).
mark() {
  echo "GUEST-MARK $1 $(cut -d' ' -f1 /proc/uptime)"
  : >"/share/mark.$1"
}

# await SECONDS COMMAND...: repeats a command until it succeeds; fails the test after the deadline.
await() {
  deadline=$(($(cut -d. -f1 /proc/uptime) + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    if [ "$(cut -d. -f1 /proc/uptime)" -gt "$deadline" ]; then
      echo "GUEST-FAILED waited in vain for: $*"
      exit 1
    fi
    usleep 20000
  done
}

# await_host NAME: waits until the host has put the file NAME into the share.
await_host() { await 120 test -e "/share/$1"; }

# lines FILE PATTERN: how many lines of the file match; at_least COUNT FILE PATTERN tests that.
lines() { grep -c -e "$2" "$1" 2>/dev/null; }
at_least() { [ "$(lines "$2" "$3" || true)" -ge "$1" ]; }
