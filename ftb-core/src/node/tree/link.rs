//! What every link has, whatever it is for: a queue of control frames, and when something was last
//! said and heard.

use crate::frame::{Frame, Item, MemberReport, TreeState};
use std::collections::VecDeque;

/// Most control frames that wait for one link. A link with more is closed.
pub(in crate::node) const CONTROL_FRAMES_MAX: usize = 4_096;
/// Most bytes of control frames that wait for one link, beside [`CONTROL_MEMBER_BYTES`] for each
/// possible member. A link with more is closed. Requests and answers take half of that at most: one
/// more is dropped, and the requester repeats it.
pub(in crate::node) const CONTROL_BYTES_MAX: usize = 4 << 20;
/// The room for one member in that: a whole tree fits into the half for answers.
pub(in crate::node) const CONTROL_MEMBER_BYTES: usize = 256;

/// What a link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum LinkRole {
    /// Accepted; it has not said hello.
    Handshaking,
    /// A child: its hello was accepted.
    Child,
    /// We said hello; no answer yet, or not one we could take.
    Dialing,
    /// Our parent.
    Parent,
    /// Only what is queued is still sent.
    Closing,
}

/// One link.
#[derive(Debug)]
pub(in crate::node) struct Link {
    pub(in crate::node) role: LinkRole,
    pub(in crate::node) control: Control,
    /// The shell knows that there is something to pull, and has not yet pulled everything.
    pub(in crate::node) ready: bool,
    pub(in crate::node) heartbeat_due: bool,
    /// Nothing was heard for a while: its peer is suspected tentatively.
    pub(in crate::node) is_quiet: bool,
    pub(in crate::node) opened_ns: u64,
    pub(in crate::node) heard_at_ns: u64,
    pub(in crate::node) sent_at_ns: u64,
    pub(in crate::node) certified_hosts: Option<Vec<String>>,
}

impl Link {
    pub(in crate::node) fn new(role: LinkRole, now_ns: u64) -> Self {
        Self {
            role,
            control: Control::default(),
            ready: false,
            heartbeat_due: false,
            is_quiet: false,
            opened_ns: now_ns,
            heard_at_ns: now_ns,
            sent_at_ns: now_ns,
            certified_hosts: None,
        }
    }
}

/// Frames that wait to be said, and what they weigh.
#[derive(Debug, Default)]
pub(in crate::node) struct Control {
    frames: VecDeque<Frame>,
    bytes: usize,
}

impl Control {
    pub(in crate::node) fn push(&mut self, frame: Frame) {
        self.bytes += weight(&frame);
        self.frames.push_back(frame);
    }

    pub(in crate::node) fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_front()?;
        self.bytes -= weight(&frame);
        Some(frame)
    }

    pub(in crate::node) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether one more frame fits within that bound. The first frame always does.
    pub(in crate::node) fn has_room_for(&self, frame: &Frame, bytes_max: usize) -> bool {
        self.frames.is_empty()
            || (self.frames.len() < CONTROL_FRAMES_MAX
                && self.bytes.saturating_add(weight(frame)) <= bytes_max)
    }
}

/// The bytes that a frame keeps in memory, near enough: its own, and those of the lists and texts
/// in it.
fn weight(frame: &Frame) -> usize {
    let of_items =
        |items: &[Item]| -> usize { items.iter().map(|item| size_of::<Item>() + item.len()).sum() };
    let of_members = |members: &[MemberReport]| -> usize {
        let texts = |member: &MemberReport| member.host.len() + member.address.len();
        members.iter().map(|member| size_of::<MemberReport>() + texts(member)).sum()
    };
    let of_standing = |tree_state: &TreeState| {
        size_of::<TreeState>()
            + size_of_val(tree_state.epochs.segments())
            + size_of_val(tree_state.path.as_slice())
    };
    let more = match frame {
        Frame::Hello(hello) => {
            size_of_val(&**hello)
                + size_of_val(hello.epochs.segments())
                + hello.interest.filters.iter().map(|filter| filter.weight()).sum::<usize>()
        }
        Frame::HelloAck(hello_ack) => {
            size_of_val(&**hello_ack) + of_standing(&hello_ack.tree_state)
        }
        Frame::HelloNack(hello_nack) => hello_nack.message.len(),
        Frame::Close(close) => close.reason.len(),
        Frame::TreeState(tree_state) => of_standing(tree_state),
        Frame::Subscribe(interest) => interest.filters.iter().map(|filter| filter.weight()).sum(),
        Frame::HistoryRequest(fetch) => fetch.filters.iter().map(|filter| filter.weight()).sum(),
        Frame::Up(batch) => batch.items.iter().map(|item| size_of_val(item) + item.len()).sum(),
        Frame::Down(down) => of_items(&down.items),
        Frame::HistoryReply(fetched) => of_items(&fetched.items),
        Frame::Replicate(batch) => {
            of_items(&batch.items) + size_of_val(batch.entry_refs.as_slice())
        }
        Frame::ReplicaStart(start) => size_of_val(start.epochs.segments()),
        Frame::DedupRanges(dedup) => dedup
            .publishers
            .iter()
            .map(|publisher| size_of_val(publisher) + size_of_val(publisher.1.as_slice()))
            .sum(),
        Frame::Members(members) | Frame::TreeAnswer { members, .. } => of_members(members),
        Frame::DynamicMembers(entries) => {
            entries.iter().map(|entry| size_of_val(entry) + entry.host.len()).sum()
        }
        Frame::MembershipSnapshot(ranks) => size_of_val(ranks.ranges()),
        Frame::Probe(probe) => probe.host.len() + probe.address.len(),
        Frame::Heartbeat(_)
        | Frame::Resume { .. }
        | Frame::FilterActive { .. }
        | Frame::Credit { .. }
        | Frame::Confirm(_)
        | Frame::Nak { .. }
        | Frame::Resend
        | Frame::ReplicaAck { .. }
        | Frame::TreeQuery { .. }
        | Frame::ProbeAnswer(_) => 0,
    };
    size_of::<Frame>() + more
}
