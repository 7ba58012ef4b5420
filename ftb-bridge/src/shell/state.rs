//! The state file: where the export is, and what was counted. Not responsible for: the end of the
//! stream, which counts more than the file.

use crate::export::{ExportCounts, Place, position_text};
use crate::import::ImportCounts;
use crate::service::{Part, Service, ServiceNotice};
use ftb_client::daemon::Failure;
use ftb_client::{Position, now_ns};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const FILE: &str = "state.json";
/// How often a changed state is written.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// How often one that has not changed is written: its time says that the bridge runs.
const ALIVE_EVERY_NS: u64 = 10 * 1_000_000_000;
/// An older file is that of a bridge that does not run.
const STALE_NS: u64 = 60 * 1_000_000_000;

/// The content of the file, and the answer of `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The cluster that is exported.
    pub cluster: String,
    /// The bridge sends; false: it is on standby, or the stream cannot be read.
    pub is_active: bool,
    /// Where the export is.
    #[serde(flatten)]
    pub place: Place,
    /// Of the export, since the start of the bridge.
    pub export: ExportCounts,
    /// Of the import, since the start of the bridge.
    pub import: ImportCounts,
    /// Of the traces.
    #[serde(default)]
    pub traces: Traces,
    /// Why NATS is not reached or an alarm not imported, for a minute at least.
    #[serde(default)]
    pub problem: Option<String>,
    /// When it was written, in Unix nanoseconds.
    pub written_ns: u64,
}

impl State {
    /// Why the bridge does not do its work; `None`: it does, or is on standby.
    pub fn fault(&self, now_ns: u64) -> Option<String> {
        let age_ns = now_ns.saturating_sub(self.written_ns);
        match age_ns > STALE_NS {
            true => {
                let age_s = age_ns / 1_000_000_000;
                Some(format!("the state is {age_s} s old: ftb-bridge does not run"))
            }
            false => self.problem.clone(),
        }
    }
}

/// Where the traces are, and what was counted since the start of the bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traces {
    /// Behind the last episode that was sent or rejected; `None`: traces are off.
    #[serde(with = "position_text")]
    pub position: Option<Position>,
    /// Traces that the collector has taken.
    pub sent: u64,
    /// Traces that it never takes.
    pub rejected: u64,
    /// Attempts that failed; each is repeated.
    pub failures: u64,
    /// Gaps of the log: episodes may be missing in each.
    pub gaps: u64,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = if self.is_active { "active" } else { "standby, or without the stream" };
        let position = self.place.position.map_or("none".to_owned(), |at| at.to_string());
        let age_s = now_ns().saturating_sub(self.written_ns) / 1_000_000_000;
        let (export, import) = (&self.export, &self.import);
        writeln!(f, "cluster   {} ({role}, {age_s} s ago)", self.cluster)?;
        writeln!(f, "exported  position {position}, sequence {}", self.place.sequence)?;
        writeln!(
            f,
            "          {} messages, {} skipped, {} duplicates, {} conflicts, {} failures",
            export.exported, export.skipped, export.duplicates, export.conflicts, export.failures
        )?;
        write!(
            f,
            "imported  {} alarms, {} repeated, {} unreadable, {} refused",
            import.imported, import.repeated, import.unreadable, import.refused
        )?;
        let traces = &self.traces;
        match traces.position {
            None => Ok(()),
            Some(_) => write!(
                f,
                "\ntraces    {} sent, {} rejected, {} failures, {} gaps",
                traces.sent, traces.rejected, traces.failures, traces.gaps
            ),
        }
    }
}

/// Reads the file; `None`: there is none.
///
/// # Errors
/// It cannot be read.
pub fn read(folder: &Path) -> Result<Option<State>, Failure> {
    let path = folder.join(FILE);
    let wrong = |why: &dyn fmt::Display| Failure::failed(format_args!("{}: {why}", path.display()));
    match fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(wrong(&error)),
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| wrong(&error)),
    }
}

/// The state of a running bridge.
#[derive(Debug)]
pub struct SharedState {
    folder: PathBuf,
    /// And whether it changed since it was written.
    state: Mutex<(State, bool)>,
    service: Mutex<Service>,
    began: Instant,
}

impl SharedState {
    /// Goes on from the file. Without it, or with that of another cluster, nothing is exported yet.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn load(folder: &Path, cluster: &str) -> Result<Self, Failure> {
        let saved = read(folder)?.filter(|state| state.cluster == cluster);
        let saved = saved.unwrap_or_default();
        let traces = Traces { position: saved.traces.position, ..Traces::default() };
        let cluster = cluster.to_owned();
        let state = State { cluster, place: saved.place, traces, ..State::default() };
        let shared = Self {
            folder: folder.to_owned(),
            state: Mutex::new((state, true)),
            service: Mutex::default(),
            began: Instant::now(),
        };
        shared.save()?;
        Ok(shared)
    }

    fn service(&self) -> MutexGuard<'_, Service> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// A part of the bridge has failed.
    pub fn failed(&self, part: Part, why: &str) {
        self.service().on_failure(self.now_ms(), part, why);
    }

    /// A part of the bridge has done what it should.
    pub fn succeeded(&self, part: Part) {
        self.service().on_success(part);
    }

    /// The former life of this bridge has stated that it does not reach NATS.
    pub fn set_stated(&self) {
        self.service().set_stated();
    }

    /// What is to be published of the bridge now.
    pub fn tick(&self) -> Option<ServiceNotice> {
        let notice = self.service().on_tick(self.now_ms())?;
        self.change(|state| {
            state.problem = match &notice {
                ServiceNotice::Unreachable(why) => Some(why.clone()),
                ServiceNotice::Reachable | ServiceNotice::Watching => None,
            };
        });
        Some(notice)
    }

    /// The state now.
    pub fn get(&self) -> State {
        self.lock().0.clone()
    }

    /// Changes it.
    pub fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state.0);
        state.1 = true;
    }

    fn lock(&self) -> MutexGuard<'_, (State, bool)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the file, if the state has changed or the file is 10 s old. A reader sees the
    /// whole old or new one.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self) -> Result<(), Failure> {
        let state = {
            let (mut state, now_ns) = (self.lock(), now_ns());
            let is_old = now_ns.saturating_sub(state.0.written_ns) >= ALIVE_EVERY_NS;
            if !core::mem::take(&mut state.1) && !is_old {
                return Ok(());
            }
            state.0.written_ns = now_ns;
            state.0.clone()
        };
        let text = serde_json::to_vec(&state)?;
        ftb_cli::files::replace(&self.folder, FILE, &text).map(drop).map_err(|error| {
            Failure::failed(format_args!("{}: {error}", self.folder.join(FILE).display()))
        })
    }

    /// Writes the file again and again.
    ///
    /// # Errors
    /// It cannot be written.
    pub async fn keep(&self) -> Result<(), Failure> {
        loop {
            tokio::time::sleep(SAVE_EVERY).await;
            tokio::task::block_in_place(|| self.save())?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_that_does_not_run_or_does_not_reach_nats_has_a_fault() {
        let written_ns = 1_000 * STALE_NS;
        let good = State { written_ns, ..State::default() };
        assert_eq!(good.fault(written_ns + ALIVE_EVERY_NS), None, "also on standby");
        let old = good.fault(written_ns + STALE_NS + 1).expect("a fault");
        assert!(old.contains("does not run"), "{old}");
        let cut_off = State { problem: Some("no connection".to_owned()), ..good };
        assert_eq!(cut_off.fault(written_ns).as_deref(), Some("no connection"));
    }
}
