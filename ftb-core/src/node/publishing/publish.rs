//! What the clients of this agent publish, and what storm rules make of it.
//!
//! Responsible for: taking events in, once each, and telling who says too much. Not responsible
//! for: what passes and what is folded ([`crate::node::publishing::storm`]), the way up
//! ([`crate::node::publishing::upward`]).

use crate::frame::UpItem;
use crate::node::Node;
use crate::node::api::{ClientId, Gap, GapReason, Output};
use crate::node::config::ns;
use crate::node::delivery::clients::CONTROL_MAX;
use crate::node::publishing::storm::StormDecision;
use crate::position::Position;
use crate::run::Run;
use crate::sealed::Sealed;
use crate::severity::Severity;
use crate::spaces::Spaces;
use crate::storm::StormRule;

/// Subscribers learn of shed events as one gap, at this time after the first of them.
const SHED_REPORT_MS: u64 = 1_000;

/// The shortest time between two announcements about one client.
const LIMIT_ANNOUNCED_MS: u64 = 60_000;

/// Events that storm rules have shed and subscribers do not know of.
pub(in crate::node) struct StormShed {
    count: u64,
    severity: Severity,
    spaces: Spaces,
    due_ns: u64,
}

impl StormShed {
    pub(in crate::node) fn due_ns(&self) -> u64 {
        self.due_ns
    }
}

impl Node {
    /// Takes a client's events in.
    pub(in crate::node) fn on_publish(&mut self, client: ClientId, events: Run) {
        if client == ClientId::AGENT {
            self.outbox.push(UpItem::Events(events));
            return self.flush_outbox();
        }
        let Some(publisher) = self.clients.get_mut(&client) else {
            self.counters.stale += 1;
            return;
        };
        let mut controlled = None;
        let taken = publisher.taken;
        let known = events.iter().take_while(|event| event.id().seq <= taken).count();
        let again = known > 0;
        if let Some(new) = events.slice(known..events.count()) {
            let count = new.count() as u64;
            publisher.taken = new.iter().next_back().map_or(taken, |last| last.id().seq);
            publisher.published += count;
            self.counters.published += count;
            if self.storms.is_off() {
                self.outbox.push(UpItem::Events(new));
            } else {
                controlled = Some(new);
            }
        }
        // It did not hear of the confirmation: say it again.
        if again && publisher.acks.repeat_ack() {
            self.wake_client(client);
        }
        if let Some(events) = controlled {
            self.control(client, &events);
        }
        if self.outbox.waiting_bytes() > self.config.outbox_bytes && self.paused.insert(client) {
            self.counters.pauses += 1;
            self.out.push(Output::PauseClient(client));
        }
        self.flush_outbox();
    }

    /// Events of a client under the storm rules.
    fn control(&mut self, client: ClientId, events: &Run) {
        let now_ns = self.now.mono_ns;
        let mut left = Vec::new();
        for event in events.iter() {
            let (seq, severity) = (event.id().seq, event.severity());
            let space = Spaces::of(event.space());
            match self.storms.take(now_ns, client, event.to_sealed(), &mut left) {
                StormDecision::Passed => {}
                StormDecision::Folded => self.counters.folded += 1,
                StormDecision::Shed { begins } => {
                    self.shed_publication(client, seq, (severity, &space), begins);
                }
            }
        }
        self.send_up(left);
    }

    /// Sheds an event of a client: the client learns it at once, subscribers soon.
    fn shed_publication(
        &mut self,
        id: ClientId,
        seq: u64,
        (severity, space): (Severity, &Spaces),
        begins: bool,
    ) {
        self.counters.rate_shed += 1;
        let due_ns = self.now.mono_ns.saturating_add(ns(SHED_REPORT_MS));
        let shed = self.storm_shed.get_or_insert_with(|| {
            let spaces = space.clone();
            StormShed { count: 0, severity, spaces, due_ns }
        });
        shed.count += 1;
        shed.severity = shed.severity.max(severity);
        shed.spaces = shed.spaces.joined(space);
        let Some(client) = self.clients.get_mut(&id) else { return };
        let full = client.refused.len() >= CONTROL_MAX;
        match client.refused.back_mut() {
            Some((_, last)) if *last + 1 == seq => *last = seq,
            _ if full => self.counters.control_dropped += 1,
            _ => client.refused.push_back((seq, seq)),
        }
        self.wake_client(id);
        if begins {
            self.report_limited(id);
        }
    }

    /// One line, and now and then an event, that a client says more than it may.
    fn report_limited(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let now_ns = self.now.mono_ns;
        if now_ns < client.limit_announced_ns {
            return;
        }
        client.limit_announced_ns = now_ns.saturating_add(ns(LIMIT_ANNOUNCED_MS));
        let info = client.info.clone();
        let why = "it publishes more than the storm rules allow".to_owned();
        self.transition("client", &info.name, "heard", "limited", &why);
        let tags = vec![
            ("client", info.name),
            ("job_id", info.job_id),
            ("uid", info.uid.to_string()),
            ("pid", info.pid.to_string()),
        ];
        self.announce("FTB_PUBLISHER_LIMITED", Severity::Warning, tags, why);
    }

    /// Own clients' events on their way to the log.
    pub(in crate::node) fn send_up(&mut self, events: Vec<Sealed>) {
        if let Some(run) = Run::collect(events.iter().map(Sealed::as_ref)) {
            self.outbox.push(UpItem::Events(run));
        }
        self.flush_outbox();
    }

    /// Other storm rules: what is being folded under the old ones leaves.
    pub(in crate::node) fn set_storm_rules(&mut self, rules: Vec<StormRule>) {
        let mut left = Vec::new();
        self.storms.set_rules(rules, &mut left);
        self.send_up(left);
    }

    /// Folds leave.
    pub(in crate::node) fn on_fold_timer(&mut self) {
        let now_ns = self.now.mono_ns;
        let mut left = Vec::new();
        self.storms.tick(now_ns, &mut left);
        if !left.is_empty() {
            self.send_up(left);
        }
    }

    /// All subscribers learn what was shed.
    pub(in crate::node) fn on_storm_gap_timer(&mut self) {
        if let Some(shed) = self.storm_shed.take() {
            let gap = Gap {
                // Its place is where the acting root logs it.
                after: Position::ZERO,
                until: Position::ZERO,
                reason: GapReason::Shed,
                count: shed.count,
                severity_max: Some(shed.severity),
                spaces: shed.spaces,
            };
            self.outbox.push(UpItem::Gap(gap));
            self.flush_outbox();
        }
    }
}
