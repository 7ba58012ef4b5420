//! Conditions: what publishers state, and what the tables of the agents and readers say.

use super::{Host, World};
use crate::clients::{Violation, broken};
use crate::events::KEY;
use ftb_core::condition::pairs::{ConditionPairs, PairEvent};
use ftb_core::condition::{AGENT_SPACE, Condition, Provenance, Subject, Truth, WATCHED};
use ftb_core::log::conditions::{ConditionRow, ConditionTable};
use ftb_core::node::Node;
use ftb_core::node::api::Announcement;
use ftb_core::sealed::{ConditionHead, Head, Sealed};
use ftb_core::severity::Severity;

/// In this time a statement that was made, or brought to another root, is in the table: an outage
/// of a disk, the spread of repetitions, and the way up.
const SETTLED_NS: u64 = 20_000_000_000;

/// How often it is looked for half a second in which nothing is stated.
const QUIET_TRIES_MAX: u32 = 60;

impl World {
    /// A statement as the agent of its publisher seals it.
    pub(super) fn owned_by(&self, agent: usize, stated: &Sealed) -> Sealed {
        let mut head = *stated.head();
        if let Some(condition) = &mut head.condition {
            let mut provenance = condition.provenance;
            provenance.owner = self.agents[agent].origin;
            *condition = ConditionHead { provenance, ..*condition };
        }
        Sealed::new(Head { ..head }, stated.bytes().clone()).unwrap()
    }

    /// What an announcement of an agent states, explicitly or by its name.
    pub(super) fn stated_by(
        &self,
        agent: usize,
        announcement: &Announcement,
    ) -> Option<(Condition, Provenance)> {
        if announcement.condition.is_some() || !self.setup.conditions {
            return announcement.condition.clone();
        }
        let tags = &announcement.tags;
        let tag = |key: &str| tags.iter().find(|(k, _)| *k == key).map(|(_, value)| &value[..]);
        let (space, name, payload) = (AGENT_SPACE, announcement.name, &[][..]);
        let event = PairEvent { space, name, payload, tag };
        let condition = ConditionPairs::built_in().resolve(&event)?;
        let provenance = Provenance::direct(self.agents[agent].origin);
        Some((condition, Provenance { is_paired: true, ..provenance }))
    }

    /// Whether a full table may have given up what an agent's publisher states: no watch makes its
    /// host look healthy.
    fn may_lack(&self, table: &ConditionTable, agent: usize, stated: &Sealed) -> bool {
        let watch = table.get(&Subject::new(&format!("node{agent}"), AGENT_SPACE, WATCHED));
        let is_watched = watch.is_some_and(|watch| watch.truth == Truth::True);
        let is_bad = stated.head().severity >= Severity::Warning;
        self.setup.condition_rows.is_some()
            && row(table, agent).is_none()
            && table.dropped() > 0
            && !(is_watched && is_bad)
    }

    fn root_of(&self, agent: usize) -> Option<(usize, &Node)> {
        let mut at = agent;
        loop {
            let state = self.agents.get(at)?;
            let node = state.node.as_ref().filter(|_| !state.paused && state.host == Host::Up)?;
            match node.parent_rank() {
                Some(parent) => at = parent.0 as usize,
                None if node.is_root() => return Some((at, node)),
                None => return None,
            }
        }
    }

    /// *ConditionsBounded*, at each step of an agent; *NeverFalselyClear* at a root.
    pub(super) fn check_conditions(&mut self, agent: usize) -> Result<(), Violation> {
        let Some(node) = &self.agents[agent].node else { return Ok(()) };
        let table = node.conditions();
        if table.len() > table.limits().rows || table.bytes() > table.limits().bytes {
            let what = format!("agent {agent} has {} rows, {} bytes", table.len(), table.bytes());
            return broken("ConditionsBounded", what);
        }
        if !node.is_root() {
            return Ok(());
        }
        let now_ns = self.now_ns;
        for at in 0..self.publishers.len() {
            let root = self.root_of(self.publishers[at].agent).map(|(root, _)| root);
            let place = root.map(|root| (root, self.agents[root].life));
            let publisher = &mut self.publishers[at];
            let since = publisher.below.filter(|(r, l, _)| Some((*r, *l)) == place);
            publisher.below =
                place.map(|(r, l)| (r, l, since.map_or(now_ns, |(_, _, since_ns)| since_ns)));
            let publisher = &self.publishers[at];
            let (Some((root, _, since_ns)), Some((stated, stated_ns))) =
                (publisher.below, &publisher.stated)
            else {
                continue;
            };
            let settled = since_ns.max(*stated_ns).saturating_add(SETTLED_NS) < now_ns;
            let holds = truth_of(stated) == Some(Truth::True);
            if root != agent || !settled || !holds || publisher.paused {
                continue;
            }
            let Some(node) = &self.agents[agent].node else { continue };
            let found = row(node.conditions(), publisher.agent);
            if !matches!(found, Some(Truth::True | Truth::Unknown))
                && !self.may_lack(node.conditions(), publisher.agent, stated)
            {
                let what = format!(
                    "root {agent} says {found:?} of agent {}, which has stated {} for {} ms",
                    publisher.agent,
                    stated.id(),
                    (now_ns - stated_ns) / 1_000_000
                );
                return broken("NeverFalselyClear", what);
            }
        }
        Ok(())
    }

    /// *ConditionsConverge*: acting root, standby and readers at each agent have the same table,
    /// and it says what the publishers have stated last.
    pub fn check_converged(&mut self) -> Result<(), Violation> {
        if self.setup.condition_rows.is_some() {
            return self.check_copy();
        }
        for agent in 0..self.agents.len() {
            self.read_conditions(agent, "condition=*")?;
        }
        self.run_ms(5_000)?;
        self.check_copy()?;
        let Some((root, node)) = self.root_of(self.agents.len() - 1) else {
            return broken("ConditionsConverge", "there is no root".to_owned());
        };
        self.check_readers(root, node)?;
        self.check_staters(root, node)?;
        // All agents are back: what others have found out about them is over.
        for agent in 0..self.agents.len() {
            for key in ["NODE_DEAD", "AGENT_LOST", "NODE_UNREACHABLE"] {
                let subject = Subject::new(&format!("node{agent}"), "", key);
                let row = node.conditions().get(&subject);
                if row.is_some_and(|row| row.truth != Truth::False) {
                    return broken("ConditionsConverge", format!("{subject} holds: {row:?}"));
                }
            }
            let watch = Subject::new(&format!("node{agent}"), AGENT_SPACE, WATCHED);
            let row = node.conditions().get(&watch);
            if row.is_none_or(|row| row.truth != Truth::True) {
                return broken("ConditionsConverge", format!("{watch} does not hold: {row:?}"));
            }
        }
        for publisher in &self.publishers {
            let Some((stated, _)) = &publisher.stated else { continue };
            let (wanted, found) = (truth_of(stated), row(node.conditions(), publisher.agent));
            if wanted != found {
                let what = format!(
                    "agent {} has stated {wanted:?} by {}, root {root} says {found:?}",
                    publisher.agent,
                    stated.id()
                );
                return broken("ConditionsConverge", what);
            }
        }
        Ok(())
    }
}

impl World {
    /// Waits until nothing was stated for a while and the standby knows that all of it is
    /// committed. Then its rows are those of the acting root.
    fn check_copy(&mut self) -> Result<(), Violation> {
        for _ in 0..QUIET_TRIES_MAX {
            let root_of = |world: &Self| world.root_of(world.agents.len() - 1).map(|(at, _)| at);
            let Some(root) = root_of(self) else {
                return broken("ConditionsConverge", "there is no root".to_owned());
            };
            let Some(node) = &self.agents[root].node else { continue };
            let before = node.position().index;
            self.append_later_entry()?;
            let Some(node) =
                self.agents[root].node.as_ref().filter(|_| root_of(self) == Some(root))
            else {
                continue;
            };
            let table = node.conditions();
            let is_quiet = table.indices_after(before).next().is_none();
            let copies = self.agents.iter().filter_map(|agent| agent.node.as_ref());
            let copy = copies.filter_map(Node::replica_conditions).find(|(_, at)| *at >= before);
            let Some((copy, _)) = copy.filter(|_| is_quiet) else { continue };
            let (rows, copied) = (table.iter().map(shown), copy.iter().map(shown));
            let (rows, copied): (Vec<String>, Vec<String>) = (rows.collect(), copied.collect());
            if let Some((ours, theirs)) = rows.iter().zip(&copied).find(|(a, b)| a != b) {
                let what = format!("root {root} has {ours}, its standby {theirs}");
                return broken("ConditionsConverge", what);
            }
            if rows.len() != copied.len() {
                let what = format!("root {root}: {} rows, standby: {}", rows.len(), copied.len());
                return broken("ConditionsConverge", what);
            }
            return Ok(());
        }
        broken("ConditionsConverge", "root and standby never have the same log".to_owned())
    }

    /// With an entry that states nothing the standby learns that those before are committed.
    fn append_later_entry(&mut self) -> Result<(), Violation> {
        loop {
            self.publish(0, 1, Severity::Info)?;
            self.run_ms(500)?;
            if !self.publishers[0].published.is_multiple_of(5) {
                return Ok(());
            }
        }
    }
}

impl World {
    /// How many rows that hold or are unknown the table of the acting root has given up.
    pub fn rows_dropped(&self) -> u64 {
        let root = self.root_of(self.agents.len() - 1);
        root.map_or(0, |(_, node)| node.conditions().dropped())
    }
}

/// All of a row but what only its own table needs.
fn shown((subject, row): (&Subject, &ConditionRow)) -> String {
    let ConditionRow { index, event, source, truth, severity, action, .. } = row;
    let ConditionRow { onset_ns, time_ns, expires_at_ns, owner, is_kept, .. } = row;
    let stated = format!("{truth} {severity} {action} kept={is_kept} by {event} for {source}");
    let times = format!("since {onset_ns}, at {time_ns}, expires {expires_at_ns:?}");
    format!("{subject}: {stated} of {owner} {times}, entry {index}")
}

fn row(table: &ConditionTable, agent: usize) -> Option<Truth> {
    table.get(&Subject::new(&format!("node{agent}"), "", KEY)).map(|row| row.truth)
}

fn truth_of(stated: &Sealed) -> Option<Truth> {
    Some(stated.as_ref().condition()?.head().truth)
}
