//! Clients that come and go by the hundred, cleanly or by kill -9; clients that never read;
//! connections that never speak: other clients do not notice, and nothing that was confirmed is
//! lost.

use crate::{plan, turn};
use ftb_tests::cluster::{Cluster, Plan, binary, wait_for};
use ftb_tests::load::{Load, LoadPlan, Reader, Source, ensure_perfect, own_space};
use ftb_tests::reported::Reported;
use ftb_tests::skip::skip;
use ftb_tests::unix::connect;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines};
use tokio::net::{TcpStream, UnixStream};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinSet;

/// Clients that come and go, and how many are there at a time.
const CLIENTS: u32 = 200;
const AT_A_TIME: usize = 8;
/// Events of a client that ends cleanly.
const EACH: u64 = 50;
/// Events that pass through the same agent meanwhile.
const PASSING: u64 = 100_000;

/// One process of `ftb-test-client`, and what it says.
struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(program: &Path, socket: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(program)
            .arg(socket)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    async fn line(&mut self) -> Option<String> {
        self.lines.next_line().await.unwrap()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }
}

/// Publishes and ends, every second one by kill -9 in the middle of it; gives how many of its
/// events were confirmed as far as it could say.
async fn come_and_go(program: &Path, socket: &Path, space: &str, number: u32) -> u64 {
    let (number_text, each) = (number.to_string(), EACH.to_string());
    let cleanly = number.is_multiple_of(2);
    let mut arguments = vec![space, "publish", &number_text];
    if cleanly {
        arguments.extend(["--count", &each]);
    }
    let mut process = Process::start(program, socket, &arguments);
    let mut confirmed = 0;
    if !cleanly {
        confirmed = process.line().await.expect("a client that says something").parse().unwrap();
        process.child.start_kill().unwrap();
    }
    while let Some(line) = process.line().await {
        confirmed = line.parse().unwrap();
    }
    let status = process.child.wait().await.unwrap();
    assert_eq!(status.success(), cleanly, "client {number}: {status}");
    confirmed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_come_and_go_cost_no_event() {
    let _turn = turn().await;
    let mut cluster = plan(2).start().await.unwrap();
    cluster.wait_wanted().await.unwrap();
    let program = binary("ftb-tests", "ftb-test-client").unwrap();
    let socket = cluster.socket(1).to_owned();
    let load = LoadPlan {
        publishers: vec![socket.clone(); 4],
        per_s: 2_500,
        subscribers: vec![socket.clone(), cluster.socket(0).to_owned()],
    };
    let load = Load::start(load).await.unwrap();
    let space = own_space();
    let readers = [
        Reader::start(&socket, &space).await.unwrap(),
        Reader::start(cluster.socket(0), &space).await.unwrap(),
    ];
    let mut confirmed = vec![0; CLIENTS as usize];
    let mut running = JoinSet::new();
    for number in 0..CLIENTS {
        if running.len() == AT_A_TIME {
            let (number, count): (u32, u64) = running.join_next().await.unwrap().unwrap();
            confirmed[number as usize] = count;
        }
        let (program, socket, space) = (program.clone(), socket.clone(), space.clone());
        running
            .spawn(async move { (number, come_and_go(&program, &socket, &space, number).await) });
    }
    for (number, count) in running.join_all().await {
        confirmed[number as usize] = count;
    }
    cluster.must(load.wait_total(PASSING).await).await;
    ensure_perfect(&load.finish().await.unwrap()).unwrap();
    let gone = wait_for("the agent to have forgotten them", async || {
        Ok((cluster.status(1).await?.clients.len() == 1).then_some(()))
    });
    gone.await.unwrap();
    // What comes behind this event was published after everything of those who are gone.
    let mut last = Source::new(&socket, &space, CLIENTS).unwrap();
    let _ = last.publish().await.unwrap();
    last.close().await.unwrap();
    for reader in readers {
        reader.wait("the last event", |ledger| ledger.last(CLIENTS) == 1).await.unwrap();
        let ledger = reader.ledger();
        // Who was killed may have got more through than was confirmed to it, but not less.
        let came: Vec<u64> = (0..=CLIENTS).map(|number| ledger.last(number)).collect();
        for (number, (came, confirmed)) in came.iter().zip(&confirmed).enumerate() {
            assert!(came >= confirmed, "client {number}: {confirmed} confirmed, {came} came");
            assert!(number % 2 == 1 || *came == EACH, "client {number}: {came}");
        }
        let faults = ledger.faults(&came);
        assert!(faults.is_none(), "{faults:?}");
        reader.end().await;
    }
}

/// Connections that never speak.
const SILENT: usize = 5_000;
/// Of these, over TCP.
const SILENT_TCP: usize = 500;
/// Files that this process and the agent need for them.
const FILES: u64 = 8_192;
/// Large events that a client does not read, and their size.
const UNREAD: usize = 200;
const UNREAD_BYTES: usize = 60_000;

async fn silent_connections(cluster: &Cluster, rank: usize) -> Vec<Silent> {
    let mut silent = Vec::new();
    let address = cluster.address(rank).unwrap();
    for number in 0..SILENT {
        silent.push(match number.is_multiple_of(SILENT / SILENT_TCP) {
            true => Silent::Tcp(TcpStream::connect(&address).await.unwrap()),
            false => Silent::Unix(connect(cluster.socket(rank)).await.unwrap()),
        });
    }
    silent
}

enum Silent {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Silent {
    async fn closed(&mut self) {
        // Closed is closed, whether it comes as an end or as a reset.
        let mut end = Vec::new();
        let _ = match self {
            Self::Tcp(stream) => stream.read_to_end(&mut end).await,
            Self::Unix(stream) => stream.read_to_end(&mut end).await,
        };
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_never_read_or_never_write_disturb_no_other() {
    let _turn = turn().await;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    if hard < FILES {
        skip(&format!("this process may open {hard} files, {FILES} are needed"));
        return;
    }
    setrlimit(Resource::RLIMIT_NOFILE, FILES, hard).unwrap();
    let mut cluster = Cluster::start(2, 2).await.unwrap();
    cluster.wait_wanted().await.unwrap();
    let program = binary("ftb-tests", "ftb-test-client").unwrap();
    let socket = cluster.socket(1).to_owned();
    // A client that subscribes, and is stopped before it reads anything.
    let unread = own_space();
    let count = UNREAD.to_string();
    let mut deaf = Process::start(&program, &socket, &[&unread, "read", &count]);
    assert_eq!(deaf.line().await.as_deref(), Some("active"));
    deaf.signal(Signal::SIGSTOP);

    let load = LoadPlan {
        publishers: vec![socket.clone(), socket.clone(), cluster.socket(0).to_owned()],
        per_s: 1_000,
        subscribers: vec![socket.clone(), socket.clone(), cluster.socket(0).to_owned()],
    };
    let load = Load::start(load).await.unwrap();
    let silent = silent_connections(&cluster, 1).await;
    // More than any buffer on the way holds.
    let loud = ftb_client::Client::builder("loud").agent(&socket).build().unwrap();
    for _ in 0..UNREAD {
        let event = ftb_client::event(&unread, "FTB_LOUD").unwrap();
        let _ = loud.publish_wait(event.payload(vec![0; UNREAD_BYTES])).await.unwrap();
    }
    loud.close(ftb_tests::cluster::PATIENCE).await.unwrap();
    cluster.must(load.wait_flow(1_000, |_| true, |_| true).await).await;
    // A client that comes now is served, and what waits too long is let go.
    let late = Load::start(LoadPlan {
        publishers: vec![socket.clone()],
        per_s: 1_000,
        subscribers: vec![socket.clone()],
    });
    let late = late.await.unwrap();
    late.wait_flow(100, |_| true, |_| true).await.unwrap();
    ensure_perfect(&late.finish().await.unwrap()).unwrap();
    for mut connection in silent {
        connection.closed().await;
    }
    let counters = cluster.status(1).await.unwrap().counters;
    let ended = counters.get("connections_evicted").unwrap_or(&0)
        + counters.get("hello_late").unwrap_or(&0);
    assert_eq!(ended, SILENT as u64, "{counters:?}");

    let account = load.finish().await.unwrap();
    ensure_perfect(&account).unwrap();
    for client in account.publishers.iter().chain(&account.subscribers) {
        assert_eq!(client.attachments, 1, "{client:?}");
    }
    // The one that did not read gets what was kept for it, and a report of the rest.
    deaf.signal(Signal::SIGCONT);
    let line = deaf.line().await.expect("it reads on");
    let counts: Vec<usize> = line.split(' ').map(|count| count.parse().unwrap()).collect();
    assert_eq!(counts.iter().sum::<usize>(), UNREAD, "{line}");
    assert!(counts.iter().all(|count| *count > 0), "seen and reported: {line}");
}

/// Clients beyond the configured number get a refusal with name and number; those before them stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_beyond_the_limit_are_rejected_and_do_no_harm() {
    const MOST: usize = 40;
    // Further places are kept for publishers such as root.
    const PLACES: usize = MOST + ftb_transport::limiter::PUBLISHERS_SPARE;
    let _turn = turn().await;
    let extra = format!("[limits]\nclients_max = {MOST}\n");
    let mut cluster = Plan::new(1, 2).extra(&extra).start().await.unwrap();
    cluster.wait_wanted().await.unwrap();
    let socket = cluster.socket(0).to_owned();
    let load = LoadPlan {
        publishers: vec![socket.clone()],
        per_s: 500,
        subscribers: vec![socket.clone()],
    };
    let load = Load::start(load).await.unwrap();
    let reported = Reported::listen(&socket).await.unwrap();
    let mut more = Vec::new();
    for _ in 0..PLACES + MOST {
        more.push(ftb_client::Client::builder("more").agent(&socket).build().unwrap());
    }
    let full = wait_for("the agent to be full", async || {
        let attached = more.iter().filter(|client| client.connected()).count();
        let refused = cluster.status(0).await?.counters.get("clients_refused").copied();
        // The publisher, the subscriber and the listener are there too.
        Ok((attached == PLACES - 3 && refused.unwrap_or(0) > 0).then_some(()))
    });
    full.await.unwrap();
    let outside = more.iter().find(|client| !client.connected()).unwrap();
    let why = outside.wait_connected(std::time::Duration::ZERO).await.unwrap_err().to_string();
    assert!(why.contains("limit") && why.contains(&MOST.to_string()), "{why}");
    cluster.must(load.wait_flow(100, |_| true, |_| true).await).await;
    let account = load.finish().await.unwrap();
    ensure_perfect(&account).unwrap();
    assert_eq!(account.publishers[0].attachments, 1);
    drop(reported);
}
