//! The uplink: whom this agent has said hello to, and which answer it takes.
//!
//! Responsible for: the choice of a parent. Not responsible for: which agents are dialled
//! ([`crate::node::tree::search`]), what follows from a choice ([`crate::node::dispatch`]).

use crate::frame::{HelloAck, HelloNack, NackCode, TreeState};
use crate::ident::Rank;
use crate::node::api::{DialId, LinkId};
use crate::node::config::ns;
use crate::node::cx::Cx;
use crate::node::links::LinkRole;
use crate::node::tree::Tree;
use crate::node::tree::search::search_rank;
use crate::position::Epoch;
use crate::tree;
use std::collections::{BTreeMap, VecDeque};

pub(super) type Candidates = Box<dyn Iterator<Item = Rank> + Send>;

/// The pause before an agent comes back to a busy parent.
const BUSY_MS: u64 = 100;

/// The longest time in which a parent that was lost repeatedly is avoided.
const FLAP_MS_MAX: u64 = 30_000;
/// After this time without a loss, a parent has a clean record.
const FLAP_FORGET_MS: u64 = 300_000;
/// Most parents whose losses are remembered.
const FLAPS_MAX: usize = 64;

/// Where the search for a parent stands.
pub(super) struct Uplink {
    pub(super) dials: BTreeMap<DialId, (Rank, u64)>,
    pub(super) dialing: BTreeMap<LinkId, Dialing>,
    hellos: u64,
    /// Whom the present search asks, and until when.
    pub(super) candidates: Candidates,
    pub(super) until_ns: u64,
    /// The present pause between two searches.
    pub(super) pause_ms: u64,
    /// Ranks seen alive lately: the way to the root, and the standby.
    pub(super) hints: Vec<Rank>,
    /// Whom a full parent named.
    pub(super) redirects: VecDeque<Rank>,
    /// Agents that answered, and will have us a little later.
    pub(super) busy: Vec<Rank>,
    pub(super) busy_ns: u64,
    /// Most agents that are asked at once now.
    pub(super) width: usize,
    /// How often a better parent of another component was found in a row.
    foreign: u32,
    /// Not before this is the parent left for a better one.
    pub(super) stay_until_ns: u64,
    /// How long to stay below the next parent.
    settle_ms: u64,
    /// The agent that knows of a duplicate with this rank: only it is asked until that changes.
    pub(super) duplicate_seen_by: Option<Rank>,
    /// Parents that were lost: how often in a row, and when last.
    lost: BTreeMap<Rank, (u32, u64)>,
    /// Where the acting root's rotation through all lower ranks stands.
    pub(super) rotation: u32,
}

/// An agent that we said hello to.
pub(super) struct Dialing {
    pub(super) rank: Rank,
    pub(super) deadline_ns: u64,
    hello_ack: Option<Box<HelloAck>>,
}

/// How often a better parent in another component must fail to bring this component along before an
/// agent leaves alone. Its acting root should move first, and re-propose its log.
const FOREIGN_MAX: u32 = 4;

impl Uplink {
    pub(super) fn new() -> Self {
        Self {
            dials: BTreeMap::new(),
            dialing: BTreeMap::new(),
            hellos: 0,
            candidates: Box::new(std::iter::empty()),
            until_ns: 0,
            pause_ms: 0,
            hints: Vec::new(),
            redirects: VecDeque::new(),
            busy: Vec::new(),
            busy_ns: 0,
            width: 1,
            foreign: 0,
            stay_until_ns: 0,
            settle_ms: 0,
            duplicate_seen_by: None,
            lost: BTreeMap::new(),
            rotation: 0,
        }
    }

    /// A parent was lost without a word.
    fn note_lost(&mut self, rank: Rank, now_ns: u64) {
        self.lost.retain(|_, (_, at)| at.saturating_add(ns(FLAP_FORGET_MS)) > now_ns);
        if self.lost.len() < FLAPS_MAX || self.lost.contains_key(&rank) {
            let (times, at_ns) = self.lost.entry(rank).or_insert((0, now_ns));
            *times = times.saturating_add(1);
            *at_ns = now_ns;
        }
    }

    /// Whether an agent may move (back) to that parent: one that was lost is left alone for a time
    /// that doubles with each loss in a row.
    pub(super) fn is_trusted(&self, rank: Rank, settle_ms: u64, now_ns: u64) -> bool {
        let Some((times, at_ns)) = self.lost.get(&rank) else { return true };
        let doubled = settle_ms.saturating_mul(1 << (times - 1).min(16));
        at_ns.saturating_add(ns(doubled.min(FLAP_MS_MAX))) <= now_ns
    }

    pub(super) fn under_way(&self) -> usize {
        self.dials.len() + self.dialing.len()
    }

    pub(super) fn tries(&self, rank: Rank) -> bool {
        self.dials.values().any(|(dialed, _)| *dialed == rank)
            || self.dialing.values().any(|candidate| candidate.rank == rank)
    }
}

impl Tree {
    /// A dial has a connection; says whether it is still wanted.
    pub(crate) fn on_dialed(&mut self, cx: &mut Cx, dial: DialId, link: LinkId) -> bool {
        let Some((rank, _)) = self.uplink.dials.remove(&dial) else {
            cx.counters.stale += 1;
            cx.open(link, LinkRole::Closing);
            cx.close(link, None, "this dial is stale");
            return false;
        };
        let deadline_ns = cx.after_ms(cx.config.dial_ms);
        cx.open(link, LinkRole::Dialing);
        self.uplink.dialing.insert(link, Dialing { rank, deadline_ns, hello_ack: None });
        self.uplink.hellos += 1;
        true
    }

    /// Higher than those of an earlier incarnation, unless this host's clock was set back.
    pub(crate) fn attempt(&self, cx: &Cx) -> u64 {
        cx.started.wall_ns.saturating_add(self.uplink.hellos)
    }

    /// Whom a pending hello is for.
    pub(crate) fn dialed_rank(&self, link: LinkId) -> Option<Rank> {
        self.uplink.dialing.get(&link).map(|candidate| candidate.rank)
    }

    /// A hello was answered with a place; says whether it may be taken.
    ///
    /// # Errors
    /// What is wrong with the answer's place.
    pub(crate) fn on_hello_ack(
        &mut self,
        cx: &mut Cx,
        link: LinkId,
        hello_ack: Box<HelloAck>,
    ) -> Result<bool, &'static str> {
        let Some(candidate) = self.uplink.dialing.get_mut(&link) else {
            return Err("a second answer to the hello");
        };
        let HelloAck { protocol, ref host, rank, .. } = *hello_ack;
        let problem = if !cx.config.versions.contains(protocol) {
            format!(
                "{host} answered with protocol {protocol}, {} speaks {}: upgrade both to the same \
                 release",
                cx.config.host, cx.config.versions
            )
        } else if rank != candidate.rank {
            format!(
                "rank {} was dialled and {host} of rank {rank} answered: the member lists differ",
                candidate.rank
            )
        } else {
            candidate.hello_ack = Some(hello_ack);
            return Ok(true);
        };
        self.uplink.dialing.remove(&link);
        cx.close(link, None, &problem);
        Ok(false)
    }

    /// A parent whose answer waits follows another log now.
    ///
    /// # Errors
    /// It has not answered.
    pub(crate) fn on_early_tree_state(
        &mut self,
        link: LinkId,
        tree_state: TreeState,
    ) -> Result<(), &'static str> {
        let candidate = self.uplink.dialing.get_mut(&link);
        let hello_ack = candidate.and_then(|candidate| candidate.hello_ack.as_mut());
        hello_ack.ok_or("a tree state before the answer to the hello")?.tree_state = tree_state;
        Ok(())
    }

    /// The answer to a hello, if it is to be taken. Else it is declined, or waits until the parent
    /// has the epoch of this agent.
    pub(crate) fn consider(
        &mut self,
        cx: &mut Cx,
        link: LinkId,
        ours: Epoch,
    ) -> Option<Box<HelloAck>> {
        let candidate = self.uplink.dialing.get(&link);
        let answered = candidate.and_then(|found| Some((found.rank, found.hello_ack.as_ref()?)));
        let Some((rank, hello_ack)) = answered else {
            cx.impossible("CandidateHasAnswered");
            return None;
        };
        let theirs = hello_ack.tree_state.epochs.head();
        if theirs < ours && !hello_ack.send_log {
            // Fenced: it learnt our epoch from the hello, and its root will open a higher one.
            return None;
        }
        let is_wanted = cx.around.parent.as_ref().is_none_or(|parent| {
            let old = parent.sighting.rank;
            let is_better = tree::prefers(search_rank(cx), cx.config.fanout, rank, old);
            self.uplink.foreign += u32::from(is_better && theirs != ours);
            is_better && (theirs == ours || self.uplink.foreign >= FOREIGN_MAX)
        });
        let candidate = self.uplink.dialing.remove(&link)?;
        if !is_wanted {
            cx.decline(link, "not needed");
            return None;
        }
        candidate.hello_ack
    }

    /// A parent is found. `has_moved`: it replaces another one.
    pub(crate) fn note_parent(&mut self, cx: &Cx, has_moved: bool) {
        self.uplink.settle_ms = match has_moved {
            true => (self.uplink.settle_ms * 2).min(cx.config.probe_ms_max),
            false => cx.config.settle_ms,
        };
    }

    /// The search is over, and a move waits for a while.
    pub(crate) fn settle_below_parent(&mut self, cx: &mut Cx) {
        self.uplink.stay_until_ns = cx.after_ms(self.uplink.settle_ms);
        self.uplink.foreign = 0;
        self.uplink.duplicate_seen_by = None;
        self.plan_probe_from_start(cx);
        self.decline_all(cx, "another parent was faster");
    }

    fn decline_all(&mut self, cx: &mut Cx, why: &str) {
        for link in std::mem::take(&mut self.uplink.dialing).into_keys() {
            cx.decline(link, why);
        }
    }

    /// Ranks seen alive lately: the way to the root, and the standby.
    pub(crate) fn set_hints(&mut self, hints: Vec<Rank>) {
        self.uplink.hints = hints;
    }

    /// A parent that was asked does not want us; gives who.
    pub(crate) fn on_hello_nack(
        &mut self,
        cx: &Cx,
        link: LinkId,
        hello_nack: &HelloNack,
    ) -> Option<Rank> {
        let candidate = self.uplink.dialing.remove(&link)?;
        if hello_nack.code == NackCode::Busy {
            self.uplink.busy.push(candidate.rank);
            self.uplink.busy_ns = cx.after_ms(BUSY_MS);
        }
        let below = search_rank(cx);
        let named = hello_nack.redirect.iter().copied().filter(|rank| *rank < below);
        self.uplink.redirects.extend(named.take(cx.config.dials_max));
        Some(candidate.rank)
    }

    /// Another agent has our rank and is there: only the one who knows is asked.
    pub(crate) fn stay_away(&mut self, cx: &mut Cx, reported_by: Rank) {
        self.uplink.duplicate_seen_by = Some(reported_by);
        self.uplink.redirects.clear();
        self.decline_all(cx, "another agent has this rank");
    }

    /// A link with a pending hello is gone; says whether it was known.
    pub(crate) fn on_dialing_lost(&mut self, link: LinkId) -> bool {
        self.uplink.dialing.remove(&link).is_some()
    }

    /// A parent was lost without a word.
    pub(crate) fn note_lost(&mut self, rank: Rank, now_ns: u64) {
        self.uplink.note_lost(rank, now_ns);
    }
}
