//! What another user of the host can do to a job, and read of it. Needs root for a second user.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use ftb_client::{Client, Delivery, Received, Start};
use ftb_tests::cluster::binary;
use ftb_tests::skip::skip;
use ftb_tests::user::ORDINARY;
use nix::sys::signal::{Signal, kill};
use site::fixture::{Fixture, results};
use site::{LAUNCH, Site, nothing_left, run, start, text};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// The other user.
const OTHER_UID: u32 = 65_534;

/// No capability, as the kernel prints it.
const NO_RIGHTS: &str = "0000000000000000";

/// Whether this can be tested here.
fn can_be_two_users() -> bool {
    let root = nix::unistd::Uid::effective().is_root();
    if !root {
        skip("two users need root");
    }
    root
}

fn open_to_all(path: &Path, mode: u32) -> Result<()> {
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

/// A shell script of the other user.
async fn as_stranger(script: &str) -> Result<String> {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).uid(OTHER_UID).gid(OTHER_UID).current_dir("/");
    let output = run(command).await?;
    ensure!(output.status.success(), "{script}: {}", text(&output.stderr));
    Ok(text(&output.stdout))
}

/// `ftbctl`, where the other user can run it, with the agent of the first node.
fn ftbctl(site: &Site) -> Result<String> {
    let program = site.cluster.dir().join("ftbctl");
    if !program.exists() {
        fs::copy(binary("ftbctl", "ftbctl")?, &program)?;
        open_to_all(&program, 0o755)?;
        open_to_all(site.cluster.dir(), 0o711)?;
    }
    Ok(format!("{} --agent {}", program.display(), site.cluster.socket(0).display()))
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_shared_directory_of_jobs_another_users_links_lead_nowhere() -> Result<()> {
    if !can_be_two_users() {
        return Ok(());
    }
    let site = Site::without_examples(1).await?;
    let jobs = site.jobs.path().to_owned();
    open_to_all(&jobs, 0o1777)?;
    let kept = ["-n", "1", "--job", "kept", "--keep"];
    ensure!(run(site.launch(&kept, &["true"])).await?.status.success(), "the job failed");
    let secret = tempfile::tempdir()?;
    let victim = secret.path().join("victim");
    fs::write(&victim, "precious")?;
    open_to_all(&victim, 0o600)?;

    // A job of the other user, and one that only looks like a job, with what makes the launcher
    // take their locks.
    let public = tempfile::tempdir()?;
    open_to_all(public.path(), 0o755)?;
    for name in ["job.json", "state.json"] {
        let text = fs::read_to_string(jobs.join("kept").join(name))?;
        let running = text.replace("\"exit\":0}", "\"exit\":null}");
        fs::write(public.path().join(name), running)?;
    }
    let (jobs, public) = (jobs.display(), public.path().display());
    as_stranger(&format!(
        "umask 0; mkdir {jobs}/evil; cp {public}/* {jobs}/evil; ln -s {} {jobs}/evil/lock; \
         ln -s {} {jobs}/link",
        victim.display(),
        secret.path().display()
    ))
    .await?;

    let listed = site.ask(&["ps"]).await?;
    assert!(listed.contains("kept") && !listed.contains("evil"), "{listed}");
    let refused = run(site.command(&["status", "evil"])).await?;
    assert!(text(&refused.stderr).contains("it belongs to another user"), "{refused:?}");
    for command in ["attach", "kill", "checkpoint"] {
        let refused = run(site.command(&[command, "evil"])).await?;
        assert_eq!(refused.status.code(), Some(64), "{command}: {}", text(&refused.stderr));
    }
    ensure!(run(site.launch(&["-n", "1"], &["true"])).await?.status.success(), "the job failed");
    assert_eq!(fs::read_to_string(&victim)?, "precious");
    assert_eq!(fs::read_dir(secret.path())?.count(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_another_user_beside_the_images_is_left_alone() -> Result<()> {
    if !can_be_two_users() {
        return Ok(());
    }
    let site = Site::without_examples(1).await?;
    let shared = tempfile::tempdir()?;
    open_to_all(shared.path(), 0o1777)?;
    let at = shared.path().display();
    let left = format!("mkdir -p {at}/other.node01/set-000003; echo 1 > {at}/other.node01/lock");
    as_stranger(&left).await?;
    let nodes = site.cluster.dir().join("nodes.toml");
    let socket = site.cluster.socket(0).display();
    let table = format!("[[node]]\nname = \"node01\"\nagent = \"{socket}\"\nimages = \"{at}\"\n");
    fs::write(&nodes, table)?;
    let nodes = nodes.display().to_string();
    let output = run(site.command(&["run", "--nodes", &nodes, "-n", "1", "--", "true"])).await?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    assert!(shared.path().join("other.node01/set-000003").is_dir());
    assert!(shared.path().join("other.node01/lock").is_file());
    Ok(())
}

/// Everything that can be read of an event.
fn readable(received: &Received) -> String {
    let tags = received.event.tags.iter().map(|tag| format!("{}={} ", tag.key, tag.value));
    let name = &received.event.name;
    format!("{name} {}{}\n", tags.collect::<String>(), text(&received.event.payload))
}

/// The addresses of the job's services, and its key, from the job's own files.
fn secrets(jobs: &Path, job: &str) -> Result<Vec<String>> {
    let read = |name: &str| -> Result<serde_json::Value> {
        Ok(serde_json::from_slice(&fs::read(jobs.join(job).join(name))?)?)
    };
    let (file, state) = (read("job.json")?, read("state.json")?);
    let addresses = state["addresses"].as_object().context("no addresses")?;
    let addresses = addresses.values().filter_map(|address| address.as_str());
    let token = file["specs"]["node01"]["token"].as_str().context("no token")?;
    let secrets: Vec<String> = addresses.chain([token]).map(str::to_owned).collect();
    ensure!(secrets.len() == 3 && secrets.iter().all(|word| !word.is_empty()), "{secrets:?}");
    Ok(secrets)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_a_job_show_no_token_and_no_address() -> Result<()> {
    if !can_be_two_users() {
        return Ok(());
    }
    let site = Site::new(2).await?;
    let client = Client::builder("test").agent(site.cluster.socket(1)).build()?;
    let mut live = client.subscribe("jobid=secrets", Start::Now).await?;
    let job = start(site.counting("secrets", &[]));
    site.wait_met("secrets").await?;
    site.ask(&["checkpoint", "secrets"]).await?;
    let mut hidden = secrets(site.jobs.path(), "secrets")?;
    hidden.extend(["token=", "tcp=", "unix=", "127.0.0.1:"].map(str::to_owned));
    site.release()?;
    ensure!(job.await??.status.success(), "the job failed");

    let mut seen = String::new();
    while !seen.contains("kind=end") {
        match live.next().await.context("the agent ended the subscription")? {
            Delivery::Event(received) => seen.push_str(&readable(&received)),
            Delivery::Gap(gap) => anyhow::bail!("a gap: {gap:?}"),
        }
    }
    let mut past = client.subscribe("jobid=secrets", Start::SinceNs(0)).await?;
    while let Some(delivery) = past.next_of_past().await {
        if let Delivery::Event(received) = delivery {
            seen.push_str(&readable(&received));
        }
    }
    let ftbctl = ftbctl(&site)?;
    let printed = as_stranger(&format!("{ftbctl} events 'jobid=secrets' --since 1h")).await?;
    let json = as_stranger(&format!("{ftbctl} --json events 'jobid=secrets' --since 1h")).await?;
    for all in [&printed, &json] {
        let line = all.lines().find(|line| line.contains("FTB_"));
        assert_eq!(line, None, "another user reads the events of the job");
    }
    for all in [&seen, &printed, &json] {
        for name in ["FTB_JL_LAUNCH", "FTB_JL_ALIVE", "FTB_NLA_LAUNCHED", "FTB_CHECKPOINT_DONE"] {
            assert!(seen.contains(name), "{name} was not looked at");
        }
        for name in ["FTB_NLA_PMI", "FTB_JL_PMI", "FTB_NLA_READY"] {
            assert!(!all.contains(name), "{name} is an event");
        }
        for secret in &hidden {
            let line = all.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "{secret} can be read");
        }
    }
    Ok(())
}

/// How often the other user publishes with the job's id.
const FOREIGN: usize = 25;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_neither_disturbed_nor_talkative_when_another_user_publishes_with_its_id()
-> Result<()> {
    if !can_be_two_users() {
        return Ok(());
    }
    let site = Site::new(2).await?;
    let job = start(site.counting("flooded", &[]));
    site.wait_met("flooded").await?;
    let ftbctl = ftbctl(&site)?;
    let publish =
        format!("{ftbctl} publish ftb.nla FTB_NLA_EXITED '0 signal 9' --job-id flooded -s fatal");
    let flood = format!("for i in $(seq {FOREIGN}); do {publish} -t node=node01; done");
    as_stranger(&flood).await?;
    site.ask(&["checkpoint", "flooded"]).await?;
    site.release()?;
    let output = job.await??;
    let reported = text(&output.stderr);
    ensure!(output.status.success(), "{reported}");
    // The agents keep the events of other users from the job's programs.
    let refused = reported.lines().find(|line| line.contains("refused"));
    assert_eq!(refused, None, "{reported}");
    Ok(())
}

/// A command of the site as an ordinary user, with programs that this user can reach.
fn as_ordinary(site: &Site, of: &Command) -> Result<Command> {
    for (name, from) in
        [("ftb-launch", LAUNCH.into()), ("ftb-nla", binary("ftb-launcher", "ftb-nla")?)]
    {
        let program = site.cluster.dir().join(name);
        if !program.exists() {
            fs::copy::<std::path::PathBuf, _>(from, &program)?;
            open_to_all(&program, 0o755)?;
            open_to_all(site.cluster.dir(), 0o711)?;
            chown(site.jobs.path(), Some(ORDINARY[0]), Some(ORDINARY[0]))?;
        }
    }
    let mut command = Command::new(site.cluster.dir().join("ftb-launch"));
    command.args(of.get_args()).uid(ORDINARY[0]).gid(ORDINARY[0]).current_dir("/");
    for (key, value) in of.get_envs() {
        command.env(key, value.unwrap_or_default());
    }
    command.stdin(Stdio::null());
    Ok(command)
}

/// Lines of `/proc/PID/status` about the rights of the ranks of a program.
fn rights(program: &str) -> Vec<BTreeMap<String, String>> {
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let is_rank = |path: &Path| {
        let line = fs::read_to_string(path.join("cmdline")).unwrap_or_default();
        line.split('\0').next() == Some(program)
    };
    let ranks = entries.map(|entry| entry.path()).filter(|path| is_rank(path));
    let fields = |path: std::path::PathBuf| {
        let text = fs::read_to_string(path.join("status")).unwrap_or_default();
        let pairs = text.lines().filter_map(|line| line.split_once(":\t"));
        pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    };
    ranks.map(fields).collect()
}

/// The pods' images are in memory that the user may mount in the user namespace of the pods.
#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_users_pod_comes_back_from_the_memory_of_another_node() -> Result<()> {
    if !can_be_two_users() {
        return Ok(());
    }
    let site = Site::new(3).await?;
    let Some(mut stencil) = Fixture::stencil(&site)? else { return Ok(()) };
    let gate = site.jobs.path().join("gate");
    *stencil.program.last_mut().context("no words")? = gate.display().to_string();
    let nodes = ["--job", "kept", "--hosts", "node[01-02]", "--spares", "node03"];
    fs::write(&gate, "")?;
    let alone = as_ordinary(&site, &stencil.command(&site, &nodes))?;
    let undisturbed = results(&run(alone).await?)?;
    fs::remove_file(&gate)?;

    let memory = ["--memory", "buddy:1", "--memory-every", "never"];
    let job = as_ordinary(&site, &stencil.command(&site, &[&nodes[..], &memory].concat()))?;
    let job = start(job);
    let state = site.jobs.path().join("kept/state.json");
    let state =
        || -> Option<serde_json::Value> { serde_json::from_slice(&fs::read(&state).ok()?).ok() };
    site.wait("a set in memory", async || {
        let protected = state().is_some_and(|state| {
            state["jl"]["job"]["memory"]["set"].is_string() && state["jl"]["open"].is_null()
        });
        Ok(protected.then_some(()))
    })
    .await?;
    kill(site.nla_of("kept", "node02")?, Signal::SIGKILL)?;
    site.wait("the job to be whole again", async || {
        let whole = state().is_some_and(|state| {
            state["jl"]["job"]["restarts"] == 1 && state["jl"]["open"].is_null()
        });
        Ok(whole.then_some(()))
    })
    .await?;
    fs::write(&gate, "")?;
    let output = job.await??;
    let reported = text(&output.stderr);
    assert_eq!(results(&output)?, undisturbed, "{reported}");
    assert!(reported.contains("restarts from set mem-"), "{reported}");
    nothing_left("FTB_JOB_ID=kept\0").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_users_unmodified_mpi_program_moves_with_the_rights_of_its_user() -> Result<()>
{
    if !can_be_two_users() {
        return Ok(());
    }
    let site = Site::new(4).await?;
    let Some(mut stencil) = Fixture::stencil(&site)? else { return Ok(()) };
    // Rank 0 writes beside its gate.
    let gate = site.jobs.path().join("gate");
    *stencil.program.last_mut().context("no words")? = gate.display().to_string();
    let nodes = ["--job", "mine", "--hosts", "node[01-02]", "--spares", "node[03-04]"];
    fs::write(&gate, "")?;
    let alone = as_ordinary(&site, &stencil.command(&site, &nodes))?;
    let undisturbed = results(&run(alone).await?)?;
    fs::remove_file(&gate)?;
    fs::remove_file(site.jobs.path().join("gate.reached"))?;

    let mut first = as_ordinary(&site, &stencil.command(&site, &nodes))?;
    let mut first = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    site.wait_met("mine").await?;
    let as_user = async |words: &[&str]| -> Result<String> {
        let output = run(as_ordinary(&site, &site.command(words))?).await?;
        ensure!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        Ok(text(&output.stdout).lines().last().unwrap_or_default().to_owned())
    };
    let check = async || -> Result<()> {
        let both = site.wait("both ranks", async || {
            Ok(Some(rights(&stencil.process)).filter(|ranks| ranks.len() == 2))
        });
        let ranks = both.await?;
        let uid = ORDINARY[0].to_string();
        for rank in ranks {
            assert!(rank["Uid"].split('\t').all(|word| word == uid), "{rank:?}");
            assert_eq!((&*rank["CapEff"], &*rank["CapPrm"]), (NO_RIGHTS, NO_RIGHTS), "{rank:?}");
            assert_eq!(rank["NoNewPrivs"], "1");
        }
        Ok(())
    };
    check().await?;
    let reached = site.jobs.path().join("gate.reached");
    site.wait("rank 0 at the gate", async || Ok(reached.exists().then_some(()))).await?;
    as_user(&["checkpoint", "mine"]).await?;
    let moved = as_user(&["migrate", "mine", "node02"]).await?;
    assert_eq!(moved, "ranks 1 moved from node02 to node03");
    check().await?;

    // The pods outlive their launcher, and another one moves them.
    first.kill()?;
    first.wait()?;
    let job = start(as_ordinary(&site, &site.command(&["attach", "mine"]))?);
    let moved = site.wait("ranks to move again", async || {
        Ok(as_user(&["migrate", "mine", "node03"]).await.ok())
    });
    assert_eq!(moved.await?, "ranks 1 moved from node03 to node04");
    check().await?;
    fs::write(&gate, "")?;
    assert_eq!(results(&job.await??)?, undisturbed);
    nothing_left("FTB_JOB_ID=mine\0").await
}
