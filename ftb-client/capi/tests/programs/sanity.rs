//! The same programs under tools that see what goes wrong silently, with random arguments, and from
//! many threads.

use crate::support::{Link, Workshop, run, run_loud};
use anyhow::{Result, ensure};
use ftb_tests::cluster::Cluster;
use std::path::Path;
use std::process::Command;

const MEMCHECK: [&str; 7] = [
    "valgrind",
    "--quiet",
    "--fair-sched=yes",
    "--error-exitcode=99",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite",
    "--show-leak-kinds=definite",
];

#[tokio::test]
async fn random_arguments_never_crash_the_caller() -> Result<()> {
    let cluster = Cluster::start(1, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile("fuzz", Link::Shared)?;
    let mut command = workshop.command(&program, cluster.socket(0));
    let (said, _) = run_loud(command.arg("20000"))?;
    assert_eq!(said, "20000 calls\n");
    Ok(())
}

#[tokio::test]
async fn random_arguments_under_address_sanitizer() -> Result<()> {
    let cluster = Cluster::start(1, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile_with("fuzz", Link::Shared, &["-fsanitize=address,undefined"])?;
    let mut command = workshop.command(&program, cluster.socket(0));
    let (said, reported) = run_loud(command.arg("5000"))?;
    assert_eq!(said, "5000 calls\n");
    ensure!(!reported.contains("Sanitizer") && !reported.contains("runtime error"), "{reported}");
    Ok(())
}

#[tokio::test]
async fn many_threads_get_every_event_once() -> Result<()> {
    let cluster = Cluster::start(1, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile("threads", Link::Shared)?;
    let mut command = workshop.command(&program, cluster.socket(0));
    assert_eq!(run(command.arg("400"))?, "every event came once\n");
    Ok(())
}

/// Sees the program's own memory, locks and threads. The library is a black box to it: it does not
/// know the locks of Rust's standard library.
#[tokio::test]
async fn many_threads_under_thread_sanitizer() -> Result<()> {
    let cluster = Cluster::start(1, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile_with("threads", Link::Shared, &["-fsanitize=thread"])?;
    let mut command = workshop.command(&program, cluster.socket(0));
    command.env("TSAN_OPTIONS", "ignore_noninstrumented_modules=1");
    assert_eq!(run(command.arg("100"))?, "every event came once\n");
    Ok(())
}

/// A program under valgrind's memcheck, which sees the library from within: nothing is read that is
/// not there or was never written, nothing is freed twice, nothing is lost.
async fn memcheck(name: &str, link: Link, arguments: &[&Path]) -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("skipped: valgrind is not installed (make deps installs it)");
        return Ok(());
    }
    let cluster = Cluster::start(1, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile(name, link)?;
    let mut memcheck = MEMCHECK.to_vec();
    // What the threads held that a forked child does not have is nobody's there.
    memcheck.extend((name == "forked").then_some("--leak-check=no"));
    let mut command = workshop.command_under(&memcheck, &program, cluster.socket(0));
    let (_, reported) = run_loud(command.env("FTB_QUIET", "1").args(arguments))?;
    ensure!(reported.is_empty(), "{name}: {reported}");
    Ok(())
}

macro_rules! under_memcheck {
    ($($test:ident: $program:literal $(, $argument:literal)*;)*) => {$(
        #[tokio::test]
        async fn $test() -> Result<()> {
            memcheck($program, Link::Shared, &[$(Path::new($argument)),*]).await
        }
    )*};
}

under_memcheck! {
    memcheck_codes: "codes";
    memcheck_grammar: "grammar";
    memcheck_deliver: "deliver";
    memcheck_callbacks: "callbacks";
    memcheck_queue: "queue";
    memcheck_limits: "limits", "25";
    memcheck_schema: "schema", ".";
    memcheck_forked: "forked";
    memcheck_threads: "threads", "20";
    memcheck_fuzz: "fuzz", "1000";
}

#[tokio::test]
async fn memcheck_twice() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let library = Workshop::new()?.libraries().join("libftb.so");
    let copy = folder.path().join("copy.so");
    std::fs::copy(&library, &copy)?;
    memcheck("twice", Link::None, &[&library, &copy]).await
}
