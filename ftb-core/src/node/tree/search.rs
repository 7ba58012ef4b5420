//! The search for a parent, and for a better one: which agents are dialled, when, and how many at
//! once.
//!
//! Responsible for: the order of candidates and the pace. Not responsible for: which answer is
//! taken ([`crate::node::tree::uplink`]), the rules of the tree ([`crate::tree`]).

use crate::ident::Rank;
use crate::node::Node;
use crate::node::api::{DialId, HostAnswer};
use crate::node::config::ns;
use crate::node::role::{Role, RoleCause};
use crate::node::timers::Timer;
use crate::tree;

/// The best candidate is asked alone. After each pause of this length without an answer, twice as
/// many are asked at once. So an agent lands at its wanted place, and a silent host costs little.
const WIDEN_MS: u64 = 20;

impl Node {
    /// Looks for a parent, beginning at once.
    pub(in crate::node) fn search(&mut self, lost_above: Option<Rank>, why: &str) {
        let rank = self.search_rank();
        let mut hints = self.uplink.hints.clone();
        hints.retain(|hint| Some(*hint) != self.cx.rank);
        let candidates = tree::candidates(rank, self.cx.config.fanout, &hints, lost_above);
        let until_ns = self.cx.after_ms(self.cx.config.search_ms);
        self.uplink.busy.clear();
        self.uplink.width = 1;
        let widen_ns = self.cx.after_ms(WIDEN_MS);
        self.cx.timers.set(Timer::WidenSearch, widen_ns);
        let cause = match self.role {
            Role::Searching(_) => RoleCause::Started,
            _ => RoleCause::ParentLost,
        };
        let candidates = Box::new(candidates);
        self.change_role(cause, why, |role| role.into_search(candidates, until_ns));
        self.cx.timers.stop(Timer::BetterParent);
        let from = if lost_above.is_some() { "joined" } else { "none" };
        self.cx.transition("parent", "", from, "searching", why);
        self.search_on();
    }

    /// This agent's place in the tree: its rank, or behind the listed agents for one that is not
    /// listed. Ranks below it may be tried, as far as they are listed.
    pub(in crate::node) fn search_rank(&self) -> Rank {
        let after = match self.cx.rank {
            Some(rank) if !rank.is_unlisted() => return rank,
            Some(rank) => rank.0 - Rank::UNLISTED_FIRST.0,
            None => 0,
        };
        Rank(self.listed().saturating_add(after))
    }

    fn listed(&self) -> u32 {
        u32::try_from(self.cx.config.members.len()).unwrap_or(u32::MAX)
    }

    /// The parent that the tree wants: listed, and with a lower rank.
    fn wanted_parent(&self) -> Option<Rank> {
        let listed = self.listed();
        tree::ancestors(self.search_rank(), self.cx.config.fanout).find(|above| above.0 < listed)
    }

    /// Dials on; without a candidate the agent becomes acting root.
    pub(in crate::node) fn search_on(&mut self) {
        loop {
            if self.uplink.under_way() >= self.uplink.width.min(self.cx.config.dials_max) {
                return;
            }
            let redirect = self.uplink.redirects.pop_front();
            // It was looking for a better parent, and keeps the one that it has.
            let Role::Searching(search) = &mut self.role else { return };
            match redirect.or_else(|| search.candidates.next()) {
                // A probe has just found no agent there: a dial would end at its deadline.
                Some(rank) if self.membership.is_unresponsive(&self.cx, rank) => {}
                Some(rank) => self.dial(rank),
                None if self.uplink.under_way() == 0 && self.uplink.busy.is_empty() => {
                    return self.become_root("no lower rank answers");
                }
                None => return,
            }
        }
    }

    fn dial(&mut self, rank: Rank) {
        if rank >= self.search_rank() || rank.is_unlisted() || self.uplink.tries(rank) {
            return;
        }
        // The member list has become shorter.
        let Some(member) = self.membership.member(&self.cx, rank) else { return };
        let deadline_ns = self.cx.after_ms(self.cx.config.dial_ms);
        let dial = self.cx.dial(rank, member, deadline_ns);
        self.uplink.dials.insert(dial, (rank, deadline_ns));
        self.cx.counters.dials += 1;
    }

    pub(in crate::node) fn on_dial_failed(
        &mut self,
        dial: DialId,
        error: &str,
        answer: HostAnswer,
    ) {
        if self.membership.on_probe_failed(&mut self.cx, dial, answer) {
            return;
        }
        let Some((rank, _)) = self.uplink.dials.remove(&dial) else {
            self.cx.counters.stale += 1;
            return;
        };
        self.uplink.duplicate_seen_by = self.uplink.duplicate_seen_by.filter(|at| *at != rank);
        self.cx.counters.dials_failed += 1;
        let answers = answer != HostAnswer::Nothing;
        self.cx.counters.dials_refused += u64::from(answers);
        if !answers && matches!(self.role, Role::Searching(_)) {
            let host =
                self.membership.member(&self.cx, rank).map(|(host, _)| host).unwrap_or_default();
            self.cx.transition("parent", &host, "asked", "silent", error);
        }
        self.search_on();
    }

    /// When to look for a better place next; never for an agent that has the best one.
    pub(in crate::node) fn plan_probe(&mut self) {
        let wanted = self.wanted_parent();
        let settled = match (&self.role, self.role.parent()) {
            (_, Some(parent)) => Some(parent.rank) == wanted,
            (Role::Root(_), _) => self.search_rank() == Rank(0),
            _ => true,
        };
        if settled {
            self.cx.timers.stop(Timer::BetterParent);
            return;
        }
        // A root that has just started waits for us, but not for long.
        let pause_ms = match self.role {
            Role::Root(_) => self.uplink.pause_ms.min(self.cx.config.search_ms / 2),
            _ => self.uplink.pause_ms,
        };
        let half = ns(pause_ms) / 2;
        let jitter = self.cx.random_below(half.max(1));
        let probe_ns = self.cx.now.mono_ns.saturating_add(half + jitter);
        self.cx.timers.set(Timer::BetterParent, probe_ns);
    }

    pub(in crate::node) fn plan_probe_from_start(&mut self) {
        self.uplink.pause_ms = self.cx.config.probe_ms;
        self.plan_probe();
    }

    /// Asks twice as many agents at once.
    pub(in crate::node) fn on_widen_timer(&mut self) {
        self.uplink.width = self.uplink.width.saturating_mul(2);
        let next_ns = self.cx.after_ms(WIDEN_MS);
        match self.uplink.width >= self.cx.config.dials_max {
            true => self.cx.timers.stop(Timer::WidenSearch),
            false => self.cx.timers.set(Timer::WidenSearch, next_ns),
        }
        self.search_on();
    }

    pub(in crate::node) fn probe_better(&mut self) {
        let now_ns = self.cx.now.mono_ns;
        let rank = self.search_rank();
        let fanout = self.cx.config.fanout;
        let room = self.cx.config.dials_max.saturating_sub(self.uplink.under_way());
        let lower = rank.0.min(self.listed());
        let targets: Vec<Rank> = match (&self.role, self.role.parent()) {
            (Role::Root(_), _) if self.uplink.duplicate_seen_by.is_some() => {
                self.uplink.duplicate_seen_by.into_iter().collect()
            }
            (_, Some(_)) if self.cx.now.mono_ns < self.uplink.stay_until_ns => Vec::new(),
            (_, Some(parent)) => tree::ancestors(rank, fanout)
                .filter(|above| tree::prefers(rank, fanout, *above, parent.rank))
                .filter(|above| self.uplink.is_trusted(*above, self.cx.config.settle_ms, now_ns))
                .take(room)
                .collect(),
            (Role::Root(_), _) => {
                // Half of the dials go to the wanted places, half go round all lower ranks.
                let likely = tree::candidates(rank, fanout, &self.uplink.hints, None);
                let mut targets: Vec<Rank> = likely.take(room.div_ceil(2)).collect();
                let most = room.min(lower as usize);
                for _ in 0..most.saturating_sub(targets.len()) {
                    targets.push(Rank(self.uplink.rotation % lower));
                    self.uplink.rotation = self.uplink.rotation.wrapping_add(1);
                }
                targets
            }
            _ => Vec::new(),
        };
        for target in targets {
            self.dial(target);
        }
        self.uplink.pause_ms =
            (self.uplink.pause_ms + self.uplink.pause_ms / 2).min(self.cx.config.probe_ms_max);
        self.plan_probe();
    }
}
