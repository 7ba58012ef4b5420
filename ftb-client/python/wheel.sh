#!/bin/sh
# wheel.sh DIRECTORY [OPTION...]: builds the wheel of the package ftb into that directory, with
# maturin out of an environment of its own under the target directory. OPTION: of `maturin build`,
# such as --release. Exit status 77 and one line where that cannot be: no python3-venv, or no
# package index to get maturin from.
set -eu
[ $# -ge 1 ] || { echo "usage: wheel.sh DIRECTORY [OPTION of maturin build]..." >&2; exit 2; }
mkdir -p "$1"
wheels=$(cd "$1" && pwd)
shift
cd "$(dirname "$0")"
environment=${CARGO_TARGET_DIR:-$(cd ../.. && pwd)/target}/python

cannot() { echo "the Python package cannot be built: $1"; exit 77; }
if [ ! -x "$environment/bin/maturin" ]; then
    rm -rf "$environment"
    python3 -m venv "$environment" >/dev/null 2>&1 || cannot "install python3-venv"
    "$environment/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.9.4,<2' ||
        cannot "pip cannot install maturin"
fi
rm -f "$wheels"/ftb-*.whl
"$environment/bin/maturin" build --quiet --locked --out "$wheels" \
    --interpreter "$environment/bin/python" "$@"
