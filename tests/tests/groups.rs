//! A rule with `group_by` in a cluster of processes: ports of many publishers on several hosts
//! become one event with a host list and a count, and each of them is accounted for.
#![allow(clippy::unwrap_used, missing_docs)]

use ftb_client::{Client, Delivery, Receipt, Severity, Start, Subscription, event};
use ftb_proto::event::Received;
use ftb_tests::cluster::{Cluster, PATIENCE, Plan};
use std::time::Duration;
use tokio::time::timeout;

/// The window is long: nothing but its end may bring the fold.
fn rules(window: &str) -> String {
    format!(
        "[detection]\nsearch = \"300ms\"\nprobe = \"200ms\"\n\
         [[storm]]\nspace = \"ftb.test.ports\"\nseverity_max = \"error\"\nfold = \"{window}\"\n\
         group_by = [\"neighbour\"]\n"
    )
}

const SPACE: &str = "event_space=ftb.test.ports";

/// The `[[storm]]` table of the sample, as a person switches it on.
fn sample() -> String {
    let sample = include_str!("../../deploy/config/agent.toml");
    let lines = sample.lines().skip_while(|line| *line != "#[[storm]]");
    let lines = lines.take_while(|line| line.starts_with('#'));
    let keys = lines.filter_map(|line| line.strip_prefix('#').filter(|key| !key.starts_with(' ')));
    keys.map(|key| format!("{key}\n")).collect()
}

/// `programs` on each host but the first, where subscribers are.
async fn cluster(agents: usize, programs: usize, window: &str) -> (Cluster, Vec<Client>) {
    let cluster = Plan::new(agents, 2).extra(&rules(window)).start().await.unwrap();
    let ranks = std::iter::repeat_n(1..agents, programs).flatten();
    let clients =
        ranks.map(|rank| Client::builder("ports").agent(cluster.socket(rank)).build().unwrap());
    let clients = clients.collect();
    (cluster, clients)
}

/// Ports of a switch report, from all programs in turn.
async fn report(clients: &[Client], switch: &str, ports: usize) -> Vec<Receipt> {
    let mut receipts = Vec::new();
    for port in 0..ports {
        let down = event("ftb.test.ports", "PORT_ERR").unwrap().severity(Severity::Error);
        let down = down.tag("neighbour", format!("{switch}/{port}")).tag("port", port);
        let publisher = &clients[port % clients.len()];
        receipts.push(timeout(PATIENCE, publisher.publish_wait(down)).await.unwrap().unwrap());
    }
    receipts
}

async fn next(heard: &mut Subscription) -> Received {
    match timeout(PATIENCE, heard.next()).await.unwrap() {
        Some(Delivery::Event(received)) => *received,
        other => panic!("{other:?} is no event"),
    }
}

async fn all_confirmed(receipts: Vec<Receipt>) {
    for receipt in receipts {
        timeout(PATIENCE, receipt.confirmed()).await.unwrap().unwrap();
    }
}

/// What an agent has used of a processor.
fn processor_time(cluster: &Cluster, rank: usize) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", cluster.pid(rank).unwrap()));
    let stat = stat.unwrap();
    // After the name in parentheses: user and system time in ticks of 10 ms.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks = fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap());
    Duration::from_millis(10 * ticks.sum::<u64>())
}

/// 4,000 ports behind one switch, and 40 behind another. `FTB_GROUP_AGENTS` agents, 4 by default.
#[tokio::test]
async fn ports_of_one_switch_become_one_event_and_each_receipt_resolves() {
    let agents = std::env::var("FTB_GROUP_AGENTS").map_or(4, |agents| agents.parse().unwrap());
    let (cluster, clients) = cluster(agents, 60 / (agents - 1), "10s").await;
    let reader = Client::builder("reader").agent(cluster.socket(0)).build().unwrap();
    let mut folds = reader.subscribe(SPACE, Start::Now).await.unwrap();
    let single = format!("{SPACE}, folds=no");
    let mut single = reader.subscribe(&single, Start::Now).await.unwrap();
    let third = format!("{SPACE}, hostname={}", cluster.host(3));
    let mut third = reader.subscribe(&third, Start::Now).await.unwrap();
    let root_before = processor_time(&cluster, 0);
    let began = std::time::Instant::now();
    let switches = [("leaf07", 4_000), ("leaf08", 40)];
    let mut receipts = Vec::new();
    for (switch, ports) in switches {
        receipts.extend(report(&clients, switch, ports).await);
    }
    let reported = began.elapsed();
    all_confirmed(receipts).await;
    let confirmed = began.elapsed();
    let root_took = processor_time(&cluster, 0) - root_before;
    let hosts: Vec<&str> = (1..agents).map(|rank| cluster.host(rank)).collect();
    let hosts = ftb_core::hostlist::fold(hosts);
    for (switch, ports) in switches {
        for heard in [&mut folds, &mut third] {
            let received = next(heard).await;
            let folded = received.folded.as_ref().unwrap();
            assert_eq!((folded.count, folded.hosts.as_ref()), (ports as u64, Some(&hosts)));
            assert!(received.event.tag("neighbour").unwrap().starts_with(switch));
            assert_eq!(received.event.tag("hosts"), Some(&*hosts));
            assert_eq!(received.event.tag("count"), Some(&*ports.to_string()));
            let object = ftb_client::json::EventObject::from(&received);
            let object = serde_json::to_value(object).unwrap();
            let shown = (&object["count"], &object["hosts"]);
            assert_eq!(shown, (&ports.into(), &hosts.as_str().into()));
        }
    }
    // Receipts do not wait for the window.
    let fold_came = began.elapsed();
    assert!(confirmed < fold_came, "{confirmed:?} and {fold_came:?}");
    println!(
        "{agents} agents: reported in {reported:?}, confirmed after {confirmed:?}, folds after \
         {fold_came:?}; the root took {root_took:?} of a processor"
    );
    for _ in 0..switches.iter().map(|(_, ports)| ports).sum() {
        assert_eq!(next(&mut single).await.folded, None);
    }
}

/// The severity is that of ftb-ib.
#[tokio::test]
async fn the_rule_of_the_sample_folds_failed_ports_behind_one_switch() {
    let window = sample().replace("fold = \"1s\"", "fold = \"5s\"");
    let rules = format!("[detection]\nsearch = \"300ms\"\nprobe = \"200ms\"\n{window}");
    assert!(rules.contains("group_by") && rules.contains("5s"), "{rules}");
    let cluster = Plan::new(3, 2).extra(&rules).start().await.unwrap();
    let reader = Client::builder("reader").agent(cluster.socket(0)).build().unwrap();
    let mut folds = reader.subscribe("event_space=ftb.ib", Start::Now).await.unwrap();
    let failed = ftb_core::catalog::event("FTB_IB_PORT_ERR").unwrap();
    let mut clients = Vec::new();
    for rank in [1, 2, 1, 2] {
        let down = event(failed.space, failed.name).unwrap().severity(failed.worst());
        let down = down.tag("neighbour", format!("leaf07/{}", clients.len()));
        let client = Client::builder("ftb-ib").agent(cluster.socket(rank)).build().unwrap();
        let down = down.tag("port", clients.len());
        let receipt = timeout(PATIENCE, client.publish_wait(down)).await.unwrap().unwrap();
        all_confirmed(vec![receipt]).await;
        clients.push(client);
    }
    let received = next(&mut folds).await;
    let folded = received.folded.as_ref().unwrap();
    assert_eq!(folded.count, 4, "{received:?}");
    assert!(received.event.tag("neighbour").unwrap().starts_with("leaf07"));
}

/// What the root had not folded, the next one folds, once.
#[tokio::test]
async fn the_next_root_folds_what_the_one_before_has_left() {
    let (mut cluster, clients) = cluster(4, 2, "3s").await;
    let reader = Client::builder("reader").agent(cluster.socket(2)).build().unwrap();
    let mut folds = reader.subscribe(SPACE, Start::Now).await.unwrap();
    cluster.wait_safe().await.unwrap();
    all_confirmed(report(&clients, "leaf07", 40).await).await;
    cluster.crash(0).unwrap();
    let received = next(&mut folds).await;
    assert_eq!(received.folded.unwrap().count, 40);
    let end = event("ftb.test.ports", "END").unwrap().severity(Severity::Fatal);
    let end = timeout(PATIENCE, clients[0].publish_wait(end)).await.unwrap().unwrap();
    all_confirmed(vec![end]).await;
    assert_eq!(next(&mut folds).await.event.name.as_str(), "END");
}
