//! What two agents say to each other, to and from the wire.
//!
//! Responsible for: every size, text and number of a frame. A frame that [`decode`] gives is within
//! all bounds; whether it makes sense at this moment is the core's to judge. Events travel as the
//! bytes of their Sealed, which are checked and never made again.

use crate::common::{
    self, core_confirm_level, core_position, known, wire_confirm, wire_gap, wire_position,
};
use crate::event::EventWireError;
use crate::v1::{self, link_frame::Frame as Wire};
use crate::wire::{Outbound, Pieces};
use bytes::Bytes;
use ftb_core::epochs::EpochHistoryError;
use ftb_core::filter::FilterError;
use ftb_core::frame::{
    Close, Confirm, DEDUP_PUBLISHERS_MAX, DYNAMIC_MEMBERS_MAX, DedupRanges, DynamicMember, Frame,
    Heartbeat, MEMBERS_MAX, MemberReport, Probe, ProbeAnswer, RANKS_MAX, ReplicaStart,
    SNAPSHOT_RANGES_MAX, Settled, SyncedRange,
};
use ftb_core::ident::{OriginId, PublisherId, Rank};
use ftb_core::limits::HOST_BYTES_MAX;
use ftb_core::node::api::{Gap, MemberState};
use ftb_core::position::Position;
use ftb_core::protocol::Features;
use ftb_core::ranges::{RANGES_PER_PUBLISHER_MAX, RangeSet};
use ftb_core::sealed::SpanError;
use prost::{DecodeError, Message as _};
use std::sync::Arc;

mod counts;
mod events;
mod hello;
mod interest;
mod trace;

use events::Body;
use hello::{
    core_epoch, core_epochs, core_hello, core_hello_ack, core_hello_nack, core_tree_state,
    epoch_number, wire_epoch, wire_epochs, wire_hello, wire_hello_ack, wire_nack_code,
    wire_tree_state,
};
use interest::{core_history_request, core_interest, wire_history_request, wire_interest};
pub use trace::{wire_report, wire_trace};

/// The gRPC method of the stream between two agents.
pub const EXCHANGE_METHOD: &str = "/ftb.v1.Link/Exchange";

/// Longest cluster name, address, code or reason in bytes.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Highest number of an epoch: an epoch a nanosecond would reach it in a century.
pub const EPOCH_NUMBER_MAX: u64 = 1 << 62;

/// Why a frame is refused. The link ends: its peer is hostile, broken or of another release.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkWireError {
    /// A field that must be there is not.
    #[error("a {frame} without its {field}")]
    Missing {
        /// In which frame.
        frame: &'static str,
        /// Which field.
        field: &'static str,
    },
    /// A list or text is over its bound.
    #[error("a frame with {count} {what}: at most {max} are allowed")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
        /// The bound.
        max: usize,
    },
    /// A number or word outside its range.
    #[error("a frame with {what} out of range")]
    Range {
        /// Which.
        what: &'static str,
    },
    /// An event that is none.
    #[error(transparent)]
    Event(#[from] EventWireError),
    /// An event whose routing fields lie elsewhere.
    #[error(transparent)]
    Span(#[from] SpanError),
    /// No protobuf message.
    #[error("the bytes of a frame make no sense: {0}")]
    Encoding(#[from] DecodeError),
    /// A filter that is none.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// An epoch history that is none.
    #[error(transparent)]
    EpochHistory(#[from] EpochHistoryError),
}

type Result<T> = core::result::Result<T, LinkWireError>;

fn bound(what: &'static str, count: usize, max: usize) -> Result<()> {
    if count <= max { Ok(()) } else { Err(LinkWireError::TooMany { what, count, max }) }
}

fn text(what: &'static str, text: String, max: usize) -> Result<String> {
    bound(what, text.len(), max)?;
    Ok(text)
}

fn need<T>(frame: &'static str, field: &'static str, value: Option<T>) -> Result<T> {
    value.ok_or(LinkWireError::Missing { frame, field })
}

impl Outbound for Frame {
    fn write(self, out: &mut Pieces) {
        body(&self).write(out);
    }
}

fn body(frame: &Frame) -> Body<'_> {
    Body::Message(match frame {
        Frame::Hello(hello) => Wire::Hello(wire_hello(hello)),
        Frame::HelloAck(ack) => Wire::HelloAck(wire_hello_ack(ack)),
        Frame::HelloNack(nack) => Wire::HelloNack(v1::LinkHelloNack {
            code: wire_nack_code(nack.code).into(),
            message: nack.message.clone(),
            redirect: wire_ranks(&nack.redirect),
        }),
        Frame::Close(close) => {
            Wire::Close(v1::LinkClose { reason: close.reason.clone(), stopping: close.stopping })
        }
        Frame::Heartbeat(beat) => Wire::Heartbeat(v1::LinkHeartbeat {
            covered: beat.covered.map_or(0, |covered| covered.index.get()),
            epoch: beat.covered.map(|covered| wire_epoch(covered.epoch)),
            epoch_seen: beat.epoch_seen,
            wall_ns: beat.wall_ns,
            members_digest: beat.members_digest,
        }),
        Frame::TreeState(state) => Wire::TreeState(wire_tree_state(state)),
        Frame::Resume { epoch, after } => {
            Wire::Resume(v1::Resume { epoch: Some(wire_epoch(*epoch)), after: after.get() })
        }
        Frame::Subscribe(interest) => Wire::Subscribe(wire_interest(interest)),
        Frame::FilterActive { version, index } => {
            Wire::FilterActive(v1::FilterActive { version: *version, index: index.get() })
        }
        Frame::Up(batch) => return events::up_body(batch),
        Frame::Credit { bytes } => Wire::Credit(v1::Credit { bytes: *bytes }),
        Frame::Confirm(confirm) => Wire::Confirm(wire_confirmed(confirm)),
        Frame::Nak { origin, run } => Wire::Nak(v1::Nak { origin: origin.0, run: *run }),
        Frame::Resend => Wire::Resend(v1::Resend {}),
        Frame::Down(down) => return events::down_body(down),
        Frame::HistoryRequest(request) => Wire::HistoryRequest(wire_history_request(request)),
        Frame::HistoryReply(reply) => return events::history_reply_body(reply),
        Frame::ReplicaStart(start) => Wire::ReplicaStart(v1::ReplicaStart {
            epochs: wire_epochs(&start.epochs),
            after: start.after.get(),
            copy: start.copy,
        }),
        Frame::DedupRanges(dedup) => Wire::DedupRanges(wire_dedup(dedup)),
        Frame::Replicate(batch) => return events::replicate_body(batch),
        Frame::ReplicaAck { epoch, index, copy, kept_from, synced } => {
            Wire::ReplicaAck(v1::ReplicaAck {
                epoch: Some(wire_epoch(*epoch)),
                index: index.get(),
                copy: *copy,
                kept_from: *kept_from,
                synced: synced.map(wire_range),
            })
        }
        Frame::Members(members) => Wire::Members(v1::Members { members: wire_members(members) }),
        Frame::DynamicMembers(entries) => Wire::DynamicMembers(wire_dynamic_members(entries)),
        Frame::MembershipSnapshot(ranks) => Wire::MembershipSnapshot(wire_snapshot(ranks)),
        Frame::TreeQuery { origin, query } => {
            Wire::TreeQuery(v1::TreeQuery { origin: origin.0, query: *query })
        }
        Frame::TreeAnswer { origin, query, members, last } => Wire::TreeAnswer(v1::TreeAnswer {
            origin: origin.0,
            query: *query,
            members: wire_members(members),
            last: *last,
        }),
        Frame::Probe(probe) => Wire::Probe(wire_probe(probe)),
        Frame::ProbeAnswer(answer) => Wire::ProbeAnswer(wire_probe_answer(answer)),
        Frame::TraceRequest(request) => Wire::TraceRequest(trace::wire_request(request)),
        Frame::TraceAnswer(answer) => Wire::TraceAnswer(trace::wire_answer(answer)),
    })
}

fn wire_probe(probe: &Probe) -> v1::Probe {
    v1::Probe {
        requester: probe.requester.0,
        probe: probe.probe,
        prober: probe.prober.0,
        target: probe.target.0,
        host: probe.host.clone(),
        address: probe.address.clone(),
    }
}

fn wire_probe_answer(answer: &ProbeAnswer) -> v1::ProbeAnswer {
    v1::ProbeAnswer {
        requester: answer.requester.0,
        probe: answer.probe,
        prober: answer.prober.0,
        alive: answer.alive,
    }
}

fn wire_ranks(ranks: &[Rank]) -> Vec<u32> {
    ranks.iter().map(|rank| rank.0).collect()
}

fn wire_dedup(dedup: &DedupRanges) -> v1::DedupRanges {
    let publishers = dedup.publishers.iter().map(|(publisher, ranges)| v1::PublisherDedupRanges {
        account: publisher.account,
        token: publisher.token,
        bounds: ranges.iter().flat_map(|(first, last)| [*first, *last]).collect(),
    });
    v1::DedupRanges { publishers: publishers.collect() }
}

fn wire_dynamic_members(entries: &[DynamicMember]) -> v1::DynamicMembers {
    let entry = |entry: &DynamicMember| v1::DynamicMember {
        host: entry.host.clone(),
        rank: entry.rank.map(|rank| rank.0),
    };
    v1::DynamicMembers { entries: entries.iter().map(entry).collect() }
}

fn wire_snapshot(ranks: &RangeSet) -> v1::MembershipSnapshot {
    let bounds = ranks.ranges().iter().flat_map(|(first, last)| [*first, *last]);
    let bounds = bounds.map(|bound| u32::try_from(bound).unwrap_or(u32::MAX));
    v1::MembershipSnapshot { bounds: bounds.collect() }
}

fn wire_members(members: &[MemberReport]) -> Vec<v1::MemberReport> {
    let wire = |member: &MemberReport| v1::MemberReport {
        rank: member.rank.0,
        host: member.host.clone(),
        address: member.address.clone(),
        origin: known(member.origin),
        state: wire_member_state(member.state).into(),
        parent: member.parent.map(|rank| rank.0),
        since_ns: member.since_ns,
        attempt: member.attempt,
        features: member.features.0,
    };
    members.iter().map(wire).collect()
}

/// A member state for the wire.
pub fn wire_member_state(state: MemberState) -> v1::MemberState {
    match state {
        MemberState::Absent => v1::MemberState::Absent,
        MemberState::Up => v1::MemberState::Up,
        MemberState::Moved => v1::MemberState::Moved,
        MemberState::Suspect => v1::MemberState::Suspect,
        MemberState::Lost => v1::MemberState::Lost,
        MemberState::Dead => v1::MemberState::Dead,
    }
}

fn core_member_state(state: i32) -> Result<MemberState> {
    Ok(match v1::MemberState::try_from(state).unwrap_or_default() {
        v1::MemberState::Absent => MemberState::Absent,
        v1::MemberState::Up => MemberState::Up,
        v1::MemberState::Moved => MemberState::Moved,
        v1::MemberState::Suspect => MemberState::Suspect,
        v1::MemberState::Lost => MemberState::Lost,
        v1::MemberState::Dead => MemberState::Dead,
        v1::MemberState::Unspecified => {
            return Err(LinkWireError::Range { what: "the state of a member" });
        }
    })
}

/// A frame from the wire.
///
/// # Errors
/// [`LinkWireError`]: the link must end.
pub fn decode(bytes: Bytes) -> Result<Frame> {
    let frame = read(bytes)?;
    counts::check(&frame)?;
    Ok(frame)
}

fn read(bytes: Bytes) -> Result<Frame> {
    let frame = v1::LinkFrame::decode(bytes.clone())?;
    Ok(match need("link frame", "content", frame.frame)? {
        Wire::Up(batch) => Frame::Up(events::core_up(bytes, batch)?),
        Wire::Down(down) => Frame::Down(events::core_down(bytes, down)?),
        Wire::HistoryReply(reply) => Frame::HistoryReply(events::core_fetched(bytes, reply)?),
        Wire::Replicate(batch) => Frame::Replicate(events::core_replicate(bytes, batch)?),
        Wire::Hello(hello) => Frame::Hello(Box::new(core_hello(hello)?)),
        Wire::HelloAck(hello_ack) => Frame::HelloAck(Box::new(core_hello_ack(hello_ack)?)),
        Wire::HelloNack(hello_nack) => Frame::HelloNack(core_hello_nack(hello_nack)?),
        Wire::Close(close) => Frame::Close(Close {
            stopping: close.stopping,
            reason: text("bytes of a reason", close.reason, TEXT_BYTES_MAX)?,
        }),
        Wire::Heartbeat(beat) => Frame::Heartbeat(core_heartbeat(beat)?),
        Wire::TreeState(tree_state) => Frame::TreeState(Box::new(core_tree_state(tree_state)?)),
        Wire::Resume(resume) => Frame::Resume {
            epoch: core_epoch(need("resume", "epoch", resume.epoch)?)?,
            after: resume.after.into(),
        },
        Wire::Subscribe(interest) => Frame::Subscribe(core_interest(interest)?),
        Wire::FilterActive(active) => {
            Frame::FilterActive { version: active.version, index: active.index.into() }
        }
        Wire::Credit(credit) => Frame::Credit { bytes: credit.bytes },
        Wire::Confirm(confirm) => Frame::Confirm(core_confirm(confirm)?),
        Wire::Nak(nak) => Frame::Nak { origin: OriginId(nak.origin), run: nak.run },
        Wire::Resend(v1::Resend {}) => Frame::Resend,
        Wire::HistoryRequest(request) => Frame::HistoryRequest(core_history_request(request)?),
        Wire::ReplicaStart(start) => Frame::ReplicaStart(ReplicaStart {
            epochs: core_epochs(start.epochs)?,
            after: start.after.into(),
            copy: start.copy,
        }),
        Wire::DedupRanges(dedup) => Frame::DedupRanges(core_dedup(dedup)?),
        Wire::ReplicaAck(ack) => Frame::ReplicaAck {
            epoch: core_epoch(need("acknowledgement", "epoch", ack.epoch)?)?,
            index: ack.index.into(),
            copy: ack.copy,
            kept_from: ack.kept_from,
            synced: ack
                .synced
                .map(|range| SyncedRange { after: range.after.into(), until: range.until.into() }),
        },
        Wire::Members(members) => Frame::Members(core_members(members.members)?),
        Wire::DynamicMembers(dynamic_members) => {
            Frame::DynamicMembers(core_dynamic_members(dynamic_members.entries)?)
        }
        Wire::MembershipSnapshot(snapshot) => {
            Frame::MembershipSnapshot(Arc::new(core_snapshot(&snapshot.bounds)?))
        }
        Wire::TraceRequest(request) => Frame::TraceRequest(trace::core_request(request)?),
        Wire::TraceAnswer(answer) => Frame::TraceAnswer(Box::new(trace::core_answer(answer)?)),
        Wire::TreeQuery(query) => {
            Frame::TreeQuery { origin: OriginId(query.origin), query: query.query }
        }
        Wire::TreeAnswer(answer) => Frame::TreeAnswer {
            origin: OriginId(answer.origin),
            query: answer.query,
            members: core_members(answer.members)?,
            last: answer.last,
        },
        Wire::Probe(probe) => Frame::Probe(core_probe(probe)?),
        Wire::ProbeAnswer(answer) => Frame::ProbeAnswer(core_probe_answer(answer)),
    })
}

fn core_heartbeat(beat: v1::LinkHeartbeat) -> Result<Heartbeat> {
    let epoch = beat.epoch.map(core_epoch).transpose()?;
    Ok(Heartbeat {
        covered: epoch.map(|epoch| Position { epoch, index: beat.covered.into() }),
        epoch_seen: epoch_number(beat.epoch_seen)?,
        wall_ns: beat.wall_ns,
        members_digest: beat.members_digest,
    })
}

fn wire_confirmed(confirm: &Confirm) -> v1::OriginConfirmed {
    v1::OriginConfirmed {
        origin: confirm.origin.0,
        seq: confirm.seq.get(),
        position: Some(wire_position(confirm.position)),
        settled: confirm.settled.map(|settled| v1::Settled {
            seq: settled.seq.get(),
            level: wire_confirm(Some(settled.level)),
        }),
    }
}

fn wire_range(range: SyncedRange) -> v1::LogRange {
    v1::LogRange { after: range.after.get(), until: range.until.get() }
}

fn core_confirm(confirm: v1::OriginConfirmed) -> Result<Confirm> {
    Ok(Confirm {
        origin: OriginId(confirm.origin),
        seq: confirm.seq.into(),
        position: core_position(need("confirmation", "position", confirm.position)?),
        settled: confirm.settled.map(|settled| Settled {
            seq: settled.seq.into(),
            // A level of a later release is at least in memory.
            level: core_confirm_level(settled.level).unwrap_or_default(),
        }),
    })
}

fn core_probe_answer(answer: v1::ProbeAnswer) -> ProbeAnswer {
    ProbeAnswer {
        requester: OriginId(answer.requester),
        probe: answer.probe,
        prober: Rank(answer.prober),
        alive: answer.alive,
    }
}

fn core_probe(probe: v1::Probe) -> Result<Probe> {
    Ok(Probe {
        requester: OriginId(probe.requester),
        probe: probe.probe,
        prober: Rank(probe.prober),
        target: Rank(probe.target),
        host: text("bytes of a host name", probe.host, HOST_BYTES_MAX)?,
        address: text("bytes of an address", probe.address, TEXT_BYTES_MAX)?,
    })
}

fn core_ranks(ranks: Vec<u32>) -> Result<Vec<Rank>> {
    bound("ranks", ranks.len(), RANKS_MAX)?;
    Ok(ranks.into_iter().map(Rank).collect())
}

fn core_gap(gap: v1::Gap) -> Result<Gap> {
    common::core_gap(gap).map_err(|what| LinkWireError::Range { what })
}

fn core_dedup(dedup: v1::DedupRanges) -> Result<DedupRanges> {
    bound("publishers", dedup.publishers.len(), DEDUP_PUBLISHERS_MAX)?;
    let publishers = dedup.publishers.into_iter().map(|dedup| {
        bound("bounds of a publisher", dedup.bounds.len(), 2 * RANGES_PER_PUBLISHER_MAX)?;
        let (pairs, odd) = dedup.bounds.as_chunks::<2>();
        let rising = dedup.bounds.windows(2).all(|w| w[0] <= w[1]);
        if !odd.is_empty() || !rising || dedup.bounds.last() == Some(&u64::MAX) {
            return Err(LinkWireError::Range { what: "the bounds of a publisher" });
        }
        let publisher = PublisherId { account: dedup.account, token: dedup.token };
        Ok((publisher, pairs.iter().map(|[first, last]| (*first, *last)).collect()))
    });
    Ok(DedupRanges { publishers: publishers.collect::<Result<_>>()? })
}

/// The rank of an agent that is in no member list.
fn unlisted(rank: Option<u32>) -> Result<Option<Rank>> {
    match rank.map(Rank) {
        Some(rank) if !rank.is_unlisted() => {
            Err(LinkWireError::Range { what: "the rank of an agent that is not listed" })
        }
        rank => Ok(rank),
    }
}

fn core_dynamic_members(entries: Vec<v1::DynamicMember>) -> Result<Vec<DynamicMember>> {
    bound("agents that are not listed", entries.len(), DYNAMIC_MEMBERS_MAX)?;
    let entries = entries.into_iter().map(|entry| {
        let host = text("bytes of a host name", entry.host, HOST_BYTES_MAX)?;
        Ok(DynamicMember { host, rank: unlisted(entry.rank)? })
    });
    entries.collect()
}

fn core_snapshot(bounds: &[u32]) -> Result<RangeSet> {
    bound("ranges of ranks", bounds.len().div_ceil(2), SNAPSHOT_RANGES_MAX)?;
    let mut ranks = RangeSet::default();
    let mut next = 0;
    for range in bounds.chunks(2) {
        let [first, last] = *range else {
            return Err(LinkWireError::Range { what: "half a range of ranks" });
        };
        if first < next || last < first {
            return Err(LinkWireError::Range { what: "the order of ranks" });
        }
        ranks.insert_range(first.into(), last.into());
        next = last.saturating_add(1);
    }
    Ok(ranks)
}

fn core_members(members: Vec<v1::MemberReport>) -> Result<Vec<MemberReport>> {
    bound("members", members.len(), MEMBERS_MAX)?;
    let members = members.into_iter().map(|member| {
        Ok(MemberReport {
            rank: Rank(member.rank),
            host: text("bytes of a host name", member.host, HOST_BYTES_MAX)?,
            address: text("bytes of an address", member.address, TEXT_BYTES_MAX)?,
            origin: member.origin.unwrap_or(0),
            attempt: member.attempt,
            state: core_member_state(member.state)?,
            parent: member.parent.map(Rank),
            since_ns: member.since_ns,
            features: Features(member.features),
        })
    });
    members.collect()
}

#[cfg(test)]
mod tests;
