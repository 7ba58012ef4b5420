//! What two agents say to each other, to and from the wire.
//!
//! Responsible for: every size, text and number of a frame. A frame that [`decode`] gives is within
//! all bounds; whether it makes sense at this moment is the core's to judge. Events travel as the
//! bytes of their Sealed, which are checked and never made again.

use crate::client::wire_spaces;
use crate::event::EventWireError;
use crate::v1::{self, link_frame::Frame as Wire};
use crate::wire::{Outbound, Pieces};
use bytes::Bytes;
use ftb_core::filter::set::FILTERS_MAX;
use ftb_core::filter::{Filter, FilterError};
use ftb_core::frame::{
    Confirm, Enrolment, Fetch, Frame, Goodbye, Heartbeat, Hello, Holding, Interest, MARKS_MAX,
    MEMBERS_MAX, Marks, MemberReport, Probe, ProbeAnswer, RANKS_MAX, ROLL_RANGES_MAX,
    ROSTER_ENTRIES_MAX, Reject, ReplicaStart, Standing, Welcome,
};
use ftb_core::ident::{OriginId, PublisherId, Rank};
use ftb_core::limits::{FILTER_BYTES_MAX, GAP_SPACES_MAX, HOST_BYTES_MAX};
use ftb_core::lineage::{Lineage, LineageError, Segment};
use ftb_core::node::LINK_PROTOCOL;
use ftb_core::node::api::{Gap, GapReason, MemberState};
use ftb_core::position::{Epoch, Position};
use ftb_core::ranges::{RANGES_PER_PUBLISHER_MAX, RangeSet};
use ftb_core::sealed::SpanError;
use ftb_core::severity::Severity;
use ftb_core::spaces::Spaces;
use prost::{DecodeError, Message as _};
use std::sync::Arc;

mod counts;
mod events;

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
    /// A lineage that is none.
    #[error(transparent)]
    Lineage(#[from] LineageError),
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
        if !events::write(&self, out) {
            out.message(&v1::LinkFrame { frame: wire(&self) });
        }
    }
}

/// A frame as its message; `None` for those whose events do not go through prost.
fn wire(frame: &Frame) -> Option<Wire> {
    Some(match frame {
        Frame::Hello(hello) => Wire::Hello(wire_hello(hello)),
        Frame::Welcome(welcome) => Wire::Welcome(wire_welcome(welcome)),
        Frame::Reject(reject) => Wire::Reject(v1::LinkReject {
            code: reject.code.clone(),
            message: reject.message.clone(),
            redirect: reject.redirect.iter().map(|rank| rank.0).collect(),
        }),
        Frame::Goodbye(goodbye) => Wire::Goodbye(v1::LinkGoodbye {
            reason: goodbye.reason.clone(),
            stopping: goodbye.stopping,
        }),
        Frame::Heartbeat(beat) => Wire::Heartbeat(v1::LinkHeartbeat {
            covered: beat.covered,
            epoch: beat.epoch.map(wire_epoch),
            epoch_seen: beat.epoch_seen,
        }),
        Frame::Lineage(standing) => Wire::Lineage(wire_standing(standing)),
        Frame::Resume { epoch, after } => {
            Wire::Resume(v1::Resume { epoch: Some(wire_epoch(*epoch)), after: *after })
        }
        Frame::Subscribe(interest) => Wire::Subscribe(wire_interest(interest)),
        Frame::FilterActive { version, index } => {
            Wire::FilterActive(v1::FilterActive { version: *version, index: *index })
        }
        Frame::Credit { bytes } => Wire::Credit(v1::Credit { bytes: *bytes }),
        Frame::Confirm(confirm) => Wire::Confirm(v1::OriginConfirmed {
            origin: confirm.origin.0,
            seq: confirm.seq,
            position: Some(wire_position(confirm.position)),
        }),
        Frame::Nak { origin, run } => Wire::Nak(v1::Nak { origin: origin.0, run: *run }),
        Frame::Resend => Wire::Resend(v1::Resend {}),
        Frame::Up(_) | Frame::Down(_) | Frame::Fetched(_) | Frame::Replicate(_) => return None,
        Frame::Fetch(fetch) => Wire::Fetch(v1::Fetch {
            id: fetch.id,
            epoch: Some(wire_epoch(fetch.epoch)),
            after: fetch.after,
            since_ns: fetch.since_ns,
            filters: fetch.filters.iter().map(ToString::to_string).collect(),
        }),
        Frame::ReplicaStart(_) | Frame::Marks(_) | Frame::ReplicaAck { .. } => wire_replica(frame),
        Frame::Members(_)
        | Frame::Roster(_)
        | Frame::Roll(_)
        | Frame::TreeQuery { .. }
        | Frame::TreeAnswer { .. }
        | Frame::Probe(_)
        | Frame::ProbeAnswer(_) => wire_members(frame),
    })
}

fn wire_replica(frame: &Frame) -> Wire {
    match frame {
        Frame::ReplicaStart(start) => Wire::ReplicaStart(v1::ReplicaStart {
            lineage: wire_lineage(&start.lineage),
            after: start.after,
            copy: start.copy,
        }),
        Frame::Marks(marks) => {
            let publishers = marks.publishers.iter().map(|(publisher, ranges)| {
                let bounds = ranges.iter().flat_map(|(first, last)| [*first, *last]).collect();
                v1::PublisherMarks { account: publisher.account, token: publisher.token, bounds }
            });
            Wire::Marks(v1::Marks { publishers: publishers.collect() })
        }
        Frame::ReplicaAck { epoch, index, copy, kept_from } => Wire::ReplicaAck(v1::ReplicaAck {
            epoch: Some(wire_epoch(*epoch)),
            index: *index,
            copy: *copy,
            kept_from: *kept_from,
        }),
        // Only called with the frames above; a resend is harmless.
        _ => Wire::Resend(v1::Resend {}),
    }
}

fn wire_members(frame: &Frame) -> Wire {
    match frame {
        Frame::Members(members) => {
            Wire::Members(v1::Members { members: members.iter().map(wire_member).collect() })
        }
        Frame::Roster(entries) => {
            let entries = entries.iter().map(|entry| v1::Enrolment {
                host: entry.host.clone(),
                rank: entry.rank.map(|rank| rank.0),
            });
            Wire::Roster(v1::Roster { entries: entries.collect() })
        }
        Frame::Roll(ranks) => {
            let bounds = ranks.ranges().iter().flat_map(|(first, last)| [*first, *last]);
            let bounds = bounds.map(|bound| u32::try_from(bound).unwrap_or(u32::MAX));
            Wire::Roll(v1::Roll { bounds: bounds.collect() })
        }
        Frame::TreeQuery { origin, query } => {
            Wire::TreeQuery(v1::TreeQuery { origin: origin.0, query: *query })
        }
        Frame::TreeAnswer { origin, query, members, last } => Wire::TreeAnswer(v1::TreeAnswer {
            origin: origin.0,
            query: *query,
            members: members.iter().map(wire_member).collect(),
            last: *last,
        }),
        Frame::Probe(probe) => Wire::Probe(v1::Probe {
            asker: probe.asker.0,
            probe: probe.probe,
            prober: probe.prober.0,
            target: probe.target.0,
            host: probe.host.clone(),
            address: probe.address.clone(),
        }),
        Frame::ProbeAnswer(answer) => Wire::ProbeAnswer(v1::ProbeAnswer {
            asker: answer.asker.0,
            probe: answer.probe,
            prober: answer.prober.0,
            alive: answer.alive,
        }),
        // Only called with the frames above; a resend is harmless.
        _ => Wire::Resend(v1::Resend {}),
    }
}

fn wire_hello(hello: &Hello) -> v1::LinkHello {
    v1::LinkHello {
        protocol: hello.protocol,
        cluster: hello.cluster.clone(),
        host: hello.host.clone(),
        rank: hello.rank.map(|rank| rank.0),
        address: hello.address.clone(),
        origin: hello.origin.0,
        members_digest: hello.members_digest,
        lineage: wire_lineage(&hello.lineage),
        consumed: hello.consumed,
        holds: hello.holds.map(|holds| v1::Holding { after: holds.after, until: holds.until }),
        epoch_seen: hello.epoch_seen,
        interest: Some(wire_interest(&hello.interest)),
        wall_ns: hello.wall_ns,
        attempt: hello.attempt,
    }
}

fn wire_welcome(welcome: &Welcome) -> v1::LinkWelcome {
    v1::LinkWelcome {
        protocol: welcome.protocol,
        host: welcome.host.clone(),
        rank: welcome.rank.0,
        origin: welcome.origin.0,
        assigned: welcome.assigned.map(|rank| rank.0),
        standing: Some(wire_standing(&welcome.standing)),
        window_bytes: welcome.window_bytes,
        adopt: welcome.adopt,
        wall_ns: welcome.wall_ns,
    }
}

fn wire_epoch(epoch: Epoch) -> v1::Epoch {
    v1::Epoch { number: epoch.number, root: epoch.root.0 }
}

/// A position for the wire.
pub fn wire_position(position: Position) -> v1::Position {
    v1::Position {
        epoch: position.epoch.number,
        epoch_root: position.epoch.root.0,
        index: position.index,
    }
}

fn wire_lineage(lineage: &Lineage) -> Vec<v1::Segment> {
    let segments = lineage.segments().iter();
    let wire = |segment: &Segment| v1::Segment {
        epoch: Some(wire_epoch(segment.epoch)),
        first: segment.first,
        torn: segment.torn,
    };
    segments.map(wire).collect()
}

fn wire_standing(standing: &Standing) -> v1::Standing {
    v1::Standing {
        lineage: wire_lineage(&standing.lineage),
        head: standing.head,
        path: standing.path.iter().map(|rank| rank.0).collect(),
        standby: standing.standby.map(|rank| rank.0),
    }
}

fn wire_interest(interest: &Interest) -> v1::Interest {
    v1::Interest {
        version: interest.version,
        filters: interest.filters.iter().map(ToString::to_string).collect(),
    }
}

fn wire_hole(gap: &Gap) -> v1::Hole {
    v1::Hole {
        after: Some(wire_position(gap.after)),
        until: Some(wire_position(gap.until)),
        reason: gap.reason.as_str().to_owned(),
        count: gap.count,
        severity_max: gap.severity_max.map_or(0, Severity::to_wire),
        spaces: wire_spaces(&gap.spaces),
    }
}

fn wire_member(member: &MemberReport) -> v1::MemberReport {
    v1::MemberReport {
        rank: member.rank.0,
        host: member.host.clone(),
        address: member.address.clone(),
        origin: member.origin,
        state: member.state.as_str().to_owned(),
        parent: member.parent.map(|rank| rank.0),
        since_ns: member.since_ns,
        attempt: member.attempt,
    }
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
    if let Some(frame) = events::decode(&bytes)? {
        return Ok(frame);
    }
    let frame = v1::LinkFrame::decode(bytes)?;
    Ok(match need("link frame", "content", frame.frame)? {
        Wire::Up(_) | Wire::Down(_) | Wire::Fetched(_) | Wire::Replicate(_) => {
            return Err(LinkWireError::Range { what: "more than one content" });
        }
        Wire::Hello(hello) => Frame::Hello(Box::new(core_hello(hello)?)),
        Wire::Welcome(welcome) => Frame::Welcome(Box::new(core_welcome(welcome)?)),
        Wire::Reject(reject) => Frame::Reject(Reject {
            code: text("bytes of a code", reject.code, TEXT_BYTES_MAX)?,
            message: text("bytes of a message", reject.message, TEXT_BYTES_MAX)?,
            redirect: core_ranks(reject.redirect)?,
        }),
        Wire::Goodbye(goodbye) => Frame::Goodbye(Goodbye {
            stopping: goodbye.stopping,
            reason: text("bytes of a reason", goodbye.reason, TEXT_BYTES_MAX)?,
        }),
        Wire::Heartbeat(beat) => Frame::Heartbeat(Heartbeat {
            covered: beat.covered,
            epoch: beat.epoch.map(core_epoch).transpose()?,
            epoch_seen: epoch_number(beat.epoch_seen)?,
        }),
        Wire::Lineage(standing) => Frame::Lineage(Box::new(core_standing(standing)?)),
        Wire::Resume(resume) => Frame::Resume {
            epoch: core_epoch(need("resume", "epoch", resume.epoch)?)?,
            after: resume.after,
        },
        Wire::Subscribe(interest) => Frame::Subscribe(core_interest(interest)?),
        Wire::FilterActive(active) => {
            Frame::FilterActive { version: active.version, index: active.index }
        }
        Wire::Credit(credit) => Frame::Credit { bytes: credit.bytes },
        Wire::Confirm(confirm) => Frame::Confirm(Confirm {
            origin: OriginId(confirm.origin),
            seq: confirm.seq,
            position: core_position(need("confirmation", "position", confirm.position)?),
        }),
        Wire::Nak(nak) => Frame::Nak { origin: OriginId(nak.origin), run: nak.run },
        Wire::Resend(v1::Resend {}) => Frame::Resend,
        Wire::Fetch(fetch) => Frame::Fetch(Fetch {
            id: fetch.id,
            epoch: core_epoch(need("fetch", "epoch", fetch.epoch)?)?,
            after: fetch.after,
            since_ns: fetch.since_ns,
            filters: core_filters(fetch.filters)?,
        }),
        Wire::ReplicaStart(start) => Frame::ReplicaStart(ReplicaStart {
            lineage: core_lineage(start.lineage)?,
            after: start.after,
            copy: start.copy,
        }),
        Wire::Marks(marks) => Frame::Marks(core_marks(marks)?),
        Wire::ReplicaAck(ack) => Frame::ReplicaAck {
            epoch: core_epoch(need("acknowledgement", "epoch", ack.epoch)?)?,
            index: ack.index,
            copy: ack.copy,
            kept_from: ack.kept_from,
        },
        Wire::Members(members) => Frame::Members(core_members(members.members)?),
        Wire::Roster(roster) => Frame::Roster(core_roster(roster.entries)?),
        Wire::Roll(roll) => Frame::Roll(Arc::new(core_roll(&roll.bounds)?)),
        Wire::TreeQuery(query) => {
            Frame::TreeQuery { origin: OriginId(query.origin), query: query.query }
        }
        Wire::TreeAnswer(answer) => Frame::TreeAnswer {
            origin: OriginId(answer.origin),
            query: answer.query,
            members: core_members(answer.members)?,
            last: answer.last,
        },
        Wire::Probe(probe) => Frame::Probe(Probe {
            asker: OriginId(probe.asker),
            probe: probe.probe,
            prober: Rank(probe.prober),
            target: Rank(probe.target),
            host: text("bytes of a host name", probe.host, HOST_BYTES_MAX)?,
            address: text("bytes of an address", probe.address, TEXT_BYTES_MAX)?,
        }),
        Wire::ProbeAnswer(answer) => Frame::ProbeAnswer(ProbeAnswer {
            asker: OriginId(answer.asker),
            probe: answer.probe,
            prober: Rank(answer.prober),
            alive: answer.alive,
        }),
    })
}

fn core_hello(hello: v1::LinkHello) -> Result<Hello> {
    let cluster = text("bytes of a cluster name", hello.cluster, TEXT_BYTES_MAX)?;
    let host = text("bytes of a host name", hello.host, HOST_BYTES_MAX)?;
    if hello.protocol != LINK_PROTOCOL {
        return Ok(strange_hello(hello.protocol, cluster, host, hello.rank));
    }
    Ok(Hello {
        protocol: hello.protocol,
        cluster,
        host,
        rank: hello.rank.map(Rank),
        address: text("bytes of an address", hello.address, TEXT_BYTES_MAX)?,
        origin: OriginId(hello.origin),
        members_digest: hello.members_digest,
        lineage: core_lineage(hello.lineage)?,
        consumed: hello.consumed,
        holds: hello.holds.map(|holds| Holding { after: holds.after, until: holds.until }),
        epoch_seen: epoch_number(hello.epoch_seen)?,
        interest: core_interest(need("hello", "interest", hello.interest)?)?,
        wall_ns: hello.wall_ns,
        attempt: hello.attempt,
    })
}

/// Of another version of the protocol only what a refusal must name is known to be where it is here.
fn strange_hello(protocol: u32, cluster: String, host: String, rank: Option<u32>) -> Hello {
    Hello {
        protocol,
        cluster,
        host,
        rank: rank.map(Rank),
        address: String::new(),
        origin: OriginId(0),
        members_digest: 0,
        lineage: Lineage::new(),
        consumed: 0,
        holds: None,
        epoch_seen: 0,
        interest: Interest::default(),
        wall_ns: 0,
        attempt: 0,
    }
}

fn core_welcome(welcome: v1::LinkWelcome) -> Result<Welcome> {
    Ok(Welcome {
        protocol: welcome.protocol,
        host: text("bytes of a host name", welcome.host, HOST_BYTES_MAX)?,
        rank: Rank(welcome.rank),
        origin: OriginId(welcome.origin),
        assigned: unlisted(welcome.assigned)?,
        standing: core_standing(need("welcome", "standing", welcome.standing)?)?,
        window_bytes: welcome.window_bytes,
        adopt: welcome.adopt,
        wall_ns: welcome.wall_ns,
    })
}

fn core_epoch(epoch: v1::Epoch) -> Result<Epoch> {
    Ok(Epoch { number: epoch_number(epoch.number)?, root: OriginId(epoch.root) })
}

/// Whoever hears of an epoch opens higher ones: there must be room for them.
fn epoch_number(number: u64) -> Result<u64> {
    match number <= EPOCH_NUMBER_MAX {
        true => Ok(number),
        false => Err(LinkWireError::Range { what: "the number of an epoch" }),
    }
}

/// A position from the wire.
pub fn core_position(position: v1::Position) -> Position {
    Position {
        epoch: Epoch { number: position.epoch, root: OriginId(position.epoch_root) },
        index: position.index,
    }
}

fn core_lineage(segments: Vec<v1::Segment>) -> Result<Lineage> {
    let segments = segments.into_iter().map(|segment| {
        let epoch = core_epoch(need("lineage", "epoch", segment.epoch)?)?;
        Ok(Segment { epoch, first: segment.first, torn: segment.torn })
    });
    Ok(Lineage::from_segments(segments.collect::<Result<_>>()?)?)
}

fn core_ranks(ranks: Vec<u32>) -> Result<Vec<Rank>> {
    bound("ranks", ranks.len(), RANKS_MAX)?;
    Ok(ranks.into_iter().map(Rank).collect())
}

fn core_standing(standing: v1::Standing) -> Result<Standing> {
    Ok(Standing {
        lineage: core_lineage(standing.lineage)?,
        head: standing.head,
        path: core_ranks(standing.path)?,
        standby: standing.standby.map(Rank),
    })
}

fn core_filters(texts: Vec<String>) -> Result<Vec<Filter>> {
    bound("filters", texts.len(), FILTERS_MAX)?;
    let filters = texts.into_iter().map(|text| {
        bound("bytes of a filter", text.len(), FILTER_BYTES_MAX)?;
        Ok(Filter::parse(&text)?)
    });
    filters.collect()
}

fn core_interest(interest: v1::Interest) -> Result<Interest> {
    Ok(Interest { version: interest.version, filters: core_filters(interest.filters)? })
}

fn core_hole(hole: v1::Hole) -> Result<Gap> {
    let reason = GapReason::ALL
        .into_iter()
        .find(|reason| reason.as_str() == hole.reason)
        .ok_or(LinkWireError::Range { what: "the reason of a hole" })?;
    bound("spaces of a hole", hole.spaces.len(), GAP_SPACES_MAX)?;
    let spaces = Spaces::named(hole.spaces.iter().map(String::as_str));
    let spaces = spaces.map_err(|_| LinkWireError::Range { what: "a space of a hole" })?;
    Ok(Gap {
        spaces,
        after: core_position(need("hole", "beginning", hole.after)?),
        until: core_position(need("hole", "end", hole.until)?),
        reason,
        count: hole.count,
        severity_max: Severity::from_wire(hole.severity_max),
    })
}

fn core_marks(marks: v1::Marks) -> Result<Marks> {
    bound("publishers", marks.publishers.len(), MARKS_MAX)?;
    let publishers = marks.publishers.into_iter().map(|marks| {
        bound("bounds of a publisher", marks.bounds.len(), 2 * RANGES_PER_PUBLISHER_MAX)?;
        let (pairs, odd) = marks.bounds.as_chunks::<2>();
        let rising = marks.bounds.windows(2).all(|w| w[0] <= w[1]);
        if !odd.is_empty() || !rising || marks.bounds.last() == Some(&u64::MAX) {
            return Err(LinkWireError::Range { what: "the bounds of a publisher" });
        }
        let publisher = PublisherId { account: marks.account, token: marks.token };
        Ok((publisher, pairs.iter().map(|[first, last]| (*first, *last)).collect()))
    });
    Ok(Marks { publishers: publishers.collect::<Result<_>>()? })
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

fn core_roster(entries: Vec<v1::Enrolment>) -> Result<Vec<Enrolment>> {
    bound("agents that are not listed", entries.len(), ROSTER_ENTRIES_MAX)?;
    let entries = entries.into_iter().map(|entry| {
        let host = text("bytes of a host name", entry.host, HOST_BYTES_MAX)?;
        Ok(Enrolment { host, rank: unlisted(entry.rank)? })
    });
    entries.collect()
}

fn core_roll(bounds: &[u32]) -> Result<RangeSet> {
    bound("ranges of ranks", bounds.len().div_ceil(2), ROLL_RANGES_MAX)?;
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
        let state = MemberState::ALL
            .into_iter()
            .find(|state| state.as_str() == member.state)
            .ok_or(LinkWireError::Range { what: "the state of a member" })?;
        Ok(MemberReport {
            rank: Rank(member.rank),
            host: text("bytes of a host name", member.host, HOST_BYTES_MAX)?,
            address: text("bytes of an address", member.address, TEXT_BYTES_MAX)?,
            origin: member.origin,
            attempt: member.attempt,
            state,
            parent: member.parent.map(Rank),
            since_ns: member.since_ns,
        })
    });
    members.collect()
}

#[cfg(test)]
mod tests;
