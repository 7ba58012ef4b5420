//! What one subscriber has seen of numbered events: what is missing, what came twice, what came out
//! of its publisher's order.

use ftb_client::Gap;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of the payload of a numbered event.
const STAMP_BYTES: usize = 12;

/// Which of whose events it is: the payload of every event of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The publisher's number in its load.
    pub publisher: u32,
    /// The publisher's own count, from 1.
    pub seq: u64,
}

impl Stamp {
    /// As the payload of an event.
    pub fn to_bytes(self) -> [u8; STAMP_BYTES] {
        let mut bytes = [0; STAMP_BYTES];
        bytes[..4].copy_from_slice(&self.publisher.to_le_bytes());
        bytes[4..].copy_from_slice(&self.seq.to_le_bytes());
        bytes
    }

    /// From a payload; `None` when no load made it.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (publisher, rest) = bytes.split_first_chunk::<4>()?;
        let seq: &[u8; 8] = rest.try_into().ok()?;
        Some(Self { publisher: u32::from_le_bytes(*publisher), seq: u64::from_le_bytes(*seq) })
    }
}

/// The book of one subscriber. It trusts no id and no position, only what the publishers wrote into
/// their events.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    publishers: BTreeMap<u32, Track>,
    gaps: Vec<Gap>,
    seen: u64,
    strange: u64,
}

#[derive(Clone, Debug, Default)]
struct Track {
    /// The highest that was seen.
    last: u64,
    /// Below it, not seen so far.
    missing: BTreeSet<u64>,
    doubled: u64,
    late: u64,
}

/// What is wrong with what a subscriber has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Published and never seen.
    pub lost: u64,
    /// Seen again.
    pub doubled: u64,
    /// Seen behind a later event of the same publisher.
    pub disordered: u64,
    /// Events that this load did not publish.
    pub strange: u64,
    /// Gaps that were reported.
    pub gaps: u64,
    /// Events that the gaps say are missing.
    pub reported: u64,
    /// Gaps without a count.
    pub vague: u64,
}

impl Faults {
    /// Every event once and in order, and nothing else.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Nothing twice, nothing invented, nothing lost without a report.
    pub fn all_reported(&self) -> bool {
        self.doubled == 0 && self.strange == 0 && (self.lost <= self.reported || self.vague > 0)
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            lost: self.lost + other.lost,
            doubled: self.doubled + other.doubled,
            disordered: self.disordered + other.disordered,
            strange: self.strange + other.strange,
            gaps: self.gaps + other.gaps,
            reported: self.reported + other.reported,
            vague: self.vague + other.vague,
        }
    }
}

impl Ledger {
    /// An event was delivered.
    pub fn see(&mut self, payload: &[u8]) {
        let Some(stamp) = Stamp::from_bytes(payload) else {
            self.strange += 1;
            return;
        };
        self.seen += 1;
        let track = self.publishers.entry(stamp.publisher).or_default();
        if stamp.seq > track.last {
            track.missing.extend(track.last + 1..stamp.seq);
            track.last = stamp.seq;
        } else if track.missing.remove(&stamp.seq) {
            track.late += 1;
        } else {
            track.doubled += 1;
        }
    }

    /// A gap was reported.
    pub fn tell(&mut self, gap: Gap) {
        self.gaps.push(gap);
    }

    /// Events seen, copies included.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// The highest count seen of a publisher; 0 when it was not heard.
    pub fn last(&self, publisher: u32) -> u64 {
        self.publishers.get(&publisher).map_or(0, |track| track.last)
    }

    /// What was reported to be missing.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// What has not been seen so far when publisher `i` has published `sent[i]` events: publisher,
    /// and first and last of each stretch.
    pub fn missing(&self, sent: &[u64]) -> Vec<(u32, u64, u64)> {
        let mut stretches: Vec<(u32, u64, u64)> = Vec::new();
        for (publisher, sent) in (0..).zip(sent) {
            let track = self.publishers.get(&publisher);
            let missing = track.into_iter().flat_map(|track| track.missing.iter().copied());
            for seq in missing.chain(self.last(publisher) + 1..=*sent) {
                match stretches.last_mut() {
                    Some((of, _, last)) if *of == publisher && *last + 1 == seq => *last = seq,
                    _ => stretches.push((publisher, seq, seq)),
                }
            }
        }
        stretches
    }

    /// What is wrong when publisher `i` has published `sent[i]` events.
    pub fn faults(&self, sent: &[u64]) -> Faults {
        let mut faults = Faults {
            strange: self.strange,
            gaps: self.gaps.len() as u64,
            reported: self.gaps.iter().filter_map(|gap| gap.count).sum(),
            vague: self.gaps.iter().filter(|gap| gap.count.is_none()).count() as u64,
            ..Faults::default()
        };
        for (publisher, sent) in (0..).zip(sent) {
            faults.lost += sent.saturating_sub(self.last(publisher));
        }
        for (publisher, track) in &self.publishers {
            faults.lost += track.missing.len() as u64;
            faults.doubled += track.doubled;
            faults.disordered += track.late;
            let sent = sent.get(*publisher as usize).copied().unwrap_or(0);
            faults.strange += track.last.saturating_sub(sent);
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ftb_client::{GapReason, Position};

    fn book(stamps: &[(u32, u64)]) -> Ledger {
        let mut ledger = Ledger::default();
        for (publisher, seq) in stamps {
            ledger.see(&Stamp { publisher: *publisher, seq: *seq }.to_bytes());
        }
        ledger
    }

    #[test]
    fn everything_once_and_in_order_is_no_fault() {
        let ledger = book(&[(0, 1), (1, 1), (0, 2), (1, 2), (1, 3)]);
        assert!(ledger.faults(&[2, 3]).is_none());
        assert_eq!((ledger.seen(), ledger.last(1), ledger.last(7)), (5, 3, 0));
    }

    #[test]
    fn every_kind_of_fault_is_counted() {
        let faults = book(&[(0, 1), (0, 3), (0, 3)]).faults(&[5]);
        assert_eq!((faults.lost, faults.doubled, faults.disordered), (3, 1, 0));
        assert_eq!(book(&[(0, 1), (0, 3)]).missing(&[5, 1]), [(0, 2, 2), (0, 4, 5), (1, 1, 1)]);
        let faults = book(&[(0, 2), (0, 1)]).faults(&[2]);
        assert_eq!((faults.lost, faults.doubled, faults.disordered), (0, 0, 1));
        let mut ledger = book(&[(0, 1), (3, 1)]);
        ledger.see(b"what?");
        assert_eq!(ledger.faults(&[1]).strange, 2);
        // A publisher that was never heard.
        assert_eq!(book(&[]).faults(&[4]).lost, 4);
    }

    #[test]
    fn every_loss_must_be_reported() {
        let mut ledger = book(&[(0, 1), (0, 4)]);
        assert!(!ledger.faults(&[4]).all_reported());
        ledger.tell(Gap {
            after: Position::ZERO,
            until: Position::ZERO,
            reason: GapReason::Shed,
            count: Some(2),
            severity_max: None,
            spaces: ftb_core::Spaces::ANY,
        });
        assert!(ledger.faults(&[4]).all_reported() && !ledger.faults(&[4]).is_none());
    }

    #[test]
    fn stamps_survive_the_way() {
        let stamp = Stamp { publisher: 7, seq: u64::MAX };
        assert_eq!(Stamp::from_bytes(&stamp.to_bytes()), Some(stamp));
        assert_eq!(Stamp::from_bytes(b""), None);
        assert_eq!(Stamp::from_bytes(&[0; STAMP_BYTES + 1]), None);
    }
}
