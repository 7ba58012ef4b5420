#!/bin/sh
# Creates a CA and one certificate for each host, in the current folder: ca.key, ca.pem, HOST.key,
# HOST.pem. A second call keeps the CA. The name of a host must be the one in `members`, CLUSTER
# the name of the cluster: the certificates name both, and agents refuse those of other clusters.
#
#   deploy/dev/certificates.sh CLUSTER HOST...
set -eu
test $# -ge 2 || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
cluster=$1
shift
umask 077
new="openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
test -f ca.key || $new -x509 -days 3650 -subj "/CN=ftb of $cluster" \
  -addext "subjectAltName=URI:ftb://$cluster" -keyout ca.key -out ca.pem
for host in "$@"; do
  $new -subj "/CN=$host" -keyout "$host.key" -out "$host.csr"
  printf 'subjectAltName=DNS:%s,URI:ftb://%s/%s\n' "$host" "$cluster" "$host" > "$host.ext"
  openssl x509 -req -in "$host.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 825 \
    -extfile "$host.ext" -out "$host.pem"
  rm "$host.csr" "$host.ext"
done
