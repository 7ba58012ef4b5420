//! The agreement of all ranks on one safe point, without a rank that waits inside the program's
//! communication for another that has stopped.
//!
//! All ranks pass the same number of safe points. A request reaches them at different times, so
//! they agree on the number of the safe point at which all act:
//!
//! - A rank that receives a request reports it to rank 0, the coordinator
//!   ([`AgreementFrame::Hint`]). One rank is enough, and all ranks see requests in one order.
//! - Rank 0 begins a round ([`AgreementFrame::Begin`]). Each rank reports how many safe points it
//!   has passed ([`AgreementFrame::Report`]), and promises to stop at the next one until it knows
//!   the target.
//! - The target is the highest report plus one ([`AgreementFrame::Target`]). The promise ensures
//!   that no rank has passed it. Rank 0 sends the target to itself last: it could otherwise close
//!   its channels before the others have it.
//! - A rank at the target sends no more messages and reports how many it has sent to each rank
//!   ([`AgreementFrame::Sent`]). Then rank 0 sends each rank how many must arrive
//!   ([`AgreementFrame::Expect`]): after that nothing is in flight.
//!
//! Helper threads send reports and targets, so the target always comes. This is the thesis' Request
//! To Checkpoint. A rank at the target is outside every collective operation and thereby Clear To
//! Checkpoint (section 2.3.3).
//!
//! Pure: no I/O, threads or clock. Not responsible for the actions at the safe point.

use crate::limits;
use crate::request::{Request, RequestKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// The frames of the agreement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum AgreementFrame {
    /// To rank 0: a request of the launcher.
    Hint(Request),
    /// From rank 0: report your position and stop at the next safe point.
    Begin(Request),
    /// To rank 0: the number of passed safe points.
    Report { episode: u64, passed: u64 },
    /// From rank 0: act at this safe point.
    Target { episode: u64, safe_point: u64 },
    /// To rank 0: messages sent to each other rank in the job's life; zeros are left out.
    Sent { episode: u64, counts: Counts },
    /// From rank 0: messages sent to this rank.
    Expect { episode: u64, counts: Counts },
}

/// Messages by rank.
pub(crate) type Counts = Vec<(u32, u64)>;

/// An output for the owner of the agreement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Send a frame. A frame to this rank comes back through [`Agreement::handle_frame`], after the
    /// earlier outputs.
    Send { to: u32, frame: AgreementFrame },
    /// Wake a program that waits at a safe point.
    Wake,
    /// Repeat the answer to this episode, the last one that was done.
    AnswerAgain { episode: u64 },
}

/// The next action of a program at a safe point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Pass,
    /// Wait for [`Output::Wake`] and ask again.
    Wait,
    /// Execute the request, then call [`Agreement::finished`].
    Act(Request),
}

/// Refused requests and frames, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Refused {
    /// Of a closed or older episode.
    pub stale: u64,
    /// Over [`limits::REQUESTS_MAX`].
    pub queue_full: u64,
    /// From a rank that must not send it.
    pub unexpected: u64,
}

#[derive(Debug)]
struct Round {
    request: Request,
    target: Option<u64>,
    expected: Option<Counts>,
}

/// One rank's side of the agreement, and on rank 0 the coordinator.
#[derive(Debug)]
pub(crate) struct Agreement {
    rank: u32,
    /// The ranks of the job, ascending.
    members: Vec<u32>,
    passed: u64,
    open: Option<Round>,
    /// A round that rank 0 began while this rank was busy with the one before. At most one: the
    /// next round needs this rank's report.
    next: Option<Request>,
    /// The highest episode that was begun or executed here.
    seen: u64,
    aborted: u64,
    answered: u64,
    /// Rank 0: the open round.
    leading: Option<u64>,
    /// Rank 0: the reports.
    reports: BTreeMap<u32, u64>,
    /// Rank 0: the sent messages.
    sent: BTreeMap<u32, Counts>,
    /// Rank 0: the waiting requests.
    queue: VecDeque<Request>,
    refused: Refused,
}

impl Agreement {
    /// `episode` started this process; it and all earlier ones are closed. `passed` is not 0 after
    /// a restore.
    pub(crate) fn new(rank: u32, members: &[u32], episode: u64, passed: u64) -> Self {
        Self {
            rank,
            members: members.to_vec(),
            passed,
            open: None,
            next: None,
            seen: episode,
            aborted: 0,
            answered: 0,
            leading: None,
            reports: BTreeMap::new(),
            sent: BTreeMap::new(),
            queue: VecDeque::new(),
            refused: Refused::default(),
        }
    }

    /// Safe points passed.
    pub(crate) fn passed(&self) -> u64 {
        self.passed
    }

    /// What was refused so far.
    pub(crate) fn refused(&self) -> Refused {
        self.refused
    }

    /// Whether the launcher has cancelled the leaving of this episode.
    pub(crate) fn is_aborted(&self, episode: u64) -> bool {
        self.aborted >= episode
    }

    /// The open requests that will not be executed, because the program ends.
    pub(crate) fn abandon(&mut self) -> Vec<Request> {
        let open = self.open.take().map(|round| round.request);
        open.into_iter().chain(self.next.take()).collect()
    }

    /// A request of the launcher.
    pub(crate) fn handle_request(&mut self, request: Request, outputs: &mut Vec<Output>) {
        let episode = request.episode;
        if request.kind == RequestKind::Abort {
            self.aborted = self.aborted.max(episode);
        } else if self.is_known(episode) {
            if self.answered == episode {
                outputs.push(Output::AnswerAgain { episode });
            }
        } else if self.leads() {
            self.enqueue(request, outputs);
        } else if episode <= self.seen {
            self.refused.stale += 1;
        } else {
            let frame = AgreementFrame::Hint(request);
            outputs.push(Output::Send { to: self.coordinator(), frame });
        }
    }

    /// A frame of another rank.
    pub(crate) fn handle_frame(
        &mut self,
        from: u32,
        frame: AgreementFrame,
        outputs: &mut Vec<Output>,
    ) {
        match frame {
            AgreementFrame::Hint(request) if self.leads() => {
                if !self.is_known(request.episode) {
                    self.enqueue(request, outputs);
                }
            }
            AgreementFrame::Begin(request) if from == self.coordinator() => {
                self.begin(request, outputs)
            }
            AgreementFrame::Report { episode, passed } if self.leads() && self.has(from) => {
                self.report(from, episode, passed, outputs);
            }
            AgreementFrame::Target { episode, safe_point } if from == self.coordinator() => {
                self.target(episode, safe_point, outputs)
            }
            AgreementFrame::Sent { episode, counts } if self.leads() && self.has(from) => {
                self.sent(from, episode, counts, outputs);
            }
            AgreementFrame::Expect { episode, counts } if from == self.coordinator() => {
                self.expect(episode, counts, outputs);
            }
            _ => self.refused.unexpected += 1,
        }
    }

    /// As [`Agreement::arrive`], but the program waits there for a request.
    pub(crate) fn arrive_for_request(&mut self) -> Step {
        if self.open.is_none() { Step::Wait } else { self.arrive() }
    }

    /// The program has reached its next safe point.
    pub(crate) fn arrive(&mut self) -> Step {
        let here = self.passed + 1;
        match &self.open {
            Some(Round { target: None, .. }) => Step::Wait,
            Some(Round { request, target: Some(target), .. }) if *target == here => {
                Step::Act(request.clone())
            }
            _ => {
                self.passed = here;
                Step::Pass
            }
        }
    }

    /// The rank is at the target and sends no more messages; these are its counts.
    pub(crate) fn suspended(&self, counts: Counts, outputs: &mut Vec<Output>) {
        if let Some(Round { request: Request { episode, .. }, .. }) = self.open {
            let to = self.coordinator();
            outputs.push(Output::Send { to, frame: AgreementFrame::Sent { episode, counts } });
        }
    }

    /// The messages that must arrive, once known.
    pub(crate) fn expected(&self) -> Option<&Counts> {
        self.open.as_ref()?.expected.as_ref()
    }

    /// The request is executed, successfully or not: the safe point is passed.
    pub(crate) fn finished(&mut self, outputs: &mut Vec<Output>) {
        let Some(round) = self.open.take() else {
            return;
        };
        self.passed += 1;
        self.answered = round.request.episode;
        self.leading = None;
        if let Some(request) = self.next.take() {
            self.begin(request, outputs);
        }
        self.begin_queued(outputs);
    }

    /// The lowest rank that is left; rank 0 in the words of this page.
    fn coordinator(&self) -> u32 {
        self.members.first().copied().unwrap_or(0)
    }

    fn leads(&self) -> bool {
        self.rank == self.coordinator()
    }

    fn has(&self, rank: u32) -> bool {
        self.members.binary_search(&rank).is_ok()
    }

    fn is_known(&self, episode: u64) -> bool {
        let is_open = |round: &Round| round.request.episode == episode;
        self.answered == episode
            || self.leading == Some(episode)
            || self.open.as_ref().is_some_and(is_open)
            || self.next.as_ref().is_some_and(|next| next.episode == episode)
            || self.queue.iter().any(|queued| queued.episode == episode)
    }

    fn enqueue(&mut self, request: Request, outputs: &mut Vec<Output>) {
        let last = self.queue.back().map(|last| last.episode);
        let newest = last.or(self.leading).unwrap_or(self.seen);
        if request.episode <= newest {
            self.refused.stale += 1;
        } else if self.queue.len() >= limits::REQUESTS_MAX {
            self.refused.queue_full += 1;
        } else {
            self.queue.push_back(request);
            self.begin_queued(outputs);
        }
    }

    fn begin_queued(&mut self, outputs: &mut Vec<Output>) {
        if self.leading.is_some() {
            return;
        }
        let Some(request) = self.queue.pop_front() else {
            return;
        };
        self.leading = Some(request.episode);
        self.reports.clear();
        self.sent.clear();
        self.send_to_all(&AgreementFrame::Begin(request), outputs);
    }

    fn send_to_all(&self, frame: &AgreementFrame, outputs: &mut Vec<Output>) {
        let this_rank_last = self.members.iter().rev();
        outputs.extend(this_rank_last.map(|to| Output::Send { to: *to, frame: frame.clone() }));
    }

    fn begin(&mut self, request: Request, outputs: &mut Vec<Output>) {
        let episode = request.episode;
        if self.open.is_some() {
            self.next = Some(request);
            return;
        }
        if episode <= self.seen {
            self.refused.stale += 1;
            return;
        }
        self.seen = episode;
        self.open = Some(Round { request, target: None, expected: None });
        let passed = self.passed;
        let frame = AgreementFrame::Report { episode, passed };
        outputs.push(Output::Send { to: self.coordinator(), frame });
    }

    fn report(&mut self, from: u32, episode: u64, passed: u64, outputs: &mut Vec<Output>) {
        let is_complete = self.reports.len() == self.members.len();
        if self.leading != Some(episode) || is_complete {
            self.refused.stale += 1;
            return;
        }
        self.reports.insert(from, passed);
        if self.reports.len() == self.members.len() {
            let safe_point = self.reports.values().max().map_or(0, |most| most + 1);
            self.send_to_all(&AgreementFrame::Target { episode, safe_point }, outputs);
        }
    }

    fn target(&mut self, episode: u64, safe_point: u64, outputs: &mut Vec<Output>) {
        match &mut self.open {
            Some(round) if round.request.episode == episode => {
                round.target = Some(safe_point);
                outputs.push(Output::Wake);
            }
            _ => self.refused.stale += 1,
        }
    }

    fn sent(&mut self, from: u32, episode: u64, counts: Counts, outputs: &mut Vec<Output>) {
        if self.leading != Some(episode) || self.sent.len() == self.members.len() {
            self.refused.stale += 1;
            return;
        }
        self.sent.insert(from, counts);
        if self.sent.len() < self.members.len() {
            return;
        }
        let mut expected: BTreeMap<u32, Counts> = BTreeMap::new();
        for (from, counts) in &self.sent {
            for (to, count) in counts {
                expected.entry(*to).or_default().push((*from, *count));
            }
        }
        // Itself last: it may then close the channels of the answers.
        outputs.extend(self.members.iter().rev().map(|to| {
            let to = *to;
            let counts = expected.remove(&to).unwrap_or_default();
            Output::Send { to, frame: AgreementFrame::Expect { episode, counts } }
        }));
    }

    fn expect(&mut self, episode: u64, counts: Counts, outputs: &mut Vec<Output>) {
        match &mut self.open {
            Some(round) if round.request.episode == episode => {
                round.expected = Some(counts);
                outputs.push(Output::Wake);
            }
            _ => self.refused.stale += 1,
        }
    }
}

#[cfg(test)]
mod tests;
