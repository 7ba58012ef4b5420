//! The core beside a disk in memory: single promises, and a crash at each step.
#![allow(clippy::unwrap_used)]

use super::*;
use ftb_core::hostlist::Hostlist;

const SECOND: u64 = 1_000_000_000;

fn rule(name: &str, key: &str, then: Then) -> Rule {
    let kind = then.kind();
    Rule {
        name: name.to_owned(),
        keys: vec![key.to_owned()],
        spaces: Vec::new(),
        severity: Severity::Error,
        recommended: Vec::new(),
        then,
        group_by: GroupBy::Host,
        within: Duration::from_secs(5),
        changes_hosts: matches!(kind, Kind::Exec | Kind::Drain),
    }
}

fn exec(name: &str, key: &str) -> Rule {
    let program = vec!["/bin/reset".to_owned()];
    rule(name, key, Then::Exec { program, time_limit: Duration::from_secs(60) })
}

fn drain(name: &str, key: &str) -> Rule {
    rule(name, key, Then::Drain { is_persons: false })
}

fn page(name: &str, key: &str) -> Rule {
    let then =
        Then::Webhook { url: "http://pager/".to_owned(), time_limit: Duration::from_secs(60) };
    Rule { group_by: GroupBy::Rack, ..rule(name, key, then) }
}

fn rules(rules: Vec<Rule>) -> Rules {
    let racks = (1..=4).map(|rack| {
        let list = format!("node[{:03}-{:03}]", rack * 16 - 15, rack * 16);
        (format!("r{rack}"), Hostlist::parse(&list).unwrap())
    });
    Rules {
        rules,
        profiles: vec![
            (Hostlist::parse("node064").unwrap(), Mode::Observe),
            (Hostlist::parse("node063").unwrap(), Mode::Drain),
            (Hostlist::parse("node[001-062]").unwrap(), Mode::Act),
        ],
        racks: racks.collect(),
        breaker_hosts: 8,
        breaker_within: Duration::from_secs(600),
        breaker_percent: 100,
    }
}

fn node(number: usize) -> String {
    format!("node{number:03}")
}

fn row(number: usize, key: &str, truth: Truth, onset_ns: u64) -> Row {
    Row {
        subject: Subject::new(&node(number), "", key),
        truth,
        severity: Severity::Error,
        action: RecommendedAction::Replace,
        onset_ns,
        space: "ftb.agent".to_owned(),
        message: String::new(),
        silence: None,
    }
}

fn silence(list: &str, until_ns: u64) -> Row {
    let lasts = (0, Duration::from_nanos(until_ns));
    let silence = Silence::new("a".to_owned(), list, None, lasts, "maintenance").unwrap();
    let mut row = row(1, SILENCED, Truth::True, 1);
    (row.subject, row.silence) = (Subject::new("login1", "a", SILENCED), Some(silence));
    row
}

/// The core, its disk, and what it has done.
struct World {
    rules: Rules,
    act: Act,
    disk: Saved,
    table: BTreeMap<Subject, Row>,
    now_ns: u64,
    done: Vec<String>,
    /// What waits to be confirmed, or has to end.
    pending: Vec<u64>,
    running: Vec<u64>,
}

impl World {
    fn new(list: Vec<Rule>) -> Self {
        let rules = rules(list);
        let disk = Saved { life: 7, ..Saved::default() };
        let act = Act::new(rules.clone(), disk.clone());
        Self {
            rules,
            act,
            disk,
            table: BTreeMap::new(),
            now_ns: SECOND,
            done: Vec::new(),
            pending: Vec::new(),
            running: Vec::new(),
        }
        .started()
    }

    fn started(mut self) -> Self {
        self.start();
        self
    }

    /// ftb-act is killed and started: only the disk is left.
    fn start(&mut self) {
        self.act = Act::new(self.rules.clone(), self.disk.clone());
        self.act.set_host("Login1");
        (self.pending, self.running) = (Vec::new(), Vec::new());
        self.input(Input::Table(self.table.values().cloned().collect()));
    }

    fn row(&mut self, row: Row) {
        self.table.insert(row.subject.clone(), row.clone());
        self.input(Input::Row(Box::new(row)));
    }

    fn input(&mut self, input: Input) {
        let turn = self.act.handle(self.now_ns, input);
        turn.deltas.into_iter().for_each(|delta| self.disk.apply(delta));
        for output in turn.outputs {
            let line = match output {
                Output::Run { work, .. } => {
                    self.running.push(work.order.id);
                    format!("run {} {}", work.order.rule, work.order.host_list())
                }
                Output::Post { work, .. } => {
                    self.running.push(work.order.id);
                    format!("post {} {}", work.order.group, work.order.host_list())
                }
                Output::Publish { id, notice } => {
                    self.pending.push(id);
                    self.publish(*notice)
                }
                Output::Log(line) => format!("log {line}"),
            };
            self.done.push(line);
        }
    }

    /// What is published is in the table.
    fn publish(&mut self, notice: Notice) -> String {
        let mut stated = row(1, BREAKER_OPEN, Truth::True, 1);
        stated.space = SPACE.to_owned();
        let line = match notice {
            Notice::Event { work, .. } => return format!("event {}", work.order.rule),
            Notice::Report(order) => match order.stage {
                Stage::Reporting { is_done, text } => return format!("report {is_done} {text}"),
                stage => panic!("{stage:?}"),
            },
            Notice::Service { subject, truth, .. } => {
                let line = format!("service {} {truth}", subject.host());
                (stated.subject, stated.truth) = (subject, truth);
                line
            }
            Notice::Breaker { reason } => {
                stated.subject = Subject::new("login1", "ftb-act", BREAKER_OPEN);
                format!("breaker {reason}")
            }
        };
        self.table.insert(stated.subject.clone(), stated);
        line
    }

    fn pass(&mut self, seconds: u64) {
        self.now_ns += seconds * SECOND;
        self.input(Input::Tick);
    }

    fn confirm(&mut self) {
        for id in std::mem::take(&mut self.pending) {
            self.input(Input::Confirmed(id));
        }
    }

    fn end(&mut self) {
        for id in std::mem::take(&mut self.running) {
            self.input(Input::Ended { id, is_done: true, text: "ok".to_owned() });
        }
    }

    fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.done)
    }
}

#[test]
fn a_rack_that_loses_power_is_one_page_and_no_drain_storm() {
    let mut world = World::new(vec![page("page", "NODE_DEAD"), drain("dead", "NODE_DEAD")]);
    for number in 17..=32 {
        world.row(row(number, "NODE_DEAD", Truth::True, 5));
    }
    world.pass(5);
    let done = world.take();
    assert_eq!(done.iter().filter(|line| line.starts_with("post r2 node[017-032]")).count(), 1);
    assert_eq!(done.iter().filter(|line| line.starts_with("post")).count(), 1, "{done:?}");
    assert!(!done.iter().any(|line| line.starts_with("service")), "{done:?}");
    assert!(done.contains(&"breaker 16 hosts within 600 s".to_owned()), "{done:?}");
    world.end();
    world.confirm();
    // It stays refused, also after a crash, and passes once after a person has looked.
    world.start();
    world.pass(60);
    let refused = world.act.orders().filter(|order| order.stage == Stage::Refused).count();
    assert_eq!(refused, 16);
    assert!(world.take().iter().all(|line| !line.starts_with("service")));
    let open = Subject::new("login1", "ftb-act", BREAKER_OPEN);
    let mut closed = world.table.get(&open).unwrap().clone();
    closed.truth = Truth::False;
    world.row(row(17, "NODE_DEAD", Truth::False, 5));
    // Others may state the same key.
    for (host, component, space) in
        [("login2", "ftb-act", SPACE), ("login1", "b", SPACE), ("login1", "ftb-act", "site")]
    {
        let subject = Subject::new(host, component, BREAKER_OPEN);
        let other = Row { subject, space: space.to_owned(), ..closed.clone() };
        world.input(Input::Row(Box::new(other)));
        assert_eq!(world.take(), [""; 0]);
    }
    world.row(closed);
    let drained = world.take().iter().filter(|line| line.starts_with("service")).count();
    assert_eq!(drained, 15, "not the one that is back");
}

#[test]
fn a_rule_acts_once_on_each_onset_whatever_step_ftb_act_is_killed_at() {
    // 0: while it settles, 1: live, 2: ended, not confirmed, 3: over.
    for killed_at in 0..4 {
        let mut world = World::new(vec![exec("reset", "GPU")]);
        world.row(row(1, "GPU", Truth::True, 5));
        for step in 0..4 {
            if killed_at == step {
                world.start();
            }
            match step {
                0 => world.pass(5),
                1 => world.end(),
                _ => world.confirm(),
            }
        }
        world.pass(60);
        world.end();
        world.confirm();
        world.start();
        world.pass(60);
        let done = world.take();
        let count = |word: &str| done.iter().filter(|line| line.starts_with(word)).count();
        assert_eq!(count("run"), 1, "killed at {killed_at}: {done:?}");
        let is_interrupted = done.iter().any(|line| line.starts_with("report false interrupted"));
        assert_eq!(is_interrupted, killed_at == 1, "killed at {killed_at}: {done:?}");
        // A restatement is no onset; the next onset is.
        world.row(row(1, "GPU", Truth::True, 6));
        world.row(row(1, "GPU", Truth::Unknown, 6));
        world.row(row(1, "GPU", Truth::True, 7));
        world.start();
        world.pass(60);
        assert_eq!(world.take(), [""; 0]);
        world.row(row(1, "GPU", Truth::False, 7));
        assert!(world.disk.orders.is_empty(), "{:?}", world.disk.orders);
        world.row(row(1, "GPU", Truth::True, 8));
        world.pass(5);
        assert_eq!(world.take(), ["run reset node001"]);
    }
}

#[test]
fn an_onset_while_ftb_act_is_down_is_a_new_one() {
    let mut world = World::new(vec![exec("reset", "GPU")]);
    world.row(row(1, "GPU", Truth::True, 5));
    world.pass(5);
    world.end();
    world.confirm();
    let again = row(1, "GPU", Truth::True, 9);
    world.table.insert(again.subject.clone(), again);
    world.take();
    world.start();
    world.pass(5);
    assert_eq!(world.take(), ["run reset node001"]);
    assert_eq!(world.disk.orders.len(), 1);
}

#[test]
fn an_onset_in_a_gap_is_a_new_one_and_a_silence_may_have_ended_in_it() {
    let mut world = World::new(vec![exec("reset", "GPU")]);
    world.row(row(1, "GPU", Truth::True, 5));
    world.pass(5);
    world.end();
    world.confirm();
    world.row(silence("node002", world.now_ns + 1_000 * SECOND));
    world.row(row(2, "GPU", Truth::True, 5));
    world.pass(5);
    world.take();
    let rows = [row(1, "GPU", Truth::True, 9), row(2, "GPU", Truth::True, 5)];
    world.input(Input::Table(rows.to_vec()));
    assert_eq!(world.take(), ["run reset node002"], "it is not silenced any more");
    world.pass(5);
    assert_eq!(world.take(), ["run reset node001"]);
    // Of an order that has not begun, it makes no second one.
    world.row(row(3, "GPU", Truth::True, 5));
    world.input(Input::Table(vec![row(3, "GPU", Truth::True, 9)]));
    world.pass(5);
    assert_eq!(world.take(), ["run reset node003"]);
}

#[test]
fn a_host_that_flaps_beside_another_is_not_acted_on_again_after_a_start() {
    let mut world = World::new(vec![page("page", "GPU")]);
    world.row(row(1, "GPU", Truth::True, 5));
    world.row(row(2, "GPU", Truth::True, 5));
    world.pass(5);
    world.end();
    world.confirm();
    world.row(row(1, "GPU", Truth::False, 5));
    world.row(row(1, "GPU", Truth::True, 9));
    world.pass(5);
    world.end();
    world.confirm();
    let done = world.take();
    assert!(done.contains(&"post r1 node001".to_owned()), "{done:?}");
    world.start();
    world.pass(5);
    assert_eq!(world.take(), [""; 0]);
}

#[test]
fn an_order_that_passed_and_ended_while_it_waited_is_gone_from_disk() {
    let mut world = World::new(vec![exec("one", "GPU"), exec("two", "GPU")]);
    world.rules.breaker_hosts = 0;
    world.start();
    world.row(row(1, "GPU", Truth::True, 5));
    world.pass(5);
    world.confirm();
    world.take();
    let open = Subject::new("login1", "ftb-act", BREAKER_OPEN);
    let closed = Row { truth: Truth::False, ..world.table.get(&open).unwrap().clone() };
    world.row(closed);
    let done = world.take();
    assert!(done.contains(&"run one node001".to_owned()) && done.len() == 2, "{done:?}");
    world.row(row(1, "GPU", Truth::False, 5));
    world.end();
    world.confirm();
    assert!(world.disk.orders.is_empty(), "{:?}", world.disk.orders);
}

#[test]
fn an_interrupted_program_is_reported_until_that_is_confirmed() {
    let mut world = World::new(vec![exec("reset", "GPU")]);
    world.row(row(1, "GPU", Truth::True, 5));
    world.pass(5);
    for _ in 0..3 {
        world.start();
        let done = world.take();
        assert!(done.last().unwrap().starts_with("report false interrupted"), "{done:?}");
    }
    world.confirm();
    world.start();
    assert_eq!(world.take(), [""; 0]);
}

#[test]
fn a_drain_is_published_until_it_is_confirmed_and_ends_with_its_cause() {
    let mut world = World::new(vec![drain("dead", "NODE_DEAD")]);
    world.row(row(1, "NODE_DEAD", Truth::True, 5));
    world.pass(5);
    for _ in 0..3 {
        assert_eq!(world.take(), ["service node001 true"]);
        world.start();
    }
    world.take();
    world.row(row(1, "NODE_DEAD", Truth::False, 5));
    assert_eq!(world.take(), [""; 0], "it is not confirmed that it is drained");
    world.confirm();
    for _ in 0..3 {
        assert_eq!(world.take(), ["service node001 false"]);
        world.start();
    }
    // It fails again before its return is confirmed.
    world.row(row(1, "NODE_DEAD", Truth::True, 9));
    world.take();
    world.confirm();
    world.pass(5);
    assert_eq!(world.take(), ["service node001 true"]);
}

#[test]
fn what_the_table_has_lost_is_stated_again_and_the_breaker_can_be_closed() {
    let mut world = World::new(vec![drain("dead", "NODE_DEAD"), exec("reset", "GPU")]);
    world.row(row(1, "NODE_DEAD", Truth::True, 5));
    world.pass(5);
    world.confirm();
    world.rules.breaker_hosts = 1;
    world.start();
    for number in 2..=3 {
        world.row(row(number, "GPU", Truth::True, 5));
    }
    world.pass(5);
    world.confirm();
    world.take();
    // The CA was changed: no kept condition is proven any more.
    let open = Subject::new("login1", "ftb-act", BREAKER_OPEN);
    let lose = |world: &mut World| {
        world.table.retain(|subject, _| ![OUT_OF_SERVICE, BREAKER_OPEN].contains(&subject.key()));
    };
    for is_started in [true, false] {
        lose(&mut world);
        match is_started {
            true => world.start(),
            false => world.input(Input::Table(world.table.values().cloned().collect())),
        }
        let mut done = world.take();
        done.retain(|line| !line.starts_with("log "));
        assert_eq!(done, ["service node001 true", "breaker 2 hosts within 600 s"]);
        // What is there is not stated again.
        world.confirm();
        world.input(Input::Table(world.table.values().cloned().collect()));
        assert_eq!(world.take(), [""; 0]);
    }
    // A cause that ends before that is confirmed returns the host after it.
    lose(&mut world);
    world.input(Input::Table(world.table.values().cloned().collect()));
    world.take();
    world.row(row(1, "NODE_DEAD", Truth::False, 5));
    assert_eq!(world.take(), [""; 0]);
    world.confirm();
    assert_eq!(world.take(), ["service node001 false"]);
    let closed = Row { truth: Truth::False, ..world.table.get(&open).unwrap().clone() };
    world.row(closed);
    assert!(!world.disk.breaker.is_open);
    let done = world.take();
    assert_eq!(done.iter().filter(|line| line.starts_with("run reset")).count(), 2, "{done:?}");
}

#[test]
fn a_person_may_return_a_host_and_a_rule_may_leave_it_to_a_person() {
    let by_person = rule("bad", "MEMERR", Then::Drain { is_persons: true });
    let mut world = World::new(vec![by_person]);
    world.row(row(1, "MEMERR", Truth::True, 5));
    world.pass(5);
    world.confirm();
    world.row(row(1, "MEMERR", Truth::False, 5));
    assert_eq!(world.take(), ["service node001 true"], "only a person ends it");
    let service = Subject::new(&node(1), "bad MEMERR", OUT_OF_SERVICE);
    let mut returned = world.table.get(&service).unwrap().clone();
    returned.truth = Truth::False;
    world.input(Input::Row(Box::new(Row { space: "site".to_owned(), ..returned.clone() })));
    assert_eq!(world.disk.orders.len(), 1, "another's statement returns no host");
    world.row(returned);
    assert!(world.disk.orders.is_empty() && world.take().is_empty());
}

#[test]
fn nothing_is_done_about_what_is_silenced_or_cleared_while_it_waits() {
    let notice = Rule { changes_hosts: false, ..exec("mail", "GPU") };
    let event = rule(
        "event",
        "GPU",
        Then::Publish {
            space: ftb_core::EventSpace::new("site").unwrap(),
            name: ftb_core::EventName::new("X").unwrap(),
            severity: Severity::Info,
        },
    );
    for waiting in [notice, event, page("page", "GPU"), drain("drain", "GPU")] {
        let mut world = World::new(vec![waiting]);
        world.row(row(1, "GPU", Truth::True, 5));
        world.row(row(2, "GPU", Truth::True, 5));
        world.row(row(2, "GPU", Truth::False, 5));
        let until_ns = world.now_ns + 100 * SECOND;
        world.row(silence("node[001-016]", until_ns));
        world.pass(50);
        assert_eq!(world.take(), [""; 0]);
        // Maintenance is over, and the fault holds.
        assert!(world.act.deadline_ns().unwrap() <= until_ns);
        world.pass(50);
        assert_eq!(world.take().len(), 1);
    }
}

#[test]
fn a_silence_that_begins_later_is_kept_and_holds_from_then_on() {
    let mut world = World::new(vec![exec("one", "GPU")]);
    let now_ns = world.now_ns;
    let mut later = silence("node[001-016]", now_ns + 1_000 * SECOND);
    later.silence.as_mut().unwrap().from_ns = now_ns + 100 * SECOND;
    world.row(later);
    // Another one ends: what has not begun must stay.
    let mut short = silence("node[001-016]", now_ns + 20 * SECOND);
    short.subject = Subject::new("login1", "b", SILENCED);
    world.row(short);
    world.row(row(1, "GPU", Truth::True, 5));
    world.pass(50);
    assert_eq!(world.take().len(), 1, "the short one is over, the later one has not begun");
    world.pass(100);
    world.row(row(2, "GPU", Truth::True, 6));
    world.pass(50);
    assert_eq!(world.take(), [""; 0]);
}

#[test]
fn a_host_has_one_live_action_and_other_hosts_do_not_wait_for_it() {
    let mut world = World::new(vec![exec("one", "GPU"), exec("two", "GPU"), drain("out", "GPU")]);
    world.row(row(1, "GPU", Truth::True, 5));
    world.row(row(2, "GPU", Truth::True, 5));
    world.pass(5);
    let mut hosts = Vec::new();
    for _ in 0..3 {
        let mut done = world.take();
        done.retain(|line| !line.starts_with("report"));
        assert_eq!(done.len(), 2, "one for each host: {done:?}");
        hosts.extend(done);
        world.end();
        world.confirm();
    }
    assert_eq!(hosts.iter().filter(|line| line.contains("node001")).count(), 3);
}

#[test]
fn programs_get_hosts_as_the_profiles_write_them() {
    let mut world = World::new(vec![exec("one", "GPU"), exec("two", "GPU"), drain("out", "BAD")]);
    let profile = (Hostlist::parse("Node[001-062]").unwrap(), Mode::Act);
    world.rules.profiles.insert(0, profile);
    world.start();
    world.row(row(1, "GPU", Truth::True, 5));
    let turn = world.act.handle(world.now_ns + 5 * SECOND, Input::Tick);
    let [Output::Run { work, .. }] = &turn.outputs[..] else {
        panic!("one at a time for a host: {:?}", turn.outputs);
    };
    assert_eq!((&work.order.host_list()[..], &work.order.group[..]), ("Node001", "Node001"));
    let json: serde_json::Value = serde_json::from_str(&crate::publish::json_of(work)).unwrap();
    assert_eq!(
        (&json["hosts"], &json["conditions"][0]["host"]),
        (&"Node001".into(), &"Node001".into())
    );
}

#[test]
fn profiles_say_what_may_be_done_to_a_host() {
    let mut world = World::new(vec![exec("reset", "GPU"), drain("out", "GPU")]);
    world.row(row(63, "GPU", Truth::True, 5));
    world.row(row(64, "GPU", Truth::True, 5));
    world.pass(5);
    let done = world.take();
    let wanted = [
        "log would exec for reset: node063",
        "log would drain for out: node064 GPU",
        "log would exec for reset: node064",
        "service node063 true",
    ];
    let mut sorted = done.clone();
    sorted.sort();
    let mut expected = wanted.map(str::to_owned);
    expected.sort();
    assert_eq!(sorted, expected);
}

#[test]
fn web_servers_that_do_not_answer_never_hold_up_a_drain() {
    let by_host = |n| Rule { group_by: GroupBy::Host, ..page(&format!("page{n}"), "GPU") };
    let mut all: Vec<Rule> = (0..20).map(by_host).collect();
    all.push(drain("dead", "NODE_DEAD"));
    let mut world = World::new(all);
    for number in 1..=60 {
        world.row(row(number, "GPU", Truth::True, 5));
    }
    world.pass(5);
    let live = world.take().iter().filter(|line| line.starts_with("post")).count();
    assert_eq!(live, limit(Kind::Webhook).live);
    world.row(row(61, "NODE_DEAD", Truth::True, 5));
    world.pass(5);
    assert_eq!(world.take(), ["service node061 true"]);
}

#[test]
fn a_lane_that_is_full_takes_no_more_and_says_so() {
    let mut lanes = Lanes::default();
    let most = limit(Kind::Webhook).waiting;
    let taken = (0..2 * most as u64).filter(|id| lanes.push(Kind::Webhook, *id)).count();
    assert_eq!(taken, most);
    assert!(lanes.push(Kind::Drain, 1), "each lane has its own limit");
}

#[test]
fn a_share_of_the_hosts_opens_the_breaker_and_drained_ones_count() {
    let mut world = World::new(vec![drain("dead", "NODE_DEAD")]);
    world.rules.breaker_percent = 4;
    world.start();
    // 2 of 63 are 3 percent, 3 are 5.
    for number in 1..=3 {
        world.row(row(number, "NODE_DEAD", Truth::True, 5));
        world.pass(1_000);
        world.confirm();
    }
    let done = world.take();
    assert_eq!(done.iter().filter(|line| line.starts_with("service")).count(), 2, "{done:?}");
    assert!(done.contains(&"breaker 3 of 63 hosts".to_owned()), "{done:?}");
}

/// Each change saves what has changed, not the whole state.
#[test]
fn one_change_among_100_000_conditions_is_cheap() {
    let mut world = World::new(vec![exec("reset", "GPU"), drain("dead", "NODE_DEAD")]);
    for number in 0..100_000 {
        let mut other = row(1, "SENSOR", Truth::True, 5);
        other.subject = Subject::new(&format!("n{number}"), "FAN 1", "SENSOR");
        world.table.insert(other.subject.clone(), other);
    }
    world.start();
    assert!(world.act.tracked.is_empty(), "no rule is about them");
    let turn = world.act.handle(world.now_ns, Input::Row(Box::new(row(1, "GPU", Truth::True, 5))));
    assert!(turn.deltas.is_empty() && turn.outputs.is_empty());
    let turn = world.act.handle(world.now_ns + 5 * SECOND, Input::Tick);
    assert_eq!((turn.deltas.len(), turn.outputs.len()), (1, 1));
}
