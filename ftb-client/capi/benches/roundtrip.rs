//! What a C program sees, beside a Rust program: `cargo bench -p ftb-capi`.
//!
//! **Round trips**, in turns with the same agent. A C program publishes from one thread and is
//! called back on another. Beside it Rust's blocking client in the same shape, with a thread that
//! reads, and as its users use it, where the thread that publishes also reads: that saves a wake-up
//! between them.
//!
//! **FTB_Publish from one thread and from eight**, with the agent stopped, so that nothing but
//! FTB_Publish and the library's own thread runs and the buffer takes all, and with the agent
//! running. Where threads hold each other up, the processor time of a call grows, and threads wait.

#[path = "../tests/programs/support.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod support;

use anyhow::{Context as _, Result, ensure};
use ftb_client::{ClientConfig, Delivery, Start, blocking, event};
use ftb_tests::cluster::{Cluster, PATIENCE};
use nix::sys::signal::Signal;
use std::path::Path;
use std::sync::mpsc;
use std::time::Instant;
use support::{Link, Talk, Workshop, run};

const TRIPS: usize = 3000;
/// How often all take their turn.
const TURNS: usize = 5;
/// Events of one client with the agent stopped: what its buffer takes, and no more.
const STOPPED_EVENTS: usize = 8000;
/// And with the agent running.
const RUNNING_EVENTS: usize = 40_000;
/// Clients, one after the other.
const CLIENTS: usize = 20;

struct Trips {
    median_us: f64,
    p99_us: f64,
}

impl Trips {
    fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        Self { median_us: times[times.len() / 2], p99_us: times[times.len() * 99 / 100] }
    }
}

/// A blocking client and what it subscribes to.
fn rust_client(
    cluster: &Cluster,
) -> Result<(blocking::BlockingClient, blocking::BlockingSubscription)> {
    let config = ClientConfig { socket: cluster.socket(0).into(), ..ClientConfig::new("bench") };
    let client = blocking::BlockingClient::connect(config)?;
    let filter = "event_space=ftb.bench.rust, event_name=PING";
    let subscription = client.subscribe(filter, Start::Now, PATIENCE)?;
    Ok((client, subscription))
}

fn publish(client: &blocking::BlockingClient) -> Result<()> {
    let payload = "a payload of some forty bytes, as usual.";
    let _ = client.publish(event("ftb.bench.rust", "PING")?.payload(payload))?;
    Ok(())
}

fn read(subscription: &mut blocking::BlockingSubscription) -> Result<()> {
    let next = subscription.next(PATIENCE)?.context("the subscription has ended")?;
    ensure!(matches!(next, Delivery::Event(_)), "a gap");
    Ok(())
}

/// The thread that publishes also reads.
fn rust_in_one_thread(cluster: &Cluster) -> Result<Trips> {
    let (client, mut subscription) = rust_client(cluster)?;
    let mut times = Vec::with_capacity(TRIPS);
    for _ in 0..TRIPS {
        let begin = Instant::now();
        publish(&client)?;
        read(&mut subscription)?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok(Trips::of(times))
}

/// Another thread reads, and tells the one that publishes, as in C.
fn rust_in_two_threads(cluster: &Cluster) -> Result<Trips> {
    let (client, mut subscription) = rust_client(cluster)?;
    let (tell, reported) = mpsc::channel();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || -> Result<()> {
            for _ in 0..TRIPS {
                read(&mut subscription)?;
                tell.send(Instant::now())?;
            }
            Ok(())
        });
        let mut times = Vec::with_capacity(TRIPS);
        for _ in 0..TRIPS {
            let begin = Instant::now();
            publish(&client)?;
            let Ok(arrived) = reported.recv() else { break };
            times.push(arrived.duration_since(begin).as_secs_f64() * 1e6);
        }
        reader.join().map_err(|_| anyhow::anyhow!("the reader panicked"))??;
        Ok(Trips::of(times))
    })
}

fn c_round_trips(cluster: &Cluster, workshop: &Workshop, program: &Path) -> Result<Trips> {
    let mut command = workshop.command(program, cluster.socket(0));
    let said = run(command.args(["trip", &TRIPS.to_string()]))?;
    let [median_us, p99_us] = numbers(&said)?;
    Ok(Trips { median_us, p99_us })
}

fn numbers<const N: usize>(said: &str) -> Result<[f64; N]> {
    let numbers: Result<Vec<f64>, _> = said.split_whitespace().map(str::parse).collect();
    numbers?.try_into().map_err(|_| anyhow::anyhow!("unexpected: {said}"))
}

fn bulk(
    cluster: &Cluster,
    workshop: &Workshop,
    program: &Path,
    threads: usize,
    stopped: bool,
) -> Result<()> {
    let events = if stopped { STOPPED_EVENTS } else { RUNNING_EVENTS };
    let mut command = workshop.command(program, cluster.socket(0));
    let numbers_of = [threads, events, CLIENTS].map(|number| number.to_string());
    let mut talk = Talk::start(command.arg("publish").args(numbers_of))?;
    talk.read_to("ready")?;
    if stopped {
        cluster.signal(0, Signal::SIGSTOP)?;
    }
    let measured = talk.go_on().and_then(|()| talk.read_to("done"));
    if stopped {
        cluster.signal(0, Signal::SIGCONT)?;
    }
    measured?;
    let said = talk.said.replace("ready", "").replace("done", "");
    let [calls, wall_us, publish_us, library_us, waits, preemptions] = numbers(&said)?;
    talk.go_on()?;
    talk.finish()?;
    println!(
        "agent {:7}  {threads} thread{}  {:8.0} calls/s  processor time of a call {:5.2} us (and \
         {:5.2} us of the library's thread)  waits of 1000 calls {:6.2}  preempted {:6.2}",
        if stopped { "stopped" } else { "running" },
        if threads == 1 { " " } else { "s" },
        calls / wall_us * 1e6,
        publish_us / calls,
        library_us / calls,
        waits / calls * 1e3,
        preemptions / calls * 1e3,
    );
    Ok(())
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cluster = runtime.block_on(Cluster::start(1, 2))?;
    let workshop = Workshop::new()?;
    let program = workshop.compile("bench", Link::Shared)?;
    for _ in 0..TURNS {
        for (who, trips) in [
            ("Rust, one thread ", rust_in_one_thread(&cluster)?),
            ("Rust, two threads", rust_in_two_threads(&cluster)?),
            ("C                ", c_round_trips(&cluster, &workshop, &program)?),
        ] {
            println!("round trip  {who}  {:6.1} us  p99 {:6.1} us", trips.median_us, trips.p99_us);
        }
    }
    for stopped in [true, false] {
        for threads in [1, 8, 1, 8] {
            bulk(&cluster, &workshop, &program, threads, stopped)?;
        }
    }
    Ok(())
}
