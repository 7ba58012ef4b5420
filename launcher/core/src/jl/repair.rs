//! A job that goes on without dead ranks ([`OnDeath::Continue`]): no rank goes back or is started
//! again. The launcher tells the others who is dead, and decides what they call
//! ([`crate::repair`]).

use super::job::Job;
use super::{Jl, JlOutput, OnDeath};
use crate::message::{ExitCause, FromJl, HangNotice, HungRank, Protocol};
use crate::names::Ranks;
use crate::progress::HangKind;
use crate::repair::{RepairCall, RepairInput};
use core::ops::RangeInclusive;
use ftb_core::Now;

/// Exit codes by which a shell shows the end of its program by a signal.
const SIGNAL_CODES: RangeInclusive<i32> = 129..=159;
/// How the ranks of a lost node have ended. Their node may return, they do not.
const WITH_ITS_NODE: ExitCause = ExitCause::Signal(9);

fn dead(job: &Job) -> Ranks {
    job.rows().filter(|(rank, _)| job.has_died(*rank)).map(|(rank, _)| rank).collect()
}

/// The code of a rank that has given up, if one has.
fn given_up(job: &Job) -> Option<i32> {
    job.rows().find_map(|(_, row)| match row.ended {
        Some(ExitCause::Exit(code)) if code != 0 && !SIGNAL_CODES.contains(&code) => Some(code),
        _ => None,
    })
}

/// Why the others cannot go on without a rank that dies now.
fn needs_all(job: &Job) -> Option<&'static str> {
    let joined = |(_, row): (u32, &super::Rank)| row.protocol == Protocol::FtbJob;
    match job.met {
        false => Some("not all ranks have joined ftb-job yet"),
        true if !job.rows().all(joined) => Some("the program does not use ftb-job"),
        true => None,
    }
}

impl Jl {
    /// A rank or a node with ranks has died: the others go on, if they can.
    pub(super) fn go_on(&mut self, now: Now, code: i32, reason: &str) {
        self.killed.clear();
        if let Some(code) = given_up(&self.job) {
            return self.end(now, code, reason);
        }
        if let Some(why) = needs_all(&self.job) {
            return self.end(now, code, &format!("{reason}; {why}"));
        }
        if dead(&self.job).len() < self.job.count() {
            self.job.tell(format!("{reason}: the others go on without it"));
        }
        self.job.out.push(JlOutput::Save);
        self.count_dead(now, code, false);
    }

    /// A rank has come to its end. At the end of a job all do: only decisions are published.
    pub(super) fn leave(&mut self, now: Now) {
        self.count_dead(now, 0, true);
    }

    /// Ends a job without a living rank: with code 0 if one has ended well, else with `code`.
    fn count_dead(&mut self, now: Now, code: i32, is_quiet: bool) {
        let dead = dead(&self.job);
        for rank in dead.iter() {
            if let Some(row) = self.job.ranks.get_mut(rank as usize) {
                row.ended.get_or_insert(WITH_ITS_NODE);
            }
        }
        let all = self.job.count();
        if dead.len() == all {
            let ended = |row: &super::Rank| row.ended == Some(ExitCause::Exit(0));
            let well = self.job.rows().filter(|(_, row)| ended(row)).count();
            let code = if well > 0 { 0 } else { code };
            return self.end(now, code, &format!("{well} of {all} ranks have ended well"));
        }
        self.repair(RepairInput::Dead(dead), is_quiet);
    }

    pub(super) fn on_repair(&mut self, rank: u32, call: &RepairCall) {
        let is_off = self.job.config.on_death != OnDeath::Continue || self.ends();
        let exists = |last: &u32| (*last as usize) < self.job.ranks.len();
        let fits = call.members.0.last().is_some_and(exists);
        if is_off || !fits || self.job.has_died(rank) {
            self.job.refused += 1;
            return;
        }
        self.repair(RepairInput::Call { rank, call: call.clone() }, false);
    }

    fn repair(&mut self, input: RepairInput, is_quiet: bool) {
        let mut out = Vec::new();
        self.repairs.handle(input, &mut out);
        let episode = self.job.episode;
        out.retain(|output| !is_quiet || output.news.decided.is_some());
        for output in out {
            if output.is_new {
                self.job.out.push(JlOutput::Save);
            }
            self.job.publish(FromJl::Repair { episode, news: output.news });
        }
        self.kill_cut_off();
    }

    /// Its node kills the rank, and its death decides the shrink that waits. The callers repeat
    /// their calls, so the order is repeated too.
    fn kill_cut_off(&mut self) {
        let Some(rank) = self.repairs.cut_off() else { return };
        let Some(row) = self.job.ranks.get(rank as usize) else { return };
        let (node, incarnation, episode) = (row.node.clone(), row.incarnation, self.job.episode);
        let words = format!(
            "rank {rank} on {node} lives, but its links to others are broken: it is killed, so \
             that they can go on"
        );
        let of = Some(HungRank { node, rank, incarnation, pid: 0 });
        let (kind, is_over, kill) = (HangKind::Peers, false, true);
        self.job.publish(FromJl::Hang(HangNotice {
            episode,
            rank: of,
            kind,
            is_over,
            kill,
            words,
        }));
    }

    /// Ranks may have missed it.
    pub(super) fn repeat_repairs(&mut self) {
        let episode = self.job.episode;
        if let Some(news) = self.repairs.news().filter(|_| !self.ends()) {
            self.job.publish(FromJl::Repair { episode, news });
        }
    }
}
