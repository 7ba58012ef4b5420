#!/bin/sh
# test.sh [ARGUMENT of unittest...]: builds the wheel, installs it into an environment of its own,
# and runs its tests against a real agent (FTB_AGENT_BIN, default: target/debug/ftb-agent). Exit
# status 77 and one line where the wheel cannot be built: see wheel.sh.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
target=${CARGO_TARGET_DIR:-$(cd "$here/../.." && pwd)/target}
export FTB_AGENT_BIN="${FTB_AGENT_BIN:-$target/debug/ftb-agent}"

wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
"$here/wheel.sh" "$wheels" --profile dev
python=$target/python/bin/python
"$python" -m pip install --quiet --disable-pip-version-check --no-index --force-reinstall "$wheels"/*.whl
cd "$here/tests"
"$python" -W error::ResourceWarning -m unittest "$@"
