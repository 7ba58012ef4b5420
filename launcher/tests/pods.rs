//! Ranks in pods, beyond what every backend must do (`backend.rs`): their standard input, and the
//! whole way from a failed fan to a moved address.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result};
use ftb_tests::bmc::{self, SimulatedBmc};
use ftb_tests::cluster::{PATIENCE, binary, wait_for};
use ftb_tests::skip::skip;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use site::bridge::Bridge;
use site::fixture::{Fixture, compiled, criu_file, results};
use site::{Site, nothing_left, run, start, text};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// More than all pipes, sockets and windows on the way to a rank hold.
const BULK_BYTES: usize = 16_000_000;

/// A process that ends with the value, however the test ends.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing to do then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Standard input goes into the pod and moves with rank 0, as does its end. A rank that does not
/// read holds the writer, not the pod.
#[tokio::test(flavor = "multi_thread")]
async fn standard_input_goes_into_a_pod_and_moves_with_rank_0() -> Result<()> {
    let site = Site::new(4).await?;
    let Some(backend) = criu_file(&site, "")? else { return Ok(()) };
    let gate = site.gate();
    let script = "read -r line; echo $line on $FTB_NODE; \
                  while [ ! -e $0 ]; do sleep 0.2; done; wc -c; echo over";
    let arguments = ["-n", "2", "--job", "fed", "--backend", &backend];
    let nodes = ["--hosts", "node[01-02]", "--spares", "node[03-04]"];
    let mut command = site.launch(
        &[&arguments[..], &nodes].concat(),
        &["sh", "-c", script, &gate.display().to_string()],
    );
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut launcher = Process(command.spawn()?);
    let mut stdin = launcher.0.stdin.take().context("no input")?;
    let mut lines = BufReader::new(launcher.0.stdout.take().context("no output")?).lines();
    site.wait_met("fed").await?;
    stdin.write_all(b"one\n")?;
    let mut first = [lines.next().context("no line")??, lines.next().context("no line")??];
    first.sort();
    assert_eq!(first, ["on node02", "one on node01"]);
    let moved = site.ask(&["migrate", "fed", "node01"]).await?;
    assert_eq!(moved, "ranks 0 moved from node01 to node03");
    // It waits for the rank, which waits for the gate. The pod does not: it can be saved.
    let bytes = vec![b'x'; BULK_BYTES];
    let writer = std::thread::spawn(move || stdin.write_all(&bytes));
    site.checkpoint("fed").await?;
    assert!(!writer.is_finished(), "no reader has read it");
    // Input on the way moves with the rank.
    let moved = site.ask(&["migrate", "fed", "node03"]).await?;
    assert_eq!(moved, "ranks 0 moved from node03 to node04");
    site.release()?;
    assert!(writer.join().is_ok_and(|written| written.is_ok()));
    let mut last: Vec<String> = lines.collect::<std::io::Result<_>>()?;
    last.sort();
    assert_eq!(last, ["0", &BULK_BYTES.to_string(), "over", "over"]);
    assert!(launcher.0.wait()?.success());
    nothing_left("FTB_JOB_ID=fed\0").await
}

/// A program that looks for its network while its pod is cut off, or has just come back, finds it
/// with a carrier: UCX would else not count it, and fail in `MPI_Init`.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_cut_off_keeps_its_carrier() -> Result<()> {
    let site = Site::new(2).await?;
    let Some(backend) = criu_file(&site, "")? else { return Ok(()) };
    // Nothing but what the shell does itself, so that it looks as often as can be.
    let script = "n=0; while [ ! -e $0 ]; do read -r c </sys/class/net/eth0/carrier; \
                  [ \"$c\" = 1 ] || n=$((n + 1)); done; echo result $n without";
    let arguments = ["-n", "1", "--job", "carrier", "--backend", &backend, "--spares", "node02"];
    let gate = site.gate().display().to_string();
    let job = start(site.launch(&arguments, &["sh", "-c", script, &gate]));
    site.wait_met("carrier").await?;
    for _ in 0..3 {
        site.checkpoint("carrier").await?;
    }
    let status = site.ask(&["status", "carrier", "--json"]).await?;
    let status: serde_json::Value = serde_json::from_str(&status)?;
    assert!(status["precopy"].is_boolean(), "whether the kernel can is known: {status}");
    site.ask(&["migrate", "carrier", "node01"]).await?;
    site.release()?;
    assert_eq!(results(&job.await??)?, ["result 0 without"]);
    nothing_left("FTB_JOB_ID=carrier\0").await
}

/// Stopped in the middle of a `vfork`, a process could never be saved: its child, stopped too,
/// would not let it go.
#[tokio::test(flavor = "multi_thread")]
async fn a_rank_that_starts_programs_is_saved_and_moves() -> Result<()> {
    let site = Site::new(2).await?;
    let Some(backend) = criu_file(&site, "")? else { return Ok(()) };
    let Some(program) = compiled(&site, "vfork", include_str!("vfork.c"))? else { return Ok(()) };
    let gate = site.gate().display().to_string();
    let arguments = ["-n", "1", "--job", "forks", "--backend", &backend, "--spares", "node02"];
    let job = start(site.launch(&arguments, &[&program, &gate]));
    site.wait_met("forks").await?;
    for _ in 0..3 {
        site.checkpoint("forks").await?;
    }
    site.ask(&["migrate", "forks", "node01"]).await?;
    site.release()?;
    assert_eq!(results(&job.await??)?, ["result children all collected"]);
    nothing_left("FTB_JOB_ID=forks\0").await
}

/// Two ranks in each of two pods come out of `MPI_Finalize`, also when a pod has moved meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn pods_of_several_ranks_come_to_their_end() -> Result<()> {
    let site = Site::new(3).await?;
    let Some(stencil) = Fixture::stencil(&site)? else { return Ok(()) };
    let stencil = Fixture { ranks: 4, ..stencil };
    site.release()?;
    let undisturbed = results(&run(stencil.command(&site, &["-q"])).await?)?;
    assert_eq!(undisturbed.len(), 4);
    std::fs::remove_file(site.gate())?;
    let nodes = ["--job", "four", "--hosts", "node[01-02]", "--spares", "node03"];
    let job = start(stencil.command(&site, &nodes));
    site.wait_met("four").await?;
    let moved = site.ask(&["migrate", "four", "node02"]).await?;
    assert_eq!(moved, "ranks 2,3 moved from node02 to node03");
    site.release()?;
    assert_eq!(results(&job.await??)?, undisturbed);
    nothing_left("FTB_JOB_ID=four\0").await
}

/// Runs of a job that is saved all the time, and most of them where the machine is so busy that
/// no checkpoint falls into any.
const ROUNDS: usize = 4;
const ROUNDS_MAX: usize = 16;

/// A rank that ends resets its connections. No reset is lost while another pod is off its bridge
/// for a checkpoint, and no rank is kept from its part of a barrier by one: a job that is saved all
/// the time comes to its end, and to its result.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_are_saved_every_second_come_to_their_end() -> Result<()> {
    let site = Site::new(3).await?;
    let Some(stencil) = Fixture::stencil(&site)? else { return Ok(()) };
    site.release()?;
    let gate = site.gate().display().to_string();
    // About two seconds of work, so that checkpoints fall into its beginning and its end.
    let words: Vec<String> =
        [&stencil.program[0], "150", "8", "64", &gate, "10000"].map(Into::into).into();
    for ranks in [2, 3] {
        let stencil = Fixture { ranks, program: words.clone(), ..stencil.clone() };
        let undisturbed = results(&run(stencil.command(&site, &["-q"])).await?)?;
        let mut saved = 0;
        for round in 0..ROUNDS_MAX {
            if round >= ROUNDS && saved > 0 {
                break;
            }
            let job = format!("often-{ranks}-{round}");
            let often = ["--job", &job, "--checkpoint-every", "1s"];
            let running = start(stencil.command(&site, &often));
            let ended = tokio::time::timeout(PATIENCE, running).await;
            let output = ended.with_context(|| format!("{job} does not end"))???;
            assert_eq!(results(&output)?, undisturbed, "{job}");
            saved += text(&output.stderr).matches(" is committed").count();
        }
        assert!(saved > 0, "no checkpoint was made in any run of {ranks} ranks");
    }
    Ok(())
}

/// The sets of a job that are in the store.
fn sets(site: &Site, job: &str) -> Result<BTreeSet<String>> {
    let entries = std::fs::read_dir(site.jobs.path().join(job).join("sets"))?;
    let whole = entries.filter_map(Result::ok).filter(|set| set.path().join("set.json").exists());
    Ok(whole.filter_map(|set| set.file_name().into_string().ok()).collect())
}

/// A looping rank looks like a computing one. So its sets are kept, but none replaces the last set
/// from before.
#[tokio::test(flavor = "multi_thread")]
async fn sets_of_a_job_that_hangs_do_not_replace_the_last_good_one() -> Result<()> {
    let site = Site::new(2).await?;
    let Some(backend) = criu_file(&site, "")? else { return Ok(()) };
    let gate = site.gate().display().to_string();
    let script = "work() { i=0; while [ $i -lt 5000 ]; do i=$((i + 1)); done; echo tick; }; \
                  while [ ! -e $0 ]; do work; done; \
                  [ $FTB_RANK = 1 ] || while :; do work; done; \
                  echo loops; while :; do :; done";
    let arguments = ["-n", "2", "--job", "hang", "--backend", &backend];
    let mut command = site.launch(&arguments, &["sh", "-c", script, &gate]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut launcher = Process(command.spawn()?);
    let lines = BufReader::new(launcher.0.stdout.take().context("no output")?).lines();
    let (to_test, mut looping) = tokio::sync::mpsc::unbounded_channel();
    // Reads all of it: a rank that cannot write would make no progress.
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok).filter(|line| line == "loops") {
            let _ = to_test.send(line);
        }
    });
    site.wait_met("hang").await?;
    for _ in 0..2 {
        site.checkpoint("hang").await?;
    }
    let good = sets(&site, "hang")?;
    site.release()?;
    let heard = tokio::time::timeout(PATIENCE, looping.recv()).await?;
    heard.context("rank 1 does not come to its loop")?;
    for _ in 0..4 {
        site.checkpoint("hang").await?;
    }
    let kept = sets(&site, "hang")?;
    assert_eq!(kept.len(), 3, "the newest two, and a good one: {kept:?}");
    assert_eq!(kept.intersection(&good).count(), 1, "{kept:?} of {good:?}");
    site.ask(&["kill", "hang"]).await?;
    let mut reported = String::new();
    launcher.0.stderr.take().context("no messages")?.read_to_string(&mut reported)?;
    assert!(reported.contains("ranks 1 have made no progress since set "), "{reported}");
    let _ = launcher.0.wait()?;
    nothing_left("FTB_JOB_ID=hang\0").await
}

/// Its kernel repeats what a peer has not got yet. So a pod stays when its ranks have ended well,
/// until the job is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_stays_until_the_job_is_over() -> Result<()> {
    let site = Site::new(2).await?;
    let bridge = Bridge::new("stay")?;
    let Some(backend) = criu_file(&site, &bridge.backend("10.196.0.0", 16))? else { return Ok(()) };
    let gate = site.gate().display().to_string();
    let script =
        "[ $FTB_RANK = 0 ] || while [ ! -e $0 ]; do sleep 0.1; done; echo result $FTB_RANK";
    let arguments = ["-n", "2", "--job", "stay", "--backend", &backend];
    let job = start(site.launch(&arguments, &["sh", "-c", script, &gate]));
    // A request before the launcher listens is not answered.
    site.wait_met("stay").await?;
    // The launcher knows that it has ended when there is nothing left to save.
    wait_for("rank 0 to have ended", async || {
        let asked = run(site.command(&["checkpoint", "stay"])).await?;
        Ok(text(&asked.stderr).contains("have ended already").then_some(()))
    })
    .await?;
    // That of rank 1 may still be on its way.
    wait_for("both pods", async || Ok((bridge.ports()? == 2).then_some(()))).await?;
    site.release()?;
    assert_eq!(results(&job.await??)?, ["result 0", "result 1"]);
    nothing_left("FTB_JOB_ID=stay\0").await?;
    assert_eq!(bridge.ports()?, 0);
    Ok(())
}

/// Two jobs of one name on one host, each of another cluster: neither sees anything of the other,
/// and both move.
#[tokio::test(flavor = "multi_thread")]
async fn two_jobs_of_one_name_do_not_meet() -> Result<()> {
    let sites = [Site::new(3).await?, Site::new(3).await?];
    let Some(stencil) = Fixture::stencil(&sites[0])? else { return Ok(()) };
    sites[0].release()?;
    let undisturbed = results(&run(stencil.command(&sites[0], &["-q"])).await?)?;
    std::fs::remove_file(sites[0].gate())?;
    let bridge = Bridge::new("two")?;
    let mut jobs = Vec::new();
    // The first two have bridges of their own, the others share one.
    for (name, more) in [("twin", String::new()), ("shared", bridge.backend("10.196.0.0", 16))] {
        for site in &sites {
            let backend = criu_file(site, &more)?.context("CRIU was there")?;
            let gate = sites[0].gate().display().to_string();
            let mut words = stencil.words();
            let last = words.len() - 1;
            words[last] = &gate;
            let arguments = ["-n", "2", "--job", name, "--backend", &backend];
            let nodes = ["--hosts", "node[01-02]", "--spares", "node03"];
            jobs.push(start(site.launch(&[&arguments[..], &nodes].concat(), &words)));
            site.wait_met(name).await?;
        }
        for site in &sites {
            let moved = site.ask(&["migrate", name, "node02"]).await?;
            assert_eq!(moved, "ranks 1 moved from node02 to node03");
        }
    }
    // In one cluster the second of a name is refused, also where its directory is another.
    let elsewhere = tempfile::tempdir()?;
    let mut second = sites[0].launch(&["-n", "1", "--job", "twin"], &["true"]);
    second.env("FTB_JOBS_DIR", elsewhere.path());
    for (mut command, word) in [
        (second, "a job twin of yours runs already, its launcher on "),
        (sites[0].launch(&["-n", "1", "--job", "twin"], &["true"]), "of this name already"),
    ] {
        let output = run({
            command.stdin(Stdio::null());
            command
        })
        .await?;
        let reported = text(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{reported}");
        assert!(reported.contains(word) && reported.contains("--job"), "{reported}");
    }
    sites[0].release()?;
    for job in jobs {
        assert_eq!(results(&job.await??)?, undisturbed);
    }
    nothing_left("FTB_JOB_ID=twin\0").await?;
    nothing_left("FTB_JOB_ID=shared\0").await?;
    assert_eq!(bridge.ports()?, 0, "the bridge is not the jobs'");
    Ok(())
}

/// A pod starts its ranks after the answer; a failure is reported all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_is_not_there_ends_the_job_in_a_pod_too() -> Result<()> {
    let site = Site::new(1).await?;
    let Some(backend) = criu_file(&site, "")? else { return Ok(()) };
    let output =
        run(site.launch(&["-n", "2", "--backend", &backend], &["/no/such/program"])).await?;
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(127), "{reported}");
    assert!(reported.contains("/no/such/program"), "{reported}");
    Ok(())
}

/// A network with addresses for one job: the second job on that bridge is refused, and the first
/// goes on.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_another_job_uses_is_not_taken() -> Result<()> {
    let site = Site::new(2).await?;
    let bridge = Bridge::new("one")?;
    let Some(backend) = criu_file(&site, &bridge.backend("10.196.0.0", 30))? else { return Ok(()) };
    let gate = site.gate().display().to_string();
    let script = "while [ ! -e $0 ]; do sleep 0.1; done; echo result well";
    let arguments = ["-n", "2", "--backend", &backend, "--job"];
    let job = |name: &'static str| {
        site.launch(&[&arguments[..], &[name]].concat(), &["sh", "-c", script, &gate])
    };
    let first = start(job("first"));
    site.wait_met("first").await?;
    let output = run(job("second")).await?;
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(127), "{reported}");
    assert!(
        reported.contains("is taken on bridge ") && reported.contains("another network"),
        "{reported}"
    );
    site.release()?;
    assert_eq!(results(&first.await??)?.len(), 2);
    nothing_left("FTB_JOB_ID=second\0").await?;
    nothing_left("FTB_JOB_ID=first\0").await
}

/// `ftb-ipmi` for one node.
fn watch(site: &Site, rank: usize, bmc: &SimulatedBmc) -> Result<Process> {
    let config = site.cluster.dir().join("ipmi.toml");
    let text = format!(
        "interval = \"250ms\"\n[agent]\nsocket = {:?}\n[[target]]\nbmc = \"{}\"\nnode = \"{}\"\n\
         user = \"{}\"\npassword = \"{}\"\n",
        site.cluster.socket(rank),
        bmc.address(),
        site.cluster.host(rank),
        bmc::USER,
        bmc::PASSWORD,
    );
    bmc::write_private(&config, &text)?;
    let mut command = Command::new(binary("ftb-ipmi", "ftb-ipmi")?);
    command.arg("--config").arg(config).stdin(Stdio::null()).stdout(Stdio::null());
    Ok(Process(command.spawn()?))
}

/// The pause process of the pod of a launch agent: a child of its child.
fn pause_of(nla: Pid) -> Result<Pid> {
    let parent = |pid: Pid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        parent.and_then(|parent| parent.trim().parse().ok()).map(Pid::from_raw)
    };
    let is_pause = |pid: &Pid| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(1) == Some(b"pause")
            && parent(*pid).and_then(parent) == Some(nla)
    };
    let entries = std::fs::read_dir("/proc")?.filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.map(Pid::from_raw).find(is_pause).context("no pod")
}

/// What a socket that waits for an acknowledgement does, an open file does here: it keeps the
/// network of a pod whose launch agent was killed. The pod is off its bridge all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_pod_is_off_the_network_although_its_network_lives() -> Result<()> {
    let site = Site::new(3).await?;
    let Some(backend) = criu_file(&site, "")? else { return Ok(()) };
    let gate = site.gate().display().to_string();
    let script = "while [ ! -e $0 ]; do sleep 0.1; done";
    let hosts = ["-n", "2", "--hosts", "node[01-02]", "--spares", "node03"];
    for killed in ["ftb-nla", "pause", "both"] {
        let arguments = ["--job", killed, "--backend", &backend];
        let words = ["sh", "-c", script, &gate];
        let job = start(site.launch(&[&hosts[..], &arguments].concat(), &words));
        site.wait_met(killed).await?;
        let file = std::fs::read(site.jobs.path().join(killed).join("job.json"))?;
        let file: serde_json::Value = serde_json::from_slice(&file)?;
        let bridge = file["specs"]["node02"]["pod"]["bridge"].as_str().context("no bridge")?;
        let ports = format!("/sys/class/net/{bridge}/brif");
        let links = site.wait("both pods to be on the bridge", async || {
            let ports = std::fs::read_dir(&ports).into_iter().flatten().filter_map(Result::ok);
            let links: Vec<_> = ports.map(|port| port.file_name()).collect();
            Ok((links.len() == 2).then_some(links))
        });
        let links = links.await?;
        let nla = site.nla_of(killed, "node02")?;
        let pause = pause_of(nla)?;
        let network = std::fs::File::open(format!("/proc/{pause}/ns/net"))?;
        for (pid, name) in [(pause, "pause"), (nla, "ftb-nla")] {
            if [name, "both"].contains(&killed) {
                kill(pid, Signal::SIGKILL)?;
            }
        }
        // Without a set the job ends, and with it the other pod.
        job.await??;
        let links = || links.iter().map(|link| PathBuf::from("/sys/class/net").join(link));
        wait_for("the links to be gone", async || {
            Ok((!links().any(|link| link.exists())).then_some(()))
        })
        .await?;
        drop(network);
        nothing_left(&format!("FTB_JOB_ID={killed}\0")).await?;
    }
    Ok(())
}

/// What a hanging restore does.
const HANGING: &str = "sleep 1013";

/// Whether a process of this host, in whatever pod, does that.
fn has_hanging() -> bool {
    let words: Vec<u8> = HANGING.bytes().map(|byte| if byte == b' ' { 0 } else { byte }).collect();
    let all = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    all.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .any(|line| line.strip_suffix(&[0]) == Some(&words))
}

/// A CRIU whose restore hangs while `hangs` is there.
fn hanging_criu(site: &Site, backend: &str, hangs: &Path) -> Result<()> {
    let text = std::fs::read_to_string(backend)?;
    let of_file: toml::Table = text.parse()?;
    let real = of_file["backend"]["criu"]["program"].as_str().context("no program")?;
    let program = site.cluster.dir().join("criu.sh");
    let hangs = hangs.display();
    let script = format!(
        "#!/bin/sh\n\
         case \" $* \" in *\" restore \"*) if [ -e {hangs} ]; then exec {HANGING}; fi;; esac\n\
         exec {real} \"$@\"\n"
    );
    std::fs::write(&program, script)?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    std::fs::write(backend, text.replace(real, &program.display().to_string()))?;
    Ok(())
}

/// The job starts again while a pod is being restored. The restore is given up at once: its node
/// counts as lost no more than the set as unusable.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_a_new_start_replaces_is_given_up_at_once() -> Result<()> {
    let site = Site::new(4).await?;
    let Some(backend) = criu_file(&site, "")? else { return Ok(()) };
    let hangs = site.cluster.dir().join("hangs");
    hanging_criu(&site, &backend, &hangs)?;
    let gate = site.gate().display().to_string();
    let script = "while [ ! -e $0 ]; do sleep 0.1; done; echo result done";
    let hosts = ["-n", "2", "--hosts", "node[01-02]", "--spares", "node[03-04]"];
    let arguments = ["--job", "replaced", "--backend", &backend];
    let job = [&hosts[..], &arguments].concat();
    let job = start(site.launch(&job, &["sh", "-c", script, &gate]));
    site.wait_met("replaced").await?;
    site.checkpoint("replaced").await?;
    std::fs::write(&hangs, "")?;
    let migrate = start(site.command(&["migrate", "replaced", "node02"]));
    site.wait("a restore that hangs", async || Ok(has_hanging().then_some(()))).await?;
    std::fs::remove_file(&hangs)?;
    kill(site.nla_of("replaced", "node01")?, Signal::SIGKILL)?;
    site.wait("the restore to be given up", async || Ok((!has_hanging()).then_some(()))).await?;
    site.release()?;
    let output = job.await??;
    assert_eq!(results(&output)?, ["result done", "result done"]);
    let reported = text(&output.stderr);
    assert!(reported.contains("node node01 is lost"), "{reported}");
    for wrong in ["node node03 is lost", "is put aside"] {
        assert!(!reported.contains(wrong), "{reported}");
    }
    drop(migrate.await??);
    nothing_left("FTB_JOB_ID=replaced\0").await
}

/// A BMC says that a fan stands still; the pod of that node moves to the spare with its address and
/// its connections. When the fan turns again, the node becomes a spare. The unmodified program has
/// the result of an undisturbed run.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_fan_moves_a_pod_and_a_mended_one_makes_a_spare() -> Result<()> {
    if Command::new("ipmi_sim").arg("-?").output().is_err() {
        skip("ipmi_sim is not installed (apt-get install openipmi)");
        return Ok(());
    }
    let site = Site::new(3).await?;
    let Some(stencil) = Fixture::stencil(&site)? else { return Ok(()) };
    site.release()?;
    let undisturbed = results(&run(stencil.command(&site, &["-q"])).await?)?;
    std::fs::remove_file(site.gate())?;
    let bmc = SimulatedBmc::start()?;
    let _watcher = watch(&site, 1, &bmc)?;
    let nodes = ["--job", "fan", "--hosts", "node[01-02]", "--spares", "node03"];
    let job = start(stencil.command(&site, &nodes));
    site.wait_met("fan").await?;
    bmc.set("cpu1_fan", 0)?;
    let state = |status: &serde_json::Value, node: &str| status["nodes"][node]["state"].clone();
    site.wait_status("fan", "the pod to have moved", |status| {
        state(status, "node02") == "MIGRATION_INACTIVE"
            && status["nodes"]["node03"]["ranks"] == serde_json::json!([1])
    })
    .await?;
    bmc.set("cpu1_fan", 2244)?;
    site.wait_spare("fan", "node02").await?;
    site.release()?;
    let output = job.await??;
    let reported = text(&output.stderr);
    assert_eq!(results(&output)?, undisturbed, "{reported}");
    assert_eq!(reported.matches("ranks 1 moved from node02 to node03").count(), 1, "{reported}");
    assert!(reported.contains("fan failed"), "the policy's reason: {reported}");
    nothing_left("FTB_JOB_ID=fan\0").await
}
