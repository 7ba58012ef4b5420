//! The `[journal]` table.

use ftb_core::EventSpace;
use ftb_core::log::conditions::ConditionLimits;
use ftb_core::node::protected_by_default;
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What systemd tells a service about its `StateDirectory=`.
const STATE_DIRECTORY: &str = "STATE_DIRECTORY";
/// The journal's folder in it.
const FOLDER: &str = "journal";
/// The interval between fsyncs if none is given.
const INTERVAL: Duration = Duration::from_millis(100);
/// Longest interval between fsyncs.
const INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// Fewer bytes than this are too few for any log.
const BYTES_MIN: u64 = 1024 * 1024;

/// Where the log of acting root and standby is kept on disk, and how.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JournalConfig {
    /// Whether there is one. Not given: where a path is given, or systemd has made a folder for the
    /// agent's state.
    pub enabled: Option<bool>,
    /// Its folder. Not given: `journal` in the folder that systemd names.
    pub path: Option<PathBuf>,
    /// What a lone root waits for before it confirms.
    pub fsync: Fsync,
    /// Bytes of the log on disk; the oldest goes beyond.
    pub bytes: u64,
    /// How long what is written is kept.
    #[serde(with = "humantime_serde")]
    pub age: Duration,
    /// Event spaces whose events have a share of the reserve; they follow from the access rules.
    #[serde(skip, default = "protected_by_default")]
    pub protected: Arc<[EventSpace]>,
    /// Bounds of the table of conditions; they follow from the limits.
    #[serde(skip)]
    pub conditions: ConditionLimits,
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self {
            enabled: None,
            path: None,
            fsync: Fsync::Interval(INTERVAL),
            bytes: 64 * 1024 * 1024,
            age: Duration::from_secs(7 * 24 * 3600),
            protected: protected_by_default(),
            conditions: ConditionLimits::default(),
        }
    }
}

impl JournalConfig {
    /// Where the journal is; `None`: there is none.
    pub fn folder(&self) -> Option<PathBuf> {
        let state = std::env::var_os(STATE_DIRECTORY).map(PathBuf::from);
        self.folder_in(state)
    }

    fn folder_in(&self, state: Option<PathBuf>) -> Option<PathBuf> {
        match (self.enabled, &self.path) {
            (Some(false), _) => None,
            (_, Some(path)) => Some(path.clone()),
            (_, None) => Some(state?.join(FOLDER)),
        }
    }

    /// Whether the journal has a folder if there must be one. systemd gives it to a unit, so who
    /// only looks at the file cannot know.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_folder(&self) -> Result<(), String> {
        match self.enabled == Some(true) && self.folder().is_none() {
            true => {
                Err("journal.enabled is true, and neither journal.path nor StateDirectory= of \
                         a unit names its folder"
                    .to_owned())
            }
            false => Ok(()),
        }
    }

    /// Checks what the types do not.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), String> {
        if self.bytes < BYTES_MIN {
            return Err(format!("journal.bytes must be at least {BYTES_MIN}"));
        }
        match self.age.is_zero() {
            true => Err("journal.age is 0s: nothing would be kept".to_owned()),
            false => Ok(()),
        }
    }
}

/// When the log is synced to the disk. Each mode writes an event before it is confirmed, so that it
/// survives the agent (`kill -9`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum Fsync {
    /// Before the events are confirmed; one fsync for all that wait.
    Batch,
    /// At this interval.
    Interval(Duration),
}

impl TryFrom<String> for Fsync {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "batch" => return Ok(Self::Batch),
            "interval" => return Ok(Self::Interval(INTERVAL)),
            "never" => {
                return Err("the fsync mode \"never\" no longer exists: use \"interval:100ms\", \
                            or \"interval:1h\" for the fewest fsyncs"
                    .to_owned());
            }
            _ => {}
        }
        let interval = text
            .strip_prefix("interval:")
            .map(str::parse::<humantime_serde::re::humantime::Duration>);
        match interval {
            Some(Ok(interval)) if !interval.is_zero() && *interval <= INTERVAL_MAX => {
                Ok(Self::Interval(*interval))
            }
            _ => Err(format!(
                "{text:?} is no fsync mode: expected \"batch\" or \"interval:100ms\" (at most 1h)"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_service_has_a_journal_and_others_have_one_when_they_say_where() {
        let state = || Some(PathBuf::from("/var/lib/ftb"));
        let config = |enabled, path: Option<&str>| JournalConfig {
            enabled,
            path: path.map(PathBuf::from),
            ..JournalConfig::default()
        };
        assert_eq!(config(None, None).folder_in(state()), Some("/var/lib/ftb/journal".into()));
        assert_eq!(config(None, None).folder_in(None), None);
        assert_eq!(config(None, Some("/x")).folder_in(None), Some("/x".into()));
        assert_eq!(config(Some(false), Some("/x")).folder_in(state()), None);
    }

    #[test]
    fn the_two_fsync_modes_are_parsed_and_others_rejected() {
        let read = |text: &str| Fsync::try_from(text.to_owned());
        assert_eq!(read("batch"), Ok(Fsync::Batch));
        assert_eq!(read("interval"), Ok(Fsync::Interval(INTERVAL)));
        assert!(read("never").unwrap_err().contains("use \"interval:100ms\""));
        assert_eq!(read("interval:250ms"), Ok(Fsync::Interval(Duration::from_millis(250))));
        for wrong in
            ["", "always", "interval:", "interval:0s", "interval:5", "interval:61m", "100ms"]
        {
            assert!(read(wrong).unwrap_err().contains("expected"), "{wrong}");
        }
    }
}
