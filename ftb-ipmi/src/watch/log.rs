//! Reads new entries of the event log, also across restarts of this program and of the BMC.

use super::access::{Access, Refusal};
use super::saved::replace;
use crate::bmc::command::{GetSelEntry, GetSelInfo, SelInfo};
use crate::bmc::{Bmc, BmcError};
use crate::sel::{Bookmark, LogState};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Most entries of one read; the next read continues.
const ENTRIES_MAX: usize = 512;
const FIRST: u16 = 0x0000;
const LAST: u16 = 0xFFFF;
/// Completion codes for a missing entry: not present, out of range, invalid field.
const NOT_PRESENT: [u8; 3] = [0xCB, 0xC9, 0xCC];

/// How far the log was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Unknown: existing entries are history.
    Unknown,
    /// No entry was read.
    Start,
    /// This entry was the last one read.
    After(Bookmark),
}

/// The log of one BMC.
pub(crate) struct LogReader {
    node: Arc<str>,
    path: Option<PathBuf>,
    place: Place,
    saved: Place,
    /// The bookmarked entry is gone: entries up to this time were read before.
    read_until_s: Option<u32>,
    seen: Option<SelInfo>,
    state: Option<LogState>,
    access: Access,
}

impl LogReader {
    /// Starts at the bookmark in the file at `path`.
    pub(crate) fn new(node: Arc<str>, path: Option<PathBuf>) -> Self {
        let text = path.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
        let place = text.as_deref().and_then(Bookmark::parse).map_or(Place::Unknown, Place::After);
        let (state, access) = (None, Access::default());
        Self { node, path, place, saved: place, read_until_s: None, seen: None, state, access }
    }

    /// A new session tries again, even if an earlier one found no log.
    pub(crate) fn begin_session(&mut self) {
        self.access = Access::default();
    }

    /// Whether the log accepts another entry, at the last read; `None` before that. A BMC without
    /// a log has no full one.
    pub(crate) fn state(&self) -> Option<LogState> {
        self.state.or(self.access.is_unsupported().then_some(LogState::HasRoom))
    }

    /// Pause before the next read; `None`: this session has no log.
    pub(crate) fn pause(&self, interval: Duration) -> Option<Duration> {
        self.access.pause(interval)
    }

    /// Entries added since the last call, oldest first. A refusal is no error: a later call returns
    /// the entries.
    pub(crate) async fn read_new(&mut self, bmc: &mut Bmc) -> Result<Vec<[u8; 16]>, BmcError> {
        let mut entries = Vec::new();
        match self.read(bmc, &mut entries).await {
            Ok(()) if self.access.on_answer() => {
                tracing::info!(node = %self.node, "the event log is readable again");
            }
            Ok(()) => {}
            Err(error) if !error.is_lost() => self.on_refusal(&error),
            Err(error) if entries.is_empty() => return Err(error),
            // Publish the read entries; the next command finds that the BMC is lost.
            Err(_) => {}
        }
        Ok(entries)
    }

    fn on_refusal(&mut self, error: &BmcError) {
        let node = &self.node;
        match self.access.on_refusal(error.code()) {
            Refusal::Unsupported => {
                tracing::info!(%node, %error, "the BMC has no event log: using readings only");
            }
            Refusal::First => {
                tracing::info!(%node, %error, "the event log is not readable: trying again");
            }
            Refusal::Lasting => {
                tracing::warn!(%node, %error, "the event log stays unreadable");
            }
            Refusal::Repeated => tracing::debug!(%node, %error, "the event log is not readable"),
        }
    }

    async fn read(&mut self, bmc: &mut Bmc, entries: &mut Vec<[u8; 16]>) -> Result<(), BmcError> {
        let info = bmc.run(GetSelInfo).await?;
        self.state = Some(info.state());
        if self.seen == Some(info) {
            return Ok(());
        }
        if info.entries == 0 {
            (self.place, self.seen, self.read_until_s) = (Place::Start, Some(info), None);
            return Ok(());
        }
        self.seen = None;
        let is_done = match self.place {
            Place::Unknown => self.skip_to_end(bmc).await?,
            _ => self.follow(bmc, entries).await?,
        };
        self.seen = is_done.then_some(info);
        Ok(())
    }

    async fn skip_to_end(&mut self, bmc: &mut Bmc) -> Result<bool, BmcError> {
        self.place = match bmc.run(GetSelEntry(LAST)).await {
            Ok(entry) => Place::After(Bookmark::of(&entry.record)),
            // The log was erased since.
            Err(error) if is_missing(&error) => Place::Start,
            Err(error) => return Err(error),
        };
        Ok(true)
    }

    /// Reads from the bookmark, or from the start if its entry is gone. `true` at the end of the
    /// log.
    async fn follow(
        &mut self,
        bmc: &mut Bmc,
        entries: &mut Vec<[u8; 16]>,
    ) -> Result<bool, BmcError> {
        let mut next = self.next_after_bookmark(bmc).await?;
        for _ in 0..ENTRIES_MAX {
            if next == LAST {
                return Ok(self.at_end());
            }
            match bmc.run(GetSelEntry(next)).await {
                Ok(entry) => {
                    let bookmark = Bookmark::of(&entry.record);
                    if !self.read_until_s.is_some_and(|until_s| bookmark.is_until(until_s)) {
                        entries.push(entry.record);
                    }
                    self.place = Place::After(bookmark);
                    if entry.next == next {
                        return Ok(self.at_end());
                    }
                    next = entry.next;
                }
                Err(error) if is_missing(&error) => return Ok(self.at_end()),
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    fn at_end(&mut self) -> bool {
        self.read_until_s = None;
        true
    }

    async fn next_after_bookmark(&mut self, bmc: &mut Bmc) -> Result<u16, BmcError> {
        let Place::After(bookmark) = self.place else { return Ok(FIRST) };
        match bmc.run(GetSelEntry(bookmark.record)).await {
            Ok(entry) if Bookmark::of(&entry.record) == bookmark => Ok(entry.next),
            // Another entry has this number: the log was erased or renumbered since.
            Ok(_) => Ok(self.first_after(bookmark)),
            // The log was erased since, or the entry was deleted.
            Err(error) if is_missing(&error) => Ok(self.first_after(bookmark)),
            Err(error) => Err(error),
        }
    }

    /// Begins again at the first entry. Entries that may be older than the bookmark are no news.
    fn first_after(&mut self, bookmark: Bookmark) -> u16 {
        self.read_until_s = self.read_until_s.max(bookmark.real_time_s());
        FIRST
    }

    /// Whether the bookmark in the file is not the current one.
    fn is_unsaved(&self) -> bool {
        let is_known = self.path.is_some() && self.place != Place::Unknown;
        // Amid old entries, the old bookmark tells them from new ones.
        is_known && self.saved != self.place && self.read_until_s.is_none()
    }

    /// Writes a changed bookmark. Best effort: without it a restart may miss entries.
    pub(crate) async fn save(&mut self) {
        if !self.is_unsaved() {
            return;
        }
        let Some(path) = &self.path else { return };
        let bookmark = match self.place {
            Place::Unknown => return,
            // No entry has this number: after a restart, reading begins at the start.
            Place::Start => Bookmark { record: FIRST, time_s: 0 },
            Place::After(bookmark) => bookmark,
        };
        match replace(path.clone(), bookmark.to_text()).await {
            Ok(()) => self.saved = self.place,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "bookmark not saved");
            }
        }
    }
}

fn is_missing(error: &BmcError) -> bool {
    error.code().is_some_and(|code| NOT_PRESENT.contains(&code))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::bmc::Target;
    use crate::bmc::tests::fake_bmc;
    use ftb_rmcp::fake::{Behavior, patient};

    const ERASE_IN_PROGRESS: u8 = 0x81;

    /// The numbers of the entries that each read returns, starting at this bookmark.
    async fn reads(
        count: usize,
        bookmark: &str,
        behavior: impl Fn(usize) -> Behavior + Send + 'static,
    ) -> Vec<Vec<u8>> {
        let (config, task) = fake_bmc(behavior).await;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node001.sel");
        std::fs::write(&path, bookmark).unwrap();
        let mut log = LogReader::new("node001".into(), Some(path.clone()));
        let mut bmc = Bmc::connect(&Target::Lan(patient(config))).await.unwrap();
        let mut reads = Vec::new();
        for _ in 0..count {
            let entries = log.read_new(&mut bmc).await.unwrap();
            reads.push(entries.iter().map(|entry| entry[0]).collect());
        }
        task.abort();
        log.save().await;
        let saved = std::fs::read_to_string(&path).unwrap();
        assert_eq!(saved, "3 536870915\n", "all entries are read");
        reads
    }

    #[tokio::test]
    async fn entries_read_before_the_loss_of_the_bmc_are_returned() {
        // The BMC forgets the session after log information, bookmarked entry and first entry.
        let behavior = |n| if n == 3 { Behavior::Forget } else { Behavior::Answer };
        assert_eq!(reads(3, "0 0\n", behavior).await, [vec![1], vec![2, 3], vec![]]);
    }

    #[tokio::test]
    async fn the_next_read_continues_after_a_refusal_at_any_command() {
        for refusal in [Behavior::Refuse(ERASE_IN_PROGRESS), Behavior::Short] {
            // Log information, bookmarked entry, and entry 3.
            for refused in 0..3 {
                let behavior = move |n| if n == refused { refusal } else { Behavior::Answer };
                let expected = [vec![], vec![3], vec![]];
                let found = reads(3, "2 536870914\n", behavior).await;
                assert_eq!(found, expected, "{refusal:?} of command {refused}");
            }
        }
    }

    #[tokio::test]
    async fn entries_before_the_first_read_are_history_even_after_a_refusal() {
        let behavior = |n| match n {
            1 => Behavior::Refuse(ERASE_IN_PROGRESS),
            _ => Behavior::Answer,
        };
        assert_eq!(reads(3, "", behavior).await, [vec![0; 0], vec![], vec![]]);
    }

    #[tokio::test]
    async fn entries_before_a_lost_bookmark_are_no_news() {
        // Deleted, and renumbered; the entries are of the seconds 536870913 to 536870915.
        for (bookmark, news) in [
            ("9 536870913\n", vec![2, 3]),
            ("2 536870913\n", vec![2, 3]),
            ("1 536870916\n", vec![]),
            // The clock of the BMC was not set.
            ("9 77\n", vec![1, 2, 3]),
        ] {
            let found = reads(2, bookmark, |_| Behavior::Answer).await;
            assert_eq!(found, [news, vec![]], "{bookmark}");
        }
    }

    #[tokio::test]
    async fn old_entries_stay_old_after_a_refusal_amid_them() {
        // The entry after the first one is refused.
        let behavior =
            |n| if n == 3 { Behavior::Refuse(ERASE_IN_PROGRESS) } else { Behavior::Answer };
        let found = reads(3, "9 536870914\n", behavior).await;
        assert_eq!(found, [vec![], vec![3], vec![]]);
    }

    #[tokio::test]
    async fn a_bmc_without_a_log_has_no_full_one() {
        for (code, expected) in [(0xC1, Some(LogState::HasRoom)), (ERASE_IN_PROGRESS, None)] {
            let (config, task) = fake_bmc(move |_| Behavior::Refuse(code)).await;
            let mut log = LogReader::new("node001".into(), None);
            let mut bmc = Bmc::connect(&Target::Lan(patient(config))).await.unwrap();
            log.read_new(&mut bmc).await.unwrap();
            assert_eq!(log.state(), expected, "{code:#x}");
            task.abort();
        }
    }
}
