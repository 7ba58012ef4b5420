//! The dispatcher passes on what one part has for another: no part reaches into another.

mod children;
mod clients;
mod conditions;
mod frames;
mod membership;
mod questions;
mod uplink;
mod upward;

pub(crate) use upward::KEPT_WINDOWS;
