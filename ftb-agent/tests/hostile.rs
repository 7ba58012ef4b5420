//! Whatever comes to a socket, the agent lives, says so, and serves the others.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Lone, TestClient, event, open, soon, until};
use ftb_core::protocol::PROTOCOL;
use ftb_proto::v1::link_client::LinkClient;
use ftb_proto::v1::link_frame::Frame;
use ftb_proto::v1::{self, to_agent, to_client};
use ftb_tests::cluster::{Cluster, Plan, wait_for};
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_stream::StreamExt as _;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes that look random and are the same in every run.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// What an honest client sends first, cut off or damaged.
fn damaged(seed: u64) -> Vec<u8> {
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let mut bytes = [PREFACE, &settings].concat();
    match seed % 4 {
        0 => bytes = noise(seed, 1 + usize::try_from(seed).unwrap() * 37 % 4000),
        1 => bytes.extend(noise(seed, 500)),
        2 => bytes.truncate(1 + usize::try_from(seed).unwrap() % bytes.len()),
        // A frame that announces more than will come.
        _ => bytes.extend([0, 255, 255, 1, 4, 0, 0, 0, 1, 0x82]),
    }
    bytes
}

/// Sends bytes and waits until the agent has closed the connection.
async fn send_and_see_closed(mut io: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) {
    // The agent may close before it has read everything.
    let _ = io.write_all(bytes).await;
    let _ = io.shutdown().await;
    let mut answer = Vec::new();
    match soon("the agent to close", io.read_to_end(&mut answer)).await {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
}

async fn assert_lives(lone: &Lone) {
    let status = lone.admin().await.status(v1::StatusRequest {}).await.unwrap().into_inner();
    assert_eq!((status.cluster.as_str(), status.host.as_str()), ("test", "node01"));
}

#[tokio::test]
async fn random_and_truncated_streams_are_dropped_and_the_agent_lives() {
    let lone = Lone::start("[limits]\nhello = \"500ms\"\n").await;
    for seed in 0..60 {
        let bytes = damaged(seed);
        let tcp = TcpStream::connect(&lone.agent.address).await.unwrap();
        send_and_see_closed(tcp, &bytes).await;
        send_and_see_closed(UnixStream::connect(lone.socket()).await.unwrap(), &bytes).await;
    }
    until("each to be counted, once", async || {
        lone.counter("connection_malformed") + lone.counter("hello_late") == 120
    })
    .await;
    assert_lives(&lone).await;
    lone.agent.stop().await;
}

#[tokio::test]
async fn connections_that_never_speak_are_closed_at_the_deadline_and_counted() {
    let lone = Lone::start("[limits]\nhello = \"200ms\"\n").await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(TcpStream::connect(&lone.agent.address).await.unwrap());
    }
    for mut stream in silent {
        soon("the agent to close", stream.read_to_end(&mut Vec::new())).await.unwrap();
    }
    assert_eq!(lone.counter("hello_late"), 20);
    assert_lives(&lone).await;
}

#[tokio::test]
async fn a_flood_of_silent_connections_costs_only_its_own() {
    let lone = Lone::start("[limits]\nhello = \"1h\"\nwaiting_max = 8\n").await;
    let mut honest = lone.client("honest").await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(ftb_tests::unix::connect(&lone.socket()).await.unwrap());
    }
    // All but the bound are closed, the oldest first.
    for mut stream in silent.drain(..92) {
        soon("the agent to close", stream.read_to_end(&mut Vec::new())).await.unwrap();
    }
    assert_eq!(lone.counter("connections_evicted"), 92);
    let late = lone.client("late").await;
    assert_eq!(late.welcome.host, "node01");
    // The one that spoke before the flood still speaks.
    honest.say(to_agent::Message::Subscribe(bad_filter(1))).await;
    assert!(matches!(honest.hear().await, Some(to_client::Message::Rejected(_))));
}

#[tokio::test]
async fn clients_beyond_the_limit_get_the_reason() {
    let lone = Lone::start("[limits]\nclients_max = 2\n").await;
    // Root may publish in protected event spaces: places beyond the limit are kept for it.
    let mut clients = Vec::new();
    for place in 0..2 + ftb_transport::limiter::PUBLISHERS_SPARE {
        clients.push(lone.client(&format!("client{place}")).await);
    }
    let further = hello(&lone, "further").await;
    assert_eq!(further.code(), v1::RejectCode::Limit);
    assert!(further.message.contains('2'), "{}", further.message);
    drop(clients.pop());
    until("a place to be free", async || hello_succeeds(&lone).await).await;
}

#[tokio::test]
async fn another_protocol_or_name_is_rejected_with_a_code_for_programs() {
    let lone = Lone::start("").await;
    let next = PROTOCOL.max + 1;
    let nack = match try_hello(&lone, (next, next + 1), "x").await {
        to_client::Message::Nack(nack) => nack,
        other => panic!("{other:?}"),
    };
    assert_eq!(nack.code(), v1::RejectCode::Protocol);
    let both = format!("protocol {next} to {}, the agent of node01 speaks {PROTOCOL}", next + 1);
    assert!(nack.message.contains(&both), "{}", nack.message);
    assert_eq!(hello(&lone, &"n".repeat(64)).await.code(), v1::RejectCode::Limit);
    assert_eq!(hello(&lone, "a\nb").await.code(), v1::RejectCode::Limit);
}

#[tokio::test]
async fn clients_of_neighbouring_releases_are_accepted() {
    let lone = Lone::start("").await;
    let ours = PROTOCOL.max;
    for theirs in [(ours - 1, ours), (ours, ours), (ours, ours + 1)] {
        let answer = try_hello(&lone, theirs, "neighbour").await;
        let to_client::Message::HelloAck(ack) = answer else { panic!("{answer:?}") };
        assert_eq!((ack.protocol, ack.features), (ours, 0), "{theirs:?}");
    }
}

#[tokio::test]
async fn what_is_wrong_in_a_stream_is_refused_and_the_stream_goes_on() {
    let lone =
        Lone::start("[limits]\npayload_bytes_max = 10\nsubscriptions_per_client_max = 1\n").await;
    let mut client = lone.client("test").await;
    client.say(to_agent::Message::Subscribe(bad_filter(4))).await;
    let refused = refusal(&mut client).await;
    assert_eq!(
        (refused.code(), refused.what),
        (v1::RejectCode::Filter, Some(v1::rejected::What::Subscription(4)))
    );
    assert!(refused.message.contains("column"), "{}", refused.message);

    let publish = |first_seq, events| {
        to_agent::Message::Publish(v1::Publish { first_seq, events, again: false, confirm: 0 })
    };
    client.say(publish(1, vec![event("site", "01234567890")])).await;
    let refused = refusal(&mut client).await;
    assert_eq!(refused.what, only(1));
    assert!(refused.message.contains("11 bytes: at most 10"), "{}", refused.message);

    client.say(publish(2, vec![event("ftb.agent", "forged")])).await;
    let refused = refusal(&mut client).await;
    assert_eq!((refused.code(), refused.what), (v1::RejectCode::Denied, only(2)));

    client.say(publish(3, vec![bytes::Bytes::from_static(b"\xff\xff\xff")])).await;
    assert_eq!(refusal(&mut client).await.code(), v1::RejectCode::Malformed);

    // A second hello is no mistake of an honest client: it ends the stream.
    client.say(to_agent::Message::Hello(v1::ClientHello::default())).await;
    until("the rejection", async || {
        matches!(client.hear().await, Some(to_client::Message::Nack(_)))
    })
    .await;
    until("the end of the stream", async || client.hear().await.is_none()).await;
    assert_lives(&lone).await;
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_loses_only_its_own_events_and_gets_a_gap() {
    const BATCHES: usize = 100;
    let lone = Lone::start("[limits]\nlag_bytes = 65536\nlog_bytes = 1048576\n").await;
    let mut stuck = lone.client("stuck").await;
    stuck.subscribe(1, "event_space=site").await;
    let mut reader = lone.client("reader").await;
    reader.subscribe(1, "event_space=site").await;
    let mut publisher = lone.client("publisher").await;
    let payload = "x".repeat(2000);
    // Far more than the sockets and the gRPC streams between the agent and the stuck one hold.
    let batch = [payload.as_str(); 50];
    for _ in 0..BATCHES {
        let last = publisher.publish("site", &batch).await;
        assert_eq!(reader.payloads(batch.len()).await.len(), batch.len());
        publisher.confirmed(last).await;
    }
    let (mut delivered, mut reported) = (0, 0);
    while delivered + reported < BATCHES * batch.len() {
        match stuck.hear().await {
            Some(to_client::Message::Deliver(deliver)) => {
                delivered += deliver.items.iter().map(|item| item.sealed.len()).sum::<usize>();
            }
            Some(to_client::Message::Gap(gap)) => {
                reported += usize::try_from(gap.gap.unwrap().count()).unwrap();
            }
            Some(_) => {}
            None => panic!("the stream ended"),
        }
    }
    assert_eq!(delivered + reported, BATCHES * batch.len());
    assert!(reported > 0, "nothing was shed");
}

fn bad_filter(subscription: u32) -> v1::Subscribe {
    v1::Subscribe { subscription, filter: "severity>=loud".to_owned(), ..v1::Subscribe::default() }
}

/// The event with that sequence number.
fn only(seq: u64) -> Option<v1::rejected::What> {
    Some(v1::rejected::What::Events(v1::SeqRange { first: seq, last: seq }))
}

async fn refusal(client: &mut TestClient) -> v1::Rejected {
    loop {
        match client.hear().await {
            Some(to_client::Message::Rejected(refused)) => return refused,
            Some(_) => {}
            None => panic!("the stream ended"),
        }
    }
}

/// Says hello and gives the rejection that must be the answer.
async fn hello(lone: &Lone, name: &str) -> v1::ClientNack {
    match try_hello(lone, (PROTOCOL.min, PROTOCOL.max), name).await {
        to_client::Message::Nack(nack) => nack,
        other => panic!("{other:?}"),
    }
}

async fn hello_succeeds(lone: &Lone) -> bool {
    let answer = try_hello(lone, (PROTOCOL.min, PROTOCOL.max), "again").await;
    matches!(answer, to_client::Message::HelloAck(_))
}

async fn try_hello(lone: &Lone, versions: (u32, u32), name: &str) -> to_client::Message {
    let stream = UnixStream::connect(lone.socket()).await.unwrap();
    let client_name = name.to_owned();
    let hello = v1::ClientHello {
        protocol: versions.1,
        protocol_min: Some(versions.0),
        client_name,
        token: 1,
        ..v1::ClientHello::default()
    };
    let (_sender, mut answers, _channel) =
        open(Box::new(stream), to_agent::Message::Hello(hello)).await;
    soon("an answer", answers.message()).await.unwrap().unwrap().message.unwrap()
}

#[tokio::test]
async fn a_flood_of_pings_ends_its_connection_and_no_other() {
    const PINGS: usize = 100_000;
    let lone = Lone::start("").await;
    let mut honest = lone.client("honest").await;
    honest.subscribe(1, "event_space=site").await;
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    for asks in [ping.repeat(PINGS), settings.repeat(PINGS)] {
        let before = lone.counter("control_flood");
        let stream = UnixStream::connect(lone.socket()).await.unwrap();
        let (mut from, mut to) = stream.into_split();
        let flood = tokio::spawn(async move {
            // The agent closes before it has read everything.
            let _ = to.write_all(&[PREFACE, &settings, &asks].concat()).await;
            to
        });
        let mut answers = Vec::new();
        // What it has not read makes a reset of the end.
        let _ = soon("the agent to close", from.read_to_end(&mut answers)).await;
        drop(flood.await.unwrap());
        let last = answers.windows(14).rev().find(|words| words == b"too_many_pings");
        assert!(last.is_some(), "no GOAWAY among {} bytes", answers.len());
        assert_eq!(lone.counter("control_flood"), before + 1);
    }
    // Few are answered, on a connection that goes on.
    let mut stream = UnixStream::connect(lone.socket()).await.unwrap();
    stream.write_all(&[PREFACE, &settings, &ping.repeat(50)].concat()).await.unwrap();
    let mut answers = vec![0; ping.len() * 50];
    soon("answers", stream.read_exact(&mut answers)).await.unwrap();
    honest.publish("site", &["still here"]).await;
    assert_eq!(honest.payloads(1).await, ["still here"]);
    assert_lives(&lone).await;
}

/// The host that the hostile peer claims to be: it is listed, and no agent runs there.
const CLAIMED: &str = "node03";
/// In range on the wire, and above everything that a cluster can have reached.
const IMPLAUSIBLE: u64 = 1 << 61;

/// A hello that an agent accepts, of incarnation `origin`.
fn agent_hello(origin: u64) -> v1::LinkHello {
    let since_1970 = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    v1::LinkHello {
        protocol: PROTOCOL.max,
        protocol_min: Some(PROTOCOL.min),
        cluster: "test".to_owned(),
        host: CLAIMED.to_owned(),
        rank: Some(2),
        address: "127.0.0.1:1".to_owned(),
        origin,
        interest: Some(v1::Interest::default()),
        wall_ns: u64::try_from(since_1970.as_nanos()).unwrap(),
        ..v1::LinkHello::default()
    }
}

/// Sends a hello to an agent, then another frame if the agent accepts the hello. Returns the answer
/// to the hello, once the agent has ended the link.
async fn link(address: &str, hello: v1::LinkHello, then: Option<Frame>) -> Option<Frame> {
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{address}")).unwrap();
    let mut client = LinkClient::new(endpoint.connect().await.unwrap());
    let (sender, frames) = tokio::sync::mpsc::channel(4);
    let frame = |frame| v1::LinkFrame { frame: Some(frame) };
    sender.send(frame(Frame::Hello(hello))).await.unwrap();
    let frames = tokio_stream::wrappers::ReceiverStream::new(frames);
    // A malformed hello may end the connection before the stream is open.
    let mut answers = soon("the stream", client.exchange(frames)).await.ok()?.into_inner();
    let answer = soon("an answer", answers.next()).await;
    let answer = answer.and_then(Result::ok).and_then(|answer| answer.frame);
    if let (Some(Frame::HelloAck(_)), Some(then)) = (&answer, then) {
        sender.send(frame(then)).await.unwrap();
    }
    // `sender` lives: only the agent ends the link.
    soon("the end of the link", async { while let Some(Ok(_)) = answers.next().await {} }).await;
    answer
}

/// Hellos with a number that no agent can have reached.
fn bad_hellos(number: u64) -> Vec<v1::LinkHello> {
    let epoch = Some(v1::Epoch { number: 1, root: 1 });
    let segment = |epoch, first| vec![v1::Segment { epoch, first, incomplete: false }];
    let high = Some(v1::Epoch { number, root: 1 });
    let hello = || agent_hello(1);
    vec![
        v1::LinkHello { epoch_seen: number, ..hello() },
        v1::LinkHello { epochs: segment(high, 1), ..hello() },
        v1::LinkHello { epochs: segment(epoch, number), ..hello() },
        v1::LinkHello { commit_index: number, ..hello() },
        v1::LinkHello { log_range: Some(v1::LogRange { after: 0, until: number }), ..hello() },
    ]
}

/// Frames of a child with such a number, which an agent would count on from.
fn bad_frames(number: u64) -> Vec<Frame> {
    let epoch = Some(v1::Epoch { number: 1, root: 1 });
    let high = Some(v1::Epoch { number, root: 1 });
    let beat = v1::LinkHeartbeat::default;
    let fork = |epoch, until| {
        let fork = Some(v1::Fork { epoch, until, re_proposed: false });
        let items = vec![v1::UpItem { fork, ..v1::UpItem::default() }];
        Frame::Up(v1::UpBatch { origin: 1, run: 1, base: 1, first: 1, items, wants_disk: false })
    };
    vec![
        Frame::Heartbeat(v1::LinkHeartbeat { epoch: high, epoch_seen: 1, ..beat() }),
        Frame::Heartbeat(v1::LinkHeartbeat { epoch, epoch_seen: number, ..beat() }),
        Frame::Heartbeat(v1::LinkHeartbeat { covered: number, epoch, epoch_seen: 1, ..beat() }),
        Frame::Resume(v1::Resume { epoch, after: number }),
        Frame::Resume(v1::Resume { epoch: high, after: 0 }),
        fork(epoch, number),
        fork(high, 1),
    ]
}

/// Frames with numbers that overflow when the agent counts on from them.
fn overflowing_frames() -> Vec<Frame> {
    let epoch = Some(v1::Epoch { number: 1, root: 1 });
    let max = u64::MAX;
    let up = |run, base, first| {
        let fork = Some(v1::Fork { epoch, until: 1, re_proposed: false });
        let items = vec![v1::UpItem { fork, ..v1::UpItem::default() }];
        Frame::Up(v1::UpBatch { origin: 1, run, base, first, items, wants_disk: false })
    };
    let bounds = vec![1, max];
    let publishers = vec![v1::PublisherDedupRanges { account: 1, token: 1, bounds }];
    let filters = Vec::new();
    vec![
        up(max, 1, 1),
        up(1, max, max),
        up(1, 1, max),
        up(1, 2, 1),
        Frame::Subscribe(v1::Interest { version: max, filters, ..v1::Interest::default() }),
        Frame::DedupRanges(v1::DedupRanges { publishers }),
        Frame::ReplicaAck(v1::ReplicaAck {
            epoch,
            index: max,
            copy: 1,
            kept_from: Some(max),
            synced: None,
        }),
        Frame::HistoryRequest(v1::HistoryRequest { epoch, after: max, ..Default::default() }),
    ]
}

/// Waits until the log of rank 0 has a line with all these words behind `begin`.
async fn logged(cluster: &Cluster, begin: usize, words: &[&str]) {
    let what = format!("a log line with {words:?}");
    let found = wait_for(&what, async || {
        let log = cluster.log(0);
        let has_all = |line: &str| words.iter().all(|word| line.contains(word));
        Ok(log[begin..].lines().any(has_all).then_some(()))
    });
    found.await.unwrap_or_else(|error| panic!("{error}\n{}", cluster.logs()));
}

fn keep_journal(config: &Path, folder: &Path) {
    let mut file = std::fs::File::options().append(true).open(config).unwrap();
    write!(file, "\n[journal]\npath = \"{}\"\n", folder.display()).unwrap();
}

/// Processes with journals, and a peer that claims to be one of them: each link with a number out
/// of range ends with a clear log line. The cluster continues, and its journals stay good.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_with_epochs_and_indices_out_of_range_harms_neither_cluster_nor_journal() {
    let mut cluster = Plan::new(3, 2).prepare().unwrap();
    for rank in 0..2 {
        keep_journal(cluster.config(rank), &cluster.dir().join(format!("journal{rank}")));
        cluster.run(rank).unwrap();
    }
    cluster.wait_safe().await.unwrap();
    let client = async |rank| {
        let stream = UnixStream::connect(cluster.socket(rank)).await.unwrap();
        TestClient::attach(Box::new(stream), "test").await
    };
    let mut publisher = client(1).await;
    let last = publisher.publish("site", &["before"]).await;
    publisher.confirmed(last).await;
    let address = cluster.address(0).unwrap();
    let out_of_range = "out of range";
    for (number, is_answered) in [(IMPLAUSIBLE, true), (u64::MAX, false)] {
        for hello in bad_hellos(number) {
            let begin = cluster.log(0).len();
            let what = format!("{hello:?}");
            let answer = link(&address, hello, None).await;
            match answer {
                Some(Frame::HelloNack(nack)) if is_answered => {
                    assert_eq!(nack.code(), v1::NackCode::Epoch, "{what}");
                    assert!(nack.message.contains(out_of_range), "{}", nack.message);
                }
                None if !is_answered => {}
                other => panic!("{what}: {other:?}\n{}", cluster.logs()),
            }
            logged(&cluster, begin, &[out_of_range]).await;
        }
    }
    let frames = [bad_frames(IMPLAUSIBLE), bad_frames(u64::MAX), overflowing_frames()].concat();
    for (origin, frame) in (2..).zip(frames) {
        let begin = cluster.log(0).len();
        let what = format!("{frame:?}");
        let answer = link(&address, agent_hello(origin), Some(frame)).await;
        let Some(Frame::HelloAck(_)) = answer else {
            panic!("{what}: {answer:?}\n{}", cluster.logs());
        };
        logged(&cluster, begin, &[CLAIMED, out_of_range]).await;
    }
    for rank in 0..2 {
        let status = cluster.status(rank).await.unwrap();
        assert!(status.epoch < 10 && status.index < 1_000, "{status:?}");
    }
    let last = publisher.publish("site", &["after"]).await;
    publisher.confirmed(last).await;
    drop(publisher);
    // The log returns from the journals alone.
    for rank in 0..2 {
        cluster.crash(rank).unwrap();
    }
    for rank in 0..2 {
        cluster.run(rank).unwrap();
    }
    cluster.wait_safe().await.unwrap();
    for rank in 0..2 {
        let stream = UnixStream::connect(cluster.socket(rank)).await.unwrap();
        let mut reader = TestClient::attach(Box::new(stream), "reader").await;
        reader.subscribe_from_the_beginning(1, "event_space=site").await;
        assert_eq!(reader.payloads(2).await, ["before", "after"]);
        let log = cluster.log(rank);
        let is_damaged = ["journal damaged", "set aside"].iter().any(|word| log.contains(word));
        assert!(!is_damaged, "{}", cluster.logs());
    }
}
