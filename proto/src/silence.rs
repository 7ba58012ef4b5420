//! Silences: times of maintenance in which no program acts on conditions of some hosts.
//!
//! A silence is a kept condition `SILENCED` of the event space `ftb.silence`, so the table of
//! conditions has it, and every failover keeps it. Its component is its id, its payload says hosts,
//! key, beginning if it is later, end and reason. Each reader compares both with its own clock.
//!
//! Not responsible for: who may silence (the access rules of the agents), what a reader leaves out,
//! the events (`ftb_client::silences`).

use crate::condition_state::ConditionState;
use ftb_core::condition::{SILENCED, Subject, Truth, WATCHED};
use ftb_core::hostlist::{Hostlist, HostlistError};
use ftb_core::space::NameError;
use ftb_core::{EventName, limits};
use std::time::Duration;

/// The filter that selects silences.
pub const FILTER: &str = "condition=SILENCED, event_space=ftb.silence";
/// Most silences at a time: further ones are refused.
pub const SILENCES_MAX: usize = 1_024;
/// Longest host list of a silence in bytes: longer ones are several silences.
pub const LIST_BYTES_MAX: usize = 2_048;
/// Longest reason in bytes.
pub const REASON_BYTES_MAX: usize = 256;
/// Longest duration of a silence: 30 days.
pub const DURATION_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);

/// How far ahead a silence may begin: 30 days.
pub const AHEAD_MAX: Duration = DURATION_MAX;

/// A time of maintenance.
#[derive(Clone, Debug)]
pub struct Silence {
    /// Its id.
    pub id: String,
    /// The hosts.
    pub hosts: Hostlist,
    /// The hosts, as text.
    pub list: String,
    /// The only key that is silenced, in upper case; `None`: every one.
    pub key: Option<String>,
    /// Its beginning, in Unix nanoseconds; 0: when it was added.
    pub from_ns: u64,
    /// Its end, in Unix nanoseconds.
    pub until_ns: u64,
    /// Why.
    pub reason: String,
    /// The host where it was added.
    pub host: String,
    /// The user that added it.
    pub uid: u32,
}

/// Why there is no such silence.
#[derive(Debug, thiserror::Error)]
pub enum SilenceError {
    /// The hosts are no list.
    #[error(transparent)]
    Hosts(#[from] HostlistError),
    /// The list is empty or too long.
    #[error("the host list has {0} bytes: 1 to {LIST_BYTES_MAX} are allowed")]
    List(usize),
    /// The reason is empty, too long, or has control characters.
    #[error(
        "the reason must be a text of 1 to {REASON_BYTES_MAX} bytes without control characters"
    )]
    Reason,
    /// The key is no name.
    #[error("the key: {0}")]
    Key(#[from] NameError),
    /// It would last too long, or no time at all.
    #[error("a silence lasts at most 30 days, and longer than no time")]
    Duration,
    /// It would begin too late.
    #[error("a silence begins at most 30 days ahead")]
    Beginning,
    /// Its end is in the past.
    #[error("the silence would be over already")]
    Over,
}

impl Silence {
    /// A silence of these hosts from now on, and of one key if there is one.
    ///
    /// # Errors
    /// [`SilenceError`] names what is wrong.
    pub fn new(
        id: String,
        list: &str,
        key: Option<&str>,
        (now_ns, lasts): (u64, Duration),
        reason: &str,
    ) -> Result<Self, SilenceError> {
        let list: String = list.chars().filter(|c| !c.is_whitespace()).collect();
        if list.is_empty() || list.len() > LIST_BYTES_MAX {
            return Err(SilenceError::List(list.len()));
        }
        let is_text = !reason.trim().is_empty() && !reason.chars().any(char::is_control);
        if !is_text || reason.len() > REASON_BYTES_MAX {
            return Err(SilenceError::Reason);
        }
        if lasts.is_zero() || lasts > DURATION_MAX {
            return Err(SilenceError::Duration);
        }
        key.map(EventName::check).transpose()?;
        let lasts_ns = u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self {
            id,
            hosts: Hostlist::parse_within(&list, limits::FILTER_WEIGHT_MAX)?,
            list,
            key: key.map(str::to_ascii_uppercase),
            from_ns: 0,
            until_ns: now_ns.saturating_add(lasts_ns),
            reason: reason.trim().to_owned(),
            host: String::new(),
            uid: 0,
        })
    }

    /// The same silence, which lasts as long but begins at `from_ns` instead of `now_ns`.
    ///
    /// # Errors
    /// It would begin too late, or be over already.
    pub fn beginning(self, now_ns: u64, from_ns: u64) -> Result<Self, SilenceError> {
        let lasts_ns = self.until_ns.saturating_sub(now_ns);
        let until_ns = from_ns.saturating_add(lasts_ns);
        if Duration::from_nanos(from_ns.saturating_sub(now_ns)) > AHEAD_MAX {
            return Err(SilenceError::Beginning);
        }
        if until_ns <= now_ns {
            return Err(SilenceError::Over);
        }
        let from_ns = if from_ns > now_ns { from_ns } else { 0 };
        Ok(Self { from_ns, until_ns, ..self })
    }

    /// The silence that a row of the table states; `None`: it states none, or it was ended.
    pub fn of(state: &ConditionState) -> Option<Self> {
        if !state.is_silence() || state.truth != Truth::True {
            return None;
        }
        let (head, reason) = state.message.split_once(": ")?;
        let words: Vec<&str> = head.split(' ').collect();
        let (list, key, from_ms, until_ms) = match words[..] {
            [list, key, "until", until_ms] => (list, key, "0", until_ms),
            [list, key, "from", from_ms, "until", until_ms] => (list, key, from_ms, until_ms),
            _ => return None,
        };
        let ns = |ms: &str| ms.parse::<u64>().ok()?.checked_mul(1_000_000);
        if list.len() > LIST_BYTES_MAX {
            return None;
        }
        Some(Self {
            id: state.subject.component().to_owned(),
            hosts: Hostlist::parse_within(list, limits::FILTER_WEIGHT_MAX).ok()?,
            list: list.to_owned(),
            key: (key != "*").then(|| key.to_ascii_uppercase()),
            from_ns: ns(from_ms)?,
            until_ns: ns(until_ms)?,
            reason: reason.to_owned(),
            host: state.subject.host().to_owned(),
            uid: state.publisher_uid,
        })
    }

    /// The text of the event that begins it.
    pub fn text(&self) -> String {
        let key = self.key.as_deref().unwrap_or("*");
        let until_ms = self.until_ns / 1_000_000;
        let from = match self.from_ns {
            0 => String::new(),
            ns => format!("from {} ", ns / 1_000_000),
        };
        format!("{} {key} {from}until {until_ms}: {}", self.list, self.reason)
    }

    /// Whether it holds: it has begun and not ended.
    pub fn is_active(&self, now_ns: u64) -> bool {
        self.from_ns <= now_ns && !self.has_ended(now_ns)
    }

    /// Whether it is over.
    pub fn has_ended(&self, now_ns: u64) -> bool {
        self.until_ns <= now_ns
    }

    /// Whether it is about a condition. Watches and silences are never silenced.
    pub fn covers(&self, subject: &Subject) -> bool {
        let is_key = self.key.as_ref().is_none_or(|key| key == subject.key());
        let may_be = subject.key() != WATCHED && subject.key() != SILENCED;
        is_key && may_be && self.hosts.contains(subject.host())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftb_core::numbers::PublisherSeq;
    use ftb_core::{EventId, PublisherId, Severity};

    fn silence(list: &str, key: Option<&str>) -> Result<Silence, SilenceError> {
        Silence::new("a1".to_owned(), list, key, (5, Duration::from_secs(1)), "new fans")
    }

    #[test]
    fn a_silence_covers_its_hosts_and_its_key_until_its_end() {
        let all = silence("node[01-16], login1", None).expect("it is good");
        let fans = silence("node[01-16]", Some("fanfail")).expect("it is good");
        let subject = |host, key| Subject::new(host, "FAN 1", key);
        assert!(all.covers(&subject("Node07", "FANFAIL")) && all.covers(&subject("login1", "X")));
        assert!(!all.covers(&subject("node17", "FANFAIL")));
        assert!(!all.covers(&subject("node07", WATCHED)));
        assert!(fans.covers(&subject("node07", "FANFAIL")));
        assert!(!fans.covers(&subject("node07", "OVERTEMP")));
        assert!(all.is_active(1_000_000_004) && !all.is_active(1_000_000_005));
    }

    #[test]
    fn a_row_of_the_table_is_read_as_it_was_written() {
        let fan = Subject::new("node01", "CPU 1 FAN", "FANFAIL");
        let covers = |text: &str, truth, now_ms: u64| {
            let publisher = PublisherId { account: 0, token: 1 };
            let source = EventId { publisher, seq: PublisherSeq::new(1) };
            let stated = ConditionState {
                event: "ftb.silence FTB_SILENCE_BEGIN".to_owned(),
                message: text.to_owned(),
                ..ConditionState::new(
                    Subject::new("login1", "a", SILENCED),
                    truth,
                    Severity::Info,
                    source,
                    1,
                )
            };
            let silence = Silence::of(&stated).filter(|one| one.is_active(now_ms * 1_000_000));
            silence.is_some_and(|one| one.text() == text && one.covers(&fan))
        };
        assert!(covers("node[01-02] * until 9: new fans: two", Truth::True, 8));
        assert!(covers("NODE01 FANFAIL from 5 until 9: x", Truth::True, 5));
        assert!(!covers("node01 * until 9: x", Truth::True, 9), "it is over");
        assert!(!covers("node01 * from 5 until 9: x", Truth::True, 4), "it has not begun");
        assert!(!covers("node01 * until 9: x", Truth::False, 8), "it was ended");
        assert!(!covers("node02 * until 9: x", Truth::True, 8), "another host");
        assert!(!covers("node01 PORT_ERR until 9: x", Truth::True, 8), "another key");
        assert!(!covers("node01", Truth::True, 8));
    }

    #[test]
    fn a_silence_may_begin_later_and_lasts_as_long() {
        let now_ns = 1_700_000_000_000_000_000;
        let day_ns = 24 * 3_600 * 1_000_000_000;
        let hour = (now_ns, Duration::from_secs(3_600));
        let new = || Silence::new("a1".to_owned(), "node1", None, hour, "fans").expect("good");
        let later = new().beginning(now_ns, now_ns + day_ns).expect("good");
        assert_eq!(later.until_ns - later.from_ns, 3_600 * 1_000_000_000);
        assert!(!later.is_active(now_ns) && !later.has_ended(now_ns));
        assert!(later.is_active(later.from_ns) && later.has_ended(later.until_ns));
        // One that has begun already ends as if it had been added then.
        let begun = new().beginning(now_ns, now_ns - 60 * 1_000_000_000).expect("good");
        assert_eq!((begun.from_ns, begun.until_ns), (0, now_ns + 3_540 * 1_000_000_000));
        let wrong = |from_ns| new().beginning(now_ns, from_ns).expect_err("wrong").to_string();
        assert!(wrong(now_ns + 31 * day_ns).contains("30 days ahead"));
        assert!(wrong(now_ns - day_ns).contains("over already"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let text = |list: &str| silence(list, None).expect_err("wrong").to_string();
        assert!(text("node[1-").contains("column"), "{}", text("node[1-"));
        assert!(text(&"n".repeat(3_000)).contains("3000 bytes"));
        assert!(silence("node1", Some("no key")).is_err());
        for (lasts, reason) in [(0, "fans"), (31 * 24 * 3_600, "fans"), (1, ""), (1, "a\nb")] {
            let lasts = (0, Duration::from_secs(lasts));
            assert!(Silence::new(String::new(), "node1", None, lasts, reason).is_err());
        }
    }
}
