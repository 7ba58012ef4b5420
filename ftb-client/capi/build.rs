//! How the shared library is linked.
//!
//! SONAME `libftb.so.0`: programs linked from now on ask for this ABI (CIFTS API 0.5 with the
//! negative codes of 0.6.2) by number. Not `.1`: that is what the unreleased CIFTS trunk used,
//! whose codes are positive. Programs linked against the original ask for `libftb.so`, which had no
//! SONAME: the installation keeps that name as a link.
//!
//! `nodelete`: threads of the library live in it, so `dlclose` must not unmap it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libftb.so.0");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
