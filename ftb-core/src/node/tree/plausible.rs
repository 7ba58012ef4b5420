//! Numbers that a neighbour may say: epochs and indices that no honest agent can have reached are
//! refused.
//!
//! An agent that hears of an epoch opens a higher one, and goes on from the highest index. One
//! frame of a broken or hostile neighbour could raise both to where the wire has no room left: then
//! no agent accepts what the others say. A bound that stands still does not help: a neighbour that
//! says exactly that number brings the next one above it. So the bounds rise with the clock, faster
//! than any cluster counts. A number that one agent accepts is below the bound of each other one a
//! moment later, and the tree heals.
//!
//! Responsible for: which numbers are plausible. Not responsible for: what becomes of a link that
//! says others, and the bounds of the wire format, which leave room above these.

use crate::epochs::EpochHistory;
use crate::frame::{Frame, UpItem};
use crate::node::cx::Cx;
use crate::node::links::LinkRole;
use crate::numbers::LogIndex;
use crate::position::{Epoch, Position};

/// Epochs up to this number are plausible at any time: one epoch a second for 34,000 years.
pub const EPOCH_FLOOR: u64 = 1 << 40;
/// Highest plausible epoch by the clock: one epoch for each millisecond since 1970.
const EPOCH_NS: u64 = 1_000_000;
/// Indices up to this number are plausible at any time: a million events a second for 35 years.
pub const INDEX_FLOOR: u64 = 1 << 50;
/// Highest plausible index by the clock: one entry for each 100 ns since 1970.
const INDEX_NS: u64 = 100;
/// So far may the clocks of two neighbours be apart.
const CLOCKS_APART_NS: u64 = 3_600_000_000_000;

/// The highest numbers that are plausible at a time, Unix nanoseconds.
fn bounds(now_ns: u64, clocks_apart: u64) -> Said {
    let now_ns = now_ns.saturating_add(CLOCKS_APART_NS.saturating_mul(clocks_apart));
    let (epoch, index) =
        ((now_ns / EPOCH_NS).max(EPOCH_FLOOR), (now_ns / INDEX_NS).max(INDEX_FLOOR));
    Said { epoch, index: index.into() }
}

/// Whether a log that was read from a disk can be one. `now_ns`: Unix nanoseconds.
///
/// # Errors
/// Which number is out of range.
pub fn check_stored(epochs: &EpochHistory, last: LogIndex, now_ns: u64) -> Result<(), String> {
    Said::of_log(epochs, last).above(bounds(now_ns, 1)).map_or(Ok(()), Err)
}

/// What a frame says that the agent would go on from.
#[derive(Clone, Copy, Default)]
struct Said {
    epoch: u64,
    index: LogIndex,
}

impl Said {
    /// What of it is above a bound, in words.
    fn above(self, max: Self) -> Option<String> {
        if self.epoch > max.epoch {
            return Some(format!(
                "epoch {}, which is out of range (at most {})",
                self.epoch, max.epoch
            ));
        }
        let is_above = self.index > max.index;
        is_above
            .then(|| format!("index {}, which is out of range (at most {})", self.index, max.index))
    }

    fn of_log(epochs: &EpochHistory, last: LogIndex) -> Self {
        Self { epoch: epochs.head().number, index: last.max(first_of(epochs)) }
    }

    fn of_epoch(epoch: Epoch, index: LogIndex) -> Self {
        Self { epoch: epoch.number, index }
    }

    /// With a position beside the rest.
    fn with(self, Position { epoch, index }: Position) -> Self {
        Self { epoch: self.epoch.max(epoch.number), index: self.index.max(index) }
    }

    fn of_frame(frame: &Frame) -> Self {
        match frame {
            Frame::Hello(hello) => {
                let held =
                    hello.log_range.map_or(LogIndex::ZERO, |holds| holds.after.max(holds.until));
                let said = Self::of_log(&hello.epochs, hello.commit_index.max(held));
                Self { epoch: said.epoch.max(hello.epoch_seen), ..said }
            }
            Frame::HelloAck(hello_ack) => {
                Self::of_log(&hello_ack.tree_state.epochs, hello_ack.tree_state.head)
            }
            Frame::TreeState(tree_state) => Self::of_log(&tree_state.epochs, tree_state.head),
            Frame::ReplicaStart(start) => Self::of_log(&start.epochs, start.after),
            Frame::Heartbeat(heartbeat) => {
                let Position { epoch, index } = heartbeat.covered.unwrap_or(Position::ZERO);
                Self { epoch: epoch.number.max(heartbeat.epoch_seen), index }
            }
            Frame::Resume { epoch, after } => Self::of_epoch(*epoch, *after),
            Frame::Up(batch) => batch.items.iter().fold(Self::default(), |said, item| match item {
                UpItem::Fork { epoch, until, .. } => {
                    Self { epoch: said.epoch.max(epoch.number), index: said.index.max(*until) }
                }
                UpItem::Gap(gap) => said.with(gap.after).with(gap.until),
                UpItem::Events(_) | UpItem::Loss(_) => said,
            }),
            Frame::FilterActive { index, .. } => Self { epoch: 0, index: *index },
            Frame::HistoryReply(fetched) => {
                let last = fetched.items.iter().map(|item| item.last()).max().unwrap_or_default();
                Self { epoch: 0, index: fetched.covered.max(last) }
            }
            Frame::Replicate(batch) => {
                let last = batch.items.iter().map(|item| item.last()).max().unwrap_or_default();
                Self::of_epoch(batch.epoch, batch.until.max(last))
            }
            Frame::Down(down) => {
                let last = down.items.iter().map(|item| item.last()).max().unwrap_or_default();
                Self::of_epoch(down.epoch, down.covered.max(last))
            }
            Frame::ReplicaAck { epoch, index, .. } => Self::of_epoch(*epoch, *index),
            Frame::Confirm(confirm) => {
                Self::of_epoch(confirm.position.epoch, confirm.position.index)
            }
            // They carry none, or what a client asks for, from which no agent goes on.
            Frame::HistoryRequest(_)
            | Frame::HelloNack(_)
            | Frame::Close(_)
            | Frame::Subscribe(_)
            | Frame::Credit { .. }
            | Frame::Nak { .. }
            | Frame::Resend
            | Frame::DedupRanges(_)
            | Frame::Members(_)
            | Frame::DynamicMembers(_)
            | Frame::MembershipSnapshot(_)
            | Frame::TreeQuery { .. }
            | Frame::TreeAnswer { .. }
            | Frame::Probe(_)
            | Frame::ProbeAnswer(_)
            | Frame::TraceRequest(_)
            | Frame::TraceAnswer(_) => Self::default(),
        }
    }
}

fn first_of(epochs: &EpochHistory) -> LogIndex {
    epochs.segments().last().map_or(LogIndex::ZERO, |segment| segment.first)
}

/// What a frame says that is out of range, in words. What is accepted from one neighbour is passed
/// on to others whose clocks are behind: a child may say more than a stranger, and a parent more
/// than a child.
pub(crate) fn implausible(cx: &Cx, role: LinkRole, frame: &Frame) -> Option<String> {
    let clocks_apart = match role {
        LinkRole::Handshaking => 1,
        LinkRole::Child => 2,
        LinkRole::Dialing | LinkRole::Parent | LinkRole::Closing => 4,
    };
    Said::of_frame(frame).above(bounds(cx.now.wall_ns, clocks_apart))
}
