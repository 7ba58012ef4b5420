//! The commands that show jobs and send requests to them.

use crate::cli::Add;
use crate::control::{self, JobView};
use crate::jobdir::{self, JobDir, StateFile};
use crate::plan::{self, NodesFile};
use core::time::Duration;
use ftb_client::daemon::Failure;
use ftb_launcher_core::message::{Answer, JobRequest, NumberedRequest, Outcome};
use ftb_launcher_core::names::{JobId, NodeName, Ranks};
use ftb_launcher_core::warm::ParkedProcesses;
use std::io::Write;

pub(super) fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(Failure::from)
}

/// Writes a line. A closed reader is not an error.
pub(super) fn line(text: &str) -> Result<(), Failure> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::from(error)),
        _ => Ok(()),
    }
}

/// Lists the jobs.
///
/// # Errors
/// There is no directory of jobs.
pub fn ps(as_json: bool) -> Result<(), Failure> {
    let jobs = control::list(&jobdir::jobs_dir().map_err(Failure::bad_input)?);
    if as_json {
        return jobs.iter().try_for_each(|job| line(&json(job)?));
    }
    if jobs.is_empty() {
        line("no jobs")?;
    } else {
        line(&format!("{:<24} {:<10} {:>5} {:>4}  {}", "JOB", "STATE", "RANKS", "SETS", "DOING"))?;
    }
    jobs.iter().try_for_each(|job| {
        let (name, state, sets) = (&job.job, job.state, job.sets.len());
        line(&format!("{name:<24} {state:<10} {:>5} {sets:>4}  {}", job.ranks, job.doing))
    })
}

/// Shows a job.
///
/// # Errors
/// The job or the node of `what_if` does not exist, or the job cannot be read.
pub fn status(job: &JobId, what_if: Option<&NodeName>, as_json: bool) -> Result<(), Failure> {
    let jobs = jobdir::jobs_dir().map_err(Failure::bad_input)?;
    let dir = JobDir::new(&jobs, job);
    if !dir.path().exists() {
        return Err(super::no_such(job));
    }
    // Explains why `ps` lists the job as unreadable.
    let state: StateFile = dir.read("state.json").map_err(Failure::bad_input)?;
    if let Some(node) = what_if {
        let lost = state.jl.job().what_if(node);
        let lost = lost.map_err(|why| Failure::bad_input(format!("node {node}: {why}")))?;
        return if as_json { line(&json(&lost)?) } else { line(&lost.words) };
    }
    let view = control::view(&jobs, job);
    if as_json { line(&json(&view)?) } else { show(&view) }
}

/// The processes of a node that wait for a rank, and the ranks that have adopted one.
fn parked_line(node: &str, parked: &ParkedProcesses) -> String {
    let (waiting, wanted) = (parked.waiting.len(), parked.wanted);
    let mut line = format!("parked  {node:<16} {waiting} of {wanted} processes");
    if !parked.adopted.is_empty() {
        let ranks: Ranks = parked.adopted.keys().copied().collect();
        line.push_str(&format!(", before: rank {}", ranks.brief()));
    }
    if !parked.problem.is_empty() {
        line.push_str(&format!(": {}", parked.problem));
    }
    line
}

fn show(view: &JobView) -> Result<(), Failure> {
    let doing = if view.doing.is_empty() { "nothing but work" } else { &view.doing };
    line(&format!("job     {} ({})", view.job, view.state))?;
    line(&format!("doing   {doing}"))?;
    line(&format!("sets    {}", view.sets.join(" ")))?;
    if let Some(saved) = &view.saved {
        line(&format!("saved   {saved}"))?;
    }
    if let Some(memory) = &view.memory {
        let set = memory.set.as_ref().map_or("none yet", |set| set.as_str());
        line(&format!("memory  {set} ({}), {}", memory.scheme, memory.saved))?;
        let (bytes, beside) = (memory.bytes, memory.protection_bytes);
        line(&format!("memory  {bytes} bytes of images, {beside} bytes of protection"))?;
        for group in &memory.groups {
            let nodes: Vec<&str> = group.iter().map(NodeName::as_str).collect();
            line(&format!("group   {}", nodes.join(" ")))?;
        }
    }
    if let Some(disks) = &view.disks {
        let set = disks.set.as_ref().map_or("none yet", |set| set.as_str());
        line(&format!("disks   {set}, {}", disks.saved))?;
    }
    if let Some(why) = &view.immovable {
        line(&format!("moves   not now: {why}"))?;
    }
    for hung in &view.hung {
        let what = hung.kind.words();
        let age = humantime::format_duration(Duration::from_secs(hung.age_s));
        line(&match (hung.rank, &hung.node) {
            (Some(rank), Some(node)) => {
                format!("hung    rank {rank} on {node} (pid {}) {what} for {age}", hung.pid)
            }
            _ => format!("hung    all ranks {what} for {age}"),
        })?;
    }
    if let Some(wait) = &view.waits {
        line(&format!(
            "waits   for a node in place of {}, since {} until {}",
            wait.node, wait.since, wait.until
        ))?;
    }
    for fault in &view.pending {
        line(&format!("waits   the ranks of {} are to move: {}", fault.node, fault.reason))?;
    }
    match view.precopy {
        Some(true) => line("copies  large ranks that move are copied while they work")?,
        Some(false) => {
            line("copies  none while ranks work: the kernel does not track its changes")?;
        }
        None => {}
    }
    for (name, node) in &view.nodes {
        let ranks = node.ranks.iter().copied().collect::<Ranks>().brief();
        let why = node.unusable.as_ref().map_or(String::new(), |why| format!("not usable: {why}"));
        line(format!("node    {name:<16} {:<20} {ranks} {why}", node.state).trim_end())?;
        if let Some(parked) = &node.parked {
            line(&parked_line(name, parked))?;
        }
    }
    Ok(())
}

/// Prints an answer. Refusals and failures become a [`Failure`].
pub(super) fn tell(answer: &Answer, as_json: bool) -> Result<(), Failure> {
    match (as_json, answer.outcome) {
        (true, _) => line(&json(answer)?),
        (false, Outcome::Accepted | Outcome::Done) => line(&answer.words),
        (false, _) => Ok(()),
    }
}

/// Sends a request to a running job.
///
/// # Errors
/// The job does not exist (bad input); no answer, refused, failed.
pub async fn ask(
    job: &JobId,
    what: JobRequest,
    timeout: Duration,
    as_json: bool,
) -> Result<(), Failure> {
    let asked = NumberedRequest { request: control::random(), what };
    ask_numbered(job, &asked, timeout, as_json).await
}

async fn ask_numbered(
    job: &JobId,
    asked: &NumberedRequest,
    timeout: Duration,
    as_json: bool,
) -> Result<(), Failure> {
    let dir = JobDir::new(&jobdir::jobs_dir().map_err(Failure::bad_input)?, job);
    if !dir.has_job() {
        return Err(super::no_such(job));
    }
    let mut last = String::new();
    let reported = |answer: &Answer| {
        last.clone_from(&answer.words);
        // A closed output must not end the wait.
        let _ = tell(answer, as_json);
    };
    let file = dir.read("job.json").map_err(Failure::failed)?;
    let outcome = control::ask(&dir, &file, asked, timeout, reported).await;
    let outcome = outcome.map_err(Failure::no_answer)?;
    match outcome {
        Outcome::Done | Outcome::Accepted => Ok(()),
        Outcome::Refused => Err(Failure::failed(format!("refused: {last}"))),
        Outcome::Failed => Err(Failure::failed(last)),
    }
}

/// Adds nodes to a running job.
///
/// # Errors
/// The job does not exist, or the nodes are not known (bad input); refused, failed.
pub async fn add(asked: &Add) -> Result<(), Failure> {
    let dir = JobDir::new(&jobdir::jobs_dir().map_err(Failure::bad_input)?, &asked.job);
    if !dir.has_job() {
        return Err(super::no_such(&asked.job));
    }
    let known = match (&asked.file, &asked.local_nodes) {
        (Some(file), _) => Some(plan::read_nodes(file)),
        (None, Some(list)) => Some(plan::parse_local(list)),
        (None, None) => None,
    };
    let known = known.transpose().map_err(Failure::bad_input)?;
    let socket = asked.agent_socket.clone().unwrap_or_else(ftb_client::default_socket);
    let entries = plan::joining(&asked.nodes, known, &socket).map_err(Failure::bad_input)?;
    let what = JobRequest::Add(entries.iter().map(|entry| entry.name.clone()).collect());
    let request = NumberedRequest { request: control::random(), what };
    let file = jobdir::added(request.request);
    dir.write(&file, &NodesFile { node: entries }).map_err(Failure::failed)?;
    let done = ask_numbered(&asked.job, &request, asked.timeout, asked.json).await;
    dir.forget(&file);
    done
}

/// Takes a node out of one running job, or of all that use it.
///
/// # Errors
/// No job uses it (bad input); the first refusal or failure, after all jobs were asked.
pub async fn drain(
    job: Option<&JobId>,
    node: &NodeName,
    timeout: Duration,
    as_json: bool,
) -> Result<(), Failure> {
    let jobs = match job {
        Some(job) => vec![job.clone()],
        None => users_of(node)?,
    };
    let mut outcome = Ok(());
    for job in jobs {
        let asked = ask(&job, JobRequest::Drain(node.clone()), timeout, as_json).await;
        outcome = outcome.and(asked);
    }
    outcome
}

/// The running jobs with that node.
fn users_of(node: &NodeName) -> Result<Vec<JobId>, Failure> {
    let all = control::list(&jobdir::jobs_dir().map_err(Failure::bad_input)?);
    let uses = |job: &JobView| {
        matches!(job.state, "running" | "waiting") && job.nodes.contains_key(node.as_str())
    };
    let jobs: Vec<JobId> =
        all.iter().filter(|job| uses(job)).filter_map(|job| JobId::new(&job.job).ok()).collect();
    if jobs.is_empty() {
        let problem = format!("no running job uses node {node} (ftb-launch status JOB shows its)");
        return Err(Failure::bad_input(problem));
    }
    Ok(jobs)
}
