//! Numbers that an agent goes on counting from: indices of the log, sequences, versions.
//!
//! Responsible for: that none of them is so high that counting on from it overflows. What a peer
//! says is kept as the last that there is, and added to.

use super::{LinkWireError, Result};
use ftb_core::epochs::EpochHistory;
use ftb_core::frame::{Content, EntryRef, Frame, Item, TreeState, UpBatch, UpItem};
use ftb_core::node::api::Gap;

/// The highest such number: at a thousand million events a second it takes a century to get there.
const COUNT_MAX: u64 = 1 << 62;

/// Rejects a frame with a number above all counts.
pub(super) fn check(frame: &Frame) -> Result<()> {
    match highest(frame) <= COUNT_MAX {
        true => Ok(()),
        false => Err(LinkWireError::Range { what: "an index or sequence" }),
    }
}

fn highest(frame: &Frame) -> u64 {
    match frame {
        Frame::Hello(hello) => {
            let held = hello.log_range.map_or(0, |holds| holds.after.max(holds.until).get());
            let log = hello.commit_index.get().max(of_epochs(&hello.epochs));
            held.max(log).max(hello.interest.version)
        }
        Frame::HelloAck(hello_ack) => of_tree_state(&hello_ack.tree_state),
        Frame::TreeState(tree_state) => of_tree_state(tree_state),
        Frame::Heartbeat(beat) => beat.covered.map_or(0, |covered| covered.index.get()),
        Frame::Resume { after, .. } => after.get(),
        Frame::Subscribe(interest) => interest.version,
        Frame::FilterActive { version, index } => index.get().max(*version),
        Frame::Up(batch) => of_batch(batch),
        Frame::Confirm(confirm) => {
            let settled = confirm.settled.map_or(0, |settled| settled.seq.get());
            confirm.seq.get().max(confirm.position.index.get()).max(settled)
        }
        Frame::Nak { run, .. } => *run,
        Frame::Down(down) => down.covered.get().max(of_items(&down.items)),
        Frame::HistoryRequest(request) => request.after.get(),
        Frame::HistoryReply(reply) => reply.covered.get().max(of_items(&reply.items)),
        Frame::ReplicaStart(start) => start.after.get().max(of_epochs(&start.epochs)),
        Frame::Replicate(batch) => {
            let places = batch.until.max(batch.committed).get().max(of_items(&batch.items));
            places.max(batch.refs_until).max(of_entry_refs(&batch.entry_refs))
        }
        Frame::ReplicaAck { index, kept_from, synced, .. } => {
            let synced = synced.map_or(0, |range| range.after.max(range.until).get());
            kept_from.unwrap_or(0).max(index.get()).max(synced)
        }
        Frame::Credit { bytes } => *bytes,
        // They carry none, or none that is counted on from.
        Frame::HelloNack(_)
        | Frame::Close(_)
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
        | Frame::TraceAnswer(_) => 0,
    }
}

fn of_epochs(epochs: &EpochHistory) -> u64 {
    // They rise.
    epochs.segments().last().map_or(0, |segment| segment.first.get())
}

fn of_tree_state(tree_state: &TreeState) -> u64 {
    tree_state.head.get().max(of_epochs(&tree_state.epochs))
}

fn of_gap(gap: &Gap) -> u64 {
    gap.count.unwrap_or(0).max(gap.after.index.max(gap.until.index).get())
}

fn of_items(items: &[Item]) -> u64 {
    let of_item = |item: &Item| match &item.content {
        Content::Events(_) => item.index.get(),
        Content::Gap(gap) => item.index.get().max(of_gap(gap)),
    };
    items.iter().map(of_item).max().unwrap_or(0)
}

fn of_entry_refs(entry_refs: &[EntryRef]) -> u64 {
    entry_refs
        .iter()
        .map(|entry_ref| entry_ref.index.get().max(entry_ref.batch).max(entry_ref.skip))
        .max()
        .unwrap_or(0)
}

fn of_batch(batch: &UpBatch) -> u64 {
    let of_item = |item: &UpItem| match item {
        UpItem::Events(_) | UpItem::Loss(_) => 0,
        UpItem::Gap(gap) => of_gap(gap),
        UpItem::Fork { until, .. } => until.get(),
    };
    let items = batch.items.iter().map(of_item).max().unwrap_or(0);
    batch.run.max(batch.first.get()).max(items)
}

#[cfg(test)]
mod tests {
    use super::super::decode;
    use super::*;
    use crate::v1::{self, link_frame::Frame as Wire};
    use prost::Message as _;

    #[test]
    fn a_number_above_all_counts_is_rejected_in_what_is_said_of_disks() {
        let epoch = Some(v1::Epoch { number: 1, root: 1 });
        let position = Some(v1::Position { epoch: 1, epoch_root: 1, index: 1 });
        let frames = |number| {
            let settled = Some(v1::Settled { seq: number, level: 1 });
            let synced = Some(v1::LogRange { after: 1, until: number });
            [
                Wire::Confirm(v1::OriginConfirmed { origin: 1, seq: 1, position, settled }),
                Wire::ReplicaAck(v1::ReplicaAck {
                    epoch,
                    index: 1,
                    copy: 1,
                    kept_from: None,
                    synced,
                }),
            ]
        };
        let decoded =
            |frame: Wire| decode(v1::LinkFrame { frame: Some(frame) }.encode_to_vec().into());
        for frame in frames(COUNT_MAX + 1) {
            let refused = decoded(frame.clone());
            assert!(matches!(refused, Err(LinkWireError::Range { .. })), "{frame:?}");
        }
        for frame in frames(COUNT_MAX) {
            assert!(decoded(frame.clone()).is_ok(), "{frame:?}");
        }
    }

    #[test]
    fn a_number_above_all_counts_is_rejected_in_every_field() {
        let epoch = Some(v1::Epoch { number: 1, root: 1 });
        let position = |index| Some(v1::Position { epoch: 1, epoch_root: 1, index });
        let frames = |number| {
            [
                Wire::Heartbeat(v1::LinkHeartbeat { covered: number, epoch, ..Default::default() }),
                Wire::TreeState(v1::TreeState { head: number, ..v1::TreeState::default() }),
                Wire::TreeState(v1::TreeState {
                    epochs: vec![v1::Segment { epoch, first: number, incomplete: false }],
                    ..v1::TreeState::default()
                }),
                Wire::Resume(v1::Resume { epoch, after: number }),
                Wire::Subscribe(v1::Interest { version: number, ..v1::Interest::default() }),
                Wire::FilterActive(v1::FilterActive { version: 1, index: number }),
                Wire::Confirm(v1::OriginConfirmed {
                    origin: 1,
                    seq: 1,
                    position: position(number),
                    settled: None,
                }),
                Wire::Nak(v1::Nak { origin: 1, run: number }),
                Wire::ReplicaStart(v1::ReplicaStart {
                    after: number,
                    ..v1::ReplicaStart::default()
                }),
                Wire::ReplicaAck(v1::ReplicaAck {
                    epoch,
                    index: number,
                    copy: 1,
                    kept_from: Some(1),
                    synced: None,
                }),
                Wire::ReplicaAck(v1::ReplicaAck {
                    epoch,
                    index: 1,
                    copy: 1,
                    kept_from: Some(number),
                    synced: None,
                }),
                Wire::Replicate(v1::Replicate { epoch, until: number, ..v1::Replicate::default() }),
                Wire::Replicate(v1::Replicate {
                    epoch,
                    refs_until: number,
                    ..v1::Replicate::default()
                }),
                Wire::Replicate(v1::Replicate {
                    epoch,
                    entry_refs: vec![v1::EntryRef { index: number, batch: 1, skip: 0, count: 1 }],
                    ..v1::Replicate::default()
                }),
                Wire::Down(v1::Down { epoch, covered: number, ..v1::Down::default() }),
            ]
        };
        let decoded =
            |frame: Wire| decode(v1::LinkFrame { frame: Some(frame) }.encode_to_vec().into());
        for number in [COUNT_MAX + 1, u64::MAX] {
            for frame in frames(number) {
                let refused = decoded(frame.clone());
                assert!(matches!(refused, Err(LinkWireError::Range { .. })), "{frame:?}");
            }
        }
        for frame in frames(COUNT_MAX) {
            assert!(decoded(frame.clone()).is_ok(), "{frame:?}");
        }
    }
}
