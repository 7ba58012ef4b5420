#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;

fn all(size: u32) -> Vec<u32> {
    (0..size).collect()
}

/// Ranks with their programs, and ordered messages between them.
struct World {
    ranks: Vec<Agreement>,
    /// Frames from rank to rank, first in first out.
    wires: BTreeMap<(u32, u32), VecDeque<AgreementFrame>>,
    /// Requests on their way to each rank.
    events: Vec<VecDeque<Request>>,
    acted: Vec<Vec<(u64, u64)>>,
    /// The episode of each rank's last report of sent messages.
    suspended: Vec<Option<u64>>,
    /// A rank passes a safe point only after its neighbours have passed the one before, as in a
    /// stencil.
    coupled: bool,
}

impl World {
    fn new(size: u32, coupled: bool) -> Self {
        Self {
            ranks: (0..size).map(|r| Agreement::new(r, &all(size), 0, 0)).collect(),
            wires: BTreeMap::new(),
            events: vec![VecDeque::new(); size as usize],
            acted: vec![Vec::new(); size as usize],
            suspended: vec![None; size as usize],
            coupled,
        }
    }

    fn publish(&mut self, request: &Request, heard_by: &[bool]) {
        for (events, heard) in self.events.iter_mut().zip(heard_by) {
            if *heard {
                events.push_back(request.clone());
            }
        }
    }

    fn perform(&mut self, from: u32, outputs: Vec<Output>) {
        for output in outputs {
            if let Output::Send { to, frame } = output {
                self.wires.entry((from, to)).or_default().push_back(frame);
            }
        }
    }

    fn deliver(&mut self, choice: usize) -> bool {
        let ready: Vec<(u32, u32)> = self
            .wires
            .iter()
            .filter(|(_, frames)| !frames.is_empty())
            .map(|(pair, _)| *pair)
            .collect();
        let Some(&(from, to)) = ready.get(choice % ready.len().max(1)) else {
            return false;
        };
        let frame = self.wires.get_mut(&(from, to)).unwrap().pop_front().unwrap();
        let mut outputs = Vec::new();
        self.ranks[to as usize].handle_frame(from, frame, &mut outputs);
        self.perform(to, outputs);
        true
    }

    fn hear(&mut self, rank: usize) -> bool {
        let Some(request) = self.events[rank].pop_front() else {
            return false;
        };
        let mut outputs = Vec::new();
        self.ranks[rank].handle_request(request, &mut outputs);
        self.perform(rank as u32, outputs);
        true
    }

    /// The program of one rank tries to get past its next safe point.
    fn advance(&mut self, rank: usize) -> bool {
        let passed = self.ranks[rank].passed();
        let behind = |other: &Agreement| other.passed() < passed;
        let size = self.ranks.len();
        let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
        if self.coupled && (behind(&self.ranks[left]) || behind(&self.ranks[right])) {
            return false;
        }
        match self.ranks[rank].arrive() {
            Step::Pass => true,
            Step::Wait => false,
            Step::Act(request) if self.suspended[rank] != Some(request.episode) => {
                self.suspended[rank] = Some(request.episode);
                let to = (rank as u32 + 1) % size as u32;
                let mut outputs = Vec::new();
                self.ranks[rank].suspended(vec![(to, passed + 1)], &mut outputs);
                self.perform(rank as u32, outputs);
                true
            }
            Step::Act(request) => {
                let Some(expected) = self.ranks[rank].expected() else {
                    return false;
                };
                let left_rank = (rank + size - 1) % size;
                assert_eq!(
                    expected,
                    &[(left_rank as u32, passed + 1)],
                    "all are at one safe point"
                );
                self.acted[rank].push((request.episode, passed + 1));
                let mut outputs = Vec::new();
                self.ranks[rank].finished(&mut outputs);
                self.perform(rank as u32, outputs);
                true
            }
        }
    }

    /// A step chosen by the number; false if it is impossible.
    fn step(&mut self, choice: usize) -> bool {
        let size = self.ranks.len();
        let which = choice / 3;
        match choice % 3 {
            0 => self.deliver(which),
            1 => self.hear(which % size),
            _ => self.advance(which % size),
        }
    }

    /// Delivers everything, until all ranks have passed this many safe points.
    fn run_out(&mut self, safe_points: u64) {
        for _ in 0..100_000 {
            while self.deliver(0) {}
            let ranks = 0..self.ranks.len();
            let moved = ranks.fold(false, |moved, rank| {
                let heard = self.hear(rank);
                let behind = self.ranks[rank].passed() < safe_points;
                (behind && self.advance(rank)) || heard || moved
            });
            if !moved && self.wires.values().all(VecDeque::is_empty) {
                break;
            }
        }
        let passed: Vec<u64> = self.ranks.iter().map(Agreement::passed).collect();
        assert!(passed.iter().all(|p| *p >= safe_points), "stuck at {passed:?}");
    }
}

fn checkpoint(episode: u64) -> Request {
    Request { episode, kind: RequestKind::Checkpoint { set: format!("s{episode}") } }
}

proptest! {
    /// For every receiver, time and interleaving of a request, all ranks execute it once, at the
    /// same safe point, and none blocks.
    #[test]
    fn all_ranks_act_at_the_same_safe_point_or_none_is_asked(
        size in 1_u32..7,
        coupled in any::<bool>(),
        heard in proptest::collection::vec(proptest::collection::vec(any::<bool>(), 7), 1..4),
        choices in proptest::collection::vec(any::<usize>(), 0..600),
    ) {
        let mut world = World::new(size, coupled);
        let mut expected = Vec::new();
        let pieces = choices.chunks(choices.len() / heard.len() + 1);
        let mut rounds = heard.iter().enumerate();
        for piece in pieces {
            if let Some((index, heard_by)) = rounds.next() {
                let episode = index as u64 + 1;
                let mut heard_by = heard_by[..size as usize].to_vec();
                heard_by[index % size as usize] = true;
                // Twice: every request may be repeated.
                world.publish(&checkpoint(episode), &heard_by);
                world.publish(&checkpoint(episode), &heard_by);
                expected.push(episode);
            }
            for choice in piece {
                world.step(*choice);
            }
        }
        let most = world.ranks.iter().map(Agreement::passed).max().unwrap();
        world.run_out(most + 20);
        for acted in &world.acted {
            prop_assert_eq!(acted, &world.acted[0]);
        }
        let episodes: Vec<u64> = world.acted[0].iter().map(|(episode, _)| *episode).collect();
        // A later request may overtake an earlier one that only a slow rank received: that one is
        // stale then.
        prop_assert!(episodes.is_sorted());
        prop_assert_eq!(episodes.last(), expected.last());
    }
}

#[test]
fn a_rank_that_reported_does_not_pass_the_next_safe_point_without_the_target() {
    let mut outputs = Vec::new();
    let mut rank = Agreement::new(1, &all(2), 0, 0);
    assert_eq!(rank.arrive(), Step::Pass);
    rank.handle_frame(0, AgreementFrame::Begin(checkpoint(1)), &mut outputs);
    let frame = AgreementFrame::Report { episode: 1, passed: 1 };
    assert_eq!(outputs, [Output::Send { to: 0, frame }]);
    assert_eq!(rank.arrive(), Step::Wait);
    let target = AgreementFrame::Target { episode: 1, safe_point: 3 };
    rank.handle_frame(0, target, &mut outputs);
    assert_eq!(rank.arrive(), Step::Pass);
    assert_eq!(rank.arrive(), Step::Act(checkpoint(1)));
}

#[test]
fn a_repeated_request_is_answered_again_and_an_older_one_is_counted() {
    let mut world = World::new(1, false);
    world.ranks[0] = Agreement::new(0, &all(1), 5, 0);
    world.publish(&checkpoint(6), &[true]);
    world.run_out(5);
    assert_eq!(world.acted[0], [(6, 2)]);
    let mut outputs = Vec::new();
    let rank = &mut world.ranks[0];
    rank.handle_request(checkpoint(6), &mut outputs);
    assert_eq!(outputs, [Output::AnswerAgain { episode: 6 }]);
    rank.handle_request(checkpoint(5), &mut outputs);
    assert_eq!(rank.refused().stale, 1);
    assert_eq!(rank.arrive(), Step::Pass);
}

/// Its channels may be suspended as soon as it has the target.
#[test]
fn the_coordinator_learns_the_target_only_when_all_others_know_it() {
    let mut outputs = Vec::new();
    let mut rank = Agreement::new(0, &all(3), 0, 0);
    rank.handle_request(checkpoint(1), &mut outputs);
    rank.handle_frame(0, AgreementFrame::Begin(checkpoint(1)), &mut outputs);
    outputs.clear();
    for from in 0..3 {
        let report = AgreementFrame::Report { episode: 1, passed: 0 };
        rank.handle_frame(from, report, &mut outputs);
    }
    assert_eq!(rank.arrive(), Step::Wait);
    let to = |output: &Output| match output {
        Output::Send { to, .. } => Some(*to),
        _ => None,
    };
    let order: Vec<_> = outputs.iter().map(to).collect();
    assert_eq!(order, [Some(2), Some(1), Some(0)]);
    let Some(Output::Send { frame, .. }) = outputs.pop() else {
        panic!("the last output is for the coordinator");
    };
    rank.handle_frame(0, frame, &mut outputs);
    assert_eq!(rank.arrive(), Step::Act(checkpoint(1)));
}

#[test]
fn the_queue_of_the_coordinator_is_bounded() {
    let mut outputs = Vec::new();
    let mut rank = Agreement::new(0, &all(2), 0, 0);
    for episode in 1..=limits::REQUESTS_MAX as u64 + 3 {
        rank.handle_request(checkpoint(episode), &mut outputs);
    }
    assert_eq!(rank.refused().queue_full, 2);
}

#[test]
fn frames_from_the_wrong_rank_change_nothing() {
    let mut outputs = Vec::new();
    let mut rank = Agreement::new(1, &all(3), 0, 0);
    rank.handle_frame(2, AgreementFrame::Begin(checkpoint(1)), &mut outputs);
    let target = AgreementFrame::Target { episode: 1, safe_point: 1 };
    rank.handle_frame(2, target, &mut outputs);
    assert_eq!((outputs.len(), rank.refused().unexpected), (0, 2));
    assert_eq!(rank.arrive(), Step::Pass);
}

#[test]
fn a_rank_that_waits_for_a_request_acts_at_its_first_safe_point() {
    let mut alone = Agreement::new(0, &all(1), 1, 0);
    assert_eq!(alone.arrive_for_request(), Step::Wait);
    assert_eq!(alone.passed(), 0, "it has not passed");
    let kind = RequestKind::Checkpoint { set: "mem-000002".to_owned() };
    let request = Request { episode: 2, kind };
    let mut outputs = Vec::new();
    alone.handle_request(request.clone(), &mut outputs);
    while let Some(output) = outputs.pop() {
        if let Output::Send { frame, .. } = output {
            alone.handle_frame(0, frame, &mut outputs);
        }
    }
    assert_eq!(alone.arrive_for_request(), Step::Act(request));
}
