//! How a JL is configured: deadlines, what follows a death or a hang, intervals, memory.

use super::checkpoint_timer::{Interval, MTBF};
use crate::manner::Manner;
use crate::memory::Scheme;
use crate::message::Placement;
use crate::names::{JobId, NodeName, SetId};
use crate::progress::HangTimes;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Deadline of each phase. The table in `launcher/core/protocol.md` has the ways back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Deadlines {
    /// Until every NLA is there.
    #[serde(with = "humantime_serde")]
    pub gather: Duration,
    /// Until every NLA has started its ranks.
    #[serde(with = "humantime_serde")]
    pub launch: Duration,
    /// Until a target has started the ranks of a migration.
    #[serde(with = "humantime_serde")]
    pub restart: Duration,
    /// Until restarted or moved ranks are in the barrier with all others.
    #[serde(with = "humantime_serde")]
    pub join: Duration,
    /// Until every rank computes again.
    #[serde(with = "humantime_serde")]
    pub resume: Duration,
    /// Until every NLA that saves its ranks has prepared them.
    #[serde(with = "humantime_serde")]
    pub prepare: Duration,
    /// Until every rank has written its image.
    #[serde(with = "humantime_serde")]
    pub save: Duration,
    /// Until the images of a checkpoint are in the store.
    #[serde(with = "humantime_serde")]
    pub store: Duration,
    /// Until the images of a checkpoint in memory are protected.
    #[serde(with = "humantime_serde")]
    pub protect: Duration,
    /// Until the ranks of the source have left.
    #[serde(with = "humantime_serde")]
    pub leave: Duration,
    /// Until images are copied.
    #[serde(with = "humantime_serde")]
    pub copy: Duration,
    /// Until killed ranks are gone.
    #[serde(with = "humantime_serde")]
    pub reset: Duration,
    /// Until the NLAs have left at the end.
    #[serde(with = "humantime_serde")]
    pub end: Duration,
    /// Not of a phase: how long an NLA may be silent before its node counts as lost.
    #[serde(with = "humantime_serde")]
    pub silence: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        let s = Duration::from_secs;
        Self {
            gather: s(60),
            launch: s(60),
            restart: s(30),
            join: s(60),
            resume: s(30),
            prepare: s(60),
            save: s(300),
            store: s(600),
            protect: s(300),
            leave: s(60),
            copy: s(300),
            reset: s(20),
            end: s(15),
            silence: s(15),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDeath {
    /// Survivors go back to the last set in place; dead ranks are started from it. Where that is
    /// impossible: as [`OnDeath::Restart`].
    #[default]
    Rollback,
    /// All ranks end, and the job starts anew from its last set. Without a set the job ends.
    Restart,
    /// Spares take the place of lost nodes. Other dead ranks are left out: the others divide the
    /// last set among them, in place (`job/shrink.rs`). Where the program cannot, as
    /// [`OnDeath::Rollback`]; without a spare the job starts anew with fewer ranks then.
    Shrink,
    /// End the job with the code of the failed rank.
    Stop,
    /// The others go on without dead ranks, and repair their communicators themselves
    /// (`jl/repair.rs`).
    Continue,
}

impl OnDeath {
    /// The word in policy files.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Rollback => "rollback",
            Self::Restart => "restart",
            Self::Shrink => "shrink",
            Self::Stop => "stop",
            Self::Continue => "continue",
        }
    }
}

/// What is done about a hung rank. Without a set it is only reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnHang {
    #[default]
    Report,
    /// All ranks end, and the job starts anew from its last set.
    Restart,
    /// The hung rank is killed. Survivors go back to the last set in place; where that is
    /// impossible, or all ranks are hung: as [`OnHang::Restart`]. Written as launchers before
    /// `rollback` read it, too.
    #[serde(alias = "rollback")]
    RollBack,
    /// The job ends.
    Kill,
}

impl OnHang {
    /// The word in policy files.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Report => "report",
            Self::Restart => "restart",
            Self::RollBack => "rollback",
            Self::Kill => "kill",
        }
    }
}

/// The configuration of a JL.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JlConfig {
    pub job: JobId,
    pub size: u32,
    /// The first placement.
    pub placement: Placement,
    /// Hot spares, in the order of use.
    pub spares: Vec<NodeName>,
    /// The set in the store to start from.
    pub restore: Option<SetId>,
    pub deadlines: Deadlines,
    pub on_death: OnDeath,
    /// Recoveries without a new set in between before the job ends.
    pub restarts_max: u32,
    #[serde(default)]
    pub interval: Interval,
    /// Of checkpoints on the disks of the nodes.
    #[serde(default)]
    pub disk_interval: Interval,
    /// Configured mean time between failures.
    #[serde(default = "mtbf", with = "humantime_serde")]
    pub mtbf: Duration,
    /// How long a job without a spare for a lost node waits for nodes; zero: it ends.
    #[serde(default, with = "humantime_serde")]
    pub wait_for_nodes: Duration,
    /// How many sets are kept.
    pub sets_max: usize,
    #[serde(default)]
    pub manner: Manner,
    #[serde(default)]
    pub on_hang: OnHang,
    #[serde(default)]
    pub hang_times: HangTimes,
    /// Checkpoints in the memory of the nodes.
    #[serde(default)]
    pub memory: Option<MemoryConfig>,
}

/// Checkpoints in the memory of the nodes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryConfig {
    pub scheme: Scheme,
    pub interval: Interval,
    /// The first one precedes the first step.
    pub first: bool,
    /// The racks of nodes, where known.
    #[serde(default)]
    pub racks: BTreeMap<NodeName, String>,
}

fn mtbf() -> Duration {
    MTBF
}
