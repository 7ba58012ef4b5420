//! What `ftb-ipmi` states about a node, over its restarts and until a person clears it: with a real
//! BMC implementation and real agents.
#![allow(clippy::unwrap_used)]

use ftb_client::{Client, ConditionState, Conditions, Delivery, Start, Subscription, Truth};
use ftb_core::condition::{Subject, WATCHED};
use ftb_tests::bmc::{EVENT_ONLY, PASSWORD, Setup, SimulatedBmc, USER, write_private};
use ftb_tests::cluster::{Cluster, PATIENCE, Plan, binary, tied, wait_for};
use ftb_tests::skip::skip;
use ftb_tests::user::{ORDINARY, impossible};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tokio::time::timeout;

/// A lost publisher is given up after one second.
const TIMES: &str = "[detection]\nsearch = \"300ms\"\npublisher = \"1s\"\n";
/// The events of sensors in the log of the BMC: a state begins, or ends.
const BEGINS: u8 = 0x6F;
const ENDS: u8 = 0xEF;

/// Two agents, the BMC of one of their hosts, and the configuration of an `ftb-ipmi` at the first.
struct Site {
    cluster: Cluster,
    /// The host of the BMC.
    node: usize,
    bmc: SimulatedBmc,
    config: PathBuf,
    reader: Client,
}

/// A running `ftb-ipmi`.
struct Daemon(Child);

impl Daemon {
    fn stop(mut self) {
        let script = format!("kill -TERM {}", self.0.id());
        assert!(Command::new("sh").arg("-c").arg(script).status().unwrap().success());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Site {
    async fn new() -> Self {
        Self::with("", 1).await
    }

    /// `access`: further lines of the configuration of the agents.
    async fn with(access: &str, node: usize) -> Self {
        let extra = format!("{TIMES}{access}");
        let cluster = Plan::new(2, 2).extra(&extra).start().await.unwrap();
        let setup = Setup { has_event_only: true, ..Setup::default() };
        let bmc = SimulatedBmc::start_with(setup).unwrap();
        let (folder, socket) = (cluster.dir().join("state"), cluster.socket(0).display());
        std::fs::create_dir(&folder).unwrap();
        let folder = folder.display();
        let text = format!(
            "interval = '200ms'\nsel_interval = '200ms'\nrestate = '1s'\nstate_dir = '{folder}'\n\
             agent_socket = '{socket}'\n[[target]]\nbmc = '{}'\nnode = '{}'\nuser = '{USER}'\n\
             password = '{PASSWORD}'\ncipher_suite = 3\ntimeout = '500ms'\nretries = 20\n",
            bmc.address(),
            cluster.host(node),
        );
        let config = cluster.dir().join("ipmi.toml");
        write_private(&config, &text).unwrap();
        let reader = Client::builder("test").agent(cluster.socket(1)).build().unwrap();
        Self { cluster, node, bmc, config, reader }
    }

    fn host(&self) -> &str {
        self.cluster.host(self.node)
    }

    fn bookmark(&self) -> PathBuf {
        self.cluster.dir().join("state").join(format!("{}.sel", self.host()))
    }

    fn start(&self) -> Daemon {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ftb-ipmi"));
        command.arg("--config").arg(&self.config).env("FTB_LOG", "info");
        Daemon(tied(&command).stdin(Stdio::null()).spawn().unwrap())
    }

    /// Starts `ftb-ipmi` and waits until it watches the node, without a fault, and knows the log.
    async fn start_healthy(&self) -> Daemon {
        let daemon = self.start();
        self.wait("ftb.ipmi", WATCHED, Truth::True).await;
        self.wait_for_bookmark().await;
        daemon
    }

    async fn wait_for_bookmark(&self) {
        let bookmark = self.bookmark();
        wait_for("the bookmark", async || Ok(bookmark.exists().then_some(()))).await.unwrap();
    }

    /// Starts `ftb-ipmi` as an ordinary user.
    fn start_as(&self, user: u32) -> Daemon {
        let folder = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(self.cluster.dir(), folder).unwrap();
        let program = self.cluster.dir().join("ftb-ipmi");
        std::fs::copy(env!("CARGO_BIN_EXE_ftb-ipmi"), &program).unwrap();
        for path in [&self.config, &self.cluster.dir().join("state")] {
            std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
        }
        let mut command = Command::new(program);
        command.arg("--config").arg(&self.config);
        let mut command = tied(&command);
        Daemon(command.uid(user).gid(user).stdin(Stdio::null()).spawn().unwrap())
    }

    /// Waits until a condition of the node has this truth.
    async fn wait(&self, component: &str, key: &str, truth: Truth) -> ConditionState {
        let subject = Subject::new(self.host(), component, key);
        let mut table = Conditions::open(&self.reader, &self.filter("*")).await.unwrap();
        let found = async {
            table.load().await.unwrap();
            loop {
                if let Some(state) = table.state(&subject).filter(|state| state.truth == truth) {
                    return state.clone();
                }
                table.changed().await.unwrap();
            }
        };
        let found = timeout(PATIENCE, found).await;
        found.unwrap_or_else(|_| panic!("{subject} is not {truth}\n{}", self.cluster.logs()))
    }

    fn filter(&self, key: &str) -> String {
        format!("condition={key}, subject={}", self.host())
    }

    /// All statements about conditions with this key from now on.
    async fn follow(&self, key: &str) -> Subscription {
        self.reader.subscribe(&self.filter(key), Start::Now).await.unwrap()
    }

    /// An entry of the event log: generator, sensor type and number, event type, state.
    fn log(&self, [generator, kind, number, event, state]: [u8; 5]) {
        let entry = format!("{generator} 0 4 {kind} {number} {event} {state} 0xff 0xff");
        self.bmc.console(&format!("sel_add 0x20 2 0 0 0 0 {entry}")).unwrap();
    }

    /// The internal error of the processor whose sensor has only events.
    fn processor(&self, event: u8) {
        self.log([0x20, 0x07, EVENT_ONLY.0, event, 0]);
    }

    /// Clears a condition as a person does, at the other agent.
    fn clear(&self, component: &str, key: &str) {
        let mut command = Command::new(binary("ftbctl", "ftbctl").unwrap());
        command
            .arg("--agent")
            .arg(self.cluster.socket(1))
            .args(["publish", "ftb.ipmi", "REPLACED"]);
        command.args(["--host", self.host(), "--component", component]);
        assert!(command.arg("--condition").arg(format!("{key}=clear")).status().unwrap().success());
    }

    fn health(&self) -> Option<i32> {
        let mut command = Command::new(binary("ftbctl", "ftbctl").unwrap());
        command.arg("--agent").arg(self.cluster.socket(1)).args(["health", self.host()]);
        command.status().unwrap().code()
    }
}

/// What is stated before a condition ends.
async fn until_false(statements: &mut Subscription) -> Vec<Truth> {
    let mut before = Vec::new();
    let ended = async {
        loop {
            let Some(Delivery::Event(received)) = statements.next().await else { panic!("a gap") };
            match ConditionState::of(&received).map(|state| state.truth) {
                Some(Truth::False) => return,
                truth => before.extend(truth),
            }
        }
    };
    timeout(PATIENCE, ended).await.unwrap();
    before.dedup();
    before
}

#[tokio::test]
async fn a_restart_ends_the_faults_that_are_over_and_no_other() {
    let site = Site::new().await;
    let daemon = site.start_healthy().await;
    site.processor(BEGINS);
    site.bmc.set("cpu1_fan", 0).unwrap();
    site.bmc.set("ps1", 0b11).unwrap();
    for (component, key) in
        [(EVENT_ONLY.1, "CPUFAIL"), ("CPU 1 FAN", "FANFAIL"), ("PS1 Status", "PSUFAIL")]
    {
        site.wait(component, key, Truth::True).await;
    }
    daemon.stop();
    site.bmc.set("cpu1_fan", 2244).unwrap();
    let lost = site.wait(EVENT_ONLY.1, "CPUFAIL", Truth::Unknown).await;
    site.wait("CPU 1 FAN", "FANFAIL", Truth::Unknown).await;

    // The power supply is still bad; the processor's sensor has no reading.
    let mut said = site.follow("CPUFAIL").await;
    let daemon = site.start();
    site.wait("CPU 1 FAN", "FANFAIL", Truth::False).await;
    let known = site.wait(EVENT_ONLY.1, "CPUFAIL", Truth::True).await;
    assert_eq!((known.severity, known.onset_ns), (lost.severity, lost.onset_ns));
    site.bmc.set("ps1", 1).unwrap();
    site.wait("PS1 Status", "PSUFAIL", Truth::False).await;
    daemon.stop();
    site.wait(EVENT_ONLY.1, "CPUFAIL", Truth::Unknown).await;

    // Replaced while no daemon runs: the log says so.
    site.processor(ENDS);
    let daemon = site.start();
    site.wait(EVENT_ONLY.1, "CPUFAIL", Truth::False).await;
    site.wait("ftb.ipmi", WATCHED, Truth::True).await;
    let before = until_false(&mut said).await;
    // The last life may read the log before the table: then it does not state the fault first.
    assert!(before.starts_with(&[Truth::True, Truth::Unknown]), "over too early: {before:?}");
    daemon.stop();
    site.wait(EVENT_ONLY.1, "CPUFAIL", Truth::Unknown).await;

    // The next life does not take it for a fault.
    let _daemon = site.start();
    let mut said_again = Vec::new();
    // Agents repeat what is stated.
    while !said_again.contains(&Truth::Unknown) {
        said_again.extend(until_false(&mut said).await);
    }
    assert_eq!(said_again, [Truth::Unknown]);
}

#[tokio::test]
async fn a_person_clears_a_fault_whose_end_the_bmc_does_not_report() {
    let site = Site::new().await;
    let _daemon = site.start_healthy().await;
    site.processor(BEGINS);
    let mut said = site.follow("CPUFAIL").await;
    let stated = site.wait(EVENT_ONLY.1, "CPUFAIL", Truth::True).await;
    site.clear(EVENT_ONLY.1, "CPUFAIL");
    // By the person, then by the daemon, which would state the fault again and again otherwise.
    let cleared = loop {
        until_false(&mut said).await;
        let cleared = site.wait(EVENT_ONLY.1, "CPUFAIL", Truth::False).await;
        if cleared.source.publisher == stated.source.publisher {
            break cleared;
        }
    };
    assert_eq!(cleared.event, "ftb.ipmi FTB_IPMI_SENSOR_CLEARED");
}

#[tokio::test]
async fn an_uncorrectable_memory_error_holds_until_a_person_clears_it() {
    const FIRMWARE: &str = "firmware 0x87";
    let site = Site::new().await;
    let daemon = site.start_healthy().await;
    assert_eq!(site.health(), Some(0));
    let mut events = site.reader.subscribe("event_name=FTB_IPMI_MEMERR", Start::Now).await.unwrap();
    for (state, severity) in [(0, "WARNING"), (1, "ERROR")] {
        site.log([0x21, 0x0C, 0x87, BEGINS, state]);
        let Some(Delivery::Event(received)) = timeout(PATIENCE, events.next()).await.unwrap()
        else {
            panic!("a gap")
        };
        assert_eq!(received.event.severity.to_string(), severity);
        let condition = ConditionState::of(&received);
        assert_eq!(condition.is_some(), state == 1, "a corrected error lasts not: {condition:?}");
    }
    let stated = site.wait(FIRMWARE, "MEMERR", Truth::True).await;
    assert_eq!(
        (stated.action.to_string(), stated.severity.to_string()),
        ("replace".into(), "ERROR".into())
    );
    assert_eq!(site.health(), Some(1));
    daemon.stop();
    site.wait("ftb.ipmi", WATCHED, Truth::Unknown).await;
    let _daemon = site.start_healthy().await;
    let kept = site.wait(FIRMWARE, "MEMERR", Truth::True).await;
    assert_eq!(kept.source, stated.source, "its publisher has ended, the condition has not");
    site.clear(FIRMWARE, "MEMERR");
    site.wait(FIRMWARE, "MEMERR", Truth::False).await;
    assert_eq!(site.health(), Some(0));
    // The next error counts again. Of another state: one state is published once a minute.
    site.log([0x21, 0x0C, 0x87, BEGINS, 2]);
    site.wait(FIRMWARE, "MEMERR", Truth::True).await;
}

/// Only users that a rule names one by one may state what outlives them.
#[tokio::test]
async fn an_error_is_published_although_the_agent_refuses_its_condition() {
    if let Some(why) = impossible() {
        return skip(&why);
    }
    let user = ORDINARY[0];
    for (who, is_named) in [("uid", true), ("gid", false)] {
        let access =
            format!("[[access]]\nspace = \"ftb.ipmi\"\npublish = [\"agent\", \"{who}:{user}\"]\n");
        let site = Site::with(&access, 0).await;
        let filter = "event_name=FTB_IPMI_MEMERR";
        let mut events = site.reader.subscribe(filter, Start::Now).await.unwrap();
        let _daemon = site.start_as(user);
        site.wait("ftb.ipmi", WATCHED, Truth::True).await;
        site.wait_for_bookmark().await;
        site.log([0x21, 0x0C, 0x87, BEGINS, 1]);
        let error = timeout(PATIENCE, events.next()).await.unwrap();
        let Some(Delivery::Event(error)) = error else { panic!("a gap") };
        assert_eq!(error.event.severity.to_string(), "ERROR");
        assert_eq!(ConditionState::of(&error).is_some(), is_named, "{who}");
    }
}
