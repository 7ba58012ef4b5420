//! The members of the tree: every agent knows the members of its own subtree and reports changes to
//! its parent, so that the acting root knows the whole tree.

use crate::catalog::names;
use crate::frame::{Frame, MEMBERS_MAX, MemberReport};
use crate::ident::{OriginId, Rank};
use crate::node::api::{LinkId, MemberState, Output, QueryId, TreeNode};
use crate::node::around::Sighting;
use crate::node::cx::Cx;
use crate::node::membership::Membership;
use crate::node::membership::moves::RecentMoves;
use crate::protocol::Features;
use crate::severity::Severity;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};

/// The members of the subtree, the reports that wait for the parent, and tree queries that wait for
/// an answer.
#[derive(Default)]
pub(crate) struct Members {
    known: BTreeMap<Rank, MemberReport>,
    /// All of them that are up and know no folds of groups, and some that were.
    without_folds: BTreeSet<Rank>,
    pending: BTreeMap<Rank, MemberReport>,
    moves: RecentMoves,
    queries: BTreeMap<QueryId, PendingTreeQuery>,
}

struct PendingTreeQuery {
    deadline_ns: u64,
    nodes: Vec<TreeNode>,
}

/// Most questions of this node's clients at a time; beyond, the own view is the answer.
const REQUESTS_MAX: usize = 64;

impl Members {
    /// This is known of an agent now.
    fn note(&mut self, report: MemberReport) {
        let rank = report.rank;
        match knows_no_folds(&report) {
            true => self.without_folds.insert(rank),
            false => self.without_folds.remove(&rank),
        };
        self.known.insert(rank, report);
        if self.without_folds.len() > self.known.len() {
            self.without_folds.retain(|rank| self.known.contains_key(rank));
        }
    }

    /// A member has moved elsewhere, and is not known here any more.
    fn note_moved(&mut self, cx: &Cx, report: MemberReport) {
        self.known.remove(&report.rank);
        self.moves.note(cx, report);
    }

    /// This agent was stopped for a while, and its reports with it.
    pub(super) fn forgive(&mut self, now_ns: u64) {
        self.moves.forgive(now_ns);
    }

    /// The acting root expects these members. It knows what became of the others.
    pub(super) fn retain_moved(&mut self, is_expected: impl Fn(Rank) -> bool) {
        self.moves.retain(|rank, _| is_expected(rank));
    }

    /// Whether all agents that are known to be somewhere below know folds of groups.
    pub(crate) fn all_know_folds(&self) -> bool {
        let mut reports = self.without_folds.iter().filter_map(|rank| self.known.get(rank));
        !reports.any(knows_no_folds)
    }

    /// Where that life of that agent stands, as far as it is known here.
    pub(crate) fn state_of(&self, child: Sighting) -> Option<MemberState> {
        self.known.get(&child.rank).filter(|m| sighting_of(m) == child).map(|m| m.state)
    }

    /// Whether an agent of that rank is known to be somewhere below.
    pub(crate) fn is_up(&self, rank: Rank) -> bool {
        self.known.get(&rank).is_some_and(|member| member.state == MemberState::Up)
    }

    /// Whether the acting root expects an agent of that rank.
    pub(crate) fn is_missed(&self, rank: Rank) -> bool {
        self.known.get(&rank).is_some_and(|member| member.state.is_missed())
    }

    /// Whether anything is known of an agent of that rank.
    pub(crate) fn is_known(&self, rank: Rank) -> bool {
        self.known.contains_key(&rank)
    }

    /// The incarnations that are known to be somewhere below.
    pub(crate) fn origins_up(&self) -> impl Iterator<Item = OriginId> {
        let up = self.known.values().filter(|member| member.state == MemberState::Up);
        up.map(|member| OriginId(member.origin))
    }

    /// How many are known to be somewhere below.
    pub(crate) fn count_up(&self) -> usize {
        self.known.values().filter(|member| member.state == MemberState::Up).count()
    }

    /// How many listed agents are known to be somewhere below one.
    pub(super) fn count_listed_below(&self, rank: Rank) -> u64 {
        let mut found = BTreeSet::from([rank]);
        // A parent has a lower rank than its children.
        let others = self.known.iter().filter(|(of, _)| **of > rank && !of.is_unlisted());
        for (of, member) in others.filter(|(_, member)| member.state == MemberState::Up) {
            if member.parent.is_some_and(|parent| found.contains(&parent)) {
                found.insert(*of);
            }
        }
        found.len() as u64 - 1
    }

    /// Whether that many listed agents are known to be somewhere below.
    pub(crate) fn are_listed_up(&self, count: usize) -> bool {
        // Called after each input while a root waits for a log: counts only where the answer can be
        // yes.
        self.known.len() >= count && {
            let listed = self.known.range(..Rank::UNLISTED_FIRST);
            listed.filter(|(_, member)| member.state == MemberState::Up).count() >= count
        }
    }

    /// Those that are in the tree, or were and are neither known to be dead nor gone in order.
    pub(crate) fn expected(&self) -> impl Iterator<Item = Rank> {
        let gone = |state| matches!(state, MemberState::Absent | MemberState::Dead);
        self.known.values().filter(move |member| !gone(member.state)).map(|member| member.rank)
    }

    /// Those of whom it is not known whether they come again.
    pub(crate) fn suspects(&self) -> impl Iterator<Item = Rank> {
        self.known.values().filter(|member| member.state.is_missed()).map(|member| member.rank)
    }

    /// The agents below that one are not where they were; their new parents report them. A member
    /// whose coming is not reported yet is reported as moved if it is `expected`; otherwise it has
    /// stopped with that agent. What is known of those that were gone before stays.
    fn forget_below(&mut self, left: Rank, expected: bool) {
        let mut gone = vec![left];
        while let Some(above) = gone.pop() {
            // A parent has a lower rank than its children.
            let below = self.known.range((Excluded(above), Unbounded));
            let settled = |state| {
                matches!(state, MemberState::Absent | MemberState::Lost | MemberState::Dead)
            };
            let below = below.filter(|(_, m)| m.parent == Some(above) && !settled(m.state));
            for rank in below.map(|(rank, _)| *rank).collect::<Vec<Rank>>() {
                self.known.remove(&rank);
                gone.push(rank);
                match self.pending.get_mut(&rank).filter(|report| report.state == MemberState::Up) {
                    // It goes with the one above it and says no new hello: that it is up, which
                    // comes from there, must count for more, whichever comes first.
                    Some(report) if expected => {
                        report.state = MemberState::Moved;
                        report.attempt = report.attempt.saturating_sub(1);
                    }
                    Some(_) => drop(self.pending.remove(&rank)),
                    None => {}
                }
            }
        }
    }

    /// Forgets members that are gone from here and have come elsewhere.
    pub(crate) fn forget_gone(&mut self, has_come: impl Fn(Rank) -> bool) {
        let gone = |state| matches!(state, MemberState::Absent | MemberState::Dead);
        self.known.retain(|rank, member| !(gone(member.state) && has_come(*rank)));
    }

    /// Whether one more report fits, among at most `members_max`.
    pub(super) fn has_room_for(&self, rank: Rank, members_max: usize) -> bool {
        let room = |members: &BTreeMap<Rank, MemberReport>| {
            members.len() < members_max || members.contains_key(&rank)
        };
        room(&self.known) && room(&self.pending)
    }

    /// The agents below that one are not where they were. Gives their ranks.
    pub(crate) fn suspect_below(&mut self, lost: Rank) -> Vec<Rank> {
        // A parent has a lower rank than its children.
        let mut suspects = BTreeSet::from([lost]);
        for member in self.known.values_mut() {
            let below = member.parent.is_some_and(|parent| suspects.contains(&parent));
            if below && member.state == MemberState::Up {
                member.state = MemberState::Suspect;
                // As in `forget_below`: that it is up below another root, or again, must count for
                // more than this doubt and what follows from it, whichever comes first.
                member.attempt = member.attempt.saturating_sub(1);
                suspects.insert(member.rank);
            }
        }
        suspects.into_iter().filter(|rank| *rank != lost).collect()
    }

    /// What was reported last of an agent.
    pub(super) fn report_of(&self, rank: Rank) -> Option<&MemberReport> {
        self.known.get(&rank)
    }

    /// Whether that is the life of an agent that is known here.
    pub(super) fn is_life(&self, rank: Rank, origin: OriginId) -> bool {
        self.known.get(&rank).is_some_and(|member| member.origin == origin.0)
    }

    /// Whether a report tells of a time before what is known.
    pub(super) fn is_past(&self, report: &MemberReport) -> bool {
        self.known.get(&report.rank).is_some_and(|known| is_old(known, report))
    }

    /// Where an agent was last, and its host.
    pub(crate) fn sighting_of(&self, rank: Rank) -> Option<(Sighting, String)> {
        self.known.get(&rank).map(|member| (sighting_of(member), member.host.clone()))
    }

    /// That rank is that host's: what was reported of others with it, or of the host with another
    /// rank that no list has, is forgotten.
    pub(crate) fn forget_others(&mut self, rank: Rank, host: &str) {
        for members in [&mut self.known, &mut self.pending] {
            let unlisted = members.range(Rank::UNLISTED_FIRST..);
            let strange = unlisted.filter(|(of, member)| {
                member.host.eq_ignore_ascii_case(host) != (**of == rank)
                    && (**of == rank || member.host.eq_ignore_ascii_case(host))
            });
            for of in strange.map(|(of, _)| *of).collect::<Vec<Rank>>() {
                members.remove(&of);
            }
        }
        self.moves.retain(|of, member| member.host.eq_ignore_ascii_case(host) == (of == rank));
    }

    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.queries.values().map(|query| query.deadline_ns).min()
    }
}

impl Membership {
    /// Host and address of a rank, listed or not.
    pub(crate) fn member(&self, cx: &Cx, rank: Rank) -> Option<(String, String)> {
        match cx.config.members.get(rank) {
            Some(member) => Some((member.host.clone(), member.address.clone())),
            None => self.unlisted_member(rank),
        }
    }

    /// A child has attached.
    pub(crate) fn member_up(&mut self, cx: &mut Cx, child: Sighting, host: &str) {
        let report = self.report_of_child(cx, child, host, MemberState::Up);
        self.learn(cx, report);
        self.send_members(cx);
    }

    /// A child is gone; what was below it reports from elsewhere. Says whether it was here by now.
    pub(crate) fn member_gone(
        &mut self,
        cx: &mut Cx,
        child: Sighting,
        host: &str,
        state: MemberState,
        why: &str,
    ) -> bool {
        let known = self.members.known.get(&child.rank);
        if known.is_none_or(|m| m.state != MemberState::Up || sighting_of(m) != child) {
            // It was never attached here, or lives below another parent by now, which reports it.
            return false;
        }
        cx.transition("node", host, "up", state.as_str(), why);
        let report = self.report_of_child(cx, child, host, state);
        self.learn(cx, report);
        self.send_members(cx);
        true
    }

    /// The acting root before this one was lost, or its standby: no agent above them could open a
    /// suspicion. They report themselves when they are back.
    pub(crate) fn lost_above(&mut self, cx: &mut Cx, above: Sighting, host: &str, why: &str) {
        cx.transition("node", host, "up", MemberState::Suspect.as_str(), why);
        let report = self.report_of_child(cx, above, host, MemberState::Suspect);
        self.learn(cx, report);
        self.suspect(cx, above, host, why);
    }

    /// It is known what became of an agent that was lost.
    pub(crate) fn member_is(
        &mut self,
        cx: &mut Cx,
        child: Sighting,
        host: &str,
        state: MemberState,
    ) {
        let report = self.report_of_child(cx, child, host, state);
        self.learn(cx, report);
        self.send_members(cx);
    }

    fn report_of_child(
        &self,
        cx: &Cx,
        child: Sighting,
        host: &str,
        state: MemberState,
    ) -> MemberReport {
        MemberReport {
            rank: child.rank,
            host: host.to_owned(),
            address: self.address_to_report(child.rank, host),
            origin: child.origin.0,
            attempt: child.attempt,
            state,
            parent: cx.rank.filter(|own| *own < child.rank),
            since_ns: cx.now.wall_ns,
            features: self.features_of(cx, child),
        }
    }

    /// The features of a child; of one that is gone, those of which it was known.
    fn features_of(&self, cx: &Cx, child: Sighting) -> Features {
        let here = cx.around.children.iter().find(|view| view.sighting == child);
        match here {
            Some(view) => cx.links.features(view.link),
            None => self.members.known.get(&child.rank).map_or(Features::default(), |m| m.features),
        }
    }

    /// Notes what is news. Reports of one agent come over different ways: the one of its latest
    /// hello counts, and a loss counts only for the life and the place that was lost.
    pub(super) fn learn(&mut self, cx: &mut Cx, report: MemberReport) {
        self.claims.note_change();
        if self.contradicts_assignment(report.rank, &report.host) {
            cx.counters.stale += 1;
            return;
        }
        if report.rank.is_unlisted() {
            self.note_address(&report.host, &report.address);
        }
        if cx.rank.is_some_and(|own| report.rank <= own) {
            return self.learn_of_lower(cx, report);
        }
        let has_moved = report.state == MemberState::Moved;
        let has_parent = cx.around.parent.is_some();
        if let Some(current) = self.members.known.get(&report.rank) {
            if is_old(current, &report) {
                // The acting root of the meantime knows of no life of the agents above it.
                if cx.around.is_root && report.origin == 0 {
                    self.announce_return(cx, &report, report.state, false);
                }
                return;
            }
            let (was, is) = (current.state, report.state);
            let restarted = current.origin != report.origin && current.origin != 0;
            if has_moved && !has_parent && (was.is_missed() || was == MemberState::Dead) {
                // It came and left again meanwhile: it is missed until it has come to stay.
                return;
            }
            if cx.around.is_root && is == MemberState::Up {
                self.announce_return(cx, &report, was, restarted);
            }
            self.unsettle_below(cx, report.rank, was, is, restarted);
        }
        let (rank, state) = (report.rank, report.state);
        self.members.pending.insert(rank, report.clone());
        if has_moved && has_parent {
            // The acting root expects it. It may come back or not, and stop elsewhere, without a
            // report to this agent. The next root learns from the snapshot whether to expect it.
            self.members.note_moved(cx, report);
        } else {
            self.members.moves.forget(rank);
            self.members.note(report);
        }
        self.note_member_state(cx, rank, state);
    }

    /// An agent is not where it was, or another life of it is: what becomes of those below it.
    fn unsettle_below(
        &mut self,
        cx: &mut Cx,
        rank: Rank,
        was: MemberState,
        is: MemberState,
        restarted: bool,
    ) {
        let stood = matches!(was, MemberState::Up | MemberState::Moved);
        match is {
            MemberState::Up if !restarted => {}
            _ if !cx.around.is_root => {
                self.members.forget_below(rank, is != MemberState::Absent);
            }
            _ if restarted => self.suspect_all_below(cx, rank),
            // Who is not heard of any more has stopped with it.
            MemberState::Absent => self.members.forget_below(rank, false),
            // They go with it.
            MemberState::Up | MemberState::Moved => {}
            MemberState::Suspect | MemberState::Lost | MemberState::Dead if stood => {
                self.suspect_all_below(cx, rank);
            }
            MemberState::Suspect | MemberState::Lost | MemberState::Dead => {}
        }
    }

    /// The member list has changed: no member moves to a rank that does not exist any more.
    pub(crate) fn forget_moves_off_member_list(&mut self, cx: &Cx) {
        let moved = self.members.known.values().filter(|m| m.state == MemberState::Moved);
        let strange = moved.filter(|member| cx.has_left_member_list(member.rank, &member.host));
        for rank in strange.map(|member| member.rank).collect::<Vec<Rank>>() {
            self.members.known.remove(&rank);
        }
        self.members.moves.retain(|_, member| !cx.has_left_member_list(member.rank, &member.host));
    }

    /// The acting root of the meantime reports the lost agents above it. The acting root must know
    /// it, and may be the one that was lost.
    fn learn_of_lower(&mut self, cx: &mut Cx, report: MemberReport) {
        if !cx.around.is_root {
            self.members.pending.insert(report.rank, report);
        } else if Some(report.rank) != cx.rank {
            let (rank, state) = (report.rank, report.state);
            self.members.note(report);
            self.note_member_state(cx, rank, state);
        } else if report.state != MemberState::Up {
            let restarted = report.origin != cx.config.origin.0;
            self.announce_return(cx, &report, report.state, restarted);
        }
    }

    /// The acting root, which knows all members, announces one that has returned.
    fn announce_return(
        &mut self,
        cx: &mut Cx,
        report: &MemberReport,
        was: MemberState,
        restarted: bool,
    ) {
        let tags = vec![("host", report.host.clone()), ("rank", report.rank.to_string())];
        if was == MemberState::Dead {
            let why = format!("{} was dead and is back", report.host);
            cx.announce(names::FTB_NODE_BACK, Severity::Info, tags, why);
        } else if restarted {
            let why = format!("the agent of {} was started again", report.host);
            cx.announce(names::FTB_AGENT_RESTARTED, Severity::Warning, tags, why);
        } else if was == MemberState::Lost {
            let why = format!("the agent of {} answers again", report.host);
            cx.announce(names::FTB_AGENT_BACK, Severity::Info, tags, why);
        }
    }

    /// On a new way up everything is news. What an acting root knew of lower ranks is the new
    /// root's now, and who was on its way.
    pub(crate) fn resend_all_members(&mut self, cx: &mut Cx) {
        let members = &mut self.members;
        members.pending.extend(members.moves.recent(cx));
        members.pending.extend(members.known.iter().map(|(rank, report)| (*rank, report.clone())));
        let moved = members.known.values().filter(|member| member.state == MemberState::Moved);
        // Who was below one that has moved goes with it: to report it as below this agent is wrong.
        for report in moved.cloned().collect::<Vec<MemberReport>>() {
            members.forget_below(report.rank, true);
            members.note_moved(cx, report);
        }
        let own = cx.rank;
        members.known.retain(|rank, _| own.is_none_or(|own| *rank > own));
        self.send_members(cx);
    }

    pub(super) fn send_members(&mut self, cx: &mut Cx) {
        match cx.around.parent_link() {
            Some(parent) if !self.members.pending.is_empty() => cx.wake(parent),
            Some(_) => {}
            None if cx.around.is_root => self.members.pending.clear(),
            None => {}
        }
    }

    /// The next reports for the parent.
    pub(crate) fn next_members(&mut self) -> Option<Frame> {
        let pending = &mut self.members.pending;
        let next: Vec<MemberReport> = std::iter::from_fn(|| pending.pop_first())
            .map(|(_, report)| report)
            .take(MEMBERS_MAX)
            .collect();
        (!next.is_empty()).then_some(Frame::Members(next))
    }

    /// How many members are in each state as far as this agent knows, in the order of
    /// [`MemberState::ALL`].
    pub(crate) fn count_members(&self, cx: &Cx) -> [u64; MemberState::ALL.len()] {
        let place = |state| MemberState::ALL.iter().position(|other| *other == state).unwrap_or(0);
        let listed = u32::try_from(cx.config.members.len()).unwrap_or(u32::MAX);
        let others = self.members.known.values().filter(|member| Some(member.rank) != cx.rank);
        let mut counts = [0; MemberState::ALL.len()];
        let mut absent = u64::from(listed);
        let own = cx.rank.map(|rank| (rank, MemberState::Up));
        for (rank, state) in others.map(|member| (member.rank, member.state)).chain(own) {
            counts[place(state)] += 1;
            absent -= u64::from(rank.0 < listed);
        }
        counts[place(MemberState::Absent)] += absent;
        counts
    }

    /// The whole list as far as this agent knows it.
    fn local_view(&self, cx: &Cx) -> Vec<TreeNode> {
        let mut view: BTreeMap<Rank, TreeNode> = BTreeMap::new();
        for (at, member) in cx.config.members.all().iter().enumerate() {
            let rank = Rank(u32::try_from(at).unwrap_or(u32::MAX));
            view.insert(
                rank,
                TreeNode {
                    rank,
                    host: member.host.clone(),
                    state: MemberState::Absent,
                    parent: None,
                    origin: 0,
                    since_ns: 0,
                },
            );
        }
        for member in self.members.known.values() {
            view.insert(member.rank, tree_node(member));
        }
        if let Some(rank) = cx.rank {
            view.insert(
                rank,
                TreeNode {
                    rank,
                    host: cx.config.host.clone(),
                    state: MemberState::Up,
                    parent: cx.around.parent.as_ref().map(|parent| parent.sighting.rank),
                    origin: cx.config.origin.0,
                    since_ns: cx.started.wall_ns,
                },
            );
        }
        view.into_values().collect()
    }

    pub(crate) fn on_query_tree(&mut self, cx: &mut Cx, query: QueryId, deadline_ns: u64) {
        let parent = cx.around.parent_link();
        match parent {
            Some(link) if self.members.queries.len() < REQUESTS_MAX => {
                let request = PendingTreeQuery { deadline_ns, nodes: Vec::new() };
                self.members.queries.insert(query, request);
                cx.send(link, Frame::TreeQuery { origin: cx.config.origin, query: query.0 });
            }
            _ => {
                let nodes = self.local_view(cx);
                cx.push(Output::Tree { query, nodes, complete: cx.around.is_root });
            }
        }
    }

    /// A question has come from below.
    pub(crate) fn on_tree_query(
        &mut self,
        cx: &mut Cx,
        link: LinkId,
        origin: OriginId,
        query: u64,
    ) {
        if let Some(parent) = cx.around.parent_link() {
            return cx.send_if_room(parent, Frame::TreeQuery { origin, query });
        }
        if !cx.around.is_root {
            return;
        }
        let members: Vec<MemberReport> = self.local_view(cx).into_iter().map(report_of).collect();
        let parts = members.chunks(MEMBERS_MAX);
        let count = parts.len();
        for (at, part) in parts.enumerate() {
            let last = at + 1 == count;
            let members = part.to_vec();
            cx.send_if_room(link, Frame::TreeAnswer { origin, query, members, last });
        }
    }

    /// An answer to a question of this node's clients comes down.
    pub(crate) fn on_tree_answer(
        &mut self,
        cx: &mut Cx,
        query: u64,
        members: &[MemberReport],
        last: bool,
    ) {
        let (query, nodes_max) = (QueryId(query), cx.members_max());
        let Some(request) = self.members.queries.get_mut(&query) else {
            cx.counters.stale += 1;
            return;
        };
        request.nodes.extend(members.iter().map(tree_node));
        let over = request.nodes.len() > nodes_max;
        // A part that found no room on the way is missing.
        let short = request.nodes.len() < cx.config.members.len();
        if (last || over)
            && let Some(request) = self.members.queries.remove(&query)
        {
            cx.push(Output::Tree { query, nodes: request.nodes, complete: !over && !short });
        }
    }

    /// Questions that were not answered in time get the own view.
    pub(crate) fn on_tree_query_timer(&mut self, cx: &mut Cx) {
        let now_ns = cx.now.mono_ns;
        let late = self.members.queries.iter().filter(|(_, q)| q.deadline_ns <= now_ns);
        let late: Vec<QueryId> = late.map(|(query, _)| *query).collect();
        for query in late {
            self.members.queries.remove(&query);
            let nodes = self.local_view(cx);
            cx.push(Output::Tree { query, nodes, complete: false });
        }
    }
}

/// Whether a report tells of a time before what is known.
fn is_old(current: &MemberReport, report: &MemberReport) -> bool {
    let is_up = |member: &MemberReport| member.state == MemberState::Up;
    // A place that was left in order was left for good: who is there again came with another hello.
    let was_left = matches!(current.state, MemberState::Absent | MemberState::Moved);
    if current.origin == report.origin {
        let again = report.attempt == current.attempt && was_left && is_up(report);
        return report.attempt < current.attempt || again;
    }
    // Of two lives of one agent the later one counts.
    let earlier = current.origin != 0 && report.since_ns < current.since_ns;
    !is_up(report) && (is_up(current) || earlier)
}

fn sighting_of(report: &MemberReport) -> Sighting {
    let origin = OriginId(report.origin);
    Sighting { rank: report.rank, origin, attempt: report.attempt }
}

fn knows_no_folds(member: &MemberReport) -> bool {
    member.state == MemberState::Up && !member.features.contains(Features::FOLDS)
}

fn tree_node(member: &MemberReport) -> TreeNode {
    TreeNode {
        rank: member.rank,
        host: member.host.clone(),
        state: member.state,
        parent: member.parent.filter(|_| member.state == MemberState::Up),
        origin: member.origin,
        since_ns: member.since_ns,
    }
}

fn report_of(node: TreeNode) -> MemberReport {
    MemberReport {
        rank: node.rank,
        host: node.host,
        address: String::new(),
        origin: node.origin,
        attempt: 0,
        state: node.state,
        parent: node.parent,
        since_ns: node.since_ns,
        features: Features::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::FEATURES;

    fn report(rank: u32, parent: u32, attempt: u64) -> MemberReport {
        MemberReport {
            rank: Rank(rank),
            host: format!("node{rank:02}"),
            address: String::new(),
            origin: u64::from(rank),
            attempt,
            state: MemberState::Up,
            parent: Some(Rank(parent)),
            since_ns: 1,
            features: FEATURES,
        }
    }

    /// 11 has come below 5, which moves before it has reported that: an agent that goes with it
    /// says no new hello.
    #[test]
    fn a_member_that_moves_with_its_parent_is_up_in_any_order_of_reports() {
        let (mut members, up) = (Members::default(), report(11, 5, 3));
        for member in [report(5, 1, 2), up.clone()] {
            members.known.insert(member.rank, member.clone());
            members.pending.insert(member.rank, member);
        }
        members.forget_below(Rank(5), true);
        let moved = members.pending.get(&Rank(11)).cloned();
        let reported = moved.as_ref().map(|report| (report.state, is_old(report, &up)));
        assert_eq!(reported, Some((MemberState::Moved, false)), "up counts when it comes later");
        assert!(moved.is_some_and(|moved| is_old(&up, &moved)), "and when it came earlier");
    }

    /// A root loses 5 and doubts 11 below it, which goes with 5 to another root.
    #[test]
    fn who_is_up_elsewhere_is_up_in_any_order_of_reports_and_doubts() {
        let (mut members, up) = (Members::default(), report(11, 5, 3));
        for member in [report(5, 1, 2), up.clone()] {
            members.note(member);
        }
        assert_eq!(members.suspect_below(Rank(5)), [Rank(11)]);
        let doubt = members.known.get(&Rank(11)).cloned();
        let reported = doubt.as_ref().map(|report| (report.state, is_old(report, &up)));
        assert_eq!(reported, Some((MemberState::Suspect, false)), "up counts when it comes later");
        assert!(doubt.is_some_and(|doubt| is_old(&up, &doubt)), "and when it came earlier");
        let lost = MemberReport { state: MemberState::Suspect, ..up.clone() };
        assert!(!is_old(&up, &lost), "what its parent says of it counts");
    }
}
