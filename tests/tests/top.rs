//! `ftbctl top` against real agents: one frame as text, and live at a terminal.
#![allow(clippy::unwrap_used)]

use ftb_client::{Client, Condition, Severity, Truth, event};
use ftb_tests::cluster::{Cluster, PATIENCE, binary, outside_cargo, wait_for};
use ftb_tests::skip::skip;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

const ENTER_SCREEN: &str = "\u{1b}[?1049h";
const LEAVE_SCREEN: &str = "\u{1b}[?1049l";

fn top(cluster: &Cluster, rank: usize, words: &[&str]) -> Output {
    let mut command = Command::new(binary("ftbctl", "ftbctl").unwrap());
    command.arg("--agent-socket").arg(cluster.socket(rank)).arg("top").args(words);
    command.stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

async fn state(client: &Client, host: &str, truth: Truth, severity: Severity) {
    let condition = Condition {
        host: host.to_owned(),
        component: "FAN 1".to_owned(),
        is_kept: true,
        ..Condition::new("FANFAIL", truth)
    };
    let fan = event("ftb.ipmi", "FTB_IPMI_SENSOR").unwrap().severity(severity);
    // The flush waits for it.
    let _ = client.publish(fan.payload("it stands").condition(condition)).unwrap();
    client.flush(PATIENCE).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_frame_shows_the_cluster_as_text_and_json() {
    let mut cluster = Cluster::start(4, 2).await.unwrap();
    let client = Client::builder("top-test").agent(cluster.socket(0)).build().unwrap();
    for host in ["node02", "node03", "node04"] {
        state(&client, host, Truth::True, Severity::Error).await;
    }
    state(&client, "node04", Truth::False, Severity::Error).await;
    let frame = async |wanted: &str| {
        let shown = async || {
            let output = top(&cluster, 3, &["--once", "--interval", "100ms"]);
            let shown = text(&output.stdout);
            assert!(output.status.success(), "{}", text(&output.stderr));
            Ok(shown.contains(wanted).then_some(shown))
        };
        wait_for(wanted, shown).await.unwrap()
    };
    let shown = frame("node[02-03]").await;
    for part in ["node01, standby node02", "4 up", "CONDITIONS: ERROR 2", "FANFAIL", "FAN 1"] {
        assert!(shown.contains(part), "{part:?} is not in\n{shown}");
    }
    assert!(shown.contains("events/s") && shown.contains("it stands"), "{shown}");
    assert!(!shown.contains('\u{1b}'), "no escape sequences outside a terminal: {shown:?}");
    let json: Value =
        serde_json::from_slice(&top(&cluster, 0, &["--once", "--json"]).stdout).unwrap();
    assert_eq!((&json["root"], &json["standby"]), (&"node01".into(), &"node02".into()));
    let group = &json["conditions"][0];
    assert_eq!((&group["key"], &group["hosts"]), (&"FANFAIL".into(), &"node[02-03]".into()));
    assert_eq!(json["agents"][0]["count"], 4);
    drop(client);
    cluster.crash(3).unwrap();
}

/// The rate is that of the whole cluster, also at an agent that gets none of the events.
#[tokio::test(flavor = "multi_thread")]
async fn the_rate_counts_events_of_the_whole_cluster() {
    let cluster = Cluster::start(3, 2).await.unwrap();
    let client = Client::builder("top-test").agent(cluster.socket(0)).build().unwrap();
    let publisher = tokio::spawn(async move {
        loop {
            let _ = client.publish(event("site.rate", "TICK").unwrap().build());
            if client.flush(PATIENCE).await.is_err() {
                return;
            }
        }
    });
    wait_for("a rate", async || {
        let output = top(&cluster, 2, &["--once", "--json"]);
        let json: Value = serde_json::from_slice(&output.stdout)?;
        Ok(json["events_per_s"].as_f64().filter(|rate| *rate > 10.0))
    })
    .await
    .unwrap();
    publisher.abort();
}

#[tokio::test]
async fn without_a_terminal_it_names_once() {
    let cluster = Cluster::start(1, 1).await.unwrap();
    let refused = |words: &[&str]| {
        let output = top(&cluster, 0, words);
        assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
        assert_eq!(output.status.code(), Some(64), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    assert!(refused(&[]).contains("--once"));
    assert!(refused(&["--json"]).contains("--once"));
    assert!(refused(&["--once", "--interval", "1ms"]).contains("100ms to 60s"));
    assert!(refused(&["--once", "severity>=loud"]).contains("column"));
}

/// `ftbctl top` at a terminal of its own; afterwards the settings of that terminal are printed.
struct AtTerminal {
    child: Child,
    typescript: PathBuf,
    pid: PathBuf,
}

impl Drop for AtTerminal {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing to do then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl AtTerminal {
    fn start(cluster: &Cluster, name: &str) -> Self {
        let file = |end: &str| cluster.dir().join(format!("{name}.{end}"));
        let (typescript, pid) = (file("typescript"), file("pid"));
        let program = binary("ftbctl", "ftbctl").unwrap();
        let line = format!(
            "stty rows 30 columns 100; sh -c 'echo $$ >{}; exec {} --agent-socket {} top'; \
             echo ended with $?; stty -a",
            pid.display(),
            program.display(),
            cluster.socket(0).display(),
        );
        let mut command = Command::new("script");
        command.args(["-qefc", &line]).arg(&typescript);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let child = outside_cargo(&mut command).spawn().unwrap();
        Self { child, typescript, pid }
    }

    fn shown(&self) -> String {
        text(&std::fs::read(&self.typescript).unwrap_or_default())
    }

    async fn wait(&self, wanted: &str) {
        let found = async || Ok(self.shown().contains(wanted).then_some(()));
        wait_for(wanted, found).await.unwrap_or_else(|why| panic!("{why}\n{}", self.shown()));
    }

    fn types(&mut self, keys: &str) {
        self.child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    fn signal(&self, signal: Signal) {
        let pid: i32 = std::fs::read_to_string(&self.pid).unwrap().trim().parse().unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    /// The terminal is as it was.
    async fn is_restored(&self, code: i32) {
        self.wait(&format!("ended with {code}")).await;
        self.wait("icanon").await;
        let shown = self.shown();
        let (enter, leave) = (shown.find(ENTER_SCREEN), shown.rfind(LEAVE_SCREEN));
        assert!(enter.is_some() && leave > enter, "{shown}");
        assert!(shown.contains(" icanon") && shown.contains(" echo "), "{shown}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_terminal_is_given_back_after_q_and_after_signals() {
    if Command::new("script").arg("--version").output().is_err() {
        return skip("script(1) is not installed (apt-get install bsdutils)");
    }
    let cluster = Cluster::start(2, 2).await.unwrap();
    let client = Client::builder("top-test").agent(cluster.socket(0)).build().unwrap();
    state(&client, "node02", Truth::True, Severity::Error).await;

    let mut left = AtTerminal::start(&cluster, "left");
    left.wait("FANFAIL").await;
    // While it runs, news come by themselves.
    state(&client, "faraway7", Truth::True, Severity::Fatal).await;
    left.wait("faraway7").await;
    // Only what changes is drawn: nothing else has this mark of a search.
    left.types("s/node02");
    left.wait("▏").await;
    left.types("\rq");
    left.is_restored(0).await;

    let terminated = AtTerminal::start(&cluster, "terminated");
    terminated.wait("FANFAIL").await;
    terminated.signal(Signal::SIGTERM);
    terminated.is_restored(0).await;

    let interrupted = AtTerminal::start(&cluster, "interrupted");
    interrupted.wait("FANFAIL").await;
    interrupted.signal(Signal::SIGINT);
    interrupted.is_restored(130).await;
}
