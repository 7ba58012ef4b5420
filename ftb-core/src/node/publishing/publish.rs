//! What the clients of this agent publish, and what storm rules make of it.
//!
//! Responsible for: taking events in, once each, and telling who says too much. Not responsible
//! for: what passes and what is folded ([`crate::node::publishing::storm`]), the way up
//! ([`crate::node::publishing::upward`]).

use crate::catalog::names;
use crate::confirm_level::ConfirmLevel;
use crate::frame::UpItem;
use crate::node::api::{
    ClientId, ClientInfo, GapReason, Loss, Output, RefusedWhat, RejectCode, ToClient,
};
use crate::node::cx::Cx;
use crate::node::publishing::Publishing;
use crate::node::publishing::delayed_acks::AckState;
use crate::node::publishing::storm::StormDecision;
use crate::numbers::PublisherSeq;
use crate::run::Run;
use crate::sealed::Sealed;
use crate::severity::Severity;
use crate::spaces::Spaces;
use crate::storm::StormRule;
use crate::trace::TraceStep;
use std::collections::VecDeque;

/// Subscribers learn of shed events as one gap, at this time after the first of them.
const SHED_REPORT_MS: u64 = 1_000;

/// The shortest time between two announcements about one client.
const LIMIT_ANNOUNCED_MS: u64 = 60_000;

/// Most refusals that wait for one client. Further ones are dropped until the client reads.
const REFUSED_MAX: usize = 4_096;

/// A client as a publisher.
pub(super) struct Publisher {
    info: ClientInfo,
    /// The last sequence that was taken from it.
    taken: PublisherSeq,
    published: u64,
    /// Which of its events are acknowledged, and what it knows of that.
    pub(super) acks: AckState,
    /// The last sequence that it wants on disk.
    pub(super) disk_until: PublisherSeq,
    /// Sequences of events that storm control shed and the client does not know of.
    refused: VecDeque<(PublisherSeq, PublisherSeq)>,
    limit_announced_ns: u64,
    /// The highest severity of its last message.
    severity: Severity,
    /// A rate limits its user.
    is_limited: bool,
}

/// Events that storm rules have shed and subscribers do not know of.
pub(super) struct StormShed {
    count: u64,
    severity: Severity,
    spaces: Spaces,
    due_ns: u64,
}

impl StormShed {
    pub(super) fn due_ns(&self) -> u64 {
        self.due_ns
    }
}

/// How much of the outbox may wait before a client is not read: a quarter is reserved for root and
/// the ftb users, so that no other user stops what they have to say.
const fn outbox_share(outbox_bytes: usize, is_limited: bool) -> usize {
    match is_limited {
        true => outbox_bytes / 4 * 3,
        false => outbox_bytes,
    }
}

impl Publishing {
    pub(crate) fn attach_client(&mut self, cx: &Cx, client: ClientId, info: ClientInfo) {
        let is_limited = !cx.config.unbounded_uids.contains(&info.uid);
        if is_limited {
            self.rates.attached(info.uid, cx.config.user_events_per_s, cx.now.mono_ns);
        }
        self.by_publisher.insert(info.publisher, client);
        let publisher = Publisher {
            info,
            taken: PublisherSeq::ZERO,
            published: 0,
            acks: AckState::default(),
            disk_until: PublisherSeq::ZERO,
            refused: VecDeque::new(),
            limit_announced_ns: 0,
            severity: Severity::Info,
            is_limited,
        };
        self.publishers.insert(client, publisher);
    }

    /// A client is gone: what is being folded of it leaves.
    pub(crate) fn detach_client(&mut self, cx: &mut Cx, client: ClientId) {
        let Some(gone) = self.publishers.remove(&client) else {
            return cx.impossible("PublisherIsAttached");
        };
        if self.by_publisher.get(&gone.info.publisher) == Some(&client) {
            self.by_publisher.remove(&gone.info.publisher);
        }
        self.paused.remove(&client);
        self.rates.detached(gone.info.uid, client);
        let mut left = Vec::new();
        self.storms.forget(client, &mut left);
        self.push_events(&left);
    }

    /// Who a client is, and how many events it has published.
    pub(crate) fn client(&self, client: ClientId) -> Option<(&ClientInfo, u64)> {
        self.publishers.get(&client).map(|publisher| (&publisher.info, publisher.published))
    }

    /// Takes a client's events in.
    pub(crate) fn on_publish(
        &mut self,
        cx: &mut Cx,
        client: ClientId,
        events: Run,
        confirm: ConfirmLevel,
    ) {
        if client == ClientId::AGENT {
            cx.trace.note_run(cx.now.wall_ns, &events, TraceStep::Published, client.0);
            return self.outbox.push(UpItem::Events(events));
        }
        let Some(publisher) = self.publishers.get_mut(&client) else {
            cx.counters.stale += 1;
            return;
        };
        publisher.severity = events.severity_max();
        let is_limited = publisher.is_limited;
        let size = (events.count(), events.len());
        let (mut passed, mut controlled) = (None, None);
        let taken = publisher.taken;
        let known = events.iter().take_while(|event| event.id().seq <= taken).count();
        if let Some(new) = events.slice(known..events.count()) {
            let count = new.count() as u64;
            cx.trace.note_run(cx.now.wall_ns, &new, TraceStep::Published, client.0);
            publisher.taken = new.iter().next_back().map_or(taken, |last| last.id().seq);
            publisher.published += count;
            cx.counters.published += count;
            if confirm > ConfirmLevel::Memory {
                publisher.disk_until = publisher.taken;
                self.any_wants_disk = true;
            }
            if self.storms.is_off() {
                passed = Some(new);
            } else {
                controlled = Some(new);
            }
        }
        // The client did not get the confirmation.
        if known > 0 && publisher.acks.repeat_ack() {
            cx.wake_client(client);
        }
        if let Some(new) = passed {
            self.push_run(new);
        }
        if let Some(events) = controlled {
            self.control(cx, client, &events);
        }
        let outbox_bytes = outbox_share(cx.config.outbox_bytes, is_limited);
        if self.outbox.waiting_bytes() > outbox_bytes && self.paused.insert(client) {
            cx.counters.pauses += 1;
            cx.push(Output::PauseClient(client));
        }
        if is_limited {
            self.charge_user(cx, client, size);
        }
    }

    /// A client has asked for something, with that many events and bytes.
    pub(crate) fn charge_request(&mut self, cx: &mut Cx, client: ClientId, size: (usize, usize)) {
        if self.publishers.get(&client).is_some_and(|publisher| publisher.is_limited) {
            self.charge_user(cx, client, size);
        }
    }

    /// A client of a user with a rate has published. Over the rate, no client of the user is read
    /// whose last events were no more severe.
    fn charge_user(&mut self, cx: &mut Cx, client: ClientId, size: (usize, usize)) {
        let Some(publisher) = self.publishers.get(&client) else {
            return cx.impossible("PublisherIsAttached");
        };
        let (uid, severity) = (publisher.info.uid, publisher.severity);
        let of = (uid, cx.config.user_events_per_s);
        if !self.rates.take(of, cx.now.mono_ns, size, severity) {
            return;
        }
        let others = self.publishers.iter();
        let others =
            others.filter(|(_, other)| other.info.uid == uid && other.severity <= severity);
        for (id, other) in others {
            if !self.rates.is_waiting(uid, *id) {
                self.rates.wait(uid, *id, other.severity);
                cx.counters.user_slowed += 1;
                cx.push(Output::PauseClient(*id));
            }
        }
        self.report_limited(cx, client, "its user publishes more than limits.user_events_per_s");
    }

    /// Users have been slow for long enough.
    pub(super) fn on_user_rate_timer(&mut self, cx: &mut Cx) {
        for client in self.rates.resume(cx.config.user_events_per_s, cx.now.mono_ns) {
            self.read_again(cx, client);
        }
    }

    /// A reason not to read a client is gone; there may be another.
    pub(super) fn read_again(&mut self, cx: &mut Cx, client: ClientId) {
        let uid = self.publishers.get(&client).map(|publisher| publisher.info.uid);
        let is_slowed = uid.is_some_and(|uid| self.rates.is_waiting(uid, client));
        if !self.paused.contains(&client) && !is_slowed {
            cx.push(Output::ResumeClient(client));
        }
    }

    /// Events of a client under the storm rules.
    fn control(&mut self, cx: &mut Cx, client: ClientId, events: &Run) {
        let mut left = Vec::new();
        for event in events.iter() {
            let (seq, severity) = (event.id().seq, event.severity());
            let space = Spaces::of(event.space());
            match self.storms.take(cx.now.mono_ns, client, event.to_sealed(), &mut left) {
                StormDecision::Passed => {}
                StormDecision::Folded => {
                    cx.counters.folded += 1;
                    cx.trace.note(cx.now.wall_ns, event, TraceStep::Folded, 0);
                }
                StormDecision::Shed { begins } => {
                    cx.trace.note(cx.now.wall_ns, event, TraceStep::Limited, 0);
                    self.shed_publication(cx, client, seq, (severity, &space));
                    if begins {
                        let why = "it publishes more than the storm rules allow";
                        self.report_limited(cx, client, why);
                    }
                }
            }
        }
        self.push_events(&left);
    }

    /// Sheds an event of a client: the client learns it at once, subscribers soon.
    fn shed_publication(
        &mut self,
        cx: &mut Cx,
        id: ClientId,
        seq: PublisherSeq,
        (severity, space): (Severity, &Spaces),
    ) {
        cx.counters.rate_shed += 1;
        let due_ns = cx.after_ms(SHED_REPORT_MS);
        let shed = self.storm_shed.get_or_insert_with(|| {
            let spaces = space.clone();
            StormShed { count: 0, severity, spaces, due_ns }
        });
        shed.count += 1;
        shed.severity = shed.severity.max(severity);
        shed.spaces = shed.spaces.joined(space);
        let Some(publisher) = self.publishers.get_mut(&id) else {
            return cx.impossible("PublisherIsAttached");
        };
        let full = publisher.refused.len() >= REFUSED_MAX;
        match publisher.refused.back_mut() {
            Some((_, last)) if *last + 1 == seq => *last = seq,
            _ if full => cx.counters.control_dropped += 1,
            _ => publisher.refused.push_back((seq, seq)),
        }
        cx.wake_client(id);
    }

    /// One line, and now and then an event, that a client publishes more than it may.
    fn report_limited(&mut self, cx: &mut Cx, id: ClientId, why: &str) {
        let Some(publisher) = self.publishers.get_mut(&id) else {
            return cx.impossible("PublisherIsAttached");
        };
        if cx.now.mono_ns < publisher.limit_announced_ns {
            return;
        }
        publisher.limit_announced_ns = cx.after_ms(LIMIT_ANNOUNCED_MS);
        let info = publisher.info.clone();
        let why = why.to_owned();
        cx.transition("client", &info.name, "heard", "limited", &why);
        let tags = vec![
            ("client", info.name),
            ("job_id", info.job_id),
            ("uid", info.uid.to_string()),
            ("pid", info.pid.to_string()),
        ];
        cx.announce(names::FTB_PUBLISHER_LIMITED, Severity::Warning, tags, why);
    }

    /// What a client learns before deliveries: refusals, and acknowledgements that are due.
    pub(crate) fn next_due(&mut self, id: ClientId, now_ns: u64) -> Option<ToClient> {
        let publisher = self.publishers.get_mut(&id)?;
        if let Some((first, last)) = publisher.refused.pop_front() {
            return Some(ToClient::Refused {
                what: RefusedWhat::Events { first, last },
                code: RejectCode::Rate,
                message: "more events than the storm rules allow one publisher".to_owned(),
            });
        }
        publisher.acks.take_due(now_ns)
    }

    /// What a client learns when there is nothing else for it.
    pub(crate) fn next_ack(&mut self, id: ClientId, now_ns: u64) -> Option<ToClient> {
        self.publishers.get_mut(&id)?.acks.tell(now_ns)
    }

    fn push_events(&mut self, events: &[Sealed]) {
        if let Some(run) = Run::collect(events.iter().map(Sealed::as_ref)) {
            self.push_run(run);
        }
    }

    /// Other storm rules: what is being folded under the old ones leaves.
    pub(crate) fn set_storm_rules(&mut self, rules: Vec<StormRule>) {
        let mut left = Vec::new();
        self.storms.set_rules(rules, &mut left);
        self.push_events(&left);
    }

    /// Folds leave.
    pub(super) fn on_fold_timer(&mut self, cx: &Cx) {
        let mut left = Vec::new();
        self.storms.tick(cx.now.mono_ns, &mut left);
        self.push_events(&left);
    }

    /// All subscribers learn what was shed.
    pub(super) fn on_storm_gap_timer(&mut self) {
        if let Some(shed) = self.storm_shed.take() {
            let loss = Loss {
                reason: GapReason::Shed,
                count: Some(shed.count),
                severity_max: Some(shed.severity),
                spaces: shed.spaces,
            };
            self.outbox.push(UpItem::Loss(loss));
        }
    }
}
