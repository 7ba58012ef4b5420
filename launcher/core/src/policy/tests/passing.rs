//! Faults that pass: what waits for them is cancelled, and nothing else.

use super::conditions::{fan, says, stated};
use super::*;
use ftb_core::condition::Truth;

/// A power supply of node 2 fails or is well again.
fn supply(policy: &mut Policy, seconds: u64, component: &str, truth: Truth) -> Vec<Action> {
    let name = if truth == Truth::False { "FTB_IPMI_SENSOR_CLEARED" } else { "FTB_IPMI_PSUFAIL" };
    let mut report = stated(seconds, name, 2, "PSUFAIL", truth);
    report.stated.as_mut().unwrap().condition.component = component.to_owned();
    says(policy, seconds, &report, 4)
}

/// Node 2 was left for its fan at 1 s, in part without effect, and a power supply fails within the
/// hold-down.
fn with_a_second_fault() -> Policy {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    assert!(is_migration(&says(&mut policy, 1, &fan(1, 2, Truth::True), 4), 2));
    assert_eq!(wants(&supply(&mut policy, 10, "PSU 1", Truth::True)), []);
    assert_eq!(policy.next_deadline_ns(), at(61).mono_ns);
    policy
}

fn words(actions: &[Action]) -> Vec<&str> {
    let said = actions.iter().filter_map(|action| match action {
        Action::Notify(words) => Some(words.as_str()),
        _ => None,
    });
    said.collect()
}

#[test]
fn a_fault_that_passes_within_the_hold_down_moves_no_rank_although_another_one_holds() {
    let mut policy = with_a_second_fault();
    let passed = supply(&mut policy, 20, "PSU 1", Truth::False);
    assert!(policy.conditions.out(&node(2)).is_some(), "the fan has failed still");
    let expected = "fault 2: FTB_IPMI_PSUFAIL of PSU 1 on node02 has passed; not done: migrate \
                    (power supply failed)";
    assert_eq!(words(&passed), [expected]);
    assert_eq!(policy.tick(at(61), &facts(4)), []);
}

#[test]
fn a_fault_that_another_condition_of_its_rule_keeps_up_moves_the_ranks() {
    let mut policy = with_a_second_fault();
    supply(&mut policy, 11, "PSU 2", Truth::True);
    let passed = supply(&mut policy, 20, "PSU 1", Truth::False);
    assert_eq!((wants(&passed), words(&passed)), (vec![], vec![]));
    assert!(is_migration(&policy.tick(at(61), &facts(4)), 2));
}

/// Its severity decides: it is still stated, but no rule would leave the node for it.
#[test]
fn a_fault_that_becomes_milder_than_its_rule_has_passed() {
    let mut policy = with_a_second_fault();
    let mut milder = stated(20, "FTB_IPMI_PSUFAIL", 2, "PSUFAIL", Truth::True);
    let condition = &mut milder.stated.as_mut().unwrap().condition;
    condition.component = "PSU 1".to_owned();
    condition.severity = Some(ftb_core::Severity::Warning);
    says(&mut policy, 20, &milder, 4);
    assert_eq!(wants(&policy.tick(at(61), &facts(4))), []);
}

/// No spare was free: the migration waits in the launcher. The node stays out for another reason,
/// which moves no rank.
#[test]
fn a_request_for_a_fault_that_has_passed_is_cancelled_while_the_node_stays_out() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    assert!(is_migration(&says(&mut policy, 1, &fan(1, 2, Truth::True), 4), 2));
    let gone = |seq: u64, truth: Truth| {
        let name = if truth == Truth::False { "FTB_NODE_BACK" } else { "FTB_AGENT_LOST" };
        let mut gone = stated(seq, name, 2, "AGENT_LOST", truth);
        gone.event.space = EventSpace::new("ftb.agent").unwrap();
        gone
    };
    says(&mut policy, 2, &gone(2, Truth::True), 4);
    let passed = says(&mut policy, 3, &fan(3, 2, Truth::False), 4);
    assert_eq!(faults(&passed), [("off", ids([1]))]);
    let back = says(&mut policy, 4, &gone(4, Truth::False), 4);
    assert_eq!(faults(&back), [("wanted", ids([]))], "it is put back");
}

/// The same of events that state nothing, which a recovery ends.
#[test]
fn a_recovery_cancels_the_requests_of_what_it_ends_while_the_node_stays_out() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    assert!(is_migration(&ipmi(&mut policy, 1, "FTB_IPMI_FANFAIL", 2), 2));
    policy.event(at(2), &plain(&event("ftb.ib", "FTB_IB_PORT_FLAPPING")), &node(2), &facts(4));
    let normal = ipmi(&mut policy, 3, "FTB_IPMI_NORMAL", 2);
    assert_eq!(faults(&normal), [("off", ids([1]))]);
    assert!(is_migration(&policy.tick(at(61), &facts(4)), 2), "the port flaps");
}

#[test]
fn a_node_that_recovers_keeps_what_waits_for_a_fault_of_another_event_space() {
    let rule = "[[rule]]\nname = \"disk\"\nspace = \"site.disk\"\nevents = [\"DISK_SLOW\"]\n\
                settle = \"30s\"\naction = \"checkpoint\"\n";
    let mut policy = Policy::parse(&format!("{DEFAULT}{rule}")).unwrap();
    policy.event(at(1), &plain(&event("site.disk", "DISK_SLOW")), &node(2), &facts(4));
    says(&mut policy, 2, &fan(1, 2, Truth::True), 4);
    let back = says(&mut policy, 3, &fan(2, 2, Truth::False), 4);
    assert_eq!(wants(&back), [Request::Usable { node: node(2) }]);
    assert!(matches!(wants(&policy.tick(at(31), &facts(4)))[..], [Request::Checkpoint { .. }]));
}

#[test]
fn nothing_that_waits_leaves_a_node_that_a_person_wants_to_be_used() {
    let mut policy = with_a_second_fault();
    policy.usable(at(20), &node(2));
    assert_eq!(policy.tick(at(61), &facts(4)), []);
}

/// A large job begins while many of its spares have a processor that failed.
#[test]
fn drains_of_nodes_without_ranks_open_no_breaker_and_hold_nothing_down() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let failed = |number: u32| stated(1, "FTB_IPMI_CPUFAIL", number, "CPUFAIL", Truth::True);
    for number in 5..25 {
        let drained = wants(&says(&mut policy, 1, &failed(number), 4));
        assert!(matches!(&drained[..], [Request::Drain { .. }]), "{number}: {drained:?}");
    }
    assert!(is_migration(&says(&mut policy, 2, &fan(1, 2, Truth::True), 4), 2));
    // The same again is no second fault, until the hold-down is over.
    let again = |number| stated(number, "FTB_IPMI_CPUFAIL", 5, "CPUFAIL", Truth::True);
    let other = |seconds: u64, policy: &mut Policy| {
        let mut other = again(seconds);
        other.stated.as_mut().unwrap().condition.component = format!("CPU {seconds}");
        says(policy, seconds, &other, 4)
    };
    assert_eq!(faults(&other(30, &mut policy)), []);
    assert_eq!(faults(&other(62, &mut policy)), [("wanted", ids([22]))]);
    let shadow = DEFAULT.replace("shadow = false", "shadow = true");
    let mut shadow = Policy::parse(&shadow).unwrap();
    assert_eq!(wants(&says(&mut shadow, 1, &failed(5), 4)), []);
    assert_eq!(*shadow.orders(), Orders::default());
}

/// Its launcher has closed the fault of the first drain.
#[test]
fn a_drain_of_a_node_that_a_person_wants_to_be_used_again_is_a_new_fault() {
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let failed = |seq: u64, component: &str| {
        let mut failed = stated(seq, "FTB_IPMI_CPUFAIL", 5, "CPUFAIL", Truth::True);
        failed.stated.as_mut().unwrap().condition.component = component.to_owned();
        failed
    };
    assert_eq!(faults(&says(&mut policy, 1, &failed(1, "CPU 1"), 4)), [("wanted", ids([1]))]);
    policy.usable(at(2), &node(5));
    assert_eq!(faults(&says(&mut policy, 3, &failed(2, "CPU 2"), 4)), [("wanted", ids([2]))]);
}

/// The built-in policy with a rule that saves the job for a disk of any node.
fn with_rule_about_the_job(condition: &str) -> Policy {
    let rule = format!(
        "[[rule]]\nname = \"disks\"\nspace = \"ftb.ipmi\"\nconditions = [\"DISK_BAD\"]\n\
         settle = \"10s\"\naction = \"checkpoint\"\n{condition}"
    );
    Policy::parse(&format!("{DEFAULT}{rule}")).unwrap()
}

fn disk(policy: &mut Policy, seconds: u64, number: u32, truth: Truth) -> Vec<Action> {
    says(policy, seconds, &stated(seconds, "DISK", number, "DISK_BAD", truth), 4)
}

#[test]
fn the_job_is_saved_while_its_fault_holds_on_one_node_although_it_has_passed_on_another() {
    for passes in [1, 2] {
        let mut policy = with_rule_about_the_job("");
        disk(&mut policy, 1, 1, Truth::True);
        disk(&mut policy, 2, 2, Truth::True);
        disk(&mut policy, 3, passes, Truth::False);
        let saved = wants(&policy.tick(at(13), &facts(4)));
        assert!(matches!(saved[..], [Request::Checkpoint { .. }]), "{passes}: {saved:?}");
    }
    // On both it is saved once.
    let mut policy = with_rule_about_the_job("");
    disk(&mut policy, 1, 1, Truth::True);
    disk(&mut policy, 2, 2, Truth::True);
    assert_eq!(wants(&policy.tick(at(11), &facts(4))).len(), 1);
    assert_eq!(policy.tick(at(200), &facts(4)), []);
    let mut policy = with_rule_about_the_job("");
    disk(&mut policy, 1, 1, Truth::True);
    disk(&mut policy, 2, 1, Truth::False);
    assert_eq!(wants(&policy.tick(at(13), &facts(4))), [], "it holds nowhere");
}

#[test]
fn the_job_is_saved_when_a_fault_of_many_nodes_passes_on_the_one_that_was_the_last() {
    let mut policy = with_rule_about_the_job("nodes_over = 0.5\nwithin = \"60s\"\n");
    for number in 1..=3 {
        disk(&mut policy, number.into(), number, Truth::True);
    }
    disk(&mut policy, 4, 3, Truth::False);
    assert!(matches!(wants(&policy.tick(at(13), &facts(4)))[..], [Request::Checkpoint { .. }]));
}

/// The node is left alone, so the drain waits.
#[test]
fn a_drain_that_waits_is_done_although_its_condition_clears() {
    for other in [true, false] {
        let mut policy = Policy::parse(DEFAULT).unwrap();
        assert!(is_migration(&says(&mut policy, 1, &fan(1, 2, Truth::True), 4), 2));
        let failed = |seq, truth| stated(seq, "FTB_IPMI_CPUFAIL", 2, "CPUFAIL", truth);
        assert_eq!(wants(&says(&mut policy, 10, &failed(2, Truth::True), 4)), []);
        if !other {
            says(&mut policy, 11, &fan(3, 2, Truth::False), 4);
        }
        let mut cleared = failed(4, Truth::False);
        cleared.event = event("ftb.ipmi", "FTB_IPMI_SENSOR_CLEARED");
        says(&mut policy, 20, &cleared, 4);
        let drained = wants(&policy.tick(at(61), &facts(4)));
        assert!(matches!(drained[..], [Request::Drain { .. }]), "{other}: {drained:?}");
    }
}

/// A program of the thesis states one condition of its node: it is bad, by fan or by heat.
fn bad_by(policy: &mut Policy, seconds: u64, name: &str) -> Vec<Action> {
    says(policy, seconds, &stated(seconds, name, 2, "HARDWARE", Truth::True), 4)
}

#[test]
fn heat_cancels_no_request_for_a_failed_fan_of_the_same_condition() {
    let (fan, heat) = ("FTB_IPMI_FANFAIL", "FTB_IPMI_OVERTEMP");
    let mut policy = Policy::parse(DEFAULT).unwrap();
    assert!(is_migration(&bad_by(&mut policy, 1, fan), 2));
    for seconds in [2, 3] {
        let hot = bad_by(&mut policy, seconds, heat);
        assert_eq!(faults(&hot), [], "the fan has failed still");
    }
    assert!(policy.conditions.out(&node(2)).is_some());
    // In the other order the heat goes on.
    let mut policy = Policy::parse(DEFAULT).unwrap();
    bad_by(&mut policy, 1, heat);
    assert!(is_migration(&policy.tick(at(6), &facts(4)), 2));
    assert_eq!(faults(&bad_by(&mut policy, 7, fan)), []);
    // One state of the node ends both.
    let normal = stated(9, "FTB_IPMI_NORMAL", 2, "HARDWARE", Truth::False);
    let normal = says(&mut policy, 9, &normal, 4);
    assert!(wants(&normal).contains(&Request::Usable { node: node(2) }), "{normal:?}");
}

/// Each launcher reads the rows, and publishers state them again every ten minutes.
#[test]
fn a_rule_about_the_job_acts_once_for_conditions_that_go_on() {
    let begin = || with_rule_about_the_job("nodes_over = 0.4\nwithin = \"60s\"\n");
    let next = |policy: &Policy| {
        let text = serde_json::to_string(policy.orders()).unwrap();
        let mut next = begin();
        next.adopt_orders(at(0), serde_json::from_str(&text).unwrap());
        next
    };
    // How often the job is saved for statements about these nodes.
    let saves = |policy: &mut Policy, seconds: u64, nodes: &[u32]| {
        let mut actions = Vec::new();
        for (second, number) in (seconds..).zip(nodes) {
            actions.extend(disk(policy, second, *number, Truth::True));
        }
        actions.extend(policy.tick(at(seconds + 20), &facts(4)));
        wants(&actions).len()
    };
    let mut policy = begin();
    assert_eq!(saves(&mut policy, 1, &[1, 2]), 1);
    assert_eq!(saves(&mut policy, 700, &[1, 2]), 0);
    let mut policy = next(&policy);
    assert_eq!(saves(&mut policy, 1, &[1, 2]), 0);
    policy.end_first_reading();
    // A third node is news, and so is one on which it has passed.
    assert_eq!(saves(&mut policy, 700, &[1, 2, 3]), 1);
    disk(&mut policy, 800, 2, Truth::False);
    assert_eq!(saves(&mut policy, 900, &[1, 2]), 1);
    // It has passed while no launcher ran.
    let mut policy = next(&policy);
    policy.end_first_reading();
    assert_eq!(saves(&mut policy, 2, &[1, 2]), 1);
    // The job was saved for a node of long ago too.
    let mut policy = begin();
    assert_eq!(saves(&mut policy, 1, &[3]), 0);
    assert_eq!(saves(&mut policy, 700, &[1, 2]), 1);
    assert_eq!(saves(&mut next(&policy), 1, &[1, 2, 3]), 0);
}

/// It has passed and come back while no launcher ran.
#[test]
fn a_fault_is_acted_on_although_an_earlier_one_of_the_same_nodes_was() {
    for condition in ["", "nodes_over = 0.4\nwithin = \"60s\"\n"] {
        // How often the job is saved for two nodes that are bad since these times.
        let saves = |policy: &mut Policy, onsets_s: [u64; 2]| {
            let mut actions = Vec::new();
            for (number, onset_s) in (1..).zip(onsets_s) {
                let mut bad = stated(onset_s, "DISK", number, "DISK_BAD", Truth::True);
                bad.stated.as_mut().unwrap().condition.onset_ns = at(onset_s).mono_ns;
                actions.extend(says(policy, 1, &bad, 4));
            }
            actions.extend(policy.tick(at(20), &facts(4)));
            wants(&actions).len()
        };
        let mut policy = with_rule_about_the_job(condition);
        assert_eq!(saves(&mut policy, [100, 100]), 1, "{condition}");
        let text = serde_json::to_string(policy.orders()).unwrap();
        let again = |onsets_s: [u64; 2]| {
            let mut next = with_rule_about_the_job(condition);
            next.adopt_orders(at(0), serde_json::from_str(&text).unwrap());
            saves(&mut next, onsets_s)
        };
        assert_eq!((again([100, 100]), again([100, 101])), (0, 1), "{condition}");
    }
}
