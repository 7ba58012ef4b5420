//! Hostile configuration files, journals, clients, signatures and HTTP requests (`ftb_fuzz` says
//! how targets run).
#![allow(clippy::unwrap_used)]

mod common;

use bytes::Bytes;
use common::{Lone, MEMORY_SOCKET, MemoryCluster, event, open, soon};
use ftb_agent::config::Config;
use ftb_agent::journal::record;
use ftb_core::protocol::{CLIENT_FEATURES, PROTOCOL};
use ftb_fuzz::{Parts, Target, piece};
use ftb_proto::v1::{self, to_agent};
use ftb_transport::tls::signature::Signed;
use ftb_transport::tls::{Tls, TlsFiles};
use ftb_transport::{BoxIo, Credentials};
use prost::Message as _;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SerialNumber};
use rustls::pki_types::UnixTime;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

#[test]
fn a_configuration_is_good_or_says_in_one_line_what_is_wrong() {
    let seeds = ["cluster = \"c\"\nmembers = \"n[1-3]\"\ninsecure = true\n"];
    let target = Target::new("agent_config").seeds(seeds).files("deploy/config", "toml");
    target.files("tests/hardware/ib", "toml").check(|bytes| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        if let Err(error) = Config::parse("agent.toml", text) {
            let words = error.to_string();
            assert!(words.starts_with("agent.toml"), "{words}");
        }
    });
}

/// The same bytes with the checksum of their content before it.
fn summed(content: &[u8]) -> Vec<u8> {
    [&crc32c::crc32c(content).to_le_bytes(), content].concat()
}

/// A chunk whose head and entries have right checksums, whatever is in them.
fn chunk(bytes: &[u8]) -> Bytes {
    let mut parts = Parts(bytes);
    let entries: Vec<&[u8]> = std::iter::from_fn(|| parts.piece()).collect();
    let count = u32::try_from(entries.len()).unwrap();
    let mut chunk = summed(&[&7_u64.to_le_bytes()[..], &count.to_le_bytes()].concat());
    for entry in entries {
        // Kind and index come from the input too.
        let len = u32::try_from(entry.len().saturating_sub(9)).unwrap();
        chunk.extend(summed(&[&len.to_le_bytes()[..], entry].concat()));
    }
    chunk.into()
}

#[test]
fn what_a_journal_gives_can_be_written_and_read_again() {
    let sealed = include_bytes!("../../proto/tests/golden/event.sealed.bin");
    let entry = [&[1][..], &9_u64.to_le_bytes(), sealed].concat();
    let gap = [&[2][..], &10_u64.to_le_bytes(), &[0; 58], b"ftb.ib\nftb.ipmi"].concat();
    let seeds = [[piece(&entry), piece(&gap)].concat(), vec![0; 60], vec![1; 90]];
    Target::new("journal").seeds(seeds).check(|bytes| {
        let (items, _) = record::decode_chunk(&chunk(bytes));
        let (again, head) = record::decode_chunk(&record::encode_chunk(7, &items).into());
        assert!(head.is_ok() && again == items, "{head:?}");
        let record = summed(bytes);
        if let Ok(manifest) = record::decode_manifest(record.clone()) {
            assert_eq!(record::decode_manifest(record::encode_manifest(&manifest)), Ok(manifest));
        }
        if let Ok(dedup) = record::decode_dedup(record.clone()) {
            assert_eq!(record::decode_dedup(record::encode_dedup(&dedup)), Ok(dedup));
        }
        if let Ok(checkpoint) = record::decode_checkpoint(record.clone()) {
            let again = record::encode_checkpoint(&checkpoint);
            assert_eq!(record::decode_checkpoint(again), Ok(checkpoint));
        }
        let _ = (record::decode_reserve(record.clone()), record::decode_head(record.clone()));
        let _ = record::decode_dynamic_members(record);
    });
}

/// Runs a future to its end, in a clock of its own.
fn run(future: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(future);
}

/// The agent answers an honest client, whatever came before.
async fn assert_serves(cluster: &MemoryCluster) {
    let mut honest = cluster.client(0, "honest").await;
    honest.subscribe(1, "event_space=site.honest").await;
    honest.publish("site.honest", &["still here"]).await;
    assert_eq!(honest.payloads(1).await, ["still here"]);
}

async fn connect(cluster: &MemoryCluster) -> BoxIo {
    let user = Credentials { uid: 1000, gid: 1000, pid: 1 };
    let path = MEMORY_SOCKET.as_ref();
    cluster.network.connect_client(&cluster.hosts[0], path, user).await.unwrap()
}

fn said(messages: &[to_agent::Message]) -> Vec<u8> {
    let bytes = |message: &to_agent::Message| {
        piece(&v1::ToAgent { message: Some(message.clone()) }.encode_to_vec())
    };
    messages.iter().flat_map(bytes).collect()
}

fn subscribe(filter: &str, start: Option<v1::subscribe::Start>) -> to_agent::Message {
    let filter = filter.to_owned();
    to_agent::Message::Subscribe(v1::Subscribe { subscription: 1, filter, start, earlier: vec![] })
}

fn publish(first_seq: u64, events: Vec<Bytes>) -> to_agent::Message {
    to_agent::Message::Publish(v1::Publish { first_seq, events, again: false, confirm: 0 })
}

#[test]
fn no_sequence_of_messages_of_a_client_stops_an_agent() {
    let hello = v1::ClientHello {
        protocol: PROTOCOL.max,
        protocol_min: Some(PROTOCOL.min),
        features: CLIENT_FEATURES.0,
        client_name: "fuzz".to_owned(),
        token: 7,
        ..v1::ClientHello::default()
    };
    let hello = to_agent::Message::Hello(hello);
    let since = Some(v1::subscribe::Start::SinceNs(1));
    let events = vec![event("site.fuzz", "one"), event("site.fuzz", "two")];
    let seeds = [
        said(&[hello.clone(), subscribe("event_space=site", None), publish(1, events.clone())]),
        said(&[
            hello.clone(),
            publish(1, events.clone()),
            subscribe("", since),
            publish(9, events),
        ]),
        said(&[hello, to_agent::Message::Close(v1::ClientClose { reason: "bye".to_owned() })]),
    ];
    Target::new("client_messages").seeds(seeds).rounds(60).check(|bytes| {
        let mut parts = Parts(bytes);
        let pieces = std::iter::from_fn(|| parts.piece());
        let messages: Vec<to_agent::Message> =
            pieces.filter_map(|piece| v1::ToAgent::decode(piece).ok()?.message).collect();
        let Some((first, rest)) = messages.split_first() else { return };
        run(async {
            let cluster = MemoryCluster::start(1, 2).await;
            let (sender, mut answers, _channel) =
                open(connect(&cluster).await, first.clone()).await;
            for message in rest {
                let message = v1::ToAgent { message: Some(message.clone()) };
                if sender.send(message).await.is_err() {
                    break;
                }
            }
            drop(sender);
            // The client reads as long as the agent speaks.
            while let Ok(Some(_)) = soon("the end", answers.message()).await {}
            assert_serves(&cluster).await;
        });
    });
}

#[test]
fn no_bytes_on_the_socket_of_clients_stop_an_agent() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let request = [
        &b"\x83\x86\x44\x15/ftb.v1.Clients/Attach\x41\x05agent"[..],
        &b"\x5f\x10application/grpc\x00\x02te\x08trailers"[..],
    ]
    .concat();
    let headers = [&[0, 0, request.len() as u8, 1, 4, 0, 0, 0, 1][..], &request].concat();
    let data = [0, 0, 9, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 4, 10, 2, 8, 7];
    let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    let reset = [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 8];
    let window = [0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0xff, 0, 0];
    let seeds = [
        [&preface[..], &settings, &headers, &data].concat(),
        [&preface[..], &settings, &ping, &window, &headers, &reset].concat(),
    ];
    Target::new("client_socket").seeds(seeds).rounds(60).check(|bytes| {
        let bytes = bytes.to_vec();
        run(async move {
            let cluster = MemoryCluster::start(1, 2).await;
            let mut io = connect(&cluster).await;
            // The agent may close before it has read everything, and closes a silent one.
            let _ = tokio::time::timeout(Duration::from_secs(1), io.write_all(&bytes)).await;
            let _ = io.shutdown().await;
            let _ = soon("the agent to close", io.read_to_end(&mut Vec::new())).await;
            assert_serves(&cluster).await;
        });
    });
}

/// Sends bytes to the server of the monitoring, and a request behind them, so that there is one;
/// gives the head of its answer.
async fn asked(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let bytes = [bytes, b"\r\n\r\nGET / HTTP/1.1\r\n\r\n"].concat();
    // The server may close before it has read everything.
    let _ = stream.write_all(&bytes).await;
    let mut answer = Vec::new();
    let head = async {
        // A stream of events has no end.
        while !answer.windows(4).any(|end| end == b"\r\n\r\n") {
            if !matches!(stream.read_buf(&mut answer).await, Ok(1..)) {
                break;
            }
        }
    };
    soon("an answer, or the end", head).await;
    answer
}

#[test]
fn no_http_request_stops_the_monitoring_of_an_agent() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // A port that is free now.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let extra = format!("[metrics]\nlisten = \"127.0.0.1:{port}\"\n");
    let lone = runtime.block_on(Lone::start(&extra));
    let request =
        |path: &str, head: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n");
    let seeds = [
        request("/tree.json", ""),
        request("/events?filter=severity%3E%3Derror&since=7", "Last-Event-ID: 1-0:5\r\n"),
        request("/conditions.json", "Authorization: Bearer x\r\nConnection: keep-alive\r\n"),
        request("/page/about.json", "Content-Length: 5\r\n"),
        "POST /metrics HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"
            .to_owned(),
    ];
    Target::new("monitor_requests").seeds(seeds).rounds(300).check(move |bytes| {
        runtime.block_on(async {
            let answer = asked(port, bytes).await;
            assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{answer:?}");
            let health = asked(port, request("/healthz", "").as_bytes()).await;
            assert!(health.starts_with(b"HTTP/1.1 200 "), "{}", health.escape_ascii());
        });
        let _ = &lone;
    });
}

/// A key that is the same in each run: its signatures are, too.
fn fixed_key(seed: u8) -> KeyPair {
    let head = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
    KeyPair::try_from([&head[..], &[seed; 32]].concat()).unwrap()
}

/// The certificates of a cluster, and what its host `node01` signs.
struct Signatures {
    _dir: tempfile::TempDir,
    tls: Tls,
    leaf: Vec<u8>,
    above: Vec<u8>,
    signature: Vec<u8>,
}

impl Signatures {
    const MESSAGE: &[u8] = b"what is signed";

    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let authority = |names: Vec<String>, serial: u8| {
            let mut params = CertificateParams::new(names).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.serial_number = Some(SerialNumber::from_slice(&[serial]));
            params.distinguished_name.push(DnType::CommonName, format!("CA {serial}"));
            params
        };
        let (ca_key, middle_key, key) = (fixed_key(1), fixed_key(2), fixed_key(3));
        let ca = authority(Vec::new(), 1).self_signed(&ca_key).unwrap();
        let ca_issuer = Issuer::new(authority(Vec::new(), 1), ca_key);
        let middle = authority(Vec::new(), 2).signed_by(&middle_key, &ca_issuer).unwrap();
        let middle_issuer = Issuer::new(authority(Vec::new(), 2), middle_key);
        let mut params = CertificateParams::new(vec!["node01".to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from_slice(&[3]));
        let leaf = params.signed_by(&key, &middle_issuer).unwrap();
        let path = |name: &str, text: String| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            path
        };
        let files = TlsFiles {
            ca: path("ca.pem", ca.pem()),
            crl: None,
            cert: path("node01.pem", leaf.pem() + &middle.pem()),
            key: path("node01.key", key.serialize_pem()),
        };
        let tls = Tls::load(&files, "test").unwrap();
        let signature = tls.signer().sign(Self::MESSAGE).unwrap();
        let (leaf, above) = (leaf.der().to_vec(), middle.der().to_vec());
        Self { _dir: dir, tls, leaf, above, signature }
    }

    /// As the target reads it: message, signature, certificates.
    fn seed(&self, chain: &[&[u8]]) -> Vec<u8> {
        let parts = [Self::MESSAGE, &self.signature[..]].into_iter().chain(chain.iter().copied());
        parts.flat_map(piece).collect()
    }
}

/// Any agent can put any bytes into the signature of an event: its certificates are parsed before
/// they verify.
#[test]
fn no_certificates_of_a_signature_stop_an_agent_and_none_but_the_right_ones_count() {
    const ED25519: u16 = 0x0807;
    let own = Signatures::new();
    let (leaf, above) = (own.leaf.clone(), own.above.clone());
    let whole = own.seed(&[&leaf, &above]);
    let seeds = [whole.clone(), own.seed(&[&leaf]), own.seed(&[&above, &leaf]), own.seed(&[])];
    let counts = move |bytes: &[u8]| {
        let mut parts = Parts(bytes);
        let message = parts.piece().unwrap_or_default();
        let signature = parts.piece().unwrap_or_default();
        let chain: Vec<&[u8]> = std::iter::from_fn(|| parts.piece()).collect();
        let signed = Signed { scheme: ED25519, chain: &chain, message, signature };
        let at = UnixTime::since_unix_epoch(Duration::from_secs(1_700_000_000));
        let counts = own.tls.check_signature(&signed, "node01", Some(at)).is_ok();
        let is_right = chain.first() == Some(&&own.leaf[..]) && message == Signatures::MESSAGE;
        assert!(!counts || is_right, "{chain:?}");
        counts
    };
    assert!(counts(&whole), "the right ones");
    Target::new("signature_chain").seeds(seeds).check(move |bytes| {
        counts(bytes);
    });
}
