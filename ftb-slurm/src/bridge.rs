//! The decisions of the bridge: which nodes are drained and resumed, and what is published.
//!
//! A state machine without I/O and clock. Its shell reads all nodes of Slurm right before each
//! call and carries out at most one order for what it read ([`Bridge::on_nodes`]). Before that it
//! reads the chosen nodes once more ([`Bridge::recheck`]): Slurm has no command that changes a node
//! only if its reason is still the same.
//!
//! Rules:
//! - **Owned**: a drain is the bridge's if its user, or root (`ftb-slurm health` on the node), has
//!   set it and the reason is exactly that of a condition that was stated about the node.
//! - A node with another reason is never changed.
//! - A node is resumed when the condition of its reason is false and no other holds or is unknown.
//! - A person who resumes a node that the bridge has drained is right until its conditions change.
//! - The bridge drains at most a share of all nodes.
//! - While a condition is silenced it neither drains nor resumes.
//! - An order that Slurm refuses is halved, until the hosts that it is refused for are set aside
//!   for the rest of the pass: they hold up no other.

#[cfg(test)]
mod tests;

use crate::reason::reason_of;
use crate::rules::{Rules, Statement, Verdict};
use ftb_client::Silence;
use ftb_core::Severity;
use ftb_core::condition::{Subject, Truth, WATCHED};
use std::collections::{BTreeMap, BTreeSet};

/// The user of a drain that `ftb-slurm health` has set on the node.
const ROOT: &str = "root";
/// Most orders of a plan.
const PLAN_MAX: usize = 64;
/// Most conditions in spite of which people have resumed hosts; the oldest are forgotten.
pub const ACCEPTED_MAX: usize = 65_536;

/// A node as Slurm shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// It gets no new jobs.
    pub is_drained: bool,
    /// It does not answer, or a person took it down.
    pub is_down: bool,
    /// A person has said that it fails, is to be rebooted, or is in maintenance.
    pub is_marked: bool,
    /// Why; empty: no reason.
    pub reason: String,
    /// The user that set the reason.
    pub user: String,
}

impl Node {
    /// Whether an order for the one is an order for the other.
    fn is_as(&self, other: &Self) -> bool {
        let is_same_user = self.reason.is_empty() || self.user == other.user;
        self.is_drained == other.is_drained && self.reason == other.reason && is_same_user
    }
}

/// One call of `scontrol`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Drain the hosts.
    Drain {
        /// In order.
        hosts: Vec<String>,
        /// The reason of all of them.
        reason: String,
    },
    /// End the drain of the hosts.
    Undrain {
        /// In order.
        hosts: Vec<String>,
    },
}

impl Order {
    /// Its hosts, in order.
    pub fn hosts(&self) -> &[String] {
        match self {
            Self::Drain { hosts, .. } | Self::Undrain { hosts } => hosts,
        }
    }

    /// The state of the call of `scontrol`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Drain { .. } => "drain",
            Self::Undrain { .. } => "undrain",
        }
    }

    fn hosts_mut(&mut self) -> &mut Vec<String> {
        match self {
            Self::Drain { hosts, .. } | Self::Undrain { hosts } => hosts,
        }
    }

    /// The nodes as they are when the order of this user is carried out.
    fn apply(&self, nodes: &mut [Node], by: &str) {
        let hosts: BTreeSet<&str> = self.hosts().iter().map(String::as_str).collect();
        for node in nodes.iter_mut().filter(|node| hosts.contains(node.name.as_str())) {
            let (reason, user) = match self {
                Self::Drain { reason, .. } => (reason.as_str(), by),
                Self::Undrain { .. } => ("", ""),
            };
            node.is_drained = matches!(self, Self::Drain { .. });
            (node.reason, node.user) = (reason.to_owned(), user.to_owned());
        }
    }
}

/// A change that is published. Hosts are in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Nodes are drained now, or for another reason.
    Drained {
        /// The nodes.
        hosts: Vec<String>,
        /// Why.
        reason: String,
        /// The user that drained them.
        user: String,
    },
    /// Nodes are drained no more.
    Resumed {
        /// The nodes.
        hosts: Vec<String>,
    },
    /// Nodes are down now.
    Down {
        /// The nodes.
        hosts: Vec<String>,
        /// Why.
        reason: String,
    },
    /// Nodes are down no more.
    Up {
        /// The nodes.
        hosts: Vec<String>,
    },
    /// Nodes should be drained, but too many are.
    Limited {
        /// The nodes.
        hosts: Vec<String>,
    },
}

/// What follows from a reading of all nodes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// What is published.
    pub notices: Vec<Notice>,
    /// The next call. After it the nodes are read again.
    pub order: Option<Order>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Bridge {
    rules: Rules,
    /// The user as which the bridge calls Slurm.
    user: String,
    statements: BTreeMap<String, BTreeMap<Subject, Statement>>,
    /// Those that are active.
    silences: Vec<Silence>,
    /// The last reading; `None` before the first.
    nodes: Option<BTreeMap<String, Node>>,
    /// Hosts that the last call has drained: drained when it returned, whatever is read after it.
    just_drained: BTreeSet<String>,
    /// Hosts of the last order to end a drain.
    undraining: BTreeSet<String>,
    /// Conditions, with their onsets, in spite of which a person has resumed the host.
    accepted: BTreeMap<Subject, u64>,
    /// Hosts of the last [`Notice::Limited`].
    limited: Vec<String>,
    /// Hosts that Slurm has refused to change in this pass.
    aside: BTreeSet<String>,
    /// The same of the pass before: their turn comes last, so that many of them hold up no other.
    late: BTreeSet<String>,
    /// Most hosts of an order, after one was refused in this pass.
    hosts_max: usize,
}

impl Bridge {
    /// A bridge that calls Slurm as this user.
    pub fn new(rules: Rules, user: String) -> Self {
        Self {
            rules,
            user,
            statements: BTreeMap::new(),
            silences: Vec::new(),
            nodes: None,
            just_drained: BTreeSet::new(),
            undraining: BTreeSet::new(),
            accepted: BTreeMap::new(),
            limited: Vec::new(),
            aside: BTreeSet::new(),
            late: BTreeSet::new(),
            hosts_max: usize::MAX,
        }
    }

    /// Conditions, with their onsets, in spite of which people have resumed hosts: the only state
    /// that the next life of the bridge needs.
    pub fn accepted(&self) -> &BTreeMap<Subject, u64> {
        &self.accepted
    }

    /// What people had resumed in a former life: before the first input.
    pub fn set_accepted(&mut self, accepted: BTreeMap<Subject, u64>) {
        self.accepted = accepted;
    }

    /// A pass begins: what Slurm has refused is tried again.
    pub fn on_pass(&mut self) {
        self.late = std::mem::take(&mut self.aside);
        self.hosts_max = usize::MAX;
    }

    /// The whole table of conditions was read.
    pub fn on_table(&mut self, table: impl IntoIterator<Item = (Subject, Statement)>) {
        self.statements.clear();
        for (subject, statement) in table {
            self.on_statement(subject, statement);
        }
    }

    /// A condition has changed.
    pub fn on_statement(&mut self, subject: Subject, statement: Statement) {
        if subject.key() == WATCHED {
            return;
        }
        if statement.truth == Truth::False {
            self.accepted.remove(&subject);
        }
        self.statements.entry(subject.host().to_owned()).or_default().insert(subject, statement);
    }

    /// The silences that are active now.
    pub fn on_silences(&mut self, silences: Vec<Silence>) {
        self.silences = silences;
    }

    fn is_silenced(&self, subject: &Subject) -> bool {
        self.silences.iter().any(|silence| silence.covers(subject))
    }

    /// All orders that would follow one another on these nodes, if each were carried out at once;
    /// 64 at most. Nothing changes.
    pub fn plan(&self, mut nodes: Vec<Node>) -> Vec<Order> {
        let (mut copy, mut orders) = (self.clone(), Vec::new());
        while let Some(order) = copy.on_nodes(nodes.clone()).order {
            order.apply(&mut nodes, &self.user);
            copy.on_obeyed(order.clone());
            orders.push(order);
            if orders.len() >= PLAN_MAX {
                break;
            }
        }
        orders
    }

    /// All nodes were read: what changed since the last reading, and the next call.
    pub fn on_nodes(&mut self, nodes: impl IntoIterator<Item = Node>) -> Decision {
        let nodes: BTreeMap<_, _> = nodes.into_iter().map(|n| (n.name.clone(), n)).collect();
        let mut notices = Vec::new();
        if let Some(before) = self.nodes.take() {
            notices = changes(&before, &nodes);
            self.accept_resumed(&before, &nodes);
        }
        self.just_drained.clear();
        let mut order = self.undrain(&nodes).or_else(|| self.drain(&nodes, &mut notices));
        if let Some(order) = &mut order {
            order.hosts_mut().truncate(self.hosts_max);
        }
        self.expect(order.as_ref());
        self.nodes = Some(nodes);
        Decision { notices, order }
    }

    /// Which drains the next call ends: a person does not.
    fn expect(&mut self, order: Option<&Order>) {
        self.undraining = match order {
            Some(Order::Undrain { hosts }) => hosts.iter().cloned().collect(),
            _ => BTreeSet::new(),
        };
    }

    /// The hosts of an order were read again right before the call: leaves those that are as they
    /// were in the last reading, and sets the others aside for this pass. `None`: none is left.
    pub fn recheck(
        &mut self,
        mut order: Order,
        nodes: impl IntoIterator<Item = Node>,
    ) -> Option<Order> {
        let again: BTreeMap<_, _> = nodes.into_iter().map(|n| (n.name.clone(), n)).collect();
        let before = self.nodes.as_ref();
        let is_same = |host: &String| {
            let before = before.and_then(|nodes| nodes.get(host));
            before.zip(again.get(host)).is_some_and(|(before, node)| node.is_as(before))
        };
        let hosts = std::mem::take(order.hosts_mut()).into_iter();
        let (same, changed): (Vec<String>, Vec<String>) = hosts.partition(is_same);
        *order.hosts_mut() = same;
        self.aside.extend(changed);
        let order = Some(order).filter(|order| !order.hosts().is_empty());
        self.expect(order.as_ref());
        order
    }

    /// Slurm has carried out an order.
    pub fn on_obeyed(&mut self, order: Order) {
        self.hosts_max = self.hosts_max.saturating_mul(2);
        if let Order::Drain { hosts, .. } = order {
            self.just_drained.extend(hosts);
        }
    }

    /// Slurm has refused an order: the next ones are smaller, until it is known for which host.
    pub fn on_refused(&mut self, order: &Order) {
        match order.hosts() {
            [host] => {
                self.aside.insert(host.clone());
            }
            hosts => self.hosts_max = (hosts.len() / 2).max(1),
        }
    }

    /// The conditions of a host that drain it, or would if they were known.
    fn counted(&self, host: &str) -> impl Iterator<Item = (&Subject, &Statement)> {
        let of_host = self.statements.get(&host.to_ascii_lowercase());
        of_host
            .into_iter()
            .flatten()
            .filter(|(subject, statement)| self.rules.counts(subject.key(), statement.severity))
    }

    /// The worst condition that must drain a host.
    fn wanted(&self, host: &str) -> Option<(Severity, String)> {
        let stated = self.statements.get(&host.to_ascii_lowercase());
        let stated = stated.into_iter().flatten().filter(|(subject, statement)| {
            self.accepted.get(*subject) != Some(&statement.onset_ns)
        });
        let stated = stated.map(|(subject, known)| (subject, known.truth, known.severity));
        match self.rules.verdict(&self.silences, stated) {
            Verdict::Unfit(severity, subject) => Some((severity, reason_of(subject))),
            Verdict::Sound | Verdict::Unknown(_) => None,
        }
    }

    /// The condition by whose reason the bridge owns the reason of a node.
    fn owned<'a>(&'a self, node: &'a Node) -> Option<(&'a Subject, &'a Statement)> {
        let stated = self.statements.get(&node.name.to_ascii_lowercase())?;
        let mut stated = stated.iter().filter(|_| node.user == self.user || node.user == ROOT);
        stated.find(|(subject, _)| reason_of(subject) == node.reason)
    }

    /// Nodes that a person has resumed: their conditions drain them no more.
    fn accept_resumed(&mut self, before: &BTreeMap<String, Node>, nodes: &BTreeMap<String, Node>) {
        for (name, node) in nodes {
            let was_drained = before
                .get(name)
                .is_some_and(|before| before.is_drained && self.owned(before).is_some());
            let was_ours = was_drained || self.just_drained.contains(name);
            if !was_ours || node.is_drained || self.undraining.contains(name) {
                continue;
            }
            let holds: Vec<_> = self
                .counted(name)
                .filter(|(_, statement)| statement.truth == Truth::True)
                .map(|(subject, statement)| (subject.clone(), statement.onset_ns))
                .collect();
            self.accepted.extend(holds);
        }
        while self.accepted.len() > ACCEPTED_MAX {
            let oldest = self.accepted.iter().min_by_key(|(_, onset_ns)| **onset_ns);
            let Some(oldest) = oldest.map(|(subject, _)| subject.clone()) else { break };
            self.accepted.remove(&oldest);
        }
    }

    fn undrain(&self, nodes: &BTreeMap<String, Node>) -> Option<Order> {
        let is_over = |node: &&Node| {
            let ours = node.is_drained
                && self.owned(node).is_some_and(|(subject, statement)| {
                    statement.truth == Truth::False && !self.is_silenced(subject)
                });
            let is_tried = !self.aside.contains(&node.name);
            let mut counted = self.counted(&node.name);
            ours && is_tried && counted.all(|(_, statement)| statement.truth == Truth::False)
        };
        let over = nodes.values().filter(is_over).map(|node| node.name.clone());
        let (late, hosts): (Vec<_>, Vec<_>) = over.partition(|host| self.late.contains(host));
        let hosts = if hosts.is_empty() { late } else { hosts };
        (!hosts.is_empty()).then_some(Order::Undrain { hosts })
    }

    fn drain(
        &mut self,
        nodes: &BTreeMap<String, Node>,
        notices: &mut Vec<Notice>,
    ) -> Option<Order> {
        let is_ours = |node: &&Node| node.is_drained && self.owned(node).is_some();
        let drained = nodes.values().filter(is_ours).count();
        let percent = self.rules.drained_percent_max as usize;
        let mut room = (nodes.len() * percent / 100).max(1).saturating_sub(drained);
        let tried = nodes.values().filter(|node| !self.aside.contains(&node.name));
        let mut wanted: Vec<_> = tried.filter_map(|node| self.next_reason(node)).collect();
        let is_late = |host: &String| self.late.contains(host);
        wanted.sort_by(|one, other| {
            let lateness = is_late(&one.2.name).cmp(&is_late(&other.2.name));
            lateness.then(other.0.cmp(&one.0)).then(one.1.cmp(&other.1))
        });
        let (mut chosen, mut limited) = (Vec::new(), Vec::new());
        for (_, reason, node) in wanted {
            // Another reason for a drain needs no room.
            if node.is_drained || room > 0 {
                room -= usize::from(!node.is_drained);
                chosen.push((reason, node.name.clone()));
            } else {
                limited.push(node.name.clone());
            }
        }
        limited.sort();
        if limited != self.limited {
            if !limited.is_empty() {
                notices.push(Notice::Limited { hosts: limited.clone() });
            }
            self.limited = limited;
        }
        // One call for all nodes with the reason of the first; the others follow.
        let (reason, first) = chosen.first()?.clone();
        let is_same = |(other, host): &(String, String)| {
            *other == reason && self.late.contains(host) == self.late.contains(&first)
        };
        let same = chosen.into_iter().filter(is_same);
        let mut hosts: Vec<_> = same.map(|(_, host)| host).collect();
        hosts.sort();
        Some(Order::Drain { hosts, reason })
    }

    /// Severity and reason with which a node must be drained now.
    fn next_reason<'a>(&self, node: &'a Node) -> Option<(Severity, String, &'a Node)> {
        let owned = self.owned(node);
        let is_free = node.reason.is_empty() || owned.is_some();
        // The condition of its reason may still hold.
        let is_done = node.is_drained && owned.is_none_or(|(_, s)| s.truth != Truth::False);
        let (severity, reason) = self.wanted(&node.name).filter(|_| is_free && !is_done)?;
        Some((severity, reason, node))
    }
}

/// What is published of two readings.
fn changes(before: &BTreeMap<String, Node>, nodes: &BTreeMap<String, Node>) -> Vec<Notice> {
    let mut drained: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let mut down: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut resumed, mut up) = (Vec::new(), Vec::new());
    for (name, node) in nodes {
        let Some(before) = before.get(name) else { continue };
        let is_same = before.reason == node.reason && before.user == node.user;
        match (before.is_drained, node.is_drained) {
            (false, false) => {}
            (true, false) => resumed.push(name.clone()),
            (true, true) if is_same => {}
            (_, true) => {
                let why = (node.reason.clone(), node.user.clone());
                drained.entry(why).or_default().push(name.clone());
            }
        }
        match (before.is_down, node.is_down) {
            (false, true) => down.entry(node.reason.clone()).or_default().push(name.clone()),
            (true, false) => up.push(name.clone()),
            _ => {}
        }
    }
    let drained =
        drained.into_iter().map(|((reason, user), hosts)| Notice::Drained { hosts, reason, user });
    let down = down.into_iter().map(|(reason, hosts)| Notice::Down { hosts, reason });
    let resumed = (!resumed.is_empty()).then_some(Notice::Resumed { hosts: resumed });
    let up = (!up.is_empty()).then_some(Notice::Up { hosts: up });
    drained.chain(resumed).chain(down).chain(up).collect()
}
