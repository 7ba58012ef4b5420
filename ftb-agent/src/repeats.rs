//! Suppresses repeated log lines, for example of a rejected agent that tries again each second.
//!
//! Not responsible for: events, which the core limits (`FTB_AGENT_REFUSED`).

use std::collections::BTreeMap;

/// An equal line within this time is only counted, in nanoseconds.
const AGAIN_NS: u64 = 60 * 1_000_000_000;
/// Remembered lines; further ones are always logged.
const LINES_MAX: usize = 1024;

/// Recently logged lines.
#[derive(Default)]
pub(crate) struct Repeats {
    written: BTreeMap<String, Written>,
}

struct Written {
    at_ns: u64,
    suppressed: u64,
}

impl Repeats {
    /// The number of suppressed equal lines; `None` if this line is suppressed too.
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
