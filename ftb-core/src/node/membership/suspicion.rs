//! Is a silent agent dead, or only its link, or only the agent on its host? One mechanism answers
//! that, in the terms of SWIM: suspicion and indirect probes.
//!
//! A suspicion has three phases ([`Phase`]). It is tentative while a link is quiet. It is open when
//! the link is lost. The acting root knows the whole tree: it probes a member that is expected and
//! does not come, with growing pauses. In each phase a round of probes gives the answer: the agent
//! dials the host itself, and asks neighbours to do the same. A member whose agent answers is
//! alive. A host that refuses is alive without its agent. A host is dead when it answers none of at
//! least two probers; in a cluster of two members one prober is enough.
//!
//! The BMC of a host has a vote: a member that does not answer is announced while the suspicion is
//! still tentative, so that ftb-ipmi reads the power of its chassis. A host that is powered off and
//! answers no prober is dead at once.
//!
//! Each parent suspects its children. Acting root and standby have no parent: the agents below
//! suspect them tentatively, and the next root opens the suspicion.
//!
//! Responsible for: the phases, and what the answers mean. Not responsible for: the dials
//! ([`crate::node::membership::probes`]), the state of members
//! ([`crate::node::membership::members`]), which members are expected
//! ([`crate::node::membership::snapshot`]).

use crate::catalog::names;
use crate::frame::{Frame, ProbeAnswer};
use crate::ident::Rank;
use crate::node::api::{HostAnswer, LinkId, MemberState};
use crate::node::around::Sighting;
use crate::node::config::ns;
use crate::node::cx::Cx;
use crate::node::links::{LinkRole, probe_ms};
use crate::node::membership::Membership;
use crate::node::membership::probes::{ProbeDials, ProbeResult};
use crate::node::timers::Timer;
use crate::severity::Severity;
use crate::tree;
use std::collections::BTreeMap;

/// Children that get an indirect probe.
const PROBERS_MAX: usize = 3;
/// Most agents that are asked in all, with those that attach during the round.
const WITNESSES_MAX: usize = 8;
/// The longest pause between two rounds for one member.
const PAUSE_MS_MAX: u64 = 60_000;
/// Most rounds for a member whose host accepts and whose agent is silent. Each probe stays in the
/// queue of its socket. When that queue is full, the host looks dead.
const HUNG_ROUNDS_MAX: u32 = 5;
/// Most agents above of which a failed probe is remembered: root and standby, and those before.
const UNRESPONSIVE_MAX: usize = 4;

/// All suspicions of an agent: at most one for each possible member.
#[derive(Default)]
pub(crate) struct Suspicions {
    by_rank: BTreeMap<Rank, Suspicion>,
    /// Rounds so far; the number of the last one.
    rounds: u64,
    pub(crate) dials: ProbeDials,
    /// Acting root and standby that were lost without a Close: the next acting root suspects them.
    lost_above: Vec<(Sighting, String)>,
    /// Agents above that did not answer a probe, and when that was known.
    unresponsive: BTreeMap<Rank, (HostAnswer, u64)>,
}

struct Suspicion {
    member: Sighting,
    phase: Phase,
    /// The probes under way.
    round: Option<Round>,
}

/// How far a suspicion is.
enum Phase {
    /// The link is quiet and not lost: nothing is announced.
    Tentative,
    /// The link is lost: the answer is announced.
    Open,
    /// The acting root probes the member again and again: only changes are announced.
    Reprobe(BackOff),
}

/// When the acting root probes a member again.
struct BackOff {
    /// `None`: not again.
    next_ns: Option<u64>,
    pause_ms: u64,
    /// Rounds in which the host accepted and the agent was silent.
    hung: u32,
}

/// Probes of one host: the own one, and those of neighbours.
struct Round {
    number: u64,
    host: String,
    deadline_ns: u64,
    own: Option<ProbeResult>,
    /// A tentative suspicion is announced then, unless the host has answered.
    quiet_at_ns: Option<u64>,
    /// Its BMC says that the host is powered off.
    is_off: bool,
    /// Whether the host answered each neighbour.
    witnesses: BTreeMap<Rank, Option<bool>>,
}

/// What became of a suspect.
enum SuspicionOutcome {
    Elsewhere,
    AgentLost(&'static str),
    Unreachable,
    Unconfirmed,
    Dead,
}

impl Round {
    /// Whether the host answered the own probe.
    fn is_answered(&self) -> bool {
        self.own.is_some_and(|own| own != ProbeResult::Host(HostAnswer::Nothing))
    }

    /// The BMC says that the host is off, and no prober has reached it: a live host wins.
    fn is_proven_off(&self) -> bool {
        let alive = self.witnesses.values().any(|report| *report == Some(true));
        self.is_off && !self.is_answered() && !alive
    }

    fn is_complete(&self) -> bool {
        self.own.is_some() && self.witnesses.values().all(Option::is_some)
    }

    fn outcome(&self, alone_decides: bool) -> SuspicionOutcome {
        let alive = self.witnesses.values().any(|report| *report == Some(true));
        // An agent without a witness may be the one that is cut off.
        let witness = self.witnesses.values().any(|report| *report == Some(false));
        match self.own {
            _ if self.is_proven_off() => SuspicionOutcome::Dead,
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
        let bmc = self.is_off.then(|| "bmc=off".to_owned());
        witnesses.chain(bmc).collect::<Vec<String>>().join(" ")
    }
}

impl Suspicions {
    /// Members that are lost or expected, and not known to be dead.
    pub(crate) fn missing(&self) -> usize {
        self.by_rank.values().filter(|found| !matches!(found.phase, Phase::Tentative)).count()
    }

    /// No member is expected any more.
    pub(crate) fn expect_none(&mut self) {
        self.by_rank.retain(|_, found| !matches!(found.phase, Phase::Reprobe(_)));
    }

    fn is_tentative(&self, rank: Rank) -> bool {
        self.by_rank.get(&rank).is_some_and(|found| matches!(found.phase, Phase::Tentative))
    }

    /// The round of a suspect, if it has that number.
    fn round_of(&mut self, rank: Rank, number: u64) -> Option<&mut Round> {
        self.by_rank.get_mut(&rank)?.round.as_mut().filter(|round| round.number == number)
    }

    /// When the next round ends or begins.
    fn next_ns(&self, is_root: bool) -> Option<u64> {
        let rounds =
            self.by_rank.values().filter_map(|found| Some(found.round.as_ref()?.deadline_ns));
        let again = self.by_rank.values().filter_map(|found| match &found.phase {
            Phase::Reprobe(back_off) if is_root => back_off.next_ns,
            _ => None,
        });
        let quiet = self.by_rank.values().filter_map(|found| found.round.as_ref()?.quiet_at_ns);
        rounds.chain(again).chain(quiet).chain(self.dials.deadline_ns()).min()
    }

    /// Whether the power of a suspect's host would decide.
    pub(crate) fn asks_for_power(&self) -> bool {
        // Called after each input: mostly nothing is probed.
        !self.dials.is_empty()
            && self.by_rank.values().any(|found| {
                let round = found.round.as_ref().filter(|round| !round.is_answered());
                round.is_some_and(|round| match found.phase {
                    Phase::Tentative => round.quiet_at_ns.is_none(),
                    Phase::Open | Phase::Reprobe(_) => true,
                })
            })
    }
}

impl Membership {
    /// A child was lost without a Close, or the acting root before this one.
    pub(crate) fn suspect(&mut self, cx: &mut Cx, member: Sighting, host: &str, why: &str) {
        let tags = vec![("host", host.to_owned()), ("rank", member.rank.to_string())];
        cx.announce(names::FTB_NODE_SUSPECT, Severity::Warning, tags, why.to_owned());
        match self.suspicions.by_rank.get_mut(&member.rank) {
            Some(found) if matches!(found.phase, Phase::Tentative) => {
                found.phase = Phase::Open;
                self.evaluate(cx, member.rank, false);
            }
            _ => self.open_suspicion(cx, member, host, Phase::Open),
        }
    }

    /// Quiet children whose hosts have not answered are announced: their power is to be read.
    fn announce_quiet(&mut self, cx: &mut Cx) {
        let now_ns = cx.now.mono_ns;
        for (rank, found) in &mut self.suspicions.by_rank {
            let Some(round) = &mut found.round else { continue };
            let is_due = round.quiet_at_ns.take_if(|at_ns| *at_ns <= now_ns).is_some();
            let is_tentative = matches!(found.phase, Phase::Tentative);
            if is_due && is_tentative && !round.is_answered() && !cx.is_above(*rank) {
                let tags = vec![("host", round.host.clone()), ("rank", rank.to_string())];
                let why = format!("{} is quiet and has not answered a probe yet", round.host);
                cx.announce(names::FTB_NODE_QUIET, Severity::Info, tags, why);
            }
        }
    }

    /// The BMC of a host says that it is powered off. Gives a child whose link is to end for that.
    pub(crate) fn on_power_off(&mut self, cx: &mut Cx, host: &str) -> Option<Rank> {
        let mut suspects = self.suspicions.by_rank.iter_mut();
        let (rank, found) = suspects.find(|(_, found)| {
            found.round.as_ref().is_some_and(|round| round.host.eq_ignore_ascii_case(host))
        })?;
        let (rank, is_tentative) = (*rank, matches!(found.phase, Phase::Tentative));
        let round = found.round.as_mut()?;
        round.is_off = true;
        if !round.is_proven_off() {
            return None;
        }
        match is_tentative {
            true => Some(rank),
            false => {
                self.evaluate(cx, rank, false);
                None
            }
        }
    }

    fn open_suspicion(&mut self, cx: &mut Cx, member: Sighting, host: &str, phase: Phase) {
        let round = Some(self.begin_round(cx, member.rank, host));
        self.suspicions.by_rank.insert(member.rank, Suspicion { member, phase, round });
    }

    /// Links are quiet: suspects the children, and with the parent acting root and standby.
    pub(crate) fn on_quiet(&mut self, cx: &mut Cx, links: &[(LinkId, LinkRole)]) {
        let mut quiet = Vec::new();
        for (link, role) in links {
            let child = cx.around.attached().find(|child| child.link == *link);
            quiet.extend(child.map(|child| (child.sighting, child.host.clone())));
            if *role == LinkRole::Parent {
                quiet.extend(self.root_and_standby_above(cx));
            }
        }
        for (member, host) in quiet {
            self.open_suspicion(cx, member, &host, Phase::Tentative);
        }
    }

    /// A quiet link is heard: its peer is not suspected any more.
    pub(crate) fn on_quiet_link_heard(&mut self, cx: &mut Cx, link: LinkId) {
        if let Some(child) = cx.around.child(link) {
            self.withdraw(cx, child.sighting.rank);
        } else if let Some(parent) = &cx.around.parent {
            self.suspicions.unresponsive.remove(&parent.sighting.rank);
            self.withdraw_above(cx);
        }
    }

    /// Ends a tentative suspicion.
    pub(crate) fn withdraw(&mut self, cx: &mut Cx, rank: Rank) {
        if self.suspicions.is_tentative(rank) {
            self.end_suspicion(cx, rank);
        }
    }

    fn withdraw_above(&mut self, cx: &mut Cx) {
        let above = self.suspicions.by_rank.iter().take_while(|(rank, _)| cx.is_above(**rank));
        for rank in above.map(|(rank, _)| *rank).collect::<Vec<Rank>>() {
            self.withdraw(cx, rank);
        }
    }

    /// Ends a suspicion. The acting root continues to expect a member that is missing.
    fn end_suspicion(&mut self, cx: &mut Cx, rank: Rank) {
        self.suspicions.by_rank.remove(&rank);
        if cx.around.is_root && self.members.is_missed(rank) {
            self.expect_missed(cx, rank);
        }
    }

    /// A child that attaches during a round for an agent above its rank is asked too.
    pub(crate) fn ask_newcomer(&mut self, cx: &mut Cx, link: LinkId, prober: Rank) {
        let above: Vec<Rank> = tree::ancestors(prober, cx.config.fanout).collect();
        let mut asked = Vec::new();
        for (rank, found) in &mut self.suspicions.by_rank {
            let Some(round) = &mut found.round else { continue };
            if !matches!(found.phase, Phase::Reprobe(_))
                && above.contains(rank)
                && round.witnesses.len() < WITNESSES_MAX
                && !round.witnesses.contains_key(&prober)
            {
                round.witnesses.insert(prober, None);
                asked.push((round.number, *rank));
            }
        }
        for (number, rank) in asked {
            let probe = self.probe_of(cx, number, prober, rank);
            cx.send(link, Frame::Probe(probe));
        }
    }

    /// Probes a host, and asks neighbours to do the same.
    fn begin_round(&mut self, cx: &mut Cx, rank: Rank, host: &str) -> Round {
        self.suspicions.rounds += 1;
        let number = self.suspicions.rounds;
        let fanout = cx.config.fanout;
        let children = cx.around.attached().map(|child| (child.link, child.sighting.rank));
        let mut neighbours: Vec<(LinkId, Rank)> =
            children.filter(|(_, prober)| *prober != rank).collect();
        // Former children of the suspect know most.
        let was_below = |prober| tree::ancestors(prober, fanout).any(|above| above == rank);
        neighbours.sort_by_key(|(_, prober)| !was_below(*prober));
        neighbours.truncate(PROBERS_MAX);
        // The parent knows only agents below it.
        let parent = cx.around.parent.as_ref().filter(|_| cx.rank.is_some_and(|own| rank > own));
        neighbours.extend(parent.map(|parent| (parent.link, parent.sighting.rank)));
        let witnesses = neighbours.iter().map(|(_, prober)| (*prober, None)).collect();
        for (link, prober) in neighbours {
            let probe = self.probe_of(cx, number, prober, rank);
            cx.send(link, Frame::Probe(probe));
        }
        self.probe_host_for_round(cx, rank, number);
        // A neighbour dials, and its answer takes the way back.
        let deadline_ns = cx.after_ms(2 * cx.config.dial_ms);
        let quiet_ns = cx.after_ms(probe_ms(&cx.config) / 2);
        cx.timers.set_earlier(Timer::Suspicion, deadline_ns.min(quiet_ns));
        Round {
            number,
            host: host.to_owned(),
            deadline_ns,
            own: None,
            quiet_at_ns: Some(quiet_ns),
            is_off: false,
            witnesses,
        }
    }

    /// The own probe of a round has a result.
    pub(crate) fn on_round_probed(
        &mut self,
        cx: &mut Cx,
        rank: Rank,
        number: u64,
        found: ProbeResult,
    ) {
        let Some(round) = self.suspicions.round_of(rank, number) else {
            // The suspicion was withdrawn.
            cx.counters.stale += 1;
            return;
        };
        round.own = Some(found);
        if let ProbeResult::Host(answer @ (HostAnswer::Nothing | HostAnswer::Taken)) = found
            && cx.is_above(rank)
            && self.suspicions.is_tentative(rank)
        {
            let unresponsive = &mut self.suspicions.unresponsive;
            while unresponsive.len() >= UNRESPONSIVE_MAX {
                unresponsive.pop_first();
            }
            unresponsive.insert(rank, (answer, cx.now.mono_ns));
        }
        self.evaluate(cx, rank, false);
    }

    /// A neighbour has probed.
    pub(crate) fn on_probe_answer(&mut self, cx: &mut Cx, answer: &ProbeAnswer) {
        let found = self.suspicions.by_rank.iter_mut().find_map(|(rank, found)| {
            let round = found.round.as_mut().filter(|round| round.number == answer.probe)?;
            Some((*rank, round.witnesses.get_mut(&answer.prober)?))
        });
        let Some((rank, report)) = found.filter(|_| answer.requester == cx.config.origin) else {
            cx.counters.stale += 1;
            return;
        };
        *report = Some(answer.alive);
        self.evaluate(cx, rank, false);
    }

    /// Ends a round when its result is certain; `late`: with the answers so far.
    fn evaluate(&mut self, cx: &mut Cx, rank: Rank, late: bool) {
        let alone = cx.config.members.len() <= 2;
        let is_above = cx.is_above(rank);
        let found = self.suspicions.by_rank.get_mut(&rank);
        let round = found.and_then(|found| Some((found.round.take()?, found)));
        let Some((round, found)) = round else { return cx.impossible("SuspectHasRound") };
        let certain = match found.phase {
            Phase::Tentative => false,
            _ if round.is_proven_off() => true,
            // Former children of an agent above are about to attach, and have probed it.
            Phase::Open if is_above && round.witnesses.is_empty() && !alone => round.is_answered(),
            Phase::Open | Phase::Reprobe(_) => round.is_answered() || round.is_complete(),
        };
        if !certain && !late {
            found.round = Some(round);
            return;
        }
        let member = found.member;
        let known = self.members.state_of(member);
        // A member that is back, here or below another agent, is in another state.
        let (again, is_gone) = match &mut found.phase {
            Phase::Tentative => (false, false),
            Phase::Open => (false, known == Some(MemberState::Suspect)),
            Phase::Reprobe(back_off) => {
                back_off.hung += u32::from(round.own == Some(ProbeResult::Host(HostAnswer::Taken)));
                if back_off.hung >= HUNG_ROUNDS_MAX {
                    back_off.next_ns = None;
                }
                (true, known.is_some_and(MemberState::is_missed))
            }
        };
        if is_gone {
            self.conclude(cx, member, &round, again, known == Some(MemberState::Lost));
        }
        if !again {
            self.end_suspicion(cx, rank);
        }
    }

    /// Announces what became of a member that was lost. `again`: only news. `is_lost`: that its
    /// agent is lost is known.
    fn conclude(
        &mut self,
        cx: &mut Cx,
        member: Sighting,
        round: &Round,
        again: bool,
        is_lost: bool,
    ) {
        let (own, host) = (&cx.config.host, &round.host);
        let tags = vec![
            ("host", host.clone()),
            ("rank", member.rank.to_string()),
            ("votes", round.witnesses_text()),
        ];
        match round.outcome(cx.config.members.len() <= 2) {
            SuspicionOutcome::AgentLost(_) if is_lost => {}
            SuspicionOutcome::AgentLost(what) => {
                let why = format!("the agent of {host} {what}, the host is alive");
                cx.transition("node", host, "suspect", "lost", &why);
                cx.announce(names::FTB_AGENT_LOST, Severity::Error, tags, why);
                self.member_is(cx, member, host, MemberState::Lost);
            }
            SuspicionOutcome::Dead => {
                let why = format!("{host} answers no agent");
                cx.transition("node", host, "suspect", "dead", &why);
                cx.announce(names::FTB_NODE_DEAD, Severity::Fatal, tags, why);
                self.member_is(cx, member, host, MemberState::Dead);
            }
            _ if again => {}
            SuspicionOutcome::Elsewhere => {
                let why = "its agent answers: only the link was lost";
                cx.transition("node", host, "suspect", "up elsewhere", why);
            }
            SuspicionOutcome::Unreachable => {
                let why = format!("{host} is out of reach from {own}");
                cx.announce(names::FTB_NODE_UNREACHABLE, Severity::Error, tags, why);
            }
            SuspicionOutcome::Unconfirmed => {
                let why = format!("{host} does not answer {own}; no other agent confirms this");
                cx.announce(names::FTB_NODE_UNREACHABLE, Severity::Error, tags, why);
            }
        }
    }

    /// Probes and rounds reach their deadlines, and pauses end.
    pub(crate) fn on_suspicion_timer(&mut self, cx: &mut Cx) {
        let now_ns = cx.now.mono_ns;
        self.announce_quiet(cx);
        for dial in self.suspicions.dials.late(now_ns) {
            self.on_probe_failed(cx, dial, HostAnswer::Nothing);
        }
        let rounds = self.suspicions.by_rank.iter();
        let late = rounds.filter(|(_, found)| {
            found.round.as_ref().is_some_and(|round| round.deadline_ns <= now_ns)
        });
        for rank in late.map(|(rank, _)| *rank).collect::<Vec<Rank>>() {
            self.evaluate(cx, rank, true);
        }
        let is_root = cx.around.is_root;
        if is_root {
            self.probe_again(cx);
        }
        match self.suspicions.next_ns(is_root) {
            Some(next_ns) => cx.timers.set(Timer::Suspicion, next_ns),
            None => cx.timers.stop(Timer::Suspicion),
        }
    }

    // The acting root.

    /// A member is expected: it is probed after that time, unless it is suspected already.
    pub(crate) fn expect_member(&mut self, cx: &mut Cx, rank: Rank, after_ms: u64, pause_ms: u64) {
        let next_ns = cx.after_ms(after_ms);
        cx.timers.set_earlier(Timer::Suspicion, next_ns);
        let phase = Phase::Reprobe(BackOff { next_ns: Some(next_ns), pause_ms, hung: 0 });
        let expected = Suspicion { member: Sighting::unseen(rank), phase, round: None };
        self.suspicions.by_rank.entry(rank).or_insert(expected);
    }

    /// A member is not missing any more, or known to be dead.
    pub(crate) fn expect_no_more(&mut self, rank: Rank) {
        self.suspicions.by_rank.remove(&rank);
    }

    /// Begins a round for each expected member whose pause is over.
    fn probe_again(&mut self, cx: &mut Cx) {
        let now_ns = cx.now.mono_ns;
        let mut room = match self.is_cut_off(self.suspicions.missing()) {
            true => 0,
            false => self.suspicions.dials.room(),
        };
        let mut due = Vec::new();
        for (rank, found) in &mut self.suspicions.by_rank {
            let Phase::Reprobe(back_off) = &mut found.phase else { continue };
            if back_off.next_ns.is_none_or(|next_ns| next_ns > now_ns) {
                continue;
            }
            back_off.next_ns = Some(now_ns.saturating_add(ns(back_off.pause_ms)));
            if room > 0 && found.round.is_none() {
                room -= 1;
                back_off.pause_ms = (2 * back_off.pause_ms).min(PAUSE_MS_MAX);
                due.push(*rank);
            }
        }
        for rank in due {
            let Some((member, host)) = self.members.sighting_of(rank) else {
                self.expect_no_more(rank);
                continue;
            };
            let round = self.begin_round(cx, rank, &host);
            if let Some(found) = self.suspicions.by_rank.get_mut(&rank) {
                found.member = member;
                found.round = Some(round);
            }
        }
    }

    // Acting root and standby, seen from below.

    /// Acting root and standby, if one of them is our parent, as far as they rank below us.
    fn root_and_standby_above(&self, cx: &Cx) -> Vec<(Sighting, String)> {
        let Some(parent) = &cx.around.parent else { return Vec::new() };
        let rank = parent.sighting.rank;
        let root = parent.path.first().copied();
        if Some(rank) != root && Some(rank) != parent.standby {
            return Vec::new();
        }
        let others = root.into_iter().chain(parent.standby);
        let others = others.filter(|other| *other != rank && cx.is_above(*other));
        // It does not say which of its hellos made it what it is.
        let parent = (Sighting { attempt: 0, ..parent.sighting }, parent.host.clone());
        let others =
            others.filter_map(|rank| Some((Sighting::unseen(rank), self.member(cx, rank)?.0)));
        [parent].into_iter().chain(others).collect()
    }

    /// The parent is lost without a Close.
    pub(crate) fn remember_lost_root(&mut self, cx: &Cx) {
        self.suspicions.lost_above = self.root_and_standby_above(cx);
    }

    /// A parent was found.
    pub(crate) fn forget_lost_root(&mut self, cx: &mut Cx) {
        self.suspicions.lost_above.clear();
        self.withdraw_above(cx);
    }

    /// We are acting root now, and suspect those that were lost above.
    pub(crate) fn suspect_lost_root(&mut self, cx: &mut Cx, why: &str) {
        for (above, host) in std::mem::take(&mut self.suspicions.lost_above) {
            self.lost_above(cx, above, &host, why);
        }
        self.withdraw_above(cx);
    }

    /// Whether a recent probe found that the host of that rank is silent.
    pub(crate) fn is_silent(&self, cx: &Cx, rank: Rank) -> bool {
        self.failed_probe(cx, rank) == Some(HostAnswer::Nothing)
    }

    /// Whether a recent probe found no agent at that rank: its host is silent, or its agent hangs.
    pub(crate) fn is_unresponsive(&self, cx: &Cx, rank: Rank) -> bool {
        self.failed_probe(cx, rank).is_some()
    }

    fn failed_probe(&self, cx: &Cx, rank: Rank) -> Option<HostAnswer> {
        let fresh_ns = ns(cx.config.detection_ms) / 2;
        let (answer, at_ns) = self.suspicions.unresponsive.get(&rank)?;
        (at_ns.saturating_add(fresh_ns) > cx.now.mono_ns).then_some(*answer)
    }
}
