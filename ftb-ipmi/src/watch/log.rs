//! Reading the event log from where it was left, also across restarts of this program and of the
//! BMC.

use crate::bmc::command::{GetSelEntry, GetSelInfo, SelInfo};
use crate::bmc::{Bmc, BmcError};
use crate::sel::Bookmark;
use std::path::PathBuf;

/// Most entries that one look takes; the rest comes with the next.
const ENTRIES_MAX: usize = 512;
const FIRST: u16 = 0x0000;
const LAST: u16 = 0xFFFF;

/// Where reading stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Not known: what is in the log now is history.
    Unknown,
    /// Nothing was read yet of what is there.
    Start,
    /// This entry was the last.
    After(Bookmark),
}

/// The log of one BMC.
pub(crate) struct LogReader {
    path: Option<PathBuf>,
    place: Place,
    saved: Place,
    seen: Option<SelInfo>,
    is_supported: bool,
}

impl LogReader {
    /// Starts where the file at `path` says.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        let text = path.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        let place = text.as_deref().and_then(Bookmark::parse).map_or(Place::Unknown, Place::After);
        Self { path, place, saved: place, seen: None, is_supported: true }
    }

    /// Entries that were added since the last call, oldest first.
    pub(crate) async fn read_new(&mut self, bmc: &mut Bmc) -> Result<Vec<[u8; 16]>, BmcError> {
        if !self.is_supported {
            return Ok(Vec::new());
        }
        let info = match bmc.run(GetSelInfo).await {
            Ok(info) => info,
            Err(error) if error.is_lost() => return Err(error),
            Err(error) => {
                tracing::info!(%error, "this BMC has no event log: readings alone decide");
                self.is_supported = false;
                return Ok(Vec::new());
            }
        };
        if self.seen == Some(info) {
            return Ok(Vec::new());
        }
        if info.entries == 0 {
            (self.place, self.seen) = (Place::Start, Some(info));
            return Ok(Vec::new());
        }
        let mut entries = Vec::new();
        let is_done = match self.place {
            Place::Unknown => self.skip_to_end(bmc).await?,
            _ => self.follow(bmc, &mut entries).await?,
        };
        self.seen = is_done.then_some(info);
        Ok(entries)
    }

    async fn skip_to_end(&mut self, bmc: &mut Bmc) -> Result<bool, BmcError> {
        match bmc.run(GetSelEntry(LAST)).await {
            Ok(entry) => self.place = Place::After(Bookmark::of(&entry.record)),
            Err(error) if error.is_lost() => return Err(error),
            Err(error) => tracing::debug!(%error, "the last log entry is not readable"),
        }
        Ok(true)
    }

    /// Reads on from the bookmark; from the beginning where its entry is gone. `true` when the end
    /// was reached.
    async fn follow(
        &mut self,
        bmc: &mut Bmc,
        entries: &mut Vec<[u8; 16]>,
    ) -> Result<bool, BmcError> {
        let mut next = self.next_after_bookmark(bmc).await?;
        for _ in 0..ENTRIES_MAX {
            if next == LAST {
                return Ok(true);
            }
            match bmc.run(GetSelEntry(next)).await {
                Ok(entry) => {
                    entries.push(entry.record);
                    self.place = Place::After(Bookmark::of(&entry.record));
                    if entry.next == next {
                        return Ok(true);
                    }
                    next = entry.next;
                }
                Err(error) if error.is_lost() && entries.is_empty() => return Err(error),
                // What was read is told; the next command finds that the BMC is lost.
                Err(error) if error.is_lost() => return Ok(false),
                Err(error) => {
                    tracing::debug!(%error, entry = next, "a log entry is not readable");
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    async fn next_after_bookmark(&self, bmc: &mut Bmc) -> Result<u16, BmcError> {
        let Place::After(bookmark) = self.place else { return Ok(FIRST) };
        match bmc.run(GetSelEntry(bookmark.record)).await {
            Ok(entry) if Bookmark::of(&entry.record) == bookmark => Ok(entry.next),
            Err(error) if error.is_lost() => Err(error),
            // Another entry has its number, or none: the log was erased since.
            Ok(_) | Err(_) => Ok(FIRST),
        }
    }

    /// Writes the bookmark, if it has moved. Best effort: without it a restart reads less.
    pub(crate) async fn save(&mut self) {
        let Some(path) = &self.path else { return };
        let bookmark = match self.place {
            Place::Unknown => return,
            // No entry has this number: a restart reads what was logged meanwhile from the start.
            Place::Start => Bookmark { record: FIRST, time_s: 0 },
            Place::After(bookmark) => bookmark,
        };
        if self.saved == self.place {
            return;
        }
        let temporary = path.with_extension("tmp");
        let written = match tokio::fs::write(&temporary, bookmark.to_text()).await {
            Ok(()) => tokio::fs::rename(&temporary, path).await,
            Err(error) => Err(error),
        };
        match written {
            Ok(()) => self.saved = self.place,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the bookmark of the event log is not saved");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::bmc::CipherSuite;
    use crate::bmc::fake::{FakeBmc, Manner, patient};

    #[tokio::test]
    async fn entries_that_were_read_before_the_bmc_was_lost_are_not_lost_with_it() {
        // Log information, the bookmark's entry, the first entry, and then the session is gone.
        let manners = |n| if n == 3 { Manner::Forget } else { Manner::Answer };
        let (target, task) = FakeBmc::start(CipherSuite::Three, manners).await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node001.sel");
        std::fs::write(&path, "0 0\n").unwrap();
        let mut log = LogReader::new(Some(path));
        let mut bmc = Bmc::connect(&patient(target)).await.unwrap();
        let numbers = |entries: Vec<[u8; 16]>| -> Vec<_> { entries.iter().map(|e| e[0]).collect() };
        assert_eq!(numbers(log.read_new(&mut bmc).await.unwrap()), [1]);
        assert_eq!(numbers(log.read_new(&mut bmc).await.unwrap()), [2, 3]);
        assert!(log.read_new(&mut bmc).await.unwrap().is_empty());
        task.abort();
    }
}
