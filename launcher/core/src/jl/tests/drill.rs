//! A drill names the decision that the same fault leads to, and changes nothing.

use super::*;
use crate::drill::{Choice, Drill, DrillAnswer, DrillCheck, DrillId, DrillSource, decide};
use crate::policy::{Brake, DEFAULT, Facts, Policy, Proof, Report, Statement};
use ftb_core::condition::pairs::{ConditionPair, ConditionPairs};
use ftb_core::condition::{Condition, Truth};
use ftb_core::log::conditions::Claim;
use ftb_core::log::table_view::ReadPlace;
use ftb_core::numbers::PublisherSeq;
use ftb_core::{Event, EventId, EventName, EventSpace, PublisherId, Severity};

const ID: EventId =
    EventId { publisher: PublisherId { account: 1, token: 2 }, seq: PublisherSeq::new(3) };

fn drill(name: &str, condition: &str, node_name: Option<&str>) -> Drill {
    Drill {
        number: DrillId(0xfeed),
        fault: (EventSpace::new("ftb.ipmi").unwrap(), EventName::new(name).unwrap()),
        severity: Severity::Error,
        condition: Some(condition.to_owned()),
        node: node_name.map(node),
        from: None,
        job: String::new(),
    }
}

fn fan(node_name: &str) -> Drill {
    drill("FTB_IPMI_FANFAIL", "FANFAIL", Some(node_name))
}

fn answered(job: &Clocked, policy: &Policy, drill: &Drill) -> DrillAnswer {
    answered_to(job, policy, drill, Proof::Unchecked)
}

fn answered_to(job: &Clocked, policy: &Policy, drill: &Drill, proof: Proof) -> DrillAnswer {
    answered_by(job, policy, drill, source("a", proof))
}

/// A drill that root starts on a host.
fn source(host: &str, proof: Proof) -> DrillSource {
    DrillSource { id: ID, uid: 0, host: host.to_owned(), proof, is_own: false }
}

fn answered_by(job: &Clocked, policy: &Policy, drill: &Drill, by: DrillSource) -> DrillAnswer {
    let now = Now { mono_ns: job.seconds * 1_000_000_000, wall_ns: 5 };
    let facts = Facts { nodes: job.jl.job.placement().into_keys().collect(), owner: 7 };
    let before = serde_json::to_string(&job.jl).unwrap();
    let answer = decide(now, drill, &by, policy, &job.jl, &facts);
    assert_eq!(serde_json::to_string(&job.jl).unwrap(), before, "a drill changes nothing");
    answer
}

fn with_spare(spare: bool) -> Clocked {
    let mut job = Clocked::started(Interval::Never, spare);
    job.meet(true);
    job
}

#[test]
fn a_drill_names_the_migration_its_rule_and_the_spare() {
    let policy = Policy::parse(DEFAULT).unwrap();
    let job = with_spare(true);
    let answer = answered(&job, &policy, &fan("a"));
    assert_eq!((answer.choice, answer.target.clone()), (Choice::Migrate, Some(node("s"))));
    assert_eq!(answer.rule.as_deref(), Some("fan failed"));
    let begin = "would migrate the ranks of a to s (rule \"fan failed\"): ";
    assert!(answer.words.starts_with(begin), "{}", answer.words);
    assert!(!answer.words.contains("fault 1"), "no fault has a number: {}", answer.words);
    // The policy is asked again: it held nothing back.
    assert_eq!(answered(&job, &policy, &fan("a")), answer);
    // Without a node it is the first one with ranks.
    let first = answered(&job, &policy, &drill("FTB_IPMI_FANFAIL", "FANFAIL", None));
    assert_eq!(first.node, Some(node("a")));
}

#[test]
fn a_drill_skips_the_delay_of_its_rule() {
    let policy = Policy::parse(DEFAULT).unwrap();
    let hot = drill("FTB_IPMI_OVERTEMP", "OVERTEMP", Some("b"));
    let answer = answered(&with_spare(true), &policy, &hot);
    assert_eq!((answer.choice, answer.target), (Choice::Migrate, Some(node("s"))));
}

#[test]
fn a_drill_says_why_nothing_would_move() {
    let policy = Policy::parse(DEFAULT).unwrap();
    let saved = answered(&with_spare(false), &policy, &fan("a"));
    assert_eq!(saved.choice, Choice::Checkpoint);
    assert!(saved.words.contains("no hot spare is left"), "{}", saved.words);
    let job = with_spare(true);
    let idle = answered(&job, &policy, &fan("s"));
    assert_eq!(idle.choice, Choice::Nothing, "it would get no ranks: {}", idle.words);
    let foreign = answered(&job, &policy, &fan("elsewhere"));
    assert_eq!(foreign.choice, Choice::NotOfJob);
    let unknown = answered(&job, &policy, &drill("SITE_ODD", "ODD", Some("a")));
    assert_eq!(unknown.choice, Choice::Nothing);
    assert!(unknown.words.ends_with("no rule of the policy acts"), "{}", unknown.words);
    let text = DEFAULT.replace("shadow = false", "shadow = true");
    let shadow = answered(&job, &Policy::parse(&text).unwrap(), &fan("a"));
    assert_eq!(shadow.choice, Choice::Nothing);
    assert!(shadow.words.contains("shadow mode: would migrate"), "{}", shadow.words);
    assert_eq!((shadow.braked, idle.braked, unknown.braked), (Some(Brake::Shadow), None, None));
    let mut busy = with_spare(true);
    busy.fails(1, "b");
    let waits = answered(&busy, &policy, &fan("a"));
    assert_eq!(waits.choice, Choice::Wait, "{}", waits.words);
}

#[test]
fn a_drill_says_that_the_circuit_breaker_is_open() {
    let text = DEFAULT.replace("actions = 8", "actions = 1");
    let (job, mut policy) = (with_spare(true), Policy::parse(&text).unwrap());
    assert_eq!(answered(&job, &policy, &fan("a")).braked, None);
    let (space, name) = fan("b").fault;
    let facts = Facts { nodes: job.jl.job.placement().into_keys().collect(), owner: 7 };
    policy.event(Now::default(), &Report::new(Event::new(space, name), "b"), &node("b"), &facts);
    let answer = answered(&job, &policy, &fan("a"));
    assert_eq!((answer.choice, answer.braked), (Choice::Nothing, Some(Brake::Breaker)));
    assert!(answer.words.contains("the circuit breaker opens"), "{}", answer.words);
    assert!(!policy.is_open(), "a drill opens none");
    let (space, name) = fan("a").fault;
    policy.event(Now::default(), &Report::new(Event::new(space, name), "a"), &node("a"), &facts);
    assert!(policy.is_open());
    let answer = answered(&job, &policy, &fan("a"));
    assert!(answer.words.contains("the circuit breaker is open"), "{}", answer.words);
}

#[test]
fn a_drill_says_what_of_a_real_fault_it_did_not_check() {
    let (job, policy) = (with_spare(true), Policy::parse(DEFAULT).unwrap());
    let seen = |by: DrillSource| {
        let answer = answered_by(&job, &policy, &fan("b"), by);
        assert_eq!(answer.choice, Choice::Migrate, "{}", answer.words);
        (answer.checked, answer.unchecked.unwrap_or_default())
    };
    let all = BTreeSet::from(DrillCheck::ALL);
    let publisher = BTreeSet::from([DrillCheck::Publisher]);
    // Signed on the host that the drill stands for; or no agent demands signatures.
    assert_eq!(seen(source("B", Proof::Signed)), (all.clone(), String::new()));
    assert_eq!(seen(source("login", Proof::Unchecked)), (all, String::new()));
    let (checked, why) = seen(source("login", Proof::Signed));
    assert_eq!(checked, publisher);
    assert_eq!(why, "login signs its events: whether b does is checked by a drill there");
    let own = DrillSource { uid: 7, is_own: true, ..source("login", Proof::Missing) };
    let (checked, why) = seen(own);
    assert_eq!(checked, publisher);
    assert!(why.starts_with("a drill of the job's owner is not signed: whether b signs"), "{why}");
    let foreign = answered(&job, &policy, &fan("elsewhere"));
    assert_eq!((foreign.checked, foreign.unchecked), (BTreeSet::new(), None));
}

/// A host states that it watches a node in ftb.ipmi.
fn watches(policy: &mut Policy, host: &str, of: &str) {
    let mut event = Event::new("ftb.ipmi".parse().unwrap(), "FTB_IPMI_NORMAL".parse().unwrap());
    event.severity = Severity::Info;
    let claim = Claim::new(ID, Truth::True, Severity::Info, 1);
    let stated = Some(Statement { condition: Condition::watch(of, "ftb.ipmi"), claim });
    let place = ReadPlace { is_row: true, ..ReadPlace::default() };
    let report = Report { stated, place, ..Report::new(event, host) };
    policy.event(Now::default(), &report, &node(of), &Facts::default());
}

/// ftb-ipmi watches the nodes from mgmt1, events are signed, and the policy has no monitors: each
/// real fault is refused.
#[test]
fn a_drill_is_refused_where_the_real_fault_is() {
    let job = with_spare(true);
    let mut policy = Policy::parse(DEFAULT).unwrap();
    watches(&mut policy, "mgmt1", "a");
    let answer = |policy: &Policy, drill: &Drill, proof| {
        let answer = answered_to(&job, policy, drill, proof);
        (answer.choice, answer.words)
    };
    let (choice, words) = answer(&policy, &fan("a"), Proof::Signed);
    let expected = "would refuse the fault: FTB_IPMI_FANFAIL is about a, and mgmt1 is not among \
                    the monitors of the policy";
    assert_eq!((choice, words.as_str()), (Choice::Refused, expected));
    // The node reports itself; the agents demand no signatures; or the drill stands for another.
    assert_eq!(answer(&policy, &fan("b"), Proof::Signed).0, Choice::Migrate);
    assert_eq!(answer(&policy, &fan("a"), Proof::Unchecked).0, Choice::Migrate);
    let from = |host: &str, of: &str| Drill { from: Some(node(host)), ..fan(of) };
    assert_eq!(answer(&policy, &from("a", "a"), Proof::Signed).0, Choice::Migrate);
    assert_eq!(answer(&policy, &from("mgmt2", "b"), Proof::Signed).0, Choice::Refused);
    let (choice, words) = answer(&policy, &fan("b"), Proof::Missing);
    assert_eq!(choice, Choice::Refused);
    assert!(words.ends_with("is not signed with the key of b"), "{words}");
    let text = DEFAULT.replace("#monitors = []", "monitors = [\"mgmt1\"]");
    let mut monitored = Policy::parse(&text).unwrap();
    watches(&mut monitored, "mgmt1", "a");
    assert_eq!(answer(&monitored, &fan("a"), Proof::Signed).0, Choice::Migrate);
    // A space in which every user may publish: only root and the owner of the job count.
    let mut odd = from("login", "a");
    odd.fault.0 = EventSpace::new("site.odd").unwrap();
    let by = DrillSource { uid: 1000, ..source("a", Proof::Unchecked) };
    let facts = Facts { nodes: [node("a")].into(), owner: 7 };
    let foreign = decide(Now::default(), &odd, &by, &policy, &job.jl, &facts);
    assert_eq!(foreign.choice, Choice::Refused);
    assert!(foreign.words.ends_with("trusted_spaces of the policy"), "{}", foreign.words);
}

/// The event of a drill is no fault to any reader: no rule matches it, it states nothing.
#[test]
fn no_policy_and_no_pair_takes_a_drill_for_a_fault() {
    let event: Event = crate::drill::to_drill(&fan("a"), false);
    assert_eq!((event.severity, &event.condition), (Severity::Info, &None));
    let stated = ConditionPairs::built_in();
    let is_named =
        |pair: &ConditionPair| pair.set == event.name || pair.clear.contains(&event.name);
    assert!(!stated.all().iter().any(is_named));
    let mut policy = Policy::parse(DEFAULT).unwrap();
    let spaces = policy.spaces();
    assert!(!spaces.contains(event.space.as_str()), "an old launcher does not even hear it");
    let report = crate::policy::Report::new(event, "a");
    let facts = Facts { nodes: [node("a")].into(), owner: 7 };
    assert_eq!(policy.event(Now::default(), &report, &node("a"), &facts), []);
}
