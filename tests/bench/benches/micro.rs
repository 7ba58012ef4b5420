//! What the parts of the hot path cost, one by one: `make microbench`.
//!
//! Each bench says its time, and events a second where it handles many. What an event allocates on
//! its way through the router is the test's to hold (`tests/allocations.rs`), its instructions are
//! that of `tests/instructions.rs`.

use bytes::Bytes;
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use ftb_agent::journal::files::DiskStorage;
use ftb_agent::journal::log_store::{Bounds, LogStore};
use ftb_agent::world::Storage as _;
use ftb_bench::{OneAgent, PAYLOAD_BYTES_MAX, PUBLISHER, event, sealed};
use ftb_core::epochs::EpochHistory;
use ftb_core::filter::{Filter, FilterSet};
use ftb_core::frame::{Content, DedupRanges, Down, Frame, Item};
use ftb_core::node::api::{JournalBegin, JournalWrite, SubscriptionId, ToClient};
use ftb_core::node::protected_by_default;
use ftb_core::{Epoch, EventId, EventRef, OriginId, Run};
use ftb_proto::client::{FromAgent, Outgoing, put_published};
use ftb_proto::event::{Rights, SealRules, Stamps, encode_event, event_len, seal_batch};
use ftb_proto::link;
use ftb_proto::wire::{Outbound, Pieces};
use std::time::Duration;

/// Events in one batch: what 64 KiB hold of the fixture's.
const BATCH: usize = 256;
/// Batches that the log holds when it is read again.
const LOGGED: usize = 40;
/// Of the fixture's log.
const EPOCH: Epoch = Epoch { number: 1, root: OriginId(1) };

fn main() {
    divan::main();
}

/// What a fixture gives; that it gives it is its own test's to hold.
fn good<T, E: std::fmt::Display>(result: Result<T, E>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("the fixture is broken: {error}"),
    }
}

fn run() -> Run {
    good(sealed(1, BATCH))
}

#[divan::bench(args = ["event_space=ftb.bench.load", "event_space=ftb.*, severity>=info",
    "event_space=ftb.bench.load, event_name=FTB_OTHER", "jobid=7"])]
fn filter_match(bencher: Bencher<'_, '_>, filter: &str) {
    let filter = good(Filter::parse(filter));
    let run = run();
    bencher.bench_local(|| black_box(&filter).matches(black_box(run.first())));
}

/// What a link of a parent wants, merged of this number of filters.
#[divan::bench(args = [1, 16, 256])]
fn filter_set_match(bencher: Bencher<'_, '_>, filters: usize) {
    let filters = (0..filters).map(|number| good(Filter::parse(&format!("jobid=job{number}"))));
    let set = FilterSet::merge(&filters.collect::<Vec<_>>());
    let run = run();
    bencher.bench_local(|| black_box(&set).matches(black_box(run.first())));
}

/// From the publisher's batch to the delivery and the confirmation, beside this number of
/// subscriptions that do not match.
#[divan::bench(args = [0, 1000])]
fn route(bencher: Bencher<'_, '_>, others: usize) {
    let agent = std::cell::RefCell::new(good(OneAgent::start(others)));
    bencher
        .counter(ItemsCount::new(BATCH))
        .with_inputs(|| good(agent.borrow_mut().next(BATCH)))
        .bench_local_values(|events| good(agent.borrow_mut().route(events)));
}

/// A subscription that begins in the past reads the log.
#[divan::bench]
fn ring_replay(bencher: Bencher<'_, '_>) {
    let mut agent = good(OneAgent::start(0));
    for _ in 0..LOGGED {
        let events = good(agent.next(BATCH));
        good(agent.route(events));
    }
    bencher.counter(ItemsCount::new(LOGGED * BATCH)).bench_local(|| good(agent.replay()));
}

#[divan::bench]
fn encode(bencher: Bencher<'_, '_>) {
    let event = good(event(150));
    let mut bytes = Vec::with_capacity(1 << 20);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        bytes.clear();
        for _ in 0..BATCH {
            let event = EventRef::from(black_box(&event));
            put_published(&event, event_len(&event), &mut bytes);
        }
        bytes.len()
    });
}

/// Checks a publisher's events and puts the stamps around them.
#[divan::bench]
fn seal(bencher: Bencher<'_, '_>) {
    let encoded = encode_event(&good(event(150)));
    let stamps = Stamps {
        id: EventId { publisher: PUBLISHER, seq: 1.into() },
        host: "node001",
        uid: 1000,
        pid: 4242,
        republished: false,
    };
    let events = vec![&encoded[..]; BATCH];
    let rules = SealRules::plain(PAYLOAD_BYTES_MAX);
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        good(seal_batch(&stamps, events.iter().copied(), &rules, |_| Rights::Publish))
    });
}

/// As a stream writes it: events stay in the pieces that they lie in.
fn written(message: impl Outbound) -> Vec<Bytes> {
    let mut out = Pieces::default();
    message.write(&mut out);
    out.finish()
}

fn delivery() -> Outgoing {
    let (subscription, items) = (SubscriptionId(1), vec![(1.into(), run())]);
    Outgoing::Core(ToClient::Deliver { subscription, epoch: EPOCH, items })
}

#[divan::bench]
fn encode_delivery(bencher: Bencher<'_, '_>) {
    bencher.counter(ItemsCount::new(BATCH)).with_inputs(delivery).bench_local_values(written);
}

#[divan::bench]
fn decode_delivery(bencher: Bencher<'_, '_>) {
    let message = delivery().to_bytes();
    bencher
        .counter(ItemsCount::new(BATCH))
        .bench_local(|| good(FromAgent::decode(Bytes::clone(&message))));
}

fn down() -> Frame {
    let items = vec![Item { index: 1.into(), content: Content::Events(run()) }];
    Frame::Down(Down { epoch: EPOCH, items, covered: (BATCH as u64).into() })
}

#[divan::bench]
fn encode_link(bencher: Bencher<'_, '_>) {
    bencher.counter(ItemsCount::new(BATCH)).with_inputs(down).bench_local_values(written);
}

#[divan::bench]
fn decode_link(bencher: Bencher<'_, '_>) {
    let frame = down().to_bytes();
    bencher
        .counter(ItemsCount::new(BATCH))
        .bench_local(|| good(link::decode(Bytes::clone(&frame))));
}

/// A write of one batch into the journal's store, not synced.
#[divan::bench]
fn journal_append(bencher: Bencher<'_, '_>) {
    let dir = good(tempfile::Builder::new().prefix("ftb-micro.").tempdir());
    let store = good(DiskStorage.open(dir.path()));
    let (age, protected) = (Duration::from_secs(1 << 20), protected_by_default());
    let conditions = Default::default();
    let bounds = Bounds { bytes: 64 << 20, age, memory_bytes: 1 << 20, protected, conditions };
    let (mut log_store, _) = good(LogStore::open(store, "bench", bounds, 1));
    let mut epochs = EpochHistory::new();
    epochs.open(EPOCH, 1.into(), false);
    let mut begin =
        Some(JournalBegin { epochs, after: 0.into(), anew: Some(DedupRanges::default()) });
    let run = run();
    let mut index = 0;
    bencher.counter(ItemsCount::new(BATCH)).bench_local(|| {
        let items = vec![Item { index: (index + 1).into(), content: Content::Events(run.clone()) }];
        index += BATCH as u64;
        let write = JournalWrite {
            generation: 1,
            begin: begin.take(),
            items,
            until: index.into(),
            ..JournalWrite::default()
        };
        good(log_store.write(&write, 1, false));
        good(log_store.acknowledge());
    });
}
