//! How soon all ranks know of a death: by the log ring of FMI (each rank has links to those 1, 2, 4
//! and so on behind it, and closes its own when one of them closes), and by the launcher, which
//! says what follows too. See `launcher/job/fmi.md`. `cargo bench -p ftb-launcher --bench notify`
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "report/mod.rs"]
mod report;
#[path = "running/mod.rs"]
mod running;

use ftb_tests::cluster::Plan;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use running::{Hosts, Program, Running, Step, be_a_rank, wall_ns};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

const RUNS: usize = 5;
const SIZES: [usize; 3] = [8, 64, 256];
/// The first argument of a member of a ring.
const MEMBER: &str = "ring-member";

fn main() {
    be_a_rank();
    let words: Vec<String> = std::env::args().collect();
    if words.get(1).map(String::as_str) == Some(MEMBER) {
        return member(Path::new(&words[2]), words[3].parse().unwrap(), words[4].parse().unwrap());
    }
    let only = std::env::var("FTB_BENCH_ONLY").unwrap_or_default();
    let sizes = SIZES.into_iter().filter(|size| only.is_empty() || only == size.to_string());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let mut table = report::Table::new("launcher notify");
    for size in sizes {
        let (mut times, mut hops) = (Vec::new(), 0);
        for run in 0..RUNS {
            let (time, most) = ring_death(size, run * (size - 1) / (RUNS - 1));
            times.push(time);
            hops = hops.max(most);
        }
        table.times(&format!("{size} ranks know of a death, log ring, {hops} hops"), times, None);
        let (known, computing) = runtime.block_on(launcher_deaths(size));
        table.times(&format!("{size} ranks know of a death, launcher"), known, None);
        table.times(&format!("{size} ranks compute again, launcher"), computing, None);
    }
    table.write();
}

/// The distances of the links of a rank.
fn distances(size: usize) -> impl Iterator<Item = usize> {
    (0..).map(|k| 1 << k).take_while(move |distance| *distance < size)
}

/// A rank of the ring: it says when it is linked, and when and after how many hops it knows of a
/// death.
fn member(folder: &Path, rank: usize, size: usize) {
    let path = |rank: usize| folder.join(rank.to_string());
    let listener = UnixListener::bind(path(rank)).unwrap();
    println!("listens");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let to = |distance| UnixStream::connect(path((rank + distance) % size)).unwrap();
    let mut links: Vec<UnixStream> = distances(size).map(to).collect();
    links.extend(distances(size).map(|_| listener.accept().unwrap().0));
    println!("linked");
    let heard = {
        let mut wait: Vec<PollFd<'_>> =
            links.iter().map(|link| PollFd::new(link.as_fd(), PollFlags::POLLIN)).collect();
        poll(&mut wait, PollTimeout::NONE).unwrap();
        wait.iter().position(|fd| fd.any() == Some(true)).unwrap()
    };
    let now = wall_ns();
    // A link that ends without a word is that of the dead rank.
    let mut hops = [0];
    let before = match links[heard].read(&mut hops) {
        Ok(1) => hops[0],
        _ => 0,
    };
    for link in &mut links {
        // The other may have ended it already.
        let _ = link.write_all(&[before + 1]);
    }
    drop(links);
    println!("{now} {}", before + 1);
}

struct Member {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Member {
    fn start(folder: &Path, rank: usize, size: usize) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg(MEMBER).arg(folder).args([rank.to_string(), size.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Self { child, input, output: BufReader::new(output) }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

/// Kills a rank of a ring; until when the last one knows, and after how many hops.
fn ring_death(size: usize, victim: usize) -> (Duration, u8) {
    let folder = tempfile::tempdir().unwrap();
    let mut ring: Vec<Member> =
        (0..size).map(|rank| Member::start(folder.path(), rank, size)).collect();
    ring.iter_mut().for_each(|member| assert_eq!(member.line(), "listens"));
    ring.iter_mut().for_each(|member| member.input.write_all(b"\n").unwrap());
    ring.iter_mut().for_each(|member| assert_eq!(member.line(), "linked"));
    let pid = Pid::from_raw(i32::try_from(ring[victim].child.id()).unwrap());
    let begin = wall_ns();
    kill(pid, Signal::SIGKILL).unwrap();
    let (mut last, mut hops) = (begin, 0);
    for (rank, mut member) in ring.into_iter().enumerate() {
        if rank != victim {
            let line = member.line();
            let (when, after) = line.split_once(' ').unwrap();
            last = last.max(when.parse().unwrap());
            hops = hops.max(after.parse().unwrap());
        }
        member.child.wait().unwrap();
    }
    (Duration::from_nanos(last - begin), hops)
}

/// Kills ranks of a job; until when all others were called back, and until all compute again.
async fn launcher_deaths(size: usize) -> (Vec<Duration>, Vec<Duration>) {
    let notices = tempfile::tempdir().unwrap();
    let cluster = Plan::new(4, 4).start().await.unwrap();
    let options = ["--hosts", "node[01-04]", "--checkpoint-every", "never"];
    let options = [&options[..], &["--memory", "xor:4", "--memory-every", "2s"]].concat();
    let (folder, step) = (notices.path(), Step::Sleep(Duration::from_millis(20)));
    let program = Program { ballast_mib: 0, step, steps: None, notices: Some(folder.to_owned()) };
    let mut running = Running::start(&cluster, size, &options, &program, Hosts::This).await;
    let (mut known, mut computing) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        running.protected().await;
        let victim = run * (size - 1) / (RUNS - 1);
        let pid = running.rank_pid(victim);
        let begin = wall_ns();
        kill(pid, Signal::SIGKILL).unwrap();
        running.resumed().await;
        computing.push(Duration::from_nanos(wall_ns() - begin));
        running.closed("rollback").await;
        let others = (0..size).filter(|rank| *rank != victim);
        let when = others.map(|rank| {
            let bytes = std::fs::read(folder.join(rank.to_string())).unwrap();
            u64::from_le_bytes(bytes.try_into().unwrap())
        });
        let last = when.max().unwrap();
        assert!(last > begin, "a rank was not called back");
        known.push(Duration::from_nanos(last - begin));
    }
    running.end();
    (known, computing)
}
