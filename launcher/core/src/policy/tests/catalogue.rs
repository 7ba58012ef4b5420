//! The built-in policy and the catalogue: each finding about a node has a rule, and each fault for
//! which its publisher would take the node out of use keeps it without ranks.

use super::conditions::{ROW, about, says, stated, unusable};
use super::*;
use ftb_core::Severity;
use ftb_core::catalog::{self, EVENTS, EventEntry};
use ftb_core::condition::{RecommendedAction, Truth};

/// They say nothing about the node: a BMC is silent or its log full, ftb-bridge leaves breakers to
/// the facility, certificates can be renewed while ranks run, and the way to NATS concerns no rank.
const WITHOUT_RULE: [&str; 5] = [
    "FTB_BRIDGE_UNREACHABLE",
    "FTB_IPMI_BMC_LOST",
    "FTB_IPMI_CONTROLLER_LOST",
    "FTB_IPMI_SEL_FULL",
    "FTB_CERTIFICATE_EXPIRES",
];

/// After one such event the ranks leave.
const MOVING: [&str; 11] = [
    "FTB_FACILITY_LEAK",
    "FTB_FACILITY_POWER",
    "FTB_IB_ADAPTER_REMOVED",
    "FTB_IB_EVENT_DEVICE_FATAL",
    "FTB_IB_PORT_DEGRADED",
    "FTB_IB_PORT_FLAPPING",
    "FTB_IPMI_CPUFAIL",
    "FTB_IPMI_FANFAIL",
    "FTB_IPMI_MEMERR",
    "FTB_IPMI_OVERTEMP",
    "FTB_IPMI_PSUFAIL",
];

/// What programs find about nodes: events of the hardware and the facility, and what agents state
/// about a host. VOLTAGE moves ranks too.
fn findings() -> impl Iterator<Item = &'static EventEntry> {
    let is_of_node = |entry: &&EventEntry| match entry.space {
        "ftb.ipmi" | "ftb.ib" | "ftb.facility" => true,
        _ => entry.sets().any(|condition| condition.subject == "a host"),
    };
    EVENTS.iter().filter(is_of_node).filter(|entry| entry.worst() > Severity::Info)
}

/// The worst event of the entry about node 2, with the statement that its publisher makes.
fn report(entry: &EventEntry) -> Report {
    let condition = entry.sets().find(|condition| condition.key != "HARDWARE");
    let mut report = match condition {
        Some(condition) => stated(1, entry.name, 2, condition.key, Truth::True),
        None => about(event(entry.space, entry.name), 2),
    };
    report.event.space = EventSpace::new(entry.space).unwrap();
    report.event.severity = entry.worst();
    if let (Some(statement), Some(condition)) = (&mut report.stated, condition) {
        statement.condition.severity = Some(entry.worst());
        statement.condition.action = condition.action.parse().unwrap();
    }
    report
}

#[test]
fn each_finding_of_the_hardware_has_a_rule() {
    let (mut without, mut moving) = (BTreeSet::new(), BTreeSet::new());
    for entry in findings() {
        let mut policy = Policy::parse(DEFAULT).unwrap();
        let mut all = says(&mut policy, 1, &report(entry), 4);
        all.extend(policy.tick(at(10), &facts(4)));
        let is_move =
            |want: &Request| matches!(want, Request::Migrate { .. } | Request::Drain { .. });
        if wants(&all).iter().any(is_move) {
            moving.insert(entry.name);
        }
        if all.is_empty() {
            without.insert(entry.name);
        }
    }
    assert_eq!(without, BTreeSet::from(WITHOUT_RULE));
    assert!(moving.remove("FTB_IPMI_VOLTAGE"));
    assert_eq!(moving, BTreeSet::from(MOVING));
}

/// Such a spare is no first choice, and no job starts there. A journal concerns its agent only.
#[test]
fn each_fault_for_which_a_node_must_be_left_keeps_it_without_ranks() {
    let leaves = ["migrate", "reboot", "replace"];
    let mut seen = 0;
    for entry in EVENTS.iter().filter(|entry| entry.worst() >= Severity::Error) {
        let mut of = entry.sets().filter(|condition| leaves.contains(&condition.action));
        let is_found = ["FTB_AGENT_LOST", "FTB_NODE_UNREACHABLE"].contains(&entry.name);
        if of.next().is_none() && !is_found || entry.name == "FTB_JOURNAL_FAILED" {
            continue;
        }
        let mut policy = Policy::parse(DEFAULT).unwrap();
        let row = Report { place: ROW, ..report(entry) };
        let all = says(&mut policy, 1, &row, 0);
        assert!(unusable(&all).is_some(), "{}: {all:?}", entry.name);
        seen += 1;
    }
    assert!(seen > 12, "{seen}");
}

/// As `ftbctl publish site.disk BAD -s error --condition DISK_BAD --action replace` states it.
fn disk(number: u32, severity: Severity, action: RecommendedAction) -> Report {
    let mut disk = stated(1, "BAD", number, "DISK_BAD", Truth::True);
    disk.event.space = EventSpace::new("site.disk").unwrap();
    let statement = disk.stated.as_mut().unwrap();
    (statement.condition.severity, statement.condition.action) = (Some(severity), action);
    disk
}

#[test]
fn a_fault_that_the_policy_does_not_know_keeps_its_node_without_ranks_and_moves_none() {
    use RecommendedAction::{Migrate, Reboot, Replace, Watch};
    for action in [Migrate, Reboot, Replace] {
        let mut policy = Policy::parse(DEFAULT).unwrap();
        let idle = says(&mut policy, 1, &disk(5, Severity::Error, action), 4);
        let why = "its publisher says so: sensor DISK_BAD".to_owned();
        assert_eq!(unusable(&idle), Some((node(5), why, false)));
        assert_eq!(idle.len(), 1, "the launcher says it once: {idle:?}");
        let busy = says(&mut policy, 1, &disk(2, Severity::Fatal, action), 4);
        assert!(unusable(&busy).is_some() && wants(&busy).is_empty(), "{busy:?}");
        let words = "fault 1: give no further ranks (its publisher says so, node node02): BAD of \
                    sensor (DISK_BAD)";
        assert!(busy.contains(&Action::Notify(words.to_owned())), "{busy:?}");
        let mut cleared = disk(5, Severity::Info, action);
        let statement = cleared.stated.as_mut().unwrap();
        (statement.condition.truth, statement.claim.source.seq) = (Truth::False, 2.into());
        let back = says(&mut policy, 2, &cleared, 4);
        assert_eq!(wants(&back), [Request::Usable { node: node(5) }]);
    }
    let mut policy = Policy::parse(DEFAULT).unwrap();
    assert_eq!(says(&mut policy, 1, &disk(5, Severity::Error, Watch), 4), []);
    assert_eq!(says(&mut policy, 1, &disk(6, Severity::Warning, Replace), 4), []);
}

#[test]
fn a_site_may_leave_ranks_on_nodes_with_a_fault_that_it_only_wants_reported() {
    let rule = "[[rule]]\nname = \"disk\"\nconditions = [\"DISK_BAD\"]\naction = \"notify\"\n";
    let last = "[[rule]]\nname = \"its publisher says so\"";
    let text = DEFAULT.replacen(last, &format!("{rule}{last}"), 1);
    assert_ne!(text, DEFAULT);
    let mut policy = Policy::parse(&text).unwrap();
    let all = says(&mut policy, 1, &disk(5, Severity::Fatal, RecommendedAction::Replace), 4);
    assert!(unusable(&all).is_none() && matches!(&all[..], [Action::Notify(_)]), "{all:?}");
    let reactions = policy.reactions("", "", &["DISK_BAD"]);
    assert_eq!(reactions.iter().map(|of| of.rule.as_str()).collect::<Vec<_>>(), ["disk"]);
}

#[test]
fn a_rule_about_what_is_recommended_is_checked_and_explained() {
    let head = DEFAULT.split("[[rule]]").next().unwrap();
    let rule = |name: &str, more: &str| {
        format!("[[rule]]\nname = \"{name}\"\naction = \"avoid\"\n{more}\n")
    };
    let parse = |rules: &[String]| Policy::parse(&format!("{head}{}", rules.concat()));
    let problem = |rules: &[String]| parse(rules).unwrap_err().problem;
    let all = rule("all", "recommended = [\"reboot\", \"replace\"]");
    let bad = problem(&[rule("bad", "recommended = [\"explode\"]")]);
    assert!(bad.contains("\"explode\" is no recommended action"), "{bad}");
    assert!(problem(&[rule("none", "")]).contains("can never match"));
    for shadowed in [
        "recommended = [\"replace\"]",
        "recommended = [\"reboot\"]\nconditions = [\"DISK_BAD\"]",
        "recommended = [\"replace\"]\nseverity = \"error\"",
    ] {
        let refused = problem(&[all.clone(), rule("later", shadowed)]);
        assert!(refused.contains("can never act"), "{shadowed}: {refused}");
    }
    for other in ["recommended = [\"migrate\"]", "conditions = [\"DISK_BAD\"]"] {
        assert!(parse(&[all.clone(), rule("later", other)]).is_ok(), "{other}");
    }
    let policy = Policy::parse(DEFAULT).unwrap();
    let of = |key: &str| policy.reactions("", "", &[key]).last().map(|last| last.rule.clone());
    assert_eq!(of("DISK_BAD").as_deref(), Some("its publisher says so"));
    assert_eq!(of("JOURNAL_FAILED").as_deref(), Some("journal failed"));
    assert_eq!(catalog::condition("CERTIFICATE_EXPIRES").unwrap().action, "watch");
    assert_eq!(of("CERTIFICATE_EXPIRES"), None);
    let when = policy.reactions("", "", &["DISK_BAD"]).pop().unwrap().when;
    let expected = "its publisher recommends migrate or reboot or replace; severity error or worse";
    assert_eq!(when, expected);
}
