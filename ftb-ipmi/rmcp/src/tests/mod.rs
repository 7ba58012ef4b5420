//! Tests of sessions, and the fake BMC that they need.

pub mod fake;
#[cfg(test)]
mod sessions;
