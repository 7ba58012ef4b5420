//! A rank whose process may open no file for a while.
#![allow(clippy::unwrap_used)]

mod harness;

use ftb_job::{Endpoint, Job};
use harness::{Ended, Harness, finish_all};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// A stranger dials meanwhile: the rank cannot accept it, and must accept connections afterwards.
#[test]
fn a_rank_accepts_again_when_it_may_open_files_again() {
    let harness = Harness::new(2);
    let again = Arc::new(Barrier::new(3));
    let program = {
        let again = Arc::clone(&again);
        move |mut job: Job| {
            // Until then there is no link.
            again.wait();
            job.barrier()?;
            job.finalize()?;
            Ok(Ended::Finished(()))
        }
    };
    let running = harness.spawn_all(|rank| format!("n{rank}"), program);
    let endpoint = Endpoint::decode(0, &harness.pmi.value("ftb-addr-0").unwrap()).unwrap();
    let (host, port) = endpoint.addresses["tcp"].rsplit_once(':').unwrap();
    let dials =
        format!("read && exec 3<>/dev/tcp/{host}/{port} && echo connected && head -c 16 <&3");
    let mut stranger = Command::new("bash")
        .args(["-c", &dials])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(stranger.stdout.take().unwrap());
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 3, hard).unwrap();
    stranger.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    // It would be accepted at once: by now that was tried.
    std::thread::sleep(Duration::from_millis(50));
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    assert_eq!(line, "connected\n");
    let mut challenge = Vec::new();
    said.read_to_end(&mut challenge).unwrap();
    assert_eq!(challenge.len(), 16, "the connection is accepted now");
    again.wait();
    finish_all(running);
    stranger.wait().unwrap();
}
