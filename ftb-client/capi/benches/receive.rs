//! What receiving an event costs a C program and a Rust program: `cargo bench -p ftb-capi --bench
//! receive`.
//!
//! In turns with the same agent, each subscriber a process of its own. A publisher publishes as
//! fast as the agent confirms. The cost is the processor time of the whole subscriber process for
//! each event, kernel included. The ratio compares medians with those of Rust's blocking `next`.

#[path = "../tests/programs/support.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod support;

use anyhow::{Context as _, Result, ensure};
use ftb_client::{ClientConfig, Deliveries, Delivery, Severity, Start, blocking, event};
use ftb_tests::cluster::{Cluster, PATIENCE};
use nix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use support::{Link, Talk, Workshop, run};

const EVENTS: usize = 100_000;
const TURNS: usize = 5;
const FILTER: &str = "event_space=ftb.bench.load";
/// First argument of this program when it is a subscriber: then how it reads, and the socket.
const SUBSCRIBER: &str = "subscriber";

/// What a subscriber has measured.
#[derive(Clone, Copy, Debug)]
struct Cost {
    received: f64,
    missing: f64,
    process_us: f64,
    wall_us: f64,
}

fn process_us() -> Result<f64> {
    let used = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    Ok(used.tv_sec() as f64 * 1e6 + used.tv_nsec() as f64 / 1e3)
}

/// Reads to the event LAST; returns how many events came and how many are missing.
fn read(subscription: &mut blocking::BlockingSubscription, in_batches: bool) -> Result<(u64, u64)> {
    let (mut received, mut missing) = (0, 0);
    loop {
        if in_batches {
            match subscription.next_batch(PATIENCE)?.context("the subscription has ended")? {
                Deliveries::Events(batch) => {
                    for event in batch.iter() {
                        if event.name() == "LAST" {
                            return Ok((received, missing));
                        }
                        received += u64::from(event.severity() == Severity::Info);
                    }
                }
                Deliveries::Gap(gap) => missing += gap.count.unwrap_or(1),
            }
        } else {
            match subscription.next(PATIENCE)?.context("the subscription has ended")? {
                Delivery::Event(event) if event.event.name.as_str() == "LAST" => {
                    return Ok((received, missing));
                }
                Delivery::Event(_) => received += 1,
                Delivery::Gap(gap) => missing += gap.count.unwrap_or(1),
            }
        }
    }
}

fn subscriber(how: &str, socket: &Path) -> Result<()> {
    let config = ClientConfig { socket: socket.into(), ..ClientConfig::new("receive") };
    let client = blocking::BlockingClient::connect(config)?;
    let mut subscription = client.subscribe(FILTER, Start::Now, PATIENCE)?;
    let (process, wall) = (process_us()?, Instant::now());
    println!("ready");
    let (received, missing) = read(&mut subscription, how == "next_batch")?;
    let (process, wall) = (process_us()? - process, wall.elapsed().as_secs_f64() * 1e6);
    println!("{received} {missing} {process:.0} {wall:.0}");
    Ok(())
}

fn publish_from_rust(cluster: &Cluster) -> Result<()> {
    let config = ClientConfig { socket: cluster.socket(0).into(), ..ClientConfig::new("load") };
    let client = blocking::BlockingClient::connect(config)?;
    let payload = "a payload of some forty bytes, as usual.";
    for name in core::iter::repeat_n("LOAD", EVENTS).chain(["LAST"]) {
        let load = event("ftb.bench.load", name)?.payload(payload);
        let _ = client.publish_wait(load, PATIENCE)??;
    }
    client.close(PATIENCE)?;
    Ok(())
}

fn measure(command: &mut Command, publish: impl FnOnce() -> Result<()>) -> Result<Cost> {
    let mut talk = Talk::start(command)?;
    talk.read_to("ready")?;
    publish()?;
    let said = talk.finish()?;
    let last = said.lines().last().context("it measured nothing")?;
    let numbers: Result<Vec<f64>, _> = last.split_whitespace().map(str::parse).collect();
    let &[received, missing, process_us, wall_us] = &numbers?[..] else {
        anyhow::bail!("unexpected: {said}");
    };
    ensure!(received > 0.0, "nothing came: {said}");
    Ok(Cost { received, missing, process_us, wall_us })
}

fn median(mut costs: Vec<f64>) -> f64 {
    costs.sort_by(f64::total_cmp);
    costs[costs.len() / 2]
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, role, how, socket] = &arguments[..]
        && role == SUBSCRIBER
    {
        return subscriber(how, Path::new(socket));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cluster = runtime.block_on(Cluster::start(1, 2))?;
    let workshop = Workshop::new()?;
    let program = workshop.compile("bench", Link::Shared)?;
    let c = |how: &str| {
        let mut command = workshop.command(&program, cluster.socket(0));
        command.args(["receive", how]);
        command
    };
    let rust = |how: &str| -> Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([SUBSCRIBER, how]).arg(cluster.socket(0));
        Ok(command)
    };
    let publish_from_c = || -> Result<()> {
        let mut command = workshop.command(&program, cluster.socket(0));
        run(command.args(["load", &EVENTS.to_string()])).map(drop)
    };
    for publisher in ["Rust", "C"] {
        let mut all: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for _ in 0..TURNS {
            for (who, mut command) in [
                ("Rust next", rust("next")?),
                ("Rust next_batch", rust("next_batch")?),
                ("C callback", c("notify")),
                ("C poll", c("poll")),
            ] {
                let cost = match publisher {
                    "Rust" => measure(&mut command, || publish_from_rust(&cluster))?,
                    _ => measure(&mut command, publish_from_c)?,
                };
                let each_us = cost.process_us / cost.received;
                println!(
                    "published by {publisher:4}  {who:15}  {each_us:6.3} us an event  {:8.0} \
                     events/s  missing {}",
                    cost.received / cost.wall_us * 1e6,
                    cost.missing,
                );
                all.entry(who).or_default().push(each_us);
            }
        }
        let medians: BTreeMap<&str, f64> =
            all.into_iter().map(|(who, costs)| (who, median(costs))).collect();
        let next_us = medians["Rust next"];
        for (who, each_us) in medians {
            let ratio = each_us / next_us;
            println!(
                "published by {publisher:4}  {who:15}  median {each_us:6.3} us  ratio {ratio:4.2}"
            );
        }
    }
    Ok(())
}
