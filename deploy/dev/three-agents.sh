#!/bin/sh
# Starts three agents on this machine, to try ftb without root and certificates: each has a host
# name, a loopback address and a socket of its own. Ctrl-C ends them.
#
#   deploy/dev/three-agents.sh [FOLDER]        needs ftb-agent on the PATH
set -eu
folder=${1:-$(mktemp -d)}
mkdir -p "$folder"
for i in 1 2 3; do
  cat > "$folder/$i.toml" <<END
cluster = "try"
members = "node[1-3]"
host = "node$i"
insecure = true
listen = "127.0.0.$i:14451"
socket = "$folder/$i.sock"
[addresses]
node1 = "127.0.0.1:14451"
node2 = "127.0.0.2:14451"
node3 = "127.0.0.3:14451"
END
  ftb-agent --config "$folder/$i.toml" 2> "$folder/$i.log" &
done
trap 'kill $(jobs -p) 2> /dev/null; wait' EXIT INT TERM
echo "export FTB_AGENT_SOCKET=$folder/3.sock"
echo "then: ftbctl tree; ftbctl publish my.health.check DISK_FULL --severity error 'is full'"
wait
