//! One task for each BMC: logs in, lists the sensors, polls, reads events, and logs in again after
//! a failure. A dead BMC delays only its own task.

mod access;
mod faults;
mod log;
mod poll;
mod relays;
mod saved;

use crate::bmc::command::GetPower;
use crate::bmc::{Bmc, BmcError};
use crate::conditions::{Inbox, News};
use crate::config::WatchedNode;
use crate::inventory::{self, Records};
use crate::monitor::{EventSource, Finding, FindingKind, Input, Monitor, Statement};
use crate::rules::Rule;
use crate::sel::SensorEvent;
use faults::EventFaults;
use ftb_core::condition::CHASSIS_OFF;
use log::LogReader;
use poll::{Pass, Poller};
pub use poll::{Row, read_once};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

/// First pause after a failure. Pauses double up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(500);
/// Longest pause before the next attempt.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Pause after a failure that needs a change by an administrator, such as a wrong password. Many
/// attempts would lock the user out.
const PAUSE_PERMANENT: Duration = Duration::from_secs(300);
/// Interval of commands that keep the session alive. By default it expires after 60 s.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// How long the end waits until the agent has decided on the last kept conditions.
const DECISION_DEADLINE: Duration = Duration::from_secs(1);

/// A finding of a task.
#[derive(Clone, Debug)]
pub struct Report {
    /// Host name of the node.
    pub node: Arc<str>,
    /// Name of the BMC.
    pub bmc: Arc<str>,
    /// Unix time in nanoseconds.
    pub time_ns: u64,
    /// The finding.
    pub finding: Finding,
    /// It states a kept condition.
    pub kept: Option<Undecided>,
}

/// A kept condition that the agent has neither accepted nor refused. The bookmark of the event log
/// waits until it is dropped.
#[derive(Clone, Debug)]
pub struct Undecided {
    news: Arc<Inbox>,
    _token: watch::Receiver<()>,
}

impl Undecided {
    /// The agent has refused it.
    pub(crate) fn refuse(&self, component: &str, key: &str) {
        self.news.on_refused(component, key);
    }
}

/// The progress of a task.
#[derive(Clone, Debug)]
pub enum Progress {
    /// The task never reached its BMC, which needs a change by an administrator. Sent after each
    /// attempt.
    Unreachable {
        /// Host name of the node.
        node: Arc<str>,
        /// The reason.
        message: String,
    },
    /// The task has read every sensor.
    Working,
    /// These rules match no sensor of the BMC. Sent in each session until the first poll succeeds.
    Unmatched {
        /// Host name of the node.
        node: Arc<str>,
        /// Indices of the rules.
        rules: Vec<usize>,
    },
}

/// Settings of all tasks.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Interval of polls.
    pub interval: Duration,
    /// Interval of reads of the event log; zero means never.
    pub sel_interval: Duration,
    /// Interval after which a lasting fault is published again; zero means never.
    pub restate: Duration,
    /// Folder of bookmarks of event logs, and of faults that only events report.
    pub state_dir: Option<PathBuf>,
    /// The rules for sensors.
    pub rules: Arc<[Rule]>,
    /// An agent has the table of conditions: a node is healthy only after its rows were read.
    pub has_table: bool,
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
    faults: EventFaults,
    /// The last sensor records: a new session does not read them again.
    records: Option<Records>,
    started: Instant,
    reports: mpsc::Sender<Report>,
    progress: mpsc::Sender<Progress>,
    has_worked: bool,
    is_lost: bool,
    /// An agent misses the node: its power is to be read now.
    missed: Arc<Notify>,
    /// News of the table of conditions.
    news: Arc<Inbox>,
    /// The node was powered off when its power was read last.
    is_off: bool,
    /// An earlier life has reported it as powered off: the next answer is news.
    is_power_due: bool,
    /// Each [`Undecided`] has a receiver.
    undecided: watch::Sender<()>,
    /// Findings about entries of the log before its place may be lost.
    is_log_ahead: bool,
    /// The place in the log is saved when the agent has decided, also if it does so meanwhile.
    is_place_due: bool,
}

impl Watcher {
    /// A task that sends findings to `reports` and its progress to `progress`. If `reports` is
    /// full, it waits and polls later; no finding is lost.
    pub fn new(
        config: WatchedNode,
        plan: Plan,
        reports: mpsc::Sender<Report>,
        progress: mpsc::Sender<Progress>,
    ) -> Self {
        let path =
            |of: &str| plan.state_dir.as_ref().map(|dir| dir.join(format!("{}.{of}", config.node)));
        Self {
            log: LogReader::new(config.node.as_str().into(), path("sel")),
            faults: EventFaults::load(path("faults")),
            node: config.node.as_str().into(),
            bmc_name: config.target.name().into(),
            monitor: match plan.has_table {
                true => Monitor::new(plan.restate).awaiting_former(),
                false => Monitor::new(plan.restate),
            },
            poller: Poller::default(),
            records: None,
            started: Instant::now(),
            config,
            plan,
            reports,
            progress,
            has_worked: false,
            is_lost: false,
            missed: Arc::default(),
            news: Arc::default(),
            is_off: false,
            is_power_due: false,
            undecided: watch::Sender::new(()),
            is_log_ahead: false,
            is_place_due: false,
        }
    }

    /// Notified, it reads and reports at once whether the node is powered on.
    pub fn missed(&self) -> Arc<Notify> {
        Arc::clone(&self.missed)
    }

    /// Takes news of the table of conditions about the node.
    pub fn news(&self) -> Arc<Inbox> {
        Arc::clone(&self.news)
    }

    /// Runs until the receiver of findings is dropped, then closes an open session.
    pub async fn run(mut self) {
        self.watch_sessions().await;
        self.save_last().await;
    }

    async fn watch_sessions(&mut self) {
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
                    let is_lost = matches!(&result, Err(error) if error.is_lost());
                    if !is_lost {
                        bmc.close().await;
                    }
                    match result {
                        Ok(()) => return,
                        // It worked until now: a new session may suffice.
                        Err(error) if pause == PAUSE_MIN && is_lost && !self.is_lost => {
                            tracing::info!(node = %self.node, %error, "session lost");
                            pause = PAUSE_MIN * 2;
                            continue;
                        }
                        Err(error) => error,
                    }
                }
            };
            self.on_failure(&error).await;
            let pause_now = if error.is_permanent() { PAUSE_PERMANENT } else { pause };
            tokio::select! {
                () = tokio::time::sleep(pause_now) => {}
                () = reports.closed() => return,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn on_failure(&mut self, error: &BmcError) {
        if error.is_permanent() && !self.has_worked {
            let (node, message) = (Arc::clone(&self.node), error.to_string());
            let _ = self.progress.send(Progress::Unreachable { node, message }).await;
        }
        if !self.is_lost {
            tracing::warn!(node = %self.node, bmc = %self.bmc_name, %error, "BMC lost");
            self.is_lost = true;
        } else {
            tracing::debug!(node = %self.node, %error, "BMC still lost");
        }
        self.handle(Input::Lost(error.to_string())).await;
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Gives an input to the monitor and sends the findings.
    async fn handle(&mut self, input: Input) {
        let mut findings = Vec::new();
        self.monitor.handle(self.now_ms(), input, &mut findings);
        self.report(findings).await;
        if let Some(faults) = self.monitor.event_faults() {
            self.faults.save(faults).await;
        }
    }

    async fn report(&self, findings: Vec<Finding>) {
        for finding in findings {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let kept = (finding.statement == Statement::Kept)
                .then(|| Undecided { news: self.news(), _token: self.undecided.subscribe() });
            let report = Report {
                kept,
                node: Arc::clone(&self.node),
                bmc: Arc::clone(&self.bmc_name),
                time_ns: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
                finding,
            };
            // The receiver is gone when the program ends.
            let _ = self.reports.send(report).await;
        }
    }

    /// Watches a connected BMC until it is lost; `Ok` if the receiver of findings is dropped.
    async fn watch(&mut self, bmc: &mut Bmc, pause: &mut Duration) -> Result<(), BmcError> {
        let inventory = inventory::read(bmc, &self.plan.rules, &mut self.records).await?;
        let sensors = inventory.watched.len();
        if !self.has_worked && !inventory.unmatched.is_empty() {
            let (node, rules) = (Arc::clone(&self.node), inventory.unmatched);
            let _ = self.progress.send(Progress::Unmatched { node, rules }).await;
        }
        self.poller.select(&inventory.watched, false);
        tracing::info!(
            node = %self.node,
            bmc = %self.bmc_name,
            sensors,
            polled = self.poller.len(),
            "BMC connected"
        );
        self.handle(Input::Inventory(inventory.watched)).await;
        let mut polls = tokio::time::interval(self.plan.interval);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let sel_interval = self.plan.sel_interval;
        self.log.begin_session();
        let mut next_log = (!sel_interval.is_zero()).then(Instant::now);
        let (missed, news) = (self.missed(), self.news());
        loop {
            tokio::select! {
                () = news.changed() => self.take_news(bmc).await?,
                () = missed.notified() => self.read_power(bmc, true).await?,
                _ = polls.tick() => {
                    self.poll(bmc).await?;
                    if self.is_off || self.is_power_due {
                        self.read_power(bmc, false).await?;
                    }
                    *pause = PAUSE_MIN;
                }
                () = sleep_until(next_log) => {
                    self.read_log(bmc).await?;
                    next_log = self.log_pause().map(|pause| Instant::now() + pause);
                }
                () = self.undecided.closed(), if self.is_place_due => {
                    self.save_place().await;
                }
                event = bmc.event() => {
                    self.on_events(bmc, &[event?], EventSource::Pushed).await?;
                    // The buffer of the BMC has room for one event: the log has the others.
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
            // Without sensors to read, another command finds a lost BMC.
            bmc.run(ipmi_rs::app::GetDeviceId).await?;
        }
        let pass = self.poller.read_all(bmc, self.monitor.watched()).await?;
        self.on_pass(bmc, pass, true).await?;
        if std::mem::take(&mut self.is_lost) {
            tracing::info!(node = %self.node, bmc = %self.bmc_name, "BMC is back");
        }
        if !std::mem::replace(&mut self.has_worked, true) {
            let _ = self.progress.send(Progress::Working).await;
        }
        Ok(())
    }

    async fn on_pass(&mut self, bmc: &mut Bmc, pass: Pass, is_whole: bool) -> Result<(), BmcError> {
        let Pass { samples, unread, is_complete, controllers } = pass;
        if is_whole {
            self.handle(Input::Back).await;
            self.handle(Input::Unread(unread.len())).await;
        }
        for (controller, reason) in controllers {
            self.handle(Input::Controller { controller, reason }).await;
        }
        let is_powered = !self.monitor.needs_power(&samples) || poll::is_powered(bmc).await?;
        let is_whole = is_whole && is_complete;
        self.handle(Input::Samples { samples, is_whole, is_powered }).await;
        Ok(())
    }

    /// Reports whether the node is powered on, if it `is_missed` or that is news. No report if
    /// the BMC does not know.
    async fn read_power(&mut self, bmc: &mut Bmc, is_missed: bool) -> Result<(), BmcError> {
        let is_on = match bmc.run(GetPower).await {
            Ok(is_on) => is_on,
            Err(error) if error.is_lost() => return Err(error),
            Err(_) => return Ok(()),
        };
        let was_off = std::mem::replace(&mut self.is_off, !is_on);
        let is_due = std::mem::take(&mut self.is_power_due) || is_missed;
        if !is_due && was_off != is_on {
            return Ok(());
        }
        let kind = if is_on { FindingKind::ChassisOn } else { FindingKind::ChassisOff };
        self.report(vec![Finding::node(kind, None)]).await;
        Ok(())
    }

    async fn take_news(&mut self, bmc: &mut Bmc) -> Result<(), BmcError> {
        let News { former, cleared, refused } = self.news.take();
        if let Some(mut rows) = former {
            for row in &mut rows {
                row.event_states = self.faults.states_of(&row.component, &row.key);
            }
            self.is_power_due |= rows.iter().any(|row| row.key == CHASSIS_OFF);
            self.handle(Input::Former(rows)).await;
        }
        for (component, key) in cleared {
            self.handle(Input::ClearedByHand { component, key }).await;
        }
        for (component, key) in refused {
            self.handle(Input::KeptRefused { component, key }).await;
        }
        // Last: the BMC may be lost.
        if self.is_power_due {
            self.read_power(bmc, false).await?;
        }
        Ok(())
    }

    /// Pause before the next read of the log; `None`: this session has no log.
    fn log_pause(&self) -> Option<Duration> {
        self.log.pause(self.plan.sel_interval)
    }

    fn is_undecided(&self) -> bool {
        self.undecided.receiver_count() > 0
    }

    async fn read_log(&mut self, bmc: &mut Bmc) -> Result<(), BmcError> {
        let entries = self.log.read_new(bmc).await?;
        if let Some(state) = self.log.state() {
            self.handle(Input::Log(state)).await;
        }
        self.is_log_ahead = true;
        self.on_events(bmc, &entries, EventSource::Logged).await?;
        self.is_log_ahead = self.reports.is_closed();
        self.is_place_due = self.is_undecided();
        if !self.is_place_due {
            self.save_place().await;
        }
        Ok(())
    }

    /// After an end before this, the next life reads the entries again.
    async fn save_place(&mut self) {
        self.is_place_due = false;
        if !self.is_log_ahead {
            self.log.save().await;
        }
    }

    /// At the end: waits until the agent has decided on the last kept conditions.
    async fn save_last(&mut self) {
        if tokio::time::timeout(DECISION_DEADLINE, self.undecided.closed()).await.is_ok() {
            self.save_place().await;
        }
    }

    /// Handles events, then reads their sensors at once: the reading decides.
    async fn on_events(
        &mut self,
        bmc: &mut Bmc,
        records: &[[u8; 16]],
        source: EventSource,
    ) -> Result<(), BmcError> {
        for event in records.iter().filter_map(SensorEvent::parse) {
            tracing::debug!(node = %self.node, ?event, "event of the BMC");
            self.handle(Input::Event { event, source }).await;
        }
        let rereads = self.monitor.take_rereads();
        if !rereads.is_empty() {
            let pass = self.poller.read(bmc, self.monitor.watched(), &rereads).await?;
            self.on_pass(bmc, pass, false).await?;
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

#[cfg(test)]
mod tests;
