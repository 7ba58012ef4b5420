//! The commands of `ftb-launch`. Bad input is found before anything starts.

pub(crate) mod place;
mod policies;
mod tools;
mod warm;

pub use policies::{EVENTS_BYTES_MAX, policy_check, policy_test};
pub use tools::{add, ask, drain, ps, status};

use crate::cli::{OnDeath, OnHang, Restart, Run, RunOptions};
use crate::jobdir::{self, JobDir, JobFile, StateFile};
use crate::memory::MemorySpec;
use crate::own::Lock;
use crate::plan::{NodeEntry, Plan};
use crate::sets::{Manifest, SetKey};
use crate::spec::{NlaSpec, NodePart, StartMethod, Starting};
use crate::{clash, console, control, program, streams, waiting};
use core::time::Duration;
use ftb_client::daemon::Failure;
use ftb_launcher_core::jl::{self, Deadlines, Interval, Jl, JlConfig};
use ftb_launcher_core::link::router;
use ftb_launcher_core::manner::Saver;
use ftb_launcher_core::message::{Answer, JobRequest, Outcome};
use ftb_launcher_core::names::{JobId, NodeName, SetId};
use ftb_launcher_core::policy::{self, HandledEvents, Orders, Policy};
use ftb_launcher_core::progress::HangTimes;
use ftb_launcher_pods::backend::{Choice, Criu, auto};
use ftb_launcher_pods::installed;
use ftb_launcher_pods::owner::{self, Holder};
use ftb_launcher_pods::pod::net::{self, PodNet};
use place::Where;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// MASTER_PORT of torchrun-style programs, on the node of rank 0.
const MASTER_PORT: u16 = 29_500;

/// How a rank learns that the others go on without dead ones (launcher/core/protocol.md).
const ON_DEATH: &str = "FTB_ON_DEATH";
/// What only the launcher may say to a rank; a job may be started by one of another job.
const OF_A_RANK: [&str; 4] = [ON_DEATH, "FTB_LOOP", "FTB_PARKED", "FTB_RANK_FD"];

/// What all ranks of a job share.
struct Program {
    argv: Vec<String>,
    env: Vec<(String, String)>,
    cwd: PathBuf,
    size: u32,
    backend: Choice,
    /// Interval of the looks at the ranks.
    sample_every: Duration,
}

/// Runs a program as a new job; returns the exit code.
///
/// # Errors
/// Bad input, or the launcher cannot start.
pub async fn run(run: Run) -> Result<i32, Failure> {
    let place = Where::of(&run.place, run.n)?;
    let job = run.job.clone().map_or_else(new_job, Ok).map_err(Failure::failed)?;
    let here = || std::env::current_dir().map_err(Failure::from);
    let cwd = run.cwd.clone().map_or_else(here, Ok)?;
    if !cwd.is_dir() {
        return Err(Failure::bad_input(format!("--cwd {}: no such directory", cwd.display())));
    }
    let mut env: BTreeMap<String, String> = std::env::vars().collect();
    env.extend(run.env.iter().cloned());
    env.retain(|key, _| !OF_A_RANK.contains(&key.as_str()));
    let env: Vec<(String, String)> = env.into_iter().collect();
    let policy = policy_text(run.how.policy.as_deref())?;
    let line = CommandLine { argv: &run.argv, env: &env, cwd: &cwd };
    let (backend, why) = match run.how.backend.as_deref() {
        None | Some(AUTO) => automatic(&line, &run.how, &policy.1, &place),
        named => (backend(named, &Choice::default(), &place)?, None),
    };
    let sample_every = hang_times(&run.how, &policy.1).map_err(Failure::bad_input)?.sample_every();
    let (argv, size) = (run.argv.clone(), run.n);
    let mut program = Program { argv, env, cwd, size, backend, sample_every };
    let config = config(&job, &place.plan, &program, &run.how, None, &policy.1)?;
    if config.on_death == jl::OnDeath::Continue {
        program.env.push((ON_DEATH.to_owned(), "continue".to_owned()));
    }
    check_memory(&run.how, &place)?;
    warm::check(&program, &run.how, &place, config.on_death).map_err(Failure::bad_input)?;
    say_note(warm::note(warm::wanted(&run.how), config.on_death), run.how.quiet);
    say_note(why, run.how.quiet);
    let jobs = jobdir::jobs_dir().map_err(Failure::bad_input)?;
    jobdir::clear_left(&jobs);
    let dir = JobDir::new(&jobs, &job);
    let secrets = Secrets { token: new_secret()?, sets: SetKey::new(new_secret()?) };
    if run.job.is_some() && !dir.path().exists() {
        clash::check(&place.agent, &job).await.map_err(Failure::bad_input)?;
    }
    let lock = dir.create().map_err(Failure::bad_input)?;
    let holder = holder(&program.backend, &place)?;
    let held = holder.as_ref().map(Holder::pid);
    let file = job_file(&job, &place, &program, &run.how, &dir, secrets, policy.0, held);
    let jl = Jl::new(config);
    start(file, (dir, lock), jl, policy.1, &run.how, place.starting).await
}

/// Starts a job again from a set; returns the exit code.
///
/// # Errors
/// Bad input (an incomplete set), or the launcher cannot start.
pub async fn restart(restart: &Restart) -> Result<i32, Failure> {
    let Restart { set, place, how } = restart;
    let set_dir = set
        .canonicalize()
        .map_err(|error| Failure::bad_input(format!("{}: {error}", set.display())))?;
    let dir = job_of_set(&set_dir).map_err(Failure::bad_input)?;
    let lock = dir.lock().map_err(Failure::bad_input)?;
    let old: JobFile = dir.read("job.json").map_err(Failure::bad_input)?;
    let manifest = jobdir::verify(&set_dir, &old.job, &old.set_key).map_err(Failure::bad_input)?;
    let before: StateFile = dir.read("state.json").map_err(Failure::bad_input)?;
    let place = Where::of(place, manifest.size)?;
    let spec = old.specs.values().next();
    let spec = spec.ok_or_else(|| Failure::bad_input("job.json names no node"))?;
    let (argv, env, cwd) = (spec.argv.clone(), spec.env.clone(), spec.cwd.clone());
    let named = how.backend.as_deref().filter(|name| *name != AUTO);
    let backend = backend(named, &spec.backend, &place)?;
    let name = |backend: &Choice| backend.get().name();
    if name(&backend) != name(&spec.backend) {
        let (was, is) = (name(&spec.backend), name(&backend));
        let problem = format!("the set was made by backend {was}: {is} cannot read its images");
        return Err(Failure::bad_input(problem));
    }
    place.plan.keeps(&manifest.pods).map_err(Failure::bad_input)?;
    let policy = policy_text(how.policy.as_deref())?;
    let sample_every = hang_times(how, &policy.1).map_err(Failure::bad_input)?.sample_every();
    let program = Program { argv, env, cwd, size: manifest.size, backend, sample_every };
    let config = {
        let set = Some(manifest.set.clone());
        config(&manifest.job, &place.plan, &program, how, set, &policy.1)?
    };
    check_memory(how, &place)?;
    warm::check(&program, how, &place, config.on_death).map_err(Failure::bad_input)?;
    say_note(warm::note(warm::wanted(how), config.on_death), how.quiet);
    let secrets = Secrets { token: new_secret()?, sets: key_of(&old, &dir, &manifest)? };
    let holder = holder(&program.backend, &place)?;
    let held = holder.as_ref().map(Holder::pid);
    let file = job_file(&manifest.job, &place, &program, how, &dir, secrets, policy.0, held);
    let mut jl = Jl::new(config);
    jl.follow(before.jl.job());
    start(file, (dir, lock), jl, policy.1, how, place.starting).await
}

/// The directory of the job with this set.
fn job_of_set(set: &Path) -> Result<JobDir, String> {
    let Manifest { job, set: name, .. } = jobdir::unchecked_manifest(set)?;
    let dir = JobDir::new(set.ancestors().nth(3).unwrap_or(set), &job);
    if dir.sets().join(name.as_str()) != set {
        return Err(format!("{} is not JOBDIR/sets/SET of job {job}", set.display()));
    }
    Ok(dir)
}

/// The key for the sets of a job that starts again. A job of a version without codes gets one, and
/// the set, which was verified by its sums, a code.
fn key_of(old: &JobFile, dir: &JobDir, manifest: &Manifest) -> Result<SetKey, Failure> {
    if !old.set_key.is_none() {
        return Ok(old.set_key.clone());
    }
    let key = SetKey::new(new_secret()?);
    let sealed = key.seal(&dir.sets(), manifest.clone()).map_err(Failure::failed)?;
    dir.commit(&sealed).map_err(Failure::failed)?;
    console::err().line(&format!(
        "ftb-launch: set {} was made by a version without codes: its checksums are right, and it \
         has a code from now on",
        manifest.set
    ));
    Ok(key)
}

fn no_such(job: &JobId) -> Failure {
    Failure::bad_input(format!("there is no job {job} (ftb-launch ps lists them)"))
}

/// Takes over a job whose launcher is gone; returns the exit code.
///
/// # Errors
/// The job does not exist, has a launcher, or is done.
pub async fn attach(job: &JobId) -> Result<i32, Failure> {
    let dir = JobDir::new(&jobdir::jobs_dir().map_err(Failure::bad_input)?, job);
    if !dir.has_job() {
        return Err(no_such(job));
    }
    take_over(&dir, job, false).await
}

/// Becomes the launcher of a job without one. `end`: to end it.
async fn take_over(dir: &JobDir, job: &JobId, end: bool) -> Result<i32, Failure> {
    let file: JobFile = dir.read("job.json").map_err(Failure::bad_input)?;
    let state: StateFile = dir.read("state.json").map_err(Failure::bad_input)?;
    if let Some(code) = state.exit {
        return Err(Failure::bad_input(format!("job {job} is done (exit code {code})")));
    }
    let lock = dir.lock().map_err(Failure::bad_input)?;
    let mut holders = file.specs.values().filter_map(|spec| spec.pod.as_ref()?.holder);
    let _holder = holders.next().and_then(|holder| owner::keep(holder).ok());
    let policy = Policy::parse(&file.policy).map_err(Failure::failed)?;
    let run = crate::jl::LaunchJob {
        file,
        dir: dir.clone(),
        state,
        starting: None,
        policy,
        quiet: false,
        time_limit: None,
        ignores_conditions: false,
        end,
    };
    let ran = crate::jl::run(run).await;
    drop(lock);
    clean_up(dir, &ran, false, false);
    ran.map_err(Failure::failed)
}

/// Ends a job: asks its launcher. Without a launcher it takes the job over and ends it.
///
/// # Errors
/// The job does not exist or is done (bad input); it does not end in time.
pub async fn kill(job: &JobId, timeout: Duration, as_json: bool) -> Result<(), Failure> {
    let dir = JobDir::new(&jobdir::jobs_dir().map_err(Failure::bad_input)?, job);
    if dir.has_job() && !dir.is_locked() {
        let late = || Failure::failed(format!("job {job} has not ended within {timeout:?}"));
        let ended = tokio::time::timeout(timeout, take_over(&dir, job, true)).await;
        ended.map_err(|_| late())??;
        let words = "the job has ended: its launcher was gone".to_owned();
        return tools::tell(&Answer { request: 0, outcome: Outcome::Done, words }, as_json);
    }
    ask(job, JobRequest::Kill, timeout, as_json).await
}

/// After the end: removes everything but the sets of a failed job.
fn clean_up(dir: &JobDir, ran: &Result<i32, String>, keep: bool, quiet: bool) {
    let sets = dir.read::<StateFile>("state.json").map(|state| state.jl.job().sets.clone());
    let last = sets.ok().and_then(|sets| sets.last().cloned());
    match (ran, last) {
        (Ok(0), _) if !keep => dir.remove(),
        (_, Some(set)) if !quiet => {
            let set = dir.sets().join(set.as_str());
            let set = set.display();
            let words = format!("ftb-launch: to start again: ftb-launch restart {set} ...");
            console::err().line(&words);
        }
        (_, None) if !keep => dir.remove(),
        _ => {}
    }
}

/// The name of the automatic choice.
const AUTO: &str = "auto";

/// The inputs of `--backend auto`.
struct CommandLine<'a> {
    argv: &'a [String],
    env: &'a [(String, String)],
    cwd: &'a Path,
}

/// Writes a note for the user, if there is one.
fn say_note(note: Option<String>, quiet: bool) {
    if let Some(note) = note.filter(|_| !quiet) {
        console::err().line(&format!("ftb-launch: {note}"));
    }
}

/// The backend of `--backend auto`, with a message that explains it.
fn automatic(
    line: &CommandLine<'_>,
    how: &RunOptions,
    policy: &Policy,
    place: &Where,
) -> (Choice, Option<String>) {
    let interval = how.checkpoint_every.unwrap_or(policy.checkpoint_timer().0);
    let use_of_pods = auto::UseOfPods {
        nodes: place.plan.placement.len(),
        has_spares: !place.plan.spares.is_empty(),
        in_memory: how.memory.is_some(),
        is_saved: interval != Interval::Never || how.disk_every != Interval::Never,
        is_named: how.checkpoint_every.is_some()
            || how.disk_every != Interval::Never
            || how.policy.is_some(),
    };
    let path = line.env.iter().rev().find(|(key, _)| key == "PATH");
    let seen = auto::JobFacts {
        program: line.argv.first().map_or("", String::as_str),
        has: program::library_of(line.argv, path.map_or("", |(_, value)| value), line.cwd),
        use_of_pods,
        is_local: place.starting.means == StartMethod::Local,
    };
    let pods = || {
        let criu = Choice::Criu(Criu::default());
        installed::check(&criu)?;
        fits(&criu, place)
    };
    auto::decide(&seen, pods)
}

/// The selected backend, checked on this host.
fn backend(asked: Option<&str>, otherwise: &Choice, place: &Where) -> Result<Choice, Failure> {
    let choice = asked.map_or_else(|| Ok(otherwise.clone()), Choice::read);
    let choice = choice.map_err(Failure::bad_input)?;
    installed::check(&choice).map_err(|error| {
        let program = installed::missing(&choice).map(|need| need.program);
        let program = program.or_else(|| choice.pods().map(|criu| criu.program().to_owned()));
        Failure::bad_input(format!("{}{error}", line_of(asked, program.as_deref())))
    })?;
    fits(&choice, place).map_err(Failure::bad_input)?;
    Ok(choice)
}

/// Whether a backend works on these nodes.
fn fits(choice: &Choice, place: &Where) -> Result<(), String> {
    let Some(criu) = choice.pods() else {
        return Ok(());
    };
    if criu.bridge().is_some() && !nix::unistd::Uid::effective().is_root() {
        return Err(
            "only root can join pods to a bridge of the host: leave `bridge` out, with all \
                    nodes on this host, or run as root"
                .to_owned(),
        );
    }
    if criu.bridge().is_none() && place.starting.means != StartMethod::Local {
        let problem = "pods on several hosts: name a bridge that joins them: bridge = \"...\" in \
                       [backend.criu]";
        return Err(problem.to_owned());
    }
    let hidden = |entry: &&NodeEntry| {
        entry.images.as_ref().is_some_and(|images| images.starts_with("/dev/shm"))
    };
    if let Some(entry) = place.plan.nodes.values().find(hidden) {
        return Err(format!(
            "node {}: images below /dev/shm: a pod has a /dev/shm of its own: name another \
             directory",
            entry.name
        ));
    }
    criu.addresses(place.plan.nodes.len(), 0)?;
    Ok(())
}

/// `backend file FILE line N: `, for a file that names this program.
fn line_of(asked: Option<&str>, program: Option<&Path>) -> String {
    let named = || {
        let (file, program) = (asked?, program?.to_str()?);
        let text = std::fs::read_to_string(file).ok()?;
        let line = text.lines().position(|line| line.contains(program))?;
        Some(format!("backend file {file} line {}: ", line + 1))
    };
    named().unwrap_or_default()
}

fn policy_text(path: Option<&Path>) -> Result<(String, Policy), Failure> {
    let (name, text) = match path {
        None => ("the built-in policy".to_owned(), policy::DEFAULT.to_owned()),
        Some(path) => {
            let read = std::fs::read_to_string(path);
            let name = path.display().to_string();
            let text = read.map_err(|error| Failure::bad_input(format!("{name}: {error}")))?;
            (name, text)
        }
    };
    let policy = Policy::parse(&text);
    let policy = policy.map_err(|error| Failure::bad_input(format!("{name} {error}")))?;
    Ok((text, policy))
}

fn config(
    job: &JobId,
    plan: &Plan,
    program: &Program,
    how: &RunOptions,
    restore: Option<SetId>,
    policy: &Policy,
) -> Result<JlConfig, Failure> {
    let deadlines = match &how.deadlines {
        None => Deadlines::default(),
        Some(path) => {
            let bad = |error: String| {
                Failure::bad_input(format!("{}: {}", path.display(), error.replace('\n', " ")))
            };
            let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
            toml::from_str(&text).map_err(|error| bad(error.to_string()))?
        }
    };
    let least = 2 * router::SILENCE;
    if deadlines.silence < least {
        let path = how.deadlines.as_deref().unwrap_or(Path::new("deadlines"));
        return Err(Failure::bad_input(format!(
            "{}: silence is {:?}: a node needs time to connect past a launch agent that hangs: \
             at least {least:?}",
            path.display(),
            deadlines.silence
        )));
    }
    if how.keep_sets == 0 {
        return Err(Failure::bad_input("--keep-sets 0: no set could ever be restored"));
    }
    let least = 2 * jl::ALIVE;
    if how.orphan_grace < least {
        return Err(Failure::bad_input(format!(
            "--orphan-grace {:?}: a launcher that lives speaks every {:?}: at least {least:?}",
            how.orphan_grace,
            jl::ALIVE
        )));
    }
    let (interval, mtbf) = policy.checkpoint_timer();
    if how.mtbf.is_some_and(|mtbf| mtbf.is_zero()) {
        return Err(Failure::bad_input("--mtbf 0: nothing could ever be computed"));
    }
    let on_death = on_death(how, policy);
    if on_death == jl::OnDeath::Continue {
        check_continue(program, how, (policy, restore.as_ref())).map_err(Failure::bad_input)?;
    }
    check_disks(program, how).map_err(Failure::bad_input)?;
    Ok(JlConfig {
        job: job.clone(),
        size: program.size,
        manner: program.backend.get().manner(),
        placement: plan.placement.clone(),
        spares: plan.spares.clone(),
        restore,
        deadlines,
        on_death,
        interval: how.checkpoint_every.unwrap_or(interval),
        disk_interval: how.disk_every,
        mtbf: how.mtbf.unwrap_or(mtbf),
        restarts_max: 3,
        wait_for_nodes: how.wait_for_nodes.unwrap_or_default(),
        sets_max: how.keep_sets,
        on_hang: on_hang(how, policy),
        hang_times: hang_times(how, policy).map_err(Failure::bad_input)?,
        memory: memory(plan, program, how).map_err(Failure::bad_input)?,
    })
}

/// Whether the ranks of this program can go on without dead ones.
fn check_continue(
    program: &Program,
    how: &RunOptions,
    (policy, restore): (&Policy, Option<&SetId>),
) -> Result<(), String> {
    let (backend, name) = (program.backend.get(), "--on-death continue");
    if backend.manner().saver != Saver::Ranks {
        return Err(format!(
            "{name}: backend {} knows no calls that repair communicators: link ftb-job and use \
             --backend app",
            backend.name()
        ));
    }
    if how.memory.is_some() || how.disk_every != Interval::Never || restore.is_some() {
        return Err(format!(
            "{name}: the job goes on without dead ranks and has no sets: leave --memory and \
             --disk-every out, and restart it with another --on-death"
        ));
    }
    if matches!(on_hang(how, policy), jl::OnHang::RollBack | jl::OnHang::Restart) {
        return Err(format!(
            "{name}: the job has no set to which it could go back from a hang: use --on-hang \
             report or --on-hang kill"
        ));
    }
    Ok(())
}

/// Whether ranks may start from the disks of their nodes: hook `verify` checks images when they are
/// written and when they are copied, not where they have stayed.
fn check_disks(program: &Program, how: &RunOptions) -> Result<(), String> {
    if how.disk_every == Interval::Never || !program.backend.has_verify_hook() {
        return Ok(());
    }
    Err(format!(
        "--disk-every {}: hook verify does not run before ranks start from the disk of their node: \
         use --checkpoint-every, which copies the images and verifies them, or leave the hook out",
        how.disk_every
    ))
}

/// Checkpoints in memory, if they are wanted.
///
/// # Errors
/// The program or the nodes are not fit for it.
fn memory(
    plan: &Plan,
    program: &Program,
    how: &RunOptions,
) -> Result<Option<jl::MemoryConfig>, String> {
    let Some(scheme) = how.memory else { return Ok(None) };
    let backend = program.backend.get();
    let saver = backend.manner().saver;
    let is_able = saver != Saver::Agent || program.backend.pods().is_some();
    if !is_able {
        return Err(format!(
            "--memory {scheme}: backend {} saves to files: use --backend criu, or link ftb-job and \
             use --backend app, or call ftb_loop and use --backend loop",
            backend.name()
        ));
    }
    let rack = |entry: &NodeEntry| Some((entry.name.clone(), entry.rack.clone()?));
    let racks = plan.nodes.values().filter_map(rack).collect();
    let nodes: Vec<NodeName> = plan.placement.keys().cloned().collect();
    scheme.groups(&nodes, &racks).map_err(|error| format!("--memory: {error}"))?;
    let (interval, first) = (how.memory_every, !how.no_memory_first);
    Ok(Some(jl::MemoryConfig { scheme, interval, first, racks }))
}

/// Whether nodes on this host fit into its memory together. Other nodes check their own.
fn check_memory(how: &RunOptions, place: &Where) -> Result<(), Failure> {
    let Some(bytes) = how.memory_bytes.filter(|_| how.memory.is_some()) else { return Ok(()) };
    if place.starting.means != StartMethod::Local {
        return Ok(());
    }
    let nodes = place.plan.nodes.len() as u64;
    let available = crate::memory::available().map_err(Failure::failed)?;
    if bytes.saturating_mul(nodes) <= available {
        return Ok(());
    }
    Err(Failure::bad_input(format!(
        "--memory-bytes {bytes}: {nodes} nodes are on this host, which has {available} bytes of \
         available memory"
    )))
}

fn on_death(how: &RunOptions, policy: &Policy) -> jl::OnDeath {
    match how.on_death {
        None => policy.on_death(),
        Some(OnDeath::Rollback) => jl::OnDeath::Rollback,
        Some(OnDeath::Shrink) => jl::OnDeath::Shrink,
        Some(OnDeath::Restart) => jl::OnDeath::Restart,
        Some(OnDeath::Stop) => jl::OnDeath::Stop,
        Some(OnDeath::Continue) => jl::OnDeath::Continue,
    }
}

fn on_hang(how: &RunOptions, policy: &Policy) -> jl::OnHang {
    match how.on_hang {
        None => policy.on_hang(),
        Some(OnHang::Report) => jl::OnHang::Report,
        Some(OnHang::Restart) => jl::OnHang::Restart,
        Some(OnHang::Rollback) => jl::OnHang::RollBack,
        Some(OnHang::Kill) => jl::OnHang::Kill,
    }
}

/// # Errors
/// A time that is too short.
fn hang_times(how: &RunOptions, policy: &Policy) -> Result<HangTimes, String> {
    let HangTimes { hang_after, stall_after } = policy.hang_times();
    let times = HangTimes {
        hang_after: how.hang_after.unwrap_or(hang_after),
        stall_after: how.stall_after.unwrap_or(stall_after),
    };
    times.check().map(|()| times)
}

/// The secrets of a job: of its connections, new at each start, and of its sets.
struct Secrets {
    token: String,
    sets: SetKey,
}

#[expect(clippy::too_many_arguments, reason = "one for each part of the file")]
fn job_file(
    job: &JobId,
    place: &Where,
    program: &Program,
    how: &RunOptions,
    dir: &JobDir,
    secrets: Secrets,
    policy: String,
    holder: Option<u32>,
) -> JobFile {
    let mut pods = pod_nets(&program.backend, place.plan.nodes.len(), holder).into_iter();
    let mut part = |entry| NodePart { pod: pods.next(), ..place.part(entry, job, dir) };
    let parts: Vec<NodePart> = place.plan.nodes.values().map(&mut part).collect();
    let master = master(&parts, &place.plan).unwrap_or_else(|| place.master(&parts));
    let stdin = !how.no_stdin && streams::input_wanted();
    let specs = parts.iter().map(|part| {
        let NodePart { node, spare, agent, image_dir, listen, address, pod } = part.clone();
        let spec = NlaSpec {
            job: job.clone(),
            node,
            spare,
            agent,
            image_dir,
            listen,
            address,
            // Set when the launcher listens.
            uplinks: Vec::new(),
            stdin,
            token: secrets.token.clone(),
            argv: program.argv.clone(),
            env: program.env.clone(),
            cwd: program.cwd.clone(),
            master_addr: master.clone(),
            master_port: MASTER_PORT,
            size: program.size,
            backend: program.backend.clone(),
            pod,
            orphan_grace: how.orphan_grace,
            kill_grace: how.kill_grace,
            sample_every: program.sample_every,
            memory: how
                .memory
                .map(|_| MemorySpec { bytes: how.memory_bytes, first: !how.no_memory_first }),
            warm: warm::wanted(how),
        };
        (part.node.clone(), spec)
    });
    JobFile {
        job: job.clone(),
        specs: specs.collect(),
        agent: place.agent.clone(),
        listen: place::listen(&place.address),
        address: place.address.clone(),
        policy,
        prefix: how.prefix,
        starting: Some(place.starting.clone()),
        precopy: program.backend.pods().map(installed::tracks_memory),
        set_key: secrets.sets,
    }
}

/// The user namespace for the pods of an ordinary user's job.
fn holder(backend: &Choice, place: &Where) -> Result<Option<Holder>, Failure> {
    if backend.pods().is_none() || nix::unistd::Uid::effective().is_root() {
        return Ok(None);
    }
    Holder::start(&place.starting.program).map(Some).map_err(Failure::failed)
}

/// The networks of all pods. The backend has checked the number of addresses.
fn pod_nets(backend: &Choice, nodes: usize, holder: Option<u32>) -> Vec<PodNet> {
    let Some(criu) = backend.pods() else {
        return Vec::new();
    };
    let mark = control::random() as u32;
    let own = criu.bridge().is_none();
    let bridge = criu.bridge().map_or_else(|| net::own_bridge(mark), str::to_owned);
    let addresses = criu.addresses(nodes, mark).unwrap_or_default();
    let prefix = criu.prefix();
    let net = |address| PodNet { address, prefix, bridge: bridge.clone(), own, mark, holder };
    addresses.into_iter().map(net).collect()
}

/// The address of the pod of rank 0.
fn master(parts: &[NodePart], plan: &Plan) -> Option<String> {
    let node = plan.placement.iter().find(|(_, ranks)| ranks.has(0)).map(|(name, _)| name)?;
    let part = parts.iter().find(|part| part.node == *node)?;
    part.pod.as_ref().map(|pod| pod.address.to_string())
}

async fn start(
    file: JobFile,
    (dir, lock): (JobDir, Lock),
    jl: Jl,
    policy: Policy,
    how: &RunOptions,
    starting: Starting,
) -> Result<i32, Failure> {
    let (nlas, addresses) = (BTreeMap::new(), BTreeMap::new());
    let (orders, handled) = (Orders::default(), HandledEvents::default());
    let state = StateFile { jl, nlas, addresses, orders, handled, exit: None };
    dir.write("job.json", &file).map_err(Failure::failed)?;
    dir.write("state.json", &state).map_err(Failure::failed)?;
    let job = file.job.clone();
    if how.quiet {
        waiting::be_quiet();
    } else {
        console::err().line(&format!("ftb-launch: job {job}"));
    }
    let run = crate::jl::LaunchJob {
        file,
        dir: dir.clone(),
        state,
        starting: Some(starting),
        policy,
        quiet: how.quiet,
        time_limit: how.time_limit,
        ignores_conditions: how.ignore_conditions,
        end: false,
    };
    let ran = crate::jl::run(run).await;
    drop(lock);
    clean_up(&dir, &ran, how.keep, how.quiet);
    ran.map_err(Failure::failed)
}

/// The secret of a job: 128 random bits in hex.
fn new_secret() -> Result<String, Failure> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::failed(format!("no randomness: {error}")))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn new_job() -> Result<JobId, String> {
    let name = format!("job-{}-{:04x}", std::process::id(), control::random() & 0xffff);
    JobId::new(&name).map_err(|error| error.to_string())
}
