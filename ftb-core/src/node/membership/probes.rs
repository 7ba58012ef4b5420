//! Probes of hosts: dials that only find out whether an agent or its host answers.
//!
//! Responsible for: the dials of own rounds and for neighbours, and which addresses are dialled.
//! Not responsible for: the meaning of an answer ([`crate::node::membership::suspicion`]).

use crate::frame::{Frame, Probe, ProbeAnswer};
use crate::ident::Rank;
use crate::node::api::{DialId, HostAnswer, LinkId};
use crate::node::config::ns;
use crate::node::cx::Cx;
use crate::node::links::{LinkRole, probe_ms};
use crate::node::membership::Membership;
use crate::node::timers::Timer;
use std::collections::BTreeMap;

/// Most probes under way, own ones and those for others. One more is not made, which counts as no
/// answer.
const PROBE_DIALS_MAX: usize = 256;

/// The result of a probe.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProbeResult {
    Agent,
    /// Its host: what it answered.
    Host(HostAnswer),
}

/// The probes under way.
#[derive(Default)]
pub(crate) struct ProbeDials(BTreeMap<DialId, ProbeDial>);

/// A dial that is only a probe.
struct ProbeDial {
    deadline_ns: u64,
    purpose: ProbePurpose,
}

enum ProbePurpose {
    /// Of the round with that number for that suspect.
    Round(Rank, u64),
    Neighbour(LinkId, Probe),
}

impl ProbeDials {
    /// Free probes for expected members: half of all that may be under way.
    pub(crate) fn room(&self) -> usize {
        (PROBE_DIALS_MAX / 2).saturating_sub(self.0.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.0.values().map(|dial| dial.deadline_ns).min()
    }

    /// Probes without an answer at their deadline.
    pub(crate) fn late(&self, now_ns: u64) -> Vec<DialId> {
        let late = self.0.iter().filter(|(_, dial)| dial.deadline_ns <= now_ns);
        late.map(|(dial, _)| *dial).collect()
    }
}

impl Membership {
    /// An indirect probe; with the address of the target if no list has it.
    pub(crate) fn probe_of(&self, cx: &Cx, round: u64, prober: Rank, target: Rank) -> Probe {
        let unlisted = target.is_unlisted().then(|| self.unlisted_member(target)).flatten();
        let (host, address) = unlisted.unwrap_or_default();
        Probe { requester: cx.config.origin, probe: round, prober, target, host, address }
    }

    /// The own probe of a round.
    pub(crate) fn probe_host_for_round(&mut self, cx: &mut Cx, rank: Rank, number: u64) {
        if let Some((host, address)) = self.member(cx, rank) {
            self.dial_probe(cx, rank, host, address, ProbePurpose::Round(rank, number));
        }
    }

    fn dial_probe(
        &mut self,
        cx: &mut Cx,
        rank: Rank,
        host: String,
        address: String,
        purpose: ProbePurpose,
    ) {
        if self.suspicions.dials.0.len() >= PROBE_DIALS_MAX {
            return;
        }
        // The result comes a little before the silence counts.
        let probe_ms = probe_ms(&cx.config);
        let deadline_ns = cx.after_ms(probe_ms - probe_ms / 10);
        // The shell reports at its deadline. This later one is for a shell that does not.
        let give_up_ns = deadline_ns.saturating_add(ns(cx.config.dial_ms));
        cx.timers.set_earlier(Timer::Suspicion, give_up_ns);
        let dial = cx.dial(rank, (host, address), deadline_ns);
        self.suspicions.dials.0.insert(dial, ProbeDial { deadline_ns: give_up_ns, purpose });
    }

    /// The address at which a dynamic member is probed for another agent: the known one, or the one
    /// that the parent names. A child cannot name one, or it could make this agent dial any
    /// address.
    fn unlisted_target(&self, cx: &Cx, link: LinkId, probe: &Probe) -> Option<(String, String)> {
        let known = self.unlisted_member(probe.target);
        if let Some(known) = known.filter(|(host, _)| host.eq_ignore_ascii_case(&probe.host)) {
            return Some(known);
        }
        let reported = cx.around.parent_link() == Some(link)
            && !probe.address.is_empty()
            && cx.config.members.rank_of(&probe.host).is_none();
        reported.then(|| (probe.host.clone(), probe.address.clone()))
    }

    /// A neighbour asks for a probe.
    pub(crate) fn on_probe(&mut self, cx: &mut Cx, link: LinkId, probe: Probe) {
        if self.is_silent(cx, probe.target) {
            return self.answer_probe(cx, link, &probe, false);
        }
        let named = match probe.target.is_unlisted() {
            true => self.unlisted_target(cx, link, &probe),
            false => self.member(cx, probe.target),
        };
        if let Some((host, address)) = named {
            let target = probe.target;
            self.dial_probe(cx, target, host, address, ProbePurpose::Neighbour(link, probe));
        }
    }

    fn answer_probe(&mut self, cx: &mut Cx, link: LinkId, probe: &Probe, alive: bool) {
        let Probe { requester, probe, prober, .. } = *probe;
        cx.send(link, Frame::ProbeAnswer(ProbeAnswer { requester, probe, prober, alive }));
    }

    /// A probe has reached an agent. Says whether that dial was a probe.
    pub(crate) fn on_probe_connected(&mut self, cx: &mut Cx, dial: DialId, link: LinkId) -> bool {
        let Some(probe_dial) = self.suspicions.dials.0.remove(&dial) else { return false };
        cx.open(link, LinkRole::Closing);
        cx.close(link, None, "it was a probe");
        self.on_probe_result(cx, probe_dial, ProbeResult::Agent);
        true
    }

    /// A probe has failed. Says whether that dial was a probe.
    pub(crate) fn on_probe_failed(
        &mut self,
        cx: &mut Cx,
        dial: DialId,
        answer: HostAnswer,
    ) -> bool {
        let Some(probe_dial) = self.suspicions.dials.0.remove(&dial) else { return false };
        self.on_probe_result(cx, probe_dial, ProbeResult::Host(answer));
        true
    }

    fn on_probe_result(&mut self, cx: &mut Cx, probe_dial: ProbeDial, found: ProbeResult) {
        match probe_dial.purpose {
            ProbePurpose::Round(rank, number) => self.on_round_probed(cx, rank, number, found),
            ProbePurpose::Neighbour(link, probe) => {
                let alive = found != ProbeResult::Host(HostAnswer::Nothing);
                self.answer_probe(cx, link, &probe, alive);
            }
        }
    }
}
