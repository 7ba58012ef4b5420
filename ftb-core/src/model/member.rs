//! The states of a member of the tree.

/// *Absent* (never seen, or planned down) and *dead* (was here, lost) are different states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MemberState {
    /// Not started yet, drained, or stopped in order.
    Absent,
    /// In the tree.
    Up,
    /// Has left its parent for another one, which has not reported it yet.
    Moved,
    /// Its link is lost; whether the node lives is being asked, or not known.
    Suspect,
    /// Its agent is gone or stopped, and its host lives.
    Lost,
    /// Was here and is lost.
    Dead,
}

impl MemberState {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Absent, Self::Up, Self::Moved, Self::Suspect, Self::Lost, Self::Dead];

    /// Whether the acting root expects the member.
    pub(crate) const fn is_missed(self) -> bool {
        matches!(self, Self::Moved | Self::Suspect | Self::Lost)
    }

    /// The stable word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Up => "up",
            Self::Moved => "moved",
            Self::Suspect => "suspect",
            Self::Lost => "lost",
            Self::Dead => "dead",
        }
    }
}
