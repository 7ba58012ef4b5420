//! What is true now: which nodes get no ranks, and who may say so.

#![allow(clippy::unwrap_used)]

use super::*;
use ftb_core::catalog::CONDITIONS;
use ftb_core::condition::{Condition, Truth};
use ftb_core::log::conditions::Claim;
use ftb_core::log::table_view::ReadPlace;
use ftb_core::{EventId, PublisherId, Severity};

/// A row of the table with which a launcher begins.
pub(super) const ROW: ReadPlace = ReadPlace { subscription: 0, reading: 0, is_row: true };

/// A statement of ftb-ipmi or ftb-bridge about a node, by the event with that number.
pub(super) fn stated(seq: u64, name: &str, number: u32, key: &str, truth: Truth) -> Report {
    let space = if name.starts_with("FTB_FACILITY") { "ftb.facility" } else { "ftb.ipmi" };
    let mut event = event(space, name);
    event.severity = if truth == Truth::False { Severity::Info } else { Severity::Error };
    let condition = Condition {
        host: node(number).to_string(),
        component: "sensor".to_owned(),
        severity: Some(event.severity),
        ..Condition::new(key, truth)
    };
    let source = EventId { publisher: PublisherId { account: 1, token: 1 }, seq: seq.into() };
    let mut report = plain(&event);
    let claim = Claim::new(source, truth, event.severity, seq);
    report.stated = Some(Statement { condition, claim });
    report
}

pub(super) fn fan(seq: u64, number: u32, truth: Truth) -> Report {
    let name = if truth == Truth::False { "FTB_IPMI_SENSOR_CLEARED" } else { "FTB_IPMI_FANFAIL" };
    stated(seq, name, number, "FANFAIL", truth)
}

/// The same, as its agent repeats it.
pub(super) fn repeated(report: Report) -> Report {
    let space = report.name().0.to_owned();
    repeated_in(&space, report)
}

/// The same, repeated in this event space.
fn repeated_in(here: &str, mut report: Report) -> Report {
    let (space, name) = report.name();
    let value = format!("{space} {name}");
    report.event = event(here, "FTB_CONDITION");
    report.event.tags.push(Tag { key: "event".to_owned(), value });
    report
}

pub(super) fn says(
    policy: &mut Policy,
    seconds: u64,
    report: &Report,
    ranks_on: u32,
) -> Vec<Action> {
    let about = report.node().unwrap();
    policy.event(at(seconds), report, &about, &facts(ranks_on))
}

pub(super) fn unusable(actions: &[Action]) -> Option<(NodeName, String, bool)> {
    actions.iter().find_map(|action| match action {
        Action::Unusable { node, why } => Some((node.clone(), why.why.clone(), why.lasts)),
        _ => None,
    })
}

#[test]
fn a_spare_with_a_failed_fan_gets_no_ranks_until_the_fan_is_well() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let spare = says(&mut policy, 1, &fan(1, 5, Truth::True), 4);
    let why = "fan failed: sensor FANFAIL".to_owned();
    assert_eq!(unusable(&spare), Some((node(5), why, false)));
    assert!(wants(&spare).is_empty(), "there is nothing to move: {spare:?}");
    // A second condition keeps it out when the first has cleared.
    says(&mut policy, 2, &stated(2, "FTB_IPMI_PSUFAIL", 5, "PSUFAIL", Truth::True), 4);
    assert!(wants(&says(&mut policy, 3, &fan(3, 5, Truth::False), 4)).is_empty());
    let normal = ipmi(&mut policy, 3, "FTB_IPMI_NORMAL", 5);
    assert!(wants(&normal).is_empty(), "a condition holds: {normal:?}");
    let cleared = stated(4, "FTB_IPMI_SENSOR_CLEARED", 5, "PSUFAIL", Truth::False);
    let cleared = says(&mut policy, 4, &cleared, 4);
    assert_eq!(wants(&cleared), [Request::Usable { node: node(5) }]);
}

#[test]
fn a_spare_with_an_event_that_states_nothing_recovers_with_an_event() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let spare = ipmi(&mut policy, 1, "FTB_IPMI_FANFAIL", 5);
    assert_eq!(unusable(&spare), Some((node(5), "fan failed".to_owned(), true)));
    let normal = ipmi(&mut policy, 2, "FTB_IPMI_NORMAL", 5);
    assert_eq!(wants(&normal), [Request::Usable { node: node(5) }]);
}

#[test]
fn a_repeated_statement_is_acted_on_once_and_a_lost_publisher_clears_nothing() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let failed = fan(1, 2, Truth::True);
    assert!(is_migration(&says(&mut policy, 1, &failed, 4), 2));
    for (seconds, report) in [(100, failed.clone()), (200, repeated(failed.clone()))] {
        assert_eq!(says(&mut policy, seconds, &report, 4), [], "it is known");
    }
    let mut lost = repeated(failed);
    lost.stated.as_mut().unwrap().condition.truth = Truth::Unknown;
    assert_eq!(says(&mut policy, 300, &lost, 4), []);
    assert!(policy.conditions.out(&node(2)).is_some(), "unknown is not well");
    let again = says(&mut policy, 400, &fan(2, 2, Truth::False), 4);
    assert_eq!(wants(&again), [Request::Usable { node: node(2) }]);
    assert!(is_migration(&says(&mut policy, 500, &fan(3, 2, Truth::True), 4), 2));
}

/// The holder of an agent's key may say that the publisher of any statement is lost.
#[test]
fn a_lost_publisher_invents_no_fault_and_makes_none_worse() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let lost = |number: u32, severity| {
        let mut lost = repeated(fan(1, number, Truth::Unknown));
        let stated = lost.stated.as_mut().unwrap();
        (stated.claim.replaces, stated.condition.severity) = (Some(stated.claim.event), severity);
        lost
    };
    assert_eq!(says(&mut policy, 1, &lost(2, Some(Severity::Error)), 4), []);
    assert!(policy.conditions.out(&node(2)).is_none(), "no statement is known that it replaces");
    says(&mut policy, 2, &fan(1, 3, Truth::False), 4);
    assert_eq!(says(&mut policy, 3, &lost(3, Some(Severity::Error)), 4), []);
    assert!(policy.conditions.out(&node(3)).is_none(), "it was well");
}

/// Another publisher, host and token alike, says something at that second.
fn of_another(account: u64, seconds: u64, report: Report) -> Report {
    let event = EventId { publisher: PublisherId { account, token: account }, seq: 1.into() };
    let stated = report.stated.unwrap();
    let (truth, time_ns) = (stated.condition.truth, seconds * 1_000_000_000);
    let claim = Claim::new(event, truth, report.event.severity, time_ns);
    let claim = Claim { clock: Some(account), ..claim };
    Report { stated: Some(Statement { claim, ..stated }), ..report }
}

/// A failover merges two logs: the log delivers what its table rejects.
#[test]
fn an_older_statement_that_a_merge_brings_neither_clears_nor_moves() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    says(&mut policy, 1, &fan(7, 5, Truth::True), 4);
    for older in [fan(6, 5, Truth::False), repeated(fan(6, 5, Truth::False))] {
        assert_eq!(says(&mut policy, 2, &older, 4), [], "the failed fan is newer");
        assert!(policy.conditions.out(&node(5)).is_some());
    }
    says(&mut policy, 3, &fan(8, 2, Truth::False), 4);
    assert_eq!(says(&mut policy, 4, &fan(7, 2, Truth::True), 4), [], "it is well again");
    assert!(policy.conditions.out(&node(2)).is_none());
}

#[test]
fn only_a_person_clears_what_was_stated_by_hand() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let by_hand = |account, seconds, truth| {
        let mut report = of_another(account, seconds, fan(1, 5, truth));
        report.stated.as_mut().unwrap().claim.is_kept = true;
        report
    };
    says(&mut policy, 1, &by_hand(2, 100, Truth::True), 4);
    let ipmi = of_another(3, 200, fan(1, 5, Truth::False));
    assert_eq!(says(&mut policy, 2, &ipmi, 4), []);
    assert!(policy.conditions.out(&node(5)).is_some());
    let cleared = says(&mut policy, 3, &by_hand(4, 300, Truth::False), 4);
    assert_eq!(wants(&cleared), [Request::Usable { node: node(5) }]);
}

#[test]
fn a_second_monitor_that_repeats_its_old_clear_puts_no_node_back() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    says(&mut policy, 1, &of_another(2, 500, fan(1, 5, Truth::True)), 4);
    let stale = repeated(of_another(3, 100, fan(1, 5, Truth::False)));
    assert_eq!(says(&mut policy, 2, &stale, 4), []);
    let mut again = stale;
    let claim = &mut again.stated.as_mut().unwrap().claim;
    // Its agent repeats the statement: that event is new.
    (claim.event.publisher.token, claim.time_ns) = (9, 900_000_000_000);
    assert_eq!(says(&mut policy, 3, &again, 4), []);
    assert!(policy.conditions.out(&node(5)).is_some());
}

/// A spare fails and its publisher is lost, both in the gap: only the row says so.
#[test]
fn an_unknown_condition_whose_beginning_was_missed_keeps_its_node_out() {
    let again = ROW.next_reading();
    let lost = |seq, number| {
        let mut lost = repeated(fan(seq, number, Truth::Unknown));
        let claim = &mut lost.stated.as_mut().unwrap().claim;
        claim.replaces = Some(claim.source);
        claim.event.publisher.token = 9;
        lost
    };
    let mut policy = Policy::parse(DEFAULT).unwrap();
    says(&mut policy, 1, &Report { place: ROW, ..fan(1, 5, Truth::False) }, 4);
    for number in [5, 6] {
        let row = Report { place: again, ..lost(2, number) };
        let (about, why, _) = unusable(&says(&mut policy, 2, &row, 4)).unwrap();
        assert_eq!(
            (about, &why[..]),
            (node(number), "fan failed: sensor FANFAIL, its publisher is lost")
        );
    }
    // What held before the gap has been acted on.
    assert!(is_migration(&says(&mut policy, 100, &fan(3, 2, Truth::True), 4), 2));
    let row = Report { place: again.next_reading(), ..lost(3, 2) };
    let known = says(&mut policy, 200, &row, 4);
    assert!(wants(&known).is_empty(), "{known:?}");
    // A row of the table may also say that a node is well again, which is news.
    let well = Report { place: again.next_reading(), ..fan(4, 5, Truth::False) };
    assert_eq!(wants(&says(&mut policy, 300, &well, 4)), [Request::Usable { node: node(5) }]);
}

/// The table at the start: repeated statements, in part of lost publishers.
#[test]
fn rows_of_the_table_keep_nodes_out_before_any_rank_is_placed() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let mut row = |report: Report| {
        let report = Report { place: ROW, ..repeated(report) };
        says(&mut policy, 1, &report, 0)
    };
    assert!(unusable(&row(fan(1, 1, Truth::True))).is_some());
    let (_, why, _) = unusable(&row(fan(2, 2, Truth::Unknown))).unwrap();
    assert_eq!(why, "fan failed: sensor FANFAIL, its publisher is lost");
    let mut cleared = fan(3, 3, Truth::False);
    cleared.stated.as_mut().unwrap().condition.truth = Truth::Unknown;
    cleared.stated.as_mut().unwrap().condition.severity = Some(Severity::Info);
    assert_eq!(row(cleared), [], "it was well");
    let watch = stated(4, "FTB_IPMI_NORMAL", 4, "WATCHED", Truth::True);
    assert_eq!(row(watch), [], "a row is no news of a recovery");
    // Known in the cluster by its key only.
    let mut by_hand = fan(5, 4, Truth::True);
    by_hand.event = event("ftb.ipmi", "FTB_TEST");
    assert!(unusable(&row(by_hand)).is_some());
}

/// An event of ftb-ib that sets a condition of the node.
fn infiniband(name: &str, key: &str, number: u32) -> Report {
    let mut report = stated(1, name, number, key, Truth::True);
    report.event = event("ftb.ib", name);
    report
}

/// In the event space of the original, or in that of the agents as one of the release before does.
#[test]
fn a_row_of_each_infiniband_fault_keeps_its_node_out() {
    let faults = CONDITIONS.iter().flat_map(|of| of.set_by.iter().map(|name| (*name, of.key)));
    let faults = faults.filter(|(name, key)| name.starts_with("FTB_IB_") && *key != "WATCHED");
    // Another node may meet the same switch.
    let faults: Vec<_> = faults.filter(|(name, _)| *name != "FTB_IB_PORT_CONGESTED").collect();
    assert_eq!(faults.len(), 5, "{faults:?}");
    for (name, key) in faults {
        for space in ["ftb.ib", "FTB.IB", "ftb.agent"] {
            let report = repeated_in(space, infiniband(name, key, 2));
            assert_eq!(report.name(), ("ftb.ib", name));
            let report = Report { place: ROW, ..report };
            let mut policy = Policy::parse(DEFAULT).unwrap();
            let all = says(&mut policy, 1, &report, 0);
            assert!(unusable(&all).is_some(), "{name} in {space}: {all:?}");
        }
        // A rule of the site that names events only.
        let settings = DEFAULT.split("[[rule]]").next().unwrap();
        let rule = format!(
            "{settings}[[rule]]\nname = \"site\"\nspace = \"ftb.ib\"\nevents = [\"{name}\"]\n\
             action = \"migrate\"\n"
        );
        let mut policy = Policy::parse(&rule).unwrap();
        let all = says(&mut policy, 1, &repeated(infiniband(name, key, 2)), 4);
        assert!(unusable(&all).is_some(), "{name}: {all:?}");
        // A publisher of another event space lends no name.
        let elsewhere = repeated_in("site.disk", infiniband(name, key, 2));
        assert_eq!(elsewhere.name(), ("site.disk", "FTB_CONDITION"));
    }
}

/// Known in the cluster by its key: whatever event of ftb-ib states it.
#[test]
fn infiniband_faults_are_known_by_their_conditions() {
    for key in ["ADAPTER_FAILED", "PORT_DEGRADED", "PORT_FLAPPING", "PORT_ERR"] {
        let mut policy = Policy::parse(DEFAULT).unwrap();
        let all = says(&mut policy, 1, &infiniband("FTB_TEST", key, 2), 4);
        assert!(unusable(&all).is_some(), "{key}: {all:?}");
    }
}

#[test]
fn a_launcher_that_takes_over_acts_on_what_it_missed_and_once() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    policy.adopt(at(0), FaultId(7), Some(&node(1)), "fan failed");
    let row = |seq, number| Report { place: ROW, ..fan(seq, number, Truth::True) };
    let known = says(&mut policy, 1, &row(1, 1), 4);
    assert!(wants(&known).is_empty(), "fault 7 waits already: {known:?}");
    assert!(is_migration(&says(&mut policy, 1, &row(2, 2), 4), 2));
    // Another node has recovered meanwhile.
    let well = policy.adopt_unusable(at(2), &node(3));
    assert_eq!(wants(&well), [Request::Usable { node: node(3) }]);
    assert!(policy.adopt_unusable(at(2), &node(2)).is_empty());
}

#[test]
fn a_person_may_use_a_node_whose_condition_holds_until_it_fails_anew() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    says(&mut policy, 1, &fan(1, 5, Truth::True), 4);
    policy.usable(at(2), &node(5));
    assert_eq!(says(&mut policy, 600, &fan(2, 5, Truth::True), 5), [], "it is overruled");
    says(&mut policy, 601, &fan(3, 5, Truth::False), 5);
    assert!(is_migration(&says(&mut policy, 700, &fan(4, 5, Truth::True), 5), 5));
}

#[test]
fn the_next_launcher_keeps_what_a_person_has_ordered() {
    let mut first = Policy::parse(DEFAULT).unwrap();
    let row = |number, onset_ns| {
        let mut row = Report { place: ROW, ..fan(1, number, Truth::True) };
        row.stated.as_mut().unwrap().condition.onset_ns = onset_ns;
        row
    };
    let ordered = Now { mono_ns: 5, wall_ns: 1000 };
    first.drain(&node(3));
    first.usable(ordered, &node(3));
    first.usable(ordered, &node(4));
    first.drain(&node(5));
    let text = serde_json::to_string(first.orders()).unwrap();
    let mut next = Policy::parse(DEFAULT).unwrap();
    next.adopt_orders(at(1), serde_json::from_str(&text).unwrap());
    assert_eq!(says(&mut next, 1, &row(3, 1000), 4), [], "it is used although the fan has failed");
    assert!(is_migration(&says(&mut next, 1, &row(4, 1001), 4), 4), "it failed after the order");
    assert_eq!(wants(&ipmi(&mut next, 2, "FTB_IPMI_NORMAL", 5)), [], "it is drained");
}

#[test]
fn a_port_that_comes_and_goes_keeps_the_node_out_until_it_recovers() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let mut port = |seq: u64, is_down: bool| {
        let (name, truth) = match is_down {
            true => ("FTB_IB_PORT_ERR", Truth::True),
            false => ("FTB_IB_PORT_ACTIVE", Truth::False),
        };
        let mut report = stated(seq, name, 5, "PORT_ERR", truth);
        report.event.space = EventSpace::new("ftb.ib").unwrap();
        says(&mut policy, seq, &report, 4)
    };
    assert!(unusable(&port(1, true)).is_some(), "it is down now");
    assert_eq!(wants(&port(2, false)), [Request::Usable { node: node(5) }]);
    port(3, true);
    port(4, false);
    assert!(unusable(&port(5, true)).is_some());
    assert!(wants(&port(6, false)).is_empty(), "three times");
}

#[test]
fn a_job_on_one_node_leaves_it_when_it_is_hot() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let hot = stated(1, "FTB_IPMI_OVERTEMP", 1, "OVERTEMP", Truth::True);
    assert!(wants(&says(&mut policy, 1, &hot, 1)).is_empty(), "it settles");
    assert!(is_migration(&policy.tick(at(6), &facts(1)), 1));
}

#[test]
fn the_node_of_a_report_is_the_one_it_is_about() {
    let mut report = plain(&event("ftb.ipmi", "FTB_IPMI_PSUFAIL"));
    assert_eq!(report.node(), NodeName::new("poller").ok());
    report.event.payload = "Node05\0".into();
    assert_eq!(report.node(), Some(node(5)), "Appendix B: the payload is the node");
    report.event.tags.push(Tag { key: "node".to_owned(), value: "Node07".to_owned() });
    assert_eq!(report.node(), Some(node(7)));
    report.stated = fan(1, 9, Truth::True).stated;
    assert_eq!(report.node(), Some(node(9)), "the subject of the condition decides");
    let payload = |bytes: &[u8]| {
        let mut trigger = plain(&event("FTB.MPI.MIG_TRIGGER", "FTB_MIGRATE_TRIGGER"));
        trigger.event.payload = bytes.to_vec().into();
        trigger.node()
    };
    // A C program leaves what its stack has behind the text.
    assert_eq!(payload(b"node05\0garbage"), Some(node(5)));
    assert_eq!(payload(b"node05\0\xff\xa5\0\x80"), Some(node(5)));
    for no_host in [&b"node 05"[..], b"\xff\xfe\0", b"\xffnode05", b"no host at all"] {
        assert_eq!(payload(no_host), None, "never the host of the publisher");
    }
    assert_eq!(payload(b"\0node05"), NodeName::new("poller").ok(), "an empty text");
    let mut free = plain(&event("ftb.agent", "FTB_NODE_DEAD"));
    free.event.payload = "timeout".into();
    assert_eq!(free.node(), NodeName::new("poller").ok(), "a text is no node");
}

#[test]
fn only_trusted_publishers_speak_about_other_hosts() {
    let policy = Policy::parse(DEFAULT).unwrap();
    let check = |space: &str, uid: u32, about: &str| {
        let report = Report { uid, ..plain(&event(space, "X")) };
        policy.check(&report, &NodeName::new(about).unwrap(), 500).is_ok()
    };
    assert!(check("site.disk", 1000, "Poller"), "about its own host");
    assert!(!check("site.disk", 1000, "node01"));
    assert!(check("site.disk", 0, "node01") && check("site.disk", 500, "node01"));
    assert!(check("ftb.ipmi.rack1", 1000, "node01"), "agents protect this event space");
}

#[test]
fn where_events_are_signed_only_proven_publishers_and_monitors_move_a_node() {
    let policy = |monitors: &str| {
        let text = DEFAULT.replace("#monitors = []", monitors);
        Policy::parse(&text).unwrap()
    };
    let check = |policy: &Policy, report: &Report, about: u32| {
        policy.check(report, &node(about), 500).err().unwrap_or_default()
    };
    let of = |host: &str, proof| Report { host: host.to_owned(), proof, ..fan(1, 2, Truth::True) };
    let strict = policy("");
    assert_eq!(check(&strict, &of("node02", Proof::Signed), 2), "");
    let unsigned = check(&strict, &of("node02", Proof::Missing), 2);
    assert!(unsigned.contains("not signed with the key of node02"), "{unsigned}");
    assert_eq!(check(&strict, &of("mgmt1", Proof::Unchecked), 2), "", "insecure: as before");
    let foreign = check(&strict, &of("mgmt1", Proof::Signed), 2);
    assert!(foreign.contains("mgmt1 is not among the monitors"), "{foreign}");
    let monitored = policy("monitors = [\"mgmt[1-2]\", \"admin\"]");
    assert_eq!(check(&monitored, &of("Mgmt1", Proof::Signed), 2), "");
    assert!(!check(&monitored, &of("mgmt3", Proof::Signed), 2).is_empty());
    assert!(!check(&monitored, &of("mgmt3", Proof::Unchecked), 2).is_empty(), "the key counts");
    assert!(!check(&monitored, &of("mgmt1", Proof::Missing), 2).is_empty());
    // The host that lost its publisher's agent, and the judges of nodes, may be any.
    let mut lost = Report { host: "root".to_owned(), ..repeated(fan(2, 2, Truth::Unknown)) };
    lost.proof = Proof::Signed;
    assert!(!check(&strict, &lost, 2).is_empty(), "it replaces nothing");
    lost.stated.as_mut().unwrap().claim.replaces = lost.stated.as_ref().map(|s| s.claim.source);
    assert_eq!(check(&strict, &lost, 2), "");
    let named = Report { event: event("ftb.ipmi", "FTB_IPMI_FANFAIL"), ..lost };
    assert!(!check(&strict, &named, 2).is_empty(), "only agents find publishers lost");
    let verdict = |name: &str, proof| Report { proof, ..plain(&event("ftb.agent", name)) };
    assert_eq!(check(&strict, &verdict("FTB_NODE_DEAD", Proof::Signed), 2), "");
    assert!(!check(&strict, &verdict("FTB_NODE_DEAD", Proof::Missing), 2).is_empty());
    let repeated =
        Report { stated: fan(3, 2, Truth::True).stated, ..verdict("FTB_CONDITION", Proof::Signed) };
    assert!(!check(&strict, &repeated, 2).is_empty(), "a repeated statement is no verdict");
    assert!(Policy::parse(&DEFAULT.replace("#monitors = []", "monitors = [\"a[\"]")).is_err());
}

#[test]
fn the_trigger_of_mvapich2_moves_a_node_for_root_and_the_owner_only() {
    let mut trigger = event("FTB.MPI.MIG_TRIGGER", "FTB_MIGRATE_TRIGGER");
    trigger.payload = "node02\0".into();
    for (uid, moves) in [(0, true), (500, true), (1000, false)] {
        for host in ["login", "node02"] {
            let mut policy = Policy::parse(DEFAULT).unwrap();
            let report = Report { uid, ..Report::new(trigger.clone(), host) };
            assert_eq!(report.node(), Some(node(2)));
            let actions = says(&mut policy, 1, &report, 4);
            assert_eq!(is_migration(&actions, 2), moves, "{uid} {host}: {actions:?}");
        }
    }
}

/// The key of a host signs what the host says of its users, too.
#[test]
fn where_events_are_signed_no_other_host_can_claim_to_be_root_or_the_owner() {
    let mut trigger = event("FTB.MPI.MIG_TRIGGER", "FTB_MIGRATE_TRIGGER");
    trigger.payload = "node02\0".into();
    let mut policy = Policy::parse(&format!("monitors = [\"watch\"]\n{DEFAULT}")).unwrap();
    policy.set_host("login".to_owned());
    for (proof, host, counts) in [
        (Proof::Unchecked, "node03", true),
        (Proof::Missing, "node03", false),
        (Proof::Signed, "node03", false),
        (Proof::Missing, "login", true),
        (Proof::Missing, "watch", true),
        (Proof::Missing, "node02", true),
    ] {
        for uid in [0, 500] {
            let report = Report { uid, proof, ..Report::new(trigger.clone(), host) };
            let checked = policy.check(&report, &node(2), 500);
            assert_eq!(checked.is_ok(), counts, "{proof:?} {host}: {checked:?}");
        }
    }
}

#[test]
fn rules_match_tags_conditions_and_severity() {
    let rule = "[[rule]]\nname = \"disk\"\nconditions = [\"DISK_BAD\"]\naction = \"drain\"\n\
                tags = { slot = \"3\" }\n";
    let mut policy = Policy::parse(&format!("{DEFAULT}{rule}")).unwrap();
    let mut disk = stated(1, "BAD", 2, "DISK_BAD", Truth::True);
    disk.event.space = EventSpace::new("site.disk").unwrap();
    assert_eq!(says(&mut policy, 1, &disk, 4), [], "no slot");
    disk.event.tags.push(Tag { key: "slot".to_owned(), value: "3".to_owned() });
    disk.stated.as_mut().unwrap().claim.source.seq = 2.into();
    let drained = says(&mut policy, 2, &disk, 4);
    assert!(matches!(&wants(&drained)[..], [Request::Drain { .. }]), "{drained:?}");
    let mut corrected = event("ftb.ipmi", "FTB_IPMI_MEMERR");
    corrected.severity = Severity::Warning;
    assert_eq!(says(&mut policy, 3, &about(corrected.clone(), 3), 4), []);
    corrected.severity = Severity::Error;
    assert!(is_migration(&says(&mut policy, 3, &about(corrected, 3), 4), 3));
}

pub(super) fn about(mut event: Event, number: u32) -> Report {
    event.tags.push(Tag { key: "node".to_owned(), value: node(number).to_string() });
    plain(&event)
}

#[test]
fn a_prediction_carries_the_time_of_the_failure_and_shortens_the_settle_time() {
    let mut hot = event("ftb.ipmi", "FTB_IPMI_OVERTEMP");
    let tags = [("cause", "predicted"), ("seconds_left", "14"), ("seconds_left_min", "12")];
    hot.tags = tags.map(|(key, value)| Tag { key: key.to_owned(), value: value.to_owned() }).into();
    hot.time_ns = 1_000_000_000;
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let now = Now { mono_ns: at(100).mono_ns, wall_ns: 5_000_000_000 };
    let report = about(hot, 2);
    policy.event(now, &report, &node(2), &facts(4));
    // It is 4 s old, so 8 s are left, a quarter of which settles.
    assert_eq!(policy.next_deadline_ns(), at(102).mono_ns);
    let moves = wants(&policy.tick(at(102), &facts(4)));
    let expected = Some(at(108).mono_ns);
    let matches =
        |want: &Request| matches!(want, Request::Migrate { fails_ns, .. } if *fails_ns == expected);
    assert!(moves.iter().any(matches), "{moves:?}");
}

/// An overheating that is predicted, with that time left.
fn predicted(policy: &mut Policy, seconds: u64, left: u64) -> Vec<Action> {
    let mut hot = event("ftb.ipmi", "FTB_IPMI_OVERTEMP");
    let tags = [("cause", "predicted".to_owned()), ("seconds_left_min", left.to_string())];
    hot.tags = tags.map(|(key, value)| Tag { key: key.to_owned(), value }).into();
    says(policy, seconds, &about(hot, 2), 4)
}

fn moves_by(actions: &[Action]) -> Vec<Option<u64>> {
    let fails = |want: Request| match want {
        Request::Migrate { fails_ns, .. } => Some(fails_ns),
        _ => None,
    };
    wants(actions).into_iter().filter_map(fails).collect()
}

/// Node 2 was acted on at 1 s, and is left alone until 61 s.
fn left_alone() -> Policy {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    assert!(is_migration(&ipmi(&mut policy, 1, "FTB_IPMI_FANFAIL", 2), 2));
    policy
}

#[test]
fn a_node_that_fails_within_the_hold_down_is_left_before_it_does() {
    let mut policy = left_alone();
    predicted(&mut policy, 20, 12);
    assert_eq!(policy.next_deadline_ns(), at(23).mono_ns);
    assert_eq!(moves_by(&policy.tick(at(23), &facts(4))), [Some(at(32).mono_ns)]);
    // The same prediction again is no second fault.
    predicted(&mut policy, 24, 8);
    assert_eq!(moves_by(&policy.tick(at(26), &facts(4))), []);
}

#[test]
fn in_shadow_mode_each_predicted_failure_is_reported_once() {
    let text = DEFAULT.replace("shadow = false", "shadow = true");
    let mut policy = Policy::parse(&text).unwrap();
    ipmi(&mut policy, 1, "FTB_IPMI_FANFAIL", 2);
    predicted(&mut policy, 20, 12);
    let would = |actions: &[Action]| {
        let is = |of: &&Action| matches!(of, Action::Notify(words) if words.contains("would mig"));
        actions.iter().filter(is).count()
    };
    assert_eq!(would(&policy.tick(at(23), &facts(4))), 1);
    predicted(&mut policy, 24, 8);
    assert_eq!(would(&policy.tick(at(26), &facts(4))), 0);
}

#[test]
fn a_prediction_that_waits_for_the_end_of_the_hold_down_keeps_its_time() {
    let mut policy = left_alone();
    predicted(&mut policy, 20, 120);
    assert_eq!(moves_by(&policy.tick(at(25), &facts(4))), []);
    assert_eq!(moves_by(&policy.tick(at(61), &facts(4))), [Some(at(140).mono_ns)]);
}

#[test]
fn a_prediction_shortens_the_wait_of_a_fault_that_was_put_off() {
    let mut policy = left_alone();
    ipmi(&mut policy, 10, "FTB_IPMI_OVERTEMP", 2);
    assert_eq!(moves_by(&policy.tick(at(15), &facts(4))), []);
    assert_eq!(policy.next_deadline_ns(), at(61).mono_ns);
    predicted(&mut policy, 20, 12);
    assert_eq!(moves_by(&policy.tick(at(23), &facts(4))), [Some(at(32).mono_ns)]);
}

fn sooner(actions: &[Action]) -> Vec<(FaultId, u64)> {
    let is = |action: &Action| match action {
        Action::Sooner { fault, fails_ns, .. } => Some((*fault, *fails_ns / at(1).mono_ns)),
        _ => None,
    };
    actions.iter().filter_map(is).collect()
}

#[test]
fn a_node_that_fails_sooner_than_was_predicted_is_no_second_fault() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    predicted(&mut policy, 20, 300);
    assert_eq!(moves_by(&policy.tick(at(25), &facts(4))), [Some(at(320).mono_ns)]);
    let first = FaultId(1);
    assert_eq!(sooner(&predicted(&mut policy, 30, 290)), [], "that is known");
    assert_eq!(sooner(&predicted(&mut policy, 40, 12)), [(first, 52)]);
    assert_eq!(sooner(&predicted(&mut policy, 41, 11)), []);
    // The limit is reached.
    let mut hot = event("ftb.ipmi", "FTB_IPMI_OVERTEMP");
    hot.tags = vec![Tag { key: "cause".to_owned(), value: "above_threshold".to_owned() }];
    assert_eq!(sooner(&says(&mut policy, 45, &about(hot.clone(), 2), 4)), [(first, 45)]);
    assert_eq!(sooner(&says(&mut policy, 46, &about(hot, 2), 4)), []);
    assert_eq!(moves_by(&policy.tick(at(60), &facts(4))), [], "its number stays");
}

/// As hot as a prediction says of another node: it is left first.
#[test]
fn a_node_that_is_too_hot_already_may_fail_at_any_time() {
    let hot = |cause: Option<&str>, severity: Severity| {
        let mut hot = stated(1, "FTB_IPMI_OVERTEMP", 2, "OVERTEMP", Truth::True);
        let value = cause.map(str::to_owned);
        hot.event.tags.extend(value.map(|value| Tag { key: "cause".to_owned(), value }));
        hot.stated.as_mut().unwrap().condition.severity = Some(severity);
        hot
    };
    let moves = |report: &Report| {
        let mut policy = Policy::parse(DEFAULT).unwrap();
        says(&mut policy, 1, report, 4);
        moves_by(&policy.tick(at(6), &facts(4)))
    };
    let now = Some(at(6).mono_ns);
    let (critical, warm) = (Some("above_threshold"), Severity::Warning);
    assert_eq!(moves(&hot(critical, Severity::Error)), [now]);
    assert_eq!(moves(&hot(None, warm)), [now], "a program of the thesis");
    assert_eq!(moves(&hot(critical, warm)), [None], "below its critical limit");
    assert_eq!(moves(&repeated(hot(critical, Severity::Error))), [None], "without its tags");
    let by_pair = stated(1, "FTB_IPMI_OVERTEMP", 2, "HARDWARE", Truth::True);
    assert_eq!(moves(&by_pair), [now]);
    let mut program = event("ftb.ipmi", "FTB_IPMI_OVERTEMP");
    program.severity = warm;
    assert_eq!(moves(&about(program, 2)), [now], "without a condition");
}

/// It does not know what the one before counted on.
#[test]
fn the_next_launcher_hears_that_a_node_that_is_left_fails_sooner() {
    let mut before = Policy::parse(DEFAULT).unwrap();
    predicted(&mut before, 20, 300);
    let reason = before.tick(at(25), &facts(4)).into_iter().find_map(|action| match action {
        Action::Request { want: Request::Migrate { reason, .. }, .. } => Some(reason),
        _ => None,
    });
    let mut next = Policy::parse(DEFAULT).unwrap();
    next.adopt(at(30), FaultId(1), Some(&node(2)), &reason.unwrap());
    assert_eq!(sooner(&predicted(&mut next, 40, 12)), [(FaultId(1), 52)]);
    assert_eq!(sooner(&predicted(&mut next, 41, 12)), []);
}

/// A repeated fault keeps its onset, and agents repeat statements under a new time.
#[test]
fn the_time_of_a_predicted_failure_is_counted_from_no_onset() {
    let mut hot = stated(1, "FTB_IPMI_OVERTEMP", 2, "OVERTEMP", Truth::True);
    let tags = [("cause", "predicted"), ("seconds_left_min", "30"), ("fails_at_min", "630")];
    hot.event.tags =
        tags.map(|(key, value)| Tag { key: key.to_owned(), value: value.to_owned() }).into();
    hot.stated.as_mut().unwrap().condition.onset_ns = at(100).mono_ns;
    let now = Now { mono_ns: at(7).mono_ns, wall_ns: at(610).mono_ns };
    assert_eq!(hot.fails_ns(now), Some(at(27).mono_ns));
    let late = Now { wall_ns: at(700).mono_ns, ..now };
    assert_eq!(hot.fails_ns(late), Some(now.mono_ns), "now");
}
