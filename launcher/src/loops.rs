//! Ranks that save themselves in `ftb_loop` (`launcher/job/src/looping.rs`): their sockets, and
//! where they are in their loops. Each reports its loop id; the node reports an id that none of its
//! ranks reaches before an order does. At the highest one of all nodes they are saved. No rank
//! stops: a rank that has passed that id voids the save, and the next order gets more time.
//!
//! [`Round`] decides; here are the sockets, each read by a thread ([`crate::rank_server`]).

use core::time::Duration;
use ftb_job::rank_socket::{AgentPacket, RankPacket, RankSocket};
use ftb_launcher_core::manner::LOOP_MISSED;
use ftb_launcher_core::names::{Episode, Ranks, SetId};
use ftb_launcher_core::nla::{NlaInput, NlaOutput};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// The time that an order to save gets to reach a rank, at first and at most.
const LEAD: Duration = Duration::from_millis(500);
const LEAD_MAX: Duration = Duration::from_secs(30);

/// The ranks of this node that may call `ftb_loop`.
#[derive(Clone, Debug)]
pub struct Loops {
    shared: Arc<Mutex<LoopRanks>>,
    inputs: mpsc::Sender<NlaInput>,
}

#[derive(Debug, Default)]
struct LoopRanks {
    sockets: BTreeMap<u32, (u64, Arc<RankSocket>)>,
    round: Round,
}

impl Loops {
    pub fn new(inputs: mpsc::Sender<NlaInput>) -> Self {
        Self { shared: Arc::default(), inputs }
    }

    fn ranks(&self) -> MutexGuard<'_, LoopRanks> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A rank begins.
    pub(crate) fn add(&self, rank: u32, incarnation: u64, socket: &Arc<RankSocket>) {
        let mut ranks = self.ranks();
        ranks.sockets.insert(rank, (incarnation, Arc::clone(socket)));
        ranks.round.forget(rank);
    }

    /// Whether an output of the core is one for these ranks.
    pub fn takes(&self, output: &NlaOutput) -> bool {
        use NlaOutput::{Prepare, Release, Save};
        matches!(output, Prepare { .. } | Save { .. } | Release { .. })
    }

    /// Executes an output. The answer may follow later.
    pub fn act(&self, output: &NlaOutput) -> Option<NlaInput> {
        let mut ranks = self.ranks();
        let effects = match output {
            NlaOutput::Prepare { episode, ranks: of, .. } => ranks.round.prepare(*episode, of),
            NlaOutput::Save { episode, set, ranks: of, loop_id, .. } => {
                ranks.round.save(*episode, set, of, *loop_id)
            }
            NlaOutput::Release { .. } => ranks.round.release(),
            _ => Effects::default(),
        };
        ranks.perform(effects)
    }

    /// False: a later process is this rank.
    pub(crate) fn on_packet(&self, rank: u32, incarnation: u64, packet: &RankPacket) -> bool {
        let mut ranks = self.ranks();
        if ranks.sockets.get(&rank).is_none_or(|(of, _)| *of != incarnation) {
            return false;
        }
        let effects = ranks.round.on_rank(rank, packet);
        let answer = ranks.perform(effects);
        drop(ranks);
        answer.is_none_or(|answer| self.inputs.blocking_send(answer).is_ok())
    }

    /// A rank ends.
    pub(crate) fn gone(&self, rank: u32, incarnation: u64) {
        let mut ranks = self.ranks();
        if ranks.sockets.get(&rank).is_some_and(|(of, _)| *of == incarnation) {
            ranks.sockets.remove(&rank);
            ranks.round.forget(rank);
        }
    }
}

impl LoopRanks {
    /// Sends the orders. A rank that cannot be reached fails the open step.
    fn perform(&mut self, effects: Effects) -> Option<NlaInput> {
        let Effects { orders, answer } = effects;
        let mut answer = answer;
        for (rank, order) in orders {
            let sent = match self.sockets.get(&rank) {
                Some((_, socket)) => socket.try_send(&order).map_err(|error| error.to_string()),
                None => Err("its program has not kept FTB_RANK_FD".to_owned()),
            };
            if let Err(error) = sent {
                answer = self.round.failed(&format!("rank {rank} cannot be reached: {error}"));
            }
        }
        answer
    }
}

/// What follows from an event: orders to ranks, and an answer.
#[derive(Debug, Default)]
struct Effects {
    orders: Vec<(u32, AgentPacket)>,
    answer: Option<NlaInput>,
}

impl Effects {
    fn answer(answer: Option<NlaInput>) -> Self {
        Self { orders: Vec::new(), answer }
    }
}

/// Where the ranks are, and the open save. Pure.
#[derive(Debug, Default)]
struct Round {
    open: Option<(Episode, Phase)>,
    /// Ranks that have not answered where they are. They are not asked twice.
    asked: Ranks,
    /// Ranks with an order to save themselves that they have not answered.
    due: Ranks,
    /// How often a rank had passed the loop id of a save: each doubles the lead.
    missed: u32,
}

#[derive(Debug)]
enum Phase {
    /// These ranks are asked. `loop_id`: that of those that have answered.
    Asking {
        ranks: Ranks,
        answered: Ranks,
        loop_id: u64,
    },
    Asked,
    Saving {
        set: SetId,
        sizes: BTreeMap<u32, u64>,
        ranks: usize,
    },
}

impl Round {
    /// The time that an order has to reach a rank.
    fn lead(&self) -> Duration {
        LEAD.saturating_mul(1 << self.missed.min(16)).min(LEAD_MAX)
    }

    fn prepare(&mut self, episode: Episode, ranks: &Ranks) -> Effects {
        let mut effects = self.release();
        for rank in ranks.iter() {
            if self.asked.0.insert(rank) {
                effects.orders.push((rank, AgentPacket::Where));
            }
        }
        let (ranks, answered) = (ranks.clone(), Ranks::default());
        self.open = Some((episode, Phase::Asking { ranks, answered, loop_id: 0 }));
        effects
    }

    /// `loop_id`: without one they are saved at the id of their first call.
    fn save(
        &mut self,
        episode: Episode,
        set: &SetId,
        ranks: &Ranks,
        loop_id: Option<u64>,
    ) -> Effects {
        let asked = matches!(&self.open, Some((of, Phase::Asked)) if *of == episode);
        if loop_id.is_some() && !asked {
            let result = Err("it is not known where its ranks are".to_owned());
            return Effects::answer(Some(NlaInput::Saved { episode, result }));
        }
        self.due.0.extend(ranks.iter());
        let order = AgentPacket::Save { episode: episode.0, set: set.to_string(), loop_id };
        let (set, sizes) = (set.clone(), BTreeMap::new());
        self.open = Some((episode, Phase::Saving { set, sizes, ranks: ranks.len() }));
        let orders = ranks.iter().map(|rank| (rank, order.clone())).collect();
        Effects { orders, answer: None }
    }

    fn release(&mut self) -> Effects {
        self.open = None;
        let due = core::mem::take(&mut self.due);
        let orders = due.iter().map(|rank| (rank, AgentPacket::Cancel)).collect();
        Effects { orders, answer: None }
    }

    fn on_rank(&mut self, rank: u32, packet: &RankPacket) -> Effects {
        Effects::answer(match packet {
            RankPacket::At { loop_id, period_us } => self.on_at(rank, *loop_id, *period_us),
            RankPacket::Saved { set, bytes } => self.on_saved(rank, set, *bytes),
            RankPacket::Failed { set, reason } => self.on_failed(rank, set, reason),
            RankPacket::Missed { set } => {
                let failed = self.on_failed(rank, set, LOOP_MISSED);
                self.missed += u32::from(failed.is_some());
                failed
            }
            _ => None,
        })
    }

    fn on_at(&mut self, rank: u32, at: u64, period_us: u64) -> Option<NlaInput> {
        self.asked.0.remove(&rank);
        let lead = self.lead();
        let (episode, Phase::Asking { ranks, answered, loop_id }) = self.open.as_mut()? else {
            return None;
        };
        if !ranks.has(rank) || !answered.0.insert(rank) {
            return None;
        }
        let steps = lead.as_micros().div_ceil(u128::from(period_us.max(1)));
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        *loop_id = (*loop_id).max(at.saturating_add(steps));
        if answered.len() < ranks.len() {
            return None;
        }
        let (episode, loop_id) = (*episode, *loop_id);
        self.open = Some((episode, Phase::Asked));
        Some(NlaInput::Looping { episode, loop_id })
    }

    fn on_saved(&mut self, rank: u32, of: &str, bytes: u64) -> Option<NlaInput> {
        let (episode, Phase::Saving { set, sizes, ranks }) = self.open.as_mut()? else {
            return None;
        };
        if set.as_str() != of || !self.due.0.remove(&rank) {
            return None;
        }
        sizes.insert(rank, bytes);
        if sizes.len() < *ranks {
            return None;
        }
        let (episode, result) = (*episode, Ok(core::mem::take(sizes).into_iter().collect()));
        self.open = None;
        Some(NlaInput::Saved { episode, result })
    }

    fn on_failed(&mut self, rank: u32, of: &str, reason: &str) -> Option<NlaInput> {
        match &self.open {
            Some((_, Phase::Saving { set, .. })) if set.as_str() == of => {
                self.due.0.remove(&rank);
                self.failed(&format!("rank {rank}: {reason}"))
            }
            _ => None,
        }
    }

    /// The open step fails; its release follows.
    fn failed(&mut self, reason: &str) -> Option<NlaInput> {
        let (episode, phase) = self.open.take()?;
        let reason = reason.to_owned();
        Some(match phase {
            Phase::Asking { .. } | Phase::Asked => {
                NlaInput::Prepared { episode, result: Err(reason) }
            }
            Phase::Saving { .. } => NlaInput::Saved { episode, result: Err(reason) },
        })
    }

    /// Another process takes the place of a rank, or none.
    fn forget(&mut self, rank: u32) {
        self.asked.0.remove(&rank);
        self.due.0.remove(&rank);
    }
}

#[cfg(test)]
mod tests;
