//! What a client says at its end: how many of its events never reached the backplane. No I/O.

use ftb_client::{Severity, Stats};

/// A line for each way in which events were lost.
pub(crate) fn lines(stats: &Stats) -> Vec<String> {
    // What still waits at the end of the process is given up as well.
    let mut unsent = stats.given_up;
    unsent.iter_mut().zip(stats.waiting).for_each(|(sum, more)| *sum += more);
    let in_doubt = stats.in_doubt + stats.in_flight;
    let mut lines = Vec::new();
    if let Some(events) = by_severity(unsent) {
        lines.push(format!("{events}, given up: no agent took them before this client ended"));
    }
    if let Some(events) = by_severity(stats.shed) {
        lines.push(format!("{events}, given up: no agent took them and the buffer was full"));
    }
    if in_doubt > 0 {
        let events = count(in_doubt);
        lines.push(format!(
            "{events} in doubt: the agent took them and did not confirm them in time"
        ));
    }
    if stats.refused > 0 {
        lines.push(format!("{} refused by the agent", count(stats.refused)));
    }
    lines
}

/// `12 events, highest severity FATAL`; `None` where there are none.
fn by_severity(events: [u64; 4]) -> Option<String> {
    let total = events.iter().sum();
    let highest = Severity::ALL.iter().zip(events).rfind(|(_, events)| *events > 0)?.0;
    Some(format!("{}, highest severity {}", count(total), highest.as_str()))
}

fn count(events: u64) -> String {
    format!("{events} event{}", if events == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_in_which_events_were_lost_has_its_line() {
        assert!(lines(&Stats::default()).is_empty());
        let mut stats = Stats::default();
        (stats.waiting, stats.given_up) = ([1000, 0, 0, 0], [0, 0, 0, 1]);
        (stats.shed, stats.in_flight, stats.refused) = ([1, 2, 0, 0], 1, 4);
        assert_eq!(
            lines(&stats),
            [
                "1001 events, highest severity FATAL, given up: \
                 no agent took them before this client ended",
                "3 events, highest severity WARNING, given up: \
                 no agent took them and the buffer was full",
                "1 event in doubt: the agent took them and did not confirm them in time",
                "4 events refused by the agent",
            ]
        );
    }
}
