//! Saving by the node agent, for ranks that know nothing of it ([`crate::manner::Saver::Agent`]).
//!
//! A checkpoint has two steps, so that the set is of one moment: when every node is prepared no rank sends anything
//! any more, and only then the first rank is saved. A node undoes its preparation when it is told, when the
//! episode is over, or after [`limits::PREPARED_MAX`]. A migration saves one node only, at once, and its ranks are
//! gone then. Neither happens while a rank of the node waits in a PMI fence: what the fence has told the others
//! could not be taken back.

use super::fence::Last;
use super::{Cause, Life, MigrationState, Nla, Output, SIGKILL, limits};
use crate::manner::{Moves, Saver};
use crate::message::{FromNla, FromRank, How, RankSays};
use crate::names::{Episode, Ranks, SetId};
use ftb_core::Now;

/// One saving of all ranks of the node.
#[derive(Clone, Debug)]
pub(super) struct Saving {
    episode: Episode,
    set: SetId,
    ranks: Ranks,
    /// The ranks are gone when they are saved.
    leave: bool,
    stage: Stage,
    /// When what is prepared is undone.
    until_ns: u64,
    /// It is not wanted any more.
    void: bool,
    /// The answers for the ranks.
    said: Vec<RankSays>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Preparing,
    Prepared,
    Saving,
    Over,
}

/// The ranks that are being started from an image, and the answer that is due then.
#[derive(Clone, Debug)]
pub(super) struct Restoring {
    pub(super) incarnation: u64,
    pub(super) ranks: Ranks,
    pub(super) answer: FromNla,
}

impl Nla {
    pub(super) fn agent_saves(&self) -> bool {
        self.config.manner.saver == Saver::Agent
    }

    /// Whether ranks are brought back all together from their image, not started one by one.
    pub(super) fn restores(&self) -> bool {
        self.config.manner.moves == Moves::Alone
    }

    pub(super) fn saving_deadline_ns(&self) -> u64 {
        let prepared = self.saving.as_ref().filter(|saving| saving.stage == Stage::Prepared);
        prepared.map_or(u64::MAX, |saving| saving.until_ns)
    }

    fn save_later(&self) -> bool {
        !self.pmi.inside().is_empty()
    }

    /// FTB_JL_PREPARE. Without ranks there is no answer; while a rank is in a fence the node refuses.
    pub(super) fn on_prepare(
        &mut self,
        now: Now,
        episode: Episode,
        set: SetId,
        out: &mut Vec<Output>,
    ) {
        if !self.agent_saves() || self.ending.is_some() || self.running().is_empty() {
            return;
        }
        if let Some(saving) = &self.saving {
            if saving.episode == episode && matches!(saving.stage, Stage::Prepared | Stage::Over) {
                out.push(Output::Publish(FromNla::Prepared { episode }));
            }
            if saving.episode == episode || saving.stage != Stage::Over {
                return;
            }
        }
        if !self.admit(episode) {
            return;
        }
        if self.save_later() {
            self.refuse_in_fence(episode, set, out);
        } else {
            self.prepare(now, episode, set, false, out);
        }
    }

    /// A rank waits in a fence, perhaps for a rank that another node has stopped for this very checkpoint. The node
    /// refuses at once, so that the stopped ranks go on: checkpoints at short intervals would else stop them for good.
    fn refuse_in_fence(&self, episode: Episode, set: SetId, out: &mut Vec<Output>) {
        let Some(rank) = self.running().iter().next() else {
            return;
        };
        let reason = "a rank of the node waits for others in a PMI fence: ask again".to_owned();
        let message = FromRank::CheckpointFailed { set, reason };
        out.push(Output::PublishFor(RankSays { episode, rank, message }));
    }

    fn prepare(
        &mut self,
        now: Now,
        episode: Episode,
        set: SetId,
        leave: bool,
        out: &mut Vec<Output>,
    ) {
        let ranks = self.running();
        self.saving = Some(Saving {
            episode,
            set: set.clone(),
            ranks: ranks.clone(),
            leave,
            stage: Stage::Preparing,
            until_ns: now.deadline_ns(limits::PREPARED_MAX),
            void: false,
            said: Vec::new(),
        });
        out.push(Output::Prepare { episode, set, ranks });
    }

    /// The armed source of a migration: its ranks are saved and leave.
    pub(super) fn save_armed(&mut self, now: Now, out: &mut Vec<Output>) {
        let Some(armed) = &self.armed else {
            return;
        };
        let (episode, set) = (armed.episode, armed.set.clone());
        let busy = self
            .saving
            .as_ref()
            .is_some_and(|saving| saving.episode == episode || saving.stage != Stage::Over);
        let here = self.state == MigrationState::Arm && self.restores() && self.agent_saves();
        if here && !busy && !self.save_later() && self.ending.is_none() {
            self.prepare(now, episode, set, true, out);
        }
    }

    /// Nothing comes from the ranks any more, and all that had come was handled before this.
    pub(super) fn prepared(
        &mut self,
        now: Now,
        episode: Episode,
        result: Result<(), String>,
        out: &mut Vec<Output>,
    ) {
        let later = self.save_later();
        let known =
            |saving: &&mut Saving| saving.episode == episode && saving.stage == Stage::Preparing;
        let Some(saving) = self.saving.as_mut().filter(known) else {
            return;
        };
        if let Err(reason) = result {
            return self.save_failed(&reason, out);
        }
        if saving.void && saving.leave {
            return self.save_failed("it was called off", out);
        }
        if saving.void || later {
            // A rank has entered a fence meanwhile: that goes first, and we are asked again.
            self.saving = None;
            out.push(Output::Release { episode });
            return;
        }
        if saving.leave {
            self.save(now, out);
        } else {
            saving.stage = Stage::Prepared;
            out.push(Output::Publish(FromNla::Prepared { episode }));
        }
    }

    fn save(&mut self, now: Now, out: &mut Vec<Output>) {
        let space = self.pmi.export() + &self.last_fence.export(now);
        let Some(saving) = &mut self.saving else {
            return;
        };
        saving.stage = Stage::Saving;
        out.push(Output::Save {
            episode: saving.episode,
            set: saving.set.clone(),
            ranks: saving.ranks.clone(),
            leave: saving.leave,
            space,
        });
    }

    /// FTB_CHECKPOINT: every node is prepared.
    pub(super) fn on_checkpoint(&mut self, now: Now, episode: Episode, out: &mut Vec<Output>) {
        let known = |saving: &&Saving| saving.episode == episode && !saving.leave;
        let Some(saving) = self.saving.as_ref().filter(known) else {
            return;
        };
        match saving.stage {
            Stage::Prepared => self.save(now, out),
            Stage::Over => out.extend(saving.said.iter().cloned().map(Output::PublishFor)),
            Stage::Preparing | Stage::Saving => {}
        }
    }

    /// The shell has saved the ranks, each with so many bytes, or has not.
    pub(super) fn saved(
        &mut self,
        episode: Episode,
        result: Result<Vec<(u32, u64)>, String>,
        out: &mut Vec<Output>,
    ) {
        let known =
            |saving: &&mut Saving| saving.episode == episode && saving.stage == Stage::Saving;
        let Some(saving) = self.saving.as_mut().filter(known) else {
            return;
        };
        let sizes = match result {
            Ok(sizes) => sizes,
            Err(reason) => return self.save_failed(&reason, out),
        };
        saving.stage = Stage::Over;
        if saving.leave {
            let (ranks, void) = (saving.ranks.clone(), saving.void);
            self.left(&ranks, out);
            // Where the migration is over already, nobody waits for its first phase.
            return if void { self.disarm(episode, out) } else { self.check_left(out) };
        }
        let (set, void) = (saving.set.clone(), saving.void);
        let processes = &self.processes;
        let say = |(rank, bytes)| {
            let activity = processes.get(&rank).and_then(|process| process.activity);
            let message = FromRank::CheckpointDone { set: set.clone(), bytes, activity };
            RankSays { episode, rank, message }
        };
        saving.said = sizes.into_iter().map(say).collect();
        if void {
            self.saving = None;
            out.push(Output::Release { episode });
        } else {
            out.extend(saving.said.iter().cloned().map(Output::PublishFor));
        }
    }

    fn left(&mut self, ranks: &Ranks, out: &mut Vec<Output>) {
        for rank in ranks.iter() {
            let Some(process) = self.processes.get_mut(&rank) else { continue };
            process.life = Life::Ended(How::Left);
            let incarnation = process.incarnation;
            self.pmi.gone(rank);
            let (episode, how) = (self.episode, How::Left);
            out.push(Output::Publish(FromNla::Exited { episode, rank, incarnation, how }));
        }
    }

    /// The ranks go on as if nothing had been. One answer for all of them is enough.
    fn save_failed(&mut self, reason: &str, out: &mut Vec<Output>) {
        let Some(saving) = &mut self.saving else {
            return;
        };
        let episode = saving.episode;
        saving.stage = Stage::Over;
        let rank = saving.ranks.iter().next().unwrap_or_default();
        let message =
            FromRank::CheckpointFailed { set: saving.set.clone(), reason: reason.to_owned() };
        saving.said = vec![RankSays { episode, rank, message }];
        out.push(Output::Release { episode });
        out.extend(saving.said.iter().cloned().map(Output::PublishFor));
    }

    fn disarm(&mut self, episode: Episode, out: &mut Vec<Output>) {
        let armed = self.armed.as_ref().is_some_and(|armed| armed.episode == episode);
        if armed && self.state == MigrationState::Arm && self.agent_saves() {
            self.go(episode, Cause::Aborted, out);
        }
    }

    /// FTB_MIGRATE_ABORT at its source. What has begun is ended first: the ranks leave, or stay, all of them.
    pub(super) fn abort_save(&mut self, episode: Episode, out: &mut Vec<Output>) {
        let Some(saving) = self.saving.as_mut().filter(|saving| saving.episode == episode) else {
            let running = self.running();
            let (Some(rank), Some(armed)) = (running.iter().next(), &self.armed) else {
                return;
            };
            let (set, reason) = (armed.set.clone(), "it was called off".to_owned());
            let message = FromRank::CheckpointFailed { set, reason };
            out.push(Output::PublishFor(RankSays { episode, rank, message }));
            return self.disarm(episode, out);
        };
        match saving.stage {
            Stage::Saving => {}
            Stage::Preparing | Stage::Prepared => saving.void = true,
            Stage::Over => {
                out.extend(saving.said.iter().cloned().map(Output::PublishFor));
                self.disarm(episode, out);
            }
        }
    }

    /// Told to undo, or the episode is over.
    pub(super) fn on_release(&mut self, episode: Episode, out: &mut Vec<Output>) {
        let known = self.saving.as_ref().filter(|saving| saving.episode == episode);
        let busy = known.is_some_and(|s| matches!(s.stage, Stage::Preparing | Stage::Saving));
        if !busy {
            self.disarm(episode, out);
        }
        let Some(saving) = self.saving.as_mut().filter(|saving| saving.episode == episode) else {
            return;
        };
        match saving.stage {
            Stage::Preparing | Stage::Saving => saving.void = true,
            Stage::Prepared => out.push(Output::Release { episode }),
            Stage::Over if saving.leave || saving.failed() => {}
            Stage::Over => out.push(Output::Release { episode }),
        }
        if matches!(saving.stage, Stage::Prepared | Stage::Over) {
            self.saving = None;
        }
    }

    /// Nobody came back for what is prepared.
    pub(super) fn saving_tick(&mut self, now: Now, out: &mut Vec<Output>) {
        if now.mono_ns < self.saving_deadline_ns() {
            return;
        }
        out.push(Output::Note(
            "prepared for a checkpoint that did not come: the ranks go on".into(),
        ));
        self.save_failed("it did not come in time", out);
    }

    /// The ranks are there again, or cannot be brought back.
    pub(super) fn restored(
        &mut self,
        now: Now,
        incarnation: u64,
        result: Result<String, String>,
        out: &mut Vec<Output>,
    ) {
        let due = self.restoring.take_if(|restoring| restoring.incarnation == incarnation);
        let Some(Restoring { ranks, answer, .. }) = due else {
            return;
        };
        match result {
            Ok(space) => {
                // Whatever was to end them came before they were there.
                if self.ending.is_some() {
                    self.signal_all(SIGKILL, out);
                }
                self.pmi.import(&space);
                self.last_fence = Last::import(now, &space);
                self.keep_start(&answer);
                out.push(Output::Publish(answer));
            }
            Err(reason) => {
                for rank in ranks.iter() {
                    self.processes.remove(&rank);
                }
                self.answers.forget_starts();
                out.push(Output::Publish(FromNla::LaunchFailed {
                    episode: self.episode,
                    incarnation,
                    ranks,
                    reason,
                }));
            }
        }
    }
}

impl Saving {
    fn failed(&self) -> bool {
        self.said.iter().any(|says| matches!(says.message, FromRank::CheckpointFailed { .. }))
    }
}
