//! Is a lost child's host dead, or only its agent, or only our way to it? Before anybody is called
//! dead, others are asked whether the host answers them.
//!
//! The parent that lost the link dials the host itself and asks a few neighbours to do the same. An
//! agent that answers is alive, whatever became of the link; a host that refuses is alive without its
//! agent; only a host that answers nobody, of at least two who asked, is dead. A lost acting root has no
//! parent: who becomes acting root in its place asks. The verdicts are events of the agent's own. Whoever
//! is not dead then and does not come back is looked for again by the acting root ([`super::missing`]).

use super::Node;
use super::api::{DialId, HostAnswer, LinkId, MemberState, Output};
use super::config::ns;
use super::link::{Link, Role};
use super::members::Sighting;
use crate::frame::{Frame, Probe, ProbeAnswer};
use crate::ident::{OriginId, Rank};
use crate::severity::Severity;
use crate::tree;
use std::collections::BTreeMap;

/// Neighbours that are asked, beside the own look.
const PROBERS_MAX: usize = 3;
/// Most that are asked in all, those included that come while the question is open.
const VOTES_MAX: usize = 8;
/// Most looks under way, own ones and those for others; one more is not made, which counts as no
/// answer.
const LOOKS_MAX: usize = 256;

/// The number of no verdict.
const NO_VERDICT: u64 = 0;

/// All that are under way.
#[derive(Default)]
pub(super) struct Verdicts {
    open: BTreeMap<u64, Verdict>,
    looks: BTreeMap<DialId, Look>,
    last: u64,
    /// Children that will soon be lost for their silence, and what is asked about them already.
    early: BTreeMap<LinkId, u64>,
}

struct Verdict {
    child: Sighting,
    host: String,
    /// It is not lost yet: nothing is said unless it is.
    early: bool,
    /// Nobody else is above it: it is ours to judge with whoever comes to be asked.
    above: bool,
    /// The acting root looks for it again: only what is news is said.
    again: bool,
    deadline_ns: u64,
    own: Option<Found>,
    /// What each neighbour said: whether the host answered it.
    votes: BTreeMap<Rank, Option<bool>>,
}

/// What a look at a host finds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Agent,
    /// Its host: what it answered.
    Host(HostAnswer),
}

/// What became of an agent that was lost.
enum Outcome {
    Elsewhere,
    AgentLost(&'static str),
    Unreachable,
    Unconfirmed,
    Dead,
}

impl Verdict {
    fn outcome(&self, alone_decides: bool) -> Outcome {
        let alive = self.votes.values().any(|vote| *vote == Some(true));
        // Who has nobody left to ask may be the one that is cut off.
        let witness = self.votes.values().any(|vote| *vote == Some(false));
        match self.own {
            Some(Found::Agent) => Outcome::Elsewhere,
            Some(Found::Host(HostAnswer::Refused)) => Outcome::AgentLost("is gone"),
            Some(Found::Host(HostAnswer::Taken)) => Outcome::AgentLost("says nothing"),
            _ if alive => Outcome::Unreachable,
            _ if !witness && !alone_decides => Outcome::Unconfirmed,
            _ => Outcome::Dead,
        }
    }

    fn votes_text(&self) -> String {
        let word = |vote: &Option<bool>| match vote {
            Some(true) => "answers",
            Some(false) => "silent",
            None => "unknown",
        };
        let votes = self.votes.iter().map(|(rank, vote)| format!("{rank}={}", word(vote)));
        votes.collect::<Vec<String>>().join(" ")
    }
}

/// One dial that is only a look.
struct Look {
    target: Rank,
    deadline_ns: u64,
    purpose: Purpose,
}

enum Purpose {
    Own(u64),
    Other(LinkId, Probe),
}

impl Verdicts {
    /// How many may be looked at for the acting root's own sake: half of what may be under way.
    pub(super) fn room(&self) -> usize {
        (LOOKS_MAX / 2).saturating_sub(self.looks.len())
    }

    /// Whether it is being asked about an agent of that rank.
    pub(super) fn is_open(&self, rank: Rank) -> bool {
        self.open.values().any(|verdict| verdict.child.rank == rank)
    }

    pub(super) fn deadline_ns(&self) -> u64 {
        let open = self.open.values().map(|verdict| verdict.deadline_ns);
        open.chain(self.looks.values().map(|look| look.deadline_ns)).min().unwrap_or(u64::MAX)
    }
}

impl Node {
    /// A child was lost without a goodbye, or the acting root in whose place we are (then there is no
    /// link).
    pub(super) fn suspect(&mut self, link: Option<LinkId>, child: Sighting, host: &str, why: &str) {
        let tags = vec![("host", host.to_owned()), ("rank", child.rank.to_string())];
        self.announce("FTB_NODE_SUSPECT", Severity::Warning, tags, why.to_owned());
        let early = match link {
            Some(link) => self.verdicts.early.remove(&link),
            None => self.above.take_early(child.rank),
        };
        if let Some(id) = early
            && let Some(verdict) = self.verdicts.open.get_mut(&id)
        {
            verdict.early = false;
            return self.judge(id, false);
        }
        let id = self.open_verdict(child, host);
        if let Some(verdict) = self.verdicts.open.get_mut(&id) {
            verdict.above = link.is_none();
        }
    }

    /// Asks about an agent above that may soon be lost.
    pub(super) fn open_early(&mut self, above: Sighting, host: &str) -> u64 {
        let id = self.open_verdict(above, host);
        if let Some(verdict) = self.verdicts.open.get_mut(&id) {
            verdict.early = true;
            verdict.above = true;
        }
        id
    }

    /// What was asked is of no interest any more.
    pub(super) fn void(&mut self, verdict: u64) {
        self.verdicts.open.remove(&verdict);
    }

    /// A look takes so long at most. Whoever answers at all does it in a moment; with a quarter of the
    /// detection time it is known at its end who is dead.
    fn look_ms(&self) -> u64 {
        self.config.dial_ms.min(self.config.detection_ms / 4)
    }

    /// After so long a silence of a child others are asked about its host, before it is lost.
    pub(super) fn early_ns(&self) -> u64 {
        ns(self.config.detection_ms.saturating_sub(self.look_ms()))
    }

    /// Whether it is being asked about that child already.
    pub(super) fn is_early(&self, link: LinkId) -> bool {
        self.verdicts.early.contains_key(&link)
    }

    /// These children have been silent for [`Node::early_ns`].
    pub(super) fn look_early(&mut self, links: Vec<LinkId>) {
        for link in links {
            let Some(child) = self.children.get(&link).filter(|child| child.attached) else {
                // It was only welcomed: there is nothing to ask.
                self.verdicts.early.insert(link, NO_VERDICT);
                continue;
            };
            let (sighting, host) = (child.sighting(), child.host.clone());
            let id = self.open_verdict(sighting, &host);
            if let Some(verdict) = self.verdicts.open.get_mut(&id) {
                verdict.early = true;
            }
            self.verdicts.early.insert(link, id);
        }
    }

    /// A child is heard after all, or gone: what was asked about it is void.
    pub(super) fn forget_early(&mut self, link: LinkId) {
        if let Some(id) = self.verdicts.early.remove(&link) {
            self.verdicts.open.remove(&id);
        }
    }

    /// Looks for one that was lost before.
    pub(super) fn look_again(&mut self, child: Sighting, host: &str) {
        let id = self.open_verdict(child, host);
        if let Some(verdict) = self.verdicts.open.get_mut(&id) {
            verdict.again = true;
        }
    }

    /// A new child of an agent that is under suspicion, or was below it, is asked too.
    pub(super) fn ask_newcomer(&mut self, link: LinkId, prober: Rank) {
        let asker = self.config.origin;
        let above: Vec<Rank> = tree::ancestors(prober, self.config.fanout).collect();
        let mut asked = Vec::new();
        for (id, verdict) in &mut self.verdicts.open {
            let (target, votes) = (verdict.child.rank, &mut verdict.votes);
            if !verdict.again
                && above.contains(&target)
                && votes.len() < VOTES_MAX
                && !votes.contains_key(&prober)
            {
                votes.insert(prober, None);
                asked.push((*id, target));
            }
        }
        for (id, target) in asked {
            let probe = self.probe_of(asker, id, prober, target);
            self.say(link, Frame::Probe(probe));
        }
    }

    fn open_verdict(&mut self, child: Sighting, host: &str) -> u64 {
        self.verdicts.last += 1;
        let id = self.verdicts.last;
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
        let parent = self.uplink.parent().filter(|_| child.rank > self.own_rank());
        let neighbours: Vec<(LinkId, Rank)> = neighbours
            .into_iter()
            .take(PROBERS_MAX)
            .chain(parent.map(|parent| (parent.link, parent.rank)))
            .collect();
        let mut votes = BTreeMap::new();
        for (link, prober) in neighbours {
            votes.insert(prober, None);
            let asker = self.config.origin;
            let probe = self.probe_of(asker, id, prober, child.rank);
            self.say(link, Frame::Probe(probe));
        }
        // A neighbour's look takes a dial, and its answer the way there and back.
        let deadline_ns = self.now.mono_ns.saturating_add(ns(2 * self.config.dial_ms));
        let host = host.to_owned();
        let (early, above, again, own) = (false, false, false, None);
        let verdict = Verdict { child, host, early, above, again, deadline_ns, own, votes };
        self.verdicts.open.insert(id, verdict);
        self.look(child.rank, Purpose::Own(id));
        id
    }

    /// A question; with where the host is, if no list says that.
    fn probe_of(&self, asker: OriginId, probe: u64, prober: Rank, target: Rank) -> Probe {
        let unlisted = target.is_unlisted().then(|| self.unlisted_member(target)).flatten();
        let (host, address) = unlisted.unwrap_or_default();
        Probe { asker, probe, prober, target, host, address }
    }

    fn look(&mut self, target: Rank, purpose: Purpose) {
        let named = match &purpose {
            Purpose::Other(link, probe) if target.is_unlisted() => self.probed(*link, probe),
            _ => self.member(target),
        };
        let Some((host, address)) = named else { return };
        if self.verdicts.looks.len() >= LOOKS_MAX {
            return;
        }
        let dial = self.uplink.new_dial();
        // It is known a little before the silence of who is looked at counts.
        let look_ms = self.look_ms();
        let deadline_ns = self.now.mono_ns.saturating_add(ns(look_ms - look_ms / 10));
        // The shell says at its deadline what it has found: this one is for a shell that says nothing.
        let give_up_ns = deadline_ns.saturating_add(ns(self.config.dial_ms));
        self.verdicts.looks.insert(dial, Look { target, deadline_ns: give_up_ns, purpose });
        self.out.push(Output::Dial { dial, rank: target, host, address, deadline_ns });
    }

    /// Where an agent that is in no list is looked at for another: where it is known here to listen, or
    /// where the parent says. A child has no say in that, or it could have any address dialled.
    fn probed(&self, link: LinkId, probe: &Probe) -> Option<(String, String)> {
        let known = self.unlisted_member(probe.target);
        if let Some(known) = known.filter(|(host, _)| host.eq_ignore_ascii_case(&probe.host)) {
            return Some(known);
        }
        let told = self.uplink.parent().is_some_and(|parent| parent.link == link)
            && !probe.address.is_empty()
            && self.config.members.rank_of(&probe.host).is_none();
        told.then(|| (probe.host.clone(), probe.address.clone()))
    }

    /// A neighbour asks us to look at a host.
    pub(super) fn probe_asked(&mut self, link: LinkId, probe: Probe) {
        if self.is_silent(probe.target) {
            let Probe { asker, probe, prober, .. } = probe;
            let answer = ProbeAnswer { asker, probe, prober, alive: false };
            return self.say(link, Frame::ProbeAnswer(answer));
        }
        self.look(probe.target, Purpose::Other(link, probe));
    }

    /// A look has found an agent. Says whether that dial was a look at all.
    pub(super) fn looked(&mut self, dial: DialId, link: LinkId) -> bool {
        let Some(look) = self.verdicts.looks.remove(&dial) else { return false };
        self.links.insert(link, Link::new(Role::Closing, self.now.mono_ns));
        self.close(link, None, "it was only a look whether the host answers");
        self.found(look, Found::Agent);
        true
    }

    /// A look has failed. Says whether that dial was a look at all.
    pub(super) fn looked_in_vain(&mut self, dial: DialId, answer: HostAnswer) -> bool {
        let Some(look) = self.verdicts.looks.remove(&dial) else { return false };
        self.found(look, Found::Host(answer));
        true
    }

    fn found(&mut self, look: Look, found: Found) {
        let alive = found != Found::Host(HostAnswer::Nothing);
        let is_hung = found == Found::Host(HostAnswer::Taken);
        match look.purpose {
            Purpose::Own(id) => {
                if !alive || is_hung {
                    self.above.note_silent(look.target, alive, self.now.mono_ns);
                }
                if let Some(verdict) = self.verdicts.open.get_mut(&id) {
                    verdict.own = Some(found);
                    self.judge(id, false);
                }
            }
            Purpose::Other(link, probe) => {
                let Probe { asker, probe, prober, .. } = probe;
                self.say(link, Frame::ProbeAnswer(ProbeAnswer { asker, probe, prober, alive }));
            }
        }
        debug_assert!(look.target.0 < u32::MAX, "only listed members are looked at");
    }

    /// A neighbour has looked.
    pub(super) fn probe_answered(&mut self, answer: &ProbeAnswer) {
        let verdict = self.verdicts.open.get_mut(&answer.probe);
        let vote = verdict.and_then(|verdict| verdict.votes.get_mut(&answer.prober));
        let Some(vote) = vote.filter(|_| answer.asker == self.config.origin) else {
            self.counters.stale += 1;
            return;
        };
        *vote = Some(answer.alive);
        self.judge(answer.probe, false);
    }

    /// Speaks the verdict as soon as it is certain; `late`: with what there is.
    fn judge(&mut self, id: u64, late: bool) {
        let Some(verdict) = self.verdicts.open.get(&id) else { return };
        if verdict.early {
            if late {
                self.verdicts.open.remove(&id);
                self.verdicts.early.retain(|_, early| *early != id);
                self.above.forget(id);
            }
            return;
        }
        let all = verdict.own.is_some() && verdict.votes.values().all(Option::is_some);
        let answered = |own| own != Found::Host(HostAnswer::Nothing);
        let seen = verdict.own.is_some_and(answered);
        // New children that were below it too are about to come.
        let waits = verdict.above && verdict.votes.is_empty() && self.config.members.len() > 2;
        if !(seen || (all && !waits) || late) {
            return;
        }
        let Some(verdict) = self.verdicts.open.remove(&id) else { return };
        let known = self.members.state_of(verdict.child);
        let back = match verdict.again {
            true => !known.is_some_and(MemberState::is_missed),
            false => known != Some(MemberState::Suspect),
        };
        // It is back, here or elsewhere.
        if !back {
            self.speak(&verdict, known);
        }
    }

    /// Tells what became of one that was lost.
    fn speak(&mut self, verdict: &Verdict, known: Option<MemberState>) {
        let (child, host) = (verdict.child, verdict.host.as_str());
        let tags = vec![
            ("host", host.to_owned()),
            ("rank", child.rank.to_string()),
            ("votes", verdict.votes_text()),
        ];
        let own = &self.config.host;
        if verdict.again && verdict.own == Some(Found::Host(HostAnswer::Taken)) {
            self.missing.note_taken(child.rank);
        }
        match verdict.outcome(self.config.members.len() <= 2) {
            Outcome::Elsewhere if verdict.again => {}
            Outcome::Elsewhere => {
                let why = "its agent answers: only the link was lost";
                self.transition("node", host, "suspect", "up elsewhere", why);
            }
            Outcome::AgentLost(_) if known == Some(MemberState::Lost) => {}
            Outcome::AgentLost(what) => {
                let why = format!("the agent of {host} {what}, the host is alive");
                self.transition("node", host, "suspect", "lost", &why);
                self.announce("FTB_AGENT_LOST", Severity::Error, tags, why);
                self.member_is(child, host, MemberState::Lost);
            }
            Outcome::Unreachable | Outcome::Unconfirmed if verdict.again => {}
            Outcome::Unreachable => {
                let why = format!("{host} is out of reach from {own}");
                self.announce("FTB_NODE_UNREACHABLE", Severity::Error, tags, why);
            }
            Outcome::Unconfirmed => {
                let why = format!("{host} does not answer {own}, which nobody else confirms");
                self.announce("FTB_NODE_UNREACHABLE", Severity::Error, tags, why);
            }
            Outcome::Dead => {
                let why = format!("{host} answers nobody");
                self.transition("node", host, "suspect", "dead", &why);
                self.announce("FTB_NODE_DEAD", Severity::Fatal, tags, why);
                self.member_is(child, host, MemberState::Dead);
            }
        }
    }

    /// Time has passed: looks and verdicts run into their deadlines.
    pub(super) fn verdicts_tick(&mut self) {
        let now_ns = self.now.mono_ns;
        let looks = self.verdicts.looks.iter().filter(|(_, look)| look.deadline_ns <= now_ns);
        for dial in looks.map(|(dial, _)| *dial).collect::<Vec<_>>() {
            self.looked_in_vain(dial, HostAnswer::Nothing);
        }
        let open = self.verdicts.open.iter().filter(|(_, open)| open.deadline_ns <= now_ns);
        for id in open.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.judge(id, true);
        }
    }
}
