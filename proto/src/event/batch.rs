//! Events of one delivery, read where they lie.
//!
//! A delivery is checked when it arrives; its events stay in the buffer of the message. An
//! [`EventView`] copies nothing; [`EventView::to_received`] gives an event of its own.

use super::{EventReader, EventWireError, Folded, Received, Walker, core_id, parts_of, receive};
use super::{Value, walk_tag};
use crate::v1;
use bytes::Bytes;
use ftb_core::group::{MemberIds, remaining};
use ftb_core::numbers::LogIndex;
use ftb_core::sealed::Span;
use ftb_core::{Epoch, EventId, EventKind, OriginId, Position, Run, SealedRef, Severity, limits};
use prost::Message as _;
use std::collections::BTreeMap;

/// Events of one message, in log order. Cloning copies no event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventBatch {
    epoch: Epoch,
    events: Run,
    items: Vec<Item>,
    /// Number of items that have been taken.
    taken: usize,
    /// The rest of folds of groups without some of their members, by their places.
    left: BTreeMap<u32, Vec<MemberIds>>,
}

/// One event of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Item {
    index: LogIndex,
    /// Its place among the events of the message.
    place: u32,
    /// Where its payload lies in the message.
    payload: Span,
    /// The agent has verified its signature.
    is_verified: bool,
}

impl EventBatch {
    /// Takes a delivery that was decoded from `message`.
    pub(crate) fn decode(message: Bytes, deliver: &v1::Deliver) -> Result<Self, EventWireError> {
        let malformed = |what| EventWireError::Malformed { message: "delivery", offset: 0, what };
        let mut reader = EventReader::new(message);
        let mut items = Vec::new();
        for v1::Item { index, sealed } in &deliver.items {
            if index.checked_add(sealed.len() as u64).is_none() {
                return Err(malformed("its index is too high"));
            }
            for (index, event) in (*index..).zip(sealed) {
                if items.len() == limits::BATCH_EVENTS_MAX {
                    return Err(malformed("it has too many events"));
                }
                let (place, payload) = (items.len() as u32, reader.push(event)?);
                items.push(Item { index: index.into(), place, payload, is_verified: false });
            }
        }
        for place in &deliver.verified {
            let item = items.get_mut(*place as usize);
            item.ok_or(malformed("it has no event at a verified place"))?.is_verified = true;
        }
        let events = reader.finish()?.ok_or(EventWireError::Missing("content"))?;
        let epoch = Epoch { number: deliver.epoch, root: OriginId(deliver.epoch_root) };
        Ok(Self { epoch, events, items, taken: 0, left: BTreeMap::new() })
    }

    /// Number of events left.
    pub fn len(&self) -> usize {
        self.items.len() - self.taken
    }

    /// Whether no event is left.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size of the message, in bytes.
    pub fn message_bytes(&self) -> usize {
        self.events.buffer().len()
    }

    /// The events left.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = EventView<'_>> {
        self.items[self.taken..].iter().map(|item| self.view(*item))
    }

    /// The first event left.
    pub fn first(&self) -> Option<EventView<'_>> {
        self.items.get(self.taken).map(|item| self.view(*item))
    }

    fn view(&self, item: Item) -> EventView<'_> {
        let event = self.events.get(item.place as usize).unwrap_or(self.events.first());
        EventView { batch: self, event, item }
    }

    /// The position of the last event.
    pub fn last_position(&self) -> Option<Position> {
        self.items.last().map(|item| Position { epoch: self.epoch, index: item.index })
    }

    /// Takes the first event left.
    pub fn take_first(&mut self) -> Option<Received> {
        let received = self.first()?.to_received();
        self.taken += 1;
        Some(received)
    }

    /// Drops the events up to an index of the log.
    pub fn skip_until(&mut self, index: LogIndex) {
        self.keep(|_, item| item.index > index);
    }

    /// Drops the events that `keep` rejects by their ids, also those in folds of groups.
    pub fn retain(&mut self, mut keep: impl FnMut(EventId) -> bool) {
        let mut left = std::mem::take(&mut self.left);
        self.keep(|event, item| {
            let Some(group) = event.group() else { return keep(event.id()) };
            let before = left.remove(&item.place);
            let members = before.clone().unwrap_or_else(|| group.members());
            let (mut kept, mut dropped) = (Vec::new(), 0);
            for members in members {
                for id in members.ids() {
                    match keep(id) {
                        true => kept.push(MemberIds { first: id.seq, last: id.seq, ..members }),
                        false => dropped += 1,
                    }
                }
            }
            let is_any = !kept.is_empty();
            if dropped > 0 || before.is_some() {
                left.insert(item.place, kept);
            }
            is_any
        });
        self.left = left;
    }

    fn keep(&mut self, mut keep: impl FnMut(SealedRef<'_>, &Item) -> bool) {
        self.items.drain(..self.taken);
        self.taken = 0;
        let events = &self.events;
        self.items
            .retain(|item| events.get(item.place as usize).is_some_and(|event| keep(event, item)));
    }
}

/// One event of a batch, where it lies in the message.
#[derive(Clone, Copy, Debug)]
pub struct EventView<'a> {
    batch: &'a EventBatch,
    event: SealedRef<'a>,
    item: Item,
}

impl<'a> EventView<'a> {
    /// Its place in the log.
    pub fn position(&self) -> Position {
        Position { epoch: self.batch.epoch, index: self.item.index }
    }

    /// Its id, unique in the cluster and over restarts.
    pub fn id(&self) -> EventId {
        self.event.id()
    }

    /// Its id; of the fold of a group those of all members that are left.
    pub fn ids(&self) -> Vec<EventId> {
        let Some(group) = self.event.group() else { return vec![self.id()] };
        let left = self.batch.left.get(&self.item.place).cloned();
        let members = left.unwrap_or_else(|| group.members());
        members.into_iter().flat_map(MemberIds::ids).collect()
    }

    /// The publisher's host, verified by its agent.
    pub fn host(&self) -> &'a str {
        self.event.host()
    }

    /// The publisher's user, verified by its agent.
    pub fn uid(&self) -> u32 {
        self.event.head().uid
    }

    /// The publisher's process, verified by its agent.
    pub fn pid(&self) -> u32 {
        self.event.head().pid
    }

    /// Event space.
    pub fn space(&self) -> &'a str {
        self.event.space()
    }

    /// Event name.
    pub fn name(&self) -> &'a str {
        self.event.name()
    }

    /// Severity.
    pub fn severity(&self) -> Severity {
        self.event.severity()
    }

    /// Unix nanoseconds on the publisher's clock.
    pub fn time_ns(&self) -> u64 {
        self.event.time_ns()
    }

    /// The publishing client's name; may be empty.
    pub fn client_name(&self) -> &'a str {
        self.event.client_name()
    }

    /// The job it belongs to; may be empty.
    pub fn job_id(&self) -> &'a str {
        self.event.job_id()
    }

    /// Normal, or the response to another event.
    pub fn kind(&self) -> EventKind {
        let mut walker = self.walker();
        let (mut response, mut answers) = (false, None);
        while let Ok(Some(field)) = walker.next() {
            match (field.number, field.value) {
                (7, Value::Varint(number)) => response = number != 0,
                (8, Value::Bytes(span)) => {
                    answers = v1::EventId::decode(walker.slice(span)).ok().map(core_id);
                }
                _ => {}
            }
        }
        if response { EventKind::Response(answers) } else { EventKind::Normal }
    }

    /// Tags, as key and value.
    pub fn tags(&self) -> Tags<'a> {
        Tags { walker: self.walker() }
    }

    /// The value of the first tag with that key.
    pub fn tag(&self, key: &str) -> Option<&'a str> {
        self.tags().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// Payload.
    pub fn payload(&self) -> &'a [u8] {
        self.item.payload.slice(self.batch.events.buffer()).unwrap_or_default()
    }

    /// An event of its own. A large payload shares the buffer of the message.
    pub fn to_received(&self) -> Received {
        let mut received = receive(self.position(), self.event, self.batch.events.buffer())
            .expect("the events of a batch were checked when it was decoded");
        received.is_verified = self.item.is_verified;
        if let Some(folded) = self.left_of_fold() {
            super::group::retag(&mut received.event.tags, &folded);
            received.folded = Some(folded);
        }
        received
    }

    /// Whether the agent has verified the signature of the publisher's host.
    pub fn is_verified(&self) -> bool {
        self.item.is_verified
    }

    /// The fold, if it stands for others of the same space, name and severity.
    pub fn folded(&self) -> Option<Folded> {
        self.left_of_fold().or_else(|| parts_of(self.event.bytes()).ok()?.1)
    }

    /// The fold of a group without members that were dropped; `None`: none was.
    fn left_of_fold(&self) -> Option<Folded> {
        let left = self.batch.left.get(&self.item.place)?;
        let (hosts, count) = remaining(self.event.group()?.hosts(), left);
        let (_, folded) = parts_of(self.event.bytes()).ok()?;
        folded.map(|folded| Folded { hosts: Some(hosts), count, ..folded })
    }

    /// The condition that it states, verified by its agent.
    pub fn stated(&self) -> Option<super::Stated> {
        super::stated_of(self.event)
    }

    fn walker(&self) -> Walker<'a> {
        let (event, _) = parts_of(self.event.bytes()).unwrap_or_default();
        Walker::new("event", event)
    }
}

/// The tags of an event, as key and value.
#[derive(Clone, Debug)]
pub struct Tags<'a> {
    walker: Walker<'a>,
}

impl<'a> Iterator for Tags<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        while let Ok(Some(field)) = self.walker.next() {
            if let (9, Value::Bytes(span)) = (field.number, field.value) {
                let [key, value] = walk_tag(self.walker.slice(span)).ok()?;
                return Some((key, value));
            }
        }
        None
    }
}
