//! About whom a child may speak: itself, and the agents below it.
//!
//! A parent sees the links of its children, attached or not; of agents further below it knows what
//! its children report. What a child says of any other agent is refused. If agents move, reports
//! of the old place and of the new one come over different ways. So a report of an agent that is
//! elsewhere waits until it has left there: it is refused if that does not happen within
//! [`held_ns`]. Events of such an agent are dropped meanwhile; it is asked for them when its report
//! counts.
//!
//! An agent that was in another component may re-propose events of any host, for a while and within
//! its budget ([`super::re_proposal_rate`]).
//!
//! Responsible for: what counts. Not responsible for: what a report means
//! ([`crate::node::membership::members`]), and signatures, which the shell checks.

use crate::frame::{DynamicMember, Frame, MemberReport, UpBatch, UpItem};
use crate::ident::{OriginId, Rank};
use crate::node::api::{LinkId, MemberState};
use crate::node::config::ns;
use crate::node::cx::Cx;
use crate::node::membership::Membership;
use crate::node::membership::members::Members;
use crate::node::membership::re_proposal_rate::ReProposals;
use crate::numbers::LogIndex;
use crate::position::Epoch;
use std::collections::BTreeMap;

/// Most reports that wait. One more takes the place of one of the child with the most, or is
/// refused if that is the same child.
const HELD_MAX: usize = 4_096;
/// Most origins below one child of which it is remembered that their events are dropped. Events of
/// further ones are dropped too, and come again when their agents send them again.
const DROPPED_MAX: usize = 1_024;
/// What a child may re-propose of other hosts' events: that many logs for itself and as many for
/// each listed agent below it. Each may have been acting root of a component of its own, and sends
/// its log again when its way up changes before that is confirmed.
const LOGS: u64 = 8;
/// How many epochs of other logs a child may report for itself and for each listed agent below it
/// while it may re-propose that: each may become a gap for all subscribers.
const FORKS: u64 = 1_024;

/// What a child may re-propose while its budget is whole: some logs for each agent below it, and
/// for itself.
fn re_proposal_bytes(log_bytes: usize, members: &Members, child: Rank) -> u64 {
    (log_bytes as u64).saturating_mul(LOGS * (1 + members.count_listed_below(child)))
}

/// How long a report of an agent that is elsewhere waits: its old parent notices within
/// `detection_ms` that it has left, and reports that.
fn held_ns(cx: &Cx) -> u64 {
    ns(cx.config.detection_ms).saturating_mul(3)
}

/// A claim of a child that this agent refuses.
pub(crate) struct RefusedClaim {
    pub(crate) link: LinkId,
    pub(crate) what: ClaimKind,
    /// The host, or what is known of it.
    pub(crate) about: String,
    /// The link must end.
    pub(crate) ends_link: bool,
}

/// What a child can say of an agent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimKind {
    Event,
    Report,
    Route,
    Join,
    Epoch,
    /// An offered log.
    Log,
    /// Older events that it was asked for.
    History,
    /// What another log had.
    Fork,
}

impl ClaimKind {
    /// What is wrong with it, for people.
    pub(crate) fn why(self, about: &str) -> String {
        let what = match self {
            Self::Event => "an event",
            Self::Report => "a membership report",
            Self::Route => "a route",
            Self::Join => "a request for a rank",
            Self::Epoch => return "it raises the epoch again and again".to_owned(),
            Self::Log => return format!("it offers a log that cannot be: {about}"),
            Self::History => {
                return format!("it answers with older events that cannot be: {about}");
            }
            Self::Fork => {
                return format!("it reports too many lost logs, or one too late: {about}");
            }
        };
        format!("it sent {what} of {about}, which is not below it")
    }
}

/// Whether a report counts.
enum Verdict {
    Counts,
    /// The agent is elsewhere.
    Waits,
    Refused,
}

struct Held {
    report: MemberReport,
    since_ns: u64,
    is_refused: bool,
}

impl Claims {
    /// Something is known of an agent that was not known before.
    pub(super) fn note_change(&mut self) {
        self.has_changed = true;
    }
}

/// The agents below, by incarnation, and what waits.
#[derive(Default)]
pub(crate) struct Claims {
    /// Rank and host of each incarnation that a child has reported.
    origins: BTreeMap<OriginId, (Rank, Box<str>)>,
    /// In the order of ranks: an agent goes before those below it.
    held: BTreeMap<(Rank, LinkId), Held>,
    /// How many of them each child has.
    shares: BTreeMap<LinkId, usize>,
    /// Places of agents may be others since the reports that wait were judged.
    has_changed: bool,
    /// When the first of them has waited too long.
    late_ns: Option<u64>,
    /// Since when events of an origin are dropped.
    dropped: BTreeMap<(LinkId, OriginId), u64>,
    re_proposals: ReProposals,
    refused: Vec<RefusedClaim>,
}

impl Claims {
    fn refuse(&mut self, link: LinkId, what: ClaimKind, about: &str, ends_link: bool) {
        self.refused.push(RefusedClaim { link, what, about: about.to_owned(), ends_link });
    }

    fn take_held(&mut self, key: (Rank, LinkId)) -> Option<Held> {
        let held = self.held.remove(&key)?;
        let share = self.shares.entry(key.1).or_default();
        *share = share.saturating_sub(1);
        Some(held)
    }

    /// A report waits. Says whether there was room.
    fn hold(&mut self, key: (Rank, LinkId), held: Held) -> bool {
        if self.held.len() >= HELD_MAX && !self.make_room(key.1) {
            return false;
        }
        if self.held.insert(key, held).is_none() {
            *self.shares.entry(key.1).or_default() += 1;
        }
        true
    }

    /// The child with the most reports that wait loses one, if it has more than that one: so no
    /// child takes the room of another. Says whether it did.
    fn make_room(&mut self, link: LinkId) -> bool {
        let own = self.shares.get(&link).copied().unwrap_or_default();
        let most = self.shares.iter().max_by_key(|(_, share)| **share);
        let Some((most, _)) = most.filter(|(_, share)| **share > own) else { return false };
        let most = *most;
        let of_most = || self.held.iter().rev().filter(|((_, of), _)| *of == most);
        let key = of_most().find(|(_, held)| held.is_refused).or_else(|| of_most().next());
        let Some(held) = key.map(|(key, _)| *key).and_then(|key| self.take_held(key)) else {
            return false;
        };
        if !held.is_refused {
            self.refuse(most, ClaimKind::Report, &held.report.host, false);
        }
        true
    }

    /// Since when events of an origin are dropped; with too many of them, since now.
    fn dropped_since_ns(&mut self, link: LinkId, origin: OriginId, now_ns: u64) -> u64 {
        let key = (link, origin);
        if let Some(since_ns) = self.dropped.get(&key) {
            return *since_ns;
        }
        let of_link = self.dropped.range((link, OriginId(0))..=(link, OriginId(u64::MAX)));
        if of_link.count() < DROPPED_MAX {
            self.dropped.insert(key, now_ns);
        }
        now_ns
    }
}

impl Membership {
    /// A child, or something below it, is new: it may be an agent that has another log.
    pub(crate) fn expect_re_proposals(&mut self, cx: &Cx, child: Rank) {
        self.claims.has_changed = true;
        self.claims.re_proposals.expect(child, cx.now.mono_ns);
    }

    /// A child is gone, and all that it said.
    pub(crate) fn forget_claims(&mut self, link: LinkId) {
        self.claims.has_changed = true;
        self.claims.held.retain(|(_, of), _| *of != link);
        self.claims.shares.remove(&link);
        self.claims.dropped.retain(|(of, _), _| *of != link);
    }

    /// This agent was stopped for a while: reports of old places wait in its sockets.
    pub(crate) fn forgive_claims(&mut self, now_ns: u64) {
        self.claims.held.values_mut().for_each(|held| held.since_ns = now_ns);
        self.claims.has_changed = true;
        self.claims.dropped.values_mut().for_each(|since_ns| *since_ns = now_ns);
        self.members.forgive(now_ns);
    }

    /// What children said since the last call, and must not.
    pub(crate) fn take_refused(&mut self) -> Vec<RefusedClaim> {
        std::mem::take(&mut self.claims.refused)
    }

    /// A child raises the epoch more often than honest agents do.
    pub(crate) fn refuse_epoch(&mut self, cx: &Cx, link: LinkId) {
        let host = cx.around.child(link).map(|child| child.host.clone()).unwrap_or_default();
        self.claims.refuse(link, ClaimKind::Epoch, &host, true);
    }

    /// A child offers a log that no honest agent has.
    pub(crate) fn refuse_log(&mut self, link: LinkId, what: &str) {
        self.claims.refuse(link, ClaimKind::Log, what, true);
    }

    /// A child answers with older events as no honest agent does.
    pub(crate) fn refuse_history(&mut self, link: LinkId, what: &str) {
        self.claims.refuse(link, ClaimKind::History, what, true);
    }

    /// Whether another child says that an agent has come below it.
    pub(crate) fn is_claimed(&self, rank: Rank) -> bool {
        let held = self.claims.held.range((rank, LinkId(0))..=(rank, LinkId(u64::MAX)));
        held.into_iter().any(|(_, held)| !held.is_refused && held.report.state == MemberState::Up)
    }

    /// A child reports agents below it.
    pub(crate) fn on_reports(&mut self, cx: &mut Cx, link: LinkId, reports: Vec<MemberReport>) {
        for report in reports {
            if !self.members.has_room_for(report.rank, cx.members_max()) {
                continue;
            }
            let before = self.claims.take_held((report.rank, link));
            match self.judge(cx, link, &report) {
                Verdict::Counts => self.take_report(cx, link, report),
                Verdict::Waits => self.hold(cx, link, report, before.as_ref()),
                Verdict::Refused => {
                    self.claims.refuse(link, ClaimKind::Report, &report.host, false);
                }
            }
        }
        self.send_members(cx);
    }

    /// A report waits. If one about the same agent waited `before`, it waits since then: a child
    /// does not keep its claim by repeating it.
    fn hold(&mut self, cx: &mut Cx, link: LinkId, report: MemberReport, before: Option<&Held>) {
        let origin = OriginId(report.origin);
        if !self.claims.origins.contains_key(&origin) {
            self.note_origin(cx, &report);
        }
        let (rank, host, now_ns) = (report.rank, report.host.clone(), cx.now.mono_ns);
        if before.is_none()
            && let Some(since_ns) = self.claims.dropped.get_mut(&(link, origin))
        {
            // It comes anew: that events of it were dropped long ago does not make it late.
            *since_ns = now_ns;
        }
        let since_ns = before.map_or(now_ns, |before| before.since_ns);
        let is_refused = before.is_some_and(|before| before.is_refused);
        if !self.claims.hold((rank, link), Held { report, since_ns, is_refused }) {
            return self.claims.refuse(link, ClaimKind::Report, &host, false);
        }
        cx.counters.reports_held += 1;
        if !is_refused {
            let late_ns = since_ns.saturating_add(held_ns(cx));
            self.claims.late_ns.get_or_insert(late_ns);
        }
    }

    /// Called after each input: agents may have left the places where they were.
    pub(crate) fn settle_claims(&mut self, cx: &mut Cx) {
        let is_late = self.claims.late_ns.is_some_and(|at_ns| at_ns <= cx.now.mono_ns);
        let has_changed = std::mem::take(&mut self.claims.has_changed);
        if self.claims.held.is_empty() || !has_changed && !is_late {
            return;
        }
        let keys: Vec<(Rank, LinkId)> = self.claims.held.keys().copied().collect();
        for key in keys {
            let Some(held) = self.claims.held.get(&key) else { continue };
            let is_late = held.since_ns.saturating_add(held_ns(cx)) <= cx.now.mono_ns;
            match self.judge(cx, key.1, &held.report) {
                Verdict::Counts => {
                    let held = self.claims.take_held(key);
                    held.into_iter().for_each(|held| self.take_report(cx, key.1, held.report));
                }
                // An agent has moved with those below it, and has reported them here. Its former
                // parent passed their reports on before it noticed.
                Verdict::Waits if is_late && self.is_known(&held.report) => {
                    self.claims.take_held(key);
                }
                // It stays: it counts when the agent has left after all.
                Verdict::Waits if !is_late || held.is_refused => {}
                Verdict::Waits | Verdict::Refused => {
                    let host = held.report.host.clone();
                    self.claims.held.entry(key).and_modify(|held| held.is_refused = true);
                    self.claims.refuse(key.1, ClaimKind::Report, &host, false);
                }
            }
        }
        let waiting = self.claims.held.values().filter(|held| !held.is_refused);
        let first_ns = waiting.map(|held| held.since_ns).min();
        self.claims.late_ns = first_ns.map(|since_ns| since_ns.saturating_add(held_ns(cx)));
        self.send_members(cx);
    }

    fn take_report(&mut self, cx: &mut Cx, link: LinkId, report: MemberReport) {
        let (rank, origin) = (report.rank, OriginId(report.origin));
        let is_up = report.state == MemberState::Up;
        self.note_origin(cx, &report);
        self.learn(cx, report);
        if is_up {
            if let Some(child) = cx.around.child(link).map(|child| child.sighting.rank) {
                self.expect_re_proposals(cx, child);
            }
            let is_here = self.place_of(cx, rank) == Some(link);
            if is_here && self.claims.dropped.remove(&(link, origin)).is_some() {
                cx.send(link, Frame::Resend);
            }
        }
    }

    /// An incarnation has a rank. Its parent in another component may have known it by another one,
    /// and reports that it has left: that says nothing of the rank that it has. Nor does a child
    /// that says the incarnation of another host is one below it.
    fn note_origin(&mut self, cx: &Cx, report: &MemberReport) {
        let (origin, rank) = (OriginId(report.origin), report.rank);
        if report.origin == 0 {
            return;
        }
        if let Some((known, host)) = self.claims.origins.get(&origin)
            && *known != rank
        {
            let comes = report.state == MemberState::Up && host.eq_ignore_ascii_case(&report.host);
            let stays = self.members.is_life(*known, origin) && !comes;
            if stays || self.contradicts_assignment(rank, &report.host) {
                return;
            }
        }
        let origins = &mut self.claims.origins;
        origins.insert(origin, (rank, report.host.as_str().into()));
        if origins.len() > 2 * cx.members_max() {
            let members = &self.members;
            origins.retain(|origin, (rank, _)| members.is_life(*rank, *origin));
        }
    }

    /// The child that an agent is, or is below; of one that is gone, the child that it was below.
    fn place_of(&self, cx: &Cx, rank: Rank) -> Option<LinkId> {
        self.walk_up(cx, rank, |_| true)
    }

    /// The child that an agent is, or is below, as far as all on the way are up.
    fn standing_of(&self, cx: &Cx, rank: Rank) -> Option<LinkId> {
        self.walk_up(cx, rank, |member| member.state == MemberState::Up)
    }

    fn walk_up(
        &self,
        cx: &Cx,
        rank: Rank,
        counts: impl Fn(&MemberReport) -> bool,
    ) -> Option<LinkId> {
        let mut at = rank;
        loop {
            // What is seen here counts for more than what is reported.
            if let Some(child) = cx.around.children.iter().find(|child| child.sighting.rank == at) {
                return Some(child.link);
            }
            let member = self.members.report_of(at).filter(|member| counts(member))?;
            // A parent has a lower rank.
            at = member.parent.filter(|parent| *parent < at && cx.rank != Some(*parent))?;
        }
    }

    /// The rank of a host, from the member list or the acting root.
    fn rank_of_host(&self, cx: &Cx, host: &str) -> Option<Rank> {
        cx.config.members.rank_of(host).or_else(|| self.dynamic.rank_of(host))
    }

    /// Whether a host is this agent, or above it.
    fn is_here_or_above(cx: &Cx, rank: Option<Rank>, host: &str) -> bool {
        let is = |other: &str| other.eq_ignore_ascii_case(host);
        let parent = cx.around.parent.as_ref();
        is(&cx.config.host)
            || parent.is_some_and(|parent| is(&parent.host))
            || rank.is_some_and(|rank| {
                cx.rank == Some(rank) || parent.is_some_and(|parent| parent.path.contains(&rank))
            })
    }

    /// Whether the agent of a rank, or of a host, is below another child.
    fn is_elsewhere(&self, cx: &Cx, link: LinkId, rank: Rank, host: &str) -> bool {
        let other = |rank| self.standing_of(cx, rank).is_some_and(|place| place != link);
        let is_other_child = |child: &crate::node::around::ChildView| {
            child.link != link && child.host.eq_ignore_ascii_case(host)
        };
        other(rank)
            || self.rank_of_host(cx, host).is_some_and(|known| known != rank && other(known))
            || cx.around.children.iter().any(is_other_child)
    }

    fn judge(&self, cx: &Cx, link: LinkId, report: &MemberReport) -> Verdict {
        let Some(child) = cx.around.child(link) else { return Verdict::Refused };
        let (rank, host, is_up) = (report.rank, &report.host, report.state == MemberState::Up);
        let is_itself = rank == child.sighting.rank;
        if is_itself && !host.eq_ignore_ascii_case(&child.host) {
            return Verdict::Refused;
        }
        if is_up && (rank < child.sighting.rank || Self::is_here_or_above(cx, Some(rank), host)) {
            return Verdict::Refused;
        }
        // An agent that waits is not above others yet: they would be lost with its old parent.
        let is_waiting = |parent| self.claims.held.contains_key(&(parent, link));
        // It lives: what is said of it over its own link is of the past.
        let is_elsewhere = is_itself || self.is_elsewhere(cx, link, rank, host);
        let waits = is_elsewhere || is_up && report.parent.is_some_and(is_waiting);
        // The rank is another host's by now: the report changes nothing, and the agent gets another
        // rank.
        let is_void = self.contradicts_assignment(rank, host);
        if !waits || is_void || self.is_past(cx, report) {
            return Verdict::Counts;
        }
        Verdict::Waits
    }

    /// Whether a report says of one life of an agent what is known of it.
    fn is_known(&self, report: &MemberReport) -> bool {
        let place = |of: &MemberReport| (of.origin, of.attempt, of.parent, of.state);
        self.members.report_of(report.rank).is_some_and(|known| place(known) == place(report))
    }

    /// Whether a report is of a time before what is known of that agent, or of another life of it,
    /// so that it harms none that lives.
    fn is_past(&self, cx: &Cx, report: &MemberReport) -> bool {
        let (rank, is_up) = (report.rank, report.state == MemberState::Up);
        if cx.config.members.rank_of(&report.host).is_some_and(|listed| listed != rank) {
            return false;
        }
        let child = cx.around.children.iter().find(|child| child.sighting.rank == rank);
        match child.map(|child| child.sighting) {
            Some(seen) if seen.origin.0 == report.origin => report.attempt <= seen.attempt,
            Some(_) => !is_up,
            None => self.members.is_past(report),
        }
    }

    /// Events come up from a child. Says whether they count.
    pub(crate) fn admit_events(&mut self, cx: &mut Cx, link: LinkId, batch: &UpBatch) -> bool {
        let Some(child) = cx.around.child(link) else { return false };
        let child_rank = child.sighting.rank;
        if child.sighting.origin == batch.origin {
            let host = child.host.clone();
            return self.admit_hosts(cx, (link, child_rank), batch, &host);
        }
        let known = self.claims.origins.get(&batch.origin).cloned();
        if let Some((rank, host)) = &known
            && self.place_of(cx, *rank) == Some(link)
        {
            self.claims.dropped.remove(&(link, batch.origin));
            return self.admit_hosts(cx, (link, child_rank), batch, host);
        }
        cx.counters.events_not_below += batch.count();
        let now_ns = cx.now.mono_ns;
        let since_ns = self.claims.dropped_since_ns(link, batch.origin, now_ns);
        let is_late = since_ns.saturating_add(held_ns(cx)) <= now_ns;
        if known.is_none() || is_late {
            let about = match known {
                Some((_, host)) => host.into_string(),
                None => format!("an unknown agent, incarnation {}", batch.origin),
            };
            // The child may be honest: an agent below it may run twice, or lists may differ.
            self.claims.refuse(link, ClaimKind::Event, &about, false);
        }
        false
    }

    /// Whether events name the host of their origin. After a merge they may be of other hosts.
    fn admit_hosts(
        &mut self,
        cx: &mut Cx,
        (link, child): (LinkId, Rank),
        batch: &UpBatch,
        host: &str,
    ) -> bool {
        let runs = batch.items.iter().filter_map(|item| match item {
            UpItem::Events(run) => Some(run),
            UpItem::Gap(_) | UpItem::Loss(_) | UpItem::Fork { .. } => None,
        });
        let events = runs.flat_map(|run| run.groups().map(|(_, event)| event));
        let mut foreign = events.filter(|event| !event.host().eq_ignore_ascii_case(host));
        // A gap is of a log.
        let gaps = batch.items.iter().filter(|item| matches!(item, UpItem::Gap(_)));
        let gap_bytes: usize = gaps.map(UpItem::len).sum();
        let (about, bytes) = match foreign.next() {
            Some(event) => (event.host().to_owned(), batch.bytes()),
            None if gap_bytes > 0 => ("another log".to_owned(), gap_bytes as u64),
            None => return true,
        };
        let members = &self.members;
        let budget = || re_proposal_bytes(cx.config.log_bytes, members, child);
        if self.claims.re_proposals.take(child, bytes, cx.now.mono_ns, budget) {
            cx.counters.events_of_other_logs += batch.count();
            return true;
        }
        cx.counters.events_not_below += batch.count();
        self.claims.refuse(link, ClaimKind::Event, &about, true);
        false
    }

    /// Epochs of other logs that a child reports, with admitted events: what is beyond its budget
    /// becomes void, and so does what it says to have re-proposed when it may not re-propose. The
    /// root then reports a gap for what it has heard of elsewhere.
    pub(crate) fn admit_forks(&mut self, cx: &Cx, link: LinkId, batch: &mut UpBatch) {
        let Some(child) = cx.around.child(link).map(|child| child.sighting.rank) else { return };
        let (members, now_ns) = (&self.members, cx.now.mono_ns);
        let one = (cx.config.log_bytes as u64).saturating_mul(LOGS).max(FORKS);
        let budget = || re_proposal_bytes(cx.config.log_bytes, members, child);
        let mut refused = None;
        for item in &mut batch.items {
            let UpItem::Fork { epoch, re_proposed, .. } = item else { continue };
            let re_proposals = &mut self.claims.re_proposals;
            if *re_proposed && !re_proposals.is_expected(child, now_ns)
                || !re_proposals.take_any(child, one / FORKS, now_ns, budget)
            {
                refused = Some(*epoch);
                let (epoch, until) = (Epoch::ZERO, LogIndex::ZERO);
                *item = UpItem::Fork { epoch, until, re_proposed: false };
            }
        }
        if let Some(epoch) = refused {
            self.claims.refuse(link, ClaimKind::Fork, &format!("epoch {epoch}"), false);
        }
    }

    /// Whether a question that a child passes up can be of an agent below it: its answer goes back
    /// over that link.
    pub(crate) fn admit_route(&mut self, cx: &mut Cx, link: LinkId, origin: OriginId) -> bool {
        let children = &cx.around.children;
        let child = children.iter().find(|child| child.sighting.origin == origin);
        let place = match child {
            Some(child) => Some(child.link),
            None => self.claims.origins.get(&origin).and_then(|(r, _)| self.standing_of(cx, *r)),
        };
        if origin != cx.config.origin && place.is_none_or(|place| place == link) {
            return true;
        }
        let known = self.claims.origins.get(&origin).map(|(_, host)| host.to_string());
        let about = child.map(|child| child.host.clone()).or(known);
        let about = about.unwrap_or_else(|| cx.config.host.clone());
        self.claims.refuse(link, ClaimKind::Route, &about, false);
        false
    }

    /// Whether an agent is known to be a child, or below it.
    pub(crate) fn is_below(&self, cx: &Cx, link: LinkId, origin: OriginId) -> bool {
        let children = &cx.around.children;
        match children.iter().find(|child| child.sighting.origin == origin) {
            Some(child) => child.link == link,
            None => {
                let known = self.claims.origins.get(&origin);
                known.is_some_and(|(rank, _)| self.standing_of(cx, *rank) == Some(link))
            }
        }
    }

    /// The requests for ranks that a child may pass up. A listed host needs none: that a child asks
    /// for it is dropped, since the host may have come into the list just now.
    pub(crate) fn admit_joins(
        &mut self,
        cx: &Cx,
        link: LinkId,
        joins: Vec<DynamicMember>,
    ) -> Vec<DynamicMember> {
        let unlisted =
            joins.into_iter().filter(|join| cx.config.members.rank_of(&join.host).is_none());
        let (good, bad): (Vec<_>, Vec<_>) =
            unlisted.partition(|join| !Self::is_here_or_above(cx, None, &join.host));
        for join in bad {
            self.claims.refuse(link, ClaimKind::Join, &join.host, false);
        }
        good
    }
}
