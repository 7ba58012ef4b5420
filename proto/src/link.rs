//! What two agents say to each other, to and from the wire.
//!
//! Responsible for: every size, text and number of a frame. A frame that [`decode`] gives is within
//! all bounds; whether it makes sense at this moment is the core's to judge. Events travel as the
//! bytes of their Sealed, which are checked and never made again.

use crate::common::{
    self, core_confirm_level, core_position, known, versions, wire_confirm, wire_gap, wire_position,
};
use crate::event::EventWireError;
use crate::v1::{self, link_frame::Frame as Wire};
use crate::wire::{Outbound, Pieces};
use bytes::Bytes;
use ftb_core::epochs::{EpochHistory, EpochHistoryError, Segment};
use ftb_core::filter::set::FILTERS_MAX;
use ftb_core::filter::{ALTERNATIVES_MAX, Filter, FilterError};
use ftb_core::frame::{
    Close, Confirm, DEDUP_PUBLISHERS_MAX, DYNAMIC_MEMBERS_MAX, DedupRanges, DynamicMember, Frame,
    Heartbeat, Hello, HelloAck, HelloNack, HistoryRequest, Interest, LogRange, MEMBERS_MAX,
    MemberReport, NackCode, Probe, ProbeAnswer, RANKS_MAX, ReplicaStart, SNAPSHOT_RANGES_MAX,
    Settled, SyncedRange, TreeState,
};
use ftb_core::ident::{OriginId, PublisherId, Rank};
use ftb_core::limits::{FILTER_BYTES_MAX, HOST_BYTES_MAX};
use ftb_core::node::api::{Gap, MemberState};
use ftb_core::position::Epoch;
use ftb_core::position::Position;
use ftb_core::protocol::{Features, PROTOCOL, Versions};
use ftb_core::ranges::{RANGES_PER_PUBLISHER_MAX, RangeSet};
use ftb_core::sealed::SpanError;
use prost::{DecodeError, Message as _};
use std::sync::Arc;

mod counts;
mod events;
mod trace;

use events::Body;
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

fn wire_history_request(request: &HistoryRequest) -> v1::HistoryRequest {
    v1::HistoryRequest {
        id: request.id,
        epoch: Some(wire_epoch(request.epoch)),
        after: request.after.get(),
        since_ns: request.since_ns,
        filters: wire_filters(&request.filters),
        users: wire_users(&request.filters),
        conditions: request.conditions,
    }
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

fn wire_hello(hello: &Hello) -> v1::LinkHello {
    v1::LinkHello {
        protocol: hello.versions.max,
        protocol_min: Some(hello.versions.min),
        features: hello.features.0,
        cluster: hello.cluster.clone(),
        host: hello.host.clone(),
        rank: hello.rank.map(|rank| rank.0),
        address: hello.address.clone(),
        origin: hello.origin.0,
        members_digest: hello.members_digest,
        epochs: wire_epochs(&hello.epochs),
        commit_index: hello.commit_index.get(),
        log_range: hello
            .log_range
            .map(|holds| v1::LogRange { after: holds.after.get(), until: holds.until.get() }),
        epoch_seen: hello.epoch_seen,
        interest: Some(wire_interest(&hello.interest)),
        wall_ns: hello.wall_ns,
        attempt: hello.attempt,
    }
}

fn wire_hello_ack(hello_ack: &HelloAck) -> v1::LinkHelloAck {
    v1::LinkHelloAck {
        protocol: hello_ack.protocol,
        host: hello_ack.host.clone(),
        rank: hello_ack.rank.0,
        origin: hello_ack.origin.0,
        assigned: hello_ack.assigned.map(|rank| rank.0),
        tree_state: Some(wire_tree_state(&hello_ack.tree_state)),
        window_bytes: hello_ack.window_bytes,
        send_log: hello_ack.send_log,
        wall_ns: hello_ack.wall_ns,
        features: hello_ack.features.0,
    }
}

fn wire_epoch(epoch: Epoch) -> v1::Epoch {
    v1::Epoch { number: epoch.number, root: epoch.root.0 }
}

fn wire_epochs(epochs: &EpochHistory) -> Vec<v1::Segment> {
    let segments = epochs.segments().iter();
    let wire = |segment: &Segment| v1::Segment {
        epoch: Some(wire_epoch(segment.epoch)),
        first: segment.first.get(),
        incomplete: segment.incomplete,
    };
    segments.map(wire).collect()
}

fn wire_tree_state(tree_state: &TreeState) -> v1::TreeState {
    v1::TreeState {
        epochs: wire_epochs(&tree_state.epochs),
        head: tree_state.head.get(),
        path: wire_ranks(&tree_state.path),
        standby: tree_state.standby.map(|rank| rank.0),
    }
}

fn wire_interest(interest: &Interest) -> v1::Interest {
    v1::Interest {
        version: interest.version,
        filters: wire_filters(&interest.filters),
        users: wire_users(&interest.filters),
    }
}

/// The texts without the key `uid`, which an older agent cannot read.
fn wire_filters(filters: &[Filter]) -> Vec<String> {
    filters.iter().map(|filter| filter.of_users(None).to_string()).collect()
}

/// The users of the filters that name some.
fn wire_users(filters: &[Filter]) -> Vec<v1::FilterUsers> {
    let users = (0..).zip(filters).filter_map(|(filter, found)| {
        Some(v1::FilterUsers { filter, uids: found.uids()?.to_vec() })
    });
    users.collect()
}

fn wire_nack_code(code: NackCode) -> v1::NackCode {
    match code {
        NackCode::Cluster => v1::NackCode::Cluster,
        NackCode::Protocol => v1::NackCode::Protocol,
        NackCode::Rank => v1::NackCode::Rank,
        NackCode::Host => v1::NackCode::Host,
        NackCode::Full => v1::NackCode::Full,
        NackCode::Members => v1::NackCode::Members,
        NackCode::Busy => v1::NackCode::Busy,
        NackCode::Duplicate => v1::NackCode::Duplicate,
        NackCode::Epoch => v1::NackCode::Epoch,
        NackCode::Other => v1::NackCode::Unspecified,
    }
}

/// A code of a later version is [`NackCode::Other`].
fn core_nack_code(code: i32) -> NackCode {
    match v1::NackCode::try_from(code).unwrap_or_default() {
        v1::NackCode::Cluster => NackCode::Cluster,
        v1::NackCode::Protocol => NackCode::Protocol,
        v1::NackCode::Rank => NackCode::Rank,
        v1::NackCode::Host => NackCode::Host,
        v1::NackCode::Full => NackCode::Full,
        v1::NackCode::Members => NackCode::Members,
        v1::NackCode::Busy => NackCode::Busy,
        v1::NackCode::Duplicate => NackCode::Duplicate,
        v1::NackCode::Epoch => NackCode::Epoch,
        v1::NackCode::Unspecified => NackCode::Other,
    }
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
        Wire::Heartbeat(beat) => Frame::Heartbeat(Heartbeat {
            covered: (beat.epoch.map(core_epoch).transpose()?)
                .map(|epoch| Position { epoch, index: beat.covered.into() }),
            epoch_seen: epoch_number(beat.epoch_seen)?,
        }),
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

fn core_hello_nack(hello_nack: v1::LinkHelloNack) -> Result<HelloNack> {
    Ok(HelloNack {
        code: core_nack_code(hello_nack.code),
        message: text("bytes of a message", hello_nack.message, TEXT_BYTES_MAX)?,
        redirect: core_ranks(hello_nack.redirect)?,
    })
}

fn core_history_request(request: v1::HistoryRequest) -> Result<HistoryRequest> {
    Ok(HistoryRequest {
        id: request.id,
        epoch: core_epoch(need("history request", "epoch", request.epoch)?)?,
        after: request.after.into(),
        since_ns: request.since_ns,
        filters: core_filters(request.filters, &request.users)?,
        conditions: request.conditions,
    })
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

fn core_hello(hello: v1::LinkHello) -> Result<Hello> {
    let cluster = text("bytes of a cluster name", hello.cluster, TEXT_BYTES_MAX)?;
    let host = text("bytes of a host name", hello.host, HOST_BYTES_MAX)?;
    let versions = versions(hello.protocol, hello.protocol_min);
    if PROTOCOL.common(versions).is_none() {
        return Ok(incompatible_hello(versions, cluster, host, hello.rank));
    }
    Ok(Hello {
        versions,
        features: Features(hello.features),
        cluster,
        host,
        rank: hello.rank.map(Rank),
        address: text("bytes of an address", hello.address, TEXT_BYTES_MAX)?,
        origin: OriginId(hello.origin),
        members_digest: hello.members_digest,
        epochs: core_epochs(hello.epochs)?,
        commit_index: hello.commit_index.into(),
        log_range: hello
            .log_range
            .map(|holds| LogRange { after: holds.after.into(), until: holds.until.into() }),
        epoch_seen: epoch_number(hello.epoch_seen)?,
        interest: core_interest(need("hello", "interest", hello.interest)?)?,
        wall_ns: hello.wall_ns,
        attempt: hello.attempt,
    })
}

/// A hello without a common version: only the fields that a rejection names keep their place in all
/// versions.
fn incompatible_hello(
    versions: Versions,
    cluster: String,
    host: String,
    rank: Option<u32>,
) -> Hello {
    Hello {
        versions,
        features: Features::default(),
        cluster,
        host,
        rank: rank.map(Rank),
        address: String::new(),
        origin: OriginId(0),
        members_digest: 0,
        epochs: EpochHistory::new(),
        commit_index: 0.into(),
        log_range: None,
        epoch_seen: 0,
        interest: Interest::default(),
        wall_ns: 0,
        attempt: 0,
    }
}

fn core_hello_ack(hello_ack: v1::LinkHelloAck) -> Result<HelloAck> {
    Ok(HelloAck {
        protocol: hello_ack.protocol,
        features: Features(hello_ack.features),
        host: text("bytes of a host name", hello_ack.host, HOST_BYTES_MAX)?,
        rank: Rank(hello_ack.rank),
        origin: OriginId(hello_ack.origin),
        assigned: unlisted(hello_ack.assigned)?,
        tree_state: core_tree_state(need("hello ack", "tree state", hello_ack.tree_state)?)?,
        window_bytes: hello_ack.window_bytes,
        send_log: hello_ack.send_log,
        wall_ns: hello_ack.wall_ns,
    })
}

fn core_epoch(epoch: v1::Epoch) -> Result<Epoch> {
    Ok(Epoch { number: epoch_number(epoch.number)?, root: OriginId(epoch.root) })
}

/// An agent opens epochs above all that it hears of: there must be room for them.
fn epoch_number(number: u64) -> Result<u64> {
    match number <= EPOCH_NUMBER_MAX {
        true => Ok(number),
        false => Err(LinkWireError::Range { what: "the number of an epoch" }),
    }
}

fn core_epochs(segments: Vec<v1::Segment>) -> Result<EpochHistory> {
    let segments = segments.into_iter().map(|segment| {
        let epoch = core_epoch(need("epoch history", "epoch", segment.epoch)?)?;
        Ok(Segment { epoch, first: segment.first.into(), incomplete: segment.incomplete })
    });
    Ok(EpochHistory::from_segments(segments.collect::<Result<_>>()?)?)
}

fn core_ranks(ranks: Vec<u32>) -> Result<Vec<Rank>> {
    bound("ranks", ranks.len(), RANKS_MAX)?;
    Ok(ranks.into_iter().map(Rank).collect())
}

fn core_tree_state(tree_state: v1::TreeState) -> Result<TreeState> {
    Ok(TreeState {
        epochs: core_epochs(tree_state.epochs)?,
        head: tree_state.head.into(),
        path: core_ranks(tree_state.path)?,
        standby: tree_state.standby.map(Rank),
    })
}

fn core_filters(texts: Vec<String>, users: &[v1::FilterUsers]) -> Result<Vec<Filter>> {
    bound("filters", texts.len(), FILTERS_MAX)?;
    bound("filters for users", users.len(), texts.len())?;
    let filters = texts.into_iter().map(|text| {
        bound("bytes of a filter", text.len(), FILTER_BYTES_MAX)?;
        Ok(Filter::parse(&text)?)
    });
    let mut filters = filters.collect::<Result<Vec<Filter>>>()?;
    for v1::FilterUsers { filter, uids } in users {
        bound("users of a filter", uids.len(), ALTERNATIVES_MAX)?;
        let filter = filters.get_mut(*filter as usize);
        let filter = filter.ok_or(LinkWireError::Range { what: "the number of a filter" })?;
        *filter = filter.of_users(Some(uids));
    }
    Ok(filters)
}

fn core_interest(interest: v1::Interest) -> Result<Interest> {
    Ok(Interest {
        version: interest.version,
        filters: core_filters(interest.filters, &interest.users)?,
    })
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
