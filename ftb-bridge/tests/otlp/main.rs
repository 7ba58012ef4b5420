//! Traces of the episodes of a real job, at a server that reads them with the official packages.

#![allow(clippy::unwrap_used, missing_docs)]

use ftb_bridge::shell::state::{self, State};
use ftb_client::{Client, Severity, event};
use ftb_tests::cluster::{Cluster, PATIENCE, Part, Plan, binary, wait_for};
use ftb_tests::python::python_with;
use ftb_tests::skip::skip;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const BRIDGE: &str = env!("CARGO_BIN_EXE_ftb-bridge");
/// The usual port of collectors.
const PORT: u16 = 4318;

/// A cluster, a bridge without NATS, and a collector.
struct Site {
    python: PathBuf,
    running: BTreeMap<&'static str, Child>,
    part: Part,
    cluster: Cluster,
}

impl Drop for Site {
    fn drop(&mut self) {
        for child in self.running.values_mut() {
            // It may have ended by itself; there is nothing to do then.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Site {
    async fn new(python: PathBuf) -> Self {
        let mut cluster = Plan::new(2, 1).start().await.unwrap();
        cluster.wait_safe().await.unwrap();
        let part = Part::claim(PORT, 1).unwrap();
        Self { python, running: BTreeMap::new(), part, cluster }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.cluster.dir().join(name)
    }

    fn run(&mut self, name: &'static str, command: &mut Command) {
        let log = self.path(&format!("{name}.log"));
        let log = fs::File::options().create(true).append(true).open(log).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.running.insert(name, command.spawn().unwrap());
    }

    fn kill(&mut self, name: &str) {
        let mut child = self.running.remove(name).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn start_bridge(&mut self) {
        self.start_bridge_with("http", "");
    }

    /// Starts a bridge with this scheme and further lines of [otlp].
    fn start_bridge_with(&mut self, scheme: &str, more: &str) {
        let config = self.path("bridge.toml");
        let text = format!(
            "agent_socket = {:?}\nstate_dir = {:?}\n[nats]\nservers = []\n\
             [otlp]\nurl = \"{scheme}://{}:{PORT}\"\n{more}",
            self.cluster.socket(0),
            self.cluster.dir(),
            self.part.address(0)
        );
        fs::write(&config, text).unwrap();
        self.run("bridge", Command::new(BRIDGE).arg("run").arg("--config").arg(config));
    }

    fn start_collector(&mut self) {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/otlp/collector.py");
        let mut command = Command::new(&self.python);
        command.arg(program).arg(self.part.address(0)).arg(PORT.to_string());
        command.arg(self.path("kept"));
        if self.path("server.pem").exists() {
            command.arg(self.path("server.pem"));
        }
        self.run("collector", &mut command);
    }

    /// The next collector speaks TLS, with a certificate of this CA for that name.
    fn certify(&self, issuer: &Issuer<'static, KeyPair>, name: &str) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, issuer).unwrap().pem();
        fs::write(self.path("server.pem"), certificate + &key.serialize_pem()).unwrap();
    }

    fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default()
    }

    fn state(&self) -> State {
        state::read(self.cluster.dir()).ok().flatten().unwrap_or_default()
    }

    /// What the collector has kept: the spans of each request.
    fn kept(&self) -> Vec<Vec<Value>> {
        let text = fs::read_to_string(self.path("kept")).unwrap_or_default();
        let requests = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let spans = |request: Value| {
            let spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array();
            spans.unwrap().clone()
        };
        requests.map(spans).collect()
    }

    async fn wait(&self, what: &str, is_so: impl Fn() -> bool) {
        let waited = wait_for(what, async || Ok(is_so().then_some(()))).await;
        let logs = format!("{}\n{}", self.log("bridge"), self.log("collector"));
        assert!(waited.is_ok(), "{waited:?}: {:?}\n{logs}", self.state());
    }

    /// A job that runs and ends; the names of its kinds of episodes are `start` and `end`.
    fn run_job(&self) {
        let mut command = Command::new(binary("ftb-launcher", "ftb-launch").unwrap());
        command.args(["run", "-n", "2", "--job", "traced", "--", "true"]);
        command.env("FTB_AGENT_SOCKET", self.cluster.socket(0));
        command.env("FTB_JOBS_DIR", self.path("jobs")).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

fn has<'a>(spans: &'a [Value], name: &str) -> Option<&'a Value> {
    spans.iter().find(|span| span["name"] == name)
}

/// Python with the official packages; without, the test is skipped.
fn python() -> Option<PathBuf> {
    let modules =
        "google.protobuf, typing_extensions, opentelemetry.proto_json, opentelemetry.proto";
    let packages = ["opentelemetry-proto", "opentelemetry-proto-json", "typing_extensions"];
    python_with("otlp", modules, &packages).map_err(|reason| skip(&reason)).ok()
}

/// A CA of that name; its certificate as PEM.
fn authority(name: &str) -> (Issuer<'static, KeyPair>, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (Issuer::new(params, key), pem)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_collector_that_the_ca_vouches_for_gets_traces() {
    let Some(python) = python() else { return };
    let mut site = Site::new(python).await;
    let ((issuer, pem), (unknown, _)) = (authority("site"), authority("unknown"));
    fs::write(site.path("ca.pem"), pem).unwrap();
    let address = site.part.address(0).to_owned();
    let ca = "ca = \"ca.pem\"\n";
    site.start_bridge_with("https", ca);
    site.wait("the bridge", || site.state().traces.position.is_some()).await;
    let client = Client::builder("test").agent(site.cluster.socket(0)).build().unwrap();
    let episode = event("ftb.jl", "FTB_JL_EPISODE").unwrap().job_id("solver").tag("episode", 3);
    let episode = episode.tag("kind", "migration").tag("outcome", "done").tag("phases", "leave=0");
    let _ = client.publish_wait(episode).await.unwrap();
    client.flush(PATIENCE).await.unwrap();
    site.wait("a failure", || site.state().traces.failures > 0).await;
    site.kill("bridge");

    let wrong = [
        (&unknown, &address[..], "UnknownIssuer"),
        (&issuer, "traces.example.org", "certificate not valid for name"),
    ];
    for (issuer, name, why) in wrong {
        site.certify(issuer, name);
        site.start_collector();
        site.wait("a collector", || TcpStream::connect((&address[..], PORT)).is_ok()).await;
        site.start_bridge_with("https", ca);
        site.wait(why, || site.log("bridge").contains(why)).await;
        assert_eq!((site.state().traces.sent, site.kept().len()), (0, 0));
        site.kill("bridge");
        site.kill("collector");
    }
    site.certify(&issuer, &address);
    site.start_collector();
    site.start_bridge_with("https", ca);
    site.wait("the trace", || site.state().traces.sent == 1).await;
    assert!(has(&site.kept()[0], "migration").is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn each_episode_is_one_trace_whatever_is_away_or_killed() {
    let Some(python) = python() else { return };
    let mut site = Site::new(python).await;
    site.start_bridge();
    site.wait("the bridge", || site.state().traces.position.is_some()).await;
    let before = fs::read(site.path("state.json")).unwrap();

    // A fault, an episode that it has caused, and the episodes of a real job.
    let client = Client::builder("test").agent(site.cluster.socket(0)).build().unwrap();
    let fault = event("ftb.ipmi", "FTB_IPMI_FANFAIL").unwrap().severity(Severity::Error);
    let _ = client.publish_wait(fault.tag("node", "node03")).await.unwrap();
    let episode = event("ftb.jl", "FTB_JL_EPISODE").unwrap().job_id("solver").tag("episode", 3);
    let episode = episode.tag("kind", "migration").tag("outcome", "done").tag("phases", "leave=0");
    let episode = episode.tag("cause", "FTB_IPMI_FANFAIL of FAN 1 on node03");
    let _ = client.publish_wait(episode.payload("ranks moved")).await.unwrap();
    client.flush(PATIENCE).await.unwrap();
    site.run_job();

    // The collector is away, then it refuses the first request.
    site.wait("a failure", || site.state().traces.failures > 0).await;
    assert!(site.kept().is_empty());
    site.start_collector();
    site.wait("all episodes", || site.kept().iter().any(|spans| has(spans, "end").is_some())).await;
    let kept = site.kept();
    assert_eq!(site.state().traces.rejected, 0);
    let migration = kept.iter().find_map(|spans| has(spans, "migration").map(|root| (root, spans)));
    let (root, spans) = migration.unwrap();
    assert!(has(spans, "decide").is_some() && has(spans, "leave").is_some(), "{spans:?}");
    assert_eq!(root["events"][0]["name"], "fault");
    let start = kept.iter().find(|spans| has(spans, "start").is_some()).unwrap();
    assert!(has(start, "launch").is_some(), "the phases of a real start: {start:?}");

    // The bridge is killed, and has forgotten what it sent: the same traces come again.
    site.wait("the state", || site.state().traces.sent >= kept.len() as u64).await;
    site.kill("bridge");
    fs::write(site.path("state.json"), before).unwrap();
    site.start_bridge();
    site.wait("the same again", || site.kept().len() >= 2 * kept.len()).await;
    let again = site.kept();
    let ids = |all: &[Vec<Value>]| -> BTreeSet<String> {
        all.iter().map(|spans| spans[0]["traceId"].to_string()).collect()
    };
    assert_eq!(again[kept.len()..], kept);
    assert_eq!(ids(&again).len(), kept.len(), "an episode is one trace");
}
