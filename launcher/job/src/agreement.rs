//! The safe point that all ranks act at: agreed without any rank waiting inside the program's own
//! communication for one that has already stopped.
//!
//! A program passes safe points, the same number on every rank. A request reaches the ranks at
//! different times, so they agree on the number of the safe point at which all of them act:
//!
//! 1. Whoever hears a request tells rank 0, the coordinator ([`Frame::Hint`]). So one rank that hears is
//!    enough, and all ranks see requests in one order.
//! 2. Rank 0 begins a round ([`Frame::Begin`]). Each rank reports how many safe points it has passed
//!    ([`Frame::Report`]), and by that promises to stop at the next one until it knows the target.
//! 3. The target is the highest report plus one ([`Frame::Target`]): nobody has passed it, because of
//!    the promise, and nobody that stopped short of it stops there.
//!
//! Rank 0 says all this to itself too, last of all: did it know earlier, it could have acted, and torn its channels
//! down, before the others are told.
//!
//! 4. A rank that stands at the target sends nothing more, and says how much it has sent to each other rank
//!    ([`Frame::Sent`]). When rank 0 has heard all, each rank learns how much must have come to it
//!    ([`Frame::Expect`]): with that nothing is in flight, whoever is connected to whom.
//!
//! Reports and targets are sent by helper threads and depend on nothing that the program does, so the
//! target always comes. This is the thesis' Request To Checkpoint; a rank that stands at the target is
//! outside of every collective operation and thereby Clear To Checkpoint (section 2.3.3).
//!
//! Pure: no I/O, no threads, no clock. Not responsible for what is done at the safe point.

use crate::limits;
use crate::request::{Request, RequestKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// What ranks say to each other to agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Frame {
    /// To rank 0: the launcher wants this.
    Hint(Request),
    /// From rank 0: say where you are, and stop at the next safe point.
    Begin(Request),
    /// To rank 0: so many safe points passed.
    Report { episode: u64, passed: u64 },
    /// From rank 0: act when this safe point is reached.
    Target { episode: u64, safe_point: u64 },
    /// To rank 0: so many messages this rank has sent to each other, in the job's life; those with none are left out.
    Sent { episode: u64, counts: Counts },
    /// From rank 0: so many have been sent to this rank.
    Expect { episode: u64, counts: Counts },
}

/// Messages by the rank that they went to, or came from.
pub(crate) type Counts = Vec<(u32, u64)>;

/// What the owner of the agreement must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Send a frame; one to this rank itself comes back by [`Agreement::handle_frame`], behind what
    /// was to be done before it.
    Send { to: u32, frame: Frame },
    /// Wake a program that waits at a safe point.
    Wake,
    /// Say once more what was answered to this episode, the last one that was done.
    AnswerAgain { episode: u64 },
}

/// What a program that has come to a safe point does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Go on.
    Pass,
    /// Wait for [`Output::Wake`] and ask again.
    Wait,
    /// Do what the request says, then call [`Agreement::finished`].
    Act(Request),
}

/// Why requests and frames came to nothing, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Refused {
    /// Of an episode that is closed or older than one seen.
    pub stale: u64,
    /// Over [`limits::REQUESTS_MAX`].
    pub queue_full: u64,
    /// From a rank that must not say that.
    pub unexpected: u64,
}

#[derive(Debug)]
struct Round {
    request: Request,
    target: Option<u64>,
    expected: Option<Counts>,
}

/// One rank's side of the agreement; on rank 0 the coordinator's too.
#[derive(Debug)]
pub(crate) struct Agreement {
    rank: u32,
    size: u32,
    passed: u64,
    open: Option<Round>,
    /// Begun by rank 0 while this rank was still busy with the round before. There is at most one,
    /// since the round after it needs this rank's report first.
    next: Option<Request>,
    /// The highest episode that was acted upon or begun here.
    seen: u64,
    aborted: u64,
    answered: u64,
    /// Rank 0: the round that is going on, from its begin to its end here.
    leading: Option<u64>,
    /// Rank 0: who has said what in it.
    reports: BTreeMap<u32, u64>,
    /// Rank 0: how much each has sent to whom.
    sent: BTreeMap<u32, Counts>,
    /// Rank 0: the requests behind it.
    queue: VecDeque<Request>,
    refused: Refused,
}

impl Agreement {
    /// `episode` is the one that started this process: it and all before it are closed. `passed` is not
    /// 0 where the process was started from an image.
    pub(crate) fn new(rank: u32, size: u32, episode: u64, passed: u64) -> Self {
        Self {
            rank,
            size,
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

    /// Whether the launcher has taken back that ranks leave in this episode.
    pub(crate) fn is_aborted(&self, episode: u64) -> bool {
        self.aborted >= episode
    }

    /// The requests that are open and will not be acted upon, because the program ends.
    pub(crate) fn abandon(&mut self) -> Vec<Request> {
        let open = self.open.take().map(|round| round.request);
        open.into_iter().chain(self.next.take()).collect()
    }

    /// The launcher has said something.
    pub(crate) fn handle_request(&mut self, request: Request, outputs: &mut Vec<Output>) {
        let episode = request.episode;
        if request.kind == RequestKind::Abort {
            self.aborted = self.aborted.max(episode);
        } else if self.is_known(episode) {
            if self.answered == episode {
                outputs.push(Output::AnswerAgain { episode });
            }
        } else if self.rank == 0 {
            self.enqueue(request, outputs);
        } else if episode <= self.seen {
            self.refused.stale += 1;
        } else {
            let frame = Frame::Hint(request);
            outputs.push(Output::Send { to: 0, frame });
        }
    }

    /// Another rank has said something.
    pub(crate) fn handle_frame(&mut self, from: u32, frame: Frame, outputs: &mut Vec<Output>) {
        match frame {
            Frame::Hint(request) if self.rank == 0 => {
                if !self.is_known(request.episode) {
                    self.enqueue(request, outputs);
                }
            }
            Frame::Begin(request) if from == 0 => self.begin(request, outputs),
            Frame::Report { episode, passed } if self.rank == 0 && from < self.size => {
                self.report(from, episode, passed, outputs);
            }
            Frame::Target { episode, safe_point } if from == 0 => {
                self.target(episode, safe_point, outputs)
            }
            Frame::Sent { episode, counts } if self.rank == 0 && from < self.size => {
                self.sent(from, episode, counts, outputs);
            }
            Frame::Expect { episode, counts } if from == 0 => {
                self.expect(episode, counts, outputs);
            }
            _ => self.refused.unexpected += 1,
        }
    }

    /// The program has come to its next safe point.
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

    /// The rank stands at the target and sends nothing more: so much it has sent to the others.
    pub(crate) fn suspended(&self, counts: Counts, outputs: &mut Vec<Output>) {
        if let Some(Round { request: Request { episode, .. }, .. }) = self.open {
            outputs.push(Output::Send { to: 0, frame: Frame::Sent { episode, counts } });
        }
    }

    /// How much must have come from the others, when that is known.
    pub(crate) fn expected(&self) -> Option<&Counts> {
        self.open.as_ref()?.expected.as_ref()
    }

    /// What the request asked for is done, well or not: the safe point is passed.
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
        self.send_to_all(&Frame::Begin(request), outputs);
    }

    fn send_to_all(&self, frame: &Frame, outputs: &mut Vec<Output>) {
        let this_rank_last = (0..self.size).rev();
        outputs.extend(this_rank_last.map(|to| Output::Send { to, frame: frame.clone() }));
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
        let frame = Frame::Report { episode, passed };
        outputs.push(Output::Send { to: 0, frame });
    }

    fn report(&mut self, from: u32, episode: u64, passed: u64, outputs: &mut Vec<Output>) {
        let is_complete = self.reports.len() == self.size as usize;
        if self.leading != Some(episode) || is_complete {
            self.refused.stale += 1;
            return;
        }
        self.reports.insert(from, passed);
        if self.reports.len() == self.size as usize {
            let safe_point = self.reports.values().max().map_or(0, |most| most + 1);
            self.send_to_all(&Frame::Target { episode, safe_point }, outputs);
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
        if self.leading != Some(episode) || self.sent.len() == self.size as usize {
            self.refused.stale += 1;
            return;
        }
        self.sent.insert(from, counts);
        if self.sent.len() < self.size as usize {
            return;
        }
        let mut expected: BTreeMap<u32, Counts> = BTreeMap::new();
        for (from, counts) in &self.sent {
            for (to, count) in counts {
                expected.entry(*to).or_default().push((*from, *count));
            }
        }
        // Itself last: it may then close what the others' answers go through.
        outputs.extend((0..self.size).rev().map(|to| {
            let counts = expected.remove(&to).unwrap_or_default();
            Output::Send { to, frame: Frame::Expect { episode, counts } }
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
