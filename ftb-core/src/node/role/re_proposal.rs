//! Another log wins: the entries beyond the fork are re-proposed as unconfirmed events.

use crate::epochs::EpochHistory;
use crate::frame::{Content, UpItem};
use crate::log::entries::Log;
use crate::node::api::{Gap, GapReason};
use crate::numbers::LogIndex;
use crate::position::Position;
use crate::ranges::PublisherRanges;
use crate::spaces::Spaces;

/// What is missing of a hole whose entries are there up to an index; `None`: nothing.
pub(in crate::node) fn unfilled(gap: Gap, until: LogIndex) -> Option<Gap> {
    if until <= gap.after.index {
        return Some(gap);
    }
    let left = gap.until.index - until;
    (left > 0).then(|| {
        let after = Position { epoch: gap.until.epoch, index: until };
        Gap { after, count: gap.count.map(|_| left), ..gap }
    })
}

/// What a log that is complete after `oldest` has beyond the point where another leaves it: to be
/// re-proposed there. Also the epochs, or ends of epochs, that the other does not have.
pub(in crate::node) fn items_after_fork(
    log: &Log,
    epochs: &EpochHistory,
    oldest: LogIndex,
    winning: &EpochHistory,
) -> Vec<UpItem> {
    let last = log.last();
    let fork = epochs.common(last, winning).unwrap_or_default();
    let is_incomplete = fork < oldest && log.evicted() < oldest;
    let missing = match fork < oldest {
        true if is_incomplete => passed_by(log, fork, oldest),
        true => retained_between(log, epochs, fork, oldest),
        false => Vec::new(),
    };
    let events = log.after(fork.max(oldest)).map(|item| UpItem::from(item.content));
    let segments = epochs.segments();
    let reported = segments.iter().enumerate().filter_map(|(at, segment)| {
        let end = segments.get(at + 1).map_or(last, |next| next.first.before()).min(last);
        // The root waits for an agent that has the epoch whole before it reports a gap.
        let re_proposed = !(is_incomplete && end <= oldest);
        let until = match winning.knows(segment.epoch) {
            false if re_proposed => last,
            _ if end < segment.first => return None,
            true if winning.contains(Position { epoch: segment.epoch, index: end }) => return None,
            _ => end,
        };
        Some(UpItem::Fork { epoch: segment.epoch, until, re_proposed })
    });
    missing.into_iter().chain(events).chain(reported).collect()
}

/// What a log retains of a range that it has given up, and one gap for all that it does not.
fn retained_between(
    log: &Log,
    epochs: &EpochHistory,
    after: LogIndex,
    until: LogIndex,
) -> Vec<UpItem> {
    let begin = log.known_after();
    let range = (epochs.position(after), epochs.position(until));
    let mut gap = Gap::unknown(range, GapReason::Retention);
    gap.count = (begin <= after).then_some(0);
    let (mut spaces, mut events) = (None::<Spaces>, Vec::new());
    for item in log.with_gaps(after, epochs).map_while(|item| item.up_to(until)) {
        match item.content {
            Content::Gap(hole) if hole.reason == GapReason::Retention => {
                gap.count = gap.count.zip(hole.count).map(|(sum, further)| sum + further);
                gap.severity_max = gap.severity_max.max(hole.severity_max);
                let joined = spaces.map_or_else(|| hole.spaces.clone(), |s| s.joined(&hole.spaces));
                spaces = Some(joined);
            }
            content => events.push(UpItem::from(content)),
        }
    }
    match gap.count {
        None => gap = Gap::unknown(range, GapReason::Retention),
        Some(_) => gap.spaces = spaces.unwrap_or_default(),
    }
    let is_missing = gap.count != Some(0);
    is_missing.then_some(UpItem::Gap(gap)).into_iter().chain(events).collect()
}

/// What has passed by before a log is complete, and is not in the rest of it: that has come again
/// there, with what was between.
fn passed_by(log: &Log, after: LogIndex, until: LogIndex) -> Vec<UpItem> {
    let mut later = PublisherRanges::new(usize::MAX);
    for item in log.after(after.max(until)).filter(|_| after < until) {
        if let Content::Events(run) = &item.content {
            later.insert_run(run);
        }
    }
    let passed = log.after(after).map_while(|item| item.up_to(until));
    let fresh = passed.flat_map(|item| match item.content {
        Content::Events(run) => {
            let again = run.iter().enumerate().filter(|(_, event)| later.contains(event.id()));
            let again: Vec<usize> = again.map(|(place, _)| place).collect();
            run.without(&again).into_iter().map(UpItem::Events).collect()
        }
        Content::Gap(gap) => vec![UpItem::Gap(gap)],
    });
    fresh.collect()
}
