//! C programs and others on the same backplane; agents that die.

use crate::support::{Link, Talk, Workshop, run, run_loud};
use anyhow::{Context as _, Result, ensure};
use ftb_client::{
    Client, Conditions, Delivery, EventKind, Received, RecommendedAction, Severity, Start, Truth,
    event,
};
use ftb_tests::cluster::{Cluster, PATIENCE, Plan};
use std::os::unix::process::ExitStatusExt as _;

async fn next(subscription: &mut ftb_client::Subscription) -> Result<Received> {
    let next = tokio::time::timeout(PATIENCE, subscription.next()).await?;
    match next.context("the subscription has ended")? {
        Delivery::Event(event) => Ok(*event),
        Delivery::Gap(gap) => anyhow::bail!("a gap: {gap:?}"),
    }
}

fn rust_client(cluster: &Cluster, rank: usize) -> Result<Client> {
    Ok(Client::builder("rust").agent(cluster.socket(rank)).build()?)
}

/// An MPI library that tells and aborts, a Rust subscriber on another node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_old_program_publishes_reaches_rust() -> Result<()> {
    let cluster = Cluster::start(2, 2).await?;
    let workshop = Workshop::new()?;
    // As its own build does: no warnings asked for.
    let program = workshop.compile_with("notifier", Link::Shared, &["-w"])?;
    let client = rust_client(&cluster, 1)?;
    let mut faults = client.subscribe("event_space=ftb.mpi.mvapich2", Start::Now).await?;
    let output = workshop.command(&program, cluster.socket(0)).output()?;
    let status = output.status;
    ensure!(
        status.signal() == Some(6) || status.code() == Some(128 + 6),
        "it aborts itself: {status} {output:?}"
    );
    let first = next(&mut faults).await?;
    assert_eq!(first.event.name.as_str(), "FTB_MPI_PROCS_DEAD");
    assert_eq!(first.event.severity, Severity::Error);
    assert_eq!(first.event.client_name, "mvapich2 2.3.7");
    assert_eq!(first.event.job_id, "4711");
    assert_eq!(first.event.kind, EventKind::Normal);
    assert_eq!(&first.event.payload[..], b"rank 3 on node07", "no zeros at the end");
    assert_eq!(first.event.tag("cifts.seqnum"), Some("1"));
    let process = first.event.tag("cifts.process").context("no process")?;
    ensure!(process.starts_with(&format!("{}@", first.pid)), "{process}");
    assert_eq!(first.event.tag("cifts.severity"), None);
    assert_eq!(next(&mut faults).await?.event.tag("cifts.seqnum"), Some("2"));
    // The last thing that it said, before abort(): a fatal event is waited for.
    let last = next(&mut faults).await?;
    assert_eq!(last.event.name.as_str(), "MPI_ABORT");
    assert_eq!(last.event.severity, Severity::Fatal);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_rust_publishes_reaches_an_old_program() -> Result<()> {
    let cluster = Cluster::start(2, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile_with("monitor", Link::Shared, &[])?;
    let mut command = workshop.command(&program, cluster.socket(1));
    let mut talk = Talk::start(command.args(["4", "event_space=ftb.all.all"]))?;
    talk.read_to("watching")?;
    let client = rust_client(&cluster, 0)?;
    let fault = event("ftb.ipmi", "FTB_IPMI_FANFAIL")?.severity(Severity::Error);
    let _ = client.publish(fault.payload("Fan 1 stands still").job_id("42"))?;
    let _ = client.publish(event("other.space.x", "NOT_WANTED")?)?;
    let _ = client.publish(event("ftb.ib.hca.port.1", "DEEP")?)?;
    let _ = client.publish(event("ftb", "LONG")?.payload("y".repeat(1000)))?;
    let _ = client.publish(event("ftb.a.b", "LAST")?)?;
    let said = talk.finish()?;
    let host = cluster.host(0);
    let long = format!("{}...", "y".repeat(364));
    let wanted = [
        "watching".to_owned(),
        format!(
            "ftb.ipmi.none: error FTB_IPMI_FANFAIL from 'rust', job '42', on {host}: \
             Fan 1 stands still"
        ),
        format!("ftb.ib.hca_port_1: info DEEP from 'rust', job '', on {host}: "),
        format!("ftb.none.none: info LONG from 'rust', job '', on {host}: {long}"),
        format!("ftb.a.b: info LAST from 'rust', job '', on {host}: "),
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), wanted);
    Ok(())
}

/// The mapping table: a program of the C API states and clears a condition by the names of its
/// events. It names the node in the payload.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_c_program_states_and_clears_a_condition_by_a_pair_of_the_site() -> Result<()> {
    let pair = "[[access]]\nspace = \"ftb.mpi\"\npublish = [\"agent\"]\n[[condition]]\nspace = \
                \"ftb.mpi\"\nset = \"PROC_DEAD\"\nclear = [\"PROC_BACK\"]\nhost_in_payload = \
                true\naction = \"restart-process\"\nkept = true\n";
    let cluster = Plan::new(2, 2).extra(pair).start().await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile("publisher", Link::Shared)?;
    let client = rust_client(&cluster, 1)?;
    for (name, truth) in [("PROC_DEAD", Truth::True), ("PROC_BACK", Truth::False)] {
        let mut command = workshop.command(&program, cluster.socket(0));
        run(command.args(["ftb.mpi.mympi", name, "error", "node07"]))?;
        let mut table = Conditions::open(&client, "subject=node07").await?;
        table.load().await?;
        let state = table.states().next().context("no condition")?;
        assert_eq!(state.subject.to_string(), "node07 PROC_DEAD");
        assert_eq!((state.truth, state.action), (truth, RecommendedAction::RestartProcess));
        assert_eq!(state.event, format!("ftb.mpi.mympi {name}"));
    }
    Ok(())
}

/// `exit` without disconnecting, as programs do: what was published is handed over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_published_before_exit_arrives() -> Result<()> {
    let cluster = Cluster::start(1, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile("publisher", Link::Shared)?;
    let client = rust_client(&cluster, 0)?;
    let mut all = client.subscribe("event_space=ftb.exit.test", Start::Now).await?;
    for i in 0..20 {
        let payload = i.to_string();
        let mut command = workshop.command(&program, cluster.socket(0));
        run(command.args(["ftb.exit.test", "BYE", "info", &payload]))?;
        assert_eq!(&next(&mut all).await?.event.payload[..], payload.as_bytes());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_outlive_their_agent_and_events_go_on() -> Result<()> {
    let mut cluster = Cluster::start(1, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile("survive", Link::Shared)?;
    // Standard error is a pipe without a reader: writing to it raises SIGPIPE.
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let mut command = workshop.command(&program, cluster.socket(0));
    command.env("FTB_BSTRAP_SERVER", "10.1.2.3").stderr(writer);
    let mut talk = Talk::start(&mut command)?;
    talk.read_to("agent")?;
    cluster.crash(0)?;
    talk.go_on()?;
    talk.read_to("survived")?;
    cluster.run(0)?;
    cluster.wait_whole().await?;
    talk.go_on()?;
    let said = talk.finish()?;
    ensure!(said.contains("called 1") && said.contains("FTB_SUCCESS"), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_that_demands_an_agent_waits_for_it_instead_of_losing_events() -> Result<()> {
    let mut cluster = Cluster::start(1, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile("patient", Link::Shared)?;
    let stderr = workshop.dir().join("stderr");
    let mut command = workshop.command(&program, cluster.socket(0));
    let mut talk = Talk::start(command.stderr(std::fs::File::create(&stderr)?))?;
    talk.read_to("connected")?;
    cluster.crash(0)?;
    talk.go_on()?;
    talk.read_to("waits")?;
    cluster.run(0)?;
    let said = talk.finish()?;
    ensure!(said.contains("FTB_SUCCESS"), "{said}");
    let reported = std::fs::read_to_string(&stderr)?;
    ensure!(reported.is_empty(), "{reported}");
    Ok(())
}

/// An agent that accepts and then hangs: nothing waits for it without a bound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_do_not_hang_with_their_agent() -> Result<()> {
    let cluster = Cluster::start(1, 2).await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile_with("old", Link::Shared, &[])?;
    cluster.signal(0, nix::sys::signal::Signal::SIGSTOP)?;
    let ran = run_loud(&mut workshop.command_alone(&program, cluster.socket(0)));
    cluster.signal(0, nix::sys::signal::Signal::SIGCONT)?;
    let (found, said) = ran?;
    assert_eq!(found, "style -3, space -2, connected 0, again -5, disconnected 0\n");
    ensure!(said.contains("not attached to the agent at ") && said.lines().count() == 1, "{said}");
    Ok(())
}

/// The log of the agent holds far less than what is published while a callback stands still.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callback_that_falls_behind_the_log_hears_how_much_it_missed() -> Result<()> {
    const EVENTS: usize = 20_000;
    let cluster = Plan::new(1, 2).extra("[limits]\nlog_bytes = 1048576\n").start().await?;
    let workshop = Workshop::new()?;
    let program = workshop.compile("slow", Link::Shared)?;
    let stderr = workshop.dir().join("stderr");
    let mut command = workshop.command(&program, cluster.socket(0));
    let mut talk = Talk::start(command.stderr(std::fs::File::create(&stderr)?))?;
    talk.read_to("subscribed")?;
    let client = rust_client(&cluster, 0)?;
    let load = |name| Ok::<_, anyhow::Error>(event("load.test.x", name)?.payload("x".repeat(300)));
    client.publish_wait(load("LOAD")?).await?.confirmed().await?;
    talk.read_to("called")?;
    for _ in 1..EVENTS {
        let _ = client.publish_wait(load("LOAD")?).await?;
    }
    client.flush(PATIENCE).await?;
    talk.go_on()?;
    let _ = client.publish_wait(load("LAST")?).await?;
    let found = talk.finish()?;
    let said = std::fs::read_to_string(&stderr)?;
    let value = |key: &str| found.lines().find_map(|line| line.strip_prefix(key));
    let received: usize = value("received ").context("it said nothing")?.parse()?;
    ensure!(received < EVENTS, "nothing was missed: {found}");
    let gap: Vec<&str> = value("gap ").with_context(|| found.clone())?.split(' ').collect();
    let &[reason, count, at_least, severity] = &gap[..] else { anyhow::bail!("{found}") };
    assert_eq!(reason, "2", "retention: {found}");
    if at_least == "0" {
        assert_eq!((count.parse::<usize>()? + received, severity), (EVENTS, "info"), "{found}");
        ensure!(said.contains(&format!("{count} events lost, highest severity INFO")), "{said}");
    } else {
        ensure!(said.contains("an unknown number of events lost"), "{said}");
    }
    ensure!(said.contains("(retention: "), "{said}");
    Ok(())
}
