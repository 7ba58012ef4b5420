//! Hung ranks: takes the reports of the nodes, reports findings, and acts on them (`on_hang`).
//!
//! Ranks may stand still while a start, a migration or a recovery is under way, and while their
//! agents save them. A person who debugs a rank has the job alone: nothing is done meanwhile.

use super::saving::{RecoveryWay, WaitingRecovery};
use super::{Initiator, Jl, JlOutput, OnDeath, OnHang, Start, Workflow};
use crate::message::{FromJl, HangNotice, HungRank};
use crate::names::{NodeName, Ranks};
use crate::progress::{Finding, HangChange, NodeReport};
use core::time::Duration;
use ftb_core::Now;
use std::collections::BTreeMap;

/// Exit code of a job that ends because of a hung rank: as if SIGKILL had ended the rank.
const HUNG: i32 = 137;

/// Hung ranks that are being killed, and until when, in monotonic nanoseconds.
pub(super) type Killed = BTreeMap<u32, u64>;

impl Jl {
    pub(super) fn on_progress(&mut self, now: Now, node: &NodeName, mut report: NodeReport) {
        let placed = |rank: u32| self.job.ranks.get(rank as usize).is_some_and(|r| r.node == *node);
        report.moving.0.retain(|rank| placed(*rank));
        report.stepping.0.retain(|rank| placed(*rank));
        report.still.retain(|of| placed(of.rank));
        report.exchanging.0.retain(|rank| placed(*rank));
        self.hangs.on_report(now, &report);
    }

    /// Whether ranks stand still now because of the launcher itself.
    fn holds_ranks(&self) -> bool {
        match self.open.as_ref().map(|open| &open.workflow) {
            None => false,
            Some(Workflow::Checkpoint(_)) => self.job.agents_save(),
            Some(_) => true,
        }
    }

    pub(super) fn look_for_hangs(&mut self, now: Now) {
        if now.mono_ns < self.hangs.next_deadline_ns() || self.over() {
            return;
        }
        let times = self.job.config.hang_times;
        if self.holds_ranks() {
            return self.hangs.pause(now, &times);
        }
        let start =
            |row: &super::Rank| (row.ended.is_none() && !row.left_out).then_some(row.incarnation);
        let starts: Vec<Option<u64>> = self.job.ranks.iter().map(start).collect();
        let had_debugger = self.has_debugger();
        let changes = self.hangs.look(now, &times, &starts);
        let mut new = Vec::new();
        if had_debugger && !self.has_debugger() {
            // Nothing was done about the other hung ranks until now.
            let is_new = |of: &Finding| changes.contains(&HangChange::Hung(*of));
            new.extend(self.hangs.found().iter().filter(|of| !is_new(of)).copied());
            for finding in &new {
                let words = self.hang_words(now, finding);
                self.job.tell(format!("{words}{}", self.effect(finding)));
            }
        }
        for change in &changes {
            match change {
                HangChange::Hung(finding) => {
                    let words = self.hang_words(now, finding);
                    self.job.tell(format!("{words}{}", self.effect(finding)));
                    self.publish_hang(finding, words, false);
                    new.push(*finding);
                }
                HangChange::Over(finding) => {
                    let words = format!("{} hung no more", self.hang_name(finding));
                    self.job.tell(words.clone());
                    self.publish_hang(finding, words, true);
                }
            }
        }
        if !changes.is_empty() {
            self.job.out.push(JlOutput::Save);
        }
        self.kill_again(now);
        if !new.is_empty() && self.acts_on_hangs() {
            self.act_on_hang(now, &new);
        }
    }

    /// `rank 3 on node02 (pid 77) is`, `all 4 ranks are`.
    fn hang_name(&self, finding: &Finding) -> String {
        let row = finding.rank.and_then(|rank| Some((rank, self.job.ranks.get(rank as usize)?)));
        match row {
            Some((rank, row)) => format!("rank {rank} on {} (pid {}) is", row.node, finding.pid),
            None => format!("all {} ranks are", self.job.count()),
        }
    }

    fn hang_words(&self, now: Now, finding: &Finding) -> String {
        let age = now.wall_ns.saturating_sub(finding.since_ns) / 1_000_000_000;
        let age = humantime::format_duration(Duration::from_secs(age));
        let (name, what) = (self.hang_name(finding), finding.kind.words());
        format!("{name} hung: {what} for {age}")
    }

    fn has_debugger(&self) -> bool {
        self.hangs.has_debugger()
    }

    /// Whether a job with a hung rank starts from its beginning: it has no set, and its owner lets
    /// it restart.
    fn begins_anew(&self) -> bool {
        self.job.newest_set().is_none() && self.job.config.on_death == OnDeath::Restart
    }

    /// Informs the user at the start what a hung rank leads to before the first set.
    pub(super) fn notify_on_hang(&mut self) {
        let on_hang = self.job.config.on_hang;
        if !matches!(on_hang, OnHang::Restart | OnHang::RollBack) || self.job.newest_set().is_some()
        {
            return;
        }
        let on_hang = on_hang.as_str();
        self.job.tell(match self.begins_anew() {
            true => format!(
                "on_hang = {on_hang}: before the first set the job starts anew from its beginning"
            ),
            false => format!(
                "on_hang = {on_hang}: before the first set a hung rank is only reported; with \
                 --on-death restart the job would start anew from its beginning"
            ),
        });
    }

    fn acts_on_hangs(&self) -> bool {
        let restores = self.job.config.on_hang == OnHang::Kill
            || self.job.newest_set().is_some()
            || self.begins_anew();
        self.job.config.on_hang != OnHang::Report && restores && !self.has_debugger()
    }

    /// What follows, for the user.
    fn effect(&self, finding: &Finding) -> &'static str {
        match self.job.config.on_hang {
            _ if self.has_debugger() => ": nothing is done while a debugger is attached",
            OnHang::Report => " (on_hang = report)",
            _ if finding.kind.is_only_reported() => {
                ": only reported, as it may have done its share"
            }
            OnHang::Kill => ": the job ends (on_hang = kill)",
            _ if self.begins_anew() => ": the job starts anew from its beginning, it has no set",
            _ if self.job.newest_set().is_none() => {
                ": there is no set to go back to, so nothing is done"
            }
            OnHang::RollBack if finding.rank.is_some() => ": it is killed (on_hang = rollback)",
            OnHang::RollBack => ": the job restarts (on_hang = rollback)",
            OnHang::Restart => ": the job restarts (on_hang = restart)",
        }
    }

    fn publish_hang(&mut self, finding: &Finding, words: String, is_over: bool) {
        let rank = finding.rank.and_then(|rank| {
            let node = self.job.ranks.get(rank as usize)?.node.clone();
            let (incarnation, pid) = (finding.incarnation, finding.pid);
            Some(HungRank { node, rank, incarnation, pid })
        });
        let kill = !is_over && finding.rank.is_some_and(|rank| self.killed.contains_key(&rank));
        let (episode, kind) = (self.job.episode, finding.kind);
        self.job.publish(FromJl::Hang(HangNotice { episode, rank, kind, is_over, kill, words }));
    }

    pub(super) fn act_on_hang(&mut self, now: Now, new: &[Finding]) {
        let new = new.iter().filter(|finding| !finding.kind.is_only_reported());
        let new: Vec<&Finding> = new.collect();
        if new.is_empty() {
            return;
        }
        let all = new.iter().any(|finding| finding.rank.is_none());
        let ranks: Ranks = new.iter().filter_map(|finding| finding.rank).collect();
        let reason = match all {
            true => "all ranks are hung".to_owned(),
            false => format!("hung: rank {}", ranks.join(", ")),
        };
        let reason = format!("{reason} (on_hang = {})", self.job.config.on_hang.as_str());
        match self.job.config.on_hang {
            OnHang::Report => {}
            OnHang::Kill => self.end(now, HUNG, &reason),
            OnHang::RollBack | OnHang::Restart if self.begins_anew() => {
                self.begin_anew(now, &reason);
            }
            OnHang::RollBack if !all => {
                let until_ns = now.deadline_ns(self.job.config.deadlines.reset);
                self.killed.extend(ranks.iter().map(|rank| (rank, until_ns)));
                self.kill_again(now);
            }
            OnHang::RollBack | OnHang::Restart => self.recover_by(now, HUNG, &reason, false),
        }
    }

    /// All ranks end and start from the beginning.
    pub(super) fn begin_anew(&mut self, now: Now, reason: &str) {
        if self.waits_to_recover(HUNG, reason, RecoveryWay::Anew) {
            return;
        }
        let restarts = self.job.restarts;
        if restarts >= self.job.config.restarts_max {
            let words = format!("{reason}; {restarts} recoveries without a new set in between");
            return self.end(now, HUNG, &words);
        }
        self.job.restarts += 1;
        self.close(now, false, reason.to_owned());
        let episode = self.job.open();
        let words = format!("{reason}: the job starts anew from its beginning");
        let (code, way) = (HUNG, RecoveryWay::Anew);
        self.keep_before(WaitingRecovery { code, reason: reason.to_owned(), way }, &words);
        self.job.tell(words);
        let (start, transition) = Start::again(&mut self.job, episode, None, reason);
        let (start, by) = (Workflow::Start(start), Initiator::Internal);
        self.begin(now, episode, start, by, transition, reason);
    }

    /// Repeats the order to kill hung ranks. Where that has no effect, the job starts anew: a node
    /// that cannot end its ranks is lost.
    fn kill_again(&mut self, now: Now) {
        let found: Vec<Finding> = self.hangs.found().to_vec();
        let is_found = |rank: &u32| found.iter().any(|finding| finding.rank == Some(*rank));
        self.killed.retain(|rank, _| is_found(rank));
        if self.killed.values().any(|until_ns| now.mono_ns >= *until_ns) {
            let ranks: Ranks = self.killed.keys().copied().collect();
            let reason = format!("hung: rank {}, which SIGKILL does not end", ranks.join(", "));
            return self.recover_by(now, HUNG, &reason, false);
        }
        let is_killed = |of: &&Finding| of.rank.is_some_and(|rank| self.killed.contains_key(&rank));
        for finding in found.iter().filter(is_killed).copied().collect::<Vec<_>>() {
            let words = self.hang_words(now, &finding);
            self.publish_hang(&finding, words, false);
        }
    }
}
