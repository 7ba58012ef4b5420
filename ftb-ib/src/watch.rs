//! The shell around the monitor: lists and opens adapters, waits for their events, reads their
//! counters, owns the clock, and publishes findings.
//!
//! One task owns the monitor, and one task for each open adapter waits for its events. Blocking
//! calls (opening a device, reading a port through its firmware) run on other threads. The order
//! for each adapter is: open, list, report, then read events. Events in between wait in the kernel.
//!
//! An open adapter keeps its driver in use. It is closed after a failure, so that the driver can
//! reset it, and on request: see [`run`].

use crate::config::Config;
use crate::facts::{ADAPTERS_MAX, AdapterFacts, PortReading, guid_words};
use crate::finding::Finding;
use crate::kind::Kind;
use crate::monitor::{Input, Monitor};
use crate::sysfs::Sysfs;
use crate::uevent::Uevents;
use crate::verbs::{Context, Verbs, VerbsError};
use ftb_client::daemon;
use ftb_core::Event;
use ftb_core::condition::pairs::ConditionPairs;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Most messages to the monitor; further events wait in the kernel.
const MESSAGES_MAX: usize = 256;

/// A message to the task that owns the monitor.
enum Message {
    Scanned {
        began_ns: u64,
        scan: Box<Scan>,
    },
    Event {
        adapter: String,
        opening: u64,
        number: u32,
        port: Option<u8>,
        reading: Option<PortReading>,
    },
    Lost {
        adapter: String,
        opening: u64,
        error: io::Error,
    },
    Sampled(Vec<Sample>),
}

struct Sample {
    adapter: String,
    port: u8,
    values: Vec<(String, u64)>,
}

/// Result of one listing.
struct Scan {
    verbs: Option<Arc<Verbs>>,
    adapters: Vec<AdapterFacts>,
    opened: Vec<(String, Context)>,
    problems: BTreeMap<String, String>,
}

/// An adapter whose events are being read.
struct Reader {
    /// Number of this opening: the same adapter may have been opened before.
    opening: u64,
    guid: String,
    task: AbortHandle,
}

impl Drop for Reader {
    fn drop(&mut self) {
        // The task owns the device: its end closes the device.
        self.task.abort();
    }
}

struct Shell<P> {
    config: Config,
    sysfs: Sysfs,
    monitor: Monitor,
    publish: P,
    start: Instant,
    sender: mpsc::Sender<Message>,
    verbs: Option<Arc<Verbs>>,
    readers: BTreeMap<String, Reader>,
    openings: u64,
    /// Adapters that failed, or whose events ended. The next regular listing opens them again.
    lost: BTreeSet<String>,
    /// Until then no adapter is opened, so that drivers can be unloaded.
    released_until: Option<Instant>,
    adapters: Vec<AdapterFacts>,
    problems: BTreeMap<String, String>,
    scanning: bool,
    scan_again: bool,
    /// The current listing is outdated and must be repeated.
    outdated: bool,
    sampling: bool,
    ready: bool,
}

/// Watches until `stop` resolves and passes every event to `publish`, which must not block. A
/// notification of `release` closes all adapters for the configured time, so that their drivers can
/// be unloaded. Their ports are watched through sysfs meanwhile. Must run on a runtime with more
/// than one thread.
pub async fn run(
    config: Config,
    publish: impl FnMut(Event),
    release: &Notify,
    stop: impl Future<Output = ()>,
) {
    let (sender, mut messages) = mpsc::channel(MESSAGES_MAX);
    let mut rescan = ticks(config.rescan);
    let mut sample = config.sample_interval.map(ticks);
    let mut uevents = Uevents::listen()
        .inspect_err(|error| tracing::info!(%error, "no kernel events: listing regularly"))
        .ok();
    let mut shell = Shell::new(config, publish, sender);
    tokio::pin!(stop);
    let watchdog = daemon::feed_watchdog();
    tokio::pin!(watchdog);
    loop {
        let due = shell.until_deadline();
        tokio::select! {
            () = &mut stop => break,
            _ = &mut watchdog => {}
            Some(message) = messages.recv() => shell.on_message(message),
            () = tokio::time::sleep(due.unwrap_or_default()), if due.is_some() => {
                shell.handle(Input::Tick);
            }
            result = changed(uevents.as_ref()) => {
                if let Err(error) = result {
                    tracing::warn!(%error, "kernel events ended: listing regularly");
                    uevents = None;
                }
                shell.scan();
            }
            _ = rescan.tick() => {
                shell.lost.clear();
                shell.scan();
            }
            () = tick(sample.as_mut()) => shell.sample(),
            () = release.notified() => shell.release(),
            () = until(shell.released_until) => shell.open_again(),
        }
    }
}

fn ticks(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

async fn tick(ticks: Option<&mut Interval>) {
    match ticks {
        Some(ticks) => {
            ticks.tick().await;
        }
        None => std::future::pending().await,
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

async fn changed(uevents: Option<&Uevents>) -> io::Result<()> {
    match uevents {
        Some(uevents) => uevents.rdma_changed().await,
        None => std::future::pending().await,
    }
}

impl<P: FnMut(Event)> Shell<P> {
    fn new(config: Config, publish: P, sender: mpsc::Sender<Message>) -> Self {
        Self {
            sysfs: Sysfs::new(&config.sysfs, config.neighbours.clone()),
            monitor: Monitor::new(config.debounce, config.rules.clone()),
            config,
            publish,
            start: Instant::now(),
            sender,
            verbs: None,
            readers: BTreeMap::new(),
            openings: 0,
            lost: BTreeSet::new(),
            released_until: None,
            adapters: Vec::new(),
            problems: BTreeMap::new(),
            scanning: false,
            scan_again: false,
            outdated: false,
            sampling: false,
            ready: false,
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn until_deadline(&self) -> Option<Duration> {
        let deadline_ns = self.monitor.deadline_ns()?;
        Some(Duration::from_nanos(deadline_ns.saturating_sub(self.now_ns())))
    }

    fn handle(&mut self, input: Input) {
        let mut findings = Vec::new();
        self.monitor.handle(self.now_ns(), input, &mut findings);
        for finding in findings {
            self.publish(&finding);
        }
    }

    fn publish(&mut self, finding: &Finding) {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH);
        let time_ns = wall.map_or(0, |wall| u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX));
        let event = finding.to_event(&self.config.severities, time_ns);
        let severity = event.severity.as_str();
        let condition = ConditionPairs::built_in().stated_by(&event);
        (self.publish)(event);
        tracing::info!(
            target: "ftb::transition",
            event = finding.kind.name(),
            condition = condition.as_ref().map(|condition| &condition.key[..]),
            severity,
            payload = finding.payload,
            "publish"
        );
    }

    fn on_message(&mut self, message: Message) {
        match message {
            Message::Scanned { began_ns, scan } => self.on_scan(began_ns, *scan),
            Message::Event { adapter, opening, number, port, reading } => {
                if self.is_current(&adapter, opening) {
                    if Kind::from_verbs(number) == Kind::DeviceFatal {
                        // This opening gives no more events, and it may block a reset.
                        tracing::warn!(
                            adapter,
                            "the adapter failed: closed until the next listing"
                        );
                        self.readers.remove(&adapter);
                        self.lost.insert(adapter.clone());
                    }
                    self.handle(Input::Async { adapter, number, port, reading });
                }
            }
            Message::Lost { adapter, opening, error } => {
                if self.is_current(&adapter, opening) {
                    tracing::warn!(adapter, %error, "the events of the adapter ended");
                    self.readers.remove(&adapter);
                    self.lost.insert(adapter.clone());
                    self.outdated = self.scanning;
                    self.handle(Input::Removed(adapter));
                    self.scan();
                }
            }
            Message::Sampled(samples) => {
                self.sampling = false;
                for Sample { adapter, port, values } in samples {
                    self.handle(Input::Counters { adapter, port, values });
                }
            }
        }
    }

    fn is_current(&self, adapter: &str, opening: u64) -> bool {
        let reader = self.readers.get(adapter);
        reader.is_some_and(|reader| reader.opening == opening)
    }

    fn release(&mut self) {
        let pause_s = self.config.release.as_secs_f64();
        tracing::info!(adapters = self.readers.len(), pause_s, "closing all adapters for a while");
        self.readers.clear();
        self.released_until = Some(Instant::now() + self.config.release);
        self.scan();
    }

    fn open_again(&mut self) {
        self.released_until = None;
        self.scan();
    }

    /// Whether adapters must stay closed.
    fn is_released(&self) -> bool {
        self.released_until.is_some()
    }

    /// Lists the adapters on another thread. A request during a listing causes another one.
    fn scan(&mut self) {
        if self.scanning {
            self.scan_again = true;
            return;
        }
        self.scanning = true;
        let sysfs = self.sysfs.clone();
        let verbs = self.verbs.clone();
        let open: BTreeMap<_, _> =
            self.readers.iter().map(|(name, reader)| (name.clone(), reader.guid.clone())).collect();
        let skip = match self.is_released() {
            true => Skip::All,
            false => Skip::Only(self.lost.clone()),
        };
        let began_ns = self.now_ns();
        let sender = self.sender.clone();
        tokio::task::spawn_blocking(move || {
            let scan = Box::new(scan(&sysfs, verbs, &open, &skip));
            // The receiver is gone only when the daemon stops.
            let _ = sender.blocking_send(Message::Scanned { began_ns, scan });
        });
    }

    fn on_scan(&mut self, began_ns: u64, scan: Scan) {
        self.scanning = false;
        if std::mem::take(&mut self.outdated) {
            // The listing may contain an adapter that was lost since.
            return self.scan();
        }
        self.verbs = scan.verbs;
        self.readers.retain(|name, reader| {
            let still = |facts: &AdapterFacts| facts.name == *name && facts.guid == reader.guid;
            scan.adapters.iter().any(still)
        });
        self.log_problems(scan.problems);
        self.adapters = scan.adapters;
        let adapters = self.adapters.clone();
        self.handle(Input::Inventory { began_ns, adapters });
        for (name, context) in scan.opened {
            // Close an adapter again that failed, or was released, since it was opened.
            if !self.is_released() && !self.lost.contains(&name) {
                self.read_events(name, context);
            }
        }
        if std::mem::take(&mut self.scan_again) {
            self.scan();
        }
        self.notify();
    }

    /// Logs new problems and the end of old ones.
    fn log_problems(&mut self, problems: BTreeMap<String, String>) {
        for (subject, problem) in &problems {
            if self.problems.get(subject) != Some(problem) {
                tracing::warn!("{problem}");
            }
        }
        for subject in self.problems.keys().filter(|key| !problems.contains_key(*key)) {
            tracing::info!(subject, "problem solved");
        }
        self.problems = problems;
    }

    fn notify(&mut self) {
        let ports = || self.adapters.iter().flat_map(|adapter| &adapter.ports);
        let up = ports().filter(|port| port.reading.state.is_up()).count();
        let status = format!(
            "{} adapters, {up} of {} ports active, events of {} adapters",
            self.adapters.len(),
            ports().count(),
            self.readers.len(),
        );
        if self.ready {
            daemon::notify_status(&status);
        } else {
            self.ready = true;
            tracing::info!("watching: {status}");
            daemon::notify_ready(&status);
        }
    }

    fn read_events(&mut self, name: String, context: Context) {
        let facts = self.adapters.iter().find(|facts| facts.name == name);
        let Some(guid) = facts.map(|facts| facts.guid.clone()) else {
            return;
        };
        let fd = match context.wait_for_events() {
            Ok(fd) => fd,
            Err(error) => {
                tracing::warn!(adapter = name, %error, "cannot wait for events of the adapter");
                return;
            }
        };
        tracing::info!(adapter = name, "reading events of the adapter");
        self.openings += 1;
        let opening = self.openings;
        let task = tokio::spawn(read_events(name.clone(), opening, fd, self.sender.clone()));
        let reader = Reader { opening, guid, task: task.abort_handle() };
        self.readers.insert(name, reader);
    }

    /// Reads all counters with a rule on another thread, unless the last reading still runs.
    fn sample(&mut self) {
        if self.sampling || self.adapters.is_empty() {
            return;
        }
        self.sampling = true;
        let sysfs = self.sysfs.clone();
        let rules = self.config.rules.clone();
        let ports: Vec<_> = self
            .adapters
            .iter()
            .flat_map(|facts| facts.ports.iter().map(|port| (facts.name.clone(), port.number)))
            .collect();
        let sender = self.sender.clone();
        tokio::task::spawn_blocking(move || {
            let names = || rules.iter().map(|rule| rule.counter.as_str());
            let samples = ports
                .into_iter()
                .map(|(adapter, port)| Sample {
                    values: sysfs.counters(&adapter, port, names()),
                    adapter,
                    port,
                })
                .collect();
            // The receiver is gone only when the daemon stops.
            let _ = sender.blocking_send(Message::Sampled(samples));
        });
    }
}

/// Adapters that must stay closed now.
enum Skip {
    All,
    Only(BTreeSet<String>),
}

impl Skip {
    fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.contains(name),
        }
    }
}

/// Lists the adapters, opens closed ones, and reads the facts about all of them.
fn scan(
    sysfs: &Sysfs,
    mut verbs: Option<Arc<Verbs>>,
    open: &BTreeMap<String, String>,
    skip: &Skip,
) -> Scan {
    let mut names = sysfs.adapters();
    let mut opened = Vec::new();
    let mut problems = BTreeMap::new();
    if names.len() > ADAPTERS_MAX {
        let problem = format!("{} adapters: only {ADAPTERS_MAX} are watched", names.len());
        problems.insert("adapters".to_owned(), problem);
        names.truncate(ADAPTERS_MAX);
    }
    for name in &names {
        let guid = sysfs.guid(name);
        if open.get(name) == Some(&guid) || skip.has(name) {
            continue;
        }
        match open_adapter(&mut verbs, name, &guid) {
            Ok(context) => opened.push((name.clone(), context)),
            Err(error) => {
                let subject = match error {
                    VerbsError::Library(_) | VerbsError::List(_) => "verbs".to_owned(),
                    _ => name.clone(),
                };
                problems.insert(subject, format!("{error}; watching through sysfs only"));
            }
        }
    }
    let adapters = names.iter().filter_map(|name| sysfs.adapter(name)).collect();
    Scan { verbs, adapters, opened, problems }
}

fn open_adapter(
    verbs: &mut Option<Arc<Verbs>>,
    name: &str,
    guid: &str,
) -> Result<Context, VerbsError> {
    let verbs = match verbs {
        Some(verbs) => verbs,
        None => verbs.insert(Verbs::load()?),
    };
    let context = verbs.open(name)?;
    if guid_words(context.guid().into()) == guid {
        Ok(context)
    } else {
        Err(VerbsError::Replaced(name.to_owned()))
    }
}

/// Sends the events of one adapter until they end. Aborting the task closes the adapter.
async fn read_events(
    adapter: String,
    opening: u64,
    fd: AsyncFd<Context>,
    sender: mpsc::Sender<Message>,
) {
    let error = loop {
        let mut ready = match fd.readable().await {
            Ok(ready) => ready,
            Err(error) => break error,
        };
        let event = match ready.try_io(|fd| fd.get_ref().next_event()) {
            Ok(Ok(event)) => event,
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(Err(error)) => break error,
            Err(_would_block) => continue,
        };
        let port = u8::try_from(event.port)
            .ok()
            .filter(|port| *port > 0 && Kind::from_verbs(event.number).is_of_port());
        // The current state, not the state at the event: drivers repeat events.
        let reading = port.and_then(|port| {
            tokio::task::block_in_place(|| fd.get_ref().query_port(port))
                .inspect_err(|error| tracing::debug!(adapter, port, %error, "cannot read the port"))
                .ok()
        });
        let message = Message::Event {
            adapter: adapter.clone(),
            opening,
            number: event.number,
            port,
            reading,
        };
        if sender.send(message).await.is_err() {
            return;
        }
    };
    drop(fd);
    let lost = Message::Lost { adapter, opening, error };
    // The receiver is gone only when the daemon stops.
    let _ = sender.send(lost).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn adapters_beyond_the_limit_are_ignored_with_a_warning() {
        let tree = tempfile::tempdir().expect("a folder");
        for number in 0..=ADAPTERS_MAX {
            let folder = tree.path().join(format!("class/infiniband/mlx5_{number}/ports/1"));
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join("state"), "4: ACTIVE\n").expect("a file");
        }
        let sysfs = Sysfs::new(tree.path(), BTreeMap::new());
        let scan = scan(&sysfs, None, &BTreeMap::new(), &Skip::All);
        assert_eq!(scan.adapters.len(), ADAPTERS_MAX);
        let problem = scan.problems.get("adapters").expect("a problem");
        assert_eq!(problem, "65 adapters: only 64 are watched");
    }
}
