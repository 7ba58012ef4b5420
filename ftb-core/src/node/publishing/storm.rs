//! Storm control at the agent of the publisher: identical events become one with a count, and a
//! publisher above its limit is cut short, by rules per event space.
//!
//! Responsible for: what passes, what is folded, what is shed, when. A fold has the id of its last
//! event; [`Fold::covers`] says for which others it stands. So copies are recognised, and a receipt
//! resolves when the fold is acknowledged. Not responsible for: the encoding of a fold
//! ([`Folder`]), or for messages to clients ([`clients`](crate::node::delivery::clients)).
//!
//! Order: events leave in the order of the publisher's sequences. An event that passes, or is shed,
//! first releases the open folds before it.

use crate::node::api::ClientId;
use crate::node::config::ns;
use crate::numbers::PublisherSeq;
use crate::sealed::Sealed;
use crate::severity::Severity;
use crate::storm::{Fold, Folder, StormRule, rule_of};
use std::collections::{BTreeMap, VecDeque};
/// Events in one fold; with more it ends early, so that publishers do not wait long for receipts.
pub(super) const FOLD_EVENTS_MAX: u64 = 512;
/// Kinds of events of all clients for which a window is open; another kind is not folded.
const WINDOWS_MAX: usize = 4_096;
/// Bytes of the events that stand for open folds; beyond, events pass.
pub(crate) const FOLD_BYTES_MAX: usize = 4 << 20;
/// A publisher that is being cut short is heard again when so much of a second's worth is there:
/// holes come in blocks.
const RESUME_PART: u64 = 10;
/// One event in the unit in which buckets are filled.
const EVENT: u64 = 1_000_000_000;

/// What becomes of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StormDecision {
    /// It left.
    Passed,
    /// It will leave in a fold.
    Folded,
    /// It is refused; `begins`: the first since its publisher was last heard.
    Shed { begins: bool },
}

/// The storm control of one agent.
#[derive(Debug)]
pub(super) struct StormControl {
    rules: Vec<StormRule>,
    folder: Option<Folder>,
    flows: BTreeMap<ClientId, PublisherFlow>,
    windows: usize,
    bytes: usize,
    /// When the next window ends.
    next_ns: Option<u64>,
}

/// One publisher.
#[derive(Debug, Default)]
struct PublisherFlow {
    windows: BTreeMap<Kind, Window>,
    /// By rule; FATAL has its own.
    buckets: BTreeMap<(usize, bool), Bucket>,
    /// The last sequence that left or was shed: what is being folded lies behind it.
    settled: PublisherSeq,
    /// Folds that left together: the first sequence in them, and the last. Unless all of them are
    /// held, none of what is in them is.
    together: VecDeque<(PublisherSeq, PublisherSeq)>,
}

type Kind = (Severity, Box<str>, Box<str>);

#[derive(Debug)]
struct Window {
    fold_ns: u64,
    ends_ns: u64,
    open: Option<OpenFold>,
}

/// A fold that has not left.
#[derive(Debug)]
struct OpenFold {
    last: Sealed,
    count: u64,
    first_ns: u64,
}

#[derive(Debug)]
struct Bucket {
    level: u64,
    filled_ns: u64,
    shedding: bool,
}

impl Bucket {
    /// Whether one more event fits.
    fn take(&mut self, rule: &StormRule, now_ns: u64) -> bool {
        let burst = u64::from(rule.burst.max(1)) * EVENT;
        let rate = u64::from(rule.events_per_s);
        let passed_ns = now_ns.saturating_sub(self.filled_ns);
        self.level = self.level.saturating_add(passed_ns.saturating_mul(rate)).min(burst);
        self.filled_ns = now_ns;
        let resume = (rate * EVENT / RESUME_PART).min(burst).max(EVENT);
        let enough = if self.shedding { resume } else { EVENT };
        self.shedding = self.level < enough;
        if !self.shedding {
            self.level -= EVENT;
        }
        !self.shedding
    }
}

/// The earlier of two times.
fn earlier(set_ns: Option<u64>, at_ns: u64) -> Option<u64> {
    Some(set_ns.map_or(at_ns, |set_ns| set_ns.min(at_ns)))
}

impl StormControl {
    pub(super) fn new(rules: Vec<StormRule>, folder: Option<Folder>) -> Self {
        let flows = BTreeMap::new();
        Self { rules, folder, flows, windows: 0, bytes: 0, next_ns: None }
    }

    /// Whether there is no rule at all, and nothing to do.
    pub(super) fn is_off(&self) -> bool {
        self.rules.is_empty()
    }

    /// Bytes that are held for open folds.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        self.next_ns
    }

    fn rule(&self, sealed: &Sealed) -> Option<usize> {
        rule_of(&self.rules, sealed.space(), sealed.severity())
    }

    /// Takes one event; what leaves by that is added to `out`.
    pub(super) fn take(
        &mut self,
        now_ns: u64,
        client: ClientId,
        sealed: Sealed,
        out: &mut Vec<Sealed>,
    ) -> StormDecision {
        let rule = self.rule(&sealed);
        if let Some(rule) = rule
            && !sealed.head().republished
            && sealed.head().condition.is_none()
            && self.fold(now_ns, client, rule, &sealed, out)
        {
            return StormDecision::Folded;
        }
        self.bring_out(client, out);
        let flow = self.flows.entry(client).or_default();
        flow.settled = sealed.id().seq;
        // What an agent keeps of conditions must be in the log.
        let is_limited =
            |at: &usize| self.rules[*at].events_per_s > 0 && sealed.head().condition.is_none();
        if let Some(at) = rule.filter(is_limited) {
            let rule = &self.rules[at];
            let lane = (at, sealed.severity() == Severity::Fatal);
            let level = u64::from(rule.burst.max(1)) * EVENT;
            let full = Bucket { level, filled_ns: now_ns, shedding: false };
            let bucket = flow.buckets.entry(lane).or_insert(full);
            let before = bucket.shedding;
            if !bucket.take(rule, now_ns) {
                return StormDecision::Shed { begins: !before };
            }
        }
        out.push(sealed);
        StormDecision::Passed
    }

    /// Whether the event goes into a fold. Opens a window for the first of its kind.
    fn fold(
        &mut self,
        now_ns: u64,
        client: ClientId,
        rule: usize,
        sealed: &Sealed,
        out: &mut Vec<Sealed>,
    ) -> bool {
        let fold_ns = ns(self.rules[rule].fold_ms);
        // The acting root folds groups.
        if fold_ns == 0 || self.folder.is_none() || !self.rules[rule].group_by.is_empty() {
            return false;
        }
        let lower = |text: &str| text.to_ascii_lowercase().into_boxed_str();
        let kind = (sealed.severity(), lower(sealed.space()), lower(sealed.name()));
        let flow = self.flows.entry(client).or_default();
        let Some(window) = flow.windows.get_mut(&kind) else {
            if self.windows < WINDOWS_MAX {
                let ends_ns = now_ns.saturating_add(fold_ns);
                flow.windows.insert(kind, Window { fold_ns, ends_ns, open: None });
                self.windows += 1;
                self.next_ns = earlier(self.next_ns, ends_ns);
            }
            return false;
        };
        let before = window.open.as_ref().map_or(0, |open| open.last.len());
        if self.bytes - before + sealed.len() > FOLD_BYTES_MAX {
            return false;
        }
        self.bytes = self.bytes - before + sealed.len();
        let time_ns = sealed.head().time_ns;
        let (count, first_ns) =
            window.open.as_ref().map_or((0, time_ns), |open| (open.count, open.first_ns));
        // What is kept must not pin the whole frame that it came in.
        let last = sealed.detached();
        window.open = Some(OpenFold { last, count: count + 1, first_ns });
        if count + 1 >= FOLD_EVENTS_MAX {
            self.bring_out(client, out);
        }
        true
    }

    /// Lets all that is being folded of a client leave, in order.
    fn bring_out(&mut self, client: ClientId, out: &mut Vec<Sealed>) {
        // The client has published nothing under a rule.
        let Some(flow) = self.flows.get_mut(&client) else { return };
        let mut open: Vec<OpenFold> =
            flow.windows.values_mut().filter_map(|w| w.open.take()).collect();
        let Some(folder) = self.folder.filter(|_| !open.is_empty()) else { return };
        open.sort_by_key(|open| open.last.id().seq);
        let many = open.len() > 1;
        let before = flow.settled;
        let last = open.last().map_or(before, |open| open.last.id().seq);
        for open in open {
            self.bytes -= open.last.len();
            let whole = open.last.id().seq == last;
            let covers = if whole { last - before.next() } else { 0 };
            let fold = Fold {
                count: open.count,
                covers: u32::try_from(covers).unwrap_or(u32::MAX),
                first_ns: open.first_ns,
                last_ns: open.last.head().time_ns,
            };
            out.push(folder.0(&open.last, &fold));
        }
        flow.settled = last;
        if many {
            flow.together.push_back((before.next(), last));
        }
    }

    /// Up to which sequence a client's events are held, where the event of that sequence is.
    pub(super) fn acked_up_to(&mut self, client: ClientId, seq: PublisherSeq) -> PublisherSeq {
        let Some(flow) = self.flows.get_mut(&client) else { return seq };
        while flow.together.front().is_some_and(|(_, last)| *last <= seq) {
            flow.together.pop_front();
        }
        flow.together.front().map_or(seq, |(first, _)| seq.min(first.before()))
    }

    /// A client is gone: what is being folded of it leaves.
    pub(super) fn forget(&mut self, client: ClientId, out: &mut Vec<Sealed>) {
        self.bring_out(client, out);
        if let Some(flow) = self.flows.remove(&client) {
            self.windows -= flow.windows.len();
        }
    }

    /// Other rules: everything that is being folded leaves, and counting begins anew.
    pub(super) fn set_rules(&mut self, rules: Vec<StormRule>, out: &mut Vec<Sealed>) {
        if self.rules == rules {
            return;
        }
        let clients: Vec<ClientId> = self.flows.keys().copied().collect();
        for client in clients {
            self.bring_out(client, out);
        }
        for flow in self.flows.values_mut() {
            flow.windows.clear();
            flow.buckets.clear();
        }
        self.windows = 0;
        self.next_ns = None;
        self.rules = rules;
    }

    /// Time has passed: windows end. One in which something was folded begins again.
    pub(super) fn tick(&mut self, now_ns: u64, out: &mut Vec<Sealed>) {
        if self.next_ns.is_none_or(|next_ns| next_ns > now_ns) {
            return;
        }
        let ended = |window: &Window| window.ends_ns <= now_ns;
        let due =
            |flow: &PublisherFlow| flow.windows.values().any(|w| ended(w) && w.open.is_some());
        let due: Vec<ClientId> =
            self.flows.iter().filter(|(_, flow)| due(flow)).map(|(id, _)| *id).collect();
        self.next_ns = None;
        let mut windows = 0;
        for flow in self.flows.values_mut() {
            flow.windows.retain(|_, window| {
                let storm_goes_on = window.open.is_some();
                if ended(window) && storm_goes_on {
                    window.ends_ns = now_ns.saturating_add(window.fold_ns);
                }
                !ended(window)
            });
            windows += flow.windows.len();
            for window in flow.windows.values() {
                self.next_ns = earlier(self.next_ns, window.ends_ns);
            }
        }
        self.windows = windows;
        for client in due {
            self.bring_out(client, out);
        }
    }
}

#[cfg(test)]
#[path = "storm/tests.rs"]
mod tests;
