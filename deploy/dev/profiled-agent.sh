#!/bin/sh
# Builds the agent twice: first one that counts which of its code runs how often, which is put under the loads that it is
# made for (half a minute, servers on loopback), then the one that is installed, compiled with what was counted: an event
# that comes alone, as the event of a fault does, takes a fifth less time through it (docs/performance.md, What helped).
# Where that cannot be (no llvm-profdata of the compiler's own LLVM, no load) it is built once, and a line says why; with
# PROFILE=no too, which makes the same program each time.
# usage: profiled-agent.sh TARGET   (the folder of finished programs; the agent is left in TARGET/profiled)
set -eu

# Called by cargo in the compiler's place. What is compiled for the target gets one more flag; what only runs while it is
# built (scripts, macros) does not, and nobody's own flags are touched.
if [ -n "${FTB_AGENT_FLAG:-}" ]; then
    case " $* " in
    *" --target "*) set -- "$@" "$FTB_AGENT_FLAG" ;;
    esac
    exec "$@"
fi

[ $# -eq 1 ] || { echo "usage: profiled-agent.sh TARGET" >&2; exit 2; }
this=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)/$(basename -- "$0")
mkdir -p "$1"
target=$(CDPATH='' cd -- "$1" && pwd)
cd -- "$(dirname -- "$this")/../.."
# May be several words.
cargo=${CARGO:-cargo}
rustc=${RUSTC:-rustc}
training=$target/training
profiled=$target/profiled
profile=$training/agent.profdata
host=$("$rustc" -vV | sed -n 's/^host: //p')
unset CARGO_BUILD_TARGET

# One at a time.
exec 9>"$target/profiled.lock"
command -v flock >/dev/null && flock 9

# Into a folder, with a flag. The same packages, features and settings both times: functions are known by names that
# depend on all of them.
build_agent() {
    # shellcheck disable=SC2086 # cargo may be several words
    CARGO_TARGET_DIR=$1 RUSTC_WRAPPER=${2:+$this} FTB_AGENT_FLAG=$2 \
        $cargo build --release --target "$host" -p ftb-agent --bin ftb-agent &&
        { ln -f "$1/$host/release/ftb-agent" "$1/ftb-agent" || cp -p "$1/$host/release/ftb-agent" "$1/ftb-agent"; }
}

# The agent that is installed, with a profile or none. Cargo does not know of it: what was compiled with another goes.
finish() {
    sum=none
    [ -z "$1" ] || sum=$(cksum <"$1")
    [ "$(cat "$profiled/profile" 2>/dev/null)" = "$sum" ] || rm -rf "$profiled"
    mkdir -p "$profiled"
    echo "$sum" >"$profiled/profile"
    echo "the agent that is installed"
    # Whoever installs it looks whether sources are newer than this.
    touch "$profiled/begun"
    build_agent "$profiled" "${1:+-Cprofile-use=$1}"
    mv -f "$profiled/begun" "$profiled/checked"
    exit 0
}

# Takes a reason.
without() {
    echo "the agent is built without a profile, since $1" >&2
    finish ""
}

# That of the compiler itself: the format of what is counted changes with each LLVM.
llvm_profdata() {
    for found in "$("$rustc" --print target-libdir)/../bin/llvm-profdata" "$(command -v "llvm-profdata-$1" || true)"; do
        if [ -x "$found" ]; then echo "$found"; return; fi
    done
    return 1
}

[ "${PROFILE:-yes}" != no ] || finish ""
llvm=$("$rustc" -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
if ! merge=$(llvm_profdata "$llvm"); then
    if command -v rustup >/dev/null; then
        echo "adding llvm-tools to the toolchain"
        rustup component add llvm-tools >/dev/null 2>&1 || true
    fi
    merge=$(llvm_profdata "$llvm") || without "llvm-profdata of LLVM $llvm is missing: rustup component add llvm-tools"
fi

echo "the agent that counts which of its code runs"
build_agent "$training" -Cprofile-generate || without "the one that counts cannot be built"
# What has been counted is of this agent, under these loads.
of=$({ "$rustc" -vV; cat "$training/ftb-agent" tests/bench/src/train.rs; } | cksum)
if [ "$(cat "$training/of" 2>/dev/null)" != "$of" ]; then
    echo "what runs, under the loads that it is made for"
    rm -rf "$training/counts" "$profile" "$training/of"
    # shellcheck disable=SC2086
    if CARGO_TARGET_DIR=$target $cargo build --release -p ftb-bench --bin ftb-bench &&
        LLVM_PROFILE_FILE="$training/counts/%p.profraw" FTB_BIN_DIR="$training" "$target/release/ftb-bench" train &&
        "$merge" merge -sparse -o "$profile.new" "$training/counts"; then
        mv "$profile.new" "$profile"
    fi
    rm -rf "$training/counts"
    echo "$of" >"$training/of"
fi
[ -f "$profile" ] || without "it could not be put under load (rm -r $training to try again)"
finish "$profile"
