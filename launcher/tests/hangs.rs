//! Hung ranks with real processes: stopped, looping and debugged ones are found, shown, published
//! and acted on; ranks that only wait are not.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use ftb_client::{Client, Condition, Delivery, Severity, Start, Truth, event};
use ftb_tests::cluster::{Plan, binary};
use ftb_tests::skip::skip;
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use serde_json::{Value, json};
use site::fixture::{compiled, criu_file, python_package, results, with_libftb};
use site::{Site, nothing_left, run, start, text};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Short times for tests with few ranks.
const QUICK: [&str; 2] = ["--hang-after", "1s"];

/// The process of a rank: it leads its process group.
fn pid_of(job: &str, rank: u32) -> Result<Pid> {
    let wanted = [format!("FTB_JOB_ID={job}\0"), format!("FTB_RANK={rank}\0")];
    for entry in std::fs::read_dir("/proc")?.filter_map(Result::ok) {
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let environ = text(&environ);
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let pid = Pid::from_raw(pid);
        let leads = nix::unistd::getpgid(Some(pid)) == Ok(pid);
        if leads && site::is_ours(&environ) && wanted.iter().all(|of| environ.contains(of)) {
            return Ok(pid);
        }
    }
    anyhow::bail!("rank {rank} of {job} is not there")
}

async fn status(site: &Site, job: &str) -> Result<Value> {
    Ok(serde_json::from_str(&site.ask(&["status", job, "--json"]).await?)?)
}

/// Waits until status shows these hung ranks with these kinds.
async fn shows(site: &Site, job: &str, hung: &[(Option<u32>, &str)]) -> Result<Value> {
    let wanted: Vec<Value> = hung.iter().map(|(rank, kind)| json!([rank, kind])).collect();
    site.wait(&format!("{hung:?} to be shown"), async || {
        let all = status(site, job).await?["hung"].clone();
        let of = |hung: &Value| json!([hung["rank"], hung["kind"]]);
        let found: Vec<Value> = all.as_array().context("no array")?.iter().map(of).collect();
        Ok((found == wanted).then_some(all))
    })
    .await
}

/// The conditions of a host with the key HUNG that hold.
fn conditions(site: &Site, node: &str) -> Result<String> {
    let mut command = Command::new(binary("ftbctl", "ftbctl")?);
    command.arg("--agent").arg(site.cluster.socket(0));
    let output = command.args(["conditions", node, "--key", "HUNG"]).output()?;
    Ok(text(&output.stdout))
}

/// The acceptance: with the default times.
#[tokio::test(flavor = "multi_thread")]
async fn one_stopped_rank_of_64_is_found_within_30_seconds() -> Result<()> {
    let site = Site::new(2).await?;
    let job = start(site.launch(&["-n", "64", "--job", "large"], &["sleep", "1000"]));
    site.wait("the ranks", async || Ok(pid_of("large", 63).ok())).await?;
    // A few looks at ranks that do nothing.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let pid = pid_of("large", 37)?;
    // Its event, not the answer of a command: that is a process to start on a busy machine.
    let client = Client::builder("test").agent(site.cluster.socket(0)).build()?;
    let mut events = client.subscribe("event_name=FTB_JL_HUNG", Start::Now).await?;
    kill(pid, Signal::SIGSTOP)?;
    let delivery = timeout(Duration::from_secs(30), events.next()).await;
    let Ok(Some(Delivery::Event(found))) = delivery else {
        panic!("{delivery:?}{}", site.evidence());
    };
    assert_eq!((found.event.tag("rank"), found.event.tag("kind")), (Some("37"), Some("stopped")));
    let hung = shows(&site, "large", &[(Some(37), "stopped")]).await?;
    assert_eq!((&hung[0]["node"], &hung[0]["pid"]), (&json!("node02"), &json!(pid.as_raw())));
    let held = conditions(&site, "node02")?;
    assert!(held.contains("large rank 37"), "{held}");
    let shown = text(&run(site.command(&["status", "large"])).await?.stdout);
    assert!(shown.contains("hung    rank 37 on node02 (pid "), "{shown}");
    kill(pid, Signal::SIGCONT)?;
    shows(&site, "large", &[]).await?;
    site.wait("the condition to clear", async || {
        Ok((!conditions(&site, "node02")?.contains("large")).then_some(()))
    })
    .await?;
    site.ask(&["kill", "large"]).await?;
    let reported = text(&job.await??.stderr);
    for words in [
        &format!("rank 37 on node02 (pid {pid}) is hung: is stopped by a signal for 2"),
        "rank 37 on node02",
        "is hung no more",
    ] {
        assert!(reported.contains(words), "{words}: {reported}");
    }
    assert_eq!(reported.matches(" hung: ").count(), 1, "{reported}");
    nothing_left("FTB_JOB_ID=large").await
}

/// What holds of a condition of a node, whatever its component: `true`, `false`, `unknown`.
fn state_of(site: &Site, node: &str, key: &str) -> Result<Value> {
    let mut command = Command::new(binary("ftbctl", "ftbctl")?);
    command.arg("--agent").arg(site.cluster.socket(0));
    let output = command.args(["conditions", node, "--key", key, "--all", "--json"]).output()?;
    let row: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    Ok(row["state"].clone())
}

async fn becomes(site: &Site, node: &str, key: &str, state: &str) -> Result<()> {
    site.wait(&format!("{key} of {node} to be {state}"), async || {
        Ok((state_of(site, node, key)? == state).then_some(()))
    })
    .await
}

/// A rank is hung no more when it goes on, and when its launch agent was killed. That stays known
/// although nothing of the job is left to say so.
#[tokio::test(flavor = "multi_thread")]
async fn a_hung_rank_that_goes_on_or_dies_with_its_launch_agent_leaves_no_condition() -> Result<()>
{
    if !nix::unistd::Uid::effective().is_root() {
        skip("only jobs of root state conditions");
        return Ok(());
    }
    let soon = "[detection]\npublisher = \"1s\"\n";
    let site = Site::planned(Plan::new(3, 2).extra(soon)).await?;
    let expected = site.undisturbed().await?;
    let arguments = [&QUICK[..], &["--on-hang", "report", "--spares", "node03"]].concat();
    let job = start(site.counting("dies", &arguments));
    site.wait_met("dies").await?;
    site.ask(&["checkpoint", "dies"]).await?;
    let (goes_on, dies) = (pid_of("dies", 0)?, pid_of("dies", 2)?);
    kill(goes_on, Signal::SIGSTOP)?;
    becomes(&site, "node01", "HUNG", "true").await?;
    kill(goes_on, Signal::SIGCONT)?;
    becomes(&site, "node01", "HUNG", "false").await?;
    kill(dies, Signal::SIGSTOP)?;
    becomes(&site, "node02", "HUNG", "true").await?;
    kill(site.nla_of("dies", "node02")?, Signal::SIGKILL)?;
    becomes(&site, "node02", "HUNG", "false").await?;
    site.release()?;
    assert_eq!(site::result(&job.await??)?, expected);
    nothing_left("FTB_JOB_ID=dies").await?;
    // A publisher that goes after all of the job does.
    let last = Client::builder("last").agent(site.cluster.socket(1)).build()?;
    let stated = event("ftb.ipmi", "LAST")?.severity(Severity::Info);
    let stated = stated.condition(Condition::new("LAST", Truth::True));
    last.publish_wait(stated).await?.confirmed().await?;
    last.close(Duration::from_secs(10)).await?;
    becomes(&site, "node02", "LAST", "unknown").await?;
    for node in ["node01", "node02"] {
        assert_eq!(state_of(&site, node, "HUNG")?, "false", "{node}");
    }
    Ok(())
}

/// A job of ftb-job with a set, one of its ranks stopped.
async fn stopped(site: &Site, job: &'static str, on_hang: &str) -> Result<(String, String, i32)> {
    let arguments = [&QUICK[..], &["--on-hang", on_hang]].concat();
    let launched = start(site.counting(job, &arguments));
    site.wait_met(job).await?;
    site.ask(&["checkpoint", job]).await?;
    kill(pid_of(job, 2)?, Signal::SIGSTOP)?;
    if on_hang != "kill" {
        site.wait("a recovery", async || {
            let restarts = state(site, job)?["jl"]["job"]["restarts"].clone();
            Ok((restarts == 1).then_some(()))
        })
        .await?;
        site.wait_status(job, "the job to go on", |status| status["hung"] == json!([])).await?;
        site.release()?;
    }
    let output = launched.await??;
    let code = output.status.code().unwrap_or_default();
    Ok((text(&output.stdout), text(&output.stderr), code))
}

fn state(site: &Site, job: &str) -> Result<Value> {
    let bytes = std::fs::read(site.jobs.path().join(job).join("state.json"))?;
    Ok(serde_json::from_slice(&bytes)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hung_rank_is_killed_and_its_peers_go_back_in_place() -> Result<()> {
    let site = Site::new(2).await?;
    let expected = site.undisturbed_on("node02").await?;
    let (out, reported, code) = stopped(&site, "back", "rollback").await?;
    assert_eq!(code, 0, "{reported}");
    assert!(out.contains(&expected), "{out} {expected}");
    for words in [
        "rank 2 on node02",
        ": it is killed (on_hang = rollback)",
        "3 ranks went back to set set-000002 in place, started again were 2 on node02",
    ] {
        assert!(reported.contains(words), "{words}: {reported}");
    }
    nothing_left("FTB_JOB_ID=back").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_a_hung_rank_starts_again_from_its_last_set() -> Result<()> {
    let site = Site::new(2).await?;
    let (out, reported, code) = stopped(&site, "anew", "restart").await?;
    assert_eq!((code, out.matches("result ").count()), (0, 1), "{reported}");
    assert!(
        reported.contains("hung: rank 2 (on_hang = restart): the job restarts from set set-000002"),
        "{reported}"
    );
    nothing_left("FTB_JOB_ID=anew").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_a_hung_rank_ends_and_its_set_stays() -> Result<()> {
    let site = Site::new(2).await?;
    let (_, reported, code) = stopped(&site, "ends", "kill").await?;
    assert_eq!(code, 137, "{reported}");
    assert!(reported.contains("to start again: ftb-launch restart"), "{reported}");
    nothing_left("FTB_JOB_ID=ends").await
}

/// Also without a set nothing is done.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_rank_of_an_unmodified_mpi_program_is_reported_and_goes_on() -> Result<()> {
    let site = Site::new(2).await?;
    let Some(program) = compiled(&site, "stencil", include_str!("stencil.c"))? else {
        return Ok(());
    };
    let gate = site.gate().display().to_string();
    let words = [&program, "60", "32", "64", &gate];
    let arguments = [&QUICK[..], &["-n", "3", "--job", "mpi", "--on-hang", "restart"]].concat();
    let job = start(site.launch(&arguments, &words));
    site.wait_met("mpi").await?;
    let pid = pid_of("mpi", 1)?;
    kill(pid, Signal::SIGSTOP)?;
    shows(&site, "mpi", &[(Some(1), "stopped")]).await?;
    kill(pid, Signal::SIGCONT)?;
    shows(&site, "mpi", &[]).await?;
    site.release()?;
    let output = job.await??;
    assert_eq!(results(&output)?.len(), 3);
    let reported = text(&output.stderr);
    assert!(reported.contains("there is no set to go back to, so nothing is done"), "{reported}");
    nothing_left("FTB_JOB_ID=mpi").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rank_under_a_debugger_is_reported_and_left_alone() -> Result<()> {
    let site = Site::new(2).await?;
    let arguments = [&QUICK[..], &["-n", "2", "--job", "debug", "--on-hang", "kill"]].concat();
    let job = start(site.launch(&arguments, &["sleep", "1000"]));
    let pid = site.wait("the ranks", async || Ok(pid_of("debug", 1).ok())).await?;
    let (done, wait) = std::sync::mpsc::channel::<()>();
    // Only the thread that has attached may detach.
    let debugger = std::thread::spawn(move || -> nix::Result<()> {
        ptrace::attach(pid)?;
        waitpid(pid, None)?;
        let _ = wait.recv();
        ptrace::detach(pid, None)
    });
    let hung = shows(&site, "debug", &[(Some(1), "debugger")]).await?;
    assert_eq!(hung[0]["pid"], pid.as_raw());
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(status(&site, "debug").await?["state"], "running");
    drop(done);
    debugger.join().unwrap()?;
    shows(&site, "debug", &[]).await?;
    site.ask(&["kill", "debug"]).await?;
    let reported = text(&job.await??.stderr);
    assert!(reported.contains(": nothing is done while a debugger is attached"), "{reported}");
    nothing_left("FTB_JOB_ID=debug").await
}

/// All ranks count steps, until one loops and the others wait.
const COUNTING: &str = r#"
import os, time
step = (1).to_bytes(8, "little")
begin = time.monotonic()
while os.environ["FTB_RANK"] == "0" or time.monotonic() < begin + 2:
    os.write(int(os.environ["FTB_PROGRESS_FD"]), step)
    time.sleep(0.05)
while os.environ["FTB_RANK"] == "1":
    pass
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_rank_that_loops_is_found_because_it_counts_no_more_steps() -> Result<()> {
    if Command::new("python3").arg("-V").output().is_err() {
        skip("python3 is not installed");
        return Ok(());
    }
    let site = Site::new(2).await?;
    let stall = ["-n", "2", "--job", "steps", "--stall-after", "2s"];
    let job = start(site.launch(&stall, &["python3", "-c", COUNTING]));
    site.wait("the ranks", async || Ok(pid_of("steps", 1).ok())).await?;
    shows(&site, "steps", &[(Some(1), "steps")]).await?;
    site.ask(&["kill", "steps"]).await?;
    let reported = text(&job.await??.stderr);
    assert!(reported.contains("is hung: makes no further step for"), "{reported}");
    nothing_left("FTB_JOB_ID=steps").await
}

/// Rank 1 deadlocks after some steps, the others go on: it is found, and they are not.
async fn deadlocks(site: &Site, job: &'static str, env: &str, program: &[&str]) -> Result<()> {
    let stall = ["-n", "3", "--job", job, "--env", env, "--stall-after", "8s"];
    let launched = start(site.launch(&stall, program));
    site.wait("the ranks", async || Ok(pid_of(job, 1).ok())).await?;
    let hung = shows(site, job, &[(Some(1), "steps")]).await?;
    assert_eq!(hung[0]["pid"], pid_of(job, 1)?.as_raw(), "{hung}");
    site.ask(&["kill", job]).await?;
    let reported = text(&launched.await??.stderr);
    assert!(reported.contains("is hung: makes no further step for"), "{reported}");
    nothing_left(&format!("FTB_JOB_ID={job}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_c_program_in_a_deadlock_is_found_by_the_steps_of_ftb_progress() -> Result<()> {
    let site = Site::without_examples(2).await?;
    let source = include_str!("deadlock.c");
    let Some(program) = with_libftb(&site, "deadlock", source)? else { return Ok(()) };
    deadlocks(&site, "deadc", "ANY=1", &[&program]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_program_in_a_deadlock_is_found_by_the_steps_of_ftb_progress() -> Result<()> {
    if Command::new("python3").arg("-V").output().is_err() {
        skip("python3 is not installed");
        return Ok(());
    }
    let site = Site::without_examples(2).await?;
    let path = python_package(&site)?;
    let script = path.join("deadlock.py");
    std::fs::write(&script, include_str!("deadlock.py"))?;
    let program = ["python3", &script.display().to_string()];
    deadlocks(&site, "deadpy", &format!("PYTHONPATH={}", path.display()), &program).await
}

/// An unmodified program: rank 0 gives work to the others over TCP. While `collective` is there, it
/// computes and the others wait for it. With `blocked`, rank 3 reads what no process ever writes.
const FARM: &str = r#"
import os, select, socket, sys, time
place, size = sys.argv[1], 5
rank = int(os.environ["FTB_RANK"])
there = lambda name: os.path.exists(os.path.join(place, name))
if rank == 0:
    server = socket.create_server(("127.0.0.1", 0))
    with open(place + "/port.new", "w") as port:
        port.write(str(server.getsockname()[1]))
    os.rename(place + "/port.new", place + "/port")
    workers = [server.accept()[0] for _ in range(size - 1)]
    while True:
        if there("collective"):
            [worker.recv(1) for worker in workers]
            while there("collective"):
                pass
            [worker.sendall(b"x") for worker in workers]
        for worker in select.select(workers, [], [], 0.1)[0]:
            worker.recv(1)
            worker.sendall(b"x")
while not there("port"):
    time.sleep(0.05)
link = socket.create_connection(("127.0.0.1", int(open(place + "/port").read())))
while True:
    if rank == 3 and there("blocked"):
        os.read(os.pipe()[0], 1)
    link.sendall(b"x")
    link.recv(1)
    time.sleep(0.02)
"#;

/// The program, with these times.
async fn farm(
    site: &Site,
    job: &'static str,
    [hang, stall]: [&str; 2],
    place: &str,
) -> Result<JoinHandle<Result<Output>>> {
    let times = ["-n", "5", "--job", job, "--hang-after", hang, "--stall-after", stall];
    let started = start(site.launch(&times, &["python3", "-c", FARM, place]));
    site.wait("the ranks", async || Ok(pid_of(job, 4).ok())).await?;
    Ok(started)
}

/// Four of five ranks stand still far beyond the time after which a rank is hung.
#[tokio::test(flavor = "multi_thread")]
async fn ranks_that_wait_for_one_that_computes_are_not_hung() -> Result<()> {
    if Command::new("python3").arg("-V").output().is_err() {
        skip("python3 is not installed");
        return Ok(());
    }
    let (site, place) = (Site::new(2).await?, tempfile::tempdir()?);
    std::fs::write(place.path().join("collective"), "")?;
    let job = farm(&site, "waits", ["1s", "2s"], &place.path().display().to_string()).await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    std::fs::remove_file(place.path().join("collective"))?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    site.ask(&["kill", "waits"]).await?;
    let reported = text(&job.await??.stderr);
    assert!(!reported.contains(" hung"), "{reported}");
    nothing_left("FTB_JOB_ID=waits").await
}

/// It sleeps as a rank does that waits for work: only its peers, which go on, show that it hangs.
///
/// A look is due each second, 50 times as long as the ranks wait: on a busy machine too they are
/// seen to move. The rank must stand still for 30 times as long as ever before, and have been
/// watched for three times that: the first part is long enough for one look that saw it still.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "two minutes: make test-long"]
async fn a_blocked_rank_of_an_unmodified_program_is_found_because_its_peers_go_on() -> Result<()> {
    if Command::new("python3").arg("-V").output().is_err() {
        skip("python3 is not installed");
        return Ok(());
    }
    let (site, place) = (Site::without_examples(2).await?, tempfile::tempdir()?);
    let job = farm(&site, "farm", ["10s"; 2], &place.path().display().to_string()).await?;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(status(&site, "farm").await?["hung"], json!([]));
    std::fs::write(place.path().join("blocked"), "")?;
    let started = Instant::now();
    let hung = shows(&site, "farm", &[(Some(3), "peers")]).await?;
    println!("found after {:?}", started.elapsed());
    assert_eq!(hung[0]["pid"], pid_of("farm", 3)?.as_raw());
    site.ask(&["kill", "farm"]).await?;
    let reported = text(&job.await??.stderr);
    let words = "is hung: stands still while its peers go on and exchange data for";
    assert!(reported.contains(words), "{reported}");
    assert_eq!(reported.matches(" hung: ").count(), 1, "{reported}");
    nothing_left("FTB_JOB_ID=farm").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_rank_in_a_pod_is_found() -> Result<()> {
    let site = Site::new(2).await?;
    let Some(backend) = criu_file(&site, "")? else { return Ok(()) };
    let Some(program) = compiled(&site, "stencil", include_str!("stencil.c"))? else {
        return Ok(());
    };
    let gate = site.gate().display().to_string();
    let arguments = ["-n", "2", "--job", "pod", "--backend", &backend, QUICK[0], QUICK[1]];
    let job = start(site.launch(&arguments, &[&program, "60", "32", "64", &gate]));
    site.wait_met("pod").await?;
    // Its counter is part of the image.
    site.checkpoint("pod").await?;
    let pid = pid_of("pod", 1)?;
    kill(pid, Signal::SIGSTOP)?;
    shows(&site, "pod", &[(Some(1), "stopped")]).await?;
    kill(pid, Signal::SIGCONT)?;
    shows(&site, "pod", &[]).await?;
    site.release()?;
    let output = job.await??;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    nothing_left("FTB_JOB_ID=pod").await
}
