//! The export against a server and a second bridge in one thread, from a seed.
#![allow(clippy::unwrap_used)]

use super::*;
use ftb_client::Position;
use ftb_fuzz::random::SplitMix;
use std::collections::VecDeque;

const LOG: u64 = 40;
/// Every third entry of the log is not exported.
const SKIP: u64 = 3;

fn position(index: u64) -> Position {
    format!("1-0:{index}").parse().unwrap()
}

fn message(index: u64) -> Message {
    let id = format!("event {index}");
    let subject = "ftb.test.site.EVENT".to_owned();
    Message { id, subject, body: "{}".into(), position: position(index) }
}

fn is_exported(index: u64) -> bool {
    !index.is_multiple_of(SKIP)
}

/// A stream as the server keeps it.
struct Server {
    messages: Vec<Message>,
    /// Messages behind which the server has forgotten ids.
    remembered: usize,
}

impl Server {
    fn append(&mut self, message: Message, after: u64) -> Input {
        let oldest = self.messages.len().saturating_sub(self.remembered);
        let mut recent = (1..).zip(&self.messages).skip(oldest);
        if let Some((sequence, _)) = recent.find(|(_, other)| other.id == message.id) {
            return Input::Acked { sequence, is_duplicate: true };
        }
        if after != self.messages.len() as u64 {
            return Input::Failed;
        }
        self.messages.push(message);
        Input::Acked { sequence: self.messages.len() as u64, is_duplicate: false }
    }

    fn tail(&self) -> Tail {
        let last = self.messages.last().map(|last| (last.id.clone(), last.position));
        Tail { sequence: self.messages.len() as u64, last }
    }
}

/// A bridge, its subscription and its connection.
struct Bridge {
    export: Export,
    /// The next entry of the log that it reads.
    next: Option<u64>,
    tail_at: Option<u64>,
    /// On the way to the server. A bridge that forgets a message does not call it back.
    sent: VecDeque<(Message, u64, u64)>,
    answers: VecDeque<Input>,
    /// Answers to messages before are for no one.
    generation: u64,
    file: Place,
}

impl Bridge {
    fn new() -> Self {
        Self {
            export: Export::new(Place::default()),
            next: None,
            tail_at: Some(0),
            sent: VecDeque::new(),
            answers: VecDeque::new(),
            generation: 0,
            file: Place::default(),
        }
    }

    fn crash(&mut self) {
        self.export = Export::new(self.file);
        (self.next, self.tail_at) = (None, Some(0));
        self.answers.clear();
        self.generation += 1;
    }

    fn handle(&mut self, now_ms: u64, input: Input) {
        let mut outputs = Vec::new();
        self.export.handle(now_ms, input, &mut outputs);
        for output in outputs {
            match output {
                Output::ReadTail { at_ms } => {
                    self.tail_at = Some(at_ms);
                    self.answers.clear();
                    self.generation += 1;
                }
                Output::Subscribe(after) => {
                    let index = |after: Position| {
                        let text = after.to_string();
                        text.rsplit(':').next().unwrap().parse::<u64>().unwrap()
                    };
                    self.next = Some(after.map_or(0, index) + 1);
                }
                Output::Publish(message, after) => {
                    self.sent.push_back((message, after, self.generation));
                }
            }
        }
    }

    /// One step; `faults`: also a bad one.
    fn step(&mut self, now_ms: &mut u64, server: &mut Server, dice: &mut SplitMix, faults: bool) {
        match dice.below(if faults { 15 } else { 10 }) {
            0..4 => {
                if let Some((message, after, generation)) = self.sent.pop_front() {
                    let answer = server.append(message, after);
                    let is_lost = faults && dice.below(10) == 0;
                    if generation == self.generation && !is_lost {
                        self.answers.push_back(answer);
                    } else if generation == self.generation {
                        self.handle(*now_ms, Input::Failed);
                    }
                }
            }
            4..6 => {
                if let Some(answer) = self.answers.pop_front() {
                    self.handle(*now_ms, answer);
                }
            }
            6..8 => {
                if let Some(index) = self.next.filter(|n| *n <= LOG && self.export.wants_more()) {
                    self.next = Some(index + 1);
                    let message = is_exported(index).then(|| message(index));
                    self.handle(*now_ms, Input::Read(position(index), message));
                }
            }
            8..10 => {
                if let Some(at_ms) = self.tail_at.take() {
                    *now_ms = (*now_ms).max(at_ms);
                    self.handle(*now_ms, Input::Tail(server.tail()));
                }
            }
            10 => self.file = self.export.place(),
            11 => self.crash(),
            12 => self.handle(*now_ms, Input::Failed),
            // The server loses what it has not synced, and the connection.
            13 if dice.below(4) == 0 => {
                // Not all: an empty stream may have been emptied by a person.
                server.messages.truncate(server.messages.len().div_ceil(2));
                self.handle(*now_ms, Input::Reconnected);
            }
            // The connection is lost with what is on the way.
            _ => {
                if !self.sent.is_empty() {
                    self.sent.clear();
                    self.handle(*now_ms, Input::Failed);
                }
            }
        }
    }
}

#[test]
fn each_event_is_in_the_stream_once_and_in_order_whatever_fails() {
    let wanted: Vec<String> =
        (1..=LOG).filter(|index| is_exported(*index)).map(|index| message(index).id).collect();
    for seed in 0..2_000 {
        let mut dice = SplitMix(seed);
        let remembered = dice.below(6) as usize;
        let mut server = Server { messages: Vec::new(), remembered };
        let mut bridges = [Bridge::new(), Bridge::new()];
        let mut now_ms = 0;
        let is_alone = seed % 2 == 0;
        for step in 0_u64.. {
            let which = if is_alone { 0 } else { dice.below(2) as usize };
            if step == 400 {
                bridges.iter_mut().for_each(|bridge| bridge.handle(now_ms, Input::Reconnected));
            }
            bridges[which].step(&mut now_ms, &mut server, &mut dice, step < 400);
            if server.messages.len() == wanted.len() && step > 600 {
                break;
            }
            assert!(
                step < 100_000,
                "seed {seed}: {:?}\n{:?} {:?} {:?}",
                server.messages.iter().map(|m| &m.id).collect::<Vec<_>>(),
                bridges[0].export,
                (bridges[0].next, bridges[0].tail_at),
                (&bridges[0].sent, &bridges[0].answers)
            );
        }
        let found: Vec<&String> = server.messages.iter().map(|message| &message.id).collect();
        assert_eq!(found, wanted.iter().collect::<Vec<_>>(), "seed {seed}");
    }
}

/// A bridge that has the end of the stream, and the outputs since.
fn sending(tail: Tail, saved: Place) -> (Export, Vec<Output>) {
    let (mut export, mut outputs) = (Export::new(saved), Vec::new());
    export.handle(0, Input::Tail(tail), &mut outputs);
    (export, outputs)
}

#[test]
fn skipped_events_count_only_while_the_stream_is_as_the_file_says() {
    let saved = Place { sequence: 7, position: Some(position(90)) };
    let tail = |sequence| Tail { sequence, last: Some(("event 50".to_owned(), position(50))) };
    assert_eq!(sending(tail(7), saved).1, [Output::Subscribe(Some(position(90)))]);
    assert_eq!(sending(tail(6), saved).1, [Output::Subscribe(Some(position(50)))], "lost");
    assert_eq!(sending(tail(8), saved).1, [Output::Subscribe(Some(position(50)))], "written");
    let empty = Tail { sequence: 0, last: None };
    assert_eq!(sending(empty.clone(), saved).1, [Output::Subscribe(Some(position(90)))]);
    assert_eq!(sending(empty, Place::default()).1, [Output::Subscribe(None)]);
}

#[test]
fn a_position_counts_only_after_its_acknowledgement() {
    let (mut export, mut out) = sending(Tail { sequence: 0, last: None }, Place::default());
    export.handle(1, Input::Read(position(1), Some(message(1))), &mut out);
    export.handle(1, Input::Read(position(2), None), &mut out);
    assert_eq!(export.place(), Place { sequence: 0, position: None });
    export.handle(1, Input::Acked { sequence: 1, is_duplicate: false }, &mut out);
    assert_eq!(export.place(), Place { sequence: 1, position: Some(position(2)) });
    let text = serde_json::to_string(&export.place()).unwrap();
    assert_eq!(serde_json::from_str::<Place>(&text).unwrap(), export.place());
}

#[test]
fn a_full_window_stops_the_reading_and_failures_slow_it_down() {
    let (mut export, mut out) = sending(Tail { sequence: 0, last: None }, Place::default());
    for index in 1..=WINDOW_MAX as u64 {
        assert!(export.wants_more());
        export.handle(1, Input::Read(position(index), Some(message(index))), &mut out);
    }
    assert!(!export.wants_more());
    let mut pauses = Vec::new();
    for _ in 0..8 {
        out.clear();
        export.handle(0, Input::Failed, &mut out);
        let [Output::ReadTail { at_ms }] = out[..] else { panic!("{out:?}") };
        pauses.push(at_ms);
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    out.clear();
    export.handle(0, Input::Tail(Tail { sequence: 0, last: None }), &mut out);
    assert_eq!(out.len(), WINDOW_MAX, "all are sent again");
}

#[test]
fn a_bridge_that_meets_another_stands_by_until_the_stream_rests() {
    let (mut export, mut out) = sending(Tail { sequence: 0, last: None }, Place::default());
    export.handle(1, Input::Read(position(1), Some(message(1))), &mut out);
    export.handle(1, Input::Failed, &mut out);
    let other = |sequence| Tail { sequence, last: Some(("other".to_owned(), position(9))) };
    for sequence in [1, 2] {
        out.clear();
        export.handle(10, Input::Tail(other(sequence)), &mut out);
        assert_eq!(out, [Output::ReadTail { at_ms: 10 + STANDBY_MS }]);
        assert!(!export.is_sending() && !export.wants_more());
    }
    out.clear();
    export.handle(20, Input::Tail(other(2)), &mut out);
    assert_eq!(out, [Output::Subscribe(Some(position(9)))]);
    assert!(export.is_sending());
}

#[test]
fn a_bridge_on_standby_forgets_where_its_own_export_was() {
    let tail = |sequence, index| Tail { sequence, last: Some(("x".to_owned(), position(index))) };
    let saved = Place { sequence: 7, position: Some(position(90)) };
    let (mut export, mut out) = sending(tail(7, 80), saved);
    export.handle(1, Input::Failed, &mut out);
    // Another bridge has written; then the server loses messages, and the other writes others.
    export.handle(2, Input::Tail(tail(9, 95)), &mut out);
    assert_eq!(export.place(), Place { sequence: 9, position: Some(position(95)) });
    out.clear();
    for _ in 0..2 {
        export.handle(3, Input::Tail(tail(7, 85)), &mut out);
    }
    let standby = Output::ReadTail { at_ms: 3 + STANDBY_MS };
    assert_eq!(out, [standby, Output::Subscribe(Some(position(85)))]);
}

#[test]
fn an_event_that_is_further_back_in_the_stream_is_left_out() {
    let (mut export, mut out) = sending(Tail { sequence: 5, last: None }, Place::default());
    for index in [1, 2] {
        export.handle(1, Input::Read(position(index), Some(message(index))), &mut out);
    }
    export.handle(1, Input::Acked { sequence: 3, is_duplicate: true }, &mut out);
    out.clear();
    let tail = Tail { sequence: 5, last: Some(("event 0".to_owned(), position(0))) };
    export.handle(1, Input::Tail(tail), &mut out);
    assert_eq!(out, [Output::Publish(message(2), 5)]);
}
