//! How two agents meet, to and from the wire: hellos, their answers, epochs and the state of the
//! tree.

use super::{
    EPOCH_NUMBER_MAX, LinkWireError, Result, TEXT_BYTES_MAX, core_interest, core_ranks, need, text,
    unlisted, wire_interest, wire_ranks,
};
use crate::common::versions;
use crate::v1;
use ftb_core::epochs::{EpochHistory, Segment};
use ftb_core::frame::{Hello, HelloAck, HelloNack, Interest, LogRange, NackCode, TreeState};
use ftb_core::ident::{OriginId, Rank};
use ftb_core::limits::HOST_BYTES_MAX;
use ftb_core::position::Epoch;
use ftb_core::protocol::{Features, PROTOCOL, Versions};

pub(super) fn wire_hello(hello: &Hello) -> v1::LinkHello {
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

pub(super) fn wire_hello_ack(hello_ack: &HelloAck) -> v1::LinkHelloAck {
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

pub(super) fn wire_epoch(epoch: Epoch) -> v1::Epoch {
    v1::Epoch { number: epoch.number, root: epoch.root.0 }
}

pub(super) fn wire_epochs(epochs: &EpochHistory) -> Vec<v1::Segment> {
    let segments = epochs.segments().iter();
    let wire = |segment: &Segment| v1::Segment {
        epoch: Some(wire_epoch(segment.epoch)),
        first: segment.first.get(),
        incomplete: segment.incomplete,
    };
    segments.map(wire).collect()
}

pub(super) fn wire_tree_state(tree_state: &TreeState) -> v1::TreeState {
    v1::TreeState {
        epochs: wire_epochs(&tree_state.epochs),
        head: tree_state.head.get(),
        path: wire_ranks(&tree_state.path),
        standby: tree_state.standby.map(|rank| rank.0),
    }
}

pub(super) fn wire_nack_code(code: NackCode) -> v1::NackCode {
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

pub(super) fn core_hello_nack(hello_nack: v1::LinkHelloNack) -> Result<HelloNack> {
    Ok(HelloNack {
        code: core_nack_code(hello_nack.code),
        message: text("bytes of a message", hello_nack.message, TEXT_BYTES_MAX)?,
        redirect: core_ranks(hello_nack.redirect)?,
    })
}

pub(super) fn core_hello(hello: v1::LinkHello) -> Result<Hello> {
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

pub(super) fn core_hello_ack(hello_ack: v1::LinkHelloAck) -> Result<HelloAck> {
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

pub(super) fn core_epoch(epoch: v1::Epoch) -> Result<Epoch> {
    Ok(Epoch { number: epoch_number(epoch.number)?, root: OriginId(epoch.root) })
}

/// An agent opens epochs above all that it hears of: there must be room for them.
pub(super) fn epoch_number(number: u64) -> Result<u64> {
    match number <= EPOCH_NUMBER_MAX {
        true => Ok(number),
        false => Err(LinkWireError::Range { what: "the number of an epoch" }),
    }
}

pub(super) fn core_epochs(segments: Vec<v1::Segment>) -> Result<EpochHistory> {
    let segments = segments.into_iter().map(|segment| {
        let epoch = core_epoch(need("epoch history", "epoch", segment.epoch)?)?;
        Ok(Segment { epoch, first: segment.first.into(), incomplete: segment.incomplete })
    });
    Ok(EpochHistory::from_segments(segments.collect::<Result<_>>()?)?)
}

pub(super) fn core_tree_state(tree_state: v1::TreeState) -> Result<TreeState> {
    Ok(TreeState {
        epochs: core_epochs(tree_state.epochs)?,
        head: tree_state.head.into(),
        path: core_ranks(tree_state.path)?,
        standby: tree_state.standby.map(Rank),
    })
}
