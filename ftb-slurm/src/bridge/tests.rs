//! The bridge beside a person and a Slurm in memory: single rules, and random interleavings.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::health::Answer;
use ftb_client::ConditionState;
use ftb_core::condition::SILENCED;
use ftb_core::numbers::PublisherSeq;
use ftb_core::{EventId, PublisherId};
use proptest::prelude::*;
use std::time::Duration;

const USER: &str = "slurm";
const NODES: usize = 4;

fn rules() -> Rules {
    let ignored = BTreeSet::from(["CERTIFICATE_EXPIRES".to_owned()]);
    let conditions = BTreeSet::new();
    Rules { severity: Severity::Error, conditions, ignored, drained_percent_max: 100 }
}

fn name(index: usize) -> String {
    format!("node{:02}", index + 1)
}

fn fan(index: usize, number: usize) -> Subject {
    Subject::new(&name(index), &format!("FAN {number}"), "FANFAIL")
}

fn stated(truth: Truth, onset_ns: u64) -> Statement {
    Statement { truth, severity: Severity::Error, onset_ns }
}

/// Nodes as Slurm keeps them, and who wrote each reason.
#[derive(Clone, Debug)]
struct Slurm {
    nodes: Vec<Node>,
    is_persons: [bool; NODES],
}

impl Slurm {
    fn new() -> Self {
        let node = |index| Node {
            name: name(index),
            is_drained: false,
            is_down: false,
            is_marked: false,
            reason: String::new(),
            user: String::new(),
        };
        Self { nodes: (0..NODES).map(node).collect(), is_persons: [false; NODES] }
    }

    fn set(&mut self, index: usize, is_drained: bool, reason: &str, user: &str) {
        let node = &mut self.nodes[index];
        node.is_drained = is_drained;
        (node.reason, node.user) = (reason.to_owned(), user.to_owned());
    }

    fn person(&mut self, index: usize, is_drained: bool, reason: &str, user: &str) {
        self.set(index, is_drained, reason, user);
        self.is_persons[index] = !reason.is_empty();
    }

    /// Carries out an order: never against a person.
    fn execute(&mut self, order: &Order) {
        let (hosts, reason) = match order {
            Order::Drain { hosts, reason } => (hosts, Some(reason)),
            Order::Undrain { hosts } => (hosts, None),
        };
        for host in hosts {
            let index = self.nodes.iter().position(|node| node.name == *host);
            let index = index.expect("a known node");
            assert!(!self.is_persons[index], "{order:?} against {:?}", self.nodes[index]);
            match reason {
                Some(reason) => self.set(index, true, reason, USER),
                None => {
                    assert!(self.nodes[index].is_drained, "{order:?}");
                    self.set(index, false, "", "");
                }
            }
        }
    }

    /// Reads and obeys until the bridge has no order.
    fn settle(&mut self, bridge: &mut Bridge) -> Vec<Order> {
        let mut orders = Vec::new();
        bridge.on_pass();
        while let Some(order) = bridge.on_nodes(self.nodes.clone()).order {
            self.execute(&order);
            bridge.on_obeyed(order.clone());
            orders.push(order);
            assert!(orders.len() <= 4 * NODES, "it never ends: {orders:?}");
        }
        orders
    }

    fn reasons(&self) -> Vec<&str> {
        self.nodes.iter().map(|node| node.reason.as_str()).collect()
    }
}

#[test]
fn a_silenced_condition_neither_drains_nor_resumes() {
    let (mut bridge, mut slurm) = (Bridge::new(rules(), USER.to_owned()), Slurm::new());
    let lasts = (0, std::time::Duration::from_secs(1));
    let silence = Silence::new("a".to_owned(), "node[01-02]", None, lasts, "new fans");
    let silences = vec![silence.expect("it is good")];
    bridge.on_silences(silences.clone());
    for index in [0, 2] {
        bridge.on_statement(fan(index, 1), stated(Truth::True, 1));
    }
    slurm.settle(&mut bridge);
    assert_eq!(slurm.reasons(), ["", "", "ftb:FANFAIL FAN 1", ""], "only node03 is not silenced");
    bridge.on_silences(Vec::new());
    slurm.settle(&mut bridge);
    assert_eq!(slurm.reasons()[0], "ftb:FANFAIL FAN 1", "the silence is over");
    bridge.on_silences(silences);
    bridge.on_statement(fan(0, 1), stated(Truth::False, 1));
    assert!(slurm.settle(&mut bridge).is_empty(), "it is silenced: no resume");
    bridge.on_silences(Vec::new());
    slurm.settle(&mut bridge);
    assert_eq!(slurm.reasons()[0], "");
}

#[test]
fn one_call_drains_all_nodes_with_the_same_fault_and_one_resumes_them() {
    let (mut bridge, mut slurm) = (Bridge::new(rules(), USER.to_owned()), Slurm::new());
    for index in 0..3 {
        bridge.on_statement(fan(index, 1), stated(Truth::True, 1));
    }
    let hosts: Vec<_> = (0..3).map(name).collect();
    let reason = "ftb:FANFAIL FAN 1".to_owned();
    let drain = Order::Drain { hosts: hosts.clone(), reason };
    assert_eq!(slurm.settle(&mut bridge), [drain]);
    for index in 0..3 {
        bridge.on_statement(fan(index, 1), stated(Truth::False, 1));
    }
    assert_eq!(slurm.settle(&mut bridge), [Order::Undrain { hosts }]);
}

#[test]
fn what_is_mild_ignored_or_unknown_drains_no_node() {
    let (mut bridge, mut slurm) = (Bridge::new(rules(), USER.to_owned()), Slurm::new());
    let warning = Statement { severity: Severity::Warning, ..stated(Truth::True, 1) };
    bridge.on_statement(fan(0, 1), warning);
    bridge.on_statement(fan(1, 1), stated(Truth::Unknown, 1));
    let expires = Subject::new(&name(2), "", "CERTIFICATE_EXPIRES");
    bridge.on_statement(expires, stated(Truth::True, 1));
    assert_eq!(slurm.settle(&mut bridge), []);
}

#[test]
fn a_node_stays_drained_while_a_condition_is_unknown() {
    let (mut bridge, mut slurm) = (Bridge::new(rules(), USER.to_owned()), Slurm::new());
    bridge.on_statement(fan(0, 1), stated(Truth::True, 1));
    assert_eq!(slurm.settle(&mut bridge).len(), 1);
    bridge.on_statement(fan(0, 1), stated(Truth::Unknown, 1));
    assert_eq!(slurm.settle(&mut bridge), []);
    bridge.on_statement(fan(0, 1), stated(Truth::False, 1));
    bridge.on_statement(fan(0, 2), stated(Truth::Unknown, 1));
    assert_eq!(slurm.settle(&mut bridge), []);
    bridge.on_statement(fan(0, 2), stated(Truth::True, 2));
    slurm.settle(&mut bridge);
    assert_eq!(slurm.reasons()[0], "ftb:FANFAIL FAN 2", "the reason is one that holds");
}

#[test]
fn a_bridge_that_starts_again_knows_its_drains_and_no_others() {
    let mut slurm = Slurm::new();
    slurm.set(0, true, "ftb:FANFAIL FAN 1", USER);
    slurm.person(1, true, "ftb:FANFAIL FAN 1", "ann");
    slurm.person(2, true, "ftb:FANFAIL FAN 1, waits for a part", USER);
    slurm.person(3, true, "ftb:FANFAIL FAN 7", USER);
    let mut bridge = Bridge::new(rules(), USER.to_owned());
    bridge.on_table((0..NODES).map(|index| (fan(index, 1), stated(Truth::False, 1))));
    assert_eq!(slurm.settle(&mut bridge), [Order::Undrain { hosts: vec![name(0)] }]);
}

#[test]
fn a_person_who_resumes_a_node_is_right_until_its_conditions_change() {
    let (mut bridge, mut slurm) = (Bridge::new(rules(), USER.to_owned()), Slurm::new());
    bridge.on_statement(fan(0, 1), stated(Truth::True, 1));
    assert_eq!(slurm.settle(&mut bridge).len(), 1);
    slurm.person(0, false, "", "");
    assert_eq!(slurm.settle(&mut bridge), []);
    bridge.on_statement(fan(0, 1), stated(Truth::False, 1));
    assert_eq!(slurm.settle(&mut bridge), []);
    bridge.on_statement(fan(0, 1), stated(Truth::True, 2));
    assert_eq!(slurm.settle(&mut bridge).len(), 1);
}

#[test]
fn a_person_who_resumes_a_node_is_right_also_for_the_next_bridge() {
    let (mut bridge, mut slurm) = (Bridge::new(rules(), USER.to_owned()), Slurm::new());
    bridge.on_statement(fan(0, 1), stated(Truth::True, 1));
    assert_eq!(slurm.settle(&mut bridge).len(), 1);
    slurm.person(0, false, "", "");
    assert_eq!(slurm.settle(&mut bridge), []);
    let mut next = Bridge::new(rules(), USER.to_owned());
    next.set_accepted(bridge.accepted().clone());
    next.on_table([(fan(0, 1), stated(Truth::True, 1))]);
    assert_eq!(slurm.settle(&mut next), []);
    next.on_statement(fan(0, 1), stated(Truth::True, 2));
    assert_eq!(slurm.settle(&mut next).len(), 1, "the next onset counts");
    next.on_statement(fan(0, 1), stated(Truth::False, 2));
    assert!(next.accepted().is_empty());
}

#[test]
fn a_person_who_resumes_a_node_right_after_the_call_is_right() {
    let (mut bridge, mut slurm) = (Bridge::new(rules(), USER.to_owned()), Slurm::new());
    bridge.on_statement(fan(0, 1), stated(Truth::True, 1));
    let order = bridge.on_nodes(slurm.nodes.clone()).order.expect("a condition holds");
    slurm.execute(&order);
    bridge.on_obeyed(order.clone());
    slurm.person(0, false, "", "");
    assert_eq!(slurm.settle(&mut bridge), [], "before the bridge has seen its drain");
    bridge.on_statement(fan(0, 1), stated(Truth::False, 2));
    bridge.on_statement(fan(0, 1), stated(Truth::True, 3));
    // A call that failed has drained nothing: the next reading leads to the same order.
    assert_eq!(bridge.on_nodes(slurm.nodes.clone()).order, Some(order.clone()));
    assert_eq!(bridge.on_nodes(slurm.nodes.clone()).order, Some(order));
}

#[test]
fn beyond_the_share_no_further_node_is_drained() {
    let limited = Rules { drained_percent_max: 50, ..rules() };
    let (mut bridge, mut slurm) = (Bridge::new(limited, USER.to_owned()), Slurm::new());
    bridge.on_table((0..NODES).map(|index| (fan(index, 1), stated(Truth::True, 1))));
    let decision = bridge.on_nodes(slurm.nodes.clone());
    let notice = Notice::Limited { hosts: vec![name(2), name(3)] };
    assert_eq!(decision.notices, [notice]);
    slurm.execute(&decision.order.expect("two have room"));
    let next = bridge.on_nodes(slurm.nodes.clone());
    assert_eq!(next.order, None);
    assert!(next.notices.iter().all(|notice| !matches!(notice, Notice::Limited { .. })));
    bridge.on_statement(fan(0, 1), stated(Truth::False, 1));
    slurm.settle(&mut bridge);
    let drained = slurm.nodes.iter().map(|node| node.is_drained);
    assert_eq!(drained.collect::<Vec<_>>(), [false, true, true, false]);
}

#[test]
fn what_people_and_slurm_do_is_published() {
    let (mut bridge, mut slurm) = (Bridge::new(rules(), USER.to_owned()), Slurm::new());
    slurm.person(3, true, "since before", "ann");
    assert_eq!(bridge.on_nodes(slurm.nodes.clone()), Decision::default());
    slurm.person(0, true, "new disk", "ann");
    slurm.person(1, true, "new disk", "ann");
    slurm.nodes[2].is_down = true;
    slurm.nodes[2].reason = "Not responding".to_owned();
    let notices = bridge.on_nodes(slurm.nodes.clone()).notices;
    let (reason, user) = ("new disk".to_owned(), "ann".to_owned());
    let drained = Notice::Drained { hosts: vec![name(0), name(1)], reason, user };
    let down = Notice::Down { hosts: vec![name(2)], reason: "Not responding".to_owned() };
    assert_eq!(notices, [drained, down]);
    slurm.person(0, false, "", "");
    slurm.nodes[2].is_down = false;
    let notices = bridge.on_nodes(slurm.nodes.clone()).notices;
    let resumed = Notice::Resumed { hosts: vec![name(0)] };
    assert_eq!(notices, [resumed, Notice::Up { hosts: vec![name(2)] }]);
}

/// What may happen between two steps of the bridge.
#[derive(Clone, Debug)]
enum Step {
    /// A condition is stated.
    State(usize, usize, Truth),
    /// A person drains a node.
    Drain(usize),
    /// A person adds words to the reason of a node, as the user of the bridge.
    Reword(usize),
    /// A person resumes a node.
    Resume(usize),
    /// The bridge reads and calls.
    Pass,
    /// The same; a person does something between the reading and the look before the call.
    Overtaken(Box<Self>),
    /// The bridge reads, and its call fails.
    Fail,
    /// The bridge starts again.
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let truth = prop_oneof![Just(Truth::True), Just(Truth::False), Just(Truth::Unknown)];
    let person = prop_oneof![
        (0..NODES).prop_map(Step::Drain),
        (0..NODES).prop_map(Step::Reword),
        (0..NODES).prop_map(Step::Resume),
    ];
    let step = prop_oneof![
        4 => (0..NODES, 1..3_usize, truth).prop_map(|(n, fan, truth)| Step::State(n, fan, truth)),
        3 => person.clone(),
        3 => Just(Step::Pass),
        3 => person.prop_map(|step| Step::Overtaken(Box::new(step))),
        1 => Just(Step::Fail),
        1 => Just(Step::Restart),
    ];
    proptest::collection::vec(step, 1..80)
}

/// Conditions as the cluster has them, the bridge and Slurm.
struct World {
    table: BTreeMap<Subject, Statement>,
    bridge: Bridge,
    slurm: Slurm,
    clock_ns: u64,
}

impl World {
    /// Reads, looks at the chosen nodes again, and calls.
    fn pass(&mut self, person: Option<&Step>) {
        self.bridge.on_pass();
        let order = self.bridge.on_nodes(self.slurm.nodes.clone()).order;
        if let Some(step) = person {
            self.step(step);
        }
        let Some(order) = order else { return };
        if let Some(order) = self.bridge.recheck(order, self.slurm.nodes.clone()) {
            self.slurm.execute(&order);
            self.bridge.on_obeyed(order);
        }
    }

    fn step(&mut self, step: &Step) {
        self.clock_ns += 1;
        match *step {
            Step::State(node, number, truth) => {
                let subject = fan(node, number);
                let known = self.table.get(&subject);
                let is_same = known.is_some_and(|known| known.truth == truth);
                let onset = known.map_or(self.clock_ns, |known| known.onset_ns);
                let onset = if is_same { onset } else { self.clock_ns };
                self.table.insert(subject.clone(), stated(truth, onset));
                self.bridge.on_statement(subject, stated(truth, onset));
            }
            Step::Drain(node) => self.slurm.person(node, true, "new disk", "ann"),
            Step::Reword(node) if self.slurm.nodes[node].is_drained => {
                let reason = format!("{}, wait", self.slurm.nodes[node].reason);
                self.slurm.person(node, true, &reason, USER);
            }
            Step::Reword(_) => {}
            Step::Resume(node) => self.slurm.person(node, false, "", ""),
            Step::Pass => self.pass(None),
            Step::Overtaken(ref step) => self.pass(Some(step.as_ref())),
            Step::Fail => drop(self.bridge.on_nodes(self.slurm.nodes.clone())),
            Step::Restart => {
                self.bridge = Bridge::new(rules(), USER.to_owned());
                self.bridge.on_table(self.table.clone());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// `Slurm::obey` fails where an order would touch what a person wrote. In the end each node is
    /// as its conditions and people want it.
    #[test]
    fn no_reason_of_a_person_is_ever_overwritten(steps in steps()) {
        let mut world = World {
            table: BTreeMap::new(),
            bridge: Bridge::new(rules(), USER.to_owned()),
            slurm: Slurm::new(),
            clock_ns: 0,
        };
        for step in &steps {
            world.step(step);
        }
        let persons: Vec<_> = (0..NODES).filter(|n| world.slurm.is_persons[*n]).collect();
        let before = world.slurm.clone();
        world.slurm.settle(&mut world.bridge);
        for index in 0..NODES {
            let node = &world.slurm.nodes[index];
            if persons.contains(&index) {
                prop_assert_eq!(node, &before.nodes[index]);
                continue;
            }
            let truths: Vec<_> = (1..3)
                .filter_map(|number| world.table.get(&fan(index, number)))
                .map(|statement| statement.truth)
                .collect();
            if truths.iter().all(|truth| *truth == Truth::False) {
                prop_assert!(!node.is_drained, "{:?} of {:?}", node, truths);
            }
            // A person may have resumed it in spite of the condition.
            let resumes = |step: &Step| match step {
                Step::Overtaken(step) => matches!(**step, Step::Resume(n) if n == index),
                step => matches!(step, Step::Resume(n) if *n == index),
            };
            let was_resumed = steps.iter().any(resumes);
            if truths.contains(&Truth::True) && !was_resumed {
                prop_assert!(node.is_drained, "{:?} of {:?}", node, truths);
            }
        }
    }
}

#[test]
fn what_it_does_about_a_condition_is_what_ftbctl_explains() {
    let rules = Rules { drained_percent_max: 25, ..rules() };
    let (action, when) = rules.reaction("FANFAIL", Severity::Error).unwrap();
    assert_eq!(action, "drain the node (reason ftb:FANFAIL) until it clears");
    assert_eq!(when, "severity error or worse; at most 25 % of all nodes");
    assert_eq!(rules.reaction("FANFAIL", Severity::Warning), None);
    for key in ["CERTIFICATE_EXPIRES", "WATCHED", "SILENCED", "BREAKER_OPEN", "SLURM_REFUSES"] {
        assert_eq!(rules.reaction(key, Severity::Fatal), None, "{key}");
    }
}

/// A row of a table, and whether a silence covers it.
type Generated = (usize, &'static str, Truth, Severity, bool);

fn generated() -> impl Strategy<Value = Vec<Generated>> {
    let keys = ["FANFAIL", "CERTIFICATE_EXPIRES", "OUT_OF_SERVICE", "BREAKER_OPEN", SILENCED];
    let key = proptest::sample::select(Vec::from(keys));
    let truth = prop_oneof![Just(Truth::True), Just(Truth::False), Just(Truth::Unknown)];
    let severities = [Severity::Info, Severity::Warning, Severity::Error, Severity::Fatal];
    let severity = proptest::sample::select(Vec::from(severities));
    proptest::collection::vec((0..3_usize, key, truth, severity, any::<bool>()), 0..6)
}

fn some_rules() -> impl Strategy<Value = Rules> {
    let keys = |key: &'static str| {
        let key = BTreeSet::from([key.to_owned()]);
        prop_oneof![Just(BTreeSet::new()), Just(key)]
    };
    let severity = prop_oneof![Just(Severity::Info), Just(Severity::Error)];
    (severity, keys("OUT_OF_SERVICE"), keys("CERTIFICATE_EXPIRES")).prop_map(
        |(severity, conditions, ignored)| Rules {
            severity,
            conditions,
            ignored,
            drained_percent_max: 100,
        },
    )
}

fn state(subject: Subject, truth: Truth, severity: Severity) -> ConditionState {
    let publisher = PublisherId { account: 1, token: 1 };
    let source = EventId { publisher, seq: PublisherSeq::new(1) };
    ConditionState::new(subject, truth, severity, source, 1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// A node is unhealthy for its prolog by the conditions for which the bridge drains it, and for
    /// the same reason; what people have done and the share of drained nodes apart.
    #[test]
    fn health_and_the_bridge_decide_alike(table in generated(), rules in some_rules()) {
        let lasts = (0, Duration::from_secs(1));
        let (mut rows, mut silences) = (BTreeMap::new(), Vec::new());
        for (fan, key, truth, severity, is_silenced) in table {
            let subject = Subject::new(&name(0), &format!("FAN {fan}"), key);
            rows.insert(subject.clone(), state(subject, truth, severity));
            if is_silenced && key != SILENCED {
                let silence = Silence::new("a".to_owned(), &name(0), Some(key), lasts, "new");
                silences.push(silence.unwrap());
            }
        }
        let answer = Answer::of(&rules, rows.values(), &silences);
        let mut bridge = Bridge::new(rules, USER.to_owned());
        bridge.on_silences(silences);
        bridge.on_table(rows.values().map(|state| {
            let statement = Statement { severity: state.severity, ..stated(state.truth, 1) };
            (state.subject.clone(), statement)
        }));
        let orders = Slurm::new().settle(&mut bridge);
        match (&orders[..], &answer) {
            ([Order::Drain { reason, hosts }], Answer::Unhealthy(other)) => {
                prop_assert_eq!((reason, hosts), (other, &vec![name(0)]));
            }
            ([], Answer::Healthy | Answer::Unknown(_)) => {}
            _ => prop_assert!(false, "{orders:?}, but {answer:?}"),
        }
    }
}

#[test]
fn a_plan_has_every_order_and_changes_nothing() {
    let (mut bridge, mut slurm) = (Bridge::new(rules(), USER.to_owned()), Slurm::new());
    bridge.on_statement(fan(0, 1), stated(Truth::True, 1));
    slurm.settle(&mut bridge);
    bridge.on_statement(fan(0, 1), stated(Truth::False, 1));
    bridge.on_statement(fan(1, 1), stated(Truth::True, 2));
    bridge.on_statement(fan(2, 2), stated(Truth::True, 2));
    let drain = |index: usize, number: usize| Order::Drain {
        hosts: vec![name(index)],
        reason: format!("ftb:FANFAIL FAN {number}"),
    };
    let expected = [Order::Undrain { hosts: vec![name(0)] }, drain(1, 1), drain(2, 2)];
    for _ in 0..2 {
        assert_eq!(bridge.plan(slurm.nodes.clone()), expected);
    }
    assert_eq!(slurm.settle(&mut bridge), expected, "the plan is what is done");
}

#[test]
fn a_host_that_slurm_refuses_holds_up_no_other() {
    let bad = name(1);
    let (mut bridge, mut slurm) = (Bridge::new(rules(), USER.to_owned()), Slurm::new());
    for index in 0..3 {
        bridge.on_statement(fan(index, 1), stated(Truth::True, 1));
    }
    bridge.on_statement(fan(3, 2), stated(Truth::True, 1));
    for pass in 0..2 {
        bridge.on_pass();
        let mut calls = 0;
        while let Some(order) = bridge.on_nodes(slurm.nodes.clone()).order {
            calls += 1;
            assert!(calls <= 8, "pass {pass} never ends");
            match order.hosts().contains(&bad) {
                true => bridge.on_refused(&order),
                false => {
                    slurm.execute(&order);
                    bridge.on_obeyed(order);
                }
            }
        }
        let drained: Vec<_> = slurm.nodes.iter().map(|node| node.is_drained).collect();
        assert_eq!(drained, [true, false, true, true], "pass {pass}");
        if pass == 1 {
            assert_eq!(calls, 1, "only the refused one is tried again");
        }
    }
}

#[test]
fn what_root_has_drained_on_the_node_with_the_reason_of_a_condition_is_resumed() {
    let (mut bridge, mut slurm) = (Bridge::new(rules(), USER.to_owned()), Slurm::new());
    slurm.set(0, true, "ftb:FANFAIL FAN 1", "root");
    slurm.set(1, true, "ftb:FANFAIL FAN 1", "ann");
    for index in 0..2 {
        bridge.on_statement(fan(index, 1), stated(Truth::True, 1));
    }
    assert_eq!(slurm.settle(&mut bridge), []);
    for index in 0..2 {
        bridge.on_statement(fan(index, 1), stated(Truth::False, 1));
    }
    assert_eq!(slurm.settle(&mut bridge), [Order::Undrain { hosts: vec![name(0)] }]);
}

#[test]
fn with_named_conditions_only_they_drain() {
    let conditions = BTreeSet::from(["OUT_OF_SERVICE".to_owned()]);
    let only = Rules { conditions, ..rules() };
    let (mut bridge, mut slurm) = (Bridge::new(only, USER.to_owned()), Slurm::new());
    bridge.on_statement(fan(0, 1), stated(Truth::True, 1));
    let service = Subject::new(&name(1), "off CHASSIS_OFF", "OUT_OF_SERVICE");
    bridge.on_statement(service, stated(Truth::True, 1));
    let reason = "ftb:OUT_OF_SERVICE off CHASSIS_OFF".to_owned();
    assert_eq!(slurm.settle(&mut bridge), [Order::Drain { hosts: vec![name(1)], reason }]);
}

#[test]
fn many_refused_hosts_hold_up_no_other_for_ever() {
    const CALLS: usize = 64;
    let free = Slurm::new().nodes.remove(0);
    let node = |number: usize| Node { name: format!("n{number:03}"), ..free.clone() };
    let mut nodes: Vec<Node> = (0..200).map(node).collect();
    let mut bridge = Bridge::new(rules(), USER.to_owned());
    let bad: BTreeSet<String> = nodes[..100].iter().map(|node| node.name.clone()).collect();
    bridge.on_table(
        nodes
            .iter()
            .map(|node| (Subject::new(&node.name, "FAN 1", "FANFAIL"), stated(Truth::True, 1))),
    );
    // Each pass finds out about some hosts, which come last in the next one.
    for _ in 0..4 {
        bridge.on_pass();
        for _ in 0..CALLS {
            let Some(order) = bridge.on_nodes(nodes.clone()).order else { break };
            if order.hosts().iter().any(|host| bad.contains(host)) {
                bridge.on_refused(&order);
            } else {
                order.apply(&mut nodes, USER);
                bridge.on_obeyed(order);
            }
        }
    }
    let drained = nodes.iter().filter(|node| node.is_drained).count();
    assert_eq!(drained, 100, "{:?}", nodes.iter().find(|node| !node.is_drained));
}
