//! Bans: what lets a node be used again that a rule keeps out although no condition holds.

use super::conditions::{repeated, says, stated, unusable};
use super::*;
use ftb_core::Severity;
use ftb_core::condition::Truth;

/// An uncorrectable memory error that is over at once: it states no condition.
fn memory_error(policy: &mut Policy, seconds: u64, number: u32) -> Vec<Action> {
    let mut error = event("ftb.ipmi", "FTB_IPMI_MEMERR");
    error.severity = Severity::Error;
    policy.event(at(seconds), &plain(&error), &node(number), &facts(4))
}

/// The port of node 5 goes down or is up again, as ftb-ib states it.
fn port(policy: &mut Policy, seconds: u64, is_down: bool) -> Vec<Action> {
    let (name, truth) = match is_down {
        true => ("FTB_IB_PORT_ERR", Truth::True),
        false => ("FTB_IB_PORT_ACTIVE", Truth::False),
    };
    let mut report = stated(seconds, name, 5, "PORT_ERR", truth);
    report.event.space = EventSpace::new("ftb.ib").unwrap();
    says(policy, seconds, &report, 4)
}

fn three_times_down(policy: &mut Policy) {
    for seconds in [1, 3, 5] {
        port(policy, seconds, true);
        port(policy, seconds + 1, false);
    }
}

fn is_back(actions: &[Action], number: u32) -> bool {
    wants(actions) == [Request::Usable { node: node(number) }]
}

#[test]
fn sensors_that_are_well_free_no_node_that_another_publisher_has_found() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    three_times_down(&mut policy);
    let mut trigger = event("ftb.mpi.mig_trigger", "FTB_MIGRATE_TRIGGER");
    trigger.payload = "node06".into();
    says(&mut policy, 7, &Report { uid: 500, ..plain(&trigger) }, 4);
    memory_error(&mut policy, 8, 7);
    for number in [5, 6, 7] {
        let normal = ipmi(&mut policy, 10, "FTB_IPMI_NORMAL", number);
        assert_eq!(wants(&normal), [], "node {number} is a spare again: {normal:?}");
        assert!(policy.conditions.out(&node(number)).is_some());
        policy.usable(at(11), &node(number));
        assert!(policy.conditions.out(&node(number)).is_none(), "a person may");
        assert!(is_back(&ipmi(&mut policy, 12, "FTB_IPMI_NORMAL", number), number));
    }
    assert_eq!(*policy.orders(), {
        let mut orders = Orders::default();
        [5, 6, 7].into_iter().for_each(|number| orders.usable(&node(number), 0));
        orders
    });
}

/// The agent of the publisher was away: it repeats the watch that NORMAL has stated.
#[test]
fn a_repeated_watch_frees_no_node() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let watch = |truth| stated(1, "FTB_IPMI_NORMAL", 5, "WATCHED", truth);
    says(&mut policy, 1, &watch(Truth::True), 4);
    assert!(unusable(&ipmi(&mut policy, 2, "FTB_IPMI_FANFAIL", 5)).is_some());
    says(&mut policy, 3, &repeated(watch(Truth::Unknown)), 4);
    let again = says(&mut policy, 4, &repeated(watch(Truth::True)), 4);
    assert_eq!(wants(&again), [], "nothing has happened at the node: {again:?}");
    let mut normal = watch(Truth::True);
    normal.stated.as_mut().unwrap().claim.source.seq = 2.into();
    assert!(is_back(&says(&mut policy, 5, &normal, 4), 5));
}

#[test]
fn a_port_that_stays_up_for_half_an_hour_gives_its_node_back() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    three_times_down(&mut policy);
    assert_eq!(policy.next_deadline_ns(), at(6 + 1800).mono_ns);
    assert_eq!(wants(&policy.tick(at(1805), &facts(4))), []);
    port(&mut policy, 1805, true);
    assert_eq!(policy.next_deadline_ns(), u64::MAX, "it is down: nothing is quiet");
    assert_eq!(wants(&policy.tick(at(9000), &facts(4))), []);
    assert_eq!(wants(&port(&mut policy, 9001, false)), [], "it has been down just now");
    assert_eq!(wants(&policy.tick(at(10_800), &facts(4))), []);
    let back = policy.tick(at(10_801), &facts(4));
    assert!(is_back(&back, 5), "{back:?}");
    assert!(back.contains(&Action::Notify(
        "policy: mark as usable (InfiniBand port errors, which has not come again, node node05)"
            .to_owned()
    )));
    assert_eq!(policy.next_deadline_ns(), u64::MAX);
    assert_eq!(*policy.orders(), Orders::default());
}

#[test]
fn the_next_launcher_knows_which_rules_ban_a_node() {
    let mut first = Policy::parse(DEFAULT).unwrap();
    three_times_down(&mut first);
    memory_error(&mut first, 8, 7);
    let text = serde_json::to_string(first.orders()).unwrap();
    let mut next = Policy::parse(DEFAULT).unwrap();
    next.adopt_orders(at(100), serde_json::from_str(&text).unwrap());
    assert_eq!(next.orders(), first.orders());
    for number in [5, 7] {
        assert_eq!(wants(&ipmi(&mut next, 101, "FTB_IPMI_NORMAL", number)), [], "{number}");
    }
    assert!(is_back(&next.tick(at(1900), &facts(4)), 5), "its quiet time began anew");
    let mut of_older = Policy::parse(DEFAULT).unwrap();
    of_older.adopt_ban(at(100), &node(5), "InfiniBand port errors");
    of_older.adopt_ban(at(100), &node(6), "a rule that is no more");
    assert_eq!(wants(&ipmi(&mut of_older, 101, "FTB_IPMI_NORMAL", 5)), []);
    assert!(is_back(&of_older.tick(at(1900), &facts(4)), 5));
    assert!(is_back(&ipmi(&mut of_older, 1901, "FTB_IPMI_NORMAL", 6), 6));
    let older: Orders = serde_json::from_str("{\"drained\":[],\"overruled\":{}}").unwrap();
    assert_eq!(older, Orders::default(), "of the release before");
}

#[test]
fn a_recovery_cancels_no_action_for_what_it_does_not_end() {
    let rule = "[[rule]]\nname = \"disk\"\nspace = \"site.disk\"\nevents = [\"DISK_SLOW\"]\n\
                settle = \"30s\"\naction = \"migrate\"\n";
    let mut policy = Policy::parse(&format!("{DEFAULT}{rule}")).unwrap();
    let slow = event("site.disk", "DISK_SLOW");
    policy.event(at(1), &plain(&slow), &node(1), &facts(4));
    ipmi(&mut policy, 2, "FTB_IPMI_NORMAL", 1);
    assert!(is_migration(&policy.tick(at(31), &facts(4)), 1));
    // Within the hold-down of the first move, which does not succeed.
    ipmi(&mut policy, 100, "FTB_IPMI_FANFAIL", 2);
    memory_error(&mut policy, 101, 2);
    ipmi(&mut policy, 110, "FTB_IPMI_NORMAL", 2);
    assert!(is_migration(&policy.tick(at(160), &facts(4)), 2), "bad memory stays bad");
}

#[test]
fn what_is_only_reported_cancels_no_recovery() {
    let text = DEFAULT.replacen("action = \"usable\"", "action = \"usable\"\nsettle = \"30s\"", 1);
    let mut policy = Policy::parse(&text).unwrap();
    ipmi(&mut policy, 1, "FTB_IPMI_FANFAIL", 5);
    ipmi(&mut policy, 10, "FTB_IPMI_NORMAL", 5);
    let busy = event("ftb.ib", "FTB_IB_PORT_CONGESTED");
    policy.event(at(20), &plain(&busy), &node(5), &facts(4));
    assert!(is_back(&policy.tick(at(40), &facts(4)), 5));
}

#[test]
fn what_ends_a_ban_is_read_from_the_rule() {
    let parse = |until: &str| {
        let text = DEFAULT.replacen("until = \"30m\"", &format!("until = \"{until}\""), 1);
        Policy::parse(&text)
    };
    for until in ["soon", "0s", ""] {
        let error = parse(until).unwrap_err();
        assert!(error.problem.contains("say \"recovery\", \"person\", or a time"), "{error}");
        assert_ne!(error.line, 1);
    }
    let mut policy = parse("recovery").unwrap();
    three_times_down(&mut policy);
    assert_eq!(policy.next_deadline_ns(), u64::MAX, "no rule of its space ends it");
    let words = |name: &str| {
        let space = if name.contains("_IB_") { "ftb.ib" } else { "ftb.ipmi" };
        Policy::parse(DEFAULT).unwrap().reactions(space, name, &[])[0].when.clone()
    };
    assert!(words("FTB_IB_PORT_ERR").ends_with("until it has not come for 30m"));
    assert!(words("FTB_IPMI_MEMERR").ends_with("without a condition until a person puts it back"));
}
