//! The duties of every checkpoint backend, with real processes: one suite, run for each of them.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub)]

mod site;

use anyhow::{Context as _, Result, ensure};
use ftb_tests::cluster::{binary, wait_for};
use ftb_tests::guest::{Guest, hardware};
use ftb_tests::skip::skip;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use site::fixture::{Fixture, results};
use site::{Site, nothing_left, run, start, text};
use std::path::{Path, PathBuf};
use std::process::Command;

/// For a guest under emulation, on a machine with other work to do.
const GUEST_DEADLINE_S: u32 = 1_200;

/// The committed sets of a job, in order.
fn sets(site: &Site, job: &str) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(site.jobs.path().join(job).join("sets"))?;
    let dirs = entries.filter_map(Result::ok).map(|entry| entry.path());
    let mut sets: Vec<_> = dirs.filter(|dir| dir.join("set.json").exists()).collect();
    sets.sort();
    Ok(sets)
}

/// A process of a rank of that job.
fn rank_process(job: &str, command: &str) -> Result<Pid> {
    for entry in std::fs::read_dir("/proc")?.filter_map(Result::ok) {
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let line = text(&read("cmdline"));
        if line.contains(command)
            && !line.contains("exec-rank")
            && text(&read("environ")).contains(&format!("FTB_JOB_ID={job}\0"))
        {
            return Ok(Pid::from_raw(entry.file_name().to_string_lossy().parse()?));
        }
    }
    anyhow::bail!("no process of job {job} to kill")
}

async fn conforms(site: &Site, of: &Fixture) -> Result<()> {
    site.release()?;
    let undisturbed = results(&run(of.command(site, &["-q"])).await?)?;
    std::fs::remove_file(site.gate())?;
    checkpoints_and_moves(site, of, &undisturbed).await?;
    std::fs::remove_file(site.gate())?;
    starts_again_elsewhere(site, of, &undisturbed).await
}

/// Sets are committed whole and kept to their number, a moved node and a killed rank change no
/// result.
async fn checkpoints_and_moves(site: &Site, of: &Fixture, undisturbed: &[String]) -> Result<()> {
    let job = of.name;
    let running = start(
        of.command(site, &["--job", job, "--hosts", "node[01-02]", "--spares", "node[03-04]"]),
    );
    site.wait_met(job).await?;
    for made in 1..=3 {
        site.checkpoint(job).await?;
        let sets = sets(site, job)?;
        // Two, and the last good one besides where ranks made no progress in between.
        let kept = made.min(2)..=made.min(3);
        assert!(kept.contains(&sets.len()), "{} sets are kept of {made}", sets.len());
        for set in &sets {
            let manifest = site.verify(job, set)?;
            assert_eq!((manifest.size, manifest.images.len()), (of.ranks, of.ranks as usize));
        }
    }
    site.ask(&["migrate", job, "node02"]).await?;
    let moved: Vec<u32> = (of.ranks / 2..of.ranks).collect();
    let ranks = |status: &serde_json::Value, node: &str| status["nodes"][node]["ranks"].clone();
    site.wait_status(job, "the ranks to have moved", |status| {
        ranks(status, "node02") == serde_json::json!([])
            && ranks(status, "node03") == serde_json::json!(moved)
    })
    .await?;
    site.checkpoint(job).await?;
    kill(rank_process(job, &of.process)?, Signal::SIGKILL)?;
    let state = site.jobs.path().join(job).join("state.json");
    wait_for("the restart from the last set", async || {
        let state: serde_json::Value = serde_json::from_slice(&std::fs::read(&state)?)?;
        Ok((state["jl"]["job"]["restarts"] == 1).then_some(()))
    })
    .await?;
    site.wait_status(job, "the job to work again", |_| true).await?;
    site.release()?;
    let output = running.await??;
    assert_eq!(results(&output)?, undisturbed, "{}", text(&output.stderr));
    nothing_left(&format!("FTB_JOB_ID={job}\0")).await
}

/// A set is enough to start the job on other nodes; a damaged one is refused before anything
/// starts.
async fn starts_again_elsewhere(site: &Site, of: &Fixture, undisturbed: &[String]) -> Result<()> {
    let job = format!("{}-again", of.name);
    let running = start(of.command(site, &["--job", &job, "--hosts", "node[01-02]", "--keep"]));
    site.wait_met(&job).await?;
    site.checkpoint(&job).await?;
    site.ask(&["kill", &job]).await?;
    assert_eq!(running.await??.status.code(), Some(143));
    site.release()?;
    let set = sets(site, &job)?.pop().context("there is no set")?;
    let nodes = site.local_nodes();
    let again_from = |set: &Path, hosts: &'static str| {
        let set = set.display().to_string();
        site.command(&["restart", &set, "--local-nodes", &nodes, "--hosts", hosts, "--keep"])
    };
    let again = |hosts| again_from(&set, hosts);
    assert_eq!(results(&run(again("node[03-04]")).await?)?, undisturbed);
    if of.ranks == 4 {
        // One rank on each node instead of two; ranks of a pod stay together.
        let mut spread = again("node[01-04]");
        spread.args(["--ppn", "1"]);
        assert_eq!(results(&run(spread).await?)?, undisturbed);
    }

    let victim = a_file(&set.join("rank-0.img"))?;
    let mut bytes = std::fs::read(&victim)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let refused = async |set: &Path, word: &str| -> Result<()> {
        let output = run(again_from(set, "node[03-04]")).await?;
        let reported = text(&output.stderr);
        ensure!(output.status.code() == Some(64), "{word}: {:?} {reported}", output.status);
        ensure!(reported.contains(word) && reported.lines().count() == 1, "{word}: {reported}");
        Ok(())
    };
    std::fs::write(&victim, &bytes)?;
    refused(&set, "damaged").await?;
    bytes[middle] ^= 1;
    std::fs::write(&victim, &bytes[..bytes.len() - 1])?;
    refused(&set, "damaged").await?;
    std::fs::write(&victim, &bytes)?;
    // Elsewhere it is not the set of that job.
    let name = set.file_name().context("no name")?;
    let stray = site.jobs.path().join("stray/sets");
    std::fs::create_dir_all(&stray)?;
    std::fs::rename(&set, stray.join(name))?;
    refused(&stray.join(name), &format!("of job {job}")).await?;
    std::fs::rename(stray.join(name), stray.join("set-000099"))?;
    refused(&stray.join("set-000099"), "is not the directory of set").await?;
    nothing_left(&format!("FTB_JOB_ID={job}\0")).await
}

/// The image itself, or the largest file in it.
fn a_file(image: &Path) -> Result<PathBuf> {
    if image.is_file() {
        return Ok(image.to_owned());
    }
    let files = std::fs::read_dir(image)?.filter_map(Result::ok);
    let largest = files.max_by_key(|entry| entry.metadata().map_or(0, |data| data.len()));
    Ok(largest.context("an empty image")?.path())
}

#[tokio::test(flavor = "multi_thread")]
async fn app_conforms() -> Result<()> {
    let site = Site::new(4).await?;
    conforms(&site, &Fixture::app(&site)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn loop_conforms() -> Result<()> {
    let site = Site::new(4).await?;
    match Fixture::looping(&site)? {
        Some(fixture) => conforms(&site, &fixture).await,
        None => Ok(()),
    }
}

/// A program that knows nothing of any of this but keeps its state in a file; hooks stop it, copy
/// the file, and let it go on.
#[tokio::test(flavor = "multi_thread")]
async fn command_conforms() -> Result<()> {
    let site = Site::new(4).await?;
    let work = site.jobs.path().with_extension("work");
    std::fs::create_dir(&work)?;
    let script = work.join("tally.sh");
    std::fs::write(&script, include_str!("tally.sh"))?;
    let hooks = work.join("hooks.toml");
    let state = format!("{}/state-{{job}}-{{rank}}", work.display());
    std::fs::write(
        &hooks,
        format!(
            r#"
            [backend.command]
            pre = ["sh", "-c", "kill -STOP $FTB_PID"]
            checkpoint = ["cp", "{state}", "{{image}}/state"]
            resume = ["sh", "-c", "kill -CONT $FTB_PID"]
            verify = ["grep", "-qx", "[0-9]* [0-9]*", "{{image}}/state"]
            restart = ["sh", "{script}", "{work}", "{gate}", "{{image}}/state"]
            "#,
            script = script.display(),
            work = work.display(),
            gate = site.gate().display(),
        ),
    )?;
    let words = ["sh".into(), script.display().to_string(), work.display().to_string()];
    let program = words.into_iter().chain([site.gate().display().to_string()]).collect();
    let process = script.display().to_string();
    let backend = hooks.display().to_string();
    let done =
        conforms(&site, &Fixture { name: "command", backend, program, ranks: 4, process }).await;
    std::fs::remove_dir_all(&work)?;
    done
}

#[tokio::test(flavor = "multi_thread")]
async fn criu_conforms() -> Result<()> {
    let site = Site::new(4).await?;
    match Fixture::stencil(&site)? {
        Some(fixture) => conforms(&site, &fixture).await,
        None => Ok(()),
    }
}

/// A hook that fails, or that never ends, costs a checkpoint and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_failing_hook_costs_no_job() -> Result<()> {
    let site = Site::new(2).await?;
    let hooks = site.jobs.path().join("hooks.toml");
    for (hook, word) in [
        ("checkpoint = [\"sh\", \"-c\", \"echo disk full >&2; exit 1\"]", "disk full"),
        ("checkpoint = [\"sleep\", \"1003\"]\ndeadline = \"100ms\"", "not done in 100ms"),
        ("checkpoint = [\"true\"]", "is empty"),
        ("pre = [\"false\"]\ncheckpoint = [\"cp\", \"/etc/hostname\", \"{image}\"]", "pre (false)"),
        (
            "checkpoint = [\"cp\", \"/etc/hostname\", \"{image}\"]\nverify = [\"false\"]",
            "verify (false)",
        ),
    ] {
        std::fs::write(&hooks, format!("[backend.command]\n{hook}\n"))?;
        let backend = hooks.display().to_string();
        let gate = site.gate().display().to_string();
        let script = "while [ ! -e $0 ]; do sleep 0.01; done; echo result well";
        let arguments = ["-n", "2", "--job", "fails", "--backend", &backend];
        let running = start(site.launch(&arguments, &["sh", "-c", script, &gate]));
        site.wait_met("fails").await?;
        let refused = run(site.command(&["checkpoint", "fails"])).await?;
        assert_eq!(refused.status.code(), Some(1), "{hook}");
        assert!(text(&refused.stderr).contains(word), "{hook}: {}", text(&refused.stderr));
        assert_eq!(sets(&site, "fails")?, Vec::<PathBuf>::new(), "{hook}");
        site.release()?;
        assert_eq!(results(&running.await??)?.len(), 2, "{hook}");
        std::fs::remove_file(site.gate())?;
    }
    let refused = run(site.launch(&["-n", "2", "--backend", "/no/such/file"], &["true"])).await?;
    assert_eq!(refused.status.code(), Some(64));
    std::fs::write(&hooks, "[backend.command]\ncheckpoint = [\"/no/such/hook\"]\n")?;
    let hooks = hooks.display().to_string();
    let refused = run(site.launch(&["-n", "2", "--backend", &hooks], &["true"])).await?;
    assert_eq!(refused.status.code(), Some(64));
    assert!(text(&refused.stderr).contains("/no/such/hook"), "{}", text(&refused.stderr));
    Ok(())
}

/// Images that stay where they are would not be verified before ranks start from them.
#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_on_disks_are_refused_with_a_hook_that_would_not_run() -> Result<()> {
    let site = Site::new(2).await?;
    let hooks = site.jobs.path().join("hooks.toml");
    let backend = hooks.display().to_string();
    for (verify, code) in [("verify = [\"false\"]", 64), ("", 0)] {
        let hook = "checkpoint = [\"cp\", \"/etc/hostname\", \"{image}\"]";
        std::fs::write(&hooks, format!("[backend.command]\n{hook}\n{verify}\n"))?;
        let arguments = ["-n", "2", "--backend", &backend, "--disk-every", "1h"];
        let done = run(site.launch(&arguments, &["true"])).await?;
        let words = text(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{words}");
        let refused = words.contains("--disk-every 1h: hook verify does not run before");
        assert_eq!(refused && words.contains("use --checkpoint-every"), code == 64, "{words}");
    }
    Ok(())
}

/// The same on a kernel that belongs to its CRIU, in a guest: so pods are tested on machines too
/// whose own kernel is too new, or too old.
#[test]
fn pods_move_in_a_guest_whose_kernel_and_criu_belong_together() -> Result<()> {
    let has = |program: &str, argument| Command::new(program).arg(argument).output().is_ok();
    if !has("criu", "--version") || !has("mpicc.mpich", "-v") {
        skip("the guest needs Debian's criu and libmpich-dev (apt-get install both)");
        return Ok(());
    }
    let work = tempfile::tempdir()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stencil.c");
    let program = work.path().join("stencil");
    let done =
        Command::new("mpicc.mpich").arg("-O2").arg(source).arg("-o").arg(&program).status()?;
    ensure!(done.success(), "mpicc.mpich failed");
    let ours = hardware().join("criu");
    let mut guest = Guest::new(&ours.join("scenario.sh"))?
        .modules(&[
            "veth",
            "bridge",
            "tun",
            "nf_tables",
            "nft_ct",
            "unix_diag",
            "tcp_diag",
            "udp_diag",
        ])
        .modules(&["inet_diag", "af_packet_diag", "netlink_diag"])
        .switch_root()
        .file(&ours.join("agent.toml"), "/etc/ftb/agent.toml")
        .program(&program)
        .program(site::LAUNCH)
        .program(env!("CARGO_BIN_EXE_ftb-nla"))
        .program(binary("ftb-agent", "ftb-agent")?);
    for name in ["criu", "ip", "nft", "nsenter"] {
        guest = guest.program(name);
    }
    if guest.run(GUEST_DEADLINE_S)?.is_none() {
        return Ok(());
    }
    let read = |name: &str| std::fs::read_to_string(guest.share().join(name));
    let results = |text: String| {
        let mut lines: Vec<_> =
            text.lines().filter(|line| line.starts_with("result ")).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let undisturbed = results(read("undisturbed")?);
    assert_eq!(undisturbed.len(), 2);
    assert_eq!(results(read("moved")?), undisturbed, "{}", read("moved.log")?);
    assert_eq!(results(read("again")?), undisturbed, "{}", read("again.log")?);
    assert_eq!(read("moved.log")?.matches("moved from").count(), 2, "{}", read("moved.log")?);
    let early = read("moved.log")?.matches("copy memory beforehand").count();
    assert_eq!(early, 2, "{}", read("moved.log")?);
    assert!(read("status")?.contains("copied while they work"), "{}", read("status")?);
    assert_eq!(read("bridges")?, "", "the jobs' bridges are gone");
    assert!(!read("processes")?.contains("ftb-nla"), "{}", read("processes")?);
    Ok(())
}
