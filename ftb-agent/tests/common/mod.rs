//! What the agent's tests share: agents in this process, and clients that speak the bare protocol.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod disk;
pub mod network;
pub mod process;

use ftb_agent::agent::Agent;
use ftb_agent::config::Config;
use ftb_agent::system;
use ftb_core::hostlist::fold;
use ftb_core::{Event, EventName, EventSpace, Severity};
use ftb_proto::event::encode_event;
use ftb_proto::v1::admin_client::AdminClient;
use ftb_proto::v1::clients_client::ClientsClient;
use ftb_proto::v1::{self, to_agent, to_client};
use ftb_transport::{BoxIo, Credentials};
use hyper_util::rt::TokioIo;
use network::MemoryNetwork;
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

/// How long to wait for a condition before a test fails. Only a failing run waits that long: a
/// machine may be slow.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Waits for something that must come.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("waited {PATIENCE:?} for {what}"),
    }
}

/// Looks at a condition until it holds.
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let look = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(what, look).await;
}

/// A lone agent on real sockets in a folder of its own.
pub struct Lone {
    pub agent: Agent,
    pub dir: tempfile::TempDir,
}

impl Lone {
    pub async fn start(extra: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("agent.sock");
        let text = format!(
            "cluster = \"test\"\nmembers = \"node01\"\nhost = \"node01\"\ninsecure = true\n\
             listen = \"127.0.0.1:0\"\nsocket = \"{}\"\n{extra}",
            socket.display()
        );
        let config = Config::parse("test", &text).unwrap();
        let agent = Agent::start(config, "node01", 0, system::world()).await.unwrap();
        Self { agent, dir }
    }

    pub fn socket(&self) -> std::path::PathBuf {
        self.dir.path().join("agent.sock")
    }

    pub async fn admin(&self) -> AdminClient<Channel> {
        let stream = tokio::net::UnixStream::connect(self.socket()).await.unwrap();
        AdminClient::new(channel_over(Box::new(stream)).await.unwrap())
    }

    pub async fn client(&self, name: &str) -> TestClient {
        let stream = tokio::net::UnixStream::connect(self.socket()).await.unwrap();
        TestClient::attach(Box::new(stream), name).await
    }

    pub fn counter(&self, name: &str) -> u64 {
        let counters = self.agent.peer_errors().counters();
        counters.iter().find(|(kind, _)| *kind == name).map_or(0, |(_, count)| *count)
    }
}

/// A client that speaks the bare protocol.
pub struct TestClient {
    pub to_agent: mpsc::Sender<v1::ToAgent>,
    pub from_agent: Streaming<v1::ToClient>,
    pub welcome: v1::ClientHelloAck,
    /// The sequence number of the next event.
    pub next_seq: u64,
    _channel: Channel,
}

impl TestClient {
    /// Says hello and waits for the welcome.
    pub async fn attach(io: BoxIo, name: &str) -> Self {
        let hello = v1::ClientHello {
            protocol: ftb_core::protocol::PROTOCOL.max,
            features: ftb_core::protocol::CLIENT_FEATURES.0,
            client_name: name.to_owned(),
            job_id: String::new(),
            token: 7,
            ..v1::ClientHello::default()
        };
        let (to_agent, mut from_agent, channel) = open(io, to_agent::Message::Hello(hello)).await;
        let first = soon("the welcome", from_agent.message()).await.unwrap().unwrap();
        let Some(to_client::Message::HelloAck(welcome)) = first.message else {
            panic!("no welcome: {first:?}")
        };
        Self { to_agent, from_agent, welcome, next_seq: 1, _channel: channel }
    }

    pub async fn say(&self, message: to_agent::Message) {
        self.to_agent.send(v1::ToAgent { message: Some(message) }).await.unwrap();
    }

    /// The next message; `None` at the end of the stream.
    pub async fn hear(&mut self) -> Option<to_client::Message> {
        let message = soon("a message of the agent", self.from_agent.message()).await;
        message.ok().flatten().and_then(|message| message.message)
    }

    /// Publishes INFO events with these payloads in one batch; gives the last sequence number.
    pub async fn publish(&mut self, space: &str, payloads: &[&str]) -> u64 {
        self.publish_all(payloads.iter().map(|payload| event(space, payload)).collect()).await
    }

    /// The same with encoded events.
    pub async fn publish_all(&mut self, events: Vec<bytes::Bytes>) -> u64 {
        let first_seq = self.next_seq;
        self.next_seq += events.len() as u64;
        self.say(to_agent::Message::Publish(v1::Publish {
            first_seq,
            events,
            again: false,
            confirm: 0,
        }))
        .await;
        self.next_seq - 1
    }

    /// Subscribes and waits until that is active; other messages on the way are dropped.
    pub async fn subscribe(&mut self, subscription: u32, filter: &str) {
        let filter = filter.to_owned();
        let wanted = v1::Subscribe { subscription, filter, ..v1::Subscribe::default() };
        self.say(to_agent::Message::Subscribe(wanted)).await;
        loop {
            match self.hear().await {
                Some(to_client::Message::Subscribed(s)) if s.subscription == subscription => return,
                Some(to_client::Message::Rejected(refused)) => panic!("{refused:?}"),
                Some(_) => {}
                None => panic!("the stream ended"),
            }
        }
    }

    /// Subscribes to everything that the log still holds, and to what comes.
    pub async fn subscribe_from_the_beginning(&mut self, subscription: u32, filter: &str) {
        let start = Some(v1::subscribe::Start::SinceNs(1));
        let wanted = v1::Subscribe {
            subscription,
            filter: filter.to_owned(),
            start,
            ..v1::Subscribe::default()
        };
        self.say(to_agent::Message::Subscribe(wanted)).await;
    }

    /// Waits until everything up to that sequence number is confirmed.
    pub async fn confirmed(&mut self, seq: u64) -> v1::ConfirmLevel {
        loop {
            match self.hear().await {
                Some(to_client::Message::Confirmed(confirmed)) if confirmed.seq >= seq => {
                    return confirmed.level();
                }
                Some(to_client::Message::Rejected(refused)) => panic!("{refused:?}"),
                Some(_) => {}
                None => panic!("the stream ended"),
            }
        }
    }

    /// The payloads of the next `count` events delivered, in order; gaps are a failure.
    pub async fn payloads(&mut self, count: usize) -> Vec<String> {
        let mut payloads = Vec::new();
        while payloads.len() < count {
            match self.hear().await {
                Some(to_client::Message::Deliver(deliver)) => {
                    payloads.extend(deliver.items.into_iter().flat_map(payloads_of));
                }
                Some(to_client::Message::Gap(gap)) => panic!("{gap:?}"),
                Some(_) => {}
                None => panic!("the stream ended"),
            }
        }
        payloads
    }
}

/// A gRPC channel over a stream that is there already; it never connects a second time.
pub async fn channel_over(io: BoxIo) -> std::io::Result<Channel> {
    let mut once = Some(TokioIo::new(io));
    let connector = tower::service_fn(move |_: tonic::codegen::http::Uri| {
        let io = once.take().ok_or(std::io::Error::from(std::io::ErrorKind::NotConnected));
        std::future::ready(io)
    });
    let endpoint = tonic::transport::Endpoint::from_static("http://agent");
    endpoint.connect_with_connector(connector).await.map_err(std::io::Error::other)
}

/// Opens a stream that begins with that message.
pub async fn open(
    io: BoxIo,
    first: to_agent::Message,
) -> (mpsc::Sender<v1::ToAgent>, Streaming<v1::ToClient>, Channel) {
    let channel = channel_over(io).await.unwrap();
    let (sender, receiver) = mpsc::channel(16);
    sender.send(v1::ToAgent { message: Some(first) }).await.unwrap();
    let mut client = ClientsClient::new(channel.clone());
    let attached = client.attach(ReceiverStream::new(receiver));
    let from_agent = soon("the stream", attached).await.unwrap().into_inner();
    (sender, from_agent, channel)
}

/// An encoded INFO event.
pub fn event(space: &str, payload: &str) -> bytes::Bytes {
    event_with(space, payload, Severity::Info)
}

/// An encoded event.
pub fn event_with(space: &str, payload: &str, severity: Severity) -> bytes::Bytes {
    let mut event =
        Event::new(EventSpace::new(space).unwrap(), EventName::new("TEST_EVENT").unwrap());
    event.severity = severity;
    // Long ago, but not before everything.
    event.time_ns = 1;
    event.payload = payload.to_owned().into();
    encode_event(&event)
}

/// The payloads of a delivered item.
pub fn payloads_of(item: v1::Item) -> Vec<String> {
    let payload = |bytes| {
        let sealed = ftb_proto::event::decode_sealed(bytes).unwrap();
        let received = ftb_proto::event::unseal(ftb_core::Position::ZERO, &sealed).unwrap();
        String::from_utf8(received.event.payload.to_vec()).unwrap()
    };
    item.sealed.into_iter().map(payload).collect()
}

/// Agents of one cluster in this process, over memory.
pub struct MemoryCluster {
    pub network: MemoryNetwork,
    pub hosts: Vec<String>,
    pub agents: Vec<Option<Agent>>,
    /// More of every agent's configuration.
    pub extra: &'static str,
    fanout: u32,
    /// This number of hosts, from the first, is in the member list.
    listed: usize,
    starts: u64,
}

/// Where a simulated agent listens for clients.
pub const MEMORY_SOCKET: &str = "/run/ftb/agent.sock";

impl MemoryCluster {
    /// All agents started, nothing waited for.
    pub async fn start(n: usize, fanout: u32) -> Self {
        Self::start_with(n, fanout, "").await
    }

    /// The same with more of a configuration.
    pub async fn start_with(n: usize, fanout: u32, extra: &'static str) -> Self {
        let hosts = (1..=n).map(|i| format!("node{i:04}")).collect();
        let agents = (0..n).map(|_| None).collect();
        let mut cluster = Self {
            network: MemoryNetwork::default(),
            hosts,
            agents,
            extra,
            fanout,
            listed: n,
            starts: 0,
        };
        for rank in 0..n {
            cluster.run(rank).await;
        }
        cluster
    }

    fn config(&self, rank: usize) -> Config {
        let text = format!(
            "cluster = \"test\"\nmembers = \"{}\"\nhost = \"{}\"\ninsecure = true\n\
             fanout = {}\nsocket = \"{MEMORY_SOCKET}\"\n{}",
            fold(self.hosts[..self.listed].iter().map(String::as_str)),
            self.hosts[rank],
            self.fanout,
            self.extra
        );
        Config::parse("test", &text).unwrap()
    }

    /// Starts the agent of that rank.
    pub async fn run(&mut self, rank: usize) {
        let host = &self.hosts[rank];
        self.starts += 1;
        let world = self.network.world(host, self.starts << 32);
        let agent = Agent::start(self.config(rank), host, 0, world).await.unwrap();
        self.agents[rank] = Some(agent);
    }

    /// Starts the agent of a host that is in no member list.
    pub async fn add_unlisted(&mut self) -> usize {
        let at = self.hosts.len();
        self.hosts.push(format!("guest{at:04}"));
        self.agents.push(None);
        self.run(at).await;
        at
    }

    /// Adds a host to every agent's configuration and starts its agent.
    pub async fn grow(&mut self) {
        let rank = self.hosts.len();
        self.hosts.push(format!("node{:04}", rank + 1));
        self.listed = self.hosts.len();
        self.reload().await;
        self.agents.push(None);
        self.run(rank).await;
    }

    /// All agents that run read their configuration again.
    pub async fn reload(&mut self) {
        for rank in 0..self.agents.len() {
            let config = self.config(rank);
            if let Some(agent) = &mut self.agents[rank] {
                agent.reload(config, 0).await;
            }
        }
    }

    pub fn crash(&mut self, rank: usize) {
        self.agents[rank].take().unwrap().crash();
    }

    pub fn agent(&self, rank: usize) -> &Agent {
        self.agents[rank].as_ref().unwrap()
    }

    /// What `ftbctl status` asks.
    pub async fn status(&self, rank: usize) -> v1::StatusReply {
        let root = Credentials { uid: 0, gid: 0, pid: 1 };
        let path = Path::new(MEMORY_SOCKET);
        let io = self.network.connect_client(&self.hosts[rank], path, root).await.unwrap();
        let mut admin = AdminClient::new(channel_over(io).await.unwrap());
        admin.status(v1::StatusRequest {}).await.unwrap().into_inner()
    }

    pub async fn client(&self, rank: usize, name: &str) -> TestClient {
        let root = Credentials { uid: 0, gid: 0, pid: 1 };
        let path = Path::new(MEMORY_SOCKET);
        let io = self.network.connect_client(&self.hosts[rank], path, root).await.unwrap();
        TestClient::attach(io, name).await
    }
}
