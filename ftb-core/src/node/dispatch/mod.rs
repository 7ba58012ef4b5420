//! The dispatcher passes on what one part has for another: no part reaches into another.

mod clients;
mod frames;
mod membership;
mod upward;

pub(in crate::node) use upward::KEPT_WINDOWS;
