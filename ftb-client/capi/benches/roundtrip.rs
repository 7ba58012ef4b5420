//! Round trip C publisher to C callback beside that of the Rust client, and the rate of `FTB_Publish`
//! from one and from eight threads: `cargo bench -p ftb-capi`. Both take turns with the same agent, and
//! in both the event is handed once from the library's thread to one of the program's: where the round
//! trip ends.

#[path = "../tests/programs/support.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod support;

use anyhow::{Context as _, Result};
use ftb_client::{ClientConfig, Delivery, Start, blocking, event};
use ftb_tests::cluster::{Cluster, PATIENCE};
use std::time::Instant;
use support::{Link, Workshop, run};

const TRIPS: usize = 3000;
const EVENTS: usize = 20_000;
/// How often both take their turn.
const TURNS: usize = 5;

fn rust_round_trip_us(cluster: &Cluster) -> Result<f64> {
    let config = ClientConfig { socket: cluster.socket(0).into(), ..ClientConfig::new("bench") };
    let client = blocking::Client::connect(config)?;
    let filter = "event_space=ftb.bench.rust, event_name=PING";
    let mut subscription = client.subscribe(filter, Start::Now, PATIENCE)?;
    let payload = "a payload of some forty bytes, as usual.";
    let mut times = Vec::with_capacity(TRIPS);
    for _ in 0..TRIPS {
        let begin = Instant::now();
        let _ = client.publish(event("ftb.bench.rust", "PING")?.payload(payload))?;
        let next = subscription.next(PATIENCE)?.context("the subscription has ended")?;
        anyhow::ensure!(matches!(next, Delivery::Event(_)), "a gap");
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[TRIPS / 2])
}

fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let cluster = runtime.block_on(Cluster::start(1, 2))?;
    let workshop = Workshop::new()?;
    let program = workshop.compile("bench", Link::Shared)?;
    for _ in 0..TURNS {
        println!("Rust: round trip {:.1} us", rust_round_trip_us(&cluster)?);
        let mut command = workshop.command(&program, cluster.socket(0));
        command.args([TRIPS.to_string(), EVENTS.to_string()]);
        print!(
            "{}",
            run(&mut command)?.lines().map(|line| format!("C: {line}\n")).collect::<String>()
        );
    }
    Ok(())
}
