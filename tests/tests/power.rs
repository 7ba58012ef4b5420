//! The BMC of a silent host votes, with real agents, `ftb-ipmi`, and a real BMC implementation.
#![allow(clippy::unwrap_used, missing_docs)]

use ftb_client::{Client, Start, event};
use ftb_tests::bmc::{self, PASSWORD, Setup, SimulatedBmc, USER};
use ftb_tests::cluster::{Cluster, PATIENCE, Plan, binary, tied};
use ftb_tests::netns::{Net, Way, impossible};
use ftb_tests::reported::Reported;
use ftb_tests::skip::skip;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// The host that is lost: a leaf below another agent.
const LOST: usize = 4;

/// `ftb-ipmi` at an agent, ended with the test.
struct Publisher(Child);

impl Publisher {
    fn start(cluster: &Cluster, bmc: &SimulatedBmc) -> Self {
        let (socket, address) = (cluster.socket(2).display(), bmc.address());
        let node = cluster.host(LOST);
        let text = format!(
            "interval = '5s'\n[agent]\nsocket = '{socket}'\n\
             [[target]]\nbmc = '{address}'\nnode = '{node}'\n\
             user = '{USER}'\npassword = '{PASSWORD}'\ncipher_suite = 3\ntimeout = '300ms'\n"
        );
        let path = cluster.dir().join("ipmi.toml");
        bmc::write_private(&path, &text).unwrap();
        let mut command = Command::new(binary("ftb-ipmi", "ftb-ipmi").unwrap());
        command.arg("--config").arg(path);
        Self(tied(&command).spawn().unwrap())
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Site {
    net: Net,
    cluster: Cluster,
    bmc: SimulatedBmc,
    reported: Reported,
    _ipmi: Publisher,
}

impl Site {
    async fn start(is_on: bool) -> Self {
        let net = Net::new(5).unwrap();
        let mut cluster = Plan::new(5, 2).on(&net).start().await.unwrap();
        cluster.wait_wanted().await.unwrap();
        let setup = Setup { has_power: true, ..Setup::default() };
        let bmc = SimulatedBmc::start_with(setup).unwrap();
        bmc.set("power", i32::from(is_on)).unwrap();
        let reported = Reported::listen(cluster.socket(2)).await.unwrap();
        let ipmi = Publisher::start(&cluster, &bmc);
        let reader = Client::builder("test").agent(cluster.socket(2)).build().unwrap();
        let mut table = ftb_client::Conditions::open(&reader, "condition=WATCHED").await.unwrap();
        let host = cluster.host(LOST).to_owned();
        let watched = async {
            while !table.watchers(&host).present.iter().any(|space| space == "ftb.ipmi") {
                table.changed().await.unwrap();
            }
        };
        tokio::time::timeout(PATIENCE, watched).await.unwrap();
        Self { net, cluster, bmc, reported, _ipmi: ipmi }
    }

    /// Time from the cut to the verdict, and its votes.
    async fn lose(&mut self) -> (Duration, String) {
        let host = self.cluster.host(LOST).to_owned();
        // Its link is busy until then.
        let load = Client::builder("load").agent(self.cluster.socket(LOST)).build().unwrap();
        let busy = tokio::spawn(async move {
            loop {
                let _ = load.publish(event("site.load", "STEP").unwrap());
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.net.isolate(LOST, Way::Both).unwrap();
        let cut = Instant::now();
        let dead = self.reported.wait("FTB_NODE_DEAD", &host).await;
        let took = cut.elapsed();
        busy.abort();
        let dead = dead.unwrap_or_else(|error| panic!("{error:?}\n{}", self.cluster.logs()));
        (took, dead.tag("votes").unwrap_or_default().to_owned())
    }
}

/// `FTB_VERDICT_RUNS` hosts are lost; prints the times.
#[tokio::test]
async fn a_host_that_its_bmc_says_is_off_is_dead_within_two_seconds() {
    if let Some(why) = impossible() {
        return skip(&why);
    }
    let runs = std::env::var("FTB_VERDICT_RUNS").map_or(1, |runs| runs.parse().unwrap());
    let mut times = Vec::new();
    for _ in 0..runs {
        let mut site = Site::start(false).await;
        let (took, votes) = site.lose().await;
        assert!(votes.contains("bmc=off"), "{votes}");
        times.push(took);
    }
    times.sort();
    let (p50, max) = (times[times.len() / 2], times[times.len() - 1]);
    println!("{runs} hosts that were powered off: dead after p50 {p50:?}, max {max:?}");
    assert!(p50 < Duration::from_secs(2), "{times:?}");
}

#[tokio::test]
async fn without_the_word_off_of_a_bmc_the_probes_decide() {
    if let Some(why) = impossible() {
        return skip(&why);
    }
    for is_silent in [false, true] {
        let mut site = Site::start(true).await;
        if is_silent {
            site.bmc.pause().unwrap();
        }
        let (took, votes) = site.lose().await;
        println!("BMC silent: {is_silent}: dead after {took:?} by {votes}");
        assert!(!votes.contains("bmc"), "{votes}");
    }
}

#[tokio::test]
async fn a_bmc_that_says_off_does_not_declare_a_live_host_dead() {
    if let Some(why) = impossible() {
        return skip(&why);
    }
    let mut site = Site::start(false).await;
    let host = site.cluster.host(LOST).to_owned();
    let reader = Client::builder("test").agent(site.cluster.socket(2)).build().unwrap();
    let filter = format!("condition=CHASSIS_OFF, subject={host}");
    let mut said = reader.subscribe(&filter, Start::Now).await.unwrap();
    site.cluster.crash(LOST).unwrap();
    tokio::time::timeout(PATIENCE, said.next()).await.unwrap().unwrap();
    site.reported.wait("FTB_AGENT_LOST", &host).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(site.reported.about("FTB_NODE_DEAD", &host).is_empty(), "{}", site.reported);
}
