//! Attacks on HTTP/2 that are known by name: each ends its own connection, or costs it its own
//! events, and no other.
#![allow(clippy::unwrap_used)]

mod common;

use bytes::{BufMut as _, Bytes, BytesMut};
use common::{Lone, TestClient, soon};
use ftb_core::protocol::{CLIENT_FEATURES, PROTOCOL};
use ftb_proto::v1::{self, to_agent, to_client};
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;
/// Error code 11 of HTTP/2.
const ENHANCE_YOUR_CALM: u32 = 11;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The header block of a request to attach, without indexing and Huffman codes.
fn request() -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    let fields = [
        (":path", "/ftb.v1.Clients/Attach"),
        (":authority", "agent"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    for (name, value) in fields {
        block.put_u8(0);
        for text in [name, value] {
            block.put_u8(u8::try_from(text.len()).unwrap());
            block.put_slice(text.as_bytes());
        }
    }
    block
}

/// Writes all of it while reading; gives what the agent sent until it closed.
async fn flood(lone: &Lone, bytes: Vec<u8>) -> Vec<u8> {
    let (mut from, mut to) = UnixStream::connect(lone.socket()).await.unwrap().into_split();
    let writing = tokio::spawn(async move {
        // The agent closes before it has read everything.
        let _ = to.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[]), &bytes].concat()).await;
        to
    });
    let mut answers = Vec::new();
    let _ = soon("the agent to close", from.read_to_end(&mut answers)).await;
    drop(writing.await.unwrap());
    answers
}

/// The error code of the last GOAWAY frame.
fn goaway(mut answers: &[u8]) -> Option<u32> {
    let mut code = None;
    while let Some((head, rest)) = answers.split_first_chunk::<9>() {
        let len = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let Some((payload, rest)) = rest.split_at_checked(len) else { break };
        if head[3] == GOAWAY {
            code = payload[4..].first_chunk().map(|code| u32::from_be_bytes(*code));
        }
        answers = rest;
    }
    code
}

async fn assert_serves(honest: &mut TestClient) {
    honest.publish("site", &["still here"]).await;
    assert_eq!(honest.payloads(1).await, ["still here"]);
}

async fn honest(lone: &Lone) -> TestClient {
    let mut honest = lone.client("honest").await;
    honest.subscribe(1, "event_space=site").await;
    honest
}

/// CVE-2023-44487: requests that are cancelled at once, without end.
#[tokio::test]
async fn a_rapid_reset_ends_its_connection_and_no_other() {
    const REQUESTS: u32 = 50_000;
    let lone = Lone::start("").await;
    let mut honest = honest(&lone).await;
    let mut bytes = Vec::new();
    for stream in (1..2 * REQUESTS).step_by(2) {
        bytes.extend(frame(HEADERS, END_HEADERS, stream, &request()));
        bytes.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }
    assert_eq!(goaway(&flood(&lone, bytes).await), Some(ENHANCE_YOUR_CALM));
    assert_serves(&mut honest).await;
}

/// CVE-2024-27316: a header block that never ends.
#[tokio::test]
async fn a_flood_of_continuation_frames_ends_its_connection_and_no_other() {
    const FRAMES: usize = 100_000;
    let lone = Lone::start("").await;
    let mut honest = honest(&lone).await;
    let field = [&b"\x00\x01a\x7f\x81\x07"[..], &[b'x'; 1_024]].concat();
    for fragment in [&field[..], &[]] {
        let more = frame(CONTINUATION, 0, 1, fragment).repeat(FRAMES);
        let bytes = [frame(HEADERS, 0, 1, &request()), more].concat();
        assert_eq!(goaway(&flood(&lone, bytes).await), Some(ENHANCE_YOUR_CALM));
    }
    assert_serves(&mut honest).await;
}

/// A message of a client in a DATA frame.
fn message(message: to_agent::Message) -> Bytes {
    let encoded = v1::ToAgent { message: Some(message) }.encode_to_vec();
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(encoded.len()).unwrap());
    bytes.put_slice(&encoded);
    bytes.freeze()
}

/// A subscriber that never opens its window: what waits for it is bounded, other subscribers get
/// everything, and when it opens, it gets the rest and a gap.
#[tokio::test]
async fn a_window_of_zero_bytes_costs_only_its_own_events() {
    const BATCHES: usize = 100;
    let lone = Lone::start("[limits]\nlag_bytes = 65536\nlog_bytes = 1048576\n").await;
    let mut reader = honest(&lone).await;
    let mut publisher = lone.client("publisher").await;
    let hello = v1::ClientHello {
        protocol: PROTOCOL.max,
        protocol_min: Some(PROTOCOL.min),
        features: CLIENT_FEATURES.0,
        client_name: "stuck".to_owned(),
        token: 9,
        ..v1::ClientHello::default()
    };
    let filter = "event_space=site".to_owned();
    let wanted = v1::Subscribe { subscription: 1, filter, ..v1::Subscribe::default() };
    let words = [
        frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]),
        frame(HEADERS, END_HEADERS, 1, &request()),
        frame(DATA, 0, 1, &message(to_agent::Message::Hello(hello))),
        frame(DATA, 0, 1, &message(to_agent::Message::Subscribe(wanted))),
    ];
    let mut stuck = UnixStream::connect(lone.socket()).await.unwrap();
    stuck.write_all(&[PREFACE, &words.concat()].concat()).await.unwrap();
    common::until("the subscription", async || {
        let status = lone.admin().await.status(v1::StatusRequest {}).await.unwrap().into_inner();
        status.clients.iter().any(|client| client.name == "stuck" && !client.filters.is_empty())
    })
    .await;
    let payload = "x".repeat(2_000);
    let batch = [payload.as_str(); 50];
    for _ in 0..BATCHES {
        let last = publisher.publish("site", &batch).await;
        assert_eq!(reader.payloads(batch.len()).await.len(), batch.len());
        publisher.confirmed(last).await;
    }
    // The largest window, for the connection and for the stream.
    let open = 0x7fff_0000_u32.to_be_bytes();
    stuck.write_all(&[frame(8, 0, 0, &open), frame(8, 0, 1, &open)].concat()).await.unwrap();
    let (delivered, missing) = counted(&mut stuck, BATCHES * batch.len()).await;
    println!("{delivered} delivered, {missing} in gaps");
    assert!(missing > 0, "nothing was shed");
}

/// Reads DATA frames until that number of events was delivered or reported as missing.
async fn counted(stream: &mut UnixStream, events: usize) -> (usize, usize) {
    let (mut delivered, mut missing) = (0, 0);
    let mut bytes = BytesMut::new();
    while delivered + missing < events {
        let mut head = [0; 9];
        soon("a frame", stream.read_exact(&mut head)).await.unwrap();
        let len = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; len];
        soon("its payload", stream.read_exact(&mut payload)).await.unwrap();
        if head[3] != DATA {
            continue;
        }
        bytes.put_slice(&payload);
        while let Some(len) = bytes.get(1..5).and_then(<[u8]>::first_chunk) {
            let len = 5 + u32::from_be_bytes(*len) as usize;
            if bytes.len() < len {
                break;
            }
            let message = v1::ToClient::decode(&bytes.split_to(len)[5..]).unwrap().message;
            match message.unwrap() {
                to_client::Message::Deliver(deliver) => {
                    delivered += deliver.items.iter().map(|item| item.sealed.len()).sum::<usize>();
                }
                to_client::Message::Gap(gap) => {
                    missing += usize::try_from(gap.gap.unwrap().count()).unwrap();
                }
                _ => {}
            }
        }
    }
    assert_eq!(delivered + missing, events);
    (delivered, missing)
}
