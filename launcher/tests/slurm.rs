//! A real Slurm on this machine (munged, slurmctld and four slurmd), in whose allocation the
//! launcher finds its hosts and starts its launch agents.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use ftb_tests::cluster::wait_for;
use ftb_tests::slurm::{self, Slurm};
use nix::sys::signal::{Signal, kill};
use site::{Site, nothing_left, result, run, start, text};
use std::process::Command;

const NODES: usize = 4;
/// A launch in an allocation of all nodes: the hosts are Slurm's, only the agents' sockets are
/// given.
fn launch(slurm: &Slurm, site: &Site, arguments: &[&str], program: &[&str]) -> Command {
    let sockets = site.cluster.dir().join("%n.sock").display().to_string();
    let agent = site.cluster.socket(0).display().to_string();
    let mut command = slurm.command("salloc", &["--quiet", "-N4", site::LAUNCH, "run"]);
    command.env("FTB_JOBS_DIR", site.jobs.path());
    command.args(["--agent-socket", &sockets, "--agent", &agent, "--address", "127.0.0.1"]);
    command.args(arguments).arg("--").args(program);
    command
}

/// A launch agent that does not go when the job ends is killed on its node, by another `srun`.
async fn one_that_does_not_go_is_killed(site: &Site, slurm: &Slurm) -> Result<()> {
    let deadlines = slurm.dir().join("deadlines.toml");
    std::fs::write(&deadlines, "end = \"1s\"\n")?;
    let (deadlines, name) =
        (deadlines.display().to_string(), format!("stays-{}", std::process::id()));
    let arguments = ["-n", "2", "--job", &name, "--hosts", "node[01-02]"];
    let all = [&arguments[..], &["--deadlines", &deadlines]].concat();
    let there = slurm.dir().join("there").display().to_string();
    let script = format!("touch {there}.$FTB_RANK; exec sleep 1009");
    let job = start(launch(slurm, site, &all, &["sh", "-c", &script]));
    for rank in 0..2 {
        let path = format!("{there}.{rank}");
        wait_for("the ranks", async || Ok(std::fs::exists(&path)?.then_some(()))).await?;
    }
    let agent = slurm.processes().into_iter().find(|pid| {
        let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let on_node = text(&read("environ")).contains("SLURMD_NODENAME=node02\0");
        on_node && text(&read("cmdline")).contains("ftb-nla\0serve\0")
    });
    kill(agent.context("no launch agent on node02")?, Signal::SIGSTOP)?;
    site.ask(&["kill", &name]).await?;
    let output = job.await??;
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(143), "{reported}");
    assert!(reported.contains("no answer from node02: killed"), "{reported}");
    nothing_left(&format!("FTB_JOB_ID={name}\0")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_allocation_says_where_and_srun_starts_the_launch_agents() -> Result<()> {
    if !slurm::can_run() {
        return Ok(());
    }
    let site = Site::new(NODES).await?;
    let expected = site.undisturbed().await?;
    let hosts: Vec<&str> = (0..NODES).map(|index| site.cluster.host(index)).collect();
    let slurm = Slurm::start(&site.cluster.dir().join("slurm"), &hosts).await?;

    let script = "echo $FTB_RANK on $FTB_NODE $GREETING";
    let arguments = ["-n", "8", "--env", "GREETING=hello"];
    let output = run(launch(&slurm, &site, &arguments, &["sh", "-c", script])).await?;
    let (out, reported) = (text(&output.stdout), text(&output.stderr));
    ensure!(output.status.success(), "{reported}\n{}", slurm.logs());
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let all: Vec<String> =
        (0..8).map(|rank| format!("{rank} on node0{} hello", 1 + rank / 2)).collect();
    assert_eq!(lines, all, "{reported}");

    let count = site.count.display().to_string();
    let gate = site.gate().display().to_string();
    // Images lie where all jobs of the host have them: another run may be under way.
    let name = format!("slurm-{}", std::process::id());
    // Names of nodes that cannot be looked up: images are fetched from their addresses.
    let entry = |index| {
        format!(
            "[[node]]\nname = {:?}\nagent = {:?}\naddress = \"127.0.0.1\"\n",
            site.cluster.host(index),
            site.cluster.socket(index)
        )
    };
    let nodes = slurm.dir().join("nodes.toml");
    std::fs::write(&nodes, (0..NODES).map(entry).collect::<String>())?;
    let nodes = nodes.display().to_string();
    let arguments = [
        "-n",
        "4",
        "--job",
        &name,
        "--spares",
        "node[03-04]",
        "--start",
        "slurm",
        "--nodes",
        &nodes,
    ];
    let program = [count.as_str(), site::STEPS, site::PAUSE_US, &gate];
    let job = start(launch(&slurm, &site, &arguments, &program));
    site.wait_met(&name).await?;
    let moved = site.ask(&["migrate", &name, "node01"]).await?;
    assert_eq!(moved, "ranks 0,1 moved from node01 to node03");
    site.release()?;
    assert_eq!(result(&job.await??)?, expected);
    nothing_left(&format!("FTB_JOB_ID={name}\0")).await?;

    one_that_does_not_go_is_killed(&site, &slurm).await?;

    let elsewhere = ["-n", "1", "--hosts", "node09"];
    let output = run(launch(&slurm, &site, &elsewhere, &["true"])).await?;
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(64), "{reported}");
    assert!(reported.contains("node09 is not in this allocation (node[01-04])"), "{reported}");
    Ok(())
}
