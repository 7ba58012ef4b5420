//! Tests that cannot run on a machine: they say so where people see it, or fail where all must run.
//!
//! Not responsible for deciding whether a test can run.

use std::io::Write as _;

/// Set by a machine on which every test must run, such as a CI machine: skipping is a failure
/// there.
pub const REQUIRE_ALL: &str = "FTB_REQUIRE_ALL";

/// Reports that the calling test does not run, and why. The caller returns afterwards.
///
/// The line goes past the test harness, which hides the output of tests that pass.
///
/// # Panics
/// The environment has [`REQUIRE_ALL`] set, and not to an empty value or 0.
pub fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    assert!(!is_required(), "{test} cannot run, but {REQUIRE_ALL} is set: {reason}");
    // A closed standard error leaves no place for the line.
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {reason}");
}

fn is_required() -> bool {
    std::env::var_os(REQUIRE_ALL).is_some_and(|value| !value.is_empty() && value != "0")
}
