//! Whole clusters of bare nodes under one seeded scheduler with virtual time: any fault, the same
//! run every time. A failing run prints its seed and a shortened list of operations.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs)]

mod bounds;
mod chaos;
mod claims;
mod clients;
mod confirmations;
mod deep;
mod disk;
mod entry_refs;
mod events;
mod findings;
mod groups;
mod harness;
mod idle;
mod journal;
mod neighbour;
mod offers;
mod ops;
mod power;
mod regressions;
mod retention;
mod roles;
mod scale;
mod storms;
mod strangers;
mod table_readers;
mod traps;
mod tree;
mod unlisted;
mod users;
mod verdicts;
mod world;
