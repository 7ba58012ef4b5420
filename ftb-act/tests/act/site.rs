//! A cluster, an ftb-act, and a web server that keeps what it gets.

use ftb_client::{Client, Condition, Severity, Truth, event};
use ftb_tests::cluster::{Cluster, Plan, binary, wait_for};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::fs;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

pub(crate) const ACT: &str = env!("CARGO_BIN_EXE_ftb-act");
const SPACE: &str = "ftb.ipmi";

/// A web server that answers with a status, and what it got: header and body.
pub(crate) struct Pager {
    pub(crate) address: String,
    got: Arc<Mutex<Vec<(String, String)>>>,
    status: Arc<Mutex<u16>>,
    refusals: Arc<Mutex<Vec<String>>>,
}

impl Pager {
    pub(crate) fn start() -> Self {
        Self::start_with(None)
    }

    /// One that speaks TLS alone.
    pub(crate) fn secure(tls: ServerConfig) -> Self {
        Self::start_with(Some(Arc::new(tls)))
    }

    fn start_with(tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let pager = Self {
            address,
            got: Arc::default(),
            status: Arc::new(Mutex::new(200)),
            refusals: Arc::default(),
        };
        let (got, status) = (Arc::clone(&pager.got), Arc::clone(&pager.status));
        let refusals = Arc::clone(&pager.refusals);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                // A client that is killed may be gone.
                let _ = match &tls {
                    None => serve(stream, &got, &status),
                    Some(tls) => {
                        let session = ServerConnection::new(Arc::clone(tls)).unwrap();
                        let served = serve(StreamOwned::new(session, stream), &got, &status);
                        let refusal = served.as_ref().err().map(ToString::to_string);
                        refusals.lock().unwrap().extend(refusal);
                        served
                    }
                };
            }
        });
        pager
    }

    /// Why connections have ended without a request.
    pub(crate) fn refusals(&self) -> Vec<String> {
        self.refusals.lock().unwrap().clone()
    }

    pub(crate) fn answer(&self, status: u16) {
        *self.status.lock().unwrap() = status;
    }

    /// Keys and bodies of the requests so far.
    pub(crate) fn requests(&self) -> Vec<(String, serde_json::Value)> {
        let got = self.got.lock().unwrap();
        got.iter().map(|(key, body)| (key.clone(), serde_json::from_str(body).unwrap())).collect()
    }
}

fn serve(
    stream: impl Read + Write,
    got: &Mutex<Vec<(String, String)>>,
    status: &Mutex<u16>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut length, mut key) = (0, String::new());
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim();
        if line.is_empty() {
            break;
        }
        match line.to_ascii_lowercase().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().unwrap(),
            Some(("idempotency-key", value)) => key = value.to_owned(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let status = *status.lock().unwrap();
    got.lock().unwrap().push((key, String::from_utf8(body).unwrap()));
    let stream = reader.get_mut();
    write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")?;
    stream.flush()
}

pub(crate) struct Site {
    pub(crate) act: Option<Child>,
    pub(crate) client: Client,
    pub(crate) config: PathBuf,
    pub(crate) cluster: Cluster,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Site {
    pub(crate) async fn new(rules: &str) -> Self {
        Self::of(Plan::new(2, 2).start().await.unwrap(), rules)
    }

    /// At the first agent of a cluster.
    pub(crate) fn of(cluster: Cluster, rules: &str) -> Self {
        Self::at(0, cluster, rules)
    }

    /// At an agent of a cluster.
    pub(crate) fn at(rank: usize, cluster: Cluster, rules: &str) -> Self {
        let config = cluster.dir().join("act.toml");
        let racks = cluster.dir().join("racks.toml");
        fs::write(&racks, "r1 = \"n[01-16]\" # the first\nr2 = \"n[17-32]\"\n").unwrap();
        let head = format!(
            "agent_socket = {:?}\nstate = {:?}\nracks = {racks:?}\n\
             [breaker]\nhosts = 8\npercent = 100\n\
             [[profile]]\nhosts = \"n[01-32]\"\nmode = \"act\"\n",
            cluster.socket(rank),
            cluster.dir().join("act-state"),
        );
        fs::write(&config, format!("{head}{rules}")).unwrap();
        let client = Client::builder("site").agent(cluster.socket(rank)).build().unwrap();
        Self { act: None, client, config, cluster }
    }

    pub(crate) fn act(&self, words: &[&str]) -> Output {
        Command::new(ACT).args(words).arg("--config").arg(&self.config).output().unwrap()
    }

    pub(crate) fn start(&mut self) {
        self.start_as(Command::new(ACT));
    }

    /// Starts it with this program, which becomes ftb-act.
    pub(crate) fn start_as(&mut self, mut command: Command) {
        let log = self.cluster.dir().join("act.log");
        let log = fs::File::options().create(true).append(true).open(log).unwrap();
        command.arg("run").arg("--config").arg(&self.config).stdin(Stdio::null());
        self.act = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut act) = self.act.take() {
            // It may have ended by itself; there is nothing to do then.
            let _ = act.kill();
            let _ = act.wait();
        }
    }

    pub(crate) async fn state(&self, host: &str, key: &str, truth: Truth) {
        let condition =
            Condition { host: host.to_owned(), is_kept: true, ..Condition::new(key, truth) };
        let event = event(SPACE, "FTB_TEST").unwrap().severity(Severity::Error);
        self.client.publish(event.condition(condition)).unwrap().confirmed().await.unwrap();
    }

    pub(crate) async fn wait<T>(&self, what: &str, condition: impl AsyncFnMut() -> Option<T>) -> T {
        let mut condition = condition;
        let found = wait_for(what, async || Ok(condition().await)).await;
        found.unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.cluster.dir().join("act.log")).unwrap_or_default()
    }

    /// Orders on disk in this stage.
    pub(crate) fn orders(&self, stage: &str) -> usize {
        let output = self.act(&["status", "--json"]);
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let orders = status["orders"].as_array().cloned().unwrap_or_default();
        orders.iter().filter(|order| order["stage"] == stage).count()
    }

    /// The hosts that are out of service, as ftbctl shows them.
    pub(crate) fn out_of_service(&self) -> String {
        let mut command = Command::new(binary("ftbctl", "ftbctl").unwrap());
        command.arg("--agent").arg(self.cluster.socket(1));
        let output = command.args(["conditions", "--key", "OUT_OF_SERVICE"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A program that does something first, writes a line, then does more.
    pub(crate) fn program(&self, name: &str, first: &str, more: &str) -> (PathBuf, PathBuf) {
        let (path, lines) =
            (self.cluster.dir().join(name), self.cluster.dir().join(format!("{name}.lines")));
        let text = format!("#!/bin/sh\n{first}\necho \"$*\" $$ >>{}\n{more}\n", lines.display());
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        (path, lines)
    }

    pub(crate) fn add(&self, rule: &str) {
        let mut file = fs::File::options().append(true).open(&self.config).unwrap();
        file.write_all(rule.as_bytes()).unwrap();
    }
}
