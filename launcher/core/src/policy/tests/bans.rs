//! Bans: what lets a node be used again that a rule keeps out although no condition holds.

use super::conditions::{repeated, says, stated, unusable};
use super::*;
use ftb_core::Severity;
use ftb_core::condition::{RecommendedAction, Truth};
use ftb_core::log::table_view::ReadPlace;

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
    let adopted = next.adopt_orders(at(100), serde_json::from_str(&text).unwrap());
    let ban = |number: u32, rule: &str| Action::Unusable {
        node: node(number),
        why: Unusable { why: rule.to_owned(), lasts: true },
    };
    assert_eq!(adopted, [ban(5, "InfiniBand port errors"), ban(7, "memory errors")]);
    assert_eq!(next.orders(), first.orders());
    for number in [5, 7] {
        assert_eq!(wants(&ipmi(&mut next, 101, "FTB_IPMI_NORMAL", number)), [], "{number}");
    }
    assert!(is_back(&next.tick(at(1900), &facts(4)), 5), "its quiet time began anew");
    let mut of_older = Policy::parse(DEFAULT).unwrap();
    of_older.adopt_ban(at(100), &node(5), "InfiniBand port errors");
    let unknown = of_older.adopt_ban(at(100), &node(6), "a rule that is no more");
    assert!(
        matches!(&unknown[..], [Action::Notify(words), unusable]
        if words.contains("\"a rule that is no more\" has banned node node06")
            && *unusable == ban(6, "a rule that is no more")),
        "{unknown:?}"
    );
    assert_eq!(wants(&ipmi(&mut of_older, 101, "FTB_IPMI_NORMAL", 5)), []);
    assert!(is_back(&of_older.tick(at(1900), &facts(4)), 5));
    assert!(is_back(&ipmi(&mut of_older, 1901, "FTB_IPMI_NORMAL", 6), 6));
    let older: Orders = serde_json::from_str("{\"drained\":[],\"overruled\":{}}").unwrap();
    assert_eq!(older, Orders::default(), "of the release before");
}

#[test]
fn a_ban_of_a_rule_that_is_no_more_is_reported() {
    let mut first = Policy::parse(DEFAULT).unwrap();
    three_times_down(&mut first);
    let renamed = DEFAULT.replace("\"InfiniBand port errors\"", "\"port errors\"");
    let mut next = Policy::parse(&renamed).unwrap();
    let adopted = next.adopt_orders(at(100), first.orders().clone());
    assert!(matches!(&adopted[..], [Action::Notify(words), Action::Unusable { .. }]
        if words.contains("rule \"InfiniBand port errors\" has banned node node05")));
    assert_eq!(*next.orders(), Orders::default());
    assert!(is_back(&ipmi(&mut next, 101, "FTB_IPMI_NORMAL", 5), 5));
}

/// A policy with one rule, which bans its node until it has been quiet for ten seconds.
fn timed(keys: &str) -> Policy {
    Policy::parse(&format!(
        "hold_down = \"1s\"\nbreaker = {{ actions = 9, within = \"1m\" }}\n[[rule]]\n\
         name = \"disk\"\naction = \"migrate\"\nuntil = \"10s\"\ncount = 2\n{keys}"
    ))
    .unwrap()
}

fn disk(seq: u64, severity: Severity, truth: Truth) -> Report {
    let mut report = stated(seq, "DISK_SLOW", 5, "DISK_SLOW", truth);
    report.event.space = EventSpace::new("site.disk").unwrap();
    (report.uid, report.event.severity) = (500, severity);
    report.stated.as_mut().unwrap().condition.severity = Some(severity);
    report
}

/// When the ban ends, in seconds; two faults have begun and passed.
fn quiet_from(policy: &mut Policy) -> Option<u64> {
    for seconds in [1, 3] {
        says(policy, seconds, &disk(seconds, Severity::Error, Truth::True), 4);
        says(policy, seconds + 1, &disk(seconds + 1, Severity::Info, Truth::False), 4);
    }
    quiet_until(policy)
}

fn quiet_until(policy: &Policy) -> Option<u64> {
    let at_ns = policy.next_deadline_ns();
    (at_ns != u64::MAX).then_some(at_ns / 1_000_000_000)
}

#[test]
fn only_what_matches_its_rule_disturbs_the_quiet_of_a_ban() {
    let rule = "space = \"site.disk\"\nevents = [\"DISK_SLOW\"]\nconditions = [\"DISK_SLOW\"]\n\
                severity = \"error\"\ntrusted_only = true\n";
    let mut policy = timed(rule);
    assert_eq!(quiet_from(&mut policy), Some(14));
    let mild = disk(5, Severity::Warning, Truth::True);
    says(&mut policy, 5, &mild, 4);
    assert_eq!(quiet_until(&policy), Some(14), "it is no error");
    let foreign = Report { uid: 1000, stated: None, ..disk(6, Severity::Error, Truth::True) };
    policy.event(at(6), &foreign, &node(5), &facts(4));
    assert_eq!(quiet_until(&policy), Some(14), "the publisher is not trusted");
    let elsewhere = stated(7, "DISK_SLOW", 5, "DISK_SLOW", Truth::True);
    says(&mut policy, 7, &elsewhere, 4);
    assert_eq!(quiet_until(&policy), Some(14), "of another event space");
    says(&mut policy, 8, &disk(8, Severity::Error, Truth::True), 4);
    assert_eq!(quiet_until(&policy), None);
    says(&mut policy, 9, &disk(9, Severity::Info, Truth::False), 4);
    assert_eq!(quiet_until(&policy), Some(19), "it has held until now");
    let again = disk(10, Severity::Info, Truth::False);
    says(&mut policy, 10, &again, 4);
    assert_eq!(quiet_until(&policy), Some(19), "nothing new");
    let plain = Report { stated: None, ..disk(11, Severity::Error, Truth::True) };
    policy.event(at(11), &plain, &node(5), &facts(4));
    assert_eq!(quiet_until(&policy), Some(21));
    let lost = repeated(disk(10, Severity::Info, Truth::Unknown));
    says(&mut policy, 12, &lost, 4);
    assert_eq!(quiet_until(&policy), None, "unknown is not quiet");
}

/// A watch holds as long as its publisher lives, and is no fault.
#[test]
fn a_rule_about_whatever_is_recommended_lets_its_ban_end() {
    let mut policy = timed("recommended = [\"replace\"]\n");
    says(&mut policy, 0, &stated(1, "FTB_IPMI_NORMAL", 5, "WATCHED", Truth::True), 4);
    for seconds in [1, 3] {
        let mut report = disk(seconds, Severity::Error, Truth::True);
        report.stated.as_mut().unwrap().condition.action = RecommendedAction::Replace;
        says(&mut policy, seconds, &report, 4);
        says(&mut policy, seconds + 1, &disk(seconds + 1, Severity::Info, Truth::False), 4);
    }
    assert_eq!(quiet_until(&policy), Some(14));
}

#[test]
fn the_quiet_time_begins_when_a_gap_ends_a_fault() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    three_times_down(&mut policy);
    port(&mut policy, 7, true);
    assert_eq!(quiet_until(&policy), None);
    let ended = ReadPlace { reading: 1, ..ReadPlace::default() };
    assert_eq!(wants(&policy.end_reading(at(100), ended, &facts(4))), []);
    assert_eq!(quiet_until(&policy), Some(1900));
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
