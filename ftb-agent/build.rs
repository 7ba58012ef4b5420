//! How a release build of the agent is laid out: what an event that comes alone passes through lies side
//! by side, so that it finds its code in few pages (docs/performance.md, *What helped*).
//!
//! `FTB_EVENT_PATH=0` leaves it to the linker: for one that knows no scripts with `INSERT` (GNU ld and LLVM's
//! do), and for valgrind, which knows functions by name only where they lie in `.text`.

use std::env::var;

/// Written by `make event-path`.
const SCRIPT: &str = "event-path.ld";

fn main() {
    println!("cargo:rerun-if-changed={SCRIPT}");
    println!("cargo:rerun-if-env-changed=FTB_EVENT_PATH");
    let is = |name: &str, value: &str| var(name).is_ok_and(|found| found == value);
    let folder = var("CARGO_MANIFEST_DIR").unwrap_or_default();
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_OS", "linux") && !is("FTB_EVENT_PATH", "0")
    {
        println!("cargo:rustc-link-arg-bins=-Wl,-T,{folder}/{SCRIPT}");
    }
}
