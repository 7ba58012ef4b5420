#!/bin/sh
# The demonstration with the binaries of a development build. Arguments go to ftb-demo (see --help).
set -eu
cd "$(dirname "$0")/../.."
FTB_BIN_DIR=$(cd "${CARGO_TARGET_DIR:-target}/debug" && pwd)
export FTB_BIN_DIR
exec "$FTB_BIN_DIR/ftb-demo" "$@"
