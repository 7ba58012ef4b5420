//! How the shared library is linked: SONAME `libftbjob.so.0` is this ABI.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libftbjob.so.0");
}
