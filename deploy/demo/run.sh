#!/bin/sh
# The demonstration with the binaries of a release build. Arguments go to ftb-demo (see --help).
set -eu
cd "$(dirname "$0")/../.."
FTB_BIN_DIR=$PWD/target/release exec target/release/ftb-demo "$@"
