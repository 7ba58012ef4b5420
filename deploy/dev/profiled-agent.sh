#!/bin/sh
# Builds the agent twice: first one that counts which of its code runs how often, which is put under the loads that it is
# made for (half a minute), then the one that is installed, compiled with what was counted: an event that comes alone,
# as the event of a fault does, takes a fifth less time through it (docs/performance.md, What helped).
# Without the compiler's llvm-profdata it is built once, and a line says so; with PROFILE=no too.
# usage: profiled-agent.sh TARGET   (the folder of finished programs; the agent is left in TARGET/profiled)
set -eu

[ $# -eq 1 ] || { echo "usage: profiled-agent.sh TARGET" >&2; exit 2; }
mkdir -p "$1"
target=$(cd "$1" && pwd)
cargo=${CARGO:-cargo}
rustc=${RUSTC:-rustc}
flags=${RUSTFLAGS:-}
training=$target/training
profiled=$target/profiled
profile=$training/agent.profdata
host=$("$rustc" -vV | sed -n 's/^host: //p')

# The same packages, features and settings both times: functions are known by names that depend on all of them. With the
# host named, what runs while it is built (scripts, macros) counts nothing.
build_agent() {
    CARGO_TARGET_DIR=$1 RUSTFLAGS="$flags $2" "$cargo" build --release --target "$host" -p ftb-agent --bin ftb-agent
    ln -f "$1/$host/release/ftb-agent" "$1/ftb-agent"
}

# That of the compiler itself: the format of what is counted changes with each LLVM.
llvm_profdata() {
    for found in "$("$rustc" --print target-libdir)/../bin/llvm-profdata" "$(command -v "llvm-profdata-$1" || true)"; do
        if [ -x "$found" ]; then echo "$found"; return; fi
    done
    return 1
}

unprofiled() {
    rm -rf "$training"
    build_agent "$profiled" ""
    exit 0
}

# Takes a reason.
warn() { echo "the agent is built without a profile, since $1" >&2; }

[ "${PROFILE:-yes}" != no ] || unprofiled
llvm=$("$rustc" -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
if ! merge=$(llvm_profdata "$llvm"); then
    if command -v rustup >/dev/null; then
        echo "adding llvm-tools to the toolchain"
        rustup component add llvm-tools >/dev/null 2>&1 || true
    fi
    if ! merge=$(llvm_profdata "$llvm"); then
        warn "llvm-profdata of LLVM $llvm is missing: rustup component add llvm-tools"
        unprofiled
    fi
fi

echo "the agent that counts which of its code runs"
build_agent "$training" "-Cprofile-generate"
if [ ! "$profile" -nt "$training/ftb-agent" ]; then
    echo "what runs, under the loads that it is made for"
    CARGO_TARGET_DIR=$target "$cargo" build --release -p ftb-bench --bin ftb-bench
    rm -rf "$training/counts" "$profile"
    if ! LLVM_PROFILE_FILE="$training/counts/%p.profraw" FTB_BIN_DIR="$training" "$target/release/ftb-bench" train; then
        warn "it could not be put under load"
        unprofiled
    fi
    "$merge" merge -sparse -o "$profile.new" "$training/counts"
    # What was compiled with another profile is not built anew by itself.
    rm -rf "$profiled" "$training/counts"
    mv "$profile.new" "$profile"
fi
echo "the agent that is installed"
build_agent "$profiled" "-Cprofile-use=$profile"
