//! Groups at the acting root: like events of many publishers, and the fold that subscribers get for
//! them (docs/protocol.md, "Groups").
//!
//! The root appends each event of a group at once, marked as a member. So confirmations, dedup
//! ranges and conditions know nothing of groups. When the window of the group ends, the root
//! appends one fold that names the members. Which members have no fold yet is a function of the
//! log: the next root reads it there.
//!
//! Why not the inner agents, on the way up:
//! - An event would wait there for the window before it is in any log. Its receipt, the condition
//!   that it states and the launcher that acts on it would wait too. Here they wait for nothing.
//! - If an inner agent dies with a group, the origins send its members again, over other agents.
//!   Then two folds share members, with other counts and host lists. The root would have to take
//!   one of them apart, and has no members to do it with.
//! - A switch has ports in many subtrees. So the root would have to join folds all the same.
//! - The price is the way up and the log: each member passes once over each link to the root, and
//!   is appended once. That is what the same events cost without a group. A group saves the way
//!   down, which grows with the subscribers. `docs/performance.md` has figures.
//!
//! While an agent of an older release is in the tree, no new events join groups.
//!
//! Order: groups end in the order in which they began. An event joins no group before the newest
//! one with an event of its publisher, and an event outside groups first ends those that hold
//! earlier events of its publisher. So folds and events keep the order of each publisher.
//!
//! Responsible for: which event joins which group, when a group ends, its limits. Not responsible
//! for: who gets members and who folds ([`crate::filter::Filter`]).

use crate::condition::is_host_name;
use crate::frame::{Content, UpItem};
use crate::group::{
    GROUP_BYTES_MAX, GROUP_EVENT_BYTES_MAX, GROUP_MEMBERS_MAX, GroupFold, GroupHosts,
};
use crate::ident::{EventId, PublisherId};
use crate::log::entries::Log;
use crate::node::Node;
use crate::node::api::{GapReason, Loss};
use crate::node::config::{NodeConfig, ns};
use crate::numbers::LogIndex;
use crate::run::Run;
use crate::sealed::{Sealed, SealedRef};
use crate::spaces::Spaces;
use crate::storm::rule_of;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most groups without a fold. With more, the oldest end early.
const GROUPS_MAX: usize = 1_024;
/// Most members of all of them, likewise.
const MEMBERS_MAX: usize = 4 * GROUP_MEMBERS_MAX;
/// Most bytes of the events that are to carry the folds, likewise.
pub(in crate::node) const CARRIER_BYTES_MAX: usize = 4 << 20;
/// Groups end before so large a part of the log is appended that it could drop members: what it
/// retains of severe events takes at most half of it.
const LOG_PART: usize = 4;
/// Account, token and three numbers of a member.
const MEMBER_BYTES: usize = 41;

/// The groups whose folds are not in the log.
#[derive(Debug, Default)]
pub(in crate::node) struct Grouping {
    /// In the order in which they began.
    groups: VecDeque<OpenGroup>,
    /// The number of the next group.
    next: u64,
    /// The newest group with events of a publisher.
    newest: BTreeMap<PublisherId, u64>,
    members: usize,
    carrier_bytes: usize,
    /// What was appended since the oldest of them began costs in the log.
    appended: usize,
    /// Folds that were over a bound, which cannot be.
    failed: u64,
}

/// What members of a group have in common: all that a filter or a reader can look at but the host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupKey {
    severity: u8,
    uid: u32,
    texts: Vec<Box<str>>,
}

#[derive(Debug)]
struct OpenGroup {
    number: u64,
    key: GroupKey,
    ends_ns: u64,
    /// Its last event, which carries the fold.
    carrier: Sealed,
    hosts: GroupHosts,
    members: usize,
    /// Bytes of the fold, at most.
    bytes: usize,
    first_ns: u64,
    last_ns: u64,
}

/// What is to be appended for an event.
#[derive(Debug, Default)]
pub(in crate::node) struct Placement {
    /// Folds before it.
    pub(in crate::node) folds: Vec<Sealed>,
    /// The event as a member; `None`: it is none.
    pub(in crate::node) member: Option<Sealed>,
}

impl GroupKey {
    /// The key and the window of an event that joins a group.
    fn of(config: &NodeConfig, event: SealedRef<'_>) -> Option<(Self, u64)> {
        let grouper = config.grouper?;
        let is_good = event.group().is_none()
            && event.head().covers == 0
            && event.len() <= GROUP_EVENT_BYTES_MAX
            && is_host_name(event.host());
        if !is_good {
            return None;
        }
        let rule = rule_of(&config.storm, event.space(), event.severity())?;
        let rule = config.storm.get(rule)?;
        if rule.group_by.is_empty() || rule.fold_ms == 0 {
            return None;
        }
        let values = (grouper.values)(event, &rule.group_by)?;
        // Of the port of a switch, the switch counts.
        let values = values.into_iter().map(|value| value.split('/').next().unwrap_or_default());
        Some((Self::with(event, values), ns(rule.fold_ms)))
    }

    fn with<'a>(event: SealedRef<'a>, values: impl Iterator<Item = &'a str>) -> Self {
        // Spaces and names compare without case.
        let named = [event.space(), event.name()].map(|text| text.to_ascii_lowercase().into());
        let others = [event.job_id(), event.client_name()].into_iter().chain(values);
        let texts = named.into_iter().chain(others.map(Box::from)).collect();
        Self { severity: event.severity() as u8, uid: event.head().uid, texts }
    }
}

impl OpenGroup {
    fn add(&mut self, event: SealedRef<'_>, member: &Sealed) {
        let time_ns = event.time_ns();
        self.hosts.insert(event.host(), event.id());
        self.members += 1;
        self.bytes += MEMBER_BYTES + event.host().len() + 1;
        self.first_ns = self.first_ns.min(time_ns);
        self.last_ns = self.last_ns.max(time_ns);
        self.carrier = member.detached();
    }

    fn has_room(&self, event: SealedRef<'_>) -> bool {
        self.members < GROUP_MEMBERS_MAX
            && self.bytes + MEMBER_BYTES + event.host().len() < GROUP_BYTES_MAX
    }
}

impl Grouping {
    /// When the fold of a group is due: at once where new events may join none.
    pub(in crate::node) fn deadline_ns(&self, is_on: bool) -> Option<u64> {
        let due = self.groups.iter().map(|group| group.ends_ns).min();
        due.map(|ends_ns| if is_on { ends_ns } else { 0 })
    }

    /// Bytes of events that are held here.
    pub(in crate::node) fn bytes(&self) -> usize {
        self.carrier_bytes
    }

    /// An entry of that cost was appended.
    pub(in crate::node) fn note_appended(&mut self, bytes: usize) {
        self.appended += bytes;
    }

    /// Whether it must see the events of a run one by one.
    fn concerns(&self, config: &NodeConfig, run: &Run, is_on: bool) -> bool {
        let has_rules = || config.storm.iter().any(|rule| !rule.group_by.is_empty());
        let is_on = is_on && config.grouper.is_some();
        !self.groups.is_empty() || run.may_be_of_group() || is_on && has_rules()
    }

    /// The next event of the log. A member of a root before joins a group in any case, others only
    /// if groups are on.
    fn place(
        &mut self,
        now_ns: u64,
        config: &NodeConfig,
        is_on: bool,
        event: SealedRef<'_>,
    ) -> Placement {
        let Some(grouper) = config.grouper else { return Placement::default() };
        let is_large = self.appended > config.log_bytes / LOG_PART;
        let mut folds = if is_large { self.end_all(config) } else { Vec::new() };
        let found = GroupKey::of(config, event).filter(|_| is_on || event.is_member());
        let found = found
            .or_else(|| event.is_member().then(|| (GroupKey::with(event, std::iter::empty()), 0)));
        let member = found.as_ref().and_then(|_| match event.is_member() {
            true => Some(event.to_sealed()),
            false => (grouper.member)(event),
        });
        let newest = self.newest.get(&event.id().publisher).copied();
        let (Some((key, window_ns)), Some(member)) = (found, member) else {
            folds.extend(newest.into_iter().flat_map(|newest| self.end_until(config, newest)));
            return Placement { folds, member: None };
        };
        folds.extend(self.make_room(config, member.len()));
        let group = self.groups.iter_mut().find(|group| {
            newest.is_none_or(|newest| group.number >= newest)
                && group.key == key
                && group.has_room(event)
        });
        let number = match group {
            Some(group) => {
                self.carrier_bytes -= group.carrier.len();
                group.add(event, &member);
                group.number
            }
            None => self.begin(key, now_ns.saturating_add(window_ns), event, &member),
        };
        self.carrier_bytes += member.len();
        self.members += 1;
        self.newest.insert(event.id().publisher, number);
        Placement { folds, member: Some(member) }
    }

    fn begin(&mut self, key: GroupKey, ends_ns: u64, event: SealedRef<'_>, member: &Sealed) -> u64 {
        if self.groups.is_empty() {
            self.appended = 0;
        }
        let number = self.next;
        self.next += 1;
        let (carrier, hosts) = (member.clone(), GroupHosts::default());
        let time_ns = event.time_ns();
        let mut group = OpenGroup {
            number,
            key,
            ends_ns,
            carrier,
            hosts,
            members: 0,
            bytes: 0,
            first_ns: time_ns,
            last_ns: time_ns,
        };
        group.add(event, member);
        self.groups.push_back(group);
        number
    }

    /// Ends the oldest groups until there is room for a member.
    fn make_room(&mut self, config: &NodeConfig, bytes: usize) -> Vec<Sealed> {
        let mut folds = Vec::new();
        while self.groups.len() >= GROUPS_MAX
            || self.members >= MEMBERS_MAX
            || self.carrier_bytes + bytes > CARRIER_BYTES_MAX
        {
            let Some(first) = self.groups.front().map(|group| group.number) else { break };
            folds.extend(self.end_until(config, first));
        }
        folds
    }

    /// Ends the groups up to a number; gives their folds.
    fn end_until(&mut self, config: &NodeConfig, number: u64) -> Vec<Sealed> {
        let mut folds = Vec::new();
        while self.groups.front().is_some_and(|group| group.number <= number)
            && let Some(group) = self.groups.pop_front()
        {
            self.members -= group.members;
            self.carrier_bytes -= group.carrier.len();
            let fold = GroupFold::of(&group.hosts, (group.first_ns, group.last_ns));
            match config.grouper.and_then(|grouper| (grouper.fold)(&group.carrier, &fold)) {
                Some(fold) => folds.push(fold),
                None => self.failed += 1,
            }
        }
        let first = self.groups.front().map_or(self.next, |group| group.number);
        self.newest.retain(|_, newest| *newest >= first);
        if self.groups.is_empty() {
            self.appended = 0;
        }
        folds
    }

    /// Ends all groups.
    fn end_all(&mut self, config: &NodeConfig) -> Vec<Sealed> {
        self.end_until(config, self.next)
    }

    /// Ends the groups whose windows are over, and those that began before them.
    fn end_due(&mut self, config: &NodeConfig, now_ns: u64) -> Vec<Sealed> {
        let due = self.groups.iter().rev().find(|group| group.ends_ns <= now_ns);
        let due = due.map(|group| group.number);
        due.map(|number| self.end_until(config, number)).unwrap_or_default()
    }
}

/// The events of a run that are no folds of groups.
pub(in crate::node) fn without_folds(run: Run) -> Vec<Run> {
    if !run.may_be_of_group() {
        return vec![run];
    }
    let folds = run.iter().enumerate().filter(|(_, event)| event.group().is_some());
    let folds: Vec<usize> = folds.map(|(place, _)| place).collect();
    run.without(&folds)
}

/// The members in a log that no fold names, in order, and the index before the first.
fn members_without_fold(log: &Log, after: LogIndex) -> (LogIndex, Vec<Sealed>) {
    let of_groups = || {
        let items = log.after(after);
        items.filter_map(|item| match item.content {
            Content::Events(run) if run.may_be_of_group() => Some((item.index, run)),
            Content::Events(_) | Content::Gap(_) => None,
        })
    };
    let mut folded: BTreeSet<EventId> = BTreeSet::new();
    for (_, run) in of_groups() {
        for group in run.iter().filter_map(SealedRef::group) {
            folded.extend(group.members().into_iter().flat_map(|members| members.ids()));
        }
    }
    let (mut first, mut left) = (log.last(), Vec::new());
    for (index, run) in of_groups() {
        let open = run.iter().filter(|event| event.is_member() && !folded.contains(&event.id()));
        left.extend(open.map(SealedRef::to_sealed));
        if !left.is_empty() {
            first = first.min(index.before());
        }
    }
    (first, left)
}

impl Node {
    /// Appends new events: members of groups marked as such, and folds where they are due. Says
    /// whether the entries are the run.
    pub(in crate::node) fn log_events(&mut self, run: Run) -> bool {
        let Some(root) = self.role.root() else {
            self.cx.impossible("AppendAtRoot");
            return false;
        };
        let is_on = self.membership.all_know_folds();
        if !root.grouping.concerns(&self.cx.config, &run, is_on) {
            self.log_entry(Content::Events(run));
            return true;
        }
        let mut entries: Vec<Sealed> = Vec::new();
        let mut is_verbatim = true;
        for event in run.iter() {
            let Placement { folds, member } = self.place(is_on, event);
            is_verbatim &= folds.is_empty() && (member.is_none() || event.is_member());
            entries.extend(folds);
            entries.push(member.unwrap_or_else(|| event.to_sealed()));
        }
        if is_verbatim {
            self.log_entry(Content::Events(run));
        } else {
            self.log_entries(&entries);
        }
        is_verbatim
    }

    fn place(&mut self, is_on: bool, event: SealedRef<'_>) -> Placement {
        let Some(root) = self.role.root_mut() else {
            self.cx.impossible("AppendAtRoot");
            return Placement::default();
        };
        let placed = root.grouping.place(self.cx.now.mono_ns, &self.cx.config, is_on, event);
        self.cx.counters.grouped += u64::from(placed.member.is_some());
        self.cx.counters.groups_cut += placed.folds.len() as u64;
        self.count_folds(placed.folds.len());
        placed
    }

    fn count_folds(&mut self, folds: usize) {
        self.cx.counters.group_folds += folds as u64;
        let failed = self.role.root_mut().map(|root| std::mem::take(&mut root.grouping.failed));
        if failed.is_some_and(|failed| failed > 0) {
            self.cx.impossible("FoldFits");
        }
    }

    fn log_entries(&mut self, entries: &[Sealed]) {
        if let Some(run) = Run::collect(entries.iter().map(Sealed::as_ref)) {
            self.log_entry(Content::Events(run));
        }
    }

    /// Windows of groups are over, or an agent is in the tree that knows no folds: if it became
    /// acting root, members would stay without one.
    pub(in crate::node) fn on_group_timer(&mut self) {
        let is_on = self.membership.all_know_folds();
        let Some(root) = self.role.root_mut() else { return self.cx.impossible("TimerOfRoot") };
        let folds = match is_on {
            true => root.grouping.end_due(&self.cx.config, self.cx.now.mono_ns),
            false => root.grouping.end_all(&self.cx.config),
        };
        self.count_folds(folds.len());
        self.log_entries(&folds);
    }

    /// The log is that of another root, or goes on in another epoch: its members without a fold
    /// are in groups again.
    pub(in crate::node) fn regroup(&mut self, is_incomplete: bool) {
        let Some(root) = self.role.root_mut() else { return self.cx.impossible("RootIsRoot") };
        root.grouping = Grouping::default();
        if is_incomplete {
            return self.log_lost_folds();
        }
        let (after, members) = members_without_fold(self.log.entries(), self.log.memory_after());
        for member in members {
            let folds = self.place(true, member.as_ref()).folds;
            self.log_entries(&folds);
        }
        let appended = self.log.entries().bytes_after(after);
        if let Some(root) = self.role.root_mut() {
            root.grouping.appended = appended;
        }
    }

    /// This root has only what passed by, so it cannot know which members have no fold. Origins
    /// that are left send theirs again; but another agent that has the whole log proposes again
    /// only what lies after the fork. Readers of folds have passed the others over: a gap.
    fn log_lost_folds(&mut self) {
        let rules = self.cx.config.storm.iter().filter(|rule| !rule.group_by.is_empty());
        let Some(severity_max) = rules.map(|rule| rule.severity_max).max() else { return };
        self.append(UpItem::Loss(Loss {
            reason: GapReason::LogLost,
            count: None,
            severity_max: Some(severity_max),
            spaces: Spaces::ANY,
        }));
    }
}

#[cfg(test)]
#[path = "grouping/tests.rs"]
mod tests;
