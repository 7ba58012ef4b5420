#!/bin/sh
# Revokes certificates that certificates.sh made in the current folder, and writes the revocation
# list crl.pem with all that were ever revoked here. Without a host the list is written again.
#
#   deploy/dev/revoke.sh [HOST...]
set -eu
test -f ca.key || { sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2; }
umask 077
touch revoked.txt
printf '%s\n' '[ca]' 'default_ca = ftb' '[ftb]' 'database = revoked.txt' 'default_md = sha256' \
  'default_crl_days = 3650' 'crlnumber = crlnumber.txt' 'crl_extensions = list' '[list]' \
  'authorityKeyIdentifier = keyid' > revoke.cnf
test -f crlnumber.txt || echo 01 > crlnumber.txt
ca="openssl ca -config revoke.cnf -keyfile ca.key -cert ca.pem"
for host in "$@"; do
  $ca -revoke "$host.pem"
done
$ca -gencrl -out crl.pem
