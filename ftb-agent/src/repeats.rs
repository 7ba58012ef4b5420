//! Lines of the log that would say the same again and again: an agent that does not belong asks every second.
//!
//! Responsible for: which of them are written. Not responsible for: what is told to the cluster, which the core
//! bounds by itself (`FTB_AGENT_REFUSED`).

use std::collections::BTreeMap;

/// For so long an equal line is only counted, in nanoseconds.
const AGAIN_NS: u64 = 60 * 1_000_000_000;
/// Lines that are remembered; beyond it new ones are written each time.
const LINES_MAX: usize = 1024;

/// What was written lately.
#[derive(Default)]
pub(crate) struct Repeats {
    written: BTreeMap<String, Written>,
}

struct Written {
    at_ns: u64,
    suppressed: u64,
}

impl Repeats {
    /// How many equal lines were not written since the last one; `None` when this one is not to be written either.
    pub(crate) fn admit(&mut self, now_ns: u64, line: String) -> Option<u64> {
        let fresh = |written: &Written| now_ns.saturating_sub(written.at_ns) < AGAIN_NS;
        let mut suppressed = 0;
        if let Some(written) = self.written.get_mut(&line) {
            if fresh(written) {
                written.suppressed += 1;
                return None;
            }
            suppressed = written.suppressed;
        }
        if self.written.len() >= LINES_MAX {
            self.written.retain(|_, written| fresh(written));
        }
        if self.written.len() < LINES_MAX {
            self.written.insert(line, Written { at_ns: now_ns, suppressed: 0 });
        }
        Some(suppressed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_equal_line_is_written_once_a_minute_and_says_how_many_were_not() {
        let mut repeats = Repeats::default();
        let second = 1_000_000_000;
        let line = |host: &str| format!("{host}: another cluster");
        assert_eq!(repeats.admit(0, line("node01")), Some(0));
        for at in 1..60 {
            assert_eq!(repeats.admit(at * second, line("node01")), None);
        }
        assert_eq!(
            repeats.admit(5 * second, line("node02")),
            Some(0),
            "another host is another line"
        );
        assert_eq!(repeats.admit(60 * second, line("node01")), Some(59));
        assert_eq!(repeats.admit(61 * second, line("node01")), None);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_forgotten() {
        let mut repeats = Repeats::default();
        for i in 0..LINES_MAX {
            assert_eq!(repeats.admit(0, i.to_string()), Some(0));
        }
        assert_eq!(repeats.admit(1, "more".to_owned()), Some(0));
        assert_eq!(repeats.admit(2, "more".to_owned()), Some(0), "no room: written each time");
        assert_eq!(repeats.written.len(), LINES_MAX);
        assert_eq!(repeats.admit(AGAIN_NS, "more".to_owned()), Some(0));
        assert_eq!(repeats.admit(AGAIN_NS + 1, "more".to_owned()), None);
        assert_eq!(repeats.written.len(), 1);
    }
}
