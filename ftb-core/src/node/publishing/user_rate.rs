//! How fast the clients of one user publish here: one bucket for all of them.
//!
//! Over its rate a user loses no event: the agent reads these clients later, one after another. A
//! part of the bucket is reserved for severe events, so that a flood of INFO does not delay what
//! another client of the same user says with ERROR. A message counts once, each of its events once,
//! and each KiB once. Not responsible for: storm rules, which reject events
//! ([`crate::node::publishing::storm`]).

use crate::node::api::ClientId;
use crate::severity::Severity;
use core::cmp::Reverse;
use std::collections::BTreeMap;

/// One event in the unit in which buckets are filled: `rate` of them in a nanosecond.
const EVENT: i64 = 1_000_000_000;
/// A bucket holds what may be published in this time.
const BURST_S: i64 = 1;
/// What a client may be expected to send when it is read again: a batch.
const BATCH: i64 = 256;
/// The shortest time between two turns in which clients are read again.
const TURN_NS: u64 = 10_000_000;

/// The buckets of all users that a rate limits.
#[derive(Debug, Default)]
pub(super) struct UserRates {
    users: BTreeMap<u32, UserBucket>,
}

#[derive(Debug)]
struct UserBucket {
    /// Below zero: the last message was taken whole.
    level: i64,
    filled_ns: u64,
    clients: usize,
    /// Clients that are not read: those with the most severe events first, then the first.
    waiting: BTreeMap<(Reverse<Severity>, u64), ClientId>,
    waited: u64,
    turn_ns: u64,
}

/// What a bucket holds at most.
fn capacity(rate: u32) -> i64 {
    i64::from(rate.max(1)).saturating_mul(BURST_S * EVENT)
}

/// What events of a severity leave in a bucket.
fn reserve(rate: u32, severity: Severity) -> i64 {
    match severity {
        Severity::Info => capacity(rate) / 2,
        Severity::Warning => capacity(rate) / 4,
        Severity::Error => capacity(rate) / 8,
        Severity::Fatal => 0,
    }
}

/// What must be there beyond the reserve before a client is read again.
fn batch(rate: u32) -> i64 {
    (capacity(rate) / 16).clamp(1, BATCH * EVENT)
}

impl UserBucket {
    fn full(rate: u32, now_ns: u64) -> Self {
        Self {
            level: capacity(rate),
            filled_ns: now_ns,
            clients: 0,
            waiting: BTreeMap::new(),
            waited: 0,
            turn_ns: 0,
        }
    }

    fn fill(&mut self, rate: u32, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.filled_ns);
        let more = i64::try_from(passed_ns).unwrap_or(i64::MAX).saturating_mul(rate.max(1).into());
        self.level = self.level.saturating_add(more).min(capacity(rate));
        self.filled_ns = now_ns;
    }

    /// When the first waiting client is read again.
    fn due_ns(&self, rate: u32) -> Option<u64> {
        let ((Reverse(severity), _), _) = self.waiting.first_key_value()?;
        let missing = reserve(rate, *severity).saturating_add(batch(rate)) - self.level;
        let wait_ns = u64::try_from(missing).unwrap_or(0).div_ceil(rate.max(1).into());
        Some(self.filled_ns.saturating_add(wait_ns).max(self.turn_ns))
    }
}

impl UserRates {
    /// A client of a user is there. The bucket of a user outlives its clients until it is full.
    pub(super) fn attached(&mut self, uid: u32, rate: u32, now_ns: u64) {
        self.users.retain(|_, bucket| {
            bucket.fill(rate, now_ns);
            bucket.clients > 0 || bucket.level < capacity(rate)
        });
        self.users.entry(uid).or_insert_with(|| UserBucket::full(rate, now_ns)).clients += 1;
    }

    pub(super) fn detached(&mut self, uid: u32, client: ClientId) {
        if let Some(bucket) = self.users.get_mut(&uid) {
            bucket.clients = bucket.clients.saturating_sub(1);
            bucket.waiting.retain(|_, waiting| *waiting != client);
        }
    }

    /// A client has published. Says whether the user is over its rate for events of that severity.
    #[must_use]
    pub(super) fn take(
        &mut self,
        (uid, rate): (u32, u32),
        now_ns: u64,
        (events, bytes): (usize, usize),
        severity: Severity,
    ) -> bool {
        let Some(bucket) = self.users.get_mut(&uid) else { return false };
        bucket.fill(rate, now_ns);
        let cost = i64::try_from(1 + events + bytes / 1024).unwrap_or(i64::MAX);
        bucket.level = bucket.level.saturating_sub(cost.saturating_mul(EVENT));
        bucket.level < reserve(rate, severity)
    }

    /// A client is not read until the bucket has filled.
    pub(super) fn wait(&mut self, uid: u32, client: ClientId, severity: Severity) {
        if let Some(bucket) = self.users.get_mut(&uid) {
            bucket.waited += 1;
            bucket.waiting.insert((Reverse(severity), bucket.waited), client);
        }
    }

    /// Whether a client waits.
    pub(super) fn is_waiting(&self, uid: u32, client: ClientId) -> bool {
        let bucket = self.users.get(&uid);
        bucket.is_some_and(|bucket| bucket.waiting.values().any(|waiting| *waiting == client))
    }

    /// When the next client is read again.
    pub(super) fn deadline_ns(&self, rate: u32) -> Option<u64> {
        self.users.values().filter_map(|bucket| bucket.due_ns(rate)).min()
    }

    /// The clients that are read again.
    pub(super) fn resume(&mut self, rate: u32, now_ns: u64) -> Vec<ClientId> {
        let mut resumed = Vec::new();
        for bucket in self.users.values_mut() {
            bucket.fill(rate, now_ns);
            let mut expected = bucket.level;
            while let Some(first) = bucket.waiting.first_entry()
                && bucket.turn_ns <= now_ns
                && expected >= reserve(rate, first.key().0.0).saturating_add(batch(rate))
            {
                resumed.push(first.remove());
                expected -= batch(rate);
            }
            if expected < bucket.level {
                bucket.turn_ns = now_ns.saturating_add(TURN_NS);
            }
        }
        resumed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u32 = 10_000;
    const SECOND: u64 = 1_000_000_000;
    const ANN: (u32, u32) = (1000, RATE);

    fn rates() -> UserRates {
        let mut rates = UserRates::default();
        rates.attached(1000, RATE, 0);
        rates.attached(1001, RATE, 0);
        rates
    }

    #[test]
    fn clients_of_one_user_have_one_bucket_and_those_of_another_their_own() {
        let mut rates = rates();
        assert!(!rates.take(ANN, 0, (4_000, 0), Severity::Info));
        rates.attached(1000, RATE, 0);
        assert!(rates.take(ANN, 0, (4_000, 0), Severity::Info), "its second client");
        assert!(!rates.take((1001, RATE), 0, (4_000, 0), Severity::Info));
        rates.detached(1000, ClientId(1));
        rates.detached(1000, ClientId(2));
        rates.attached(1000, RATE, 0);
        assert!(rates.take(ANN, 0, (1, 0), Severity::Info), "a new client finds the old bucket");
        assert!(!rates.take(ANN, SECOND, (1, 0), Severity::Info));
    }

    #[test]
    fn a_flood_of_mild_events_leaves_room_for_severe_ones() {
        let mut rates = rates();
        assert!(rates.take(ANN, 0, (5_000, 0), Severity::Info));
        assert!(!rates.take(ANN, 0, (2_000, 0), Severity::Warning));
        assert!(!rates.take(ANN, 0, (1_500, 0), Severity::Error));
        assert!(rates.take(ANN, 0, (500, 0), Severity::Error));
        assert!(!rates.take(ANN, 0, (500, 0), Severity::Fatal));
        assert!(rates.take(ANN, 0, (0, 4 << 20), Severity::Fatal), "bytes count too");
    }

    #[test]
    fn waiting_clients_are_read_again_in_turn_at_the_rate_and_severe_ones_first() {
        let mut rates = rates();
        let info = |client| (ClientId(client), Severity::Info);
        let clients: Vec<(ClientId, Severity)> =
            (1..=100).map(info).chain([(ClientId(200), Severity::Error)]).collect();
        assert!(rates.take(ANN, 0, (10_000, 0), Severity::Info));
        for (client, severity) in &clients {
            rates.wait(1000, *client, *severity);
        }
        assert!(rates.is_waiting(1000, ClientId(7)) && !rates.is_waiting(1001, ClientId(7)));
        assert_eq!(rates.resume(RATE, 0), []);
        let mut order = Vec::new();
        let mut events = 0;
        let mut now_ns = 0;
        while let Some(due_ns) = rates.deadline_ns(RATE) {
            assert!(due_ns > now_ns, "time passes");
            now_ns = due_ns;
            for client in rates.resume(RATE, now_ns) {
                let _ = rates.take(ANN, now_ns, (256, 0), Severity::Info);
                events += 257;
                order.push(client.0);
            }
        }
        let expected: Vec<u64> = [200].into_iter().chain(1..=100).collect();
        assert_eq!(order, expected);
        let allowed = now_ns as f64 / SECOND as f64 * f64::from(RATE);
        assert!((f64::from(events) - allowed).abs() < f64::from(RATE), "{events} in {now_ns} ns");
    }
}
