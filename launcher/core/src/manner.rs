//! How the ranks of a job are saved and moved, as far as the state machines must know it.

use serde::{Deserialize, Serialize};

/// Who writes the images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Saver {
    /// Each rank its own, when it hears FTB_CHECKPOINT.
    #[default]
    Ranks,
    /// The agent of their node; the ranks know nothing of it.
    Agent,
}

/// How the ranks of a node get to another node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Moves {
    /// All ranks of the job suspend themselves and meet in a barrier (thesis, 3.4.2).
    #[default]
    Meeting,
    /// They are moved without the others' help: these only see a pause.
    Alone,
    /// The job is saved and starts again from that set without the node.
    Anew,
}

/// What the state machines must know of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manner {
    /// Who writes the images.
    pub saver: Saver,
    /// How ranks move.
    pub moves: Moves,
}
