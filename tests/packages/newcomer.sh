# A newcomer in a bare Debian: the packages of /share/debs, then the commands of README's first hour
# (/share/first-hour, one a line) as they stand there, until a job has run: what begins with sudo as
# root, all else as an ordinary user. Writes the seconds since the first command to /share/seconds.
set -eu
export DEBIAN_FRONTEND=noninteractive HOME=/root
fail() { echo "FAILED: $*"; exit 1; }
seconds() { cut -d' ' -f1 /proc/uptime; }
useradd --create-home --shell /bin/sh newcomer
as_newcomer() { runuser -u newcomer -- env HOME=/home/newcomer sh -c "cd; $1"; }
as_root() { sh -c "cd; ${1#sudo }"; }
begin=$(seconds)
while read -r line; do
    echo "\$ $line ($(seconds) s)"
    case $line in
    "sudo make install"*) dpkg -i /share/debs/*.deb >/tmp/dpkg 2>&1 || { cat /tmp/dpkg; fail "$line"; } ;;
    *"&")
        as_newcomer "exec ${line%&}" >/tmp/tail 2>&1 &
        tries=0
        until ftbctl status | grep -q 'severity='; do
            tries=$((tries + 1))
            [ $tries -lt 300 ] || fail "no subscription: $(cat /tmp/tail; ftbctl status)"
            sleep 0.1
        done
        ;;
    *)
        as=as_newcomer
        case $line in sudo\ *) as=as_root ;; esac
        $as "$line" >/tmp/said 2>&1 </dev/null || { cat /tmp/said; fail "$line"; }
        cat /tmp/said
        cat /tmp/said >>/tmp/all
        ;;
    esac
done </share/first-hour
grep -q DISK_FULL /tmp/tail || fail "the event did not arrive: $(cat /tmp/tail)"
grep -q root /tmp/all || fail "no tree"
[ "$(grep -cx "$(hostname)" /tmp/all)" = 2 ] || fail "no job of two ranks"
echo "$(seconds) $begin" | awk '{ printf "%.1f\n", $1 - $2 }' >/share/seconds
echo "a tree, an event, a job: $(cat /share/seconds) s"
