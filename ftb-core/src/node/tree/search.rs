//! The search for a parent, and for a better one: which agents are dialled, when, and how many at
//! once.
//!
//! Responsible for: the order of candidates and the pace. Not responsible for: which answer is
//! taken ([`crate::node::tree::uplink`]), the rules of the tree ([`crate::tree`]).

use crate::ident::Rank;
use crate::node::api::{DialId, HostAnswer};
use crate::node::config::ns;
use crate::node::cx::Cx;
use crate::node::timers::Timer;
use crate::node::tree::Tree;
use crate::tree;

/// The best candidate is asked alone. After each pause of this length without an answer, twice as
/// many are asked at once. So an agent lands at its wanted place, and a silent host costs little.
const WIDEN_MS: u64 = 20;

/// What the search does next.
pub(crate) enum NextDial {
    Rank(Rank),
    /// No agent is left that could be asked.
    NoneLeft,
    /// Enough are asked, or nothing is searched for.
    Wait,
}

impl Tree {
    /// Looks for a parent, beginning at once.
    pub(crate) fn begin_search(&mut self, cx: &mut Cx, lost_above: Option<Rank>) {
        let uplink = &mut self.uplink;
        let mut hints = uplink.hints.clone();
        hints.retain(|hint| Some(*hint) != cx.rank);
        let candidates = tree::candidates(search_rank(cx), cx.config.fanout, &hints, lost_above);
        uplink.candidates = Box::new(candidates);
        uplink.until_ns = cx.after_ms(cx.config.search_ms);
        uplink.busy.clear();
        uplink.width = 1;
        let widen_ns = cx.after_ms(WIDEN_MS);
        cx.timers.set(Timer::WidenSearch, widen_ns);
        cx.timers.stop(Timer::BetterParent);
    }

    /// Whom the search dials next.
    pub(crate) fn next_dial(&mut self, cx: &Cx) -> NextDial {
        let uplink = &mut self.uplink;
        if uplink.under_way() >= uplink.width.min(cx.config.dials_max) {
            return NextDial::Wait;
        }
        let redirect = uplink.redirects.pop_front();
        // It was looking for a better parent, and keeps the one that it has.
        if !cx.around.is_searching() {
            return NextDial::Wait;
        }
        match redirect.or_else(|| uplink.candidates.next()) {
            Some(rank) => NextDial::Rank(rank),
            None if uplink.under_way() == 0 && uplink.busy.is_empty() => NextDial::NoneLeft,
            None => NextDial::Wait,
        }
    }

    /// Whether a rank may be dialled.
    pub(crate) fn may_dial(&self, cx: &Cx, rank: Rank) -> bool {
        rank < search_rank(cx) && !rank.is_unlisted() && !self.uplink.tries(rank)
    }

    pub(crate) fn dial(&mut self, cx: &mut Cx, rank: Rank, member: (String, String)) {
        let deadline_ns = cx.after_ms(cx.config.dial_ms);
        let dial = cx.dial(rank, member, deadline_ns);
        self.uplink.dials.insert(dial, (rank, deadline_ns));
        cx.counters.dials += 1;
    }

    /// A dial has failed; gives whom it was for.
    pub(crate) fn on_dial_failed(
        &mut self,
        cx: &mut Cx,
        dial: DialId,
        answer: HostAnswer,
    ) -> Option<Rank> {
        let Some((rank, _)) = self.uplink.dials.remove(&dial) else {
            cx.counters.stale += 1;
            return None;
        };
        self.uplink.duplicate_seen_by = self.uplink.duplicate_seen_by.filter(|at| *at != rank);
        cx.counters.dials_failed += 1;
        cx.counters.dials_refused += u64::from(answer != HostAnswer::Nothing);
        Some(rank)
    }

    /// When to look for a better place next; never for an agent that has the best one.
    pub(crate) fn plan_probe(&mut self, cx: &mut Cx) {
        let settled = match &cx.around.parent {
            Some(parent) => Some(parent.sighting.rank) == wanted_parent(cx),
            None if cx.around.is_root => search_rank(cx) == Rank(0),
            None => true,
        };
        if settled {
            return cx.timers.stop(Timer::BetterParent);
        }
        // A root that has just started waits for us, but not for long.
        let pause_ms = match cx.around.is_root {
            true => self.uplink.pause_ms.min(cx.config.search_ms / 2),
            false => self.uplink.pause_ms,
        };
        let half = ns(pause_ms) / 2;
        let jitter = cx.random_below(half.max(1));
        cx.timers.set(Timer::BetterParent, cx.now.mono_ns.saturating_add(half + jitter));
    }

    pub(crate) fn plan_probe_from_start(&mut self, cx: &mut Cx) {
        self.uplink.pause_ms = cx.config.probe_ms;
        self.plan_probe(cx);
    }

    /// The next pause is longer.
    pub(crate) fn plan_next_probe(&mut self, cx: &mut Cx) {
        let pause_ms = self.uplink.pause_ms;
        self.uplink.pause_ms = (pause_ms + pause_ms / 2).min(cx.config.probe_ms_max);
        self.plan_probe(cx);
    }

    /// Asks twice as many agents at once.
    pub(crate) fn widen(&mut self, cx: &mut Cx) {
        self.uplink.width = self.uplink.width.saturating_mul(2);
        let next_ns = cx.after_ms(WIDEN_MS);
        match self.uplink.width >= cx.config.dials_max {
            true => cx.timers.stop(Timer::WidenSearch),
            false => cx.timers.set(Timer::WidenSearch, next_ns),
        }
    }

    /// Whom to ask for a better place.
    pub(crate) fn better_parents(&mut self, cx: &Cx) -> Vec<Rank> {
        let (now_ns, rank, fanout) = (cx.now.mono_ns, search_rank(cx), cx.config.fanout);
        let uplink = &mut self.uplink;
        let room = cx.config.dials_max.saturating_sub(uplink.under_way());
        if let Some(parent) = &cx.around.parent {
            if now_ns < uplink.stay_until_ns {
                return Vec::new();
            }
            return tree::ancestors(rank, fanout)
                .filter(|above| tree::prefers(rank, fanout, *above, parent.sighting.rank))
                .filter(|above| uplink.is_trusted(*above, cx.config.settle_ms, now_ns))
                .take(room)
                .collect();
        }
        if !cx.around.is_root {
            return Vec::new();
        }
        if let Some(rank) = uplink.duplicate_seen_by {
            return vec![rank];
        }
        // Half of the dials go to the wanted places, half go round all lower ranks.
        let likely = tree::candidates(rank, fanout, &uplink.hints, None);
        let mut targets: Vec<Rank> = likely.take(room.div_ceil(2)).collect();
        let lower = rank.0.min(listed(cx));
        for _ in 0..room.min(lower as usize).saturating_sub(targets.len()) {
            targets.push(Rank(uplink.rotation % lower));
            uplink.rotation = uplink.rotation.wrapping_add(1);
        }
        targets
    }

    /// When a timer of the search expires.
    pub(crate) fn deadline_ns(&self, cx: &Cx, timer: Timer) -> Option<u64> {
        let uplink = &self.uplink;
        let is_searching = cx.around.is_searching();
        match timer {
            Timer::Dial => uplink.dials.values().map(|(_, deadline)| *deadline).min(),
            Timer::Hello => uplink.dialing.values().map(|hello| hello.deadline_ns).min(),
            Timer::EndSearch => is_searching.then_some(uplink.until_ns),
            Timer::RetryBusy => (is_searching && !uplink.busy.is_empty()).then_some(uplink.busy_ns),
            Timer::WidenSearch => cx.timers.get(timer).filter(|_| is_searching),
            Timer::BetterParent => cx.timers.get(timer).filter(|_| !is_searching),
            Timer::Findings => self.finding_ends_ns(),
            _ => None,
        }
    }

    /// Dials that have no answer in time.
    pub(crate) fn late_dials(&self, now_ns: u64) -> Vec<DialId> {
        let late = self.uplink.dials.iter().filter(|(_, dial)| dial.1 <= now_ns);
        late.map(|(id, _)| *id).collect()
    }

    /// Gives up hellos that have no answer in time.
    pub(crate) fn drop_late_hellos(&mut self, cx: &mut Cx) {
        let now_ns = cx.now.mono_ns;
        let late = self.uplink.dialing.iter().filter(|(_, hello)| hello.deadline_ns <= now_ns);
        for link in late.map(|(link, _)| *link).collect::<Vec<_>>() {
            self.uplink.dialing.remove(&link);
            cx.decline(link, "no answer to the hello before the deadline");
        }
    }

    /// Those that were busy are not asked again.
    pub(crate) fn forget_busy(&mut self) {
        self.uplink.busy.clear();
    }

    /// Those that were busy are asked again.
    pub(crate) fn retry_busy(&mut self) {
        self.uplink.redirects.extend(self.uplink.busy.drain(..));
    }
}

/// This agent's place in the tree: its rank, or behind the listed agents for one that is not
/// listed. Ranks below it may be tried, as far as they are listed.
pub(super) fn search_rank(cx: &Cx) -> Rank {
    let after = match cx.rank {
        Some(rank) if !rank.is_unlisted() => return rank,
        Some(rank) => rank.0 - Rank::UNLISTED_FIRST.0,
        None => 0,
    };
    Rank(listed(cx).saturating_add(after))
}

fn listed(cx: &Cx) -> u32 {
    u32::try_from(cx.config.members.len()).unwrap_or(u32::MAX)
}

/// The parent that the tree wants: listed, and with a lower rank.
fn wanted_parent(cx: &Cx) -> Option<Rank> {
    tree::ancestors(search_rank(cx), cx.config.fanout).find(|above| above.0 < listed(cx))
}
