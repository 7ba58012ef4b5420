//! Tests of sessions, and the fake BMC that they need.

pub mod fake;
pub mod hostile;
#[cfg(test)]
mod sessions;
