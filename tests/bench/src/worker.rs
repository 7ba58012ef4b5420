//! The load process: connects publishers and subscribers, drives them, measures, and proves that
//! nothing was lost or reordered. One process holds both sides, so that one clock stamps and reads.

use crate::check::{Checker, Faults};
use crate::histogram::Histogram;
use crate::load::{Endpoint, Latency, Load, Mode, Order, Outcome};
use crate::message::{HEAD_BYTES, Head};
use crate::pace::Pace;
use crate::process::{Usage, machine_busy_ns};
use crate::wire::ftb::Ftb;
use crate::wire::mqtt::Mqtt;
use crate::wire::nats::Nats;
use crate::wire::plain::Plain;
use crate::wire::typed::Typed;
use crate::wire::zenoh::{Library, Zenoh};
use crate::wire::{Publish, Receive, WireSystem};
use anyhow::{Context as _, Result, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

/// The longest that a run may take from first connection to verdict.
const RUN_DEADLINE: Duration = Duration::from_secs(180);
/// After the last message was sent, no delivery for this time means that the rest is lost.
const SILENCE: Duration = Duration::from_secs(5);
/// Within this time after a storm its memory must be given back.
const REST: Duration = Duration::from_secs(60);
/// How often it is looked at.
const REST_LOOK: Duration = Duration::from_secs(5);
/// Most messages that a publisher puts before it looks at the window again.
const BURST: u64 = 256;
/// Shortest distance of two turns of a paced publisher: what is due within it goes together.
const TICK: Duration = Duration::from_millis(1);

/// Carries out an order.
///
/// # Errors
/// A server is not there, refuses, hangs up, or takes too long.
pub(crate) async fn work(order: Order) -> Result<Outcome> {
    let run = async {
        match order.endpoint.clone() {
            Endpoint::Ftb { publish, subscribe } => {
                let receipts = order.load.mode == Mode::Acknowledged;
                let Load { typed, singly, .. } = order.load;
                drive(Ftb { publish, subscribe, receipts, typed, singly }, &order).await
            }
            Endpoint::Nats { port, stream } => drive_peer(Nats { port, stream }, &order).await,
            Endpoint::Mqtt { port, qos } => drive_peer(Mqtt { port, qos }, &order).await,
            Endpoint::Plain { port } => drive_peer(Plain { port }, &order).await,
            Endpoint::Zenoh { port, library } => {
                let library = Arc::new(Library::load(&library)?);
                // Gathering is for rates; where the way is measured, nothing is to wait for more.
                let express = order.load.mode != Mode::Full;
                drive_peer(Zenoh { library, port, express }, &order).await
            }
        }
    };
    tokio::time::timeout(RUN_DEADLINE, run)
        .await
        .with_context(|| format!("the run took more than {RUN_DEADLINE:?}"))?
}

/// What publishers, subscribers and the measuring task share.
struct Shared {
    begun: Instant,
    /// Messages published.
    sent: AtomicU64,
    /// For each subscriber the messages that it has seen; without subscribers, for each
    /// publisher those acknowledged.
    seen: Vec<AtomicU64>,
    /// Notified when one of `seen` grows.
    moved: Notify,
    window: u64,
    measuring: AtomicBool,
    stop: AtomicBool,
}

impl Shared {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn delivered(&self) -> u64 {
        self.seen.iter().map(|seen| seen.load(Ordering::Relaxed)).sum()
    }

    /// How many more messages may be published before the slowest subscriber has seen more.
    fn room(&self) -> u64 {
        let slowest = self.seen.iter().map(|seen| seen.load(Ordering::Relaxed)).min();
        let in_flight = self.sent.load(Ordering::Relaxed).saturating_sub(slowest.unwrap_or(0));
        self.window.saturating_sub(in_flight)
    }

    /// Waits until there is room, or until the load ends: then there is none.
    async fn wait_room(&self) -> u64 {
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if self.stopped() {
                return 0;
            }
            match self.room() {
                0 => moved.await,
                room => return room,
            }
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A system that carries bytes, or events in them.
async fn drive_peer<S: WireSystem>(system: S, order: &Order) -> Result<Outcome> {
    if order.load.typed { drive(Typed(system), order).await } else { drive(system, order).await }
}

async fn drive<S: WireSystem>(system: S, order: &Order) -> Result<Outcome> {
    let load = &order.load;
    ensure!(load.publishers > 0, "a run needs a publisher");
    let bystanders = connect_bystanders(&system, load).await?;
    let message = vec![0x2e; system.message_bytes(load.size).max(HEAD_BYTES)];
    let watched = if load.subscribers > 0 { load.subscribers } else { load.publishers };
    let shared = Arc::new(Shared {
        begun: Instant::now(),
        sent: AtomicU64::new(0),
        seen: (0..watched).map(|_| AtomicU64::new(0)).collect(),
        moved: Notify::new(),
        window: order.window,
        measuring: AtomicBool::new(false),
        stop: AtomicBool::new(false),
    });
    let outcome = match load.mode {
        Mode::PingPong => ping_pong(&system, order, &shared, message).await,
        Mode::Resubscribe => resubscribe(&system, order, &shared).await,
        _ => stream(&system, order, &shared, &message).await,
    };
    drop(bystanders);
    outcome
}

async fn connect_bystanders<S: WireSystem>(system: &S, load: &Load) -> Result<Vec<S::Bystander>> {
    let mut connected = Vec::with_capacity(load.bystanders);
    for number in 0..load.bystanders {
        let each = load.bystander_subscriptions / load.bystanders;
        let rest = usize::from(number < load.bystander_subscriptions % load.bystanders);
        connected.push(system.bystander(number, each + rest).await?);
    }
    Ok(connected)
}

/// Everything but ping-pong: tasks for publishers and subscribers, and this one measures.
async fn stream<S: WireSystem>(
    system: &S,
    order: &Order,
    shared: &Arc<Shared>,
    message: &[u8],
) -> Result<Outcome> {
    let load = &order.load;
    let (ended, end) = watch::channel(false);
    let mut subscribers = JoinSet::new();
    for number in 0..load.subscribers {
        let receiver = system.subscriber(number).await?;
        let checker = Checker::new(load.publishers);
        subscribers.spawn(subscribe(receiver, number, checker, Arc::clone(shared), end.clone()));
    }
    let mut connected = Vec::new();
    for number in 0..load.publishers {
        connected.push(system.publisher(number).await?);
    }
    let mut publishers = JoinSet::new();
    for (number, publisher) in connected.into_iter().enumerate() {
        let message = message.to_vec();
        publishers.spawn(publish(publisher, number, load.clone(), message, Arc::clone(shared)));
    }
    let mut outcome = tokio::select! {
        outcome = measure(order, shared) => outcome?,
        failure = first_failure(&mut publishers) => return Err(failure),
        failure = first_failure(&mut subscribers) => return Err(failure),
    };
    shared.stop.store(true, Ordering::Relaxed);
    shared.moved.notify_waiters();
    let mut sent = vec![0; load.publishers];
    let mut attached = Vec::new();
    while let Some(done) = publishers.join_next().await {
        let (number, seq, publisher) = done??;
        sent[number] = seq;
        attached.push(publisher);
    }
    outcome.published = sent.iter().sum();
    if load.subscribers > 0 {
        wait_delivered(shared, outcome.published).await;
    }
    if load.rests {
        outcome.servers.rss_kib = rest(&order.servers).await?;
    }
    drop(attached);
    ended.send_replace(true);
    let mut latency = Histogram::default();
    while let Some(done) = subscribers.join_next().await {
        let (checker, histogram) = done??;
        outcome.faults.add(checker.finish(&sent));
        latency.merge(&histogram);
    }
    outcome.latency = summary(&latency);
    Ok(outcome)
}

/// Ends only when a task ends with an error.
async fn first_failure<T: 'static>(tasks: &mut JoinSet<Result<T>>) -> anyhow::Error {
    loop {
        match tasks.join_next().await {
            Some(Ok(Err(error))) => return error,
            Some(Err(error)) => return error.into(),
            Some(Ok(Ok(_))) => {}
            None => std::future::pending().await,
        }
    }
}

/// Warms up, then measures for the ordered time.
async fn measure(order: &Order, shared: &Shared) -> Result<Outcome> {
    tokio::time::sleep(Duration::from_millis(order.warm_up_ms)).await;
    let own_pid = [std::process::id()];
    let (servers, own) = (Usage::of(&order.servers)?, Usage::of(&own_pid)?);
    let busy_ns = machine_busy_ns();
    let (begun, delivered) = (Instant::now(), shared.delivered());
    shared.measuring.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(order.measure_ms)).await;
    shared.measuring.store(false, Ordering::Relaxed);
    let delivered = shared.delivered() - delivered;
    let measured = begun.elapsed();
    let busy_ns = machine_busy_ns().saturating_sub(busy_ns);
    let servers = used(Usage::of(&order.servers)?, servers);
    let own = used(Usage::of(&own_pid)?, own);
    Ok(Outcome {
        measured_ns: u64::try_from(measured.as_nanos()).unwrap_or(u64::MAX),
        delivered,
        servers,
        own,
        other_ns: busy_ns.saturating_sub(servers.cpu_ns + own.cpu_ns),
        ..Outcome::default()
    })
}

/// What was used between two looks; memory as it is at the second.
fn used(now: Usage, before: Usage) -> Usage {
    Usage {
        cpu_ns: now.cpu_ns.saturating_sub(before.cpu_ns),
        sleeps: now.sleeps.saturating_sub(before.sleeps),
        ..now
    }
}

/// Waits until every subscriber has seen everything, or nothing comes any more.
async fn wait_delivered(shared: &Shared, published: u64) {
    let mut last = (shared.delivered(), Instant::now());
    let all = |seen: &AtomicU64| seen.load(Ordering::Relaxed) >= published;
    while !shared.seen.iter().all(all) && last.1.elapsed() < SILENCE {
        tokio::time::sleep(TICK).await;
        let delivered = shared.delivered();
        if delivered != last.0 {
            last = (delivered, Instant::now());
        }
    }
}

async fn subscribe<R: Receive>(
    mut receiver: R,
    number: usize,
    mut checker: Checker,
    shared: Arc<Shared>,
    mut end: watch::Receiver<bool>,
) -> Result<(Checker, Histogram)> {
    let mut latency = Histogram::default();
    loop {
        let mut count = 0;
        // What came at once came at one time.
        let mut now_ns = None;
        let mut see = |message: &[u8]| {
            count += 1;
            if let Some(head) = checker.see(message)
                && shared.measuring.load(Ordering::Relaxed)
            {
                let now_ns = *now_ns.get_or_insert_with(|| shared.now_ns());
                latency.record(now_ns.saturating_sub(head.stamp_ns));
            }
        };
        tokio::select! {
            received = receiver.receive(&mut see) => received?,
            _ = end.changed() => return Ok((checker, latency)),
        }
        shared.seen[number].fetch_add(count, Ordering::Relaxed);
        shared.moved.notify_waiters();
    }
}

/// The servers' memory, in KiB, once it has stopped to shrink, or after [`REST`].
async fn rest(servers: &[u32]) -> Result<u64> {
    let begun = Instant::now();
    let mut last = u64::MAX;
    loop {
        tokio::time::sleep(REST_LOOK).await;
        let now = Usage::of(servers)?.rss_kib;
        if begun.elapsed() >= REST || (begun.elapsed() >= REST / 4 && now >= last) {
            return Ok(now);
        }
        last = now;
    }
}

/// Publishes until the load ends, and sees to it that everything is handed over; gives the
/// publisher back, which stays attached as long as it is kept.
async fn publish<P: Publish>(
    publisher: P,
    number: usize,
    load: Load,
    message: Vec<u8>,
    shared: Arc<Shared>,
) -> Result<(usize, u64, P)> {
    let mut source = Source { publisher, number: u32::try_from(number)?, seq: 0, message };
    match load.mode {
        Mode::Full => {
            let burst = (shared.window / 4 / load.publishers as u64).clamp(1, BURST);
            full(&mut source, burst, &shared).await?;
        }
        Mode::Paced(per_s) => {
            paced(&mut source, f64::from(per_s) / load.publishers as f64, &shared).await?;
        }
        Mode::Acknowledged => acknowledged(&mut source, number, &shared).await?,
        Mode::Idle | Mode::PingPong | Mode::Resubscribe => {
            while !shared.stopped() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
    let seq = source.seq;
    if seq > 0 {
        let acked = source.publisher.acknowledged(seq).await?;
        ensure!(acked == seq, "{acked} of {seq} messages were acknowledged");
    }
    Ok((number, seq, source.publisher))
}

/// One publisher and what it publishes next.
struct Source<P> {
    publisher: P,
    number: u32,
    seq: u64,
    message: Vec<u8>,
}

impl<P: Publish> Source<P> {
    async fn put(&mut self, stamp_ns: u64) -> Result<()> {
        self.seq += 1;
        Head { publisher: self.number, seq: self.seq, stamp_ns }.write(&mut self.message);
        self.publisher.put(&self.message).await
    }
}

async fn full<P: Publish>(source: &mut Source<P>, burst: u64, shared: &Shared) -> Result<()> {
    loop {
        let count = shared.wait_room().await.min(burst);
        if count == 0 {
            return Ok(());
        }
        shared.sent.fetch_add(count, Ordering::Relaxed);
        let now_ns = shared.now_ns();
        for _ in 0..count {
            source.put(now_ns).await?;
        }
        source.publisher.flush().await?;
    }
}

async fn paced<P: Publish>(source: &mut Source<P>, per_s: f64, shared: &Shared) -> Result<()> {
    let mut pace = Pace::new(Duration::from_secs_f64(1.0 / per_s).max(TICK))?;
    loop {
        let turn = pace.next().await?;
        if shared.stopped() {
            return Ok(());
        }
        let stamp_ns = u64::try_from((turn.stamp - shared.begun).as_nanos())?;
        let wanted = (turn.due.as_secs_f64() * per_s).round() as u64;
        while source.seq < wanted {
            source.put(stamp_ns).await?;
        }
        source.publisher.flush().await?;
    }
}

async fn acknowledged<P: Publish>(
    source: &mut Source<P>,
    number: usize,
    shared: &Shared,
) -> Result<()> {
    let mut acked = 0;
    while !shared.stopped() {
        let now_ns = shared.now_ns();
        while source.seq - acked < shared.window {
            source.put(now_ns).await?;
            if source.seq.is_multiple_of(BURST) {
                break;
            }
        }
        let wanted = (source.seq + BURST).saturating_sub(shared.window);
        acked = source.publisher.acknowledged(wanted).await?;
        shared.seen[number].store(acked, Ordering::Relaxed);
    }
    Ok(())
}

/// One message in flight, from one task, so that no hand-over inside this process is measured.
async fn ping_pong<S: WireSystem>(
    system: &S,
    order: &Order,
    shared: &Shared,
    message: Vec<u8>,
) -> Result<Outcome> {
    let mut receiver = system.subscriber(0).await?;
    let publisher = system.publisher(0).await?;
    let mut source = Source { publisher, number: 0, seq: 0, message };
    let mut checker = Checker::new(1);
    let mut latency = Histogram::default();
    let rounds = async {
        while !shared.stopped() {
            source.put(shared.now_ns()).await?;
            source.publisher.flush().await?;
            let mut seen = 0;
            while seen < source.seq {
                let mut see = |message: &[u8]| {
                    if let Some(Head { seq, stamp_ns, .. }) = checker.see(message) {
                        seen = seq;
                        if shared.measuring.load(Ordering::Relaxed) {
                            latency.record(shared.now_ns().saturating_sub(stamp_ns));
                        }
                    }
                };
                tokio::time::timeout(SILENCE, receiver.receive(&mut see))
                    .await
                    .with_context(|| format!("message {} never came", source.seq))??;
            }
            shared.seen[0].store(seen, Ordering::Relaxed);
        }
        anyhow::Ok(())
    };
    let timer = async {
        let outcome = measure(order, shared).await;
        shared.stop.store(true, Ordering::Relaxed);
        outcome
    };
    let (played, outcome) = tokio::join!(rounds, timer);
    played?;
    let faults: Faults = checker.finish(&[source.seq]);
    Ok(Outcome { published: source.seq, faults, latency: summary(&latency), ..outcome? })
}

/// One change of subscriptions after the other.
async fn resubscribe<S: WireSystem>(system: &S, order: &Order, shared: &Shared) -> Result<Outcome> {
    let mut client = system.bystander(order.load.bystanders, 1).await?;
    let mut latency = Histogram::default();
    let changes = async {
        for change in 1.. {
            if shared.stopped() {
                break;
            }
            let begun = Instant::now();
            system.resubscribe(&mut client, change).await?;
            if shared.measuring.load(Ordering::Relaxed) {
                latency.record(u64::try_from(begun.elapsed().as_nanos())?);
            }
            shared.seen[0].store(change, Ordering::Relaxed);
        }
        anyhow::Ok(())
    };
    let timer = async {
        let outcome = measure(order, shared).await;
        shared.stop.store(true, Ordering::Relaxed);
        outcome
    };
    let (changed, outcome) = tokio::join!(changes, timer);
    changed?;
    Ok(Outcome { latency: summary(&latency), ..outcome? })
}

fn summary(latency: &Histogram) -> Latency {
    Latency {
        count: latency.count(),
        p50_ns: latency.quantile_ns(0.5),
        p95_ns: latency.quantile_ns(0.95),
        p99_ns: latency.quantile_ns(0.99),
        p999_ns: latency.quantile_ns(0.999),
        max_ns: latency.max_ns(),
    }
}
