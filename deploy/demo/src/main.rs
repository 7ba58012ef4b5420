//! The demonstration: a fan fails, the job moves, the answer is right.
//!
//! Everything in it is real but the metal: agents, BMC protocol (`ipmi_sim`), publishers, launcher,
//! processes. One machine stands for five.

mod memory;
mod run;
mod stage;
mod timeline;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use ftb_client::{Client, Delivery, Start, event::now_ns};
use run::Job;
use stage::Stage;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;
use timeline::Timeline;

/// Shows the whole path on one machine: five agents as a tree, a simulated BMC and an ftb-ipmi for
/// every node, a solver on four nodes with one hot spare. A fan is stopped in the middle; the
/// result must be the same to the bit as that of an undisturbed run.
///
/// Exit codes: 0 the results are the same, 1 they are not or something failed, 64 bad input.
#[derive(Parser)]
#[command(name = "ftb-demo", version)]
#[command(after_long_help = "\
Examples:
  ftb-demo
  ftb-demo --kill agent:node03
  sudo ftb-demo --memory")]
struct Arguments {
    /// Iterations of the solver: how long a run takes.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(50..))]
    iterations: u32,
    /// Kill this (kill -9) a moment after the fan has stopped, to see that nothing hangs:
    /// agent:NODE, nla:NODE or ipmi:NODE. Services are started again a second later, as systemd
    /// does; the job is saved every two seconds. May be given more than once.
    #[arg(long, value_name = "WHAT:NODE")]
    kill: Vec<String>,
    /// Instead: an unmodified MPI program (MPICH, CRIU) is saved in the memory of its nodes, and
    /// one node is lost.
    #[arg(long, conflicts_with_all = ["kill", "iterations"])]
    memory: bool,
}

const NODES: usize = 5;
/// The node whose fan stops, by rank.
const VICTIM: usize = 2;
/// How long the whole demonstration may take: far more than it does, also on a slow machine.
const DEADLINE: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    let arguments = ftb_cli::parse::<Arguments>();
    let kills = match arguments.kill.iter().map(|text| parse_kill(text)).collect::<Result<Vec<_>>>()
    {
        Ok(kills) => kills,
        Err(error) => {
            eprintln!("ftb-demo: {error}");
            return ExitCode::from(ftb_cli::USAGE);
        }
    };
    match play(&arguments, &kills) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ftb-demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// `agent:node02` as what and rank.
fn parse_kill(text: &str) -> Result<(String, usize)> {
    let (what, node) = text.split_once(':').context("--kill takes WHAT:NODE, as agent:node02")?;
    if !["agent", "nla", "ipmi"].contains(&what) {
        bail!("--kill {text}: expected agent:NODE, nla:NODE or ipmi:NODE");
    }
    let rank = (0..NODES).find(|rank| format!("node{:02}", rank + 1) == node);
    let rank = rank.with_context(|| format!("--kill {text}: the nodes are node01 to node05"))?;
    Ok((what.to_owned(), rank))
}

#[tokio::main]
async fn play(arguments: &Arguments, kills: &[(String, usize)]) -> Result<bool> {
    let scenes = async {
        if arguments.memory { memory::play().await } else { scenes(arguments, kills).await }
    };
    tokio::time::timeout(DEADLINE, scenes)
        .await
        .with_context(|| format!("it took longer than {DEADLINE:?}"))?
}

async fn scenes(arguments: &Arguments, kills: &[(String, usize)]) -> Result<bool> {
    let job = Job {
        hosts: "node[01-04]".to_owned(),
        spare: "node05".to_owned(),
        ranks: 4,
        iterations: arguments.iterations,
        checkpoints: !kills.is_empty(),
    };
    println!("five agents as a tree, a BMC and an ftb-ipmi for each");
    let mut stage = Stage::start(NODES).await?;
    println!("undisturbed run: {} ranks on {}", job.ranks, job.hosts);
    let expected = job.start(&stage.cluster, "calm")?.finish().await?;
    println!("  answer {expected}\n\nthe same again; in the middle a fan of node03 stops");
    let (answer, timeline) = disturbed(&mut stage, &job, kills).await?;
    println!("\n{timeline}\nphases\n{}", timeline::table(&timeline.phases()));
    println!("  answer without a fault  {expected}\n  answer with the fault   {answer}");
    let same = answer == expected;
    println!("{}", if same { "the same to the bit" } else { "THEY DIFFER" });
    if !timeline.complete() {
        println!("but the job was not moved as it should have been");
    }
    Ok(same && (timeline.complete() || !kills.is_empty()))
}

async fn disturbed(
    stage: &mut Stage,
    job: &Job,
    kills: &[(String, usize)],
) -> Result<(String, Timeline)> {
    let mut timeline = Timeline::default();
    let client = Client::builder("demo").agent(stage.cluster.socket(0)).build()?;
    client.wait_connected(DEADLINE).await?;
    let mut events = client.subscribe("event_space=ftb.*", Start::Now).await?;
    let mut running = job.start(&stage.cluster, "storm")?;
    loop {
        let done = running.progress().await?.context("the job ended before the fan stopped")?;
        // A run that kills launch agents needs a set to restart from.
        if done >= 0.4 && (kills.is_empty() || running.has_a_set()) {
            break;
        }
    }
    timeline.fan_stopped(now_ns(), stage.cluster.host(VICTIM));
    stage.stop_fan(VICTIM)?;
    let finish = running.finish();
    tokio::pin!(finish);
    let mut kill_at = std::pin::pin!(tokio::time::sleep(Duration::from_millis(400)));
    let mut again_at = std::pin::pin!(tokio::time::sleep(Duration::from_millis(1400)));
    let (mut killed, mut again) = (kills.is_empty(), kills.is_empty());
    // By host: its process is stamped on everything that a launch agent says.
    let mut launch_agents = BTreeMap::new();
    let answer = loop {
        tokio::select! {
            answer = &mut finish => break answer?,
            delivery = events.next() => match delivery {
                Some(Delivery::Event(received)) => {
                    if received.event.name.as_str().starts_with("FTB_NLA_") {
                        launch_agents.insert(received.host.clone(), received.pid);
                    }
                    timeline.event(&received);
                }
                Some(Delivery::Gap(gap)) => {
                    timeline.note(now_ns(), "subscription", format!("a gap: {gap:?}"));
                }
                None => bail!("the subscription ended"),
            },
            () = &mut kill_at, if !killed => {
                killed = true;
                for (what, rank) in kills {
                    let host = stage.cluster.host(*rank);
                    timeline.note(now_ns(), "kill -9", format!("{what} of {host}"));
                    let launch_agent = launch_agents.get(host).copied();
                    stage.kill(what, *rank, launch_agent)?;
                }
            }
            () = &mut again_at, if !again => {
                again = true;
                for (what, rank) in kills {
                    stage.start_again(what, *rank)?;
                }
            }
        }
    };
    // What was said before the end is still on its way here.
    while let Ok(Some(delivery)) =
        tokio::time::timeout(Duration::from_millis(300), events.next()).await
    {
        if let Delivery::Event(received) = delivery {
            timeline.event(&received);
        }
    }
    client.close(Duration::from_secs(2)).await.ok();
    Ok((answer, timeline))
}
