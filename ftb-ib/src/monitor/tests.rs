//! The adapters of a node, input by input.

use super::*;
use crate::counter::Limit;
use crate::facts::PortFacts;

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;

fn reading(state: PortState) -> PortReading {
    PortReading {
        state,
        lid: 7,
        sm_lid: 1,
        link_layer: "InfiniBand".into(),
        speed: "100 Gb/sec (4X EDR)".into(),
    }
}

fn adapter(name: &str, states: &[PortState]) -> AdapterFacts {
    AdapterFacts {
        name: name.into(),
        guid: format!("guid of {name}"),
        ports: (1..)
            .zip(states)
            .map(|(number, state)| PortFacts {
                number,
                reading: reading(*state),
                netdev: None,
                neighbour: None,
            })
            .collect(),
    }
}

fn event(adapter: &str, number: u32, port: u8, state: Option<PortState>) -> Input {
    Input::Async {
        adapter: adapter.into(),
        number,
        port: (port > 0).then_some(port),
        reading: state.map(reading),
    }
}

/// The adapters at this moment.
fn there(adapters: Vec<AdapterFacts>) -> Input {
    Input::Inventory { began_ns: u64::MAX, adapters }
}

struct Story {
    monitor: Monitor,
    now_ns: u64,
}

impl Story {
    fn new() -> Self {
        let rules = vec![Rule {
            counter: "symbol_error".into(),
            means: Meaning::Degraded,
            limit: Limit { increase: 10, window: Duration::from_secs(60), surge: None },
        }];
        Self { monitor: Monitor::new(Duration::from_secs(1), rules), now_ns: 0 }
    }

    /// The events of one input, as `NAME payload`.
    fn payloads(&mut self, input: Input) -> Vec<String> {
        self.findings(input)
            .iter()
            .map(|finding| format!("{} {}", &finding.kind.name()[7..], finding.payload))
            .collect()
    }

    fn findings(&mut self, input: Input) -> Vec<Finding> {
        let mut findings = Vec::new();
        self.monitor.handle(self.now_ns, input, &mut findings);
        findings
    }

    fn after(&mut self, ns: u64) -> &mut Self {
        self.now_ns += ns;
        self
    }
}

#[test]
fn the_first_inventory_reports_every_adapter_and_port() {
    use PortState::{Active, Down};
    let mut story = Story::new();
    let inventory = there(vec![adapter("mlx5_10", &[Down]), adapter("mlx5_2", &[Active, Down])]);
    assert_eq!(
        story.payloads(inventory.clone()),
        [
            "ADAPTER_AVAILABLE NUM_ADAPTERS:2",
            "ADAPTER_INFO ADAPTER:0::NAME:mlx5_2::PORTS:2",
            "PORT_INFO ADAPTER:0::PORT:1::STATE:ACTIVE",
            "PORT_INFO ADAPTER:0::PORT:2::STATE:DOWN",
            "ADAPTER_INFO ADAPTER:1::NAME:mlx5_10::PORTS:1",
            "PORT_INFO ADAPTER:1::PORT:1::STATE:DOWN",
        ]
    );
    assert!(story.payloads(inventory).is_empty(), "nothing has changed");
}

#[test]
fn the_absence_of_adapters_is_reported_once() {
    let mut story = Story::new();
    let none = || there(vec![]);
    let one = || there(vec![adapter("rxe0", &[PortState::Active])]);
    assert_eq!(story.payloads(none()), ["ADAPTER_UNAVAILABLE "]);
    assert!(story.payloads(none()).is_empty());
    let there = [
        "ADAPTER_AVAILABLE NUM_ADAPTERS:1",
        "ADAPTER_INFO ADAPTER:0::NAME:rxe0::PORTS:1",
        "PORT_INFO ADAPTER:0::PORT:1::STATE:ACTIVE",
    ];
    assert_eq!(story.payloads(one()), there);
    let gone = ["ADAPTER_REMOVED ADAPTER:0::NAME:rxe0", "ADAPTER_UNAVAILABLE "];
    assert_eq!(story.payloads(none()), gone);
    assert!(story.payloads(none()).is_empty());
    assert_eq!(story.payloads(one()), there);
}

#[test]
fn an_adapter_that_was_lost_and_is_back_is_reported_twice() {
    let mut story = Story::new();
    let one = || there(vec![adapter("mlx5_0", &[])]);
    story.payloads(one());
    assert_eq!(
        story.payloads(Input::Removed("mlx5_0".into())),
        ["ADAPTER_REMOVED ADAPTER:0::NAME:mlx5_0", "ADAPTER_UNAVAILABLE "]
    );
    assert!(story.payloads(Input::Removed("mlx5_0".into())).is_empty());
    assert_eq!(story.payloads(one()).len(), 2);
}

#[test]
fn a_new_port_of_a_known_adapter_is_reported() {
    let mut story = Story::new();
    let ports = |states: &[PortState]| there(vec![adapter("mlx5_0", states)]);
    story.payloads(ports(&[PortState::Active]));
    assert_eq!(
        story.payloads(ports(&[PortState::Active, PortState::Init])),
        ["PORT_INFO ADAPTER:0::PORT:2::STATE:INIT"]
    );
}

#[test]
fn an_adapter_that_comes_back_gets_its_old_index() {
    let a = || adapter("mlx5_0", &[]);
    let b = || adapter("mlx5_1", &[]);
    let mut story = Story::new();
    story.payloads(there(vec![a(), b()]));
    assert_eq!(story.payloads(there(vec![b()])), ["ADAPTER_REMOVED ADAPTER:0::NAME:mlx5_0"]);
    assert_eq!(
        story.payloads(there(vec![a(), b()])),
        ["ADAPTER_AVAILABLE NUM_ADAPTERS:2", "ADAPTER_INFO ADAPTER:0::NAME:mlx5_0::PORTS:0"]
    );
    let mut other = b();
    other.guid = "another card".into();
    assert_eq!(
        story.payloads(there(vec![a(), other])),
        [
            "ADAPTER_REMOVED ADAPTER:1::NAME:mlx5_1",
            "ADAPTER_AVAILABLE NUM_ADAPTERS:2",
            "ADAPTER_INFO ADAPTER:1::NAME:mlx5_1::PORTS:0",
        ]
    );
}

#[test]
fn every_verbs_event_has_the_payload_of_its_kind() {
    let mut story = Story::new();
    story.payloads(there(vec![adapter("mlx5_0", &[PortState::Active])]));
    let active = Some(PortState::Active);
    for (number, port, expected) in [
        (8, 0, "EVENT_DEVICE_FATAL ADAPTER:0"),
        (11, 1, "EVENT_LID_CHANGE ADAPTER:0::PORT:1"),
        (12, 1, "EVENT_PKEY_CHANGE ADAPTER:0::PORT:1"),
        (13, 1, "EVENT_SM_CHANGE ADAPTER:0::PORT:1"),
        (17, 1, "EVENT_CLIENT_REREGISTER ADAPTER:0::PORT:1"),
        (18, 1, "EVENT_GID_CHANGE ADAPTER:0::PORT:1"),
        (0, 0, "EVENT_CQ_ERR ADAPTER:0"),
        (99, 0, "EVENT_UNKNOWN ADAPTER:0::EVENT:99"),
        (13, 9, "EVENT_SM_CHANGE ADAPTER:0::PORT:9"),
    ] {
        let payloads = story.payloads(event("mlx5_0", number, port, active));
        assert_eq!(payloads, [expected]);
    }
    assert!(story.payloads(event("unknown", 8, 0, None)).is_empty());
}

#[test]
fn repeats_of_an_event_are_reported_together_with_their_count() {
    let mut story = Story::new();
    story.payloads(there(vec![adapter("mlx5_0", &[PortState::Active])]));
    let gid = || event("mlx5_0", 18, 1, Some(PortState::Active));
    assert_eq!(story.payloads(gid()).len(), 1);
    for _ in 0..5 {
        assert!(story.after(MS).payloads(gid()).is_empty());
    }
    let due = story.monitor.deadline_ns().expect("repeats wait");
    story.now_ns = due;
    let findings = story.findings(Input::Tick);
    assert_eq!(findings.len(), 1);
    assert!(findings[0].tags.contains(&("repeats", "5".into())));
    assert!(story.after(S).payloads(Input::Tick).is_empty());
    assert_eq!(story.monitor.deadline_ns(), None);
}

#[test]
fn repeats_of_an_unknown_event_carry_its_number() {
    let mut story = Story::new();
    story.payloads(there(vec![adapter("mlx5_0", &[])]));
    let new = || event("mlx5_0", 77, 0, None);
    assert_eq!(story.payloads(new()), ["EVENT_UNKNOWN ADAPTER:0::EVENT:77"]);
    assert!(story.payloads(new()).is_empty());
    assert_eq!(story.after(2 * S).payloads(Input::Tick), ["EVENT_UNKNOWN ADAPTER:0::EVENT:77"]);
}

#[test]
fn a_cable_pull_is_reported_once_even_if_the_driver_repeats_it() {
    use PortState::{Active, Down};
    let mut story = Story::new();
    story.payloads(there(vec![adapter("rxe0", &[Active])]));
    let down = || event("rxe0", 10, 1, Some(Down));
    assert_eq!(story.payloads(down()), ["PORT_ERR ADAPTER:0::PORT:1"]);
    assert!(story.payloads(down()).is_empty());
    assert!(story.payloads(there(vec![adapter("rxe0", &[Down])])).is_empty());
    let up = || event("rxe0", 9, 1, Some(Active));
    let findings = story.after(2 * S).findings(up());
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].kind, Kind::PortActive);
    assert!(findings[0].tags.contains(&("state", "ACTIVE".into())));
    assert!(story.payloads(up()).is_empty());
}

#[test]
fn a_reading_that_began_before_an_event_does_not_undo_it() {
    use PortState::{Active, Down};
    let mut story = Story::new();
    story.payloads(there(vec![adapter("rxe0", &[Active])]));
    let slow = |began_ns| Input::Inventory { began_ns, adapters: vec![adapter("rxe0", &[Active])] };
    let began_ns = story.now_ns;
    story.after(MS);
    assert_eq!(story.payloads(event("rxe0", 10, 1, Some(Down))), ["PORT_ERR ADAPTER:0::PORT:1"]);
    assert!(story.after(MS).payloads(slow(began_ns)).is_empty());
    assert!(story.after(5 * S).payloads(Input::Tick).is_empty());
    let began_ns = story.now_ns;
    assert_eq!(story.payloads(slow(began_ns)), ["PORT_ACTIVE ADAPTER:0::PORT:1"]);
}

#[test]
fn the_next_inventory_finds_a_change_without_an_event() {
    let mut story = Story::new();
    story.payloads(there(vec![adapter("siw0", &[PortState::Active])]));
    let dark = there(vec![adapter("siw0", &[PortState::Down])]);
    assert_eq!(story.payloads(dark), ["PORT_ERR ADAPTER:0::PORT:1"]);
}

#[test]
fn a_port_error_without_a_reading_is_reported() {
    let mut story = Story::new();
    story.payloads(there(vec![adapter("mlx5_0", &[PortState::Active])]));
    assert_eq!(story.payloads(event("mlx5_0", 10, 1, None)), ["PORT_ERR ADAPTER:0::PORT:1"]);
    assert!(story.after(5 * S).payloads(Input::Tick).is_empty());
}

#[test]
fn a_flapping_port_reports_the_number_of_changes() {
    use PortState::{Active, Down};
    let mut story = Story::new();
    story.payloads(there(vec![adapter("mlx5_0", &[Active])]));
    let mut reports = 0;
    for step in 0..11 {
        let (number, state) = if step % 2 == 0 { (10, Down) } else { (9, Active) };
        reports += story.after(MS).payloads(event("mlx5_0", number, 1, Some(state))).len();
    }
    assert_eq!(reports, 1);
    let findings = story.after(S).findings(Input::Tick);
    assert_eq!(findings[0].payload, "ADAPTER:0::PORT:1::FLAPS:10");
    assert_eq!(findings.len(), 1, "the port is down, as reported");
}

#[test]
fn a_counter_that_rises_too_fast_degrades_its_port_until_it_slows_down() {
    let mut story = Story::new();
    story.payloads(there(vec![adapter("mlx5_0", &[PortState::Active])]));
    let sample = |value| Input::Counters {
        adapter: "mlx5_0".into(),
        port: 1,
        values: vec![("symbol_error".into(), value), ("unwatched".into(), value * 1000)],
    };
    assert!(story.payloads(sample(1000)).is_empty());
    assert!(story.after(10 * S).payloads(sample(1003)).is_empty());
    let findings = story.after(10 * S).findings(sample(1015));
    assert_eq!(findings[0].kind, Kind::PortDegraded);
    assert_eq!(
        findings[0].payload,
        "ADAPTER:0::PORT:1::COUNTER:symbol_error::RATE:15.000::LIMIT:10.000"
    );
    for tag in [("counter", "symbol_error"), ("increase", "15"), ("basis", "limit")] {
        assert!(findings[0].tags.contains(&(tag.0, tag.1.into())), "{tag:?}");
    }
    let mut recovered = Vec::new();
    for _ in 0..20 {
        recovered.extend(story.after(10 * S).payloads(sample(1015)));
    }
    assert_eq!(
        recovered,
        ["PORT_RECOVERED ADAPTER:0::PORT:1::COUNTER:symbol_error::RATE:0.000::LIMIT:5.000"]
    );
}

#[test]
fn a_counter_at_its_maximum_is_reported() {
    let mut story = Story::new();
    story.payloads(there(vec![adapter("mlx5_0", &[PortState::Active])]));
    let sample = |value| Input::Counters {
        adapter: "mlx5_0".into(),
        port: 1,
        values: vec![("symbol_error".into(), value)],
    };
    story.payloads(sample(65_534));
    let payloads = story.after(S).payloads(sample(65_535));
    assert_eq!(payloads, ["PORT_DEGRADED ADAPTER:0::PORT:1::COUNTER:symbol_error::STUCK:65535"]);
}
