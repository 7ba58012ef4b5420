//! Lists running jobs, shows one, and sends requests to one.

use super::jobdir::{JobDir, JobFile, StateFile};
use super::{backplane, waiting};
use crate::clock::Clock;
use core::time::Duration;
use ftb_client::{Delivery, Start};
use ftb_launcher_core::jl::{IntervalView, Jl, Job, NodeWait};
use ftb_launcher_core::memory::{Group, MemorySet, Scheme};
use ftb_launcher_core::message::{Answer, NumberedRequest, Outcome};
use ftb_launcher_core::migration_state::MigrationState;
use ftb_launcher_core::names::{JobId, NodeName, SetId};
use ftb_launcher_core::progress::{Finding, HangKind};
use ftb_launcher_core::warm::ParkedProcesses;
use ftb_launcher_core::wire;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

/// A job, for display and as JSON.
#[derive(Clone, Debug, Serialize)]
pub struct JobView {
    pub job: String,
    /// `running`, `waiting` (for a node), `orphaned` (its launcher is gone: use attach), `done` or
    /// `unreadable`.
    pub state: &'static str,
    pub ranks: u32,
    /// The open phase.
    pub doing: String,
    pub nodes: BTreeMap<String, NodeView>,
    /// Committed sets, oldest first.
    pub sets: Vec<String>,
    /// The checkpoint interval in force and its reason.
    pub saved: Option<IntervalView>,
    /// Checkpoints in memory, if the job has them.
    pub memory: Option<MemoryView>,
    /// Checkpoints on the disks of the nodes, if the job has them.
    pub disks: Option<DiskView>,
    /// Whether moving ranks are copied beforehand: the backend must copy them, and the kernel of
    /// the launcher's host must track memory changes.
    pub precopy: Option<bool>,
    /// Why its ranks can be neither saved nor moved; `None` if they can, or if it is not known yet.
    pub immovable: Option<String>,
    /// The node that the job has no replacement for and waits for.
    pub waits: Option<WaitView>,
    pub hung: Vec<HungView>,
    /// Faults that wait for a spare or for ranks that can move.
    pub pending: Vec<PendingView>,
    /// The exit code of a job that is done.
    pub exit: Option<i32>,
}

/// Checkpoints in memory.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryView {
    pub scheme: Scheme,
    /// The interval in force and its reason.
    pub saved: IntervalView,
    /// The set that counts.
    pub set: Option<SetId>,
    /// Bytes of its images, on all nodes together.
    pub bytes: u64,
    /// Bytes of parity and copies beside them.
    pub protection_bytes: u64,
    /// The nodes that hold the shares of each group.
    pub groups: Vec<Vec<NodeName>>,
}

impl MemoryView {
    fn of(jl: &Jl) -> Option<Self> {
        let (config, saved) = (jl.job().config.memory.as_ref()?, jl.memory_timer()?.view());
        let set = jl.job().memory.as_ref();
        let (bytes, protection_bytes) = set.map_or((0, 0), MemorySet::bytes);
        let hosts = |group: &Group| group.members.iter().map(|of| of.host.clone()).collect();
        let groups = set.into_iter().flat_map(|set| &set.groups).map(hosts).collect();
        let set = set.map(|set| set.set.clone());
        Some(Self { scheme: config.scheme, saved, set, bytes, protection_bytes, groups })
    }
}

/// Checkpoints on the disks of the nodes.
#[derive(Clone, Debug, Serialize)]
pub struct DiskView {
    /// The interval in force and its reason.
    pub saved: IntervalView,
    /// The set that counts.
    pub set: Option<SetId>,
}

impl DiskView {
    fn of(jl: &Jl) -> Option<Self> {
        Some(Self { saved: jl.disk_timer()?.view(), set: jl.job().disk_set().cloned() })
    }
}

/// A hung rank, or all ranks.
#[derive(Clone, Debug, Serialize)]
pub struct HungView {
    /// `None`: all ranks.
    pub rank: Option<u32>,
    pub node: Option<String>,
    pub pid: u32,
    pub kind: HangKind,
    /// Seconds.
    pub age_s: u64,
}

impl HungView {
    fn new(finding: &Finding, job: &Job, now_ns: u64) -> Self {
        let row = finding.rank.and_then(|rank| job.ranks.get(rank as usize));
        Self {
            rank: finding.rank,
            node: row.map(|row| row.node.to_string()),
            pid: finding.pid,
            kind: finding.kind,
            age_s: now_ns.saturating_sub(finding.since_ns) / 1_000_000_000,
        }
    }
}

/// A job that waits for a node. Times as in RFC 3339.
#[derive(Clone, Debug, Serialize)]
pub struct WaitView {
    pub node: NodeName,
    pub since: String,
    pub until: String,
}

impl WaitView {
    fn new(wait: &NodeWait) -> Self {
        let time = |ns: u64| {
            let time = SystemTime::UNIX_EPOCH + Duration::from_nanos(ns);
            humantime::format_rfc3339_seconds(time).to_string()
        };
        let (since, until) = (time(wait.since_ns), time(wait.until_ns));
        Self { node: wait.node.clone(), since, until }
    }
}

/// A waiting fault.
#[derive(Clone, Debug, Serialize)]
pub struct PendingView {
    pub node: String,
    /// The name of the policy's rule.
    pub reason: String,
}

/// One node of a job.
#[derive(Clone, Debug, Serialize)]
pub struct NodeView {
    /// Its migration state, `LOST`, `STARTING`, or [`BECOMES_SPARE`].
    pub state: String,
    pub ranks: Vec<u32>,
    /// Why it gets no ranks.
    pub unusable: Option<String>,
    /// Its processes that wait for a rank to replace, if the job has such.
    pub parked: Option<ParkedProcesses>,
}

/// State of a node that may be used again, until its agent has confirmed it.
pub const BECOMES_SPARE: &str = "BECOMES_SPARE";

/// All jobs of this user below `jobs`, by name.
pub fn list(jobs: &Path) -> Vec<JobView> {
    let entries = std::fs::read_dir(jobs).into_iter().flatten().filter_map(Result::ok);
    let ids = entries.filter_map(|e| e.file_name().to_str().and_then(|name| JobId::new(name).ok()));
    let own = ids.filter(|job| JobDir::new(jobs, job).is_own());
    let mut views: Vec<JobView> = own.map(|job| view(jobs, &job)).collect();
    views.sort_by(|a, b| a.job.cmp(&b.job));
    views
}

pub fn view(jobs: &Path, job: &JobId) -> JobView {
    let dir = JobDir::new(jobs, job);
    let mut view = JobView {
        job: job.to_string(),
        state: "unreadable",
        ranks: 0,
        doing: String::new(),
        nodes: BTreeMap::new(),
        sets: Vec::new(),
        saved: None,
        memory: None,
        disks: None,
        precopy: dir.read::<JobFile>("job.json").ok().and_then(|file| file.precopy),
        immovable: None,
        waits: None,
        hung: Vec::new(),
        pending: Vec::new(),
        exit: None,
    };
    let Ok(state) = dir.read::<StateFile>("state.json") else {
        return view;
    };
    let alive = dir.is_locked();
    view.state = match (state.exit, alive) {
        (Some(_), _) => "done",
        (None, true) if state.jl.waits_for_nodes() => "waiting",
        (None, true) => "running",
        (None, false) => "orphaned",
    };
    view.exit = state.exit;
    view.saved = Some(state.jl.checkpoint_timer().view());
    view.memory = MemoryView::of(&state.jl);
    view.disks = DiskView::of(&state.jl);
    view.doing = state.jl.open().map(ftb_launcher_core::jl::Open::words).unwrap_or_default();
    view.waits = state.jl.node_wait().map(WaitView::new);
    view.immovable = state.jl.immovable();
    let pending = state.jl.pending().iter();
    view.pending = pending
        .map(|of| PendingView { node: of.node.to_string(), reason: of.reason.clone() })
        .collect();
    let job = state.jl.job();
    let now_ns = Clock::start().now().wall_ns;
    let hung = state.jl.hung().iter().filter(|_| state.exit.is_none());
    view.hung = hung.map(|finding| HungView::new(finding, job, now_ns)).collect();
    view.ranks = job.config.size;
    view.sets = job.sets.iter().map(ToString::to_string).collect();
    for (name, node) in &job.nodes {
        let word = match node.state {
            _ if node.lost && node.arriving => "STARTING".to_owned(),
            _ if node.lost => "LOST".to_owned(),
            None => "STARTING".to_owned(),
            Some(MigrationState::Inactive) if node.usable => BECOMES_SPARE.to_owned(),
            Some(state) => state.to_string(),
        };
        let ranks = job.ranks_on(name).iter().collect();
        let unusable = node.unusable.as_ref().map(|unusable| unusable.why.clone());
        let parked = Some(node.parked.clone()).filter(|parked| !parked.is_none());
        view.nodes.insert(name.to_string(), NodeView { state: word, ranks, unusable, parked });
    }
    view
}

/// Interval of the checks whether the launcher lives.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The last answer of a launcher may arrive after its end.
const LAST_WORD_WAIT: Duration = Duration::from_secs(3);

/// A request is repeated at this interval until its first answer. A launcher that takes over may
/// hold the job and not listen yet.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// Returns when no launcher holds the job, and none takes it over.
async fn unheld(dir: &JobDir) {
    loop {
        while dir.is_locked() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        tokio::time::sleep(LAST_WORD_WAIT).await;
        if !dir.is_locked() {
            return;
        }
    }
}

/// Sends a request to a running job, again until it is answered, and waits for its last answer;
/// `reported` gets every answer.
///
/// # Errors
/// There is no agent, or no answer in time.
pub async fn ask(
    dir: &JobDir,
    file: &JobFile,
    asked: &NumberedRequest,
    timeout: Duration,
    mut reported: impl FnMut(&Answer),
) -> Result<Outcome, String> {
    let client = backplane::attach("ftb-launch-ask", &file.agent, file.job.as_str()).await?;
    let filter = format!("event_space=ftb.job, jobid={}", file.job);
    let mut answers = backplane::subscribe_own(&client, &filter, Start::Now).await?;
    let uid = nix::unistd::Uid::effective().as_raw();
    let mut again = tokio::time::interval(ASK_EVERY);
    let wait = async {
        let mut is_answered = false;
        loop {
            let delivery = tokio::select! {
                _ = again.tick(), if !is_answered => {
                    backplane::publish(&client, wire::request(asked)).await;
                    continue;
                }
                delivery = answers.next() => delivery,
            };
            let Some(delivery) = delivery else { break };
            let Delivery::Event(received) = delivery else { continue };
            let Ok(Err(answer)) = wire::from_request(&received.event) else { continue };
            if received.uid != uid || answer.request != asked.request {
                continue;
            }
            is_answered = true;
            reported(&answer);
            if answer.outcome != Outcome::Accepted {
                return Ok(answer.outcome);
            }
        }
        Err("the agent ended the subscription".to_owned())
    };
    let job = &file.job;
    let what = format!("an answer of job {job}");
    let answered = waiting::on(&what, tokio::time::timeout(timeout, wait));
    let outcome = tokio::select! {
        biased;
        answered = answered => answered.unwrap_or_else(|_| {
            Err(format!("job {job} has not answered within {timeout:?}: is its launcher alive?"))
        }),
        () = unheld(dir) => Err(format!(
            "job {job} has not answered: it has ended, or its launcher is gone (ftb-launch ps, \
             ftb-launch attach {job})"
        )),
    };
    backplane::close(client).await;
    outcome
}

/// A random number from the system.
pub fn random() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one((std::process::id(), std::time::SystemTime::now()))
}
