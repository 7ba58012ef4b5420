//! Real processes: agents, `ftb-launch`, `ftb-nla` and ranks on this host, with everything that
//! kills them.
//!
//! Tests wait for lines of output, never for time.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, bail, ensure};
use ftb_tests::cluster::wait_for;
use ftb_tests::skip::skip;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use site::{Site, nothing_left, result, run, start, text};
use std::path::Path;
use std::process::{Command, Stdio};

#[tokio::test(flavor = "multi_thread")]
async fn output_is_forwarded_with_its_rank_and_the_exit_code_returned() -> Result<()> {
    let site = Site::new(2).await?;
    let script = "echo out $FTB_RANK of $FTB_SIZE on $FTB_NODE; echo err >&2";
    let command = site.launch(&["-n", "4", "--prefix", "-q"], &["sh", "-c", script]);
    let output = run(command).await?;
    let mut lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    let expected: Vec<String> =
        (0..4).map(|rank| format!("[{rank}] out {rank} of 4 on node0{}", 1 + rank / 2)).collect();
    assert_eq!(lines, expected);
    assert_eq!(text(&output.stderr).matches("err\n").count(), 4);
    assert!(output.status.success());
    let left: Vec<_> = std::fs::read_dir(site.jobs.path())?.collect();
    assert!(left.is_empty(), "{left:?}");

    let script = "[ $FTB_RANK = 1 ] && exit 7; sleep 1000";
    let output = run(site.launch(&["-n", "2"], &["sh", "-c", script])).await?;
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let output = run(site.launch(&["-n", "2"], &["sh", "-c", "kill -SEGV $$"])).await?;
    assert_eq!(output.status.code(), Some(128 + 11));
    let output = run(site.launch(&["-n", "2"], &["/no/such/program"])).await?;
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).contains("/no/such/program"));
    let limit = ["-n", "2", "--time-limit", "200ms"];
    let output = run(site.launch(&limit, &["sleep", "1000"])).await?;
    assert_eq!(output.status.code(), Some(124));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_before_anything_starts() -> Result<()> {
    let site = Site::new(2).await?;
    let refused = |arguments: Vec<&'static str>, word: &'static str| {
        let command = site.launch(&arguments, &["true"]);
        async move {
            let output = run(command).await?;
            let error = text(&output.stderr);
            ensure!(output.status.code() == Some(64), "{arguments:?}: {:?} {error}", output.status);
            ensure!(error.contains(word) && error.lines().count() == 1, "{arguments:?}: {error}");
            Ok(())
        }
    };
    refused(vec!["-n", "2", "--hosts", "node09"], "node09 is not among the nodes").await?;
    refused(vec!["-n", "2", "--hosts", "node01", "--spares", "node01"], "spare and a primary")
        .await?;
    refused(vec!["-n", "9", "--ppn", "2"], "4 places: name more hosts, or a larger --ppn").await?;
    refused(vec!["-n", "0"], "0 ranks: 1 to 8192 are allowed").await?;
    refused(vec!["-n", "0", "--hosts", "node01"], "0 ranks").await?;
    refused(vec!["-n", "9000"], "9000 ranks: 1 to 8192").await?;
    refused(vec!["-n", "2", "--ppn", "0"], "0 places").await?;
    refused(vec!["-n", "2", "--hosts", ""], "--hosts: host list, column 1: empty").await?;
    refused(vec!["-n", "2", "--spares", "node[01-02]"], "there is no host to run on").await?;
    refused(vec!["-n", "2", "--hosts", "node01,node01", "--ppn", "1"], "node01").await?;
    refused(vec!["-n", "2", "--keep-sets", "0"], "--keep-sets").await?;
    refused(vec!["-n", "2", "--policy", "/no/such/file"], "/no/such/file").await?;
    let bad = site.jobs.path().join("bad.toml");
    std::fs::write(&bad, "hold_dawn = 3\n")?;
    let bad = bad.display().to_string();
    let output = run(site.launch(&["-n", "1", "--policy", &bad], &["true"])).await?;
    assert_eq!(output.status.code(), Some(64));
    assert!(text(&output.stderr).contains("line 1"), "{}", text(&output.stderr));
    let output = run(site.command(&["status", "unknown"])).await?;
    assert_eq!(output.status.code(), Some(64));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn migrations_in_a_row_and_a_checkpoint_change_no_bit() -> Result<()> {
    let site = Site::new(3).await?;
    let expected = site.undisturbed().await?;
    let job = start(site.counting("row", &["--spares", "node03"]));
    site.wait_met("row").await?;
    let moved = site.ask(&["migrate", "row", "node01"]).await?;
    assert_eq!(moved, "ranks 0,1 moved from node01 to node03");
    site.ask(&["checkpoint", "row"]).await?;
    // Without a spare the job is saved instead, and the requester gets the reason.
    let refused = run(site.command(&["migrate", "row", "node02"])).await?;
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("no hot spare"), "{}", text(&refused.stderr));
    site.ask(&["usable", "row", "node01"]).await?;
    site.wait_spare("row", "node01").await?;
    // Without a name, all jobs that use a node leave it.
    let unknown = run(site.command(&["drain", "node09"])).await?;
    assert_eq!(unknown.status.code(), Some(64), "{}", text(&unknown.stderr));
    let moved = site.ask(&["drain", "node02"]).await?;
    assert_eq!(moved, "ranks 2,3 moved from node02 to node01");
    let status: serde_json::Value =
        serde_json::from_str(&site.ask(&["status", "row", "--json"]).await?)?;
    assert_eq!(status["saved"]["source"], "never", "{status}");
    let shown = text(&run(site.command(&["status", "row"])).await?.stdout);
    assert!(shown.contains("saved   only on request"), "{shown}");
    site.release()?;
    assert_eq!(result(&job.await??)?, expected);
    nothing_left("FTB_JOB_ID=row").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_launch_agent_and_a_killed_rank_cost_no_bit() -> Result<()> {
    let site = Site::new(4).await?;
    let expected = site.undisturbed().await?;
    let job = start(site.counting("dies", &["--spares", "node[03-04]", "--on-death", "restart"]));
    site.wait_met("dies").await?;
    site.ask(&["checkpoint", "dies"]).await?;
    kill(site.nla_of("dies", "node02")?, Signal::SIGKILL)?;
    wait_for("the restart on a spare", async || {
        let status = site.ask(&["status", "dies", "--json"]).await?;
        let status: serde_json::Value = serde_json::from_str(&status)?;
        let idle = status["doing"] == "";
        Ok((idle && status["nodes"]["node02"]["state"] == "LOST").then_some(()))
    })
    .await?;
    site.ask(&["checkpoint", "dies"]).await?;
    kill_a_rank(&site.count)?;
    site.release()?;
    let output = job.await??;
    assert_eq!(result(&output)?, expected);
    let reported = text(&output.stderr);
    assert_eq!(reported.matches("restarts from set").count(), 2, "{reported}");
    nothing_left("FTB_JOB_ID=dies").await
}

/// Kills some rank that runs `program` for job `dies`.
fn kill_a_rank(program: &Path) -> Result<()> {
    for entry in std::fs::read_dir("/proc")?.filter_map(Result::ok) {
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let own = text(&read("cmdline")).starts_with(&program.display().to_string());
        if own && text(&read("environ")).contains("FTB_JOB_ID=dies\0") {
            let pid = entry.file_name().to_string_lossy().parse()?;
            kill(Pid::from_raw(pid), Signal::SIGKILL)?;
            return Ok(());
        }
    }
    bail!("no rank to kill")
}

/// The guard gets what a rank has started, when the launch agent itself can do nothing any more.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_outlives_a_killed_launch_agent() -> Result<()> {
    let site = Site::new(2).await?;
    let script = "sleep 1001 & wait";
    let job = start(site.launch(&["-n", "2", "--job", "orphans"], &["sh", "-c", script]));
    let started = site.jobs.path().join("orphans/state.json");
    wait_for("the launch agents", async || {
        let both =
            site.nla_of("orphans", "node01").is_ok() && site.nla_of("orphans", "node02").is_ok();
        Ok((started.exists() && both && count_of("sleep\x001001")? >= 2).then_some(()))
    })
    .await?;
    kill(site.nla_of("orphans", "node01")?, Signal::SIGKILL)?;
    assert_eq!(job.await??.status.code(), Some(1));
    nothing_left("FTB_JOB_ID=orphans").await
}

fn count_of(word: &str) -> Result<usize> {
    let entries = std::fs::read_dir("/proc")?.filter_map(Result::ok);
    let lines =
        entries.map(|entry| std::fs::read(entry.path().join("cmdline")).unwrap_or_default());
    Ok(lines.filter(|line| text(line).contains(word)).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_outlives_its_launcher_and_is_taken_over() -> Result<()> {
    let site = Site::new(3).await?;
    let expected = site.undisturbed().await?;
    let mut first = site.counting("adopted", &["--spares", "node03"]);
    let mut launcher = first.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    site.wait_met("adopted").await?;
    launcher.kill()?;
    launcher.wait()?;
    let listed = site.ask(&["ps", "--json"]).await?;
    assert!(listed.contains("\"state\":\"orphaned\""), "{listed}");
    let unheard = run(site.command(&["checkpoint", "adopted"])).await?;
    let reported = text(&unheard.stderr);
    assert_eq!(unheard.status.code(), Some(3), "{reported}");
    assert!(reported.contains("ftb-launch attach adopted"), "{reported}");
    let second = start(site.command(&["attach", "adopted"]));
    wait_for("the new launcher", async || {
        Ok(site.ask(&["ps", "--json"]).await?.contains("\"state\":\"running\"").then_some(()))
    })
    .await?;
    let again = run(site.command(&["attach", "adopted"])).await?;
    assert_eq!(again.status.code(), Some(64), "one launcher at a time");
    let moved = site.ask(&["migrate", "adopted", "node01"]).await?;
    site.release()?;
    assert_eq!(moved, "ranks 0,1 moved from node01 to node03");
    assert_eq!(result(&second.await??)?, expected);
    nothing_left("FTB_JOB_ID=adopted").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_fan_moves_the_node_and_a_hot_room_saves_the_job() -> Result<()> {
    let site = Site::new(4).await?;
    let expected = site.undisturbed().await?;
    let job = start(site.counting("fan", &["--spares", "node[03-04]"]));
    site.wait_met("fan").await?;
    let client = ftb_client::Client::builder("test").agent(site.cluster.socket(3)).build()?;
    let fault = |name: &str, node: &str| -> Result<ftb_client::Event> {
        Ok(ftb_client::event("ftb.ipmi", name)?.tag("node", node).build())
    };
    client.publish(fault("FTB_IPMI_FANFAIL", "node02")?)?.confirmed().await?;
    client.publish(fault("FTB_IPMI_FANFAIL", "another-cluster")?)?.confirmed().await?;
    let sets = site.jobs.path().join("fan/sets");
    wait_for("the migration", async || {
        let status = site.ask(&["status", "fan", "--json"]).await?;
        let status: serde_json::Value = serde_json::from_str(&status)?;
        let moved = status["nodes"]["node02"]["state"] == "MIGRATION_INACTIVE";
        Ok((moved && status["doing"] == "").then_some(()))
    })
    .await?;
    for node in ["node01", "node03"] {
        client.publish(fault("FTB_IPMI_OVERTEMP", node)?)?.confirmed().await?;
    }
    wait_for("the checkpoint", async || {
        let entries = std::fs::read_dir(&sets).context("the job ended without a checkpoint")?;
        let mut entries = entries.filter_map(Result::ok);
        Ok(entries.any(|entry| entry.path().join("set.json").exists()).then_some(()))
    })
    .await?;
    site.release()?;
    let output = job.await??;
    assert_eq!(result(&output)?, expected);
    let reported = text(&output.stderr);
    assert!(reported.contains("ranks 2,3 moved from node02 to node03"), "{reported}");
    assert_eq!(
        reported.matches("moved from").count(),
        1,
        "no rank moves in a hot room: {reported}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_starts_again_from_a_set_elsewhere_and_a_damaged_set_is_refused() -> Result<()> {
    let site = Site::new(4).await?;
    let expected = site.undisturbed().await?;
    let hosts = ["--hosts", "node[01-02]", "--keep"];
    let job = start(site.counting("again", &hosts));
    site.wait_met("again").await?;
    site.ask(&["checkpoint", "again"]).await?;
    site.ask(&["kill", "again"]).await?;
    let output = job.await??;
    assert_eq!(output.status.code(), Some(143));
    let reported = text(&output.stderr);
    site.release()?;
    let set = site.jobs.path().join("again/sets/set-000002");
    assert!(reported.contains(&set.display().to_string()), "{reported}");
    let set_text = set.display().to_string();
    let nodes = site.local_nodes();
    let elsewhere =
        ["restart", &set_text, "--local-nodes", &nodes, "--hosts", "node[03-04]", "--keep"];
    assert_eq!(result(&run(site.command(&elsewhere)).await?)?, expected);

    // Damaged, of another rank, not there.
    let refused = async |word: &str, more: &[&str]| -> Result<()> {
        let output = run(site.command(&[&elsewhere[..], more].concat())).await?;
        let reported = text(&output.stderr);
        ensure!(output.status.code() == Some(64), "{word}: {:?} {reported}", output.status);
        ensure!(reported.contains(word) && reported.lines().count() == 1, "{word}: {reported}");
        Ok(())
    };
    let hooks = site.jobs.path().join("hooks.toml");
    std::fs::write(&hooks, "[backend.command]\ncheckpoint = [\"true\"]\n")?;
    let other = ["--backend", &hooks.display().to_string()];
    refused("the set was made by backend app: command cannot", &other).await?;
    let image = |rank: u32| set.join(format!("rank-{rank}.img"));
    let bytes = std::fs::read(image(1))?;
    let mut bad = bytes.clone();
    bad[bytes.len() / 2] ^= 1;
    std::fs::write(image(1), &bad)?;
    refused("rank-1.img is damaged", &[]).await?;
    std::fs::write(image(1), std::fs::read(image(0))?)?;
    refused("rank-1.img is damaged, or of another rank or set", &[]).await?;
    std::fs::remove_file(image(1))?;
    refused("rank-1.img", &[]).await?;
    std::fs::write(image(1), &bytes)?;
    refused("2 places", &["--ppn", "1"]).await?;
    Ok(())
}

/// Unmodified MPICH programs find the PMI server; needs Debian's `libmpich-dev`.
#[tokio::test(flavor = "multi_thread")]
async fn an_unmodified_mpich_program_runs() -> Result<()> {
    if Command::new("mpicc.mpich").arg("-v").output().is_err() {
        skip("mpicc.mpich is not installed (apt-get install libmpich-dev)");
        return Ok(());
    }
    let site = Site::new(2).await?;
    let source = site.jobs.path().join("ring.c");
    std::fs::write(&source, include_str!("ring.c"))?;
    let program = site.jobs.path().join("ring");
    let compiled = Command::new("mpicc.mpich").arg(&source).arg("-o").arg(&program).status()?;
    ensure!(compiled.success(), "mpicc.mpich failed");
    let program = program.display().to_string();
    let output = run(site.launch(&["-n", "6", "-q"], &[&program, "10"])).await?;
    let reported = format!("{} {}", text(&output.stdout), text(&output.stderr));
    assert_eq!(text(&output.stdout), "token 60\n", "{reported}");
    assert!(output.status.success(), "{reported}");
    Ok(())
}
