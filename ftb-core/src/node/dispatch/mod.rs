//! The dispatcher passes on what one part has for another: no part reaches into another.

mod clients;
mod conditions;
mod frames;
mod membership;
mod upward;

pub(crate) use upward::KEPT_WINDOWS;
