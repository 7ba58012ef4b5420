//! The commands that look at jobs, ask them for something, and try policies.

use super::policy_text;
use crate::jl::Want;
use crate::message::{Answer, Outcome, Request};
use crate::names::{JobId, NodeName};
use crate::policy::{Action, Facts, Policy};
use crate::shell::control::{self, JobView};
use crate::shell::jobdir::{self, JobDir};
use core::time::Duration;
use ftb_client::daemon::Failure;
use ftb_core::hostlist::Hostlist;
use ftb_core::{Event, EventName, EventSpace, Now, Severity, Tag};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

fn json(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(Failure::from)
}

/// Writes a line; a reader that has gone away is no failure.
fn line(text: &str) -> Result<(), Failure> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::from(error)),
        _ => Ok(()),
    }
}

/// Lists the jobs.
///
/// # Errors
/// There is no directory of jobs to be had.
pub fn ps(as_json: bool) -> Result<(), Failure> {
    let jobs = control::list(&jobdir::jobs_dir().map_err(Failure::bad_input)?);
    if as_json {
        return jobs.iter().try_for_each(|job| line(&json(job)?));
    }
    if !jobs.is_empty() {
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
/// There is no such job.
pub fn status(job: &JobId, as_json: bool) -> Result<(), Failure> {
    let view = control::view(&jobdir::jobs_dir().map_err(Failure::bad_input)?, job);
    if view.state == "unreadable" {
        return Err(Failure::bad_input(format!(
            "there is no job {job} (ftb-launch ps lists them)"
        )));
    }
    if as_json { line(&json(&view)?) } else { show(&view) }
}

fn show(view: &JobView) -> Result<(), Failure> {
    let doing = if view.doing.is_empty() { "nothing but work" } else { &view.doing };
    line(&format!("job     {} ({})", view.job, view.state))?;
    line(&format!("doing   {doing}"))?;
    line(&format!("sets    {}", view.sets.join(" ")))?;
    if let Some(saved) = &view.saved {
        line(&format!("saved   {saved}"))?;
    }
    for (name, node) in &view.nodes {
        let ranks: Vec<String> = node.ranks.iter().map(u32::to_string).collect();
        line(&format!("node    {name:<16} {:<20} {}", node.state, ranks.join(" ")))?;
    }
    Ok(())
}

/// Asks a running job for something.
///
/// # Errors
/// No such job (bad input); no answer, refused, failed.
pub async fn ask(
    job: &JobId,
    what: Request,
    timeout: Duration,
    as_json: bool,
) -> Result<(), Failure> {
    let dir = JobDir::new(&jobdir::jobs_dir().map_err(Failure::bad_input)?, job);
    if !dir.path().join("job.json").exists() {
        return Err(Failure::bad_input(format!(
            "there is no job {job} (ftb-launch ps lists them)"
        )));
    }
    let mut last = String::new();
    let told = |answer: &Answer| {
        last.clone_from(&answer.words);
        // Output that nobody reads any more must not stop the wait.
        let _ = match (as_json, answer.outcome) {
            (true, _) => json(answer).and_then(|text| line(&text)),
            (false, Outcome::Accepted | Outcome::Done) => line(&answer.words),
            (false, _) => Ok(()),
        };
    };
    let outcome = control::ask(&dir, what, timeout, told).await.map_err(Failure::failed)?;
    match outcome {
        Outcome::Done | Outcome::Accepted => Ok(()),
        Outcome::Refused => Err(Failure::failed(format!("refused: {last}"))),
        Outcome::Failed => Err(Failure::failed(last)),
    }
}

/// Takes a node out of one running job, or of all that use it.
///
/// # Errors
/// No job uses it (bad input); a job refuses, or fails to leave it: the first that does, when all were asked.
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
        let asked = ask(&job, Request::Drain(node.clone()), timeout, as_json).await;
        outcome = outcome.and(asked);
    }
    outcome
}

/// The jobs under way that a node is part of.
fn users_of(node: &NodeName) -> Result<Vec<JobId>, Failure> {
    let all = control::list(&jobdir::jobs_dir().map_err(Failure::bad_input)?);
    let uses = |job: &JobView| job.state == "running" && job.nodes.contains_key(node.as_str());
    let jobs: Vec<JobId> =
        all.iter().filter(|job| uses(job)).filter_map(|job| JobId::new(&job.job).ok()).collect();
    if jobs.is_empty() {
        let problem = format!("no running job uses node {node} (ftb-launch status JOB shows its)");
        return Err(Failure::bad_input(problem));
    }
    Ok(jobs)
}

/// Checks a policy file.
///
/// # Errors
/// What is wrong with it.
pub fn policy_check(file: &Path) -> Result<(), Failure> {
    policy_text(Some(file))?;
    line(&format!("{}: good", file.display()))
}

/// One recorded event.
#[derive(Deserialize)]
struct Recorded {
    space: String,
    name: String,
    #[serde(default)]
    severity: Option<String>,
    host: String,
    #[serde(default)]
    time_ns: Option<u64>,
    #[serde(default)]
    time_s: Option<f64>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
}

impl Recorded {
    fn event(&self) -> Result<(u64, Event), String> {
        let space = EventSpace::new(&self.space).map_err(|error| error.to_string())?;
        let name = EventName::new(&self.name).map_err(|error| error.to_string())?;
        let mut event = Event::new(space, name);
        if let Some(word) = &self.severity {
            event.severity = word.parse::<Severity>().map_err(|error| error.to_string())?;
        }
        let tag = |(key, value): (&String, &String)| Tag { key: key.clone(), value: value.clone() };
        event.tags = self.tags.iter().map(tag).collect();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a time of day"
        )]
        let seconds = self.time_s.map(|seconds| (seconds * 1e9) as u64);
        let time_ns = self.time_ns.or(seconds).ok_or("the event has neither time_ns nor time_s")?;
        Ok((time_ns, event))
    }
}

/// Shows what a policy would have done with recorded events.
///
/// # Errors
/// The file, the line in it, what is wrong.
pub fn policy_test(
    events: &Path,
    policy: Option<&Path>,
    nodes: Option<&str>,
) -> Result<(), Failure> {
    let (_, mut policy) = policy_text(policy)?;
    let name = events.display();
    let text = std::fs::read_to_string(events);
    let text = text.map_err(|error| Failure::bad_input(format!("{name}: {error}")))?;
    let mut recorded = Vec::new();
    for (index, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let bad =
            |problem: String| Failure::bad_input(format!("{name} line {}: {problem}", index + 1));
        let one: Recorded = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
        let (time_ns, event) = one.event().map_err(bad)?;
        let node = crate::policy::node_of(&event, &one.host);
        let node = node.ok_or_else(|| bad(format!("{:?} is no node", one.host)))?;
        recorded.push((time_ns, node, event));
    }
    recorded.sort_by_key(|(time_ns, _, _)| *time_ns);
    let facts = Facts { nodes: job_nodes(nodes, &recorded)? };
    replay(&mut policy, &recorded, &facts)
}

fn job_nodes(
    nodes: Option<&str>,
    recorded: &[(u64, NodeName, Event)],
) -> Result<std::collections::BTreeSet<NodeName>, Failure> {
    let Some(text) = nodes else {
        return Ok(recorded.iter().map(|(_, node, _)| node.clone()).collect());
    };
    let list = Hostlist::parse(text).map_err(|e| Failure::bad_input(format!("--nodes: {e}")))?;
    let name = |host| NodeName::new(host).map_err(Failure::bad_input);
    list.iter().map(name).collect()
}

fn replay(
    policy: &mut Policy,
    recorded: &[(u64, NodeName, Event)],
    facts: &Facts,
) -> Result<(), Failure> {
    let start = recorded.first().map_or(0, |(time_ns, _, _)| *time_ns);
    let at = |time_ns: u64| Now { mono_ns: time_ns.saturating_sub(start), wall_ns: time_ns };
    let say = |now: Now, actions: Vec<Action>| {
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let seconds = now.mono_ns as f64 / 1e9;
        actions.iter().try_for_each(|action| line(&format!("{seconds:>10.3}s  {}", words(action))))
    };
    for (time_ns, node, event) in recorded {
        settle(policy, facts, at(*time_ns).mono_ns, &say)?;
        say(at(*time_ns), policy.event(at(*time_ns), event, node, facts))?;
    }
    settle(policy, facts, u64::MAX, &say)
}

/// Lets everything that settles before `until_ns` happen at its time.
fn settle(
    policy: &mut Policy,
    facts: &Facts,
    until_ns: u64,
    say: &impl Fn(Now, Vec<Action>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    while policy.next_deadline_ns() < until_ns {
        let now = Now { mono_ns: policy.next_deadline_ns(), wall_ns: 0 };
        say(now, policy.tick(now, facts))?;
    }
    Ok(())
}

fn words(action: &Action) -> String {
    match action {
        Action::Tell(words) => format!("tell        {words}"),
        Action::Gone { node, .. } => format!("lost        {node}"),
        Action::Want(want) => match want {
            Want::Migrate { node, .. } => format!("migrate     {node}"),
            Want::Drain { node, .. } => format!("drain       {node}"),
            Want::Checkpoint { .. } => "checkpoint".to_owned(),
            Want::Usable { node } => format!("usable      {node}"),
            Want::Kill { .. } => "kill".to_owned(),
        },
    }
}
