//! What the environment and a configuration file say.
//!
//! Environment before file before default, as in the original. Of the original's own settings those
//! that name other machines have no meaning here, since a client talks to the agent of its node
//! only: they are remarked upon once and ignored. No I/O here: the caller reads.

use crate::subscription::Matching;
use ftb_client::config::{SOCKET_DEFAULT, SOCKET_ENV};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Names the file of `KEY=value` lines.
pub(crate) const FILE_ENV: &str = "FTB_CONFIG_FILE";
/// How long `FTB_Connect` waits for an agent before it fails, and all others at least.
const CONNECT_WAIT: &str = "FTB_CONNECT_WAIT";
/// `and` or `cifts`.
const MATCHING: &str = "FTB_MATCHING";
/// `1`: nothing is said on standard error.
const QUIET: &str = "FTB_QUIET";
/// Settings of the original without a meaning here.
const IGNORED: [&str; 3] = ["FTB_BSTRAP_SERVER", "FTB_BSTRAP_PORT", "FTB_AGENT_PORT"];
/// Longest wait that can be asked for.
pub(crate) const CONNECT_WAIT_MAX: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) socket: PathBuf,
    /// Set: `FTB_Connect` fails when no agent comes within this.
    pub(crate) connect_wait: Option<Duration>,
    pub(crate) matching: Matching,
    pub(crate) quiet: bool,
    /// To be said once.
    pub(crate) remarks: Vec<String>,
}

impl Settings {
    /// How long to wait for what an agent does that is given `longest`: a program that demands one
    /// waits for its answers as patiently.
    pub(crate) fn patience(&self, longest: Duration) -> Duration {
        self.connect_wait.map_or(longest, |demanded| demanded.max(longest))
    }

    /// Reads both. `file` reads the named one; its error is for people.
    pub(crate) fn load(
        environment: impl Fn(&str) -> Option<OsString>,
        file: impl FnOnce(&Path) -> Result<Vec<u8>, String>,
    ) -> Self {
        let mut remarks = Vec::new();
        let environment = |key: &str| environment(key).filter(|value| !value.is_empty());
        let lines = match environment(FILE_ENV).map(PathBuf::from) {
            None => Vec::new(),
            Some(path) => file(&path).unwrap_or_else(|why| {
                remarks.push(format!("{FILE_ENV}={}: {why}: ignored", path.display()));
                Vec::new()
            }),
        };
        let value = |key: &str| environment(key).or_else(|| line(&lines, key));
        let ignored: Vec<&str> = IGNORED.into_iter().filter(|key| value(key).is_some()).collect();
        let socket = value(SOCKET_ENV).map_or_else(|| SOCKET_DEFAULT.into(), PathBuf::from);
        if !ignored.is_empty() {
            remarks.push(format!(
                "{} ignored: a client talks to the agent of its own node, at {} ({SOCKET_ENV})",
                ignored.join(", "),
                socket.display()
            ));
        }
        let mut word = |key: &str, expected: &str, good: &mut dyn FnMut(&str) -> bool| {
            let Some(value) = value(key) else { return };
            if !value.to_str().is_some_and(good) {
                let value = value.to_string_lossy();
                remarks.push(format!("{key}={value:?} ignored: expected {expected}"));
            }
        };
        let (mut connect_wait, mut matching, mut quiet) = (None, Matching::And, false);
        word(CONNECT_WAIT, "a time up to 10m, like 5s or 500ms", &mut |text| {
            let wait = humantime::parse_duration(text).ok();
            connect_wait = wait.filter(|wait| *wait <= CONNECT_WAIT_MAX);
            connect_wait.is_some()
        });
        word(MATCHING, "and or cifts", &mut |text| {
            let words = [("and", Matching::And), ("cifts", Matching::Cifts)];
            let found = words.into_iter().find(|(word, _)| text.eq_ignore_ascii_case(word));
            found.inspect(|(_, found)| matching = *found).is_some()
        });
        word(QUIET, "1 or 0", &mut |text| {
            quiet = text == "1";
            quiet || text == "0"
        });
        Self { socket, connect_wait, matching, quiet, remarks }
    }
}

/// The value of the first line `KEY=value`. Blanks around both do not count, lines that begin with
/// `#` neither.
fn line(bytes: &[u8], key: &str) -> Option<OsString> {
    let mut pairs = bytes.split(|byte| *byte == b'\n').filter_map(|line| {
        let at = line.iter().position(|byte| *byte == b'=')?;
        Some((line[..at].trim_ascii(), line[at + 1..].trim_ascii()))
    });
    let (_, value) = pairs.find(|(word, _)| *word == key.as_bytes())?;
    (!value.is_empty()).then(|| OsString::from_vec(value.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn load(environment: &[(&str, &str)], file: Option<&[u8]>) -> Settings {
        Settings::load(
            |key| environment.iter().find(|(k, _)| *k == key).map(|(_, v)| OsString::from(v)),
            |_| file.map(<[u8]>::to_vec).ok_or_else(|| "it is away".to_owned()),
        )
    }

    #[test]
    fn environment_before_file_before_default() {
        let none = load(&[], None);
        assert_eq!(none.socket, Path::new(SOCKET_DEFAULT));
        assert_eq!((none.connect_wait, none.matching, none.quiet), (None, Matching::And, false));
        assert!(none.remarks.is_empty());
        let file =
            b"# FTB_QUIET=1\n FTB_AGENT_SOCKET = /a/b \nFTB_CONNECT_WAIT=5s\nFTB_MATCHING=Cifts\n";
        let both = load(&[("FTB_CONFIG_FILE", "x"), ("FTB_CONNECT_WAIT", "20ms")], Some(file));
        assert_eq!(both.socket, Path::new("/a/b"));
        assert_eq!(both.connect_wait, Some(Duration::from_millis(20)));
        assert_eq!((both.matching, both.quiet), (Matching::Cifts, false));
        assert!(both.remarks.is_empty(), "{:?}", both.remarks);
    }

    #[test]
    fn a_longer_wait_for_an_agent_is_one_for_its_answers_too() {
        let [short, long] = [Duration::from_secs(1), Duration::from_secs(5)];
        assert_eq!(load(&[], None).patience(short), short);
        let settings = load(&[("FTB_CONNECT_WAIT", "2s")], None);
        assert_eq!(settings.patience(short), Duration::from_secs(2));
        assert_eq!(settings.patience(long), long);
    }

    #[test]
    fn what_has_no_meaning_is_remarked_upon() {
        let old = [("FTB_BSTRAP_SERVER", "10.0.0.1"), ("FTB_CONFIG_FILE", "x"), ("FTB_QUIET", "")];
        let settings = load(&old, Some(b"FTB_AGENT_PORT=10809"));
        assert_eq!(settings.remarks.len(), 1);
        assert!(settings.remarks[0].starts_with("FTB_BSTRAP_SERVER, FTB_AGENT_PORT ignored"));
        let away = load(&[("FTB_CONFIG_FILE", "/x")], None).remarks;
        assert_eq!(away, ["FTB_CONFIG_FILE=/x: it is away: ignored"]);
        let wrong = [("FTB_CONNECT_WAIT", "2h"), ("FTB_MATCHING", "or"), ("FTB_QUIET", "yes")];
        assert_eq!(load(&wrong, None).remarks.len(), 3);
    }

    proptest! {
        #[test]
        fn any_file_is_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            load(&[("FTB_CONFIG_FILE", "x")], Some(&bytes));
        }
    }
}
