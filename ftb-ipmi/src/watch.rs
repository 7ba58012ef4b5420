//! One task for each BMC: log in, learn its sensors, poll, follow its events, and come back after
//! any failure. A dead BMC keeps nobody waiting but its own task.

mod access;
mod log;
mod poll;
mod relays;

use crate::bmc::{Bmc, BmcError};
use crate::config::WatchedNode;
use crate::inventory::{self, Records};
use crate::monitor::{Finding, Input, Monitor, Way};
use crate::rules::Rule;
use crate::sel::SensorEvent;
use log::LogReader;
use poll::{Pass, Poller};
pub use poll::{Row, read_once};
pub(crate) use relays::is_unreached;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

/// First pause after a failure; it doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// Longest pause before a BMC is tried again.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Pause after a failure that somebody has to mend, such as a wrong password: many tries would lock
/// the user out.
const PAUSE_HOPELESS: Duration = Duration::from_secs(300);
/// A session expires after 60 s of silence by the standard's default: long intervals are bridged.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// What a task finds.
#[derive(Clone, Debug)]
pub struct Report {
    /// Host name of the node.
    pub node: Arc<str>,
    /// Where its BMC is.
    pub bmc: Arc<str>,
    /// Unix time in nanoseconds.
    pub time_ns: u64,
    /// What.
    pub finding: Finding,
}

/// What a task tells about itself.
#[derive(Clone, Debug)]
pub enum Note {
    /// It has never reached its BMC, and trying again without a change is useless. Said with each
    /// attempt.
    Hopeless {
        /// Host name of the node.
        node: Arc<str>,
        /// Why.
        message: String,
    },
    /// It has read every sensor.
    Working,
    /// These rules match no sensor of its BMC. Said with each session until the first poll is done.
    Unmatched {
        /// Host name of the node.
        node: Arc<str>,
        /// Which, by index.
        rules: Vec<usize>,
    },
}

/// What all tasks share.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How often to poll.
    pub interval: Duration,
    /// How often to look at the event log; zero is never.
    pub sel_interval: Duration,
    /// How often a fault that lasts is told again; zero is never.
    pub restate: Duration,
    /// Where to keep bookmarks.
    pub state_dir: Option<PathBuf>,
    /// The rules.
    pub rules: Arc<[Rule]>,
}

/// The task of one BMC.
pub struct Watcher {
    config: WatchedNode,
    plan: Plan,
    node: Arc<str>,
    bmc_name: Arc<str>,
    monitor: Monitor,
    poller: Poller,
    log: LogReader,
    /// The records that were read last, so that a new session need not read them again.
    records: Option<Records>,
    started: Instant,
    reports: mpsc::Sender<Report>,
    notes: mpsc::Sender<Note>,
    has_worked: bool,
    is_lost: bool,
}

impl Watcher {
    /// A task that sends what it finds to `reports` (when that is full it waits: nothing is lost,
    /// its own polls come later) and what becomes of itself to `notes`.
    pub fn new(
        config: WatchedNode,
        plan: Plan,
        reports: mpsc::Sender<Report>,
        notes: mpsc::Sender<Note>,
    ) -> Self {
        let path = plan.state_dir.as_ref().map(|dir| dir.join(format!("{}.sel", config.node)));
        Self {
            log: LogReader::new(config.node.as_str().into(), path),
            node: config.node.as_str().into(),
            bmc_name: config.target.name().into(),
            monitor: Monitor::new(plan.restate),
            poller: Poller::default(),
            records: None,
            started: Instant::now(),
            config,
            plan,
            reports,
            notes,
            has_worked: false,
            is_lost: false,
        }
    }

    /// Runs until nobody listens any more. A session that is open then is closed; what else it waits
    /// for at that moment is left.
    pub async fn run(mut self) {
        let mut pause = PAUSE_MIN;
        let reports = self.reports.clone();
        while !reports.is_closed() {
            let connected = tokio::select! {
                connected = Bmc::connect(&self.config.target) => connected,
                () = reports.closed() => return,
            };
            let error = match connected {
                Err(error) => error,
                Ok(mut bmc) => {
                    let result = self.watch(&mut bmc, &mut pause).await;
                    let has_died = matches!(&result, Err(error) if error.is_lost());
                    if !has_died {
                        bmc.close().await;
                    }
                    match result {
                        Ok(()) => return,
                        // It worked until now: a new session may be all that it takes.
                        Err(error) if pause == PAUSE_MIN && has_died && !self.is_lost => {
                            tracing::info!(node = %self.node, %error, "the session is lost: opening another");
                            pause = PAUSE_MIN * 2;
                            continue;
                        }
                        Err(error) => error,
                    }
                }
            };
            self.fail(&error).await;
            let is_hopeless = error.is_permanent();
            tokio::select! {
                () = tokio::time::sleep(if is_hopeless { PAUSE_HOPELESS } else { pause }) => {}
                () = reports.closed() => return,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn fail(&mut self, error: &BmcError) {
        if error.is_permanent() && !self.has_worked {
            let (node, message) = (Arc::clone(&self.node), error.to_string());
            let _ = self.notes.send(Note::Hopeless { node, message }).await;
        }
        if !self.is_lost {
            tracing::warn!(node = %self.node, bmc = %self.bmc_name, %error, "BMC lost");
            self.is_lost = true;
        } else {
            tracing::debug!(node = %self.node, %error, "BMC still lost");
        }
        self.tell(Input::Lost(error.to_string())).await;
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Hands an input to the monitor and its findings on.
    async fn tell(&mut self, input: Input) {
        let mut findings = Vec::new();
        self.monitor.handle(self.now_ms(), input, &mut findings);
        for finding in findings {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let report = Report {
                node: Arc::clone(&self.node),
                bmc: Arc::clone(&self.bmc_name),
                time_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
                finding,
            };
            // Nobody listens when the program ends.
            let _ = self.reports.send(report).await;
        }
    }

    /// Watches an open BMC until it is lost; `Ok` when nobody listens any more.
    async fn watch(&mut self, bmc: &mut Bmc, pause: &mut Duration) -> Result<(), BmcError> {
        let inventory = inventory::read(bmc, &self.plan.rules, &mut self.records).await?;
        let sensors = inventory.watched.len();
        if !self.has_worked && !inventory.unmatched.is_empty() {
            let (node, rules) = (Arc::clone(&self.node), inventory.unmatched);
            let _ = self.notes.send(Note::Unmatched { node, rules }).await;
        }
        self.poller.follow(&inventory.watched, false);
        tracing::info!(
            node = %self.node, bmc = %self.bmc_name, sensors, polled = self.poller.len(), "BMC open"
        );
        self.tell(Input::Inventory(inventory.watched)).await;
        let mut polls = tokio::time::interval(self.plan.interval);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let sel_interval = self.plan.sel_interval;
        self.log.begin_session();
        let mut next_log = (!sel_interval.is_zero()).then(Instant::now);
        loop {
            tokio::select! {
                _ = polls.tick() => {
                    self.poll(bmc).await?;
                    *pause = PAUSE_MIN;
                }
                () = sleep_until(next_log) => {
                    self.read_log(bmc).await?;
                    next_log = self.log.pause(sel_interval).map(|pause| Instant::now() + pause);
                }
                event = bmc.event() => {
                    self.take_events(bmc, &[event?], Way::Pushed).await?;
                    // One event has room in the BMC's buffer: what came with it is in the log.
                    next_log = next_log.map(|_| Instant::now());
                }
                () = tokio::time::sleep(KEEP_ALIVE) => {
                    bmc.run(ipmi_rs::app::GetDeviceId).await?;
                }
                () = self.reports.closed() => return Ok(()),
            }
        }
    }

    async fn poll(&mut self, bmc: &mut Bmc) -> Result<(), BmcError> {
        if self.poller.len() == 0 {
            // Nothing to read: whether the BMC is there has to be asked.
            bmc.run(ipmi_rs::app::GetDeviceId).await?;
        }
        let pass = self.poller.read_all(bmc, self.monitor.watched()).await?;
        self.take_pass(bmc, pass, true).await?;
        if std::mem::take(&mut self.is_lost) {
            tracing::info!(node = %self.node, bmc = %self.bmc_name, "BMC is back");
        }
        if !std::mem::replace(&mut self.has_worked, true) {
            let _ = self.notes.send(Note::Working).await;
        }
        Ok(())
    }

    async fn take_pass(
        &mut self,
        bmc: &mut Bmc,
        pass: Pass,
        is_whole: bool,
    ) -> Result<(), BmcError> {
        let Pass { samples, unread, is_complete, controllers } = pass;
        if is_whole {
            self.tell(Input::Back).await;
            self.tell(Input::Unread(unread.len())).await;
        }
        for (controller, reason) in controllers {
            self.tell(Input::Controller { controller, reason }).await;
        }
        let is_powered = !self.monitor.needs_power(&samples) || poll::is_powered(bmc).await?;
        let is_whole = is_whole && is_complete;
        self.tell(Input::Samples { samples, is_whole, is_powered }).await;
        Ok(())
    }

    async fn read_log(&mut self, bmc: &mut Bmc) -> Result<(), BmcError> {
        let entries = self.log.read_new(bmc).await?;
        self.tell(Input::Log(self.log.state())).await;
        self.take_events(bmc, &entries, Way::Logged).await?;
        self.log.save().await;
        Ok(())
    }

    /// Takes events, and at once reads the sensors that they are about: the reading decides.
    async fn take_events(
        &mut self,
        bmc: &mut Bmc,
        records: &[[u8; 16]],
        way: Way,
    ) -> Result<(), BmcError> {
        for event in records.iter().filter_map(SensorEvent::parse) {
            tracing::debug!(node = %self.node, ?event, "event of the BMC");
            self.tell(Input::Event { event, way }).await;
        }
        let rereads = self.monitor.take_rereads();
        if !rereads.is_empty() {
            let pass = self.poller.read(bmc, self.monitor.watched(), &rereads).await?;
            self.take_pass(bmc, pass, false).await?;
        }
        Ok(())
    }
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
