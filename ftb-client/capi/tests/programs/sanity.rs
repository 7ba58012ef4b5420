//! The same programs under tools that see what goes wrong silently, with random arguments, and from
//! many threads.

use crate::support::{Link, Workshop, run, run_loud};
use anyhow::{Result, ensure};
use ftb_tests::cluster::Cluster;
use ftb_tests::skip::skip;
use std::path::{Path, PathBuf};
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
async fn many_threads_get_every_event_once() -> Result<()> {
    let cluster = Cluster::start(1, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile("threads", Link::Shared)?;
    let mut command = workshop.command(&program, cluster.socket(0));
    assert_eq!(run(command.arg("400"))?, "every event came once\n");
    Ok(())
}

/// ThreadSanitizer sees the program's own memory, locks and threads, also while the library calls
/// it back. The library is a black box to it: it does not know the locks of Rust's standard
/// library.
async fn thread_sanitizer(name: &str, link: Link, arguments: &[&Path]) -> Result<()> {
    let variable = ("TSAN_OPTIONS", "ignore_noninstrumented_modules=1");
    sanitized(name, link, arguments, "-fsanitize=thread", variable).await
}

/// AddressSanitizer sees the program from within, and all that the library takes from the heap:
/// what is freed twice, and what is lost when the program ends. Not the program that forks: the
/// locks of AddressSanitizer's heap are not free in the child when another thread held one at that
/// moment (GCC 12).
async fn address_sanitizer(name: &str, link: Link, arguments: &[&Path]) -> Result<()> {
    let variable = ("ASAN_OPTIONS", "detect_leaks=1");
    sanitized(name, link, arguments, "-fsanitize=address,undefined", variable).await
}

async fn sanitized(
    name: &str,
    link: Link,
    arguments: &[&Path],
    flag: &str,
    (variable, options): (&str, &str),
) -> Result<()> {
    let cluster = Cluster::start(1, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile_with(name, link, &[flag])?;
    let mut command = workshop.command(&program, cluster.socket(0));
    command.env(variable, options).env("FTB_QUIET", "1").args(arguments);
    let (_, reported) = run_loud(&mut command)?;
    ensure!(reported.is_empty(), "{name}: {reported}");
    Ok(())
}

/// A program under valgrind's memcheck, which sees the library from within: nothing is read that is
/// not there or was never written, nothing is freed twice, nothing is lost.
async fn memcheck(name: &str, link: Link, arguments: &[&Path]) -> Result<()> {
    if Command::new("valgrind").arg("--version").output().is_err() {
        skip("valgrind is not installed (make deps installs it)");
        return Ok(());
    }
    let cluster = Cluster::start(1, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile(name, link)?;
    let mut memcheck = MEMCHECK.to_vec();
    // What the threads held does not exist in a forked child.
    memcheck.extend((name == "forked").then_some("--leak-check=no"));
    let mut command = workshop.command_under(&memcheck, &program, cluster.socket(0));
    let (_, reported) = run_loud(command.env("FTB_QUIET", "1").args(arguments))?;
    ensure!(reported.is_empty(), "{name}: {reported}");
    Ok(())
}

/// `CHECK { TEST: PROGRAM, ARGUMENT...; ... }`: a test for each program under that tool.
macro_rules! programs {
    ($check:ident { $($test:ident: $program:literal $(, $argument:literal)*;)* }) => {$(
        #[tokio::test]
        async fn $test() -> Result<()> {
            $check($program, Link::Shared, &[$(Path::new($argument)),*]).await
        }
    )*};
}

programs! { memcheck {
    memcheck_codes: "codes";
    memcheck_grammar: "grammar";
    memcheck_deliver: "deliver";
    memcheck_callbacks: "callbacks";
    memcheck_queue: "queue";
    memcheck_gaps: "gaps";
    memcheck_limits: "limits", "25";
    memcheck_schema: "schema", ".";
    memcheck_forked: "forked";
    memcheck_threads: "threads", "20";
    memcheck_fuzz: "fuzz", "1000";
} }

programs! { address_sanitizer {
    address_sanitizer_codes: "codes";
    address_sanitizer_grammar: "grammar";
    address_sanitizer_deliver: "deliver";
    address_sanitizer_callbacks: "callbacks";
    address_sanitizer_queue: "queue";
    address_sanitizer_gaps: "gaps";
    address_sanitizer_limits: "limits", "400";
    address_sanitizer_schema: "schema", ".";
    address_sanitizer_threads: "threads", "100";
    address_sanitizer_fuzz: "fuzz", "5000";
} }

programs! { thread_sanitizer {
    thread_sanitizer_deliver: "deliver";
    thread_sanitizer_callbacks: "callbacks";
    thread_sanitizer_queue: "queue";
    thread_sanitizer_gaps: "gaps";
    thread_sanitizer_threads: "threads", "100";
} }

/// The program that loads the library twice, with both copies.
async fn twice<F>(check: impl FnOnce(PathBuf, PathBuf) -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let folder = tempfile::tempdir()?;
    let library = Workshop::new()?.libraries().join("libftb.so");
    let copy = folder.path().join("copy.so");
    std::fs::copy(&library, &copy)?;
    check(library, copy).await
}

#[tokio::test]
async fn memcheck_twice() -> Result<()> {
    twice(|one, other| async move { memcheck("twice", Link::None, &[&one, &other]).await }).await
}

#[tokio::test]
async fn address_sanitizer_twice() -> Result<()> {
    twice(|one, other| async move { address_sanitizer("twice", Link::None, &[&one, &other]).await })
        .await
}
