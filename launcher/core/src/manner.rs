//! How the ranks of a job are saved and moved, as far as the state machines need it.

use serde::{Deserialize, Serialize};

/// The process that writes the images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Saver {
    /// Each rank saves itself on FTB_CHECKPOINT.
    #[default]
    Ranks,
    /// The launch agent of their node; the ranks do not take part.
    Agent,
    /// Each rank in its call of `ftb_loop` with the number that its launch agent gives it.
    Loop,
}

/// Why a save of [`Saver::Loop`] is void that is tried again with more time.
pub const LOOP_MISSED: &str = "it was behind the loop id of the save";

/// How the ranks of a node get to another node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Moves {
    /// All ranks of the job suspend themselves and meet in a barrier (thesis, 3.4.2).
    #[default]
    Meeting,
    /// Without the other ranks, which only see a pause.
    Alone,
    /// The job is saved and restarts from that set without the node.
    Anew,
}

/// Properties of a backend that the state machines need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manner {
    pub saver: Saver,
    pub moves: Moves,
}
