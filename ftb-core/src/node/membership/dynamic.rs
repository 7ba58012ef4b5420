//! Dynamic members: agents outside the member list, and how they get their ranks.
//!
//! Their ranks follow all listed ones, from [`Rank::UNLISTED_FIRST`] on, in the order in which they
//! came; they keep them. The acting root assigns them. It and its standby know all of them and
//! write them to their journals. Any other agent knows those below it, and reports them to its
//! parent. An agent without a list knows its own rank, and writes it to its journal.
//!
//! Such an agent is a leaf: no agent dials it, and it has no children. Its wanted place follows the
//! listed agents, in the order of the ranks.
//!
//! Two components that meet may have assigned one rank to two hosts. The root that goes on is
//! right. The parent of the other host sends it away; it comes back, and gets another rank.

use crate::catalog::names;
use crate::frame::{DYNAMIC_MEMBERS_MAX, DynamicMember, Frame, Hello, HelloNack, NackCode};
use crate::ident::Rank;
use crate::node::api::LinkId;
use crate::node::config::UNLISTED_MAX;
use crate::node::cx::Cx;
use crate::node::membership::Membership;
use crate::severity::Severity;
use std::collections::{BTreeMap, BTreeSet};

/// Most dynamic members that are known here, those that wait for a rank included. When full, those
/// without a relation to this agent are forgotten, and one more is refused.
const KNOWN_MAX: usize = 2 * UNLISTED_MAX;

/// The agents that are in no member list, as far as they are known here.
#[derive(Default)]
pub(crate) struct DynamicMembers {
    /// By host in lower case.
    known: BTreeMap<String, MemberEntry>,
    by_rank: BTreeMap<Rank, String>,
    /// Agents that have sent Hello and wait for a rank; at most as many as links without a Hello.
    waiting: BTreeMap<LinkId, Hello>,
    /// The journal does not have what is here.
    unwritten: bool,
}

struct MemberEntry {
    host: String,
    /// As the acting root has said.
    rank: Option<Rank>,
    /// As the agent, or another root, has said.
    wanted: Option<Rank>,
    /// The child that sent the join; `None`: none, or the agent itself is here.
    via: Option<LinkId>,
    /// Where its agent listens; empty where that is not known.
    address: String,
}

/// What the acting root has said of a host.
pub(crate) struct Assignment {
    pub(crate) member: DynamicMember,
    /// Its hellos that wait for that.
    pub(crate) waiting: BTreeMap<LinkId, Hello>,
}

/// What an acting root has decided.
struct Decision {
    rank: Option<Rank>,
    /// It was not so before.
    news: bool,
    /// The host that has lost its rank for it.
    forgotten: Option<String>,
}

fn key(host: &str) -> String {
    host.to_ascii_lowercase()
}

impl DynamicMembers {
    /// The rank of a host, as the acting root has said.
    pub(crate) fn rank_of(&self, host: &str) -> Option<Rank> {
        self.known.get(&key(host))?.rank
    }

    /// Which host has a rank.
    pub(crate) fn holder(&self, rank: Rank) -> Option<&str> {
        let entry = self.known.get(self.by_rank.get(&rank)?)?;
        Some(&entry.host)
    }

    fn address_of(&self, host: &str) -> Option<&str> {
        self.known.get(&key(host)).map(|entry| entry.address.as_str()).filter(|a| !a.is_empty())
    }

    /// All dynamic members with a rank.
    pub(crate) fn all(&self) -> Vec<(String, Rank)> {
        let known = self.known.values();
        known.filter_map(|entry| Some((entry.host.clone(), entry.rank?))).collect()
    }

    /// An agent joins, or has a rank already; false where the limit is reached.
    fn join(&mut self, join: &DynamicMember, via: Option<LinkId>) -> bool {
        let key = key(&join.host);
        if !self.has_room_for(&key) {
            return false;
        }
        let entry = self.known.entry(key).or_insert_with(|| MemberEntry {
            host: join.host.clone(),
            rank: None,
            wanted: None,
            via,
            address: String::new(),
        });
        entry.via = via;
        entry.wanted = join.rank.filter(|rank| rank.is_unlisted()).or(entry.wanted);
        true
    }

    fn has_room_for(&self, key: &str) -> bool {
        self.known.len() < KNOWN_MAX || self.known.contains_key(key)
    }

    fn remove(&mut self, key: &str) {
        if let Some(rank) = self.known.remove(key).and_then(|entry| entry.rank) {
            self.by_rank.remove(&rank);
            self.unwritten = true;
        }
    }

    /// Assigns a rank to a host, and to no other. Says whether that is new.
    pub(crate) fn set(&mut self, host: &str, rank: Rank) -> bool {
        let key = key(host);
        if self.known.get(&key).is_some_and(|entry| entry.rank == Some(rank)) {
            return false;
        }
        if let Some(other) = self.by_rank.insert(rank, key.clone())
            && let Some(other) = self.known.get_mut(&other)
        {
            other.rank = None;
            other.wanted = None;
        }
        let entry = self.known.entry(key).or_insert_with(|| MemberEntry {
            host: host.to_owned(),
            rank: None,
            wanted: None,
            via: None,
            address: String::new(),
        });
        if let Some(old) = entry.rank.replace(rank) {
            self.by_rank.remove(&old);
        }
        self.unwritten = true;
        true
    }

    /// The acting root gives a host its rank: the one that it has, or else the one that it had
    /// elsewhere if that is free, or else the next. `is_up`: who cannot lose a rank.
    fn decide(&mut self, host: &str, allowed: bool, is_up: impl Fn(Rank) -> bool) -> Decision {
        let known = self.known.get(&key(host));
        if let Some(rank) = known.and_then(|entry| entry.rank) {
            return Decision { rank: Some(rank), news: false, forgotten: None };
        }
        let wanted = known.and_then(|entry| entry.wanted);
        let mut forgotten = None;
        if self.by_rank.len() >= UNLISTED_MAX {
            let spare = self.by_rank.iter().find(|(rank, _)| !is_up(**rank));
            forgotten = spare.map(|(_, key)| key.clone());
        }
        if !allowed || (self.by_rank.len() >= UNLISTED_MAX && forgotten.is_none()) {
            return Decision { rank: None, news: false, forgotten: None };
        }
        if let Some(key) = &forgotten {
            self.remove(key);
        }
        let rank = wanted.filter(|rank| !self.by_rank.contains_key(rank));
        let rank = rank.unwrap_or_else(|| self.next_rank());
        self.set(host, rank);
        Decision { rank: Some(rank), news: true, forgotten }
    }

    /// The rank behind all that were given out.
    fn next_rank(&self) -> Rank {
        let last = self.by_rank.last_key_value().map(|(rank, _)| rank.0);
        let next = last.map_or(Some(Rank::UNLISTED_FIRST.0), |last| last.checked_add(1));
        // Behind four billion of them: the first that is free, of which there is one.
        let free = || (Rank::UNLISTED_FIRST.0..).find(|r| !self.by_rank.contains_key(&Rank(*r)));
        Rank(next.or_else(free).unwrap_or(u32::MAX))
    }

    /// Hosts of which no rank is known, or only one that another root gave.
    fn undecided(&self) -> Vec<String> {
        let undecided = self.known.values().filter(|entry| entry.rank.is_none());
        undecided.map(|entry| entry.host.clone()).collect()
    }

    /// A link is gone, and the join that waits on it.
    pub(crate) fn link_gone(&mut self, link: LinkId) {
        self.waiting.remove(&link);
    }

    /// A child is gone.
    pub(crate) fn child_gone(&mut self, link: LinkId) {
        for entry in self.known.values_mut().filter(|entry| entry.via == Some(link)) {
            entry.via = None;
        }
    }

    /// What an earlier life of this agent has written down.
    pub(crate) fn restore(&mut self, entries: Vec<(String, Rank)>) {
        for (host, rank) in entries.into_iter().take(UNLISTED_MAX) {
            self.set(&host, rank);
        }
        self.unwritten = false;
    }

    /// The journal is another one now.
    pub(crate) fn write_again(&mut self) {
        self.unwritten = !self.by_rank.is_empty();
    }

    /// Whether the journal does not have what is here.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.unwritten
    }

    /// What the journal is to have, if it has not.
    pub(crate) fn take_unwritten(&mut self) -> Option<Vec<(String, Rank)>> {
        std::mem::take(&mut self.unwritten).then(|| self.all())
    }
}

impl Membership {
    /// Host and address of a rank that no list has.
    pub(crate) fn unlisted_member(&self, rank: Rank) -> Option<(String, String)> {
        let host = self.dynamic.holder(rank)?;
        Some((host.to_owned(), self.dynamic.address_of(host)?.to_owned()))
    }

    /// All ranks that no list has.
    pub(crate) fn unlisted_ranks(&self) -> impl Iterator<Item = Rank> {
        self.dynamic.by_rank.keys().copied()
    }

    /// An agent says where an unlisted one listens.
    pub(crate) fn note_address(&mut self, host: &str, address: &str) {
        if let Some(entry) = self.dynamic.known.get_mut(&key(host))
            && entry.address != address
            && !address.is_empty()
        {
            address.clone_into(&mut entry.address);
        }
    }

    /// Where an unlisted child listens.
    pub(crate) fn address_to_report(&self, rank: Rank, host: &str) -> String {
        let address = if rank.is_unlisted() { self.dynamic.address_of(host) } else { None };
        address.unwrap_or_default().to_owned()
    }

    /// Whether a report is of an agent that has another rank, or of a rank that another has.
    pub(crate) fn contradicts_assignment(&self, rank: Rank, host: &str) -> bool {
        let other = |holder: &str| !holder.eq_ignore_ascii_case(host);
        rank.is_unlisted()
            && (self.dynamic.holder(rank).is_some_and(other)
                || self.dynamic.rank_of(host).is_some_and(|known| known != rank))
    }

    /// The rank of an agent outside the list; `None`: the acting root must assign one. Other agents
    /// may know a rank that was assigned to another host since.
    pub(crate) fn admit_dynamic(&self, cx: &Cx, hello: &Hello) -> Result<Option<Rank>, HelloNack> {
        let (host, own) = (&hello.host, &cx.config.host);
        let message = if let Some(rank) = cx.config.members.rank_of(host) {
            format!("{host} is in no member list, for {own} it has rank {rank}: give both the same")
        } else if !cx.config.allow_unlisted {
            format!(
                "{host} is in no member list: add it to the list of every agent, or set \
                 allow_unlisted = true on {own}"
            )
        } else if cx.is_unlisted() {
            format!("{own} is in no member list itself: such an agent has no children")
        } else if hello.address.is_empty() {
            format!("{host} is in no member list and does not say where it listens")
        } else {
            let known = self.dynamic.rank_of(host);
            return Ok(known.filter(|rank| cx.around.is_root || hello.rank == Some(*rank)));
        };
        Err(HelloNack { code: NackCode::Members, message, redirect: Vec::new() })
    }

    /// An agent that is in no list wants to be our child: the acting root knows its rank.
    pub(crate) fn await_assignment(&mut self, cx: &mut Cx, link: LinkId, hello: Hello) {
        let join = DynamicMember { host: hello.host.clone(), rank: hello.rank };
        self.dynamic.waiting.insert(link, hello);
        self.on_join(cx, None, vec![join]);
    }

    /// An agent that is in no list has become a child here with the rank that both know: the acting
    /// root says whether it is right, and by which way to reach it with another one.
    pub(crate) fn confirm_rank(&mut self, cx: &mut Cx, host: String, rank: Rank) {
        if !cx.around.is_root && rank.is_unlisted() {
            self.on_join(cx, None, vec![DynamicMember { host, rank: Some(rank) }]);
        }
    }

    /// Agents join: the acting root answers, any other agent forwards the join.
    pub(crate) fn on_join(&mut self, cx: &mut Cx, via: Option<LinkId>, joins: Vec<DynamicMember>) {
        let mut noted = Vec::new();
        for join in joins {
            if !self.dynamic.has_room_for(&key(&join.host)) {
                self.forget_foreign(cx);
            }
            if self.dynamic.join(&join, via) {
                noted.push(join);
            } else {
                self.apply_assignment(&DynamicMember { rank: None, ..join });
            }
        }
        if cx.around.is_root {
            return self.answer_joins(cx, noted.into_iter().map(|join| join.host).collect());
        }
        if let Some(parent) = cx.around.parent_link() {
            // Who is not answered comes again.
            for part in noted.chunks(DYNAMIC_MEMBERS_MAX) {
                cx.send_if_room(parent, Frame::DynamicMembers(part.to_vec()));
            }
        }
    }

    /// What is only remembered here is forgotten; acting root and standby remember it for all.
    fn forget_foreign(&mut self, cx: &Cx) {
        if cx.around.holds_log {
            return;
        }
        let mut here: BTreeSet<String> =
            cx.around.children.iter().map(|child| key(&child.host)).collect();
        here.extend(self.dynamic.waiting.values().map(|hello| key(&hello.host)));
        here.insert(key(&cx.config.host));
        let known = self.dynamic.known.iter();
        let strange = known.filter(|(key, entry)| entry.via.is_none() && !here.contains(*key));
        for key in strange.map(|(key, _)| key.clone()).collect::<Vec<String>>() {
            self.dynamic.remove(&key);
        }
    }

    fn send_dynamic_members(&mut self, cx: &mut Cx, link: LinkId, entries: Vec<DynamicMember>) {
        for part in entries.chunks(DYNAMIC_MEMBERS_MAX) {
            cx.send(link, Frame::DynamicMembers(part.to_vec()));
        }
    }

    /// The uplink is new: its root learns all dynamic members that are known here, but for those
    /// that are in the list by now.
    pub(crate) fn forward_all_joins(&mut self, cx: &mut Cx) {
        let Some(parent) = cx.around.parent_link() else { return cx.impossible("ParentIsTaken") };
        let own = key(&cx.config.host);
        let is_unlisted = |host: &str| cx.config.members.rank_of(host).is_none();
        let known = self.dynamic.known.iter();
        let known = known.filter(|(key, entry)| **key != own && is_unlisted(&entry.host));
        let joins = known.map(|(_, entry)| DynamicMember {
            host: entry.host.clone(),
            rank: entry.rank.or(entry.wanted),
        });
        let joins = joins.collect();
        self.send_dynamic_members(cx, parent, joins);
    }

    /// A new acting root that does not wait for a log any more answers all joins.
    pub(crate) fn answer_all_joins(&mut self, cx: &mut Cx) {
        let undecided = self.dynamic.undecided();
        self.answer_joins(cx, undecided);
    }

    fn answer_joins(&mut self, cx: &mut Cx, hosts: Vec<String>) {
        let waits = cx.around.waits_until_ns.is_some_and(|at_ns| cx.now.mono_ns < at_ns);
        if !cx.around.is_root || waits {
            return;
        }
        let mut answers = Vec::new();
        let mut news = Vec::new();
        for host in hosts {
            let members = &self.members;
            let allowed = cx.config.allow_unlisted && !cx.is_unlisted();
            let decision = self.dynamic.decide(&host, allowed, |rank| members.is_up(rank));
            let entry = DynamicMember { host: host.clone(), rank: decision.rank };
            if let Some(rank) = decision.rank.filter(|_| decision.news) {
                let why = format!("{host} is in no member list and has rank {rank}");
                let tags = vec![("host", host), ("rank", rank.to_string())];
                cx.announce(names::FTB_AGENT_ENROLLED, Severity::Info, tags, why);
                news.push(entry.clone());
            }
            news.extend(decision.forgotten.map(|host| DynamicMember { host, rank: None }));
            answers.push(entry);
        }
        for follower in cx.around.followers.clone() {
            self.send_dynamic_members(cx, follower, news.clone());
        }
        let refused = answers.iter().filter(|answer| answer.rank.is_none());
        let refused: Vec<String> = refused.map(|answer| key(&answer.host)).collect();
        self.pass_down(cx, answers);
        for key in refused {
            self.dynamic.remove(&key);
        }
    }

    /// The next standby knows all ranks.
    pub(crate) fn copy_dynamic_members(&mut self, cx: &mut Cx, syncing: LinkId) {
        let all = self.dynamic.all().into_iter();
        let all = all.map(|(host, rank)| DynamicMember { host, rank: Some(rank) }).collect();
        self.send_dynamic_members(cx, syncing, all);
    }

    /// The acting root has said who has which rank.
    pub(crate) fn on_dynamic_members(&mut self, cx: &mut Cx, entries: Vec<DynamicMember>) {
        for entry in &entries {
            match entry.rank {
                Some(rank) if self.dynamic.has_room_for(&key(&entry.host)) => {
                    self.dynamic.set(&entry.host, rank);
                }
                Some(_) => {}
                None => {
                    let known = self.dynamic.known.get_mut(&key(&entry.host));
                    if let Some(rank) = known.and_then(|known| known.rank.take()) {
                        self.dynamic.by_rank.remove(&rank);
                    }
                }
            }
        }
        self.pass_down(cx, entries);
    }

    /// Answers go to the children by which they were asked for, and count here.
    fn pass_down(&mut self, cx: &mut Cx, entries: Vec<DynamicMember>) {
        let mut below: BTreeMap<LinkId, Vec<DynamicMember>> = BTreeMap::new();
        for entry in &entries {
            let via = self.dynamic.known.get(&key(&entry.host)).and_then(|known| known.via);
            if let Some(link) = via.filter(|link| cx.around.child(*link).is_some()) {
                below.entry(link).or_default().push(entry.clone());
            }
        }
        for (link, entries) in below {
            self.send_dynamic_members(cx, link, entries);
        }
        for entry in entries {
            self.apply_assignment(&entry);
        }
    }

    /// A host has that rank, or none: the tree must know.
    fn apply_assignment(&mut self, entry: &DynamicMember) {
        if let Some(rank) = entry.rank {
            self.members.forget_others(rank, &entry.host);
        }
        let (waiting, others) = std::mem::take(&mut self.dynamic.waiting)
            .into_iter()
            .partition(|(_, hello)| hello.host.eq_ignore_ascii_case(&entry.host));
        self.dynamic.waiting = others;
        self.assignments.push_back(Assignment { member: entry.clone(), waiting });
    }

    /// A parent has said which rank this agent has, which is in no list.
    pub(crate) fn take_rank(&mut self, cx: &mut Cx, rank: Rank) {
        if !cx.is_unlisted() || !rank.is_unlisted() || cx.rank == Some(rank) {
            return;
        }
        let host = cx.config.host.clone();
        if let Some(old) = cx.rank.replace(rank) {
            cx.counters.renumbered += 1;
            let why = format!("{host} had rank {old}, which is another's: it has rank {rank} now");
            let tags =
                vec![("host", host.clone()), ("from", old.to_string()), ("rank", rank.to_string())];
            cx.announce(names::FTB_AGENT_RENUMBERED, Severity::Warning, tags, why);
        }
        self.dynamic.set(&host, rank);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(dynamic_members: &mut DynamicMembers, host: &str, rank: Option<Rank>) -> bool {
        dynamic_members.join(&DynamicMember { host: host.to_owned(), rank }, None)
    }

    fn unlisted(number: u32) -> Rank {
        Rank(Rank::UNLISTED_FIRST.0 + number)
    }

    #[test]
    fn ranks_are_given_in_order_and_kept_and_what_is_free_may_be_had() {
        let mut dynamic_members = DynamicMembers::default();
        for (host, wanted) in [("b", None), ("a", None), ("c", Some(unlisted(7)))] {
            assert!(join(&mut dynamic_members, host, wanted));
        }
        let decide = |dynamic_members: &mut DynamicMembers, host: &str| {
            dynamic_members.decide(host, true, |_| true).rank
        };
        assert_eq!(decide(&mut dynamic_members, "b"), Some(unlisted(0)));
        assert_eq!(decide(&mut dynamic_members, "a"), Some(unlisted(1)));
        assert_eq!(decide(&mut dynamic_members, "c"), Some(unlisted(7)), "it had that elsewhere");
        assert_eq!(decide(&mut dynamic_members, "B"), Some(unlisted(0)), "names have no case");
        assert!(join(&mut dynamic_members, "d", Some(unlisted(1))));
        assert_eq!(decide(&mut dynamic_members, "d"), Some(unlisted(8)), "that is another's");
        assert!(join(&mut dynamic_members, "e", None));
        assert_eq!(dynamic_members.decide("e", false, |_| true).rank, None, "none is let in");
    }

    #[test]
    fn a_full_list_of_dynamic_members_forgets_absent_ones_first() {
        let mut dynamic_members = DynamicMembers::default();
        for number in 0..UNLISTED_MAX {
            let host = format!("guest{number}");
            assert!(join(&mut dynamic_members, &host, None));
            assert!(dynamic_members.decide(&host, true, |_| true).news);
        }
        assert!(join(&mut dynamic_members, "one-more", None), "there is room for a question");
        assert_eq!(dynamic_members.decide("one-more", true, |_| true).rank, None);
        let decision = dynamic_members.decide("one-more", true, |rank| rank != unlisted(5));
        assert_eq!(decision.forgotten.as_deref(), Some("guest5"));
        assert!(decision.rank.is_some_and(|rank| rank.is_unlisted()));
        assert_eq!(
            (dynamic_members.by_rank.len(), dynamic_members.rank_of("guest5")),
            (UNLISTED_MAX, None)
        );
        for number in 0..UNLISTED_MAX {
            join(&mut dynamic_members, &format!("requester{number}"), None);
        }
        assert!(
            !join(&mut dynamic_members, "too-much", None)
                && dynamic_members.known.len() == KNOWN_MAX
        );
    }

    #[test]
    fn an_assignment_of_the_root_takes_the_rank_from_its_holder() {
        let mut dynamic_members = DynamicMembers::default();
        assert!(dynamic_members.set("x", unlisted(0)) && dynamic_members.set("y", unlisted(1)));
        assert!(dynamic_members.set("y", unlisted(0)), "the root that goes on is right");
        assert_eq!(
            (dynamic_members.rank_of("x"), dynamic_members.rank_of("y")),
            (None, Some(unlisted(0)))
        );
        assert_eq!(dynamic_members.holder(unlisted(1)), None);
        assert_eq!(dynamic_members.take_unwritten(), Some(vec![("y".to_owned(), unlisted(0))]));
        assert_eq!(dynamic_members.take_unwritten(), None);
    }
}
