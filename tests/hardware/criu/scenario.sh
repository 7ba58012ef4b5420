# Runs in the guest, whose kernel and CRIU belong together: an unmodified MPI program in pods is moved twice, saved,
# killed, and started again from the set. Its results must be those of an undisturbed run.
. /lib.sh
mkdir -p /run/ftb /tmp/jobs
export FTB_JOBS_DIR=/tmp/jobs FTB_CRIU=/bin/criu
criu --version >/share/criu.version
criu check >/share/criu.check 2>&1 || exit 1
ftb-agent --config /etc/ftb/agent.toml 2>/share/ftb-agent.log &
await 60 test -S /run/ftb/agent.sock
# Memory is copied beforehand however small it is; the time line says so.
printf '[backend.criu]\nprecopy_from_mib = 0\n' >/tmp/criu.toml
export FTB_LOG=warn,ftb::timeline=debug
# One agent stands for that of each node.
nodes=node01=/run/ftb/agent.sock,node02=/run/ftb/agent.sock,node03=/run/ftb/agent.sock

# job NAME ARGUMENTS...: runs the program as a job
job() {
  name=$1
  shift
  ftb-launch run -n 2 --job "$name" --backend /tmp/criu.toml --local-nodes $nodes --spares node03 "$@" -- \
    /bin/stencil 20 8 32 /tmp/gate
}

# ask COMMAND...: asks the job for something. On a busy machine the guest is so slow that nobody hears it in time: again.
ask() {
  for _ in 1 2 3 4 5 6; do
    ftb-launch "$@" >>/share/asked 2>&1 && return
    tail -n 1 /share/asked | grep -q 'no agent at' || return
  done
}

echo "== undisturbed"
touch /tmp/gate
job undisturbed -q >/share/undisturbed 2>/share/undisturbed.log || exit 1
rm /tmp/gate /tmp/gate.reached

echo "== moved twice, saved, started again"
job moved --keep >/share/moved 2>/share/moved.log &
launch=$!
# All ranks are at work: on a slow machine they may long be on their way into main().
await 300 test -e /tmp/gate.reached
ask migrate moved node02 || exit 1
ftb-launch status moved >/share/status || exit 1
mark first
ask checkpoint moved || exit 1
ask usable moved node02 || exit 1
spare() { ftb-launch checkpoint moved && ftb-launch status moved | grep -q 'node02.*MIGRATION_SPARE'; }
await 120 spare
ask migrate moved node01 || exit 1
mark second
touch /tmp/gate
wait $launch || exit 1

echo "== from the set, on other nodes"
set=$(ls -d /tmp/jobs/moved/sets/* | tail -n 1)
ftb-launch restart "$set" --local-nodes $nodes --hosts node02,node03 >/share/again 2>/share/again.log || exit 1
ip -o link show type bridge >/share/bridges
ps >/share/processes
