//! What a rank has received before its loop began. A process that replaces it runs the program from
//! its beginning, where no other rank sends anything again: its receives have the same results from
//! this log, and what it sends goes nowhere. Pure.

use super::FmiError;
use super::receives::Received;
use crate::frame::array;
use crate::limits;
use std::collections::BTreeMap;

/// Number, sender, tag, length.
const HEADER_BYTES: usize = 24;
/// The numbers of polls in the log; those of receives are below it.
const POLLS: u64 = 1 << 63;
/// Here the log has the number of all polls before the loop, if there were any.
const ALL_POLLS: u64 = u64::MAX;

/// What the program does when it runs again is not what the log has.
pub(super) fn differs() -> FmiError {
    FmiError::Invalid(
        "before its loop this process does not receive what the one that it replaces has \
         received: a program must do the same there at every start"
            .to_owned(),
    )
}

/// A number of polls as the log has it.
fn as_sender(polls: u64) -> u32 {
    u32::try_from(polls).unwrap_or(u32::MAX)
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Prologue {
    stage: LogStage,
    bytes: usize,
    /// By the number of the receive; behind [`POLLS`] which receive a poll has found ready, as the
    /// sender of an empty message. Kept for the images when the loop has begun.
    log: BTreeMap<u64, Received>,
    /// Until now; a poll that found nothing is not in the log.
    polls: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LogStage {
    #[default]
    Recording,
    Replaying,
    Over,
}

impl Prologue {
    /// Begins to replay this log.
    pub(super) fn replay(encoded: &[u8]) -> Option<Self> {
        let mut prologue = Self::decode(encoded)?;
        prologue.stage = LogStage::Replaying;
        Some(prologue)
    }

    /// Records nothing.
    pub(super) fn over() -> Self {
        Self { stage: LogStage::Over, ..Self::default() }
    }

    /// Begins to replay the log of this process.
    pub(super) fn replay_again(&mut self, polls: u64) {
        self.stage = LogStage::Replaying;
        self.polls = polls;
    }

    /// The number of polls until now.
    pub(super) fn polls(&self) -> u64 {
        self.polls
    }

    /// The program has asked which of some receives is ready.
    pub(super) fn poll(&mut self, ready: Option<usize>) {
        self.polls += 1;
        // At most as many as receives may wait.
        if let Some(from) = ready.and_then(|at| u32::try_from(at).ok()) {
            self.record(POLLS | self.polls, &Received { from, tag: 0, payload: Vec::new() });
        }
    }

    /// What that poll has found in the process that this one replaces. Fails if there was no such
    /// poll: else a program that asks until something is ready would ask for ever.
    pub(super) fn polled(&mut self) -> Result<Option<usize>, FmiError> {
        self.polls += 1;
        if self.log.get(&ALL_POLLS).is_some_and(|all| as_sender(self.polls) > all.from) {
            return Err(differs());
        }
        Ok(self.log.get(&(POLLS | self.polls)).map(|ready| ready.from as usize))
    }

    pub(super) fn is_replaying(&self) -> bool {
        self.stage == LogStage::Replaying
    }

    /// The receive with this number has taken a message.
    pub(super) fn record(&mut self, number: u64, received: &Received) {
        if self.stage == LogStage::Recording {
            self.bytes += HEADER_BYTES + received.payload.len();
            if self.bytes <= limits::PROLOGUE_BYTES_MAX {
                self.log.insert(number, received.clone());
            }
        }
    }

    /// What the receive with this number took in the process that this one replaces.
    pub(super) fn recorded(&self, number: u64) -> Result<Received, FmiError> {
        self.log.get(&number).cloned().ok_or_else(differs)
    }

    /// The loop begins.
    pub(super) fn end(&mut self) -> Result<(), FmiError> {
        if self.stage == LogStage::Recording && self.bytes > limits::PROLOGUE_BYTES_MAX {
            let (bytes, max) = (self.bytes, limits::PROLOGUE_BYTES_MAX);
            return Err(FmiError::Full(format!(
                "{bytes} bytes were received before the loop, and {max} can be kept for a process \
                 that replaces this one: receive them in the loop, or read them from a file"
            )));
        }
        if self.stage == LogStage::Recording && self.polls > 0 {
            let all = Received { from: as_sender(self.polls), tag: 0, payload: Vec::new() };
            self.log.insert(ALL_POLLS, all);
        }
        self.stage = LogStage::Over;
        Ok(())
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes);
        for (number, Received { from, tag, payload }) in &self.log {
            bytes.extend_from_slice(&number.to_le_bytes());
            bytes.extend_from_slice(&from.to_le_bytes());
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
            bytes.extend_from_slice(payload);
        }
        bytes
    }

    /// The log of a program whose loop has begun.
    pub(super) fn decode(mut bytes: &[u8]) -> Option<Self> {
        let (stage, log) = (LogStage::Over, BTreeMap::new());
        let mut prologue = Self { stage, bytes: bytes.len(), log, polls: 0 };
        while !bytes.is_empty() {
            let (header, rest) = bytes.split_at_checked(HEADER_BYTES)?;
            let number = u64::from_le_bytes(array(&header[..8]));
            let from = u32::from_le_bytes(array(&header[8..12]));
            let tag = u32::from_le_bytes(array(&header[12..16]));
            let len = usize::try_from(u64::from_le_bytes(array(&header[16..]))).ok()?;
            let (payload, rest) = rest.split_at_checked(len)?;
            prologue.log.insert(number, Received { from, tag, payload: payload.to_vec() });
            bytes = rest;
        }
        Some(prologue)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn received(payload: Vec<u8>) -> Received {
        Received { from: 1, tag: 2, payload }
    }

    proptest! {
        #[test]
        fn a_log_survives_its_bytes(payloads: Vec<Vec<u8>>) {
            let mut recorded = Prologue::default();
            for (number, payload) in (1..).zip(&payloads) {
                recorded.record(number, &received(payload.clone()));
            }
            recorded.end().unwrap();
            let again = Prologue::replay(&recorded.encode()).unwrap();
            prop_assert!(again.is_replaying());
            for (number, payload) in (1..).zip(payloads) {
                prop_assert_eq!(again.recorded(number).unwrap(), received(payload));
            }
            prop_assert!(again.recorded(0).is_err());
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>) {
            Prologue::decode(&bytes);
        }
    }

    /// A program that polls more often when it runs again gets an error.
    #[test]
    fn polls_find_the_same_when_the_program_runs_again() {
        let found = [None, Some(3), None, None, Some(0)];
        let mut recorded = Prologue::default();
        recorded.record(1, &received(vec![7]));
        found.iter().for_each(|ready| recorded.poll(*ready));
        let at = recorded.polls();
        recorded.poll(Some(2));
        recorded.end().unwrap();
        recorded.poll(Some(5));
        let mut again = Prologue::replay(&recorded.encode()).unwrap();
        assert_eq!(found.map(|_| again.polled().unwrap()), found);
        assert_eq!(again.polled().unwrap(), Some(2));
        assert!(again.polled().is_err());
        again.replay_again(at);
        assert_eq!(again.polled().unwrap(), Some(2));
    }

    #[test]
    fn only_what_precedes_the_loop_is_kept_and_too_much_of_it_is_refused() {
        let mut prologue = Prologue::default();
        prologue.record(1, &received(vec![1]));
        prologue.end().unwrap();
        prologue.record(2, &received(vec![2]));
        assert!(prologue.recorded(1).is_ok() && prologue.recorded(2).is_err());
        let mut prologue = Prologue::default();
        prologue.record(1, &received(vec![0; limits::PROLOGUE_BYTES_MAX]));
        assert!(matches!(prologue.end(), Err(FmiError::Full(_))));
    }
}
