//! The four migration states of a node (thesis, 3.4.2) with every edge. Other transitions are
//! refused. A test renders the table into `docs/states.md`.

use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MigrationState {
    /// Active: it has ranks of the job or may get some.
    Ready,
    /// Source of an open migration: its ranks are leaving.
    Arm,
    /// Hot spare: no ranks, waiting to become a target.
    Spare,
    /// Its ranks have left; not usable until it is marked as usable.
    Inactive,
}

impl MigrationState {
    pub const ALL: [Self; 4] = [Self::Ready, Self::Arm, Self::Spare, Self::Inactive];

    /// As the thesis writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "MIGRATION_READY",
            Self::Arm => "MIGRATION_ARM",
            Self::Spare => "MIGRATION_SPARE",
            Self::Inactive => "MIGRATION_INACTIVE",
        }
    }
}

impl fmt::Display for MigrationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for MigrationState {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let start: String = text.chars().take(32).collect();
            format!("{start:?} is no migration state")
        })
    }
}

/// What moves a node from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// FTB_JL_LAUNCH gives it ranks.
    LaunchedHere,
    /// FTB_JL_LAUNCH gives it none.
    LaunchedElsewhere,
    /// FTB_MIGRATE names it as source.
    MigrateFromHere,
    /// Its last rank has left with its image written.
    AllLeft,
    /// FTB_MIGRATE_ABORT for the migration it is armed for.
    Aborted,
    /// FTB_MIGRATE_IPT names it as target.
    StartHere,
    /// FTB_JL_RESET: its ranks are killed.
    Reset,
    Usable,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    pub from: MigrationState,
    pub cause: Cause,
    pub to: MigrationState,
    /// For the reader of `docs/states.md`.
    pub meaning: &'static str,
}

const fn edge(
    from: MigrationState,
    cause: Cause,
    to: MigrationState,
    meaning: &'static str,
) -> Edge {
    Edge { from, cause, to, meaning }
}

#[rustfmt::skip]
pub const EDGES: &[Edge] = {
    use Cause::{Aborted, AllLeft, LaunchedElsewhere, LaunchedHere};
    use Cause::{MigrateFromHere, Reset, StartHere, Usable};
    use MigrationState::{Arm, Inactive, Ready, Spare};
    &[
        edge(Ready, LaunchedHere, Ready, "start of the job, or restart from a set, on a primary \
                                          node"),
        edge(Spare, LaunchedHere, Ready, "restart from a set: the spare is substituted for a lost \
                                          node"),
        edge(Ready, LaunchedElsewhere, Spare, "restart from a set that places no rank here: the \
                                               node is free"),
        edge(Spare, LaunchedElsewhere, Spare, "start of the job: the spare waits"),
        edge(Inactive, LaunchedElsewhere, Inactive, "restart from a set: a node in doubt stays \
                                                     out"),
        edge(Ready, MigrateFromHere, Arm, "phase I: its ranks write their images and leave"),
        edge(Arm, AllLeft, Inactive, "phase I complete: FTB_MIGRATE_PIC is published"),
        edge(Arm, Aborted, Ready, "way back of phase I: who has not left stays"),
        edge(Inactive, Aborted, Inactive, "the abort came too late: all had left, phase II \
                                           follows"),
        edge(Spare, StartHere, Ready, "phase II: the target starts the ranks; in a rollback: \
                                       those of a lost node"),
        edge(Ready, StartHere, Ready, "after an abort: ranks that had left already start again \
                                       where they were; in a rollback: ranks that died"),
        edge(Inactive, StartHere, Ready, "way back of phase II: no target could take the ranks, \
                                          the source takes them back"),
        edge(Ready, Reset, Ready, "restart from a set: its ranks are killed, the launch decides"),
        edge(Arm, Reset, Ready, "the migration failed beyond repair and the job restarts from a \
                                 set"),
        edge(Spare, Reset, Spare, "restart from a set: nothing to kill"),
        edge(Inactive, Reset, Inactive, "restart from a set: nothing to kill, and the node stays \
                                         out"),
        edge(Inactive, Usable, Spare, "the fault is gone (NORMAL): the node is a hot spare again"),
        edge(Spare, Usable, Spare, "said twice"),
    ]
};

impl MigrationState {
    /// The next state; `None`: `cause` is refused.
    pub fn next(self, cause: Cause) -> Option<Self> {
        EDGES.iter().find(|edge| edge.from == self && edge.cause == cause).map(|edge| edge.to)
    }
}

/// The table as Markdown.
pub fn table() -> String {
    let mut text = String::from("| from | cause | to | meaning |\n|---|---|---|---|\n");
    for Edge { from, cause, to, meaning } in EDGES {
        text += &format!("| {from} | {cause:?} | {to} | {meaning} |\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_state_has_two_answers_to_one_cause() {
        for (index, edge) in EDGES.iter().enumerate() {
            let twins =
                EDGES.iter().filter(|other| other.from == edge.from && other.cause == edge.cause);
            assert_eq!(twins.count(), 1, "edge {index}: {edge:?}");
        }
    }

    #[test]
    fn the_thesis_path_is_there_and_a_spare_is_never_a_source() {
        use Cause::{AllLeft, MigrateFromHere, StartHere, Usable};
        use MigrationState::{Arm, Inactive, Ready, Spare};
        assert_eq!(Ready.next(MigrateFromHere), Some(Arm));
        assert_eq!(Arm.next(AllLeft), Some(Inactive));
        assert_eq!(Spare.next(StartHere), Some(Ready));
        assert_eq!(Inactive.next(Usable), Some(Spare));
        assert_eq!(Spare.next(MigrateFromHere), None);
        assert_eq!(Arm.next(StartHere), None);
        assert_eq!(Arm.next(Usable), None);
    }
}
