//! Renders `effects.md`: the effect of each fault under the built-in policy, found by trying
//! every event in every reachable state.
//!
//! It observes one node of four. Time passes in two steps: until an action settles, and beyond
//! every window and hold-down.

#![allow(clippy::unwrap_used)]

use crate::policy::*;
use ftb_core::{Event, EventName, EventSpace};
use std::fmt::Write as _;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/policy/effects.md");
/// Beyond the hold-down and every window of the built-in rules, within the window of the breaker.
const LONG: u64 = 360_000_000_000;

const HOT: &str = "FTB_IPMI_OVERTEMP";
const ROOM: &str = "FTB_IPMI_OVERTEMP, on three nodes of four";
const FAN: &str = "FTB_IPMI_FANFAIL";
const NORMAL: &str = "FTB_IPMI_NORMAL";
const PORT: &str = "FTB_IB_PORT_ERR";
const DEAD: &str = "FTB_NODE_DEAD";
const SETTLED: &str = "it has settled";
const LATER: &str = "a long time";
const QUIET: &str = "half an hour";
const RESET: &str = "`policy reset`";
const DRAIN: &str = "`drain`, then `usable`";

fn node(number: u32) -> NodeName {
    NodeName::new(&format!("node{number:02}")).unwrap()
}

#[derive(Clone)]
struct PolicyWorld {
    policy: Policy,
    now_ns: u64,
}

impl PolicyWorld {
    fn now(&self) -> Now {
        Now { mono_ns: self.now_ns, wall_ns: 0 }
    }

    /// The actions; `None`: impossible now.
    fn happens(&mut self, what: &str) -> Option<Vec<Action>> {
        let facts = Facts { nodes: (1..=4).map(node).collect(), owner: 0 };
        self.now_ns += 1;
        let (name, crowd) = what.split_once(", on").map_or((what, false), |(name, _)| (name, true));
        let space = match name.get(..7) {
            Some("FTB_IPM") => "ftb.ipmi",
            Some("FTB_IB_") => "ftb.ib",
            _ => "ftb.agent",
        };
        match what {
            SETTLED => {
                let at = self.policy.next_deadline_ns();
                self.now_ns = self.now_ns.max(at);
                (at < u64::MAX).then(|| self.policy.tick(self.now(), &facts))
            }
            LATER => {
                self.now_ns += LONG;
                Some(self.policy.tick(self.now(), &facts))
            }
            QUIET => {
                self.now_ns += 1_800_000_000_000;
                Some(self.policy.tick(self.now(), &facts))
            }
            RESET => {
                self.policy.reset();
                Some(Vec::new())
            }
            DRAIN => {
                match self.policy.orders.is_drained(&node(1)) {
                    true => self.policy.usable(self.now(), &node(1)),
                    false => self.policy.drain(&node(1)),
                }
                Some(Vec::new())
            }
            _ => {
                let event =
                    Event::new(EventSpace::new(space).unwrap(), EventName::new(name).unwrap());
                let report = Report::new(event, "poller");
                let mut all = Vec::new();
                for number in 1..=if crowd { 3 } else { 1 } {
                    all.extend(self.policy.event(self.now(), &report, &node(number), &facts));
                }
                Some(all)
            }
        }
    }

    /// How the node stands.
    fn state(&self) -> String {
        let policy = &self.policy;
        let mut words = Vec::new();
        if policy.is_open() {
            words.push("breaker open".to_owned());
        }
        if policy.orders.is_drained(&node(1)) {
            words.push("drained".to_owned());
        }
        if policy.conditions.out(&node(1)).is_some() {
            let is_timed = policy.quiet_since.keys().any(|(of, _)| *of == node(1));
            let words_of = if is_timed { "not usable while its port fails" } else { "not usable" };
            words.push(words_of.to_owned());
        }
        if policy.settling.iter().any(|settling| settling.node == node(1)) {
            words.push("settling".to_owned());
        }
        let hold = rules::nanos(policy.config.hold_down);
        let is_recent = |at: u64| self.now_ns < at.saturating_add(hold);
        if policy.held.get(&node(1)).is_some_and(|at| is_recent(*at)) {
            words.push("left alone".to_owned());
        }
        if policy.acted.values().any(|at| is_recent(*at)) && words.is_empty() {
            words.push("the job was saved".to_owned());
        }
        for (rule, seen) in policy.config.rule.iter().zip(&policy.seen) {
            let since = i128::from(self.now_ns) - i128::from(rules::nanos(rule.within));
            let times = seen.iter().filter(|(at, of)| *at >= since && *of == node(1)).count();
            if rule.count > 1 && times > 0 {
                words.push(format!("counted {} of {}", times.min(rule.count as usize), rule.count));
            }
        }
        if words.is_empty() { "quiet".to_owned() } else { words.join(", ") }
    }
}

fn done(actions: &[Action]) -> String {
    let words: BTreeSet<String> = actions
        .iter()
        .map(|action| match action {
            Action::Notify(words) if words.contains("unless it passes") => "reported".to_owned(),
            Action::Cancel { .. } => "queued actions on single nodes are cancelled".to_owned(),
            Action::Notify(words) if words.contains("would") => "only reported".to_owned(),
            Action::Notify(_) => String::new(),
            Action::Unusable { .. } => "it gets no ranks".to_owned(),
            Action::Sooner { .. } => "its migration goes first".to_owned(),
            Action::Gone { .. } => "the node counts as lost".to_owned(),
            Action::Request { want: Request::Migrate { .. }, .. } => "migrate".to_owned(),
            Action::Request { want: Request::Drain { .. }, .. } => "drain".to_owned(),
            Action::Request {
                want:
                    Request::Checkpoint { .. }
                    | Request::MemoryCheckpoint { .. }
                    | Request::DiskCheckpoint { .. },
                ..
            } => "save the job".to_owned(),
            Action::Request { want: Request::Usable { .. }, .. } => {
                "the node may be used".to_owned()
            }
            Action::Request { want: Request::Kill { .. }, .. } => "end the job".to_owned(),
        })
        .filter(|word| !word.is_empty())
        .collect();
    words.into_iter().collect::<Vec<_>>().join(", ")
}

/// Rows of the table in the order of the states; inputs without effect have none.
fn explore(text: &str, all: &[&str]) -> BTreeSet<String> {
    let first = PolicyWorld { policy: Policy::parse(text).unwrap(), now_ns: LONG };
    let mut seen = BTreeSet::from([first.state()]);
    let mut todo = VecDeque::from([first]);
    let mut rows = BTreeSet::new();
    while let Some(world) = todo.pop_front() {
        for what in all {
            let mut next = world.clone();
            let Some(actions) = next.happens(what) else { continue };
            let (before, after, done) = (world.state(), next.state(), done(&actions));
            if before != after || !done.is_empty() {
                rows.insert(format!("| {before} | {what} | {done} | {after} |"));
            }
            if seen.insert(after) {
                todo.push_back(next);
            }
        }
        assert!(seen.len() < 200, "{seen:?}");
    }
    rows
}

#[test]
fn the_docs_show_what_becomes_of_a_fault() {
    let shadow = DEFAULT.replace("shadow = false", "shadow = true");
    let weary = DEFAULT.replace("actions = 8", "actions = 1");
    assert!(shadow != DEFAULT && weary != DEFAULT);
    let mut page = String::from(
        "# What becomes of a fault\n\n\
         A test tries every event of a topic in every reachable state and renders this page\n\
         (`launcher/core/src/policy/tests/table.rs`;\n\
         `FTB_BLESS=1 cargo test -p ftb-launcher-core --lib policy` writes it).\n\
         It observes one node of four under the built-in policy,\n\
         `deploy/config/policy.toml`. *Settling*: a rule waits for its settle time, or for the\n\
         end of the hold-down. *Left alone*: an action on the node was taken within the\n\
         hold-down. Events without a row do nothing.\n",
    );
    let topics: [(&str, &str, &[&str]); 6] = [
        ("Heat: debounce, and the larger picture", DEFAULT, &[HOT, ROOM, NORMAL, SETTLED]),
        ("A fan, a dead node: hold-down", DEFAULT, &[FAN, NORMAL, DEAD, LATER]),
        ("InfiniBand: counting", DEFAULT, &[PORT, NORMAL, LATER, QUIET]),
        ("A node that a person has taken out", DEFAULT, &[DRAIN, NORMAL]),
        ("The circuit breaker, with `actions = 1`", &weary, &[FAN, HOT, SETTLED, LATER, RESET]),
        ("With `shadow = true`", &shadow, &[FAN, ROOM, NORMAL, LATER]),
    ];
    for (title, text, all) in topics {
        let _ = write!(
            page,
            "\n## {title}\n\n| the node is | what comes | what is done | then it is |\n"
        );
        page += "|---|---|---|---|\n";
        for row in explore(text, all) {
            page += &row;
            page.push('\n');
        }
    }
    ftb_fuzz::kept::assert_file_is_current(PAGE, page);
}
