//! What `ftbctl top` shows: a state machine without terminal, agent and clock.
//!
//! It takes news of the cluster and keys of the user; [`super::view`] makes lines of it.

use crate::text;
use ftb_client::{ConditionState, Severity, Subject, Truth};
use ftb_core::hostlist;
use ftb_proto::v1::{AgentRole, MemberState, StatusReply, TreeReply};
use std::collections::{BTreeMap, VecDeque};

/// Most events that are kept; the oldest go.
pub(crate) const EVENTS_MAX: usize = 1_000;
/// Most characters of a search.
const SEARCH_CHARS_MAX: usize = 80;
/// Readings of the log's end that make the event rate.
const READINGS_MAX: usize = 10;
/// Rows of a page.
const PAGE: usize = 10;

/// What the cluster sends.
#[derive(Debug)]
pub(crate) enum News {
    /// The agents.
    Tree(TreeReply),
    /// The local agent.
    Status(Box<StatusReply>),
    /// All conditions.
    Table(Vec<ConditionState>),
    /// One that has changed.
    Condition(Box<ConditionState>),
    /// An event, or a gap.
    Event(Row),
    /// What does not work now; `None`: it works.
    Problem(NewsSource, Option<String>),
}

/// Where news come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum NewsSource {
    Agent,
    Conditions,
    Events,
}

/// A key of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    /// Ctrl-C.
    Interrupt,
}

/// A line of the newest events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// `None`: a gap.
    pub(crate) severity: Option<Severity>,
    pub(crate) time_ns: u64,
    pub(crate) host: String,
    pub(crate) name: String,
    pub(crate) details: String,
}

/// Hosts with the same condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) severity: Severity,
    pub(crate) is_unknown: bool,
    pub(crate) key: String,
    /// In order.
    pub(crate) hosts: Vec<String>,
    /// The hosts, folded.
    pub(crate) folded: String,
    /// The component, if it is the same on all hosts.
    pub(crate) component: Option<String>,
    /// Since when the oldest of them holds.
    pub(crate) onset_ns: u64,
}

/// The groups of conditions that hold or are unknown, which are in the order of their hosts.
fn groups<'a>(states: impl Iterator<Item = &'a ConditionState>) -> Vec<Group> {
    let mut groups: BTreeMap<(Severity, bool, &str), Group> = BTreeMap::new();
    for state in states {
        let is_unknown = state.truth == Truth::Unknown;
        let subject = &state.subject;
        let component = text::printable(subject.component());
        let group =
            groups.entry((state.severity, is_unknown, subject.key())).or_insert_with(|| Group {
                severity: state.severity,
                is_unknown,
                key: text::printable(subject.key()),
                hosts: Vec::new(),
                folded: String::new(),
                component: Some(component.clone()),
                onset_ns: state.onset_ns,
            });
        group.onset_ns = group.onset_ns.min(state.onset_ns);
        if group.component.as_ref() != Some(&component) {
            group.component = None;
        }
        let host = text::printable(subject.host());
        if group.hosts.last() != Some(&host) {
            group.hosts.push(host);
        }
    }
    let folded = |mut group: Group| {
        group.folded = hostlist::fold(group.hosts.iter().map(String::as_str));
        group
    };
    groups.into_values().map(folded).collect()
}

/// The agents, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agents {
    pub(crate) root: Option<String>,
    pub(crate) standby: Option<String>,
    /// Hosts by state, folded, with their number.
    pub(crate) states: BTreeMap<MemberState, (usize, String)>,
    /// The acting root has answered.
    pub(crate) is_complete: bool,
}

impl Agents {
    fn of(tree: &TreeReply) -> Self {
        let mut hosts: BTreeMap<MemberState, Vec<String>> = BTreeMap::new();
        for node in &tree.nodes {
            hosts.entry(node.state()).or_default().push(text::printable(&node.host));
        }
        let count = |(state, hosts): (MemberState, Vec<String>)| {
            (state, (hosts.len(), hostlist::fold(hosts.iter().map(String::as_str))))
        };
        let is_live = |state| matches!(state, MemberState::Up | MemberState::Suspect);
        let with_role = |role| {
            let mut live = tree.nodes.iter().filter(|node| is_live(node.state()));
            live.find(|node| node.role() == role).map(|node| text::printable(&node.host))
        };
        Self {
            root: with_role(AgentRole::Root),
            standby: with_role(AgentRole::Standby),
            states: hosts.into_iter().map(count).collect(),
            is_complete: tree.complete,
        }
    }
}

/// A reading of the log's end.
#[derive(Clone, Copy, Debug)]
struct Reading {
    epoch: (u64, u64),
    index: u64,
    at_ns: u64,
}

/// The order of the conditions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    #[default]
    Severity,
    Newest,
    Hosts,
}

impl Order {
    fn next(self) -> Self {
        match self {
            Self::Severity => Self::Newest,
            Self::Newest => Self::Hosts,
            Self::Hosts => Self::Severity,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Severity => "severity",
            Self::Newest => "newest",
            Self::Hosts => "hosts",
        }
    }
}

/// Which part the arrows move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pane {
    #[default]
    Conditions,
    Events,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Model {
    /// Cluster and host of the local agent.
    pub(crate) place: Option<(String, String)>,
    pub(crate) agents: Option<Agents>,
    /// The filter of the events, as the user gave it.
    pub(crate) filter: String,
    pub(crate) order: Order,
    pub(crate) pane: Pane,
    /// What is searched, in lower case; empty: nothing.
    pub(crate) search: String,
    /// The user types the search.
    pub(crate) is_typing: bool,
    problems: BTreeMap<NewsSource, String>,
    /// Those that hold or are unknown.
    states: BTreeMap<Subject, ConditionState>,
    groups: Vec<Group>,
    /// The groups are not those of the states.
    is_stale: bool,
    /// The newest is first.
    events: VecDeque<Row>,
    readings: VecDeque<Reading>,
    /// First rows that are shown.
    offsets: [usize; 2],
}

impl Model {
    pub(crate) fn new(filter: &str) -> Self {
        Self { filter: filter.to_owned(), ..Self::default() }
    }

    /// Takes news that came at this time.
    pub(crate) fn on_news(&mut self, now_ns: u64, news: News) {
        match news {
            News::Tree(tree) => self.agents = Some(Agents::of(&tree)),
            News::Status(status) => self.on_status(now_ns, &status),
            News::Table(states) => {
                self.states.clear();
                self.is_stale = true;
                states.into_iter().for_each(|state| self.state(state));
            }
            News::Condition(state) => self.state(*state),
            News::Event(row) => {
                self.events.push_front(row);
                self.events.truncate(EVENTS_MAX);
            }
            News::Problem(source, None) => drop(self.problems.remove(&source)),
            News::Problem(source, Some(problem)) => drop(self.problems.insert(source, problem)),
        }
    }

    fn state(&mut self, state: ConditionState) {
        self.is_stale = true;
        if state.truth == Truth::False || state.is_watch() {
            self.states.remove(&state.subject);
        } else {
            self.states.insert(state.subject.clone(), state);
        }
    }

    /// Groups the conditions and keeps the scrolled parts within their rows. To be called before a
    /// frame: thousands of conditions may change between two.
    pub(crate) fn refresh(&mut self) {
        if self.is_stale {
            self.groups = groups(self.states.values());
            self.is_stale = false;
        }
        self.bound_offsets();
    }

    fn on_status(&mut self, now_ns: u64, status: &StatusReply) {
        self.place = Some((text::printable(&status.cluster), text::printable(&status.host)));
        let epoch = (status.epoch, status.epoch_root);
        if self.readings.back().is_some_and(|last| last.epoch != epoch) {
            self.readings.clear();
        }
        self.readings.push_back(Reading { epoch, index: status.index, at_ns: now_ns });
        if self.readings.len() > READINGS_MAX {
            self.readings.pop_front();
        }
    }

    /// Takes a key; true: the user wants to leave.
    pub(crate) fn on_key(&mut self, key: Key) -> bool {
        if key == Key::Interrupt {
            return true;
        }
        if self.is_typing {
            self.on_typed(key);
        } else {
            match key {
                Key::Char('q') => return true,
                Key::Char('/') => self.is_typing = true,
                Key::Char('s') => self.order = self.order.next(),
                Key::Escape => self.search.clear(),
                Key::Tab => {
                    self.pane = match self.pane {
                        Pane::Conditions => Pane::Events,
                        Pane::Events => Pane::Conditions,
                    }
                }
                Key::Up => self.scroll(|offset| offset.saturating_sub(1)),
                Key::Down => self.scroll(|offset| offset + 1),
                Key::PageUp => self.scroll(|offset| offset.saturating_sub(PAGE)),
                Key::PageDown => self.scroll(|offset| offset + PAGE),
                Key::Home => self.scroll(|_| 0),
                Key::Char(_) | Key::Enter | Key::Backspace | Key::Interrupt => {}
            }
        }
        false
    }

    fn on_typed(&mut self, key: Key) {
        match key {
            Key::Enter => self.is_typing = false,
            Key::Escape => {
                self.is_typing = false;
                self.search.clear();
            }
            Key::Backspace => drop(self.search.pop()),
            Key::Char(c) if !c.is_control() && self.search.len() < SEARCH_CHARS_MAX => {
                self.search.extend(c.to_lowercase());
            }
            _ => {}
        }
    }

    fn scroll(&mut self, to: impl Fn(usize) -> usize) {
        let offset = &mut self.offsets[self.pane as usize];
        *offset = to(*offset);
    }

    fn bound_offsets(&mut self) {
        let rows = [self.groups().len(), self.events().len()];
        for (offset, rows) in self.offsets.iter_mut().zip(rows) {
            *offset = (*offset).min(rows.saturating_sub(1));
        }
    }

    /// The first row of a part that is shown.
    pub(crate) fn offset(&self, pane: Pane) -> usize {
        self.offsets[pane as usize]
    }

    /// What does not work now.
    pub(crate) fn problems(&self) -> impl Iterator<Item = &str> {
        self.problems.values().map(String::as_str)
    }

    /// Events of the whole cluster per second; `None`: unknown.
    pub(crate) fn rate(&self) -> Option<f64> {
        let (first, last) = (self.readings.front()?, self.readings.back()?);
        let seconds = last.at_ns.checked_sub(first.at_ns)? as f64 / 1e9;
        (seconds > 0.0).then(|| last.index.saturating_sub(first.index) as f64 / seconds)
    }

    /// How many hosts have a condition that holds, by severity; the worst first.
    pub(crate) fn counts(&self) -> Vec<(Severity, usize)> {
        let mut counts: BTreeMap<Severity, usize> = BTreeMap::new();
        for group in self.groups.iter().filter(|group| !group.is_unknown) {
            *counts.entry(group.severity).or_default() += group.hosts.len();
        }
        counts.into_iter().rev().collect()
    }

    fn finds(&self, texts: &[&str]) -> bool {
        let has = |text: &&str| text.to_lowercase().contains(&self.search);
        self.search.is_empty() || texts.iter().any(has)
    }

    /// The conditions that are searched, in order.
    pub(crate) fn groups(&self) -> Vec<&Group> {
        let is_found = |group: &&Group| {
            let texts = [&group.key, &group.folded, group.severity.as_str()];
            let texts = texts.map(|text: &str| text);
            let component = group.component.as_deref().unwrap_or_default();
            self.finds(&texts) || self.finds(&[component]) || {
                group.hosts.iter().any(|host| self.finds(&[host]))
            }
        };
        let mut found: Vec<&Group> = self.groups.iter().filter(is_found).collect();
        let worst_first = |one: &&Group, two: &&Group| {
            let rank = |group: &Group| (!group.is_unknown, group.severity);
            rank(two).cmp(&rank(one)).then_with(|| one.key.cmp(&two.key))
        };
        found.sort_by(|one, two| match self.order {
            Order::Severity => worst_first(one, two),
            Order::Newest => two.onset_ns.cmp(&one.onset_ns).then_with(|| worst_first(one, two)),
            Order::Hosts => one.hosts.cmp(&two.hosts).then_with(|| worst_first(one, two)),
        });
        found
    }

    /// The events that are searched, the newest first.
    pub(crate) fn events(&self) -> Vec<&Row> {
        let is_found = |row: &&Row| {
            let severity = row.severity.map_or("", Severity::as_str);
            self.finds(&[&row.host, &row.name, &row.details, severity])
        };
        self.events.iter().filter(is_found).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ftb_client::{EventId, PublisherId};
    use ftb_core::numbers::PublisherSeq;

    const SOURCE: EventId =
        EventId { publisher: PublisherId { account: 1, token: 1 }, seq: PublisherSeq::new(1) };

    /// A condition since this second.
    pub(crate) fn state(
        [host, component, key]: [&str; 3],
        severity: Severity,
        truth: Truth,
        onset_s: u64,
    ) -> ConditionState {
        let (subject, onset_ns) = (Subject::new(host, component, key), onset_s * 1_000_000_000);
        ConditionState::new(subject, truth, severity, SOURCE, onset_ns)
    }

    pub(crate) fn table() -> News {
        use Severity::{Error, Fatal, Info, Warning};
        News::Table(vec![
            state(["node02", "FAN 1", "FANFAIL"], Error, Truth::True, 20),
            state(["node01", "FAN 1", "FANFAIL"], Error, Truth::True, 10),
            state(["node03", "FAN 1", "FANFAIL"], Error, Truth::False, 10),
            state(["node03", "FAN 2", "FANFAIL"], Error, Truth::Unknown, 5),
            state(["node07", "", "NODE_DEAD"], Fatal, Truth::True, 15),
            state(["node01", "P1", "PORT_SLOW"], Warning, Truth::True, 30),
            state(["node02", "P2", "PORT_SLOW"], Warning, Truth::True, 31),
            state(["node01", "ftb.ipmi", "WATCHED"], Info, Truth::True, 1),
        ])
    }

    fn with_table() -> Model {
        let mut model = Model::new("");
        model.on_news(0, table());
        model.refresh();
        model
    }

    fn shown(model: &Model) -> Vec<String> {
        let word = |group: &Group| if group.is_unknown { "unknown " } else { "" };
        let line = |group: &&Group| format!("{}{} {}", word(group), group.key, group.folded);
        model.groups().iter().map(line).collect()
    }

    fn types(model: &mut Model, keys: &str) {
        keys.chars().for_each(|c| assert!(!model.on_key(Key::Char(c))));
    }

    fn row(number: usize) -> Row {
        Row {
            severity: Some(Severity::Error),
            time_ns: 0,
            host: format!("node{number}"),
            name: "FAN".to_owned(),
            details: String::new(),
        }
    }

    #[test]
    fn hosts_with_the_same_condition_are_one_group_and_the_worst_is_first() {
        let mut model = with_table();
        let by_severity = [
            "NODE_DEAD node07",
            "FANFAIL node[01-02]",
            "PORT_SLOW node[01-02]",
            "unknown FANFAIL node03",
        ];
        assert_eq!(shown(&model), by_severity);
        let fans = model.groups()[1].clone();
        assert_eq!((fans.onset_ns, fans.component.as_deref()), (10_000_000_000, Some("FAN 1")));
        assert_eq!(model.groups()[2].component, None, "P1 and P2");
        let counts = [(Severity::Fatal, 1), (Severity::Error, 2), (Severity::Warning, 2)];
        assert_eq!(model.counts(), counts);
        let cleared = state(["node02", "FAN 1", "FANFAIL"], Severity::Error, Truth::False, 20);
        model.on_news(0, News::Condition(Box::new(cleared)));
        model.refresh();
        assert_eq!(shown(&model)[1], "FANFAIL node01");
    }

    #[test]
    fn conditions_are_sorted_by_severity_age_or_hosts() {
        let mut model = with_table();
        types(&mut model, "s");
        assert_eq!(model.order, Order::Newest);
        assert_eq!(shown(&model)[0], "PORT_SLOW node[01-02]");
        types(&mut model, "s");
        assert_eq!(shown(&model)[3], "NODE_DEAD node07");
        types(&mut model, "s");
        assert_eq!(model.order, Order::Severity);
    }

    #[test]
    fn a_search_finds_hosts_within_host_lists_and_escape_ends_it() {
        let mut model = with_table();
        types(&mut model, "/NODE02q");
        assert!(shown(&model).is_empty() && model.is_typing, "q is a letter here");
        model.on_key(Key::Backspace);
        model.on_key(Key::Enter);
        assert_eq!(shown(&model), ["FANFAIL node[01-02]", "PORT_SLOW node[01-02]"]);
        model.on_key(Key::Escape);
        assert_eq!(shown(&model).len(), 4);
        types(&mut model, "/");
        types(&mut model, &"x".repeat(1_000));
        assert_eq!(model.search.len(), SEARCH_CHARS_MAX);
        assert!(model.on_key(Key::Interrupt), "Ctrl-C quits also while a search is typed");
    }

    #[test]
    fn rows_scroll_in_the_part_that_has_the_focus_and_never_away() {
        let mut model = with_table();
        for _ in 0..9 {
            model.on_key(Key::Down);
        }
        model.refresh();
        assert_eq!((model.offset(Pane::Conditions), model.offset(Pane::Events)), (3, 0));
        model.on_key(Key::Tab);
        (0..25).for_each(|number| model.on_news(0, News::Event(row(number))));
        model.on_key(Key::PageDown);
        model.refresh();
        assert_eq!((model.offset(Pane::Conditions), model.offset(Pane::Events)), (3, PAGE));
        model.on_key(Key::Home);
        assert_eq!(model.offset(Pane::Events), 0);
        assert!(model.on_key(Key::Char('q')));
    }

    #[test]
    fn only_the_newest_events_are_kept() {
        let mut model = Model::new("");
        (0..EVENTS_MAX + 5).for_each(|number| model.on_news(0, News::Event(row(number))));
        let events = model.events();
        assert_eq!((events.len(), &events[0].host[..]), (EVENTS_MAX, "node1004"));
    }

    #[test]
    fn the_rate_is_the_growth_of_the_log_within_one_epoch() {
        let mut model = Model::new("");
        let mut read = |second: u64, epoch: u64, index: u64| {
            let status = StatusReply { epoch, index, ..StatusReply::default() };
            model.on_news(second * 1_000_000_000, News::Status(Box::new(status)));
            model.rate()
        };
        assert_eq!(read(0, 1, 100), None);
        assert_eq!(read(2, 1, 300), Some(100.0));
        assert_eq!(read(3, 2, 900), None, "a new epoch says nothing about events");
        assert_eq!(read(4, 2, 905), Some(5.0));
        assert_eq!(read(4, 2, 905), Some(5.0));
    }

    #[test]
    fn a_problem_stands_until_it_is_over() {
        let mut model = Model::new("");
        model.on_news(0, News::Problem(NewsSource::Agent, Some("no agent".to_owned())));
        model.on_news(0, News::Problem(NewsSource::Events, None));
        assert_eq!(model.problems().collect::<Vec<_>>(), ["no agent"]);
        model.on_news(0, News::Problem(NewsSource::Agent, None));
        assert_eq!(model.problems().count(), 0);
    }
}
