//! Clusters of real agent processes, broken on purpose while every event is accounted for.
//!
//! `kills`: any agent is killed or stopped under load; `cuts`: the network between hosts (network
//! namespaces) is cut and healed; `crowds`: clients that come and go, never read, never speak;
//! `reload`: configurations that change; `machines`: clocks that jump and disks that are full;
//! `traps`: what the recovery protocol must survive beside that; `strangers`: agents that do not
//! belong. Tests wait for conditions, one cluster at a time: each takes all the machine that it can
//! get.
#![allow(clippy::unwrap_used)]

mod crowds;
mod cuts;
mod kills;
mod machines;
mod reload;
mod strangers;
mod traps;

use ftb_tests::cluster::{Cluster, Plan};
use ftb_tests::load::LoadPlan;
use std::path::PathBuf;
use tokio::sync::{Mutex, MutexGuard};

/// Whose turn it is.
async fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

/// Nothing may be shed on a machine that is slower than the load: what is tested is the loss of
/// agents, not that of time.
const ROOMY: &str =
    "[limits]\nlag_bytes = 67108864\nlog_bytes = 134217728\nring_bytes = 67108864\n";

/// A plan with detection times that suit tests, and room.
fn plan(agents: usize) -> Plan {
    Plan::new(agents, 2).extra(&format!(
        "[detection]\nsilence = \"1s\"\nheartbeat = \"250ms\"\ndial = \"500ms\"\n\
         search = \"600ms\"\nprobe = \"200ms\"\n{ROOMY}"
    ))
}

/// A plan for agents that are killed and never silent: their closed sockets show it. A machine
/// under load may stop an agent for a second; with short detection times the tree would never
/// settle.
fn patient_plan(agents: usize) -> Plan {
    Plan::new(agents, 2).extra(&format!(
        "[detection]\nsilence = \"10s\"\nheartbeat = \"1s\"\ndial = \"2s\"\n\
         search = \"600ms\"\nprobe = \"200ms\"\n{ROOMY}"
    ))
}

/// `publishers` spread over all agents, and a subscriber at each agent.
fn everywhere(cluster: &Cluster, publishers: usize, per_s: u32) -> LoadPlan {
    let socket = |rank: usize| -> PathBuf { cluster.socket(rank % cluster.len()).to_owned() };
    LoadPlan {
        publishers: (0..publishers).map(socket).collect(),
        per_s,
        subscribers: (0..cluster.len()).map(socket).collect(),
    }
}
