//! Every function, code and limit, as golden output.

use crate::support::{Link, Talk, Workshop, assert_golden, run, run_loud};
use anyhow::{Context as _, Result, ensure};
use ftb_tests::cluster::{Cluster, Plan};
use std::path::Path;

/// Runs a program that says what it sees.
async fn golden(name: &str, arguments: &[&str]) -> Result<()> {
    let cluster = Cluster::start(1, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile(name, Link::Shared)?;
    let mut command = workshop.command(&program, cluster.socket(0));
    let found = run(command.args(arguments)).with_context(|| cluster.logs())?;
    assert_golden(name, &found);
    Ok(())
}

#[tokio::test]
async fn every_function_with_everything_that_can_be_wrong() -> Result<()> {
    golden("codes", &[]).await
}

#[tokio::test]
async fn subscription_strings() -> Result<()> {
    golden("grammar", &[]).await
}

#[tokio::test]
async fn what_is_published_arrives_to_the_byte() -> Result<()> {
    golden("deliver", &[]).await
}

#[tokio::test]
async fn what_callbacks_may_do_and_who_gets_an_event() -> Result<()> {
    golden("callbacks", &[]).await
}

#[tokio::test]
async fn everything_at_its_limit() -> Result<()> {
    golden("limits", &[]).await
}

#[tokio::test]
async fn a_process_that_forks() -> Result<()> {
    golden("forked", &[]).await
}

#[tokio::test]
async fn schema_files() -> Result<()> {
    let cluster = Cluster::start(1, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile("schema", Link::Shared)?;
    let mut command = workshop.command(&program, cluster.socket(0));
    let (found, said) = run_loud(command.arg(workshop.dir()))?;
    assert_golden("schema", &found);
    ensure!(said.lines().count() == 1 && said.contains("before the first start"), "{said}");
    ensure!(!workshop.dir().join("done").exists(), "a file name was given to a shell");
    Ok(())
}

#[tokio::test]
async fn a_polling_queue_drops_only_beyond_the_length_that_a_program_asks_for() -> Result<()> {
    let cluster = Cluster::start(1, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile("queue", Link::Shared)?;
    let (found, said) = run_loud(&mut workshop.command(&program, cluster.socket(0)))?;
    assert_golden("queue", &found);
    // Two of the six clients asked for a queue that was too short: 201 events for 5, 11 for 1.
    let lost: u64 = said.lines().filter_map(lost_from_queue).sum();
    assert_eq!(lost, 196 + 10, "{said}");
    ensure!(said.lines().all(|line| lost_from_queue(line).is_some()), "{said}");
    Ok(())
}

/// The number in `...: 12 events lost, highest severity INFO (polling queue full: ...)`.
fn lost_from_queue(line: &str) -> Option<u64> {
    let (before, _) = line.split_once(", highest severity INFO (polling queue full")?;
    before.split_whitespace().rev().find_map(|word| word.parse().ok())
}

/// Each of four ranks publishes 1,000 events and polls 4,000.
#[tokio::test]
async fn an_all_to_all_exchange_of_polling_ranks_ends() -> Result<()> {
    const RANKS: usize = 4;
    let cluster = Cluster::start(2, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile("alltoall", Link::Shared)?;
    let mut ranks = Vec::new();
    for rank in 0..RANKS {
        let mut command = workshop.command(&program, cluster.socket(rank % 2));
        command.args([&rank.to_string(), &RANKS.to_string(), "1000"]);
        ranks.push(Talk::start(&mut command)?);
    }
    for barrier in ["subscribed", "published"] {
        for rank in &mut ranks {
            rank.read_to(barrier)?;
        }
        for rank in &mut ranks {
            rank.go_on()?;
        }
    }
    for rank in ranks {
        let said = rank.finish()?;
        ensure!(said.ends_with("exchanged\n"), "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn a_full_polling_queue_keeps_the_worst_events_and_the_program_can_ask_what_it_dropped()
-> Result<()> {
    let cluster = Cluster::start(1, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile("gaps", Link::Shared)?;
    let (found, said) = run_loud(&mut workshop.command(&program, cluster.socket(0)))?;
    assert_golden("gaps", &found);
    ensure!(said.contains("polling queue full: poll more often"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_process_that_reached_no_agent_says_so_once_and_counts_what_it_gave_up() -> Result<()> {
    let workshop = Workshop::new()?;
    let program = workshop.compile("unheard", Link::Shared)?;
    let nowhere = Path::new("/nonexistent/agent.sock");
    let mut command = workshop.command_alone(&program, nowhere);
    let (_, said) = run_loud(command.arg("2"))?;
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    let alone =
        "libftb: client \"client0\" of ftb.unheard.test: no agent at /nonexistent/agent.sock: ";
    ensure!(lines[0].starts_with(alone), "{said}");
    ensure!(lines[0].contains("FTB_AGENT_SOCKET names the agent's socket"), "{said}");
    for (client, line) in lines[1..].iter().enumerate() {
        let wanted = format!(
            "libftb: client \"client{client}\" of ftb.unheard.test: 1001 events, highest severity \
             FATAL, given up: "
        );
        ensure!(line.starts_with(&wanted), "{said}");
    }
    let mut command = workshop.command_alone(&program, nowhere);
    let (_, said) = run_loud(command.arg("1").env("FTB_QUIET", "1"))?;
    assert_eq!(said, "");
    Ok(())
}

#[tokio::test]
async fn the_quirk_of_the_original_has_a_switch() -> Result<()> {
    let cluster = Cluster::start(1, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile("quirk", Link::Shared)?;
    let said = run(&mut workshop.command(&program, cluster.socket(0)))?;
    ensure!(said.contains("FTB_GOT_NO_EVENT"), "{said}");
    let mut command = workshop.command(&program, cluster.socket(0));
    let said = run(command.env("FTB_MATCHING", "cifts"))?;
    ensure!(said.contains("FTB_SUCCESS"), "{said}");
    Ok(())
}

#[tokio::test]
async fn the_library_loaded_twice_and_closed() -> Result<()> {
    let cluster = Cluster::start(1, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile("twice", Link::None)?;
    let copy = workshop.dir().join("copy.so");
    std::fs::copy(workshop.shared_library(), &copy)?;
    let mut command = workshop.command(&program, cluster.socket(0));
    let said = run(command.arg(workshop.shared_library()).arg(&copy))?;
    assert_golden("twice", &said);
    Ok(())
}

#[tokio::test]
async fn the_static_library_does_the_same() -> Result<()> {
    let cluster = Cluster::start(1, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile("deliver", Link::Static)?;
    assert_golden("deliver", &run(&mut workshop.command(&program, cluster.socket(0)))?);
    Ok(())
}

#[tokio::test]
async fn without_an_agent_everything_works_later() -> Result<()> {
    let mut cluster = Plan::new(1, 2).prepare()?;
    let workshop = Workshop::new()?;
    let program = workshop.compile("alone", Link::Shared)?;
    let mut command = workshop.command_alone(&program, cluster.socket(0));
    let mut talk = Talk::start(command.env("FTB_QUIET", "1"))?;
    talk.read_to("no agent")?;
    cluster.run(0)?;
    cluster.wait_whole().await?;
    talk.go_on()?;
    talk.read_to("agent")?;
    cluster.crash(0)?;
    talk.go_on()?;
    // How many calls it took until the first event came differs.
    let said = talk.finish()?;
    let called = "called: EARLY";
    ensure!(said.contains(called), "{said}");
    let steady: String =
        said.lines().filter(|line| *line != called).flat_map(|line| [line, "\n"]).collect();
    assert_golden("alone", &steady);
    Ok(())
}

#[tokio::test]
async fn an_agent_can_be_demanded() -> Result<()> {
    let workshop = Workshop::new()?;
    let program = workshop.compile_with("monitor", Link::Shared, &[])?;
    let mut command = workshop.command_alone(&program, Path::new("/nonexistent/agent.sock"));
    let output = command.env("FTB_CONNECT_WAIT", "100ms").output()?;
    assert_eq!(String::from_utf8(output.stdout)?, "FTB_Connect is not successful ret=-21\n");
    Ok(())
}

#[tokio::test]
async fn a_rejected_client_is_reported_once_and_with_a_code() -> Result<()> {
    let cluster = Plan::new(1, 2).extra("[limits]\nclients_max = 4\n").start().await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile("refused", Link::Shared)?;
    let (found, said) = run_loud(&mut workshop.command(&program, cluster.socket(0)))?;
    assert_golden("refused", &found);
    let wanted = "of ftb.refused.test: the agent refused this client (limit): ";
    ensure!(said.lines().count() == 1 && said.contains(wanted), "{said}");
    Ok(())
}

#[tokio::test]
async fn old_settings_are_remarked_upon_once() -> Result<()> {
    let workshop = Workshop::new()?;
    let program = workshop.compile_with("old", Link::Shared, &[])?;
    let config = workshop.dir().join("ftb.conf");
    std::fs::write(&config, "FTB_BSTRAP_PORT=14455\nFTB_CONNECT_WAIT=1h\n")?;
    let run = |quiet: &str| -> Result<String> {
        let mut command = workshop.command_alone(&program, Path::new("/nonexistent/agent.sock"));
        command.env("FTB_BSTRAP_SERVER", "10.1.2.3").env("FTB_CONFIG_FILE", &config);
        Ok(run_loud(command.env("FTB_QUIET", quiet))?.1)
    };
    let said = run("0")?;
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    ensure!(lines[0].starts_with("libftb: FTB_BSTRAP_SERVER, FTB_BSTRAP_PORT ignored"), "{said}");
    ensure!(lines[1].starts_with("libftb: FTB_CONNECT_WAIT=\"1h\" ignored"), "{said}");
    ensure!(lines[2].contains("no agent at /nonexistent/agent.sock: "), "{said}");
    assert_eq!(run("1")?, "");
    Ok(())
}
