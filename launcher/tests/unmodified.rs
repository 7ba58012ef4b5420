//! Programs that know nothing of the launcher: a fault never harms them, what cannot be done with
//! them is refused at once, and a host that can make pods chooses them by itself. And faults that
//! find no spare.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use ftb_tests::cluster::wait_for;
use nix::unistd::gethostname;
use site::fixture::{Fixture, compiled, criu, results};
use site::{Site, nothing_left, result, run, text};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Output};

/// A launched job whose output goes to files, so that a test can wait for its lines.
struct Launched {
    child: Child,
    printed: PathBuf,
    reported: PathBuf,
}

impl Launched {
    fn start(site: &Site, mut command: Command) -> Result<Self> {
        let (printed, reported) =
            (site.jobs.path().join("printed"), site.jobs.path().join("reported"));
        let child =
            command.stdout(File::create(&printed)?).stderr(File::create(&reported)?).spawn()?;
        Ok(Self { child, printed, reported })
    }

    fn reported(&self) -> Result<String> {
        Ok(std::fs::read_to_string(&self.reported)?)
    }

    async fn has_reported(&self, words: &str) -> Result<()> {
        let what = format!("the launcher to say {words:?}");
        let waited = wait_for(&what, async || Ok(self.reported()?.contains(words).then_some(())));
        waited.await.with_context(|| self.reported().unwrap_or_default())
    }

    async fn output(self) -> Result<Output> {
        let Self { mut child, printed, reported } = self;
        let status = tokio::task::spawn_blocking(move || child.wait()).await??;
        Ok(Output { status, stdout: std::fs::read(printed)?, stderr: std::fs::read(reported)? })
    }
}

/// A fan of that node fails.
async fn fan_fails(site: &Site, node: &str) -> Result<()> {
    let client = ftb_client::Client::builder("test").agent(site.cluster.socket(0)).build()?;
    let event = ftb_client::event("ftb.ipmi", "FTB_IPMI_FANFAIL")?.tag("node", node).build();
    client.publish(event)?.confirmed().await?;
    Ok(())
}

/// An impossible request is refused at once, with the reason and the solution.
async fn is_refused(site: &Site, request: &[&str]) -> Result<()> {
    let output = run(site.command(request)).await?;
    let reported = text(&output.stderr);
    ensure!(output.status.code() == Some(1), "{request:?}: {:?} {reported}", output.status);
    ensure!(
        reported.contains("not joined ftb-job")
            && reported.contains("run with --backend criu, or link ftb-job"),
        "{request:?}: {reported}"
    );
    Ok(())
}

/// Two ranks on two nodes and a spare.
const NODES: [&str; 6] = ["-n", "2", "--hosts", "node[01-02]", "--spares", "node03"];

/// The job says what cannot be done with it, refuses it, and outlives a fault.
async fn outlives_a_fault(site: &Site, job: &'static str, program: &[&str]) -> Result<Output> {
    let every = ["--backend", "app", "--job", job, "--checkpoint-every", "1s"];
    let job_of = site.launch(&[&NODES[..], &every].concat(), program);
    let launched = Launched::start(site, job_of)?;
    launched.has_reported("these programs can neither be saved nor moved").await?;
    fan_fails(site, "node02").await?;
    launched
        .has_reported("node02 stay (fan failed) (fault 1: FTB_IPMI_FANFAIL (HARDWARE) on node02")
        .await?;
    is_refused(site, &["migrate", job, "node01"]).await?;
    is_refused(site, &["checkpoint", job]).await?;
    is_refused(site, &["drain", job, "node01"]).await?;
    let status = site.ask(&["status", job, "--json"]).await?;
    let status: serde_json::Value = serde_json::from_str(&status)?;
    let why = status["immovable"].as_str().unwrap_or_default();
    assert!(why.contains("not joined ftb-job") && status["doing"] == "", "{status}");
    assert_eq!(status["pending"][0]["node"], "node02", "{status}");
    site.release()?;
    let output = launched.output().await?;
    let reported = text(&output.stderr);
    for word in ["is cancelled", "the job is saved", "a checkpoint waits already"] {
        assert!(!reported.contains(word), "{reported}");
    }
    nothing_left(&format!("FTB_JOB_ID={job}\0")).await?;
    Ok(output)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_fan_costs_an_unmodified_mpi_program_nothing() -> Result<()> {
    let site = Site::new(3).await?;
    let Some(program) = compiled(&site, "stencil", include_str!("stencil.c"))? else {
        return Ok(());
    };
    let gate = site.gate().display().to_string();
    let words = [&program[..], "60", "32", "64", &gate];
    site.release()?;
    let alone = run(site.launch(&["-n", "2", "-q"], &words)).await?;
    std::fs::remove_file(site.gate())?;
    let output = outlives_a_fault(&site, "mpi", &words).await?;
    assert!(text(&output.stderr).contains("they speak PMI only"), "{}", text(&output.stderr));
    assert_eq!(results(&output)?, results(&alone)?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_fan_costs_a_plain_program_nothing() -> Result<()> {
    let site = Site::new(3).await?;
    let gate = site.gate().display().to_string();
    let script = "while [ ! -e $0 ]; do sleep 0.1; done; echo result $FTB_RANK";
    let output = outlives_a_fault(&site, "plain", &["sh", "-c", script, &gate]).await?;
    assert_eq!(results(&output)?, ["result 0", "result 1"]);
    Ok(())
}

fn backend_of(site: &Site, job: &str) -> Result<String> {
    let file = std::fs::read(site.jobs.path().join(job).join("job.json"))?;
    let file: serde_json::Value = serde_json::from_slice(&file)?;
    let backend = &file["specs"]["node01"]["backend"];
    let table = backend.as_object().and_then(|table| table.keys().next().cloned());
    table.or_else(|| backend.as_str().map(str::to_owned)).context("no backend")
}

/// Without `--backend` an unmodified program is put into pods, and so it leaves a node whose fan
/// has failed.
#[tokio::test(flavor = "multi_thread")]
async fn an_unmodified_program_gets_pods_by_itself_and_leaves_a_failing_node() -> Result<()> {
    let site = Site::new(3).await?;
    let Some(stencil) = Fixture::stencil(&site)? else { return Ok(()) };
    let criu = criu()?.context("CRIU was there")?;
    site.release()?;
    let alone = run(site.launch(&["-n", "2", "-q"], &stencil.words())).await?;
    std::fs::remove_file(site.gate())?;
    let arguments = [&NODES[..], &["--job", "auto"]].concat();
    let mut command = site.launch(&arguments, &stencil.words());
    command.env("FTB_CRIU", criu);
    let launched = Launched::start(&site, command)?;
    launched.has_reported("backend criu: ").await?;
    site.wait_met("auto").await?;
    assert_eq!(backend_of(&site, "auto")?, "criu");
    fan_fails(&site, "node02").await?;
    launched
        .has_reported("on node02, rule fan failed): ranks 1 moved from node02 to node03")
        .await?;
    site.release()?;
    assert_eq!(results(&launched.output().await?)?, results(&alone)?);
    nothing_left("FTB_JOB_ID=auto\0").await
}

/// Without any option a job on several nodes is saved soon; on one node it is a plain command.
#[tokio::test(flavor = "multi_thread")]
async fn an_unmodified_program_on_two_nodes_is_saved_by_default_and_a_command_on_one_is_not()
-> Result<()> {
    let site = Site::new(2).await?;
    let Some(stencil) = Fixture::stencil(&site)? else { return Ok(()) };
    let criu = criu()?.context("CRIU was there")?;
    let nodes = site.local_nodes();
    let one = nodes.split(',').next().unwrap_or_default();
    for (job, nodes, backend) in [("two", &nodes[..], "criu"), ("one", one, "app")] {
        let mut command = site.command(&["run", "-n", "2", "--job", job, "--local-nodes", nodes]);
        command.arg("--").args(stencil.words()).env("FTB_CRIU", &criu);
        let launched = Launched::start(&site, command)?;
        site.wait_met(job).await?;
        assert_eq!(backend_of(&site, job)?, backend);
        if job == "two" {
            let saved = |status: &serde_json::Value| status["sets"][0].is_string();
            site.wait_status(job, "the first set", saved).await?;
        }
        site.release()?;
        let output = launched.output().await?;
        results(&output)?;
        let reported = text(&output.stderr);
        assert_eq!(reported.contains("ftb-launch: backend "), job == "two", "{reported}");
        std::fs::remove_file(site.gate())?;
        nothing_left(&format!("FTB_JOB_ID={job}\0")).await?;
    }
    Ok(())
}

/// A program that links ftb-job saves itself, and a job without spares and checkpoints needs no
/// pods.
#[tokio::test(flavor = "multi_thread")]
async fn pods_are_not_chosen_for_ftb_job_nor_where_they_serve_nothing() -> Result<()> {
    let site = Site::new(3).await?;
    let count = site.count.display().to_string();
    let gate = site.gate().display().to_string();
    let script = format!("exec {count} 20 0 {gate}");
    for (job, program) in
        [("direct", vec![count.as_str(), "20", "0", &gate]), ("wrapped", vec!["sh", "-c", &script])]
    {
        let arguments = [&NODES[..], &["--job", job]].concat();
        let launched = Launched::start(&site, site.launch(&arguments, &program))?;
        site.wait_met(job).await?;
        assert_eq!(backend_of(&site, job)?, "app");
        let moved = site.ask(&["migrate", job, "node01"]).await?;
        assert_eq!(moved, "ranks 0 moved from node01 to node03");
        site.release()?;
        let output = launched.output().await?;
        assert!(!text(&output.stderr).contains("neither"), "{}", text(&output.stderr));
        result(&output)?;
        std::fs::remove_file(site.gate())?;
    }
    let script = "while [ ! -e $0 ]; do sleep 0.1; done";
    let program = ["sh", "-c", script, &gate];
    let launched = Launched::start(&site, site.launch(&["-n", "2", "--job", "bare"], &program))?;
    let file = site.jobs.path().join("bare/job.json");
    wait_for("the job", async || Ok(file.exists().then_some(()))).await?;
    assert_eq!(backend_of(&site, "bare")?, "app");
    site.release()?;
    assert!(launched.output().await?.status.success());
    Ok(())
}

/// The spare is drained; the fault waits for it, and status shows at once what each node is.
#[tokio::test(flavor = "multi_thread")]
async fn a_fault_that_finds_no_spare_is_acted_on_when_one_appears() -> Result<()> {
    let site = Site::new(3).await?;
    let expected = site.undisturbed().await?;
    let launched = Launched::start(&site, site.counting("waits", &["--spares", "node03"]))?;
    site.wait_met("waits").await?;
    site.ask(&["drain", "waits", "node03"]).await?;
    fan_fails(&site, "node02").await?;
    launched.has_reported("they move when there is a spare (fault 1: FTB_IPMI_FANFAIL").await?;
    launched.has_reported("on node02, rule fan failed): set ").await?;
    site.ask(&["usable", "waits", "node03"]).await?;
    launched
        .has_reported("on node02, rule fan failed): ranks 2,3 moved from node02 to node03")
        .await?;
    site.ask(&["usable", "waits", "node02"]).await?;
    let status = site.ask(&["status", "waits", "--json"]).await?;
    let status: serde_json::Value = serde_json::from_str(&status)?;
    assert_eq!(status["nodes"]["node02"]["state"], "MIGRATION_SPARE", "{status}");
    assert_eq!(status["pending"], serde_json::json!([]), "{status}");
    site.release()?;
    assert_eq!(result(&launched.output().await?)?, expected);
    nothing_left("FTB_JOB_ID=waits\0").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_runs_on_this_host_where_no_host_is_named() -> Result<()> {
    let site = Site::without_examples(1).await?;
    let name = gethostname()?.to_string_lossy().into_owned();
    for options in [&[][..], &["--start", "local"]] {
        let mut command = site.command(&[&["run", "-n", "2"], options].concat());
        command.args(["--", "hostname"]).env("FTB_AGENT_SOCKET", site.cluster.socket(0));
        let output = run(command).await?;
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), format!("{name}\n{name}\n"));
    }
    let far = run(site.command(&["run", "-n", "2", "--spares", "node02", "--", "true"])).await?;
    assert_eq!(far.status.code(), Some(64), "{}", text(&far.stderr));
    Ok(())
}
