//! Inputs of the simulation, their times and their failures.

pub use ftb_fuzz::random::SplitMix as Rng;
use ftb_launcher_core::jl::{self, Request};
use ftb_launcher_core::memory::GroupTask;
use ftb_launcher_core::message::FromJl;
use ftb_launcher_core::names::{Episode, NodeName, Ranks, SetId};
use ftb_launcher_core::nla;

/// Failures in percent of the messages, image writes and copies.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub lost: u64,
    pub doubled: u64,
    pub delay_ms_max: u64,
    pub image: u64,
    pub copy: u64,
}

/// How long things take, in milliseconds.
#[derive(Clone, Copy)]
pub struct Times {
    /// One step of all ranks.
    pub step_ms: u64,
    /// A rank's image, at least.
    pub image_ms: u64,
    /// A set, to the store.
    pub store_ms: u64,
    /// The protection of a share, and its return.
    pub group_ms: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { step_ms: 10, image_ms: 10, store_ms: 80, group_ms: 1 }
    }
}

/// The fate of one message.
#[derive(Clone, Debug)]
pub enum Fate {
    Lost,
    Doubled,
    Late,
    /// This happens just before it arrives.
    Before(Happens),
    /// This happens just after it has arrived.
    After(Happens),
}

#[derive(Clone, Debug)]
pub enum Happens {
    ToJl(Box<jl::JlInput>),
    ToNla(NodeName, Box<nla::NlaInput>),
    ToProc(u64, FromJl),
    Written(u64, Episode, SetId),
    Work,
    /// The time is reached.
    Nothing,
    Request(Request),
    /// A node looks again for images that were not there.
    Copy(NodeName, Box<Copy>),
    /// A node makes parity or copies.
    Protect(NodeName, Box<GroupTask>),
    /// A node takes the place of a lost member of a group.
    Gather(NodeName, Box<GroupTask>),
    /// The nodes are to be added.
    Add(Vec<NodeName>),
    /// The node is gone, and its launch agent cannot be started.
    Down(NodeName),
    /// Its launch agent can be started again.
    Up(NodeName),
    KillNode(NodeName),
    /// The same, known at once.
    Gone(NodeName),
    Silence(NodeName),
    /// From now on the state of the launcher cannot be saved, or again.
    Full(bool),
    KillJl,
    ReviveJl,
    KillRank(u32),
    /// The process has reached the point at which it is parked.
    Parks(NodeName, u32),
    ParkedDies(NodeName, u32),
}

/// Images on their way to a node.
#[derive(Clone, Debug)]
pub struct Copy {
    pub episode: Episode,
    pub from: Option<NodeName>,
    pub set: SetId,
    pub ranks: Ranks,
    /// Unsuccessful looks for the images.
    pub looks: u32,
}

/// Then a node does not look for an image any more.
pub const LOOKS_MAX: u32 = 50;

/// When, in which order, what.
pub struct At(pub u64, pub u64, pub Happens);

impl PartialEq for At {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for At {}
impl PartialOrd for At {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for At {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.0, other.1).cmp(&(self.0, self.1))
    }
}
