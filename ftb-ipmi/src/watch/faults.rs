//! The faults that only events report, in a file: the table of conditions does not say which states
//! of its sensor an earlier life of this program knew.

use super::saved::replace;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// States, one bit each, by component and key of the condition. 0: it is not known which.
pub(crate) type StatesByFault = BTreeMap<(String, String), u16>;

/// The faults of one node. Best effort: without the file, each end of a state that may have been
/// the fault ends it.
pub(crate) struct EventFaults {
    path: Option<PathBuf>,
    saved: StatesByFault,
    /// The file could not be written last.
    has_failed: bool,
}

impl EventFaults {
    /// What the file has. A line that cannot be read counts as missing.
    pub(crate) fn load(path: Option<PathBuf>) -> Self {
        let text = path.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        let saved = text.iter().flat_map(|text| text.lines()).filter_map(parse).collect();
        Self { path, saved, has_failed: false }
    }

    /// The states of a fault of an earlier life; `None`: it was no such fault, as far as is known.
    pub(crate) fn states_of(&self, component: &str, key: &str) -> Option<u16> {
        self.saved.get(&(component.to_owned(), key.to_owned())).copied()
    }

    /// Writes the file if anything has changed.
    pub(crate) async fn save(&mut self, faults: StatesByFault) {
        let Some(path) = self.path.as_ref().filter(|_| self.saved != faults) else { return };
        // A sensor may have any name: one with a line break is left out.
        let named = faults.iter().filter(|((component, _), _)| !component.contains(['\n', '\r']));
        let line = |((component, key), states): (&(String, String), &u16)| {
            format!("{states:04x} {key} {component}\n")
        };
        let text: String = named.map(line).collect();
        match replace(path.clone(), text).await {
            Ok(()) => (self.saved, self.has_failed) = (faults, false),
            // Each input tries again, and says so once.
            Err(_) if std::mem::replace(&mut self.has_failed, true) => {}
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "open faults not saved");
            }
        }
    }
}

fn parse(line: &str) -> Option<((String, String), u16)> {
    let mut parts = line.splitn(3, ' ');
    let states = u16::from_str_radix(parts.next()?, 16).ok()?;
    let (key, component) = (parts.next()?.to_owned(), parts.next()?.to_owned());
    Some(((component, key), states))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn what_is_saved_is_read_again_whatever_a_sensor_is_called() {
        let folder = tempfile::tempdir().unwrap();
        let path = Some(folder.path().join("node001.faults"));
        let fault = |name: &str, states| ((name.to_owned(), "PSUFAIL".to_owned()), states);
        let named = [fault("PS 1  Status", 0b1010), fault("", 0), fault("Q\u{fc}", 0x7FFF)];
        let mut faults = EventFaults::load(path.clone());
        faults.save(named.clone().into_iter().chain([fault("a\nb", 2)]).collect()).await;
        assert_eq!(EventFaults::load(path.clone()).saved, StatesByFault::from(named));
        faults.save(StatesByFault::new()).await;
        assert_eq!(EventFaults::load(path).states_of("", "PSUFAIL"), None);
    }
}
