//! A client as a process of its own, for tests that kill and stop clients.

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use ftb_client::{Client, Deliveries, Start};
use ftb_tests::load::Source;
use std::io::Write as _;
use std::path::PathBuf;

/// Events that are published together before their confirmations are waited for.
const CHUNK: u64 = 10;

/// Publishes numbered events, or reads what others publish.
#[derive(Debug, Parser)]
struct Arguments {
    /// The agent's socket.
    socket: PathBuf,
    /// The event space.
    space: String,
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Publishes, and writes a line with the number of the last event whenever some are confirmed.
    Publish {
        /// This publisher's number.
        number: u32,
        /// How many, then it closes; without end if this is not given.
        #[arg(long)]
        count: Option<u64>,
    },
    /// Writes `active`, reads until the seen and the missing events are `count`, and writes
    /// how many of each.
    Read {
        /// How many.
        count: u64,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments = ftb_cli::parse::<Arguments>();
    match arguments.action {
        Action::Publish { number, count } => {
            let source = Source::new(&arguments.socket, &arguments.space, number)?;
            publish(source, count.unwrap_or(u64::MAX)).await
        }
        Action::Read { count } => {
            let client = Client::builder("reader").agent(&arguments.socket).build()?;
            read(&client, &arguments.space, count).await
        }
    }
}

async fn publish(mut source: Source, count: u64) -> Result<()> {
    while source.count() < count {
        let mut receipts = Vec::new();
        for _ in 0..CHUNK.min(count - source.count()) {
            receipts.push(source.publish().await?);
        }
        for receipt in receipts {
            receipt.confirmed().await?;
        }
        say(&source.count().to_string())?;
    }
    source.close().await?;
    Ok(())
}

async fn read(client: &Client, space: &str, count: u64) -> Result<()> {
    let mut subscription = client.subscribe(&format!("event_space={space}"), Start::Now).await?;
    say("active")?;
    let (mut seen, mut reported) = (0, 0);
    while seen + reported < count {
        match subscription.next_batch().await {
            Some(Deliveries::Events(batch)) => seen += batch.len() as u64,
            Some(Deliveries::Gap(gap)) => reported += gap.count.unwrap_or(0),
            None => bail!("the subscription has ended"),
        }
    }
    say(&format!("{seen} {reported}"))
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}
