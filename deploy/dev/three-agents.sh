#!/bin/sh
# Starts three agents on this machine, to try ftb without root: each has a host name, a loopback
# address and a socket of its own. Ctrl-C ends them. With CA, a folder of `ftbctl ca` that has
# certificates of node[1-3], they authenticate each other by TLS.
#
#   deploy/dev/three-agents.sh [FOLDER [CA]]        needs ftb-agent on the PATH
set -eu
folder=${1:-$(mktemp -d)}
net=${FTB_LOOPBACK:-127.0.0}
mkdir -p "$folder"
[ $# -lt 2 ] || ca=$(cd "$2" && pwd)
for i in 1 2 3; do
  cat > "$folder/$i.toml" <<END
cluster = "try"
members = "node[1-3]"
host = "node$i"
listen = "$net.$i:14451"
agent_socket = "$folder/$i.sock"
${ca+#}insecure = true
[addresses]
node1 = "$net.1:14451"
node2 = "$net.2:14451"
node3 = "$net.3:14451"
END
  [ -z "${ca-}" ] || cat >> "$folder/$i.toml" <<END
[tls]
ca = "$ca/ca.pem"
crl = "$ca/crl.pem"
cert = "$ca/hosts/node$i/agent.pem"
key = "$ca/hosts/node$i/agent.key"
END
  ftb-agent --config "$folder/$i.toml" 2> "$folder/$i.log" &
  agents="${agents-} $!"
done
# shellcheck disable=SC2086 # a list of words is meant
trap 'kill $agents 2> /dev/null; wait' EXIT INT TERM
echo "export FTB_AGENT_SOCKET=$folder/3.sock"
echo "then: ftbctl tree; ftbctl publish my.health.check DISK_FULL --severity error 'is full'"
wait
