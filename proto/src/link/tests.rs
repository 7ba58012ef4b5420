#![allow(clippy::unwrap_used)]
use super::*;
use crate::event::{Stamps, encode_event, seal};
use ftb_core::epochs::EpochHistory;
use ftb_core::filter::{ALTERNATIVES_MAX, Filter};
use ftb_core::frame::{
    Content, Down, EntryRef, Hello, HelloAck, HelloNack, HistoryReply, HistoryRequest, Interest,
    Item, LogRange, NackCode, Replicate, Settled, SyncedRange, TraceAnswer, TreeState, UpBatch,
    UpItem,
};
use ftb_core::ident::EventId;
use ftb_core::limits::{BATCH_EVENTS_MAX, PAYLOAD_BYTES_DEFAULT};
use ftb_core::node::api::{GapReason, Loss};
use ftb_core::position::{Epoch, Position};
use ftb_core::protocol::{PROTOCOL, Versions};
use ftb_core::run::Run;
use ftb_core::sealed::Sealed;
use ftb_core::trace::{
    AgentReport, AgentTrace, EventTrace, Hop, TraceRequest, TraceStep, TraceSubject, TracedEvent,
    TrustReport,
};
use ftb_core::{ConfirmLevel, Event, EventName, EventSpace, Severity, Spaces};
use prost::Message;

fn sealed(seq: u64) -> Sealed {
    let space = EventSpace::new("ftb.ib.hca").unwrap();
    let mut event = Event::new(space, EventName::new("FTB_IB_PORT_ERR").unwrap());
    event.payload = Bytes::from_static(b"port 1");
    let id = EventId { publisher: PublisherId { account: 3, token: 4 }, seq: seq.into() };
    let stamps = Stamps { id, host: "node001", uid: 1000, pid: 17, republished: false };
    seal(&stamps, &encode_event(&event), PAYLOAD_BYTES_DEFAULT).unwrap()
}

fn run(first: u64, count: u64) -> Run {
    let events: Vec<Sealed> = (first..first + count).map(sealed).collect();
    Run::collect(events.iter().map(Sealed::as_ref)).unwrap()
}

fn epoch(number: u64) -> Epoch {
    Epoch { number, root: OriginId(number + 100) }
}

fn epochs() -> EpochHistory {
    let mut epochs = EpochHistory::new();
    epochs.open(epoch(1), 1.into(), false);
    epochs.open(epoch(4), 70.into(), true);
    epochs
}

fn gap() -> Gap {
    let at = |index| Position { epoch: epoch(4), index };
    Gap {
        after: at(70.into()),
        until: at(75.into()),
        reason: GapReason::Shed,
        count: Some(5),
        severity_max: Some(Severity::Error),
        spaces: Spaces::named(["ftb.ib", "ftb.ipmi.fan"]).unwrap(),
    }
}

fn items() -> Vec<Item> {
    vec![
        Item { index: 60.into(), content: Content::Events(run(1, 4)) },
        Item { index: 66.into(), content: Content::Events(run(5, 2)) },
        Item { index: 71.into(), content: Content::Events(run(1, 1)) },
        Item { index: 75.into(), content: Content::Gap(gap()) },
    ]
}

fn tree_state() -> TreeState {
    TreeState {
        epochs: epochs(),
        head: 75.into(),
        path: vec![Rank(0), Rank(2)],
        standby: Some(Rank(1)),
    }
}

fn interest() -> Interest {
    let filters = vec![Filter::everything(), Filter::parse("severity>=error").unwrap()];
    Interest { version: 9, filters }
}

fn member() -> MemberReport {
    MemberReport {
        rank: Rank(7),
        host: "node007".into(),
        address: "node007:14451".into(),
        origin: 5,
        attempt: 8,
        state: MemberState::Suspect,
        parent: Some(Rank(1)),
        since_ns: 12,
        features: Features::default(),
    }
}

fn hello() -> Hello {
    Hello {
        versions: Versions { min: 6, max: 7 },
        features: Features(5),
        cluster: "test".into(),
        host: "node001".into(),
        rank: Some(Rank(3)),
        address: "node001:14451".into(),
        origin: OriginId(5),
        members_digest: 6,
        epochs: epochs(),
        commit_index: 71.into(),
        log_range: Some(LogRange { after: 3.into(), until: 72.into() }),
        epoch_seen: 4,
        interest: interest(),
        wall_ns: 1234,
        attempt: 9,
    }
}

fn hello_ack() -> HelloAck {
    HelloAck {
        protocol: PROTOCOL.max,
        features: Features(4),
        host: "node000".into(),
        rank: Rank(0),
        origin: OriginId(8),
        assigned: Some(Rank(262_200)),
        tree_state: tree_state(),
        window_bytes: 1 << 20,
        send_log: true,
        wall_ns: 99,
    }
}

fn up_batch() -> UpBatch {
    let items = vec![
        UpItem::Events(run(2, 3)),
        UpItem::Gap(gap()),
        UpItem::Fork { epoch: epoch(2), until: 60.into(), re_proposed: true },
    ];
    let (base, first) = (3.into(), 4.into());
    UpBatch { origin: OriginId(5), run: 2, base, first, wants_disk: false, items }
}

fn replica_ack(synced: Option<SyncedRange>) -> Frame {
    Frame::ReplicaAck { epoch: epoch(4), index: 75.into(), copy: 2, kept_from: Some(7), synced }
}

fn heartbeat(covered: Position) -> Heartbeat {
    Heartbeat { covered: Some(covered), epoch_seen: 4, wall_ns: 9, members_digest: 10 }
}

/// One of each kind, with every field set.
fn every_frame() -> Vec<Frame> {
    let dedup = vec![(PublisherId { account: 1, token: 2 }, vec![(1, 5), (9, 9)])];
    let at = Position { epoch: epoch(4), index: 73.into() };
    let redirect = vec![Rank(1), Rank(2)];
    vec![
        Frame::Hello(Box::new(hello())),
        Frame::HelloAck(Box::new(hello_ack())),
        Frame::HelloNack(HelloNack { code: NackCode::Full, message: "no room".into(), redirect }),
        Frame::Close(Close { stopping: true, reason: "stop".into() }),
        Frame::Heartbeat(heartbeat(at)),
        Frame::TreeState(Box::new(tree_state())),
        Frame::Resume { epoch: epoch(4), after: 70.into() },
        Frame::Subscribe(interest()),
        Frame::FilterActive { version: 9, index: 75.into() },
        Frame::Up(up_batch()),
        Frame::Credit { bytes: 512 },
        Frame::Confirm(Confirm { origin: OriginId(5), seq: 6.into(), position: at, settled: None }),
        Frame::Nak { origin: OriginId(5), run: 2 },
        Frame::Resend,
        Frame::Down(Down { epoch: epoch(4), items: items(), covered: 75.into() }),
        Frame::HistoryRequest(HistoryRequest {
            id: 1,
            epoch: epoch(4),
            after: 7.into(),
            since_ns: Some(8),
            filters: interest().filters,
            conditions: true,
        }),
        Frame::HistoryReply(HistoryReply { id: 1, items: items(), covered: 75.into(), last: true }),
        Frame::ReplicaStart(ReplicaStart { epochs: epochs(), after: 3.into(), copy: 2 }),
        Frame::DedupRanges(DedupRanges { publishers: dedup }),
        Frame::Replicate(Replicate {
            epoch: epoch(4),
            items: items(),
            entry_refs: vec![EntryRef { index: 74.into(), batch: 9, skip: 3, count: 2 }],
            until: 75.into(),
            committed: 74.into(),
            complete: true,
            refs_until: 9,
        }),
        replica_ack(None),
        Frame::Members(vec![member()]),
        Frame::TraceRequest(trace_request()),
        Frame::TraceAnswer(Box::new(trace_answer())),
        Frame::TreeQuery { origin: OriginId(5), query: 1 },
        Frame::TreeAnswer { origin: OriginId(5), query: 1, members: vec![member()], last: true },
        Frame::DynamicMembers(vec![
            DynamicMember { host: "guest1".into(), rank: Some(Rank::UNLISTED_FIRST) },
            DynamicMember { host: "guest2".into(), rank: None },
        ]),
        Frame::MembershipSnapshot(Arc::new(snapshot([(0, 3), (5, 5), (262_144, 262_150)]))),
        Frame::Probe(Probe {
            requester: OriginId(5),
            probe: 1,
            prober: Rank(2),
            target: Rank::UNLISTED_FIRST,
            host: "guest1".into(),
            address: "guest1:14451".into(),
        }),
        Frame::ProbeAnswer(ProbeAnswer {
            requester: OriginId(5),
            probe: 1,
            prober: Rank(2),
            alive: true,
        }),
    ]
}

fn snapshot(ranges: impl IntoIterator<Item = (u64, u64)>) -> RangeSet {
    let mut ranks = RangeSet::default();
    for (first, last) in ranges {
        ranks.insert_range(first, last);
    }
    ranks
}

#[test]
fn every_frame_survives_the_wire() {
    for frame in every_frame() {
        let bytes = frame.clone().to_bytes();
        let known = v1::LinkFrame::decode(bytes.clone()).unwrap();
        assert_eq!(known.encoded_len(), bytes.len(), "no longer than prost would write it");
        assert_eq!(decode(bytes).as_ref(), Ok(&frame));
    }
}

#[test]
fn every_state_of_a_member_survives_the_wire() {
    let states =
        MemberState::ALL.map(|state| MemberReport { state, features: Features(5), ..member() });
    let frame = Frame::Members(states.to_vec());
    assert_eq!(decode(frame.clone().to_bytes()).unwrap(), frame);
}

#[test]
fn events_keep_their_bytes_and_share_the_frame() {
    let events = run(3, 2);
    let items = vec![Item { index: 1.into(), content: Content::Events(events.clone()) }];
    let frame = Frame::Down(Down { epoch: epoch(1), items, covered: 2.into() });
    let bytes = frame.to_bytes();
    let whole = bytes.as_ptr_range();
    let Ok(Frame::Down(down)) = decode(bytes.clone()) else { panic!("no down frame") };
    let Content::Events(read) = &down.items[0].content else { panic!("no events") };
    assert_eq!(*read, events);
    assert!(whole.contains(&read.first().bytes().as_ptr()), "the bytes were copied");
}

#[test]
fn torn_and_twisted_frames_are_refused_or_read_but_never_panic() {
    for frame in every_frame() {
        let whole = frame.to_bytes();
        for end in 0..whole.len() {
            let _ = decode(whole.slice(..end));
        }
        for at in 0..whole.len() {
            let mut twisted = whole.to_vec();
            twisted[at] ^= 0x55;
            let _ = decode(Bytes::from(twisted));
        }
    }
}

#[test]
fn what_is_over_a_bound_is_refused() {
    let refused = |frame: Frame| decode(frame.to_bytes()).unwrap_err().to_string();
    let many = (0..=BATCH_EVENTS_MAX as u64)
        .map(|index| Item { index: (index + 1).into(), content: Content::Gap(gap()) })
        .collect();
    let message = refused(Frame::Down(Down { epoch: epoch(1), items: many, covered: 9.into() }));
    assert_eq!(message, "a frame with 1025 events: at most 1024 are allowed");
    let empty = UpBatch {
        origin: OriginId(1),
        run: 1,
        base: 1.into(),
        first: 1.into(),
        wants_disk: false,
        items: Vec::new(),
    };
    assert!(refused(Frame::Up(empty)).contains("out of range"));
    let before_base = UpBatch {
        origin: OriginId(1),
        run: 1,
        base: 5.into(),
        first: 4.into(),
        wants_disk: false,
        items: vec![UpItem::Events(run(1, 1))],
    };
    assert!(refused(Frame::Up(before_base)).contains("out of range"));
    assert!(decode(Bytes::new()).is_err());
    let listed = DynamicMember { host: "node001".into(), rank: Some(Rank(3)) };
    assert!(refused(Frame::DynamicMembers(vec![listed.clone()])).contains("out of range"));
    let wants = DynamicMember { rank: None, ..listed };
    let message = refused(Frame::DynamicMembers(vec![wants; DYNAMIC_MEMBERS_MAX + 1]));
    assert_eq!(message, "a frame with 513 agents that are not listed: at most 512 are allowed");
    let ranges = (0..=SNAPSHOT_RANGES_MAX as u64).map(|at| (2 * at, 2 * at));
    let message = refused(Frame::MembershipSnapshot(Arc::new(snapshot(ranges))));
    assert_eq!(message, "a frame with 32769 ranges of ranks: at most 32768 are allowed");
    for bounds in [vec![1], vec![2, 1], vec![0, 3, 3, 4]] {
        let snapshot = Wire::MembershipSnapshot(v1::MembershipSnapshot { bounds });
        let bytes = v1::LinkFrame { frame: Some(snapshot.clone()) }.encode_to_vec();
        assert!(decode(bytes.into()).is_err(), "{snapshot:?}");
    }
    for index in [0, u64::MAX] {
        let items = vec![Item { index: index.into(), content: Content::Gap(gap()) }];
        assert!(
            refused(Frame::Down(Down { epoch: epoch(1), items, covered: 1.into() }))
                .contains("index")
        );
    }
}

/// As the release before has it on the wire: a gap whose positions are 0.
#[test]
fn a_loss_goes_up_as_a_gap_without_a_range() {
    let Gap { reason, count, severity_max, spaces, .. } = gap();
    let loss = Loss { reason, count, severity_max, spaces };
    let up = |item| Frame::Up(UpBatch { items: vec![item], ..up_batch() });
    let frame = up(UpItem::Loss(loss.clone()));
    assert_eq!(decode(frame.clone().to_bytes()), Ok(frame.clone()));
    let nowhere = loss.between((Position::ZERO, Position::ZERO));
    assert_eq!(frame.to_bytes(), up(UpItem::Gap(nowhere)).to_bytes());
}

fn hello_bytes(hello: v1::LinkHello) -> Bytes {
    v1::LinkFrame { frame: Some(Wire::Hello(hello)) }.encode_to_vec().into()
}

#[test]
fn a_hello_without_a_common_version_is_read_as_far_as_a_rejection_needs() {
    let hello = |protocol| v1::LinkHello {
        protocol,
        cluster: "test".into(),
        host: "node002".into(),
        rank: Some(2),
        epoch_seen: u64::MAX,
        ..v1::LinkHello::default()
    };
    let later = PROTOCOL.max + 1;
    let Frame::Hello(read) = decode(hello_bytes(hello(later))).unwrap() else {
        panic!("no hello");
    };
    assert_eq!((read.versions, &*read.host), (Versions { min: later, max: later }, "node002"));
    assert_eq!((read.rank, read.epoch_seen), (Some(Rank(2)), 0));
    assert!(decode(hello_bytes(hello(PROTOCOL.max))).is_err());
}

/// No peer can push the epochs of others to the end of their numbers.
#[test]
fn an_epoch_leaves_room_for_higher_ones() {
    for number in [EPOCH_NUMBER_MAX, EPOCH_NUMBER_MAX + 1, u64::MAX] {
        let beat = v1::LinkHeartbeat { epoch_seen: number, ..Default::default() };
        let resume = v1::Resume { epoch: Some(v1::Epoch { number, root: 1 }), after: 0 };
        for wire in [Wire::Heartbeat(beat), Wire::Resume(resume)] {
            let bytes = v1::LinkFrame { frame: Some(wire) }.encode_to_vec();
            assert_eq!(decode(bytes.into()).is_ok(), number == EPOCH_NUMBER_MAX, "{number}");
        }
    }
}

/// The field of a LinkFrame that a frame is encoded as.
fn field(frame: &Frame) -> &'static str {
    match frame {
        Frame::Hello(_) => "hello",
        Frame::HelloAck(_) => "hello_ack",
        Frame::HelloNack(_) => "hello_nack",
        Frame::Close(_) => "close",
        Frame::Heartbeat(_) => "heartbeat",
        Frame::TreeState(_) => "tree_state",
        Frame::Resume { .. } => "resume",
        Frame::Subscribe(_) => "subscribe",
        Frame::FilterActive { .. } => "filter_active",
        Frame::Up(_) => "up",
        Frame::Credit { .. } => "credit",
        Frame::Confirm(_) => "confirm",
        Frame::Nak { .. } => "nak",
        Frame::Resend => "resend",
        Frame::Down(_) => "down",
        Frame::HistoryRequest(_) => "history_request",
        Frame::HistoryReply(_) => "history_reply",
        Frame::ReplicaStart(_) => "replica_start",
        Frame::DedupRanges(_) => "dedup_ranges",
        Frame::Replicate(_) => "replicate",
        Frame::ReplicaAck { .. } => "replica_ack",
        Frame::Members(_) => "members",
        Frame::TreeQuery { .. } => "tree_query",
        Frame::TreeAnswer { .. } => "tree_answer",
        Frame::DynamicMembers(_) => "dynamic_members",
        Frame::MembershipSnapshot(_) => "membership_snapshot",
        Frame::Probe(_) => "probe",
        Frame::ProbeAnswer(_) => "probe_answer",
        Frame::TraceRequest(_) => "trace_request",
        Frame::TraceAnswer(_) => "trace_answer",
    }
}

#[test]
fn what_is_said_of_disks_is_read_back() {
    let position = Position { epoch: epoch(4), index: 73.into() };
    for level in [ConfirmLevel::Memory, ConfirmLevel::OneDisk, ConfirmLevel::Disk] {
        let settled = Some(Settled { seq: 5.into(), level });
        let confirm = Confirm { origin: OriginId(5), seq: 6.into(), position, settled };
        let synced = Some(SyncedRange { after: 3.into(), until: 74.into() });
        let frames = [
            Frame::Up(UpBatch { wants_disk: true, ..up_batch() }),
            Frame::Confirm(confirm),
            replica_ack(synced),
        ];
        for frame in frames {
            assert_eq!(decode(frame.clone().to_bytes()).as_ref(), Ok(&frame));
        }
    }
}

#[test]
fn every_frame_is_encoded_as_in_its_golden_file() {
    let proto = include_str!("../../ftb/v1/link.proto");
    let mut fields = crate::golden::fields(proto, "LinkFrame");
    for frame in every_frame() {
        let name = field(&frame);
        assert!(fields.remove(name), "{name} is no field of LinkFrame, or comes twice");
        let golden = crate::golden::check("link", name, &frame.clone().to_bytes());
        assert_eq!(decode(golden).as_ref(), Ok(&frame), "{name}");
    }
    assert!(fields.is_empty(), "{fields:?} have no golden file");
}

fn trace_request() -> TraceRequest {
    let event = EventId { publisher: PublisherId { account: 1, token: 2 }, seq: 3.into() };
    let subject = TraceSubject::Event(event);
    TraceRequest { requester: OriginId(5), request: 1, subject, within_ms: 500 }
}

fn trace_answer() -> TraceAnswer {
    TraceAnswer { requester: OriginId(5), request: 1, trace: event_trace() }
}

fn event_trace() -> EventTrace {
    let hop = |step, number| Hop { step, at_ns: 7, number };
    EventTrace {
        answered: 3,
        event: Some(TracedEvent {
            space: "ftb.x".to_owned(),
            name: "X".to_owned(),
            severity: Severity::Error,
            client: "ftbctl".to_owned(),
        }),
        agents: vec![AgentTrace {
            host: "node1".to_owned(),
            rank: Some(Rank(1)),
            hops: vec![
                (hop(TraceStep::Published, 9), "ftbctl".to_owned()),
                (hop(TraceStep::SentUp, 0), "node0".to_owned()),
            ],
        }],
        omitted: 1,
        silent: vec!["node2".to_owned()],
        silent_more: 2,
        since_ns: 5,
        reports: Vec::new(),
    }
}

#[test]
fn a_request_for_reports_and_the_reports_are_the_same_after_the_wire() {
    let request = TraceRequest { subject: TraceSubject::Reports, ..trace_request() };
    let report = AgentReport {
        host: "node1".to_owned(),
        rank: Some(Rank(1)),
        version: "1.2.3".to_owned(),
        wall_ns: 17,
        certificates_end_ns: Some(18),
        is_secured: true,
        has_journal: Some(false),
        members_digest: 19,
        impossible: 20,
        trust: Some(TrustReport {
            monitors_digest: 21,
            unproven: 22,
            unproven_ns: 23,
            unproven_host: "node3".to_owned(),
        }),
    };
    let answer = TraceAnswer {
        trace: EventTrace { reports: vec![report], ..event_trace() },
        ..trace_answer()
    };
    for frame in [Frame::TraceRequest(request), Frame::TraceAnswer(Box::new(answer))] {
        assert_eq!(decode(frame.clone().to_bytes()).unwrap(), frame);
    }
}

#[test]
fn an_agent_that_does_not_know_users_gets_a_wider_filter_and_a_newer_one_the_same() {
    let filters = vec![
        Filter::parse("severity>=error").unwrap(),
        Filter::parse("jobid=7, uid=1001|1000").unwrap(),
    ];
    let interest = Interest { version: 9, filters: filters.clone() };
    let wire = wire_interest(&interest);
    assert_eq!(wire.filters, ["severity=error|fatal", "jobid=7"]);
    assert_eq!(wire.users, [v1::FilterUsers { filter: 1, uids: vec![1000, 1001] }]);
    assert_eq!(core_interest(wire.clone()).unwrap(), interest);
    let old = v1::Interest { users: Vec::new(), ..wire.clone() };
    let wider = core_interest(old).unwrap().filters;
    assert!(wider[1].covers(&filters[1]) && !filters[1].covers(&wider[1]));
    for users in [
        vec![v1::FilterUsers { filter: 2, uids: vec![1] }],
        vec![v1::FilterUsers { filter: 0, uids: vec![1; ALTERNATIVES_MAX + 1] }],
        vec![v1::FilterUsers { filter: 0, uids: vec![1] }; 3],
    ] {
        assert!(core_interest(v1::Interest { users, ..wire.clone() }).is_err());
    }
}
