//! The defaults of the thesis' section 3.4.3, and the brakes.

#![allow(clippy::unwrap_used)]

mod bans;
mod catalogue;
mod conditions;
mod facility;
mod infiniband;
mod passing;
mod readings;
mod table;

use super::*;
use core::time::Duration;
use ftb_core::{Event, EventName, EventSpace, Tag};

fn at(seconds: u64) -> Now {
    Now { mono_ns: seconds * 1_000_000_000, wall_ns: 0 }
}

fn node(number: u32) -> NodeName {
    NodeName::new(&format!("node{number:02}")).unwrap()
}

fn facts(nodes: u32) -> Facts {
    Facts { nodes: (1..=nodes).map(node).collect(), owner: 500 }
}

fn event(space: &str, name: &str) -> Event {
    Event::new(EventSpace::new(space).unwrap(), EventName::new(name).unwrap())
}

fn ipmi(policy: &mut Policy, seconds: u64, name: &str, number: u32) -> Vec<Action> {
    let event = event("ftb.ipmi", name);
    policy.event(at(seconds), &plain(&event), &node(number), &facts(4))
}

fn plain(event: &Event) -> Report {
    Report::new(event.clone(), "poller")
}

fn wants(actions: &[Action]) -> Vec<Request> {
    let want = |action: &Action| match action {
        Action::Request { want, .. } => Some(want.clone()),
        _ => None,
    };
    actions.iter().filter_map(want).collect()
}

fn is_migration(actions: &[Action], number: u32) -> bool {
    matches!(&wants(actions)[..], [Request::Migrate { node: n, .. }] if *n == node(number))
}

#[test]
fn a_failed_fan_moves_the_node_at_once() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    assert!(is_migration(&ipmi(&mut policy, 1, "FTB_IPMI_FANFAIL", 2), 2));
}

#[test]
fn one_hot_node_moves_after_its_settle_time() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    assert!(wants(&ipmi(&mut policy, 1, "FTB_IPMI_OVERTEMP", 2)).is_empty());
    assert_eq!(policy.next_deadline_ns(), at(6).mono_ns);
    assert!(wants(&policy.tick(at(5), &facts(4))).is_empty());
    assert!(is_migration(&policy.tick(at(6), &facts(4)), 2));
}

#[test]
fn when_most_nodes_are_hot_the_job_is_saved_and_no_rank_moves() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let mut all = Vec::new();
    for number in 1..=4 {
        all.extend(ipmi(&mut policy, u64::from(number), "FTB_IPMI_OVERTEMP", number));
    }
    all.extend(policy.tick(at(60), &facts(4)));
    assert!(matches!(&wants(&all)[..], [Request::Checkpoint { .. }]), "{all:?}");
}

/// Both are read at once by the launcher that comes next.
#[test]
fn missed_events_count_at_the_time_when_they_happened() {
    let source = |number: u64| {
        let id = EventId {
            publisher: ftb_core::PublisherId { account: 1, token: 2 },
            seq: number.into(),
        };
        let space = "ftb.ipmi".to_owned();
        Some(EventSource { space, id, position: ftb_core::Position::ZERO })
    };
    let wants_of = |apart: u64| {
        let mut policy = Policy::parse(DEFAULT).unwrap();
        let now = Now { mono_ns: 1_000_000_000, wall_ns: at(100_000).mono_ns };
        let mut all = Vec::new();
        for number in 1..=3 {
            let mut event = event("ftb.ipmi", "FTB_IPMI_OVERTEMP");
            event.time_ns = at(50_000 + apart * u64::from(number)).mono_ns;
            let report = Report { source: source(number.into()), ..plain(&event) };
            all.extend(policy.event(now, &report, &node(number), &facts(4)));
        }
        assert_eq!(policy.waits_for(source(1).unwrap().id), apart > 60);
        all.extend(policy.tick(at(60), &facts(4)));
        assert!(!policy.waits_for(source(1).unwrap().id));
        wants(&all)
    };
    assert!(matches!(wants_of(10)[..], [Request::Checkpoint { .. }]));
    assert_eq!(wants_of(3600).len(), 3, "an hour lies between them: each node moves");
}

#[test]
fn half_is_not_more_than_half() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    ipmi(&mut policy, 1, "FTB_IPMI_OVERTEMP", 1);
    ipmi(&mut policy, 1, "FTB_IPMI_OVERTEMP", 2);
    let actions = policy.tick(at(10), &facts(4));
    assert_eq!(wants(&actions).len(), 2, "both move: {actions:?}");
}

#[test]
fn normal_cancels_what_has_not_settled_and_frees_the_node() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    ipmi(&mut policy, 1, "FTB_IPMI_OVERTEMP", 2);
    let actions = ipmi(&mut policy, 3, "FTB_IPMI_NORMAL", 2);
    assert_eq!(wants(&actions), [Request::Usable { node: node(2) }]);
    assert!(policy.tick(at(60), &facts(4)).is_empty());
}

#[test]
fn a_flapping_node_is_left_alone_for_the_hold_down() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    assert!(is_migration(&ipmi(&mut policy, 1, "FTB_IPMI_FANFAIL", 2), 2));
    assert!(wants(&ipmi(&mut policy, 30, "FTB_IPMI_FANFAIL", 2)).is_empty());
    assert!(is_migration(&ipmi(&mut policy, 62, "FTB_IPMI_FANFAIL", 2), 2));
}

/// Two fans fail within the hold-down and the first move has not helped: the second counts when the
/// hold-down is over.
#[test]
fn a_second_fault_within_the_hold_down_counts_after_it() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    assert!(is_migration(&ipmi(&mut policy, 1, "FTB_IPMI_FANFAIL", 2), 2));
    assert!(wants(&ipmi(&mut policy, 11, "FTB_IPMI_FANFAIL", 2)).is_empty());
    assert_eq!(policy.next_deadline_ns(), at(61).mono_ns);
    assert!(policy.tick(at(60), &facts(4)).is_empty());
    let late = policy.tick(at(61), &facts(4));
    assert!(is_migration(&late, 2));
    assert_eq!(faults(&late), [("wanted", ids([2]))], "it has a number of its own");
    // A fault of another rule is reported.
    let other = event("ftb.ib", "FTB_IB_EVENT_DEVICE_FATAL");
    let reported = policy.event(at(70), &plain(&other), &node(2), &facts(4));
    assert!(
        matches!(&reported[..], [Action::Notify(text)] if text.contains("in 51s unless it passes")),
        "{reported:?}"
    );
    // The fans are well, the adapter is not.
    ipmi(&mut policy, 80, "FTB_IPMI_NORMAL", 2);
    assert!(is_migration(&policy.tick(at(121), &facts(4)), 2));
    // Faults that have passed, or whose node has no ranks, are ignored.
    assert!(is_migration(&ipmi(&mut policy, 201, "FTB_IPMI_FANFAIL", 2), 2));
    ipmi(&mut policy, 202, "FTB_IPMI_FANFAIL", 2);
    ipmi(&mut policy, 203, "FTB_IPMI_NORMAL", 2);
    assert!(policy.tick(at(300), &facts(4)).is_empty());
    ipmi(&mut policy, 301, "FTB_IPMI_FANFAIL", 2);
    ipmi(&mut policy, 302, "FTB_IPMI_FANFAIL", 2);
    assert!(policy.tick(at(400), &facts(1)).is_empty(), "its ranks have moved");
}

#[test]
fn three_port_errors_within_the_window_count_and_two_do_not() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let port_err = event("ftb.ib", "FTB_IB_PORT_ERR");
    let mut strike = |seconds| policy.event(at(seconds), &plain(&port_err), &node(1), &facts(4));
    assert!(wants(&strike(1)).is_empty());
    assert!(wants(&strike(2)).is_empty());
    assert!(wants(&strike(400)).is_empty(), "the first two are out of the window");
    assert!(wants(&strike(401)).is_empty());
    assert!(is_migration(&strike(402), 1));
}

#[test]
fn too_many_actions_open_the_breaker_until_a_person_closes_it() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let fan = event("ftb.ipmi", "FTB_IPMI_FANFAIL");
    let ipmi = |policy: &mut Policy, seconds, _: &str, number| {
        policy.event(at(seconds), &plain(&fan), &node(number), &facts(9))
    };
    for number in 1..=8 {
        assert!(is_migration(&ipmi(&mut policy, 1, "FTB_IPMI_FANFAIL", number), number));
    }
    let actions = ipmi(&mut policy, 2, "FTB_IPMI_FANFAIL", 9);
    assert!(wants(&actions).is_empty() && policy.is_open());
    let reported = |action: &Action| matches!(action, Action::Notify(w) if w.contains("breaker"));
    assert!(actions.iter().any(reported), "{actions:?}");
    let later = ipmi(&mut policy, 5000, "FTB_IPMI_FANFAIL", 9);
    assert!(wants(&later).is_empty(), "time does not close it");
    // Nor does another launcher.
    let text = serde_json::to_string(policy.orders()).unwrap();
    let mut next = Policy::parse(DEFAULT).unwrap();
    let begins = next.adopt_orders(at(1), serde_json::from_str(&text).unwrap());
    assert!(begins.iter().any(reported), "{begins:?}");
    assert!(wants(&ipmi(&mut next, 2, "FTB_IPMI_FANFAIL", 9)).is_empty());
    for policy in [&mut policy, &mut next] {
        policy.reset();
        assert!(is_migration(&ipmi(policy, 5001, "FTB_IPMI_FANFAIL", 9), 9));
    }
    let text = serde_json::to_string(next.orders()).unwrap();
    let mut last = Policy::parse(DEFAULT).unwrap();
    let begins = last.adopt_orders(at(1), serde_json::from_str(&text).unwrap());
    assert!(!begins.iter().any(reported), "{begins:?}");
    assert!(!last.is_open());
}

#[test]
fn shadow_mode_only_tells() {
    let text = DEFAULT.replace("shadow = false", "shadow = true");
    let mut policy = Policy::parse(&text).unwrap();
    let actions = ipmi(&mut policy, 1, "FTB_IPMI_FANFAIL", 2);
    let words = |word: &str| {
        actions.iter().any(|action| matches!(action, Action::Notify(words) if words.contains(word)))
    };
    assert!(words("would migrate") && words("node02 would get no ranks (fan failed)"));
    assert!(actions.iter().all(|action| matches!(action, Action::Notify(_))), "{actions:?}");
}

#[test]
fn a_dead_node_is_reported_without_brakes_and_a_drained_one_stays_out() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let dead = event("ftb.agent", "FTB_NODE_DEAD");
    let actions = policy.event(at(1), &plain(&dead), &node(3), &facts(4));
    let cause =
        FaultCause { what: "FTB_NODE_DEAD on node03".into(), rule: "node is dead".to_owned() };
    assert!(actions.contains(&Action::Gone { node: node(3), fault: FaultId(1), cause }));
    policy.drain(&node(2));
    assert!(wants(&ipmi(&mut policy, 2, "FTB_IPMI_NORMAL", 2)).is_empty());
}

/// Faults of requests and of cancellations.
fn faults(actions: &[Action]) -> Vec<(&'static str, BTreeSet<FaultId>)> {
    let fault = |action: &Action| match action {
        Action::Request { fault, .. } => {
            Some(("wanted", fault.iter().map(|(fault, _)| *fault).collect()))
        }
        Action::Cancel { faults, .. } => Some(("off", faults.clone())),
        Action::Notify(_)
        | Action::Gone { .. }
        | Action::Unusable { .. }
        | Action::Sooner { .. } => None,
    };
    actions.iter().filter_map(fault).collect()
}

fn ids<const N: usize>(numbers: [u64; N]) -> BTreeSet<FaultId> {
    numbers.into_iter().map(FaultId).collect()
}

#[test]
fn a_fault_keeps_its_number_until_it_has_passed_or_the_hold_down_is_over() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    policy.follow(FaultId(10));
    let first = ipmi(&mut policy, 1, "FTB_IPMI_FANFAIL", 2);
    assert_eq!(faults(&first), [("wanted", ids([11]))]);
    assert!(first.contains(&Action::Notify(
        "fault 11: migrate (fan failed, node node02): FTB_IPMI_FANFAIL".to_owned()
    )));
    // A repetition, and a fault of another node.
    assert!(ipmi(&mut policy, 2, "FTB_IPMI_FANFAIL", 2).is_empty());
    assert_eq!(faults(&ipmi(&mut policy, 3, "FTB_IPMI_FANFAIL", 1)), [("wanted", ids([12]))]);
    assert_eq!(faults(&ipmi(&mut policy, 62, "FTB_IPMI_FANFAIL", 2)), [("wanted", ids([13]))]);
    // A fault that returns is a new one.
    assert_eq!(faults(&ipmi(&mut policy, 110, "FTB_IPMI_NORMAL", 2)), [("wanted", ids([]))]);
    assert_eq!(faults(&ipmi(&mut policy, 140, "FTB_IPMI_FANFAIL", 2)), [("wanted", ids([14]))]);
}

#[test]
fn a_rule_about_the_job_cancels_requests_for_single_nodes() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    ipmi(&mut policy, 1, "FTB_IPMI_FANFAIL", 4);
    for number in [1, 2] {
        ipmi(&mut policy, 1, "FTB_IPMI_OVERTEMP", number);
    }
    let moves = policy.tick(at(6), &facts(4));
    assert_eq!(faults(&moves), [("wanted", ids([2])), ("wanted", ids([3]))]);
    let all = ipmi(&mut policy, 20, "FTB_IPMI_OVERTEMP", 3);
    assert_eq!(faults(&all), [("off", ids([2, 3])), ("wanted", ids([4]))], "the fan is no heat");
    assert!(matches!(&wants(&all)[..], [Request::Checkpoint { .. }]));
    assert!(faults(&policy.tick(at(60), &facts(4))).is_empty(), "they are closed");
}

#[test]
fn a_policy_that_takes_a_job_over_knows_what_waits() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    policy.adopt(at(0), FaultId(7), Some(&node(1)), "overheating");
    policy.adopt(at(0), FaultId(8), Some(&node(1)), "a rule that is no more");
    ipmi(&mut policy, 1, "FTB_IPMI_OVERTEMP", 1);
    ipmi(&mut policy, 1, "FTB_IPMI_OVERTEMP", 2);
    let all = ipmi(&mut policy, 2, "FTB_IPMI_OVERTEMP", 3);
    assert_eq!(faults(&all)[0], ("off", ids([7])), "{all:?}");
}

#[test]
fn a_job_may_be_ended_instead() {
    let text = DEFAULT.replacen("action = \"checkpoint\"", "action = \"stop\"", 1);
    let mut policy = Policy::parse(&text).unwrap();
    let mut all = Vec::new();
    for number in 1..=3 {
        all.extend(ipmi(&mut policy, u64::from(number), "FTB_IPMI_OVERTEMP", number));
    }
    assert!(matches!(&wants(&all)[..], [Request::Kill { code: 1, .. }]), "{all:?}");
}

#[test]
fn a_node_that_must_stay_well_for_a_while_is_not_used_when_trouble_comes_back() {
    let text = DEFAULT.replacen("action = \"usable\"", "action = \"usable\"\nsettle = \"30s\"", 1);
    let mut policy = Policy::parse(&text).unwrap();
    ipmi(&mut policy, 1, "FTB_IPMI_FANFAIL", 2);
    assert!(wants(&ipmi(&mut policy, 10, "FTB_IPMI_NORMAL", 2)).is_empty());
    ipmi(&mut policy, 20, "FTB_IPMI_FANFAIL", 2);
    assert!(wants(&policy.tick(at(41), &facts(4))).is_empty());
    ipmi(&mut policy, 50, "FTB_IPMI_NORMAL", 2);
    assert_eq!(wants(&policy.tick(at(80), &facts(4))), [Request::Usable { node: node(2) }]);
}

#[test]
fn a_policy_that_cannot_work_is_refused_with_its_line() {
    let error = |from: &str, to: &str| {
        let text = DEFAULT.replacen(from, to, 1);
        assert_ne!(text, DEFAULT);
        Policy::parse(&text).unwrap_err()
    };
    let wrong = error("hold_down", "hold_dawn");
    assert!(wrong.problem.contains("hold_dawn") && wrong.line == 27, "{wrong}");
    let short = error("stall_after = \"10m\"", "stall_after = \"1ms\"");
    assert!(short.problem.starts_with("stall_after is 1ms") && short.line == 19, "{short}");
    // The line of `[[rule]]`: the one before that of the name.
    let rule = |name: &str| DEFAULT.lines().position(|line| line == format!("name = \"{name}\""));
    let (cooling, ports) = (rule("cooling has failed"), rule("InfiniBand port errors"));
    let never = |from: &str, to: &str| {
        let error = error(from, to);
        assert!(error.problem.contains("can never match"), "{error}");
        Some(error.line)
    };
    for share in ["1.0", "-0.5", "nan", "7"] {
        assert_eq!(never("nodes_over = 0.5", &format!("nodes_over = {share}")), cooling);
    }
    assert_eq!(never("within = \"60s\"", "within = \"0s\""), cooling);
    assert_eq!(never("count = 3", "count = 4097"), ports);
    assert_eq!(never("within = \"5m\"", "within = \"0s\""), ports);
    assert!(error("count = 3", "count = 0").problem.contains("count is 0"));
    assert!(error("\"FTB_IB_EVENT_UNKNOWN\"", "").problem.contains("can never match"));
    assert!(error("\"migrate\"", "\"explode\"").problem.contains("explode"));
    let shadowed = error("nodes_over = 0.5\n", "");
    assert!(shadowed.problem.contains("can never act"), "{shadowed}");
    assert_eq!(Some(shadowed.line + 1), rule("overheating"), "one line less");
    assert_eq!(Policy::parse(DEFAULT).unwrap().config.hold_down, Duration::from_secs(60));
}

/// Ways in which earlier rules leave nothing for a rule, and some that leave a little.
#[test]
fn a_rule_for_which_nothing_is_left_is_refused() {
    let head = "hold_down = \"1m\"\nbreaker = { actions = 3, within = \"1m\" }\n";
    let rule = |name: &str, events: &str, more: &str| {
        format!(
            "[[rule]]\nname = \"{name}\"\nspace = \"ftb.x\"\nevents = [{events}]\n\
             action = \"notify\"\n{more}\n"
        )
    };
    let read = |rules: &[String]| Policy::parse(&format!("{head}{}", rules.concat())).map(|_| ());
    let refused = |before: &[String], last: String| {
        let error = read(&[before, &[last]].concat()).unwrap_err();
        assert!(error.problem.contains("can never act"), "{error}");
        assert_eq!(error.line, 3 + 6 * before.len(), "{error}");
    };
    let one = rule("one", "\"A\"", "");
    let two = rule("two", "\"b\"", "");
    refused(&[one.clone(), two.clone()], rule("both", "\"A\", \"B\"", "severity = \"fatal\""));
    refused(std::slice::from_ref(&one), rule("many", "\"A\"", "count = 5"));
    refused(std::slice::from_ref(&one), rule("half", "\"A\"", "nodes_over = 0.5"));
    let thrice = rule("thrice", "\"A\", \"B\"", "count = 3");
    refused(std::slice::from_ref(&thrice), rule("more", "\"A\"", "count = 4"));
    refused(std::slice::from_ref(&thrice), rule("sooner", "\"A\"", "count = 3\nwithin = \"9s\""));
    let half = rule("half", "\"A\"", "nodes_over = 0.5");
    refused(std::slice::from_ref(&half), rule("most", "\"A\"", "nodes_over = 0.7"));
    let bad = rule("bad", "\"A\"", "severity = \"error\"");
    refused(std::slice::from_ref(&bad), rule("worse", "\"A\"", "severity = \"fatal\""));
    for (before, last) in [
        (&bad, rule("all", "\"A\"", "")),
        (&thrice, rule("twice", "\"A\"", "count = 2")),
        (&thrice, rule("longer", "\"A\"", "count = 3\nwithin = \"9m\"")),
        (&thrice, rule("some nodes", "\"A\"", "nodes_over = 0.1")),
        (&half, rule("each", "\"A\"", "")),
        (&one, rule("other", "\"A\", \"C\"", "")),
    ] {
        assert_eq!(read(&[before.clone(), last]), Ok(()));
    }
}
