//! Is the host of a lost child dead, or only its agent, or only the link? Before an agent declares
//! a member dead, it asks others to probe the host (indirect probes, as in SWIM).
//!
//! The parent that lost the link dials the host itself, and asks a few neighbours to do the same. A
//! member whose agent answers is alive. A host that refuses is alive without its agent. A host is
//! dead when it answers no prober, of at least two. A lost acting root has no parent: its successor
//! opens the suspicion. The results are events of the agent. The acting root probes again each
//! member that is not dead and does not come back ([`crate::node::membership::reconciliation`]).

use crate::frame::{Frame, Probe, ProbeAnswer};
use crate::ident::{OriginId, Rank};
use crate::node::Node;
use crate::node::api::{DialId, HostAnswer, LinkId, MemberState, Output};
use crate::node::config::ns;
use crate::node::membership::members::Sighting;
use crate::node::tree::link::{Link, LinkRole};
use crate::severity::Severity;
use crate::tree;
use std::collections::BTreeMap;

/// Neighbours that are asked, beside the own look.
const PROBERS_MAX: usize = 3;
/// Most that are asked in all, those included that come while the question is open.
const WITNESSES_MAX: usize = 8;
/// Most probes under way, own ones and those for others. One more is not made, which counts as no
/// answer.
const PROBE_DIALS_MAX: usize = 256;

/// The number of no suspicion.
const NO_SUSPICION: u64 = 0;

/// All that are under way.
#[derive(Default)]
pub(in crate::node) struct Suspicions {
    open: BTreeMap<u64, Suspicion>,
    probe_dials: BTreeMap<DialId, ProbeDial>,
    last: u64,
    /// Children that will soon be lost for their silence, and what is asked about them already.
    early: BTreeMap<LinkId, u64>,
}

struct Suspicion {
    child: Sighting,
    host: String,
    /// It is not lost yet: nothing is said unless it is.
    early: bool,
    /// The member has no parent: this agent decides with its new children as witnesses.
    above: bool,
    /// The acting root probes it again: only changes are announced.
    again: bool,
    deadline_ns: u64,
    own: Option<ProbeResult>,
    /// What each neighbour said: whether the host answered it.
    witnesses: BTreeMap<Rank, Option<bool>>,
}

/// The result of a probe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProbeResult {
    Agent,
    /// Its host: what it answered.
    Host(HostAnswer),
}

/// What became of an agent that was lost.
enum SuspicionOutcome {
    Elsewhere,
    AgentLost(&'static str),
    Unreachable,
    Unconfirmed,
    Dead,
}

impl Suspicion {
    fn outcome(&self, alone_decides: bool) -> SuspicionOutcome {
        let alive = self.witnesses.values().any(|report| *report == Some(true));
        // An agent without a witness may be the one that is cut off.
        let witness = self.witnesses.values().any(|report| *report == Some(false));
        match self.own {
            Some(ProbeResult::Agent) => SuspicionOutcome::Elsewhere,
            Some(ProbeResult::Host(HostAnswer::Refused)) => SuspicionOutcome::AgentLost("is gone"),
            Some(ProbeResult::Host(HostAnswer::Taken)) => {
                SuspicionOutcome::AgentLost("says nothing")
            }
            _ if alive => SuspicionOutcome::Unreachable,
            _ if !witness && !alone_decides => SuspicionOutcome::Unconfirmed,
            _ => SuspicionOutcome::Dead,
        }
    }

    fn witnesses_text(&self) -> String {
        let word = |report: &Option<bool>| match report {
            Some(true) => "answers",
            Some(false) => "silent",
            None => "unknown",
        };
        let witnesses =
            self.witnesses.iter().map(|(rank, report)| format!("{rank}={}", word(report)));
        witnesses.collect::<Vec<String>>().join(" ")
    }
}

/// A dial that is only a probe.
struct ProbeDial {
    target: Rank,
    deadline_ns: u64,
    purpose: ProbePurpose,
}

enum ProbePurpose {
    Own(u64),
    Other(LinkId, Probe),
}

impl Suspicions {
    /// Free probes for overdue members: half of all that may be under way.
    pub(in crate::node) fn room(&self) -> usize {
        (PROBE_DIALS_MAX / 2).saturating_sub(self.probe_dials.len())
    }

    /// Whether it is being asked about an agent of that rank.
    pub(in crate::node) fn is_open(&self, rank: Rank) -> bool {
        self.open.values().any(|suspicion| suspicion.child.rank == rank)
    }

    pub(in crate::node) fn deadline_ns(&self) -> Option<u64> {
        let open = self.open.values().map(|suspicion| suspicion.deadline_ns);
        open.chain(self.probe_dials.values().map(|dial| dial.deadline_ns)).min()
    }
}

impl Node {
    /// A child was lost without a Close, or the acting root before this one (then there is no
    /// link).
    pub(in crate::node) fn suspect(
        &mut self,
        link: Option<LinkId>,
        child: Sighting,
        host: &str,
        why: &str,
    ) {
        let tags = vec![("host", host.to_owned()), ("rank", child.rank.to_string())];
        self.announce("FTB_NODE_SUSPECT", Severity::Warning, tags, why.to_owned());
        let early = match link {
            Some(link) => self.suspicions.early.remove(&link),
            None => self.root_watch.take_early(child.rank),
        };
        if let Some(id) = early
            && let Some(suspicion) = self.suspicions.open.get_mut(&id)
        {
            suspicion.early = false;
            return self.evaluate(id, false);
        }
        let id = self.open_suspicion(child, host);
        if let Some(suspicion) = self.suspicions.open.get_mut(&id) {
            suspicion.above = link.is_none();
        }
    }

    /// Asks about an agent above that may soon be lost.
    pub(in crate::node) fn open_early(&mut self, above: Sighting, host: &str) -> u64 {
        let id = self.open_suspicion(above, host);
        if let Some(suspicion) = self.suspicions.open.get_mut(&id) {
            suspicion.early = true;
            suspicion.above = true;
        }
        id
    }

    /// What was asked is of no interest any more.
    pub(in crate::node) fn cancel_suspicion(&mut self, suspicion: u64) {
        self.suspicions.open.remove(&suspicion);
    }

    /// Deadline of a probe. A live host answers in a moment. With a quarter of the detection time
    /// the result is known when the detection time ends.
    fn probe_ms(&self) -> u64 {
        self.config.dial_ms.min(self.config.detection_ms / 4)
    }

    /// The silence of a child after which its host is probed, before the child is lost.
    pub(in crate::node) fn early_probe_ns(&self) -> u64 {
        ns(self.config.detection_ms.saturating_sub(self.probe_ms()))
    }

    /// Whether it is being asked about that child already.
    pub(in crate::node) fn is_early(&self, link: LinkId) -> bool {
        self.suspicions.early.contains_key(&link)
    }

    /// These children have been silent for [`Node::early_probe_ns`].
    pub(in crate::node) fn probe_early(&mut self, links: Vec<LinkId>) {
        for link in links {
            let Some(child) = self.children.get(&link).filter(|child| child.attached) else {
                // It was never attached: there is nothing to probe.
                self.suspicions.early.insert(link, NO_SUSPICION);
                continue;
            };
            let (sighting, host) = (child.sighting(), child.host.clone());
            let id = self.open_suspicion(sighting, &host);
            if let Some(suspicion) = self.suspicions.open.get_mut(&id) {
                suspicion.early = true;
            }
            self.suspicions.early.insert(link, id);
        }
    }

    /// A child is heard after all, or gone: what was asked about it is void.
    pub(in crate::node) fn forget_early(&mut self, link: LinkId) {
        if let Some(id) = self.suspicions.early.remove(&link) {
            self.suspicions.open.remove(&id);
        }
    }

    /// Probes a member that was lost before.
    pub(in crate::node) fn probe_again(&mut self, child: Sighting, host: &str) {
        let id = self.open_suspicion(child, host);
        if let Some(suspicion) = self.suspicions.open.get_mut(&id) {
            suspicion.again = true;
        }
    }

    /// A new child of an agent that is under suspicion, or was below it, is asked too.
    pub(in crate::node) fn ask_newcomer(&mut self, link: LinkId, prober: Rank) {
        let requester = self.config.origin;
        let above: Vec<Rank> = tree::ancestors(prober, self.config.fanout).collect();
        let mut asked = Vec::new();
        for (id, suspicion) in &mut self.suspicions.open {
            let (target, witnesses) = (suspicion.child.rank, &mut suspicion.witnesses);
            if !suspicion.again
                && above.contains(&target)
                && witnesses.len() < WITNESSES_MAX
                && !witnesses.contains_key(&prober)
            {
                witnesses.insert(prober, None);
                asked.push((*id, target));
            }
        }
        for (id, target) in asked {
            let probe = self.probe_of(requester, id, prober, target);
            self.send(link, Frame::Probe(probe));
        }
    }

    fn open_suspicion(&mut self, child: Sighting, host: &str) -> u64 {
        self.suspicions.last += 1;
        let id = self.suspicions.last;
        let fanout = self.config.fanout;
        let mut neighbours: Vec<(LinkId, Rank)> = self
            .children
            .iter()
            .filter(|(_, neighbour)| neighbour.attached && neighbour.rank != child.rank)
            .map(|(link, neighbour)| (*link, neighbour.rank))
            .collect();
        // Those that were below it and have come here already know most.
        let was_below = |rank| tree::ancestors(rank, fanout).any(|above| above == child.rank);
        neighbours.sort_by_key(|(_, rank)| !was_below(*rank));
        // Who is above is asked about those below.
        let parent = self.role.parent().filter(|_| child.rank > self.own_rank());
        let neighbours: Vec<(LinkId, Rank)> = neighbours
            .into_iter()
            .take(PROBERS_MAX)
            .chain(parent.map(|parent| (parent.link, parent.rank)))
            .collect();
        let mut witnesses = BTreeMap::new();
        for (link, prober) in neighbours {
            witnesses.insert(prober, None);
            let requester = self.config.origin;
            let probe = self.probe_of(requester, id, prober, child.rank);
            self.send(link, Frame::Probe(probe));
        }
        // A neighbour's look takes a dial, and its answer the way there and back.
        let deadline_ns = self.now.mono_ns.saturating_add(ns(2 * self.config.dial_ms));
        let host = host.to_owned();
        let (early, above, again, own) = (false, false, false, None);
        let suspicion = Suspicion { child, host, early, above, again, deadline_ns, own, witnesses };
        self.suspicions.open.insert(id, suspicion);
        self.probe_host(child.rank, ProbePurpose::Own(id));
        id
    }

    /// A question; with where the host is, if no list says that.
    fn probe_of(&self, requester: OriginId, probe: u64, prober: Rank, target: Rank) -> Probe {
        let unlisted = target.is_unlisted().then(|| self.unlisted_member(target)).flatten();
        let (host, address) = unlisted.unwrap_or_default();
        Probe { requester, probe, prober, target, host, address }
    }

    fn probe_host(&mut self, target: Rank, purpose: ProbePurpose) {
        let named = match &purpose {
            ProbePurpose::Other(link, probe) if target.is_unlisted() => self.probed(*link, probe),
            _ => self.member(target),
        };
        let Some((host, address)) = named else { return };
        if self.suspicions.probe_dials.len() >= PROBE_DIALS_MAX {
            return;
        }
        let dial = self.uplink.new_dial();
        // The result comes a little before the silence counts.
        let probe_ms = self.probe_ms();
        let deadline_ns = self.now.mono_ns.saturating_add(ns(probe_ms - probe_ms / 10));
        // The shell says at its deadline what it has found: this one is for a shell that says
        // nothing.
        let give_up_ns = deadline_ns.saturating_add(ns(self.config.dial_ms));
        self.suspicions
            .probe_dials
            .insert(dial, ProbeDial { target, deadline_ns: give_up_ns, purpose });
        self.out.push(Output::Dial { dial, rank: target, host, address, deadline_ns });
    }

    /// The address at which a dynamic member is probed for another agent: the known one, or the one
    /// that the parent names. A child cannot name one, or it could make this agent dial any
    /// address.
    fn probed(&self, link: LinkId, probe: &Probe) -> Option<(String, String)> {
        let known = self.unlisted_member(probe.target);
        if let Some(known) = known.filter(|(host, _)| host.eq_ignore_ascii_case(&probe.host)) {
            return Some(known);
        }
        let reported = self.role.parent().is_some_and(|parent| parent.link == link)
            && !probe.address.is_empty()
            && self.config.members.rank_of(&probe.host).is_none();
        reported.then(|| (probe.host.clone(), probe.address.clone()))
    }

    /// A neighbour asks us to look at a host.
    pub(in crate::node) fn on_probe(&mut self, link: LinkId, probe: Probe) {
        if self.is_silent(probe.target) {
            let Probe { requester, probe, prober, .. } = probe;
            let answer = ProbeAnswer { requester, probe, prober, alive: false };
            return self.send(link, Frame::ProbeAnswer(answer));
        }
        self.probe_host(probe.target, ProbePurpose::Other(link, probe));
    }

    /// A probe has reached an agent. Says whether that dial was a probe.
    pub(in crate::node) fn on_probe_connected(&mut self, dial: DialId, link: LinkId) -> bool {
        let Some(probe_dial) = self.suspicions.probe_dials.remove(&dial) else { return false };
        self.links.insert(link, Link::new(LinkRole::Closing, self.now.mono_ns));
        self.close(link, None, "it was a probe");
        self.on_probe_result(probe_dial, ProbeResult::Agent);
        true
    }

    /// A probe has failed. Says whether that dial was a probe.
    pub(in crate::node) fn on_probe_failed(&mut self, dial: DialId, answer: HostAnswer) -> bool {
        let Some(probe_dial) = self.suspicions.probe_dials.remove(&dial) else { return false };
        self.on_probe_result(probe_dial, ProbeResult::Host(answer));
        true
    }

    fn on_probe_result(&mut self, probe_dial: ProbeDial, found: ProbeResult) {
        let alive = found != ProbeResult::Host(HostAnswer::Nothing);
        let is_hung = found == ProbeResult::Host(HostAnswer::Taken);
        match probe_dial.purpose {
            ProbePurpose::Own(id) => {
                if !alive || is_hung {
                    self.root_watch.note_silent(probe_dial.target, alive, self.now.mono_ns);
                }
                if let Some(suspicion) = self.suspicions.open.get_mut(&id) {
                    suspicion.own = Some(found);
                    self.evaluate(id, false);
                }
            }
            ProbePurpose::Other(link, probe) => {
                let Probe { requester, probe, prober, .. } = probe;
                self.send(
                    link,
                    Frame::ProbeAnswer(ProbeAnswer { requester, probe, prober, alive }),
                );
            }
        }
        debug_assert!(probe_dial.target.0 < u32::MAX, "only listed members are looked at");
    }

    /// A neighbour has probed.
    pub(in crate::node) fn on_probe_answer(&mut self, answer: &ProbeAnswer) {
        let suspicion = self.suspicions.open.get_mut(&answer.probe);
        let report = suspicion.and_then(|suspicion| suspicion.witnesses.get_mut(&answer.prober));
        let Some(report) = report.filter(|_| answer.requester == self.config.origin) else {
            self.counters.stale += 1;
            return;
        };
        *report = Some(answer.alive);
        self.evaluate(answer.probe, false);
    }

    /// Resolves a suspicion when the result is certain; `late`: with the answers so far.
    fn evaluate(&mut self, id: u64, late: bool) {
        let Some(suspicion) = self.suspicions.open.get(&id) else { return };
        if suspicion.early {
            if late {
                self.suspicions.open.remove(&id);
                self.suspicions.early.retain(|_, early| *early != id);
                self.root_watch.forget(id);
            }
            return;
        }
        let all = suspicion.own.is_some() && suspicion.witnesses.values().all(Option::is_some);
        let answered = |own| own != ProbeResult::Host(HostAnswer::Nothing);
        let seen = suspicion.own.is_some_and(answered);
        // New children that were below it too are about to come.
        let waits =
            suspicion.above && suspicion.witnesses.is_empty() && self.config.members.len() > 2;
        if !(seen || (all && !waits) || late) {
            return;
        }
        let Some(suspicion) = self.suspicions.open.remove(&id) else { return };
        let known = self.members.state_of(suspicion.child);
        let back = match suspicion.again {
            true => !known.is_some_and(MemberState::is_missed),
            false => known != Some(MemberState::Suspect),
        };
        // It is back, here or elsewhere.
        if !back {
            self.conclude(&suspicion, known);
        }
    }

    /// Tells what became of one that was lost.
    fn conclude(&mut self, suspicion: &Suspicion, known: Option<MemberState>) {
        let (child, host) = (suspicion.child, suspicion.host.as_str());
        let tags = vec![
            ("host", host.to_owned()),
            ("rank", child.rank.to_string()),
            ("votes", suspicion.witnesses_text()),
        ];
        let own = &self.config.host;
        if suspicion.again && suspicion.own == Some(ProbeResult::Host(HostAnswer::Taken)) {
            self.reconciliation.note_silent_agent(child.rank);
        }
        match suspicion.outcome(self.config.members.len() <= 2) {
            SuspicionOutcome::Elsewhere if suspicion.again => {}
            SuspicionOutcome::Elsewhere => {
                let why = "its agent answers: only the link was lost";
                self.transition("node", host, "suspect", "up elsewhere", why);
            }
            SuspicionOutcome::AgentLost(_) if known == Some(MemberState::Lost) => {}
            SuspicionOutcome::AgentLost(what) => {
                let why = format!("the agent of {host} {what}, the host is alive");
                self.transition("node", host, "suspect", "lost", &why);
                self.announce("FTB_AGENT_LOST", Severity::Error, tags, why);
                self.member_is(child, host, MemberState::Lost);
            }
            SuspicionOutcome::Unreachable | SuspicionOutcome::Unconfirmed if suspicion.again => {}
            SuspicionOutcome::Unreachable => {
                let why = format!("{host} is out of reach from {own}");
                self.announce("FTB_NODE_UNREACHABLE", Severity::Error, tags, why);
            }
            SuspicionOutcome::Unconfirmed => {
                let why = format!("{host} does not answer {own}; no other agent confirms this");
                self.announce("FTB_NODE_UNREACHABLE", Severity::Error, tags, why);
            }
            SuspicionOutcome::Dead => {
                let why = format!("{host} answers no agent");
                self.transition("node", host, "suspect", "dead", &why);
                self.announce("FTB_NODE_DEAD", Severity::Fatal, tags, why);
                self.member_is(child, host, MemberState::Dead);
            }
        }
    }

    /// Probes and suspicions reach their deadlines.
    pub(in crate::node) fn on_suspicion_timer(&mut self) {
        let now_ns = self.now.mono_ns;
        let probe_dials = self
            .suspicions
            .probe_dials
            .iter()
            .filter(|(_, probe_dial)| probe_dial.deadline_ns <= now_ns);
        for dial in probe_dials.map(|(dial, _)| *dial).collect::<Vec<_>>() {
            self.on_probe_failed(dial, HostAnswer::Nothing);
        }
        let open = self.suspicions.open.iter().filter(|(_, open)| open.deadline_ns <= now_ns);
        for id in open.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.evaluate(id, true);
        }
    }
}
