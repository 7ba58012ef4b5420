//! Every message survives its encoding; no input panics.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::message::{
    Answer, Closed, ExitCause, FaultCause, FromJl, FromNla, FromRank, HangNotice, HungRank, Ipt,
    JobRequest, Launch, NlaMessage, NumberedRequest, Outcome, Part, RankMessage, TimeLeft, Waiting,
};
use crate::migration_state::MigrationState;
use crate::names::{Episode, JobId, NodeName, Ranks, SetId};
use crate::progress::{Activity, HangKind};
use crate::repair::{RepairCall, RepairKind, RepairNews, RoundResult};
use ftb_core::{Event, EventName, EventSpace, Tag};
use proptest::prelude::*;

const EPISODE: Episode = Episode(7);

fn node() -> NodeName {
    NodeName::new("node01").unwrap()
}

fn time_left() -> TimeLeft {
    let memory_p95_ms = Some(7);
    TimeLeft { left_ms: 19_000, checkpoint_p95_ms: None, memory_p95_ms, migration_p95_ms: Some(12) }
}

fn set() -> SetId {
    SetId::of_migration(EPISODE)
}

fn ranks() -> Ranks {
    Ranks::from_iter([2, 3])
}

fn closed() -> Closed {
    Closed {
        episode: EPISODE,
        kind: "migration".to_owned(),
        done: true,
        words: "moved".to_owned(),
        phases: "leave=1".to_owned(),
        fault: Some(crate::names::FaultId(3)),
        cause: Some(FaultCause {
            what: "FTB_IPMI_FANFAIL on node03".to_owned(),
            rule: "fan failed".to_owned(),
        }),
        choice: "move ranks 2,3 from node03 to node05".to_owned(),
        why: "node05 is the first free spare".to_owned(),
        left: Some(time_left()),
    }
}

fn call() -> RepairCall {
    let (comm, round, kind, members) = (2, 1, RepairKind::Agree, ranks());
    let (flag, acked, lost) = (6, ranks(), ranks());
    RepairCall { call: 5, comm, round, kind, members, flag, acked, next: 3, seen: 1, lost }
}

fn news() -> RepairNews {
    let (comm, first, round, dead) = (2, 0, 1, ranks());
    let (kind, flag, acked, next) = (Some(RepairKind::Shrink), 6, true, 3);
    let decision = RoundResult { comm, first, round, kind, flag, dead, acked, next };
    RepairNews { dead: ranks(), revoked: vec![(2, 0)], seen: 1, decided: Some(decision) }
}

fn jl_messages() -> Vec<FromJl> {
    let (episode, target, source, reason) = (EPISODE, node(), node(), "why not".to_owned());
    vec![
        FromJl::Launch(Launch {
            episode,
            incarnation: 3,
            barrier: 2,
            size: 4,
            set: Some(set()),
            set_size: Some(6),
            placement: [(node(), ranks())].into(),
        }),
        FromJl::Prepare { episode, set: set() },
        FromJl::Release { episode },
        FromJl::Checkpoint { episode, set: set(), loop_id: None },
        FromJl::Checkpoint { episode, set: set(), loop_id: Some(7) },
        FromJl::Migrate { episode, source: source.clone(), set: set(), ranks: ranks() },
        FromJl::MigrateAbort { episode, source, reason: reason.clone() },
        FromJl::Copy {
            episode,
            from: Some(node()),
            target: target.clone(),
            set: set(),
            ranks: ranks(),
        },
        FromJl::MigrateIpt(Ipt {
            episode,
            target: target.clone(),
            ranks: ranks(),
            set: set(),
            incarnation: 4,
            barrier: 2,
        }),
        FromJl::Reset { episode, barrier: 9, reason: reason.clone() },
        FromJl::Rollback { episode, set: set(), ranks: ranks(), left: Ranks::default() },
        FromJl::Rollback { episode, set: set(), ranks: ranks(), left: ranks() },
        FromJl::Usable { episode, target: target.clone() },
        FromJl::Drop { episode, set: set() },
        FromJl::Signal { episode, signal: 10 },
        FromJl::Kill { episode, reason: reason.clone() },
        FromJl::Hang(HangNotice {
            episode,
            rank: Some(HungRank { node: node(), rank: 3, incarnation: 2, pid: 77 }),
            kind: HangKind::Stopped,
            is_over: false,
            kill: true,
            words: reason.clone(),
        }),
        FromJl::Hang(HangNotice {
            episode,
            rank: None,
            kind: HangKind::All,
            is_over: true,
            kill: false,
            words: reason,
        }),
        FromJl::Repair { episode, news: news() },
        FromJl::Waiting(Waiting {
            episode,
            node: node(),
            since_ns: 1,
            until_ns: u64::MAX,
            words: "it waits".to_owned(),
        }),
        FromJl::Evict { episode, target },
        FromJl::Ask,
        FromJl::Alive,
        FromJl::Closed(closed()),
    ]
}

fn nla_messages() -> Vec<FromNla> {
    let (episode, incarnation) = (EPISODE, 2);
    let reason = "no space".to_owned();
    vec![
        FromNla::State {
            episode,
            from: MigrationState::Ready,
            to: MigrationState::Arm,
            changes: 3,
        },
        FromNla::Launched { episode, incarnation, ranks: ranks() },
        FromNla::LaunchFailed { episode, incarnation, ranks: ranks(), reason: reason.clone() },
        FromNla::Prepared { episode, loop_id: None },
        FromNla::Prepared { episode, loop_id: Some(u64::MAX) },
        FromNla::Exited { episode, rank: 3, incarnation, how: ExitCause::Signal(9) },
        FromNla::Pic { episode, ranks: ranks(), set: set() },
        FromNla::Copied { episode, set: set(), ranks: ranks(), bytes: 1 << 40 },
        FromNla::CopyFailed { episode, set: set(), ranks: ranks(), reason },
        FromNla::Restarted { episode, incarnation, ranks: ranks() },
        FromNla::Hang {
            episode,
            rank: 3,
            incarnation,
            job: JobId::new("job").unwrap(),
            kind: HangKind::Unread,
            is_over: true,
            words: "goes on".to_owned(),
        },
        FromNla::HangLeft { job: JobId::new("job").unwrap(), rank: 3 },
        FromNla::Reset { episode },
        FromNla::Stopped { episode },
    ]
}

#[test]
fn every_message_of_the_jl_reads_back() {
    for message in jl_messages() {
        assert_eq!(from_jl(&to_jl(&message).unwrap()), Ok(message));
    }
}

#[test]
fn every_message_of_an_nla_reads_back() {
    for message in nla_messages() {
        let says = NlaMessage { node: node(), message };
        assert_eq!(from_nla(&to_nla(&says).unwrap()), Ok(says));
    }
}

/// Addresses and keys of ranks are in them.
#[test]
fn pmi_never_becomes_an_event() {
    let part = Part { barrier: 2, part: 0, parts: 1, lines: "addr=1\n".to_owned() };
    assert_eq!(to_jl(&FromJl::Pmi { episode: EPISODE, part: part.clone() }), None);
    let message = FromNla::Pmi { episode: EPISODE, ranks: ranks(), joined: ranks(), part };
    assert_eq!(to_nla(&NlaMessage { node: node(), message }), None);
}

#[test]
fn every_message_of_a_rank_and_of_a_person_reads_back() {
    let reason = "disk full".to_owned();
    for message in [
        FromRank::Suspended,
        FromRank::Resumed,
        FromRank::RollbackFailed { set: set(), reason: "torn".to_owned() },
        FromRank::Repair(call()),
        FromRank::CheckpointDone { set: set(), bytes: 5, activity: None },
        FromRank::CheckpointDone {
            set: set(),
            bytes: 5,
            activity: Some(Activity { cpu_ms: 7, sent: u64::MAX }),
        },
        FromRank::CheckpointFailed { set: set(), reason },
    ] {
        let says = RankMessage { episode: EPISODE, rank: 3, message };
        assert_eq!(from_rank(&to_rank(&says)), Ok(says));
    }
    for what in [
        JobRequest::Checkpoint,
        JobRequest::Migrate(node()),
        JobRequest::Drain(node()),
        JobRequest::Usable(node()),
        JobRequest::Add([node(), NodeName::new("node02").unwrap()].into()),
        JobRequest::ResetBreaker,
        JobRequest::Kill,
    ] {
        let asked = NumberedRequest { request: 5, what };
        assert_eq!(from_request(&request(&asked)), Ok(Ok(asked)));
    }
    let said = Answer { request: 5, outcome: Outcome::Refused, words: "no".to_owned() };
    assert_eq!(from_request(&answer(&said)), Ok(Err(said)));
}

/// Half of a job of 512 ranks, every second one, and the most ranks that no range shortens.
#[test]
fn a_list_of_ranks_that_is_longer_than_a_tag_is_read_back_whole() {
    let lists: [(Ranks, usize); 4] = [
        ((0..256).collect(), 1),
        ((0..512).step_by(2).collect(), 1),
        ((0..1024).step_by(2).collect(), 2),
        ((0..8192).step_by(2).collect(), 20),
    ];
    for (ranks, tags) in lists {
        let (episode, target, incarnation) = (EPISODE, node(), 1);
        let copy = FromJl::Copy { episode, from: None, target, set: set(), ranks: ranks.clone() };
        let event = to_jl(&copy).unwrap();
        event.check(ftb_core::limits::PAYLOAD_BYTES_DEFAULT).unwrap();
        let is_of_list = |tag: &&Tag| tag.key.starts_with("ranks");
        assert_eq!(event.tags.iter().filter(is_of_list).count(), tags, "{}", ranks.len());
        assert_eq!(from_jl(&event), Ok(copy));
        // A reader that knows no ranges and one tag takes no part of it for the whole.
        let first = event.tag("ranks").and_then(|list| list.split(' ').next()).unwrap();
        assert!(first.contains('-') || ranks.to_string() == event.tag("ranks").unwrap(), "{first}");
        let message = FromNla::Launched { episode, incarnation, ranks };
        let says = NlaMessage { node: node(), message };
        let event = to_nla(&says).unwrap();
        event.check(ftb_core::limits::PAYLOAD_BYTES_DEFAULT).unwrap();
        assert_eq!(from_nla(&event), Ok(says));
    }
    // Both lists of a rollback of the largest job of ftb-job.
    let ranks: Ranks = (0..1024).collect();
    let left: Ranks = (0..1024).step_by(2).collect();
    let back = FromJl::Rollback { episode: EPISODE, set: set(), ranks, left };
    let event = to_jl(&back).unwrap();
    event.check(ftb_core::limits::PAYLOAD_BYTES_DEFAULT).unwrap();
    assert_eq!(from_jl(&event), Ok(back));
}

/// Libraries of earlier releases read no ranges.
#[test]
fn a_list_of_ranks_that_fits_into_a_tag_names_each() {
    let ranks = Ranks::from_iter([0, 1, 2, 3]);
    let event =
        to_jl(&FromJl::Rollback { episode: EPISODE, set: set(), ranks, left: Ranks::default() });
    assert_eq!(event.unwrap().tag("ranks"), Some("0 1 2 3"));
}

#[test]
fn the_payloads_are_those_of_the_thesis() {
    let text = |event: &Event| String::from_utf8(event.payload.to_vec()).unwrap();
    let messages = jl_messages();
    let payload_of = |name: &str| {
        let events = messages.iter().filter_map(to_jl);
        let event = events.into_iter().find(|e| e.name.as_str() == name);
        text(&event.unwrap())
    };
    assert_eq!(payload_of("FTB_MIGRATE"), "node01");
    assert_eq!(payload_of("FTB_MIGRATE_IPT"), "node01 2 3");
    assert_eq!(payload_of("FTB_CHECKPOINT"), "mig-000007");
}

#[test]
fn a_set_that_climbs_is_refused_with_its_field() {
    let mut event =
        to_jl(&FromJl::Checkpoint { episode: EPISODE, set: set(), loop_id: None }).unwrap();
    for tag in &mut event.tags {
        if tag.key == "set" {
            tag.value = "../../etc".to_owned();
        }
    }
    let error = from_jl(&event).unwrap_err().to_string();
    assert!(error.contains("FTB_CHECKPOINT") && error.contains("set"), "{error}");
}

proptest! {
    #[test]
    fn no_event_panics(
        which in 0..28usize,
        value in ".{0,40}",
        field in 0..6usize,
        payload in ".{0,60}",
    ) {
        let mut events: Vec<Event> = jl_messages().iter().filter_map(to_jl).collect();
        let messages = nla_messages().into_iter();
        let of_node = |message| to_nla(&NlaMessage { node: node(), message });
        events.extend(messages.filter_map(of_node));
        let mut event = events[which % events.len()].clone();
        let tags = event.tags.len();
        if tags > 0 {
            event.tags[field % tags] = Tag { key: event.tags[field % tags].key.clone(), value };
        }
        event.payload = payload.into();
        let _ = (from_jl(&event), from_nla(&event), from_rank(&event), from_request(&event));
        event.space = EventSpace::new("ftb.job").unwrap();
        event.name = EventName::new("FTB_JOB_REQUEST").unwrap();
        let _ = from_request(&event);
    }
}
