//! Warm spares: processes of the program that wait, already started, for a rank to replace
//! (`--warm-spares`, `--warm-local`).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How many processes a node keeps parked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmProcesses {
    /// On a hot spare.
    pub spare: u32,
    /// On a node with ranks.
    pub local: u32,
}

impl WarmProcesses {
    /// Whether the job has none.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// The parked processes of a node, as it reports them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkedProcesses {
    /// How many it keeps.
    pub wanted: u32,
    /// Process ids of those that wait in the initialization of ftb-job.
    pub waiting: Vec<u32>,
    /// Running ranks that were adopted, with their process ids.
    pub adopted: BTreeMap<u32, u32>,
    /// What failed last; empty when as many are parked as are wanted.
    pub problem: String,
}

impl ParkedProcesses {
    /// Whether there is nothing to report.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}
