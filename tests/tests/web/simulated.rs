//! A server with the files of the page and the documents of a large cluster, in the shape of an
//! agent's: thousands of nodes, and as many events as wanted.

use ftb_agent::monitor::page::FILES;
use ftb_proto::json::AgentObject;
use ftb_proto::v1;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(10);
const FANOUT: u32 = 16;

/// The server.
pub(crate) struct Simulated {
    pub(crate) address: String,
    shared: Arc<Shared>,
}

struct Shared {
    nodes: u32,
    per_s: u64,
    sent: AtomicU64,
    stop: AtomicBool,
}

impl Drop for Simulated {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(&self.address);
    }
}

impl Simulated {
    /// Serves this number of nodes, and each stream of events at that rate.
    pub(crate) fn start(nodes: u32, per_s: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            nodes,
            per_s,
            sent: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.stop.load(Ordering::Acquire) {
                    return;
                }
                let shared = Arc::clone(&serving);
                // A browser that closes a connection is no failure.
                std::thread::spawn(move || stream.and_then(|stream| shared.answer(stream)));
            }
        });
        Self { address, shared }
    }

    /// Events that were sent on all streams.
    pub(crate) fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Acquire)
    }
}

pub(crate) fn host(rank: u32) -> String {
    format!("node{:04}", rank + 1)
}

impl Shared {
    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        while reader.read_line(&mut line)? > 2 {}
        let path = target.split('?').next().unwrap_or_default();
        let (kind, body) = match path {
            "/page/about.json" => ("application/json", about().to_string()),
            "/page/tree.json" => ("application/json", self.tree()),
            "/page/conditions.json" => ("application/json", self.conditions().to_string()),
            "/page/events" => return self.events(stream, target.contains("ftb.jl")),
            _ => match FILES.iter().find(|(known, ..)| *known == path) {
                Some((_, kind, text)) => (*kind, (*text).to_owned()),
                None => ("text/plain", String::new()),
            },
        };
        write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        )
    }

    fn tree(&self) -> String {
        let nodes: Vec<v1::TreeNode> = (0..self.nodes).map(node).collect();
        let nodes: Vec<AgentObject<'_>> = nodes.iter().map(AgentObject::from).collect();
        json!({ "complete": true, "nodes": nodes }).to_string()
    }

    fn conditions(&self) -> Value {
        let bad = (0..self.nodes).filter(|rank| rank % 97 == 13);
        let rows: Vec<Value> = bad.map(|rank| condition(&host(rank), rank)).collect();
        json!({ "complete": true, "hidden": 0, "conditions": rows })
    }

    fn events(&self, mut stream: TcpStream, is_silent: bool) -> std::io::Result<()> {
        stream.write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n:\n\n",
        )?;
        let begun = Instant::now();
        let mut sent = 0;
        while !self.stop.load(Ordering::Acquire) {
            std::thread::sleep(TICK);
            let due = begun.elapsed().as_millis() as u64 * self.per_s / 1000;
            if is_silent {
                continue;
            }
            let mut text = String::new();
            for number in sent..due {
                let event = event(number, self.nodes);
                text.push_str(&format!("event: event\nid: 1.{number}\ndata: {event}\n\n"));
            }
            stream.write_all(text.as_bytes())?;
            self.sent.fetch_add(due - sent, Ordering::AcqRel);
            sent = due;
        }
        Ok(())
    }
}

fn about() -> Value {
    json!({
        "cluster": "simulated", "host": host(0), "version": env!("CARGO_PKG_VERSION"),
        "shows_jobs": true, "now_ns": 0, "racks": [],
    })
}

fn node(rank: u32) -> v1::TreeNode {
    let state = match rank % 512 {
        200 => v1::MemberState::Lost,
        300 => v1::MemberState::Dead,
        400 => v1::MemberState::Absent,
        _ => v1::MemberState::Up,
    };
    let mut node = v1::TreeNode {
        rank,
        host: host(rank),
        parent: rank.checked_sub(1).map(|above| above / FANOUT),
        since_ns: Some(1_790_000_000_000_000_000),
        ..v1::TreeNode::default()
    };
    node.set_state(state);
    if state == v1::MemberState::Up {
        node.set_role(if rank == 0 { v1::AgentRole::Root } else { v1::AgentRole::Member });
    }
    node
}

/// A row as an agent serves it.
pub(crate) fn condition(host: &str, number: u32) -> Value {
    let severity = ["WARNING", "ERROR", "FATAL"][number as usize % 3];
    json!({
        "type": "condition", "host": host, "component": "CPU 1 FAN", "key": "FANFAIL",
        "state": "true", "severity": severity, "action": "migrate",
        "onset_ns": 1_790_000_000_000_000_000_u64, "changed_ns": 1_790_000_000_000_000_000_u64,
        "expires_ms": null, "event": "FTB_IPMI_FANFAIL", "source": "ab.1", "publisher_host": host,
        "publisher_uid": 0, "message": "a fan stands still", "position": "1.1",
    })
}

/// An event as an agent serves it.
pub(crate) fn event(number: u64, nodes: u32) -> Value {
    let now_ns = ftb_client::now_ns();
    let severity = ["INFO", "INFO", "INFO", "ERROR"][number as usize % 4];
    json!({
        "type": "event", "position": format!("1.{number}"), "id": format!("ab{number:x}.1"),
        "host": host((number % u64::from(nodes)) as u32), "uid": 0, "pid": 4711,
        "time": "2026-11-28T12:00:00Z", "time_ns": now_ns, "count": 1, "first_time_ns": now_ns,
        "severity": severity,
        "space": "ftb.ipmi", "name": "FTB_IPMI_FANFAIL", "client": "ftb-ipmi", "job_id": "",
        "response": false, "response_to": null,
        "tags": { "node": "node0001", "sensor": "CPU 1 FAN" }, "payload": format!("fan {number}"),
    })
}
