//! Signatures of events that move jobs: no changed, borrowed or missing signature counts. What the
//! holder of one agent's key can do.
#![allow(clippy::unwrap_used)]

mod common;

use arc_swap::ArcSwap;
use common::{TestClient, channel_over, soon, until};
use ftb_agent::access::Access;
use ftb_agent::agent::Agent;
use ftb_agent::config::Config;
use ftb_agent::delivery_filter::DeliveryFilter;
use ftb_agent::host_lists::Monitors;
use ftb_agent::signing::{Demands, Neighbour, Signing, brought};
use ftb_agent::system;
use ftb_core::condition::{Condition, Provenance, Truth};
use ftb_core::event::Tag;
use ftb_core::frame::{
    Content, Frame as CoreFrame, HistoryReply, Item, Replicate, UpBatch, UpItem,
};
use ftb_core::node::Fold;
use ftb_core::node::api::{SubscriptionId, ToClient};
use ftb_core::position::Epoch;
use ftb_core::protocol::{Features, PROTOCOL};
use ftb_core::{Event, EventId, OriginId, PublisherId, Run, Sealed, Severity};
use ftb_proto::client::Outgoing;
use ftb_proto::event::{Stamps, Stated, decode_sealed, encode_event, fold, seal_with};
use ftb_proto::v1::admin_client::AdminClient;
use ftb_proto::v1::link_client::LinkClient;
use ftb_proto::v1::link_frame::Frame;
use ftb_proto::v1::{self, to_agent, to_client};
use ftb_transport::Credentials;
use ftb_transport::tls::{Tls, TlsFiles};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber, date_time_ymd,
};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

/// A CA, and the folder with its certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    dir: PathBuf,
}

impl Authority {
    fn new(dir: &Path) -> Self {
        std::fs::create_dir_all(dir).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap();
        std::fs::write(dir.join("ca.pem"), cert.pem()).unwrap();
        Self { issuer: Issuer::new(params, key), dir: dir.to_owned() }
    }

    fn issue(&self, host: &str) -> TlsFiles {
        self.issue_with(host, |_| {})
    }

    fn issue_with(&self, host: &str, change: impl Fn(&mut CertificateParams)) -> TlsFiles {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from_slice(host.as_bytes()));
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let path = |end: &str| self.dir.join(format!("{host}.{end}"));
        let (ca, cert_file, key_file) = (self.dir.join("ca.pem"), path("pem"), path("key"));
        std::fs::write(&cert_file, cert.pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        std::fs::set_permissions(&key_file, std::fs::Permissions::from_mode(0o600)).unwrap();
        TlsFiles { ca, crl: None, cert: cert_file, key: key_file }
    }

    fn revoke(&self, host: &str) -> PathBuf {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from_slice(host.as_bytes()),
            revocation_time: date_time_ymd(2026, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 1),
            next_update: date_time_ymd(2099, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let path = self.dir.join("crl.pem");
        std::fs::write(&path, list.signed_by(&self.issuer).unwrap().pem().unwrap()).unwrap();
        path
    }
}

const DEMANDS: Demands = Demands { is_required: true, monitors: None };

fn signing_in(cluster: &str, files: &TlsFiles) -> Signing {
    let tls = Arc::new(Tls::load(files, cluster).unwrap());
    let access = Arc::new(ArcSwap::from_pointee(Access::new(&[], 0)));
    Signing::new(Some(tls), cluster, access, Arc::default(), DEMANDS)
}

fn signing(files: &TlsFiles) -> Signing {
    signing_in("test", files)
}

/// An event of that host, not signed, about its own fan.
fn fault(space: &str, host: &str, seq: u64, time_ns: u64) -> Sealed {
    let publisher = PublisherId { account: PublisherId::account_of(host, 0), token: 9 };
    let id = EventId { publisher, seq: seq.into() };
    let mut event = Event::new(space.parse().unwrap(), "FTB_IPMI_FANFAIL".parse().unwrap());
    (event.severity, event.time_ns) = (Severity::Error, time_ns);
    event.payload = format!("fan {seq}").into();
    let stamps = Stamps { id, host, uid: 0, pid: 1, republished: false };
    let condition = Condition {
        host: host.to_owned(),
        component: "FAN 1".to_owned(),
        ..Condition::new("FANFAIL", Truth::True)
    };
    let stated = Stated { condition, provenance: Provenance::direct(OriginId(9)) };
    seal_with(&stamps, &encode_event(&event), 1000, Some(&stated)).unwrap()
}

fn verified(signing: &Signing, events: &[Sealed]) -> Vec<u32> {
    let run = Run::collect(events.iter().map(Sealed::as_ref)).unwrap();
    signing.prove(&signing.demands(), vec![(1.into(), run)]).1
}

fn signed(signing: &Signing, events: &[Sealed]) -> Vec<Sealed> {
    let run = signing.sign(Run::collect(events.iter().map(Sealed::as_ref)).unwrap());
    run.iter().map(|event| event.to_sealed()).collect()
}

#[test]
fn a_signed_event_with_any_byte_changed_does_not_verify() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new(dir.path());
    let (origin, reader) = (signing(&ca.issue("node01")), signing(&ca.issue("node02")));
    let events: Vec<Sealed> = (1..4).map(|seq| fault("ftb.ipmi", "node01", seq, 1)).collect();
    assert_eq!(verified(&reader, &events), [0; 0], "not signed yet");
    let event = signed(&origin, &events).pop().unwrap();
    assert_eq!(verified(&reader, core::slice::from_ref(&event)), [0]);
    for at in 0..event.len() {
        for bit in [1, 0x80] {
            let mut bytes = event.bytes().to_vec();
            bytes[at] ^= bit;
            let Ok(changed) = decode_sealed(bytes.into()) else { continue };
            assert_eq!(verified(&reader, &[changed]), [0; 0], "bit {bit} of byte {at}");
        }
    }
    // A fold of the same event is as good: its stamp is not signed.
    let folded = fold(&event, &Fold { covers: 1, count: 2, first_ns: 1, last_ns: 2 });
    assert_ne!(folded, event);
    assert_eq!(verified(&reader, &[folded]), [0]);
}

#[test]
fn events_that_are_signed_together_verify_alone_and_unprotected_ones_stay_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new(dir.path());
    let (origin, reader) = (signing(&ca.issue("node01")), signing(&ca.issue("node02")));
    let mut events: Vec<Sealed> =
        (1..=100).map(|seq| fault("ftb.ipmi", "node01", seq, 1)).collect();
    let plain = Event::new("ftb.app".parse().unwrap(), "STEP".parse().unwrap());
    let id = EventId { seq: 101.into(), ..events[0].id() };
    let stamps = Stamps { id, host: "node01", uid: 0, pid: 1, republished: false };
    events.push(seal_with(&stamps, &encode_event(&plain), 0, None).unwrap());
    let all = signed(&origin, &events);
    assert_eq!(all[100], events[100]);
    assert_eq!(verified(&reader, &all), (0..100).collect::<Vec<u32>>());
    for event in &all[..100] {
        assert_eq!(verified(&reader, core::slice::from_ref(event)), [0]);
    }
    assert_eq!(signed(&origin, &all), all, "signed once");
    let none = Signing::new(
        None,
        "test",
        Arc::new(ArcSwap::from_pointee(Access::new(&[], 0))),
        Arc::default(),
        DEMANDS,
    );
    assert_eq!((signed(&none, &events), none.is_required()), (events, false), "no certificates");
}

#[test]
fn only_the_certificate_of_the_host_and_cluster_counts_while_it_is_not_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new(dir.path());
    let files = ca.issue("node01");
    let reader = signing(&ca.issue("node02"));
    let of = |signing: &Signing, host: &str| {
        signed(signing, &[fault("ftb.ipmi", host, 1, 1_700_000_000_000_000_000)])
    };
    assert_eq!(verified(&reader, &of(&signing(&files), "node01")), [0]);
    assert_eq!(verified(&reader, &of(&signing(&files), "NODE01")), [0]);
    assert_eq!(verified(&reader, &of(&signing(&files), "node03")), [0; 0], "another host");
    let other = signing_in("other", &files);
    assert_eq!(verified(&reader, &of(&other, "node01")), [0; 0], "another cluster");
    let stranger = Authority::new(&dir.path().join("stranger"));
    let foreign = of(&signing(&stranger.issue("node01")), "node01");
    assert_eq!(verified(&reader, &foreign), [0; 0], "another CA");
    // An expired certificate counts for what it signed before, not for what says it is new.
    let old = ca.issue_with("node04", |params| {
        (params.not_before, params.not_after) =
            (date_time_ymd(2020, 1, 1), date_time_ymd(2024, 1, 1));
    });
    assert_eq!(verified(&reader, &of(&signing(&old), "node04")), [0], "of 2023");
    let late = fault("ftb.ipmi", "node04", 2, 1_750_000_000_000_000_000);
    assert_eq!(verified(&reader, &signed(&signing(&old), &[late])), [0; 0]);
    let files = TlsFiles { crl: Some(ca.revoke("node01")), ..ca.issue("node05") };
    let strict = signing(&files);
    assert_eq!(verified(&strict, &of(&signing(&ca.issue("node06")), "node06")), [0]);
    let before = signing(&TlsFiles { crl: None, ..ca.issue("node01") });
    assert_eq!(verified(&strict, &of(&before, "node01")), [0; 0], "revoked");
}

fn config(dir: &Path, host: &str, files: &TlsFiles, root: Option<&str>) -> Config {
    let root = root.map_or(String::new(), |root| format!("[addresses]\nnode01 = \"{root}\"\n"));
    let TlsFiles { ca, cert, key, .. } = files;
    let text = format!(
        "cluster = \"test\"\nmembers = \"node[01-03]\"\nhost = \"{host}\"\n\
         listen = \"127.0.0.1:0\"\nsocket = {:?}\n[tls]\nca = {ca:?}\ncert = {cert:?}\n\
         key = {key:?}\n[detection]\nsearch = \"200ms\"\n{root}",
        dir.join(format!("{host}.sock")),
    );
    Config::parse("test", &text).unwrap()
}

async fn start(config: Config) -> Agent {
    let uid = nix::unistd::Uid::current().as_raw();
    Agent::start(config, "ignored", uid, system::world()).await.unwrap()
}

async fn client(dir: &Path, host: &str) -> TestClient {
    let socket = dir.join(format!("{host}.sock"));
    let stream = tokio::net::UnixStream::connect(socket).await.unwrap();
    TestClient::attach(Box::new(stream), "test").await
}

/// What an agent reports of how it proves statements, asked through another one.
async fn trust_of(dir: &Path, asked: &str, host: &str) -> Option<v1::TrustReport> {
    let stream = tokio::net::UnixStream::connect(dir.join(format!("{asked}.sock"))).await.unwrap();
    let mut admin = AdminClient::new(channel_over(Box::new(stream)).await.unwrap());
    let reply = admin.reports(v1::ReportsRequest::default()).await.unwrap().into_inner();
    reply.reports.into_iter().find(|report| report.host == host)?.trust
}

/// The next events: host, whether it states a condition, whether it is marked as verified.
async fn next(reader: &mut TestClient, count: usize) -> Vec<(String, bool, bool)> {
    heard(reader, count).await.0
}

/// The same, and what the deliveries say of whether signatures are required.
async fn heard(reader: &mut TestClient, count: usize) -> (Vec<(String, bool, bool)>, Vec<bool>) {
    let (mut found, mut demands) = (Vec::new(), Vec::new());
    while found.len() < count {
        match reader.hear().await {
            Some(to_client::Message::Deliver(deliver)) => {
                demands.extend(deliver.requires_signatures);
                let events = deliver.items.iter().flat_map(|item| &item.sealed);
                found.extend(events.zip(0_u32..).map(|(sealed, place)| {
                    let event = decode_sealed(sealed.clone()).unwrap();
                    let is_verified = deliver.verified.contains(&place);
                    (event.host().to_owned(), event.head().condition.is_some(), is_verified)
                }));
            }
            Some(_) => {}
            None => panic!("the stream ended"),
        }
    }
    (found, demands)
}

/// A link of a peer with the valid key of node03.
struct RogueLink {
    frames: tokio::sync::mpsc::Sender<v1::LinkFrame>,
    answers: tonic::Streaming<v1::LinkFrame>,
    origin: u64,
    ack: v1::LinkHelloAck,
}

impl RogueLink {
    /// `None`: it gets no link.
    async fn open(address: &str, files: &TlsFiles, origin: u64) -> Option<Self> {
        let tls = Tls::load(files, "test").unwrap();
        let tcp = TcpStream::connect(address).await.unwrap();
        let (io, _) = tls.connect(Box::new(tcp), "node01").await.unwrap();
        let mut link = LinkClient::new(channel_over(io).await.unwrap());
        let since_1970 = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
        let hello = v1::LinkHello {
            protocol: PROTOCOL.max,
            cluster: "test".to_owned(),
            host: "node03".to_owned(),
            rank: Some(2),
            address: "127.0.0.1:1".to_owned(),
            origin,
            interest: Some(v1::Interest::default()),
            wall_ns: u64::try_from(since_1970.as_nanos()).unwrap(),
            ..v1::LinkHello::default()
        };
        let (sender, frames) = tokio::sync::mpsc::channel(8);
        let frame = |frame| v1::LinkFrame { frame: Some(frame) };
        sender.send(frame(Frame::Hello(hello))).await.unwrap();
        let answers = soon("the stream", link.exchange(ReceiverStream::new(frames))).await.unwrap();
        let mut answers = answers.into_inner();
        let first = soon("an answer", answers.next()).await.unwrap().unwrap();
        let Some(Frame::HelloAck(ack)) = first.frame else { return None };
        let state = ack.tree_state.clone().unwrap();
        let epoch = state.epochs.last().unwrap().epoch;
        let resume = v1::Resume { epoch, after: state.head };
        sender.send(frame(Frame::Resume(resume))).await.unwrap();
        Some(Self { frames: sender, answers, origin, ack })
    }

    async fn say(&self, frame: Frame) {
        self.frames.send(v1::LinkFrame { frame: Some(frame) }).await.unwrap();
    }

    /// Events of an agent.
    async fn send(&self, origin: u64, events: &[Sealed]) {
        let item = |event: &Sealed| v1::UpItem {
            events: vec![event.bytes().clone()],
            ..Default::default()
        };
        let items = events.iter().map(item).collect();
        let up = v1::UpBatch { origin, run: 1, base: 1, first: 1, items, wants_disk: false };
        self.say(Frame::Up(up)).await;
    }

    /// Whether events of it are confirmed before the link ends.
    async fn is_confirmed(&mut self) -> bool {
        let answer = async {
            while let Some(Ok(answer)) = self.answers.next().await {
                if matches!(answer.frame, Some(Frame::Confirm(_))) {
                    return true;
                }
            }
            false
        };
        soon("a confirmation, or the end of the link", answer).await
    }
}

/// A peer with the valid key of node03 that sends what it likes. False: it gets no link.
async fn rogue(address: &str, files: &TlsFiles, origin: u64, events: &[Sealed]) -> bool {
    let Some(mut link) = RogueLink::open(address, files, origin).await else { return false };
    link.send(link.origin, events).await;
    assert!(link.is_confirmed().await, "the link ended");
    true
}

/// Without a signature, with that of another host, changed, with a statement about another host;
/// and one that is right.
fn forgeries(stolen: &TlsFiles, leaf_files: &TlsFiles) -> Vec<Sealed> {
    let own = |seq, space| fault(space, "node03", seq, 5);
    let changed = {
        let event = signed(&signing(stolen), &[own(3, "ftb.ipmi")]).remove(0);
        let mut bytes = event.bytes().to_vec();
        let at = bytes.windows(5).position(|part| part == b"fan 3").unwrap();
        bytes[at + 4] = b'4';
        decode_sealed(bytes.into()).unwrap()
    };
    let about_other = {
        let event = own(4, "ftb.app");
        let mut stated = event.bytes().to_vec();
        // The condition is the second text with the host.
        let places = stated.windows(6).enumerate().filter(|(_, part)| *part == b"node03");
        let at = places.map(|(at, _)| at).nth(1).unwrap();
        stated[at..at + 6].copy_from_slice(b"node02");
        decode_sealed(stated.into()).unwrap()
    };
    vec![
        own(1, "ftb.ipmi"),
        signed(&signing(leaf_files), &[own(2, "ftb.ipmi")]).remove(0),
        changed,
        signed(&signing(stolen), &[about_other]).remove(0),
        signed(&signing(stolen), &[own(5, "ftb.ipmi")]).remove(0),
    ]
}

/// Two agents over mutual TLS, and a third host whose key is stolen.
#[tokio::test]
async fn a_forged_fault_is_neither_marked_nor_sets_a_condition_and_an_honest_one_does_both() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, ca) = (dir.path(), Authority::new(dir.path()));
    let mut root = start(config(dir, "node01", &ca.issue("node01"), None)).await;
    let leaf_files = ca.issue("node02");
    let leaf = start(config(dir, "node02", &leaf_files, Some(&root.address))).await;
    let mut readers = [client(dir, "node01").await, client(dir, "node02").await];
    for reader in &mut readers {
        reader.subscribe(1, "event_name=FTB_IPMI_FANFAIL").await;
    }
    let stolen = ca.issue("node03");
    let forged = forgeries(&stolen, &leaf_files);
    assert!(rogue(&root.address, &stolen, 77, &forged).await);
    let mut event = Event::new("ftb.ipmi".parse().unwrap(), "FTB_IPMI_FANFAIL".parse().unwrap());
    event.condition = Some(Condition::new("FANFAIL", Truth::True));
    let events = vec![encode_event(&event)];
    let mut publisher = client(dir, "node02").await;
    let publish = v1::Publish { first_seq: 1, events, ..v1::Publish::default() };
    publisher.say(to_agent::Message::Publish(publish)).await;
    publisher.confirmed(1).await;
    for reader in &mut readers {
        assert!(Features(reader.welcome.features).contains(Features::SIGNED));
        let forged = ("node03".to_owned(), false, false);
        let expected = [
            forged.clone(),
            forged.clone(),
            forged.clone(),
            // Signed by the right key, but no statement that this host may make.
            forged,
            ("node03".to_owned(), true, true),
            ("node02".to_owned(), true, true),
        ];
        let (found, demands) = heard(reader, 6).await;
        assert_eq!((found.as_slice(), demands.as_slice()), (&expected[..], &[true][..]));
    }
    let counters = root.peer_errors().counters();
    let count = |name: &str| counters.iter().find(|(kind, _)| *kind == name).map(|(_, n)| *n);
    assert!(count("signatures_missing") >= Some(1) && count("signatures_bad") >= Some(2));
    assert_eq!(count("conditions_foreign"), Some(1));
    // While a cluster is upgraded, unsigned events may count; wrong signatures never do.
    let mut lenient = config(dir, "node01", &ca.issue("node01"), None);
    lenient.require_signatures = false;
    root.reload(lenient, 0).await;
    let own = |seq| fault("ftb.ipmi", "node03", seq, 5);
    let unsigned = [own(6), signed(&signing(&leaf_files), &[own(7)]).remove(0)];
    until("a new link", async || rogue(&root.address, &stolen, 78, &unsigned).await).await;
    let marks = |states| ("node03".to_owned(), states, false);
    // Clients that are attached learn it with the first delivery to which it applies.
    let expected = (vec![marks(true), marks(false)], vec![false]);
    assert_eq!(heard(&mut readers[0], 2).await, expected);
    // What an agent above lets through is proven again where it is delivered.
    let expected = (vec![marks(false), marks(false)], vec![]);
    assert_eq!(heard(&mut readers[1], 2).await, expected);
    assert!(leaf.peer_errors().counters().contains(&("conditions_unproven", 1)));
    until("the report of it", async || {
        let trust = trust_of(dir, "node01", "node02").await;
        trust.is_some_and(|trust| {
            trust.unproven == 1 && trust.unproven_host == "node03" && trust.unproven_ns > 0
        })
    })
    .await;
    let late = client(dir, "node01").await;
    assert!(!Features(late.welcome.features).contains(Features::SIGNED));
}

/// The configuration changes all the time: each delivery says which demand its conditions meet.
#[test]
fn a_delivery_is_judged_by_the_one_demand_that_it_states() {
    const DELIVERIES: usize = 2_000;
    let dir = tempfile::tempdir().unwrap();
    let signing = signing(&Authority::new(dir.path()).issue("node01"));
    let (signing, ended) = (Arc::new(signing), AtomicBool::new(false));
    let access = Arc::new(ArcSwap::from_pointee(Access::new(&[], 0)));
    let root = Credentials { uid: 0, gid: 0, pid: 1 };
    let mut filter = DeliveryFilter::new(access, Arc::clone(&signing), root);
    let unsigned: Vec<Sealed> = (1..9).map(|seq| fault("ftb.ipmi", "node01", seq, 1)).collect();
    let run = Run::collect(unsigned.iter().map(Sealed::as_ref)).unwrap();
    let reload = |is_required| signing.demand(Demands { is_required, ..DEMANDS });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                [false, true].into_iter().for_each(reload);
            }
        });
        let (mut required, mut changes) = (None, 0);
        let (mut deliveries, begun) = (0, Instant::now());
        // The other thread may have no processor for a while.
        while deliveries < DELIVERIES || changes < 2 && begun.elapsed() < Duration::from_secs(60) {
            deliveries += 1;
            let (subscription, epoch) = (SubscriptionId(1), Epoch::ZERO);
            let items = vec![(1.into(), run.clone())];
            let deliver = filter.readable(ToClient::Deliver { subscription, epoch, items });
            let Some(Outgoing::Deliver { items, requires_signatures, .. }) = deliver else {
                ended.store(true, Ordering::Relaxed);
                panic!("no delivery");
            };
            changes += usize::from(requires_signatures.is_some());
            required = requires_signatures.or(required);
            let mut events = items.iter().flat_map(|(_, run)| run.iter());
            let is_good =
                events.all(|event| event.condition().is_none() == (required == Some(true)));
            if !is_good {
                ended.store(true, Ordering::Relaxed);
            }
            assert!(is_good, "after {changes} changes: {required:?}");
        }
        ended.store(true, Ordering::Relaxed);
        assert!(changes > 1, "the demand never changed");
    });
}

/// One ftb-ipmi reads the BMCs of other hosts; its statements have the signature of its own host.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_delivers_conditions_of_other_hosts_from_its_monitors_only() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, ca) = (dir.path(), Authority::new(dir.path()));
    let root = start(config(dir, "node01", &ca.issue("node01"), None)).await;
    let of_leaf = |host: &str, hosts: Option<&str>| {
        let mut config = config(dir, host, &ca.issue(host), Some(&root.address));
        config.monitors = hosts.and_then(monitors);
        config
    };
    let _strict = start(of_leaf("node02", Some("\"mgmt1\""))).await;
    let _knowing = start(of_leaf("node03", Some("\"node[01-02]\""))).await;
    until("reports of monitors", async || {
        let [none, strict, knowing] = [
            trust_of(dir, "node01", "node01").await,
            trust_of(dir, "node01", "node02").await,
            trust_of(dir, "node01", "node03").await,
        ]
        .map(|trust| trust.map(|trust| trust.monitors_digest));
        none == Some(0) && strict > Some(0) && knowing > Some(0) && strict != knowing
    })
    .await;
    let mut readers = Vec::new();
    for host in ["node01", "node02", "node03"] {
        let mut reader = client(dir, host).await;
        reader.subscribe(1, "event_name=FTB_IPMI_FANFAIL").await;
        readers.push(reader);
    }
    let mut event = Event::new("ftb.ipmi".parse().unwrap(), "FTB_IPMI_FANFAIL".parse().unwrap());
    let about = |host: &str| {
        let host = host.to_owned();
        event.condition = Some(Condition { host, ..Condition::new("FANFAIL", Truth::True) });
        encode_event(&event)
    };
    let events = ["node07", "node01"].map(about).to_vec();
    let mut publisher = client(dir, "node01").await;
    let publish = v1::Publish { first_seq: 1, events, ..v1::Publish::default() };
    publisher.say(to_agent::Message::Publish(publish)).await;
    publisher.confirmed(2).await;
    let (host, counted) = ("node01".to_owned(), ("node01".to_owned(), true, true));
    for (reader, other) in readers.iter_mut().zip([true, false, true]) {
        let of_other = (host.clone(), other, other);
        assert_eq!(next(reader, 2).await, [of_other, counted.clone()]);
    }
}

/// What the holder of node03's key says of other hosts.
#[tokio::test]
async fn claims_of_a_stolen_key_about_other_agents_are_refused_and_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, ca) = (dir.path(), Authority::new(dir.path()));
    let root = start(config(dir, "node01", &ca.issue("node01"), None)).await;
    let stolen = ca.issue("node03");
    let mut reader = client(dir, "node01").await;
    reader.subscribe(1, "event_name=FTB_CLAIM_REFUSED").await;
    let link = RogueLink::open(&root.address, &stolen, 77).await.unwrap();
    let refused = async || {
        let counters = root.handle().status().await.unwrap().node.counters;
        counters.iter().find(|(name, _)| *name == "claims_refused").unwrap().1
    };
    // The acting root is below node03.
    let report = v1::MemberReport {
        rank: 0,
        host: "node01".to_owned(),
        origin: Some(5),
        state: v1::MemberState::Up.into(),
        parent: Some(2),
        attempt: 1 << 40,
        ..v1::MemberReport::default()
    };
    link.say(Frame::Members(v1::Members { members: vec![report] })).await;
    until("the report is refused", async || refused().await == 1).await;
    link.send(78, &[fault("ftb.ipmi", "node02", 1, 5)]).await;
    until("the event is refused", async || refused().await == 2).await;
    let route = v1::TreeQuery { origin: link.ack.origin, query: 7 };
    link.say(Frame::TreeQuery(route)).await;
    until("the route is refused", async || refused().await == 3).await;
    assert_eq!(next(&mut reader, 1).await, [("node01".to_owned(), false, true)]);
}

/// An event with the publisher id of another account would use up its sequence numbers.
#[tokio::test]
async fn an_event_with_the_publisher_id_of_another_account_ends_the_link() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, ca) = (dir.path(), Authority::new(dir.path()));
    let root = start(config(dir, "node01", &ca.issue("node01"), None)).await;
    let stolen = ca.issue("node03");
    let publisher = PublisherId { account: PublisherId::account_of("node02", 0), token: 9 };
    let id = EventId { publisher, seq: (1 << 50).into() };
    let stamps = Stamps { id, host: "node03", uid: 0, pid: 1, republished: false };
    let event = Event::new("ftb.app".parse().unwrap(), "X".parse().unwrap());
    let foreign = seal_with(&stamps, &encode_event(&event), 0, None).unwrap();
    let mut link = RogueLink::open(&root.address, &stolen, 77).await.unwrap();
    link.send(77, &[foreign]).await;
    assert!(!link.is_confirmed().await);
    let counters = root.peer_errors().counters();
    let count = counters.iter().find(|(kind, _)| *kind == "publishers_foreign");
    assert_eq!(count.map(|(_, count)| *count), Some(1));
}

/// A signed statement as it comes up.
struct Statement<'a> {
    space: &'a str,
    name: &'a str,
    key: &'a str,
    about: &'a str,
    truth: Truth,
    provenance: Provenance,
    tags: &'a [(&'a str, &'a str)],
}

const STATEMENT: Statement<'static> = Statement {
    space: "ftb.ipmi",
    name: "FTB_IPMI_FANFAIL",
    key: "FANFAIL",
    about: "node03",
    truth: Truth::True,
    provenance: Provenance::direct(OriginId(9)),
    tags: &[],
};

impl Statement<'_> {
    fn of(&self, host: &str, files: &TlsFiles) -> Sealed {
        signed(&signing(files), &[self.unsigned(host)]).remove(0)
    }

    fn unsigned(&self, host: &str) -> Sealed {
        let publisher = PublisherId { account: PublisherId::account_of(host, 0), token: 9 };
        let id = EventId { publisher, seq: 1.into() };
        let stamps = Stamps { id, host, uid: 0, pid: 1, republished: false };
        let mut event = Event::new(self.space.parse().unwrap(), self.name.parse().unwrap());
        let tag = |(key, value): &(&str, &str)| Tag { key: (*key).into(), value: (*value).into() };
        event.tags = self.tags.iter().map(tag).collect();
        let condition =
            Condition { host: self.about.to_owned(), ..Condition::new(self.key, self.truth) };
        let stated = Stated { condition, provenance: self.provenance };
        seal_with(&stamps, &encode_event(&event), 0, Some(&stated)).unwrap()
    }
}

/// Whether the condition of an event counts that a child brings.
fn counts(reader: &Signing, event: &Sealed) -> bool {
    let run = Run::from(event.clone());
    let item = UpItem::Events(run.clone());
    let batch = UpBatch {
        origin: OriginId(77),
        run: 1,
        base: 1.into(),
        first: 1.into(),
        wants_disk: false,
        items: vec![item],
    };
    let CoreFrame::Up(batch) = reader.admit(CoreFrame::Up(batch), "test", Neighbour::Below) else {
        panic!("another frame");
    };
    let [UpItem::Events(run)] = &batch.items[..] else { panic!("{batch:?}") };
    run.first().condition().is_some()
}

/// The hosts whose programs may speak about others.
fn monitors(hosts: &str) -> Option<Monitors> {
    let text =
        format!("cluster = \"test\"\nmembers = \"a\"\ninsecure = true\nmonitors = {hosts}\n");
    Config::parse("test", &text).unwrap().monitors
}

fn demanding(files: &TlsFiles, hosts: Option<&str>) -> Signing {
    let reader = signing(files);
    reader.demand(Demands { monitors: hosts.and_then(monitors), ..DEMANDS });
    reader
}

#[test]
fn programs_of_monitors_only_state_conditions_of_other_hosts_and_any_agent_judges() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new(dir.path());
    let (stolen, monitor) = (ca.issue("node03"), ca.issue("mgmt2"));
    let files = ca.issue("node01");
    let (open, none) = (demanding(&files, None), demanding(&files, Some("\"\"")));
    let few = demanding(&files, Some("\"mgmt[1-2]\""));
    let racks = demanding(&files, Some("[\"admin\", \"mgmt[1-2]\"]"));
    let about = |space, host: &str, files: &TlsFiles| {
        Statement { space, about: "node02", ..STATEMENT }.of(host, files)
    };
    for space in ["ftb.ipmi", "ftb.act", "ftb.silence"] {
        let event = about(space, "node03", &stolen);
        let counted = [&open, &none, &few, &racks].map(|reader| counts(reader, &event));
        assert_eq!(counted, [true, false, false, false], "{space}: a stolen key");
        let event = about(space, "mgmt2", &monitor);
        let counted = [&open, &none, &few, &racks].map(|reader| counts(reader, &event));
        assert_eq!(counted, [true, false, true, true], "{space}: a monitor");
    }
    // While unsigned events are accepted, the same hosts may.
    let lax = |hosts: Option<&str>| {
        let reader = signing(&files);
        reader.demand(Demands { is_required: false, monitors: hosts.and_then(monitors) });
        reader
    };
    let unsigned = |host| Statement { about: "node02", ..STATEMENT }.unsigned(host);
    let lax = [lax(None), lax(Some("\"mgmt2\""))];
    for (host, expected) in [("node03", [true, false]), ("mgmt2", [true, true])] {
        let counted = [&lax[0], &lax[1]].map(|reader| counts(reader, &unsigned(host)));
        assert_eq!(counted, expected, "unsigned, of {host}");
        let proven = |reader: &Signing| {
            let (items, _) =
                reader.prove(&reader.demands(), vec![(1.into(), Run::from(unsigned(host)))]);
            items[0].1.first().condition().is_some()
        };
        assert_eq!([&lax[0], &lax[1]].map(proven), expected, "delivered, of {host}");
    }
    let event = about("ftb.app", "mgmt2", &monitor);
    assert!(!counts(&open, &event) && !counts(&few, &event), "not protected");
    assert!(counts(&none, &STATEMENT.of("node03", &stolen)), "of its own host");
    let judged = |key, name| {
        let (space, about) = ("ftb.agent", "node02");
        counts(&few, &Statement { space, name, key, about, ..STATEMENT }.of("node03", &stolen))
    };
    assert!(judged("NODE_DEAD", "FTB_NODE_DEAD"));
    assert!(!judged("FANFAIL", "FTB_NODE_DEAD"), "agents know nothing of fans");
}

#[test]
fn an_agent_repeats_what_its_own_publishers_stated_and_finds_any_publisher_lost() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new(dir.path());
    let stolen = ca.issue("node03");
    let reader = demanding(&ca.issue("node01"), Some("\"\""));
    let id = |host: &str, seq: u64| {
        let account = PublisherId::account_of(host, 1000);
        EventId { publisher: PublisherId { account, token: 4 }, seq: seq.into() }
    };
    let tags = [("publisher_host", "node03"), ("publisher_uid", "1000")];
    let repeat = |source, tags| {
        let provenance = Provenance { source: Some(source), ..STATEMENT.provenance };
        Statement { name: "FTB_CONDITION", provenance, tags, ..STATEMENT }
    };
    let checked = |event: &Statement<'_>| counts(&reader, &event.of("node03", &stolen));
    assert!(checked(&repeat(id("node03", 7), &tags)));
    let of_other = [("publisher_host", "node01"), ("publisher_uid", "1000")];
    for tags in [&tags[..], &of_other, &[]] {
        // Later statements of the publisher would never count.
        assert!(!checked(&repeat(id("node01", 1 << 61), tags)), "{tags:?}");
    }
    assert!(!checked(&repeat(id("node03", 7), &of_other)), "it lends the name of another host");
    assert!(!checked(&repeat(id("node03", 7), &[])), "of an unknown user");
    let named = Statement { name: "FTB_IPMI_FANFAIL", ..repeat(id("node03", 7), &tags) };
    assert!(!checked(&named), "only agents repeat");
    // Any agent may be acting root.
    let source = id("node02", 7);
    let provenance =
        Provenance { source: Some(source), replaces: Some(source), ..STATEMENT.provenance };
    let (name, truth) = ("FTB_CONDITION", Truth::Unknown);
    let lost = Statement { name, truth, provenance, about: "node02", ..STATEMENT };
    assert!(checked(&lost));
    assert!(!checked(&Statement { truth: Truth::False, ..lost }), "what is lost is not well");
    assert!(!checked(&Statement { name: "FTB_IPMI_FANFAIL", ..lost }));
    let without = Provenance { source: None, ..provenance };
    assert!(!checked(&Statement { provenance: without, ..lost }));
    let free = Statement { truth: Truth::Unknown, about: "node02", ..STATEMENT };
    assert!(!checked(&free), "unknown is a statement as any other");
}

/// A child that offers its log brings events as one that sends them up.
#[test]
fn a_log_that_a_child_brings_has_no_unproven_conditions() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new(dir.path());
    let reader = signing(&ca.issue("node01"));
    let states = |event: Sealed, from| {
        let content = Content::Events(event.into());
        let items = vec![Item { index: 1.into(), content }];
        let epoch = Epoch { number: 1, root: OriginId(1) };
        let batch = Replicate {
            epoch,
            items,
            entry_refs: Vec::new(),
            until: 1.into(),
            committed: 1.into(),
            complete: true,
            refs_until: 0,
        };
        let frame = reader.admit(CoreFrame::Replicate(batch), "test", from);
        let CoreFrame::Replicate(batch) = frame else { panic!("another frame") };
        let Content::Events(run) = &batch.items[0].content else { panic!("no events") };
        run.first().condition().is_some()
    };
    let unsigned = || fault("ftb.ipmi", "node02", 1, 5);
    assert!(!states(unsigned(), Neighbour::Below));
    assert!(states(unsigned(), Neighbour::Above), "the acting root has verified it");
    // Nor has what it answers to a request for older events.
    let answers = |event: Sealed, from| {
        let items = vec![Item { index: 1.into(), content: Content::Events(event.into()) }];
        let reply = HistoryReply { id: 1, items, covered: 1.into(), last: true };
        let mut frame = reader.admit(CoreFrame::HistoryReply(reply), "test", from);
        let found = brought(&mut frame, Neighbour::Below).next();
        found.expect("its publishers are checked too").first().condition().is_some()
    };
    assert!(!answers(unsigned(), Neighbour::Below));
    assert!(answers(unsigned(), Neighbour::Above));
    // What counted when it was logged counts: else the tables of this agent and the child differ.
    let old = signing(&ca.issue_with("node04", |params| {
        (params.not_before, params.not_after) =
            (date_time_ymd(2020, 1, 1), date_time_ymd(2024, 1, 1));
    }));
    let of = |seconds: u64| {
        let event = fault("ftb.ipmi", "node04", seconds, seconds * 1_000_000_000);
        signed(&old, &[event]).remove(0)
    };
    let in_2023 = of(1_680_000_000);
    assert!(states(in_2023.clone(), Neighbour::Below), "of 2023");
    assert!(!states(of(1_750_000_000), Neighbour::Below), "of 2025");
    assert!(!counts(&reader, &in_2023), "it is not new");
}

/// The tables of the acting root and its standby do not depend on where an event came in.
#[test]
fn an_agent_takes_no_foreign_condition_from_its_own_programs() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new(dir.path());
    let files = ca.issue("node03");
    let states = |monitors, statement: Statement<'_>| {
        let event = statement.unsigned("node03");
        let run = demanding(&files, monitors).of_own_programs(event.into());
        assert_eq!(run.count(), 1, "the event stays");
        run.first().condition().is_some()
    };
    let other = || Statement { about: "node02", ..STATEMENT };
    assert!(states(None, other()));
    assert!(states(Some("\"node03\""), other()));
    assert!(!states(Some("\"mgmt1\""), other()), "not a monitor");
    assert!(states(Some("\"mgmt1\""), STATEMENT), "of its own host");
    let (space, name, key) = ("ftb.agent", "FTB_NODE_DEAD", "NODE_DEAD");
    assert!(states(Some("\"mgmt1\""), Statement { space, name, key, ..other() }), "a verdict");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_at_the_acting_root_states_no_condition_of_another_host() {
    let dir = tempfile::tempdir().unwrap();
    let (dir, ca) = (dir.path(), Authority::new(dir.path()));
    let mut of_root = config(dir, "node01", &ca.issue("node01"), None);
    of_root.monitors = monitors("\"mgmt1\"");
    let root = start(of_root).await;
    let mut reader = client(dir, "node01").await;
    reader.subscribe(1, "event_name=FTB_IPMI_FANFAIL").await;
    let mut event = Event::new("ftb.ipmi".parse().unwrap(), "FTB_IPMI_FANFAIL".parse().unwrap());
    let about = |host: &str| {
        let host = host.to_owned();
        event.condition = Some(Condition { host, ..Condition::new("FANFAIL", Truth::True) });
        encode_event(&event)
    };
    let events = ["node02", "node01"].map(about).to_vec();
    let publisher = client(dir, "node01").await;
    let publish = v1::Publish { first_seq: 1, events, ..v1::Publish::default() };
    publisher.say(to_agent::Message::Publish(publish)).await;
    let host = "node01".to_owned();
    // It is signed as the agent took it: without the condition.
    assert_eq!(next(&mut reader, 2).await, [(host.clone(), false, true), (host, true, true)]);
    assert!(root.peer_errors().counters().contains(&("conditions_foreign", 1)));
}
