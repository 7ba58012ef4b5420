//! Gaps: events that a subscription should have received and did not.
//!
//! [`Losses`] adds gaps up by their reason, so its size is fixed however many gaps occur. Each
//! subscription has one for the program, which reads it with `FTBX_Poll_gap`; each client has one
//! for its next lines on standard error. No I/O, no clock.

use crate::abi::{Gap as CGap, MAX_SEVERITY};
use crate::text::field;
use ftb_client::{Gap, GapReason, Severity};
use std::fmt;

/// Why events are missing. The numbers are those of `FTBX_GAP_...` in `ftbx.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Reason {
    /// A bounded queue of an agent overflowed.
    Overload = 1,
    /// The log no longer held them when this client came to read them.
    Retention = 2,
    /// Acting root and standby failed together.
    LogLost = 3,
    /// They arrived behind newer events of their publisher.
    Late = 4,
    /// The polling queue of this client overflowed.
    PollingQueue = 5,
}

impl Reason {
    const ALL: [Self; 5] =
        [Self::Overload, Self::Retention, Self::LogLost, Self::Late, Self::PollingQueue];

    fn index(self) -> usize {
        self as usize - 1
    }

    /// What a line on standard error says of it: the cause, then what to do.
    fn explanation(self) -> &'static str {
        match self {
            Self::Overload => "overload: a queue of an agent was full",
            Self::Retention => {
                "retention: the log no longer had them; return from callbacks sooner, subscribe to \
                 fewer events, or raise the log size of the agents"
            }
            Self::LogLost => "log lost: acting root and standby failed together",
            Self::Late => "late: newer events of the same publisher had been delivered before",
            Self::PollingQueue => {
                "polling queue full: poll more often, or connect with a longer \
                 client_polling_queue_len"
            }
        }
    }
}

impl From<GapReason> for Reason {
    fn from(reason: GapReason) -> Self {
        match reason {
            GapReason::Shed => Self::Overload,
            GapReason::Retention => Self::Retention,
            GapReason::LogLost => Self::LogLost,
            GapReason::Late => Self::Late,
        }
    }
}

/// Missing events of one reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Loss {
    /// Events, as far as their number is known.
    pub(crate) count: u64,
    /// The highest severity among them, as far as it is known.
    pub(crate) severity_max: Option<Severity>,
    /// More events, or events of a higher severity, may be missing.
    pub(crate) at_least: bool,
    /// How many gaps this adds up.
    pub(crate) gaps: u64,
}

impl Loss {
    /// One event of that severity.
    pub(crate) fn of_event(severity: Severity) -> Self {
        Self { count: 1, severity_max: Some(severity), at_least: false, gaps: 1 }
    }

    fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.severity_max = self.severity_max.max(other.severity_max);
        self.at_least |= other.at_least;
        self.gaps = self.gaps.saturating_add(other.gaps);
    }
}

impl From<&Gap> for Loss {
    fn from(gap: &Gap) -> Self {
        Self {
            count: gap.count.unwrap_or(0),
            severity_max: gap.severity_max,
            at_least: gap.count.is_none() || gap.severity_max.is_none(),
            gaps: 1,
        }
    }
}

/// `12 events lost, highest severity FATAL`.
impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            0 => f.write_str("an unknown number of events lost")?,
            count => {
                let at_least = if self.at_least { "at least " } else { "" };
                write!(f, "{at_least}{count} event{} lost", if count == 1 { "" } else { "s" })?;
            }
        }
        match self.severity_max {
            Some(severity) if self.at_least && severity < Severity::Fatal => {
                write!(f, ", severity {} or higher", severity.as_str())
            }
            Some(severity) => write!(f, ", highest severity {}", severity.as_str()),
            None => f.write_str(", highest severity unknown"),
        }
    }
}

/// Missing events, added up by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses([Option<Loss>; Reason::ALL.len()]);

impl Losses {
    pub(crate) fn add(&mut self, reason: Reason, loss: &Loss) {
        self.0[reason.index()].get_or_insert_default().add(loss);
    }

    /// Takes out the first reason that has any.
    pub(crate) fn take_first(&mut self) -> Option<(Reason, Loss)> {
        Reason::ALL.into_iter().find_map(|reason| Some((reason, self.0[reason.index()].take()?)))
    }

    /// Takes everything out: one line for each reason.
    pub(crate) fn take_lines(&mut self) -> Vec<(Reason, Loss, String)> {
        let each = core::iter::from_fn(|| self.take_first());
        each.map(|(reason, loss)| (reason, loss, format!("{loss} ({})", reason.explanation())))
            .collect()
    }
}

/// As the program reads it.
pub(crate) fn as_c(reason: Reason, loss: &Loss) -> CGap {
    let severity: [u8; MAX_SEVERITY] = loss
        .severity_max
        .map_or([0; _], |severity| field(severity.as_str().to_ascii_lowercase().as_bytes()));
    CGap {
        count: loss.count,
        gaps: loss.gaps,
        reason: reason as u32,
        at_least: u32::from(loss.at_least),
        severity,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::bounded;
    use ftb_client::{Position, Spaces};

    fn gap(count: u64, severity_max: Option<Severity>) -> Loss {
        let (after, until) = (Position::ZERO, Position::ZERO);
        let reason = GapReason::Retention;
        Loss::from(&Gap {
            after,
            until,
            reason,
            count: (count > 0).then_some(count),
            severity_max,
            spaces: Spaces::ANY,
        })
    }

    #[test]
    fn gaps_of_one_reason_are_added_up() {
        let mut losses = Losses::default();
        losses.add(Reason::Retention, &gap(5, Some(Severity::Info)));
        losses.add(Reason::PollingQueue, &Loss::of_event(Severity::Fatal));
        losses.add(Reason::Retention, &gap(7, Some(Severity::Error)));
        let both =
            Loss { count: 12, severity_max: Some(Severity::Error), at_least: false, gaps: 2 };
        assert_eq!(losses.take_first(), Some((Reason::Retention, both)));
        let c = as_c(Reason::Retention, &both);
        assert_eq!((c.count, c.gaps, c.reason, c.at_least), (12, 2, 2, 0));
        assert_eq!(bounded(&c.severity), b"error");
        assert_eq!(losses.take_first().map(|(reason, _)| reason), Some(Reason::PollingQueue));
        assert_eq!(losses.take_first(), None);
    }

    #[test]
    fn an_unknown_number_is_never_shown_as_zero_events() {
        for (loss, text) in [
            (gap(12, Some(Severity::Fatal)), "12 events lost, highest severity FATAL"),
            (gap(1, Some(Severity::Info)), "1 event lost, highest severity INFO"),
            (gap(0, None), "an unknown number of events lost, highest severity unknown"),
            (gap(3, None), "at least 3 events lost, highest severity unknown"),
        ] {
            assert_eq!(loss.to_string(), text);
        }
        let mut losses = Losses::default();
        losses.add(Reason::LogLost, &gap(3, Some(Severity::Warning)));
        losses.add(Reason::LogLost, &gap(0, None));
        let lines = losses.take_lines();
        let [(_, _, line)] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.starts_with("at least 3 events lost, severity WARNING or higher (log lost"));
        assert!(losses.take_lines().is_empty());
    }
}
