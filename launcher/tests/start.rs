//! The start of ranks: placement, environment, directory, input, signals, PMI-2, and refusals
//! before anything starts.

#![allow(clippy::unwrap_used, missing_docs)]

mod site;

use anyhow::{Context as _, Result, ensure};
use ftb_tests::cluster::{PATIENCE, wait_for};
use ftb_tests::skip::skip;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use site::{Site, nothing_left, run, start, text};
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

fn sorted(output: &Output) -> Result<Vec<String>> {
    ensure!(output.status.success(), "{:?} {}", output.status, text(&output.stderr));
    let mut lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    Ok(lines)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rank_file_an_environment_and_a_directory_are_what_the_ranks_find() -> Result<()> {
    let site = Site::new(3).await?;
    let file = site.jobs.path().join("ranks");
    std::fs::write(&file, "rank 0,2 = node01\n")?;
    let path = file.display().to_string();
    let script = "echo $RANK $FTB_NODE $LOCAL_RANK/$LOCAL_WORLD_SIZE of $WORLD_SIZE \
                  $MASTER_ADDR:$MASTER_PORT $COLOUR $(pwd)";
    let arguments = ["-n", "4", "--rank-file", &path, "--env", "COLOUR=blue", "--cwd", "/usr"];
    let refused = run(site.launch(&arguments, &["sh", "-c", script])).await?;
    assert_eq!(refused.status.code(), Some(64));
    let reported = text(&refused.stderr);
    assert!(reported.contains("line 1") && reported.contains("0,2"), "{reported}");

    std::fs::write(&file, "rank 0=node03\nrank 1-2=node01 # two\nrank 3=node03\n")?;
    let output = run(site.launch(&arguments, &["sh", "-c", script])).await?;
    let here = "of 4 127.0.0.1:29500 blue /usr";
    let expected = [
        format!("0 node03 0/2 {here}"),
        format!("1 node01 0/2 {here}"),
        format!("2 node01 1/2 {here}"),
        format!("3 node03 1/2 {here}"),
    ];
    assert_eq!(sorted(&output)?, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn standard_input_goes_whole_to_rank_0_and_to_no_other_rank() -> Result<()> {
    let site = Site::new(2).await?;
    let mut command = site.launch(&["-n", "2"], &["sh", "-c", "echo $FTB_RANK $(cksum)"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut launcher = command.spawn()?;
    let mut stdin = launcher.stdin.take().context("no input")?;
    let data: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let sum = {
        let mut cksum =
            Command::new("cksum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        cksum.stdin.take().context("no input")?.write_all(&data)?;
        text(&cksum.wait_with_output()?.stdout).trim().to_owned()
    };
    let writer = std::thread::spawn(move || stdin.write_all(&data));
    let output = tokio::task::spawn_blocking(move || launcher.wait_with_output()).await??;
    assert!(writer.join().is_ok_and(|written| written.is_ok()));
    assert_eq!(sorted(&output)?, [format!("0 {sum}"), "1 4294967295 0".to_owned()]);

    let mut command = site.launch(&["-n", "1", "--no-stdin"], &["sh", "-c", "wc -c"]);
    let output = tokio::task::spawn_blocking(move || {
        // Endless input that no rank reads.
        let mut launcher = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = launcher.stdin.take();
        let output = launcher.wait_with_output();
        drop(stdin);
        output
    })
    .await??;
    assert_eq!(sorted(&output)?, ["0"]);
    Ok(())
}

/// The launcher looks back into the log before it starts anything. Here that is empty, and its
/// agent is not the root.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_the_first_thing_that_happens_on_a_cluster() -> Result<()> {
    let site = Site::fresh(3).await?;
    let agent = site.cluster.socket(2).display().to_string();
    let command =
        site.launch(&["-n", "2", "--agent", &agent], &["sh", "-c", "echo rank $FTB_RANK"]);
    let output = tokio::time::timeout(PATIENCE, run(command)).await;
    assert_eq!(sorted(&output.context("the job does not start")??)?, ["rank 0", "rank 1"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_reach_the_ranks_and_the_end_is_gentle_first() -> Result<()> {
    let site = Site::new(2).await?;
    let there = site.jobs.path().join("there");
    let script = format!(
        "trap 'echo user' USR1; trap 'echo bye; exit 0' TERM; touch {}.$FTB_RANK; while :; do \
         sleep 0.05; done",
        there.display()
    );
    let mut command = site.launch(&["-n", "2", "--job", "signals"], &["sh", "-c", &script]);
    let mut launcher = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let stdout = std::io::BufReader::new(launcher.stdout.take().context("no output")?);
    let mut lines = std::io::BufRead::lines(stdout);
    let pid = Pid::from_raw(i32::try_from(launcher.id())?);
    for rank in 0..2 {
        let path = format!("{}.{rank}", there.display());
        wait_for("the ranks", async || Ok(std::fs::exists(&path)?.then_some(()))).await?;
    }
    kill(pid, Signal::SIGUSR1)?;
    for _ in 0..2 {
        assert_eq!(lines.next().context("no line")??, "user");
    }
    kill(pid, Signal::SIGTERM)?;
    for _ in 0..2 {
        assert_eq!(lines.next().context("no line")??, "bye");
    }
    let output = tokio::task::spawn_blocking(move || launcher.wait_with_output()).await??;
    assert_eq!(output.status.code(), Some(128 + 15), "{}", text(&output.stderr));
    nothing_left("FTB_JOB_ID=signals").await
}

/// Compiles a C program of ours; `None`, and a line that says so, where that cannot be.
fn compiled(site: &Site, name: &str, source: &str, libraries: &[&str]) -> Result<Option<String>> {
    let path = site.jobs.path().join(format!("{name}.c"));
    std::fs::write(&path, source)?;
    let program = site.jobs.path().join(name);
    let mut command = Command::new("cc");
    command.arg(&path).arg("-o").arg(&program).args(libraries);
    let output = command.output().context("cc")?;
    ensure!(output.status.success(), "{}", text(&output.stderr));
    Ok(Some(program.display().to_string()))
}

async fn ranks_greet(site: &Site, program: &str) -> Result<()> {
    let output = run(site.launch(&["-n", "5", "--ppn", "3"], &[program])).await?;
    let expected: Vec<String> = (0..5).map(|rank| format!("rank {rank} of 5")).collect();
    assert_eq!(sorted(&output)?, expected);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pmi2_client_meets_the_others() -> Result<()> {
    if Command::new("cc").arg("--version").output().is_err() {
        skip("there is no C compiler (apt-get install gcc libc6-dev)");
        return Ok(());
    }
    let site = Site::new(2).await?;
    let program = compiled(&site, "pmi2", include_str!("pmi2.c"), &[])?.context("no program")?;
    ranks_greet(&site, &program).await?;
    if !std::path::Path::new("/usr/include/slurm/pmi2.h").exists() {
        skip("Slurm's library is not installed (apt-get install libpmi2-0-dev)");
        return Ok(());
    }
    let program = compiled(&site, "pmi2lib", include_str!("pmi2lib.c"), &["-lpmi2"])?;
    ranks_greet(&site, &program.context("no program")?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_placed_or_started_is_refused() -> Result<()> {
    let site = Site::new(2).await?;
    let refused = async |arguments: Vec<&str>, word: &str| -> Result<()> {
        let mut command = site.command(&["run", "-n", "2"]);
        command.env_remove("SLURM_JOB_ID").args(&arguments).args(["--", "true"]);
        let output = run(command).await?;
        let error = text(&output.stderr);
        ensure!(output.status.code() == Some(64), "{arguments:?}: {:?} {error}", output.status);
        ensure!(error.contains(word) && error.lines().count() == 1, "{arguments:?}: {error}");
        Ok(())
    };
    let local = site.local_nodes();
    let file = site.jobs.path().join("ranks");
    let ranks = file.display().to_string();
    for (text, word) in [
        ("rank 0=node01\nrank 1=node09\n", "line 2: host node09 is not among"),
        ("rank 0=node01\nrank 0=node02\n", "line 2: rank 0 has a node already, in line 1"),
        ("rank 0=node01\nrank 1=node02\n", "line 2: host node02 is a spare"),
        ("rank 0=node01\n", "rank 1 has no node"),
    ] {
        std::fs::write(&file, text)?;
        let mut arguments = vec!["--local-nodes", &local, "--rank-file", &ranks];
        arguments.extend(["--spares", "node02"]);
        refused(arguments, word).await?;
    }
    refused(vec!["--local-nodes", &local, "--rank-file", "/no/such/file"], "/no/such/file").await?;
    refused(vec!["--spares", "node02"], "where is it to run").await?;
    refused(vec!["--start", "slurm"], "no Slurm allocation").await?;
    refused(vec!["--start", "local", "--hosts", "node01"], "--local-nodes").await?;
    refused(vec!["--local-nodes", ""], "there is no host to run on").await?;
    let nodes = site.jobs.path().join("nodes.toml");
    let named = nodes.display().to_string();
    for (text, word) in [
        ("", "line 1: missing field `node`"),
        ("node = []\n", "there is no host to run on"),
        (
            "[[node]]\nname = \"node01\"\n[[node]]\nname = \"NODE01\"\n",
            "node node01 is named twice",
        ),
        ("[[node]]\nname = \"../x\"\n", "line 2: node name \"../x\""),
    ] {
        std::fs::write(&nodes, text)?;
        refused(vec!["--nodes", &named], word).await?;
    }
    refused(vec!["--hosts", ""], "--hosts: host list, column 1: empty").await?;
    refused(vec!["--local-nodes", &local, "--start", "ssh"], "on this host").await?;
    refused(vec!["--hosts", "node[1-", "--start", "ssh"], "--hosts").await?;
    refused(vec!["--hosts", "node1", "--fanout", "0"], "--fanout 0").await?;
    refused(vec!["--hosts", "node1", "--ssh-command", " "], "--ssh-command").await?;
    refused(vec!["--hosts", "node1,node2", "--spares", "node2"], "spare and a primary").await?;
    let deadlines = site.jobs.path().join("deadlines.toml");
    std::fs::write(&deadlines, "silence = \"11s\"\n")?;
    let deadlines = deadlines.display().to_string();
    refused(vec!["--local-nodes", &local, "--deadlines", &deadlines], "at least 12s").await?;
    let policy = site.jobs.path().join("policy.toml");
    std::fs::write(
        &policy,
        "hold_down = \"1m\"\nbreaker = { actions = 3, within = \"1m\" }\n[[rule]]\nname = \
         \"never\"\n\
         space = \"ftb.ipmi\"\nevents = []\naction = \"migrate\"\n",
    )?;
    let policy = policy.display().to_string();
    refused(
        vec!["--local-nodes", &local, "--policy", &policy],
        "line 3: rule \"never\" can never match",
    )
    .await?;
    Ok(())
}

/// A backend that is not there, or does not work on this kernel: one line with the way out, and
/// nothing has run.
#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_cannot_work_here_is_refused() -> Result<()> {
    let site = Site::new(2).await?;
    let dir = site.cluster.dir();
    let old = dir.join("old-criu");
    std::fs::write(&old, "#!/bin/sh\necho 'Error: the vDSO is new to me' >&2\nexit 1\n")?;
    std::fs::set_permissions(&old, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let (ran, file) = (dir.join("ran"), dir.join("backend.toml"));
    let refused = async |criu: &std::path::Path, backend: &str, words: &[&str]| -> Result<()> {
        let program = ran.display().to_string();
        let mut command = site.launch(&["-n", "2", "--backend", backend], &["touch", &program]);
        let output = run({
            command.env("FTB_CRIU", criu);
            command
        })
        .await?;
        let reported = text(&output.stderr);
        ensure!(output.status.code() == Some(64), "{backend}: {:?} {reported}", output.status);
        ensure!(reported.lines().count() == 1, "{backend}: {reported}");
        for word in words {
            ensure!(reported.contains(word), "{backend}: no {word:?} in {reported}");
        }
        ensure!(!ran.exists() && std::fs::read_dir(site.jobs.path())?.next().is_none(), "it ran");
        Ok(())
    };
    let nowhere = std::path::Path::new("/no/such/criu");
    let way_out = "deploy/dev/install-criu.sh";
    refused(nowhere, "criu", &["backend criu needs /no/such/criu", way_out]).await?;
    let path = file.display().to_string();
    let line = format!("backend file {path} line 3: ");
    std::fs::write(&file, "[backend.criu]\nprefix = 24\nprogram = \"/no/such/criu\"\n")?;
    refused(nowhere, &path, &[&line, "needs /no/such/criu", way_out]).await?;
    std::fs::write(&file, "[backend.command]\n\ncheckpoint = [\"/no/such/hook\"]\n")?;
    refused(nowhere, &path, &[&line, "needs /no/such/hook"]).await?;
    refused(&old, "criu", &["does not work on this kernel", "vDSO is new", way_out]).await
}

/// At a terminal a phase that takes its time shows itself, and is wiped off before the next line.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_phase_is_seen_at_a_terminal_and_not_in_a_file() -> Result<()> {
    let site = Site::new(2).await?;
    if Command::new("script").arg("--version").output().is_err() {
        skip("script(1) is not installed (apt-get install bsdutils)");
        return Ok(());
    }
    let dead = site.jobs.path().join("none.sock");
    let nodes = format!("{},node09={}", site.local_nodes(), dead.display());
    let deadlines = site.jobs.path().join("deadlines.toml");
    std::fs::write(&deadlines, "gather = \"3s\"\n")?;
    let deadlines = deadlines.display().to_string();
    let words = ["run", "-n", "2", "--local-nodes", &nodes, "--hosts", "node[01-02]"];
    let more = ["--spares", "node09", "--deadlines", &deadlines, "--", "true"];
    let all: Vec<&str> = words.into_iter().chain(more).collect();

    let output = start(site.command(&all)).await??;
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains('\r'), "{}", text(&output.stderr));

    let line: Vec<String> =
        [site::LAUNCH].iter().chain(&all).map(|word| format!("'{word}'")).collect();
    let mut command = site.command(&[]);
    let typescript = site.jobs.path().join("typescript");
    let line = line.join(" ");
    let mut at_terminal = Command::new("script");
    at_terminal.args(["-qec", &line]).arg(&typescript).stdin(Stdio::null());
    at_terminal.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
    command.stdin(Stdio::null());
    let output = run(at_terminal).await?;
    let shown = text(&std::fs::read(&typescript)?);
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains("start 1: gather 2/3"), "{shown}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_cannot_be_read_is_not_called_missing() -> Result<()> {
    let site = Site::new(1).await?;
    let job = site.jobs.path().join("torn");
    std::fs::create_dir(&job)?;
    std::fs::write(job.join("state.json"), "{\"jl\":")?;
    let (torn, none) = (site.command(&["status", "torn"]), site.command(&["status", "none"]));
    let (torn, none) = (run(torn).await?, run(none).await?);
    let reported = (text(&torn.stderr), text(&none.stderr));
    assert_eq!((torn.status.code(), none.status.code()), (Some(64), Some(64)), "{reported:?}");
    assert!(
        reported.0.contains("torn/state.json") && !reported.0.contains("no job"),
        "{reported:?}"
    );
    assert!(reported.1.contains("there is no job none"), "{reported:?}");
    Ok(())
}
