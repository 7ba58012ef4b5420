use super::*;
use crate::group::Grouper;
use crate::ident::OriginId;
use crate::log::entries::cost_of;
use crate::node::config::MemberList;
use crate::sealed::{GroupHead, Head, Span};
use crate::severity::Severity;
use crate::storm::StormRule;
use crate::testing::sealed_with;

const MS: u64 = 1_000_000;

fn member(event: SealedRef<'_>) -> Option<Sealed> {
    let head = Head { is_member: true, ..event.head() };
    Sealed::new(head, event.to_sealed().into_bytes()).ok()
}

fn fold(carrier: &Sealed, fold: &GroupFold) -> Option<Sealed> {
    let mut bytes = carrier.bytes().to_vec();
    let mut put = |part: &[u8]| {
        bytes.extend_from_slice(part);
        let len = u32::try_from(part.len()).expect("small");
        Span { start: u32::try_from(bytes.len()).expect("small") - len, len }
    };
    let (hosts, members) = (put(fold.hosts.as_bytes()), put(&fold.members));
    let group = Some(GroupHead { count: fold.count, hosts, members });
    Sealed::new(Head { is_member: false, group, ..*carrier.head() }, bytes.into()).ok()
}

fn config() -> NodeConfig {
    let members = MemberList::from(Vec::new());
    let mut config = NodeConfig::new("test", "node1", OriginId(1), members);
    config.grouper = Some(Grouper { values: |_, tags| Some(vec![""; tags.len()]), member, fold });
    config.storm = vec![StormRule {
        space: None,
        severity_max: Severity::Error,
        fold_ms: 1_000,
        group_by: vec!["neighbour".to_owned()],
        events_per_s: 0,
        burst: 1,
    }];
    config
}

/// A log that only groups write.
struct Feeder {
    config: NodeConfig,
    grouping: Grouping,
    /// Token and sequence of events; of folds those of all members.
    log: Vec<Vec<(u64, u64)>>,
}

impl Feeder {
    fn new() -> Self {
        Self { config: config(), grouping: Grouping::default(), log: Vec::new() }
    }

    fn add_folds(&mut self, folds: &[Sealed]) {
        for fold in folds {
            let group = fold.as_ref().group().expect("a fold");
            let ids = group.members().into_iter().flat_map(|members| members.ids());
            self.log.push(ids.map(|id| (id.publisher.token, id.seq.get())).collect());
        }
    }

    fn feed(&mut self, at_ms: u64, token: u64, seq: u64, severity: Severity) -> bool {
        let event = sealed_with(token, seq, severity);
        let placed = self.grouping.place(at_ms * MS, &self.config, true, event.as_ref());
        self.add_folds(&placed.folds);
        self.grouping.note_appended(cost_of(&Content::Events(event.into())));
        if placed.member.is_none() {
            self.log.push(vec![(token, seq)]);
        }
        placed.member.is_some()
    }

    fn tick(&mut self, at_ms: u64) {
        let folds = self.grouping.end_due(&self.config, at_ms * MS);
        self.add_folds(&folds);
    }
}

#[test]
fn like_events_of_many_publishers_become_one_when_the_window_ends() {
    let mut feeder = Feeder::new();
    for token in 1..=50 {
        assert!(feeder.feed(token, token, 1, Severity::Warning));
    }
    assert_eq!(feeder.grouping.deadline_ns(true), Some(1_001 * MS));
    feeder.tick(1_000);
    assert!(feeder.log.is_empty());
    feeder.tick(1_001);
    assert_eq!(feeder.log, [(1..=50).map(|token| (token, 1)).collect::<Vec<_>>()]);
    assert_eq!((feeder.grouping.deadline_ns(true), feeder.grouping.bytes()), (None, 0));
    assert_eq!((feeder.grouping.members, feeder.grouping.newest.len()), (0, 0));
}

#[test]
fn events_and_folds_keep_the_order_of_each_publisher() {
    let mut feeder = Feeder::new();
    feeder.feed(0, 1, 1, Severity::Warning);
    feeder.feed(1, 2, 1, Severity::Error);
    feeder.feed(2, 1, 2, Severity::Error);
    // Its first event is in the second group: it must not join the first.
    feeder.feed(3, 2, 2, Severity::Warning);
    feeder.feed(4, 3, 1, Severity::Warning);
    assert_eq!(feeder.grouping.groups.len(), 3);
    // Outside groups: all that its publisher said before goes first.
    assert!(!feeder.feed(5, 1, 3, Severity::Fatal));
    let log: [&[(u64, u64)]; 3] = [&[(1, 1), (3, 1)], &[(1, 2), (2, 1)], &[(1, 3)]];
    assert_eq!(feeder.log, log);
    assert!(!feeder.feed(6, 9, 1, Severity::Fatal), "it has no event in a group");
    feeder.tick(2_000);
    assert_eq!(feeder.log[4], [(2, 2)]);
}

#[test]
fn groups_are_bounded_in_number_members_and_bytes() {
    let mut feeder = Feeder::new();
    let many = MEMBERS_MAX as u64 + 100;
    for token in 1..=many {
        feeder.feed(0, token, 1, Severity::Warning);
        assert!(feeder.grouping.members <= MEMBERS_MAX);
        assert!(feeder.grouping.bytes() <= CARRIER_BYTES_MAX);
    }
    feeder.tick(5_000);
    let mut all: Vec<(u64, u64)> = feeder.log.concat();
    all.sort_unstable();
    assert_eq!(all, (1..=many).map(|token| (token, 1)).collect::<Vec<_>>());
    assert!(feeder.log.iter().all(|fold| fold.len() <= GROUP_MEMBERS_MAX));
}

#[test]
fn groups_end_before_the_log_can_drop_their_members() {
    let mut feeder = Feeder::new();
    feeder.config.log_bytes = 64 << 10;
    for token in 1..=1_000 {
        feeder.feed(0, token, 1, [Severity::Warning, Severity::Error][token as usize % 2]);
        let bytes = feeder.grouping.appended;
        assert!(bytes <= feeder.config.log_bytes / LOG_PART + 1_000, "{bytes}");
    }
}

#[test]
fn the_members_without_a_fold_are_read_from_the_log() {
    let mut log = Log::new(0.into(), config().conditions);
    let mut push = |event: Sealed| {
        let index = log.last().next();
        log.push(crate::frame::Item { index, content: Content::Events(event.into()) });
    };
    let events: Vec<Sealed> = (1..=4)
        .map(|token| member(sealed_with(token, 1, Severity::Warning).as_ref()).expect("one"))
        .collect();
    events[..2].iter().cloned().for_each(&mut push);
    let mut hosts = GroupHosts::default();
    events[..2].iter().for_each(|event| hosts.insert(event.host(), event.id()));
    push(fold(&events[1], &GroupFold::of(&hosts, (0, 0))).expect("a fold"));
    events[2..].iter().cloned().for_each(&mut push);
    push(sealed_with(9, 1, Severity::Warning));
    let (after, left) = members_without_fold(&log, LogIndex::ZERO);
    assert_eq!((after, &left[..]), (3.into(), &events[2..]));
}
