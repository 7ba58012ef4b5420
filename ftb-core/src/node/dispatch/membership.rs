//! What membership needs of tree and role, and what it has for them.

use crate::condition::{CHASSIS_OFF, Truth};
use crate::frame::{Content, Frame, Hello, HelloNack, MemberReport, NackCode};
use crate::ident::OriginId;
use crate::node::Node;
use crate::node::api::{LinkId, MemberState};
use crate::node::around::{Around, ParentView};
use crate::node::config::UNLISTED_MAX;
use crate::node::links::LinkRole;
use crate::node::membership::{Assignment, RefusedClaim};
use crate::node::publishing::Route;
use crate::numbers::LogIndex;
use crate::space::lies_in;

impl Node {
    /// Parent, children or role have changed: the other parts learn it.
    pub(crate) fn refresh_around(&mut self) {
        self.cx.around = self.around();
    }

    pub(crate) fn around(&self) -> Around {
        let followers = self.role.root().map(|root| [root.standby, root.syncing]);
        Around {
            is_root: self.role.is_root(),
            holds_log: self.role.holds_log(),
            waits_until_ns: self.role.waits_until_ns(),
            log_holder: self.role.root().and_then(|root| root.standby.or(root.log_source)),
            followers: followers.into_iter().flatten().flatten().collect(),
            parent: self.role.parent().map(|parent| ParentView {
                link: parent.link,
                sighting: parent.sighting(),
                host: parent.host.clone(),
                path: parent.path.clone(),
                standby: parent.standby,
                has_resumed: parent.resumed.is_some(),
            }),
            children: self.tree.child_views(),
        }
    }

    /// Committed entries after an index: the power of a suspect's host may be among them.
    pub(crate) fn note_power(&mut self, after: LogIndex) {
        if !self.membership.asks_for_power() {
            return;
        }
        let protected = &self.cx.config.protected;
        let entries = self.log.entries().after(after);
        let entries = entries.map_while(|item| item.up_to(self.log.commit_index()));
        for item in entries {
            let Content::Events(run) = &item.content else { continue };
            for (_, event) in run.groups() {
                let is_protected =
                    || protected.iter().any(|s| lies_in(event.space().as_bytes(), s.as_str()));
                let off = event.condition().filter(|condition| {
                    condition.head().truth == Truth::True
                        && condition.key().eq_ignore_ascii_case(CHASSIS_OFF)
                        && is_protected()
                });
                self.powered_off.extend(off.map(|condition| condition.host().to_owned()));
            }
        }
    }

    /// Called after each input: hosts that are powered off, and what is to be read of others.
    pub(crate) fn follow_power(&mut self) {
        for host in std::mem::take(&mut self.powered_off) {
            let Some(rank) = self.membership.on_power_off(&mut self.cx, &host) else { continue };
            let child = self.tree.children().find(|(_, child)| child.rank == rank);
            if let Some(link) = child.map(|(link, _)| link) {
                let why = "its host is powered off";
                self.cx.close(link, None, why);
                self.lose_child(link, MemberState::Suspect, why);
            }
        }
        let asks = self.membership.asks_for_power() && !self.role.is_root();
        self.reading(|delivery, cx| delivery.want_power(cx, asks));
    }

    /// A question for the tree has come from below.
    pub(super) fn on_tree_query(&mut self, link: LinkId, origin: OriginId, query: u64) {
        if !self.membership.admit_route(&mut self.cx, link, origin) {
            return;
        }
        self.publishing.learn_route(origin, Route { link, run: 0 });
        self.membership.on_tree_query(&mut self.cx, link, origin, query);
    }

    /// An answer comes down.
    pub(super) fn on_tree_answer(
        &mut self,
        origin: OriginId,
        query: u64,
        members: Vec<MemberReport>,
        last: bool,
    ) {
        if origin == self.cx.config.origin {
            return self.membership.on_tree_answer(&mut self.cx, query, &members, last);
        }
        if let Some(link) = self.publishing.route(origin) {
            let answer = Frame::TreeAnswer { origin, query, members, last };
            self.cx.send_if_room(link, answer);
        }
    }

    /// Called after each input: what children said of agents that are not below them is counted and
    /// reported.
    pub(crate) fn settle_claims(&mut self) {
        self.membership.settle_claims(&mut self.cx);
        for RefusedClaim { link, what, about, ends_link } in self.membership.take_refused() {
            self.cx.counters.claims_refused += 1;
            let child = self.tree.child(link).map(|child| child.host.clone());
            let Some(host) = child else { continue };
            let why = what.why(&about);
            self.cx.transition("child", &host, "attached", "refused", &why);
            self.tree.report_claim(&mut self.cx, &host, &about, &why);
            if ends_link {
                self.misbehaved(link, &why);
            }
        }
    }

    /// Dynamic members have ranks, or none. A child that has another one goes, and comes back. An
    /// agent that has waited for its rank comes in.
    pub(crate) fn apply_assignments(&mut self) {
        while let Some(Assignment { member, waiting }) = self.membership.next_assignment() {
            let moved = self.tree.children().filter(|(_, child)| {
                child.rank.is_unlisted()
                    && child.host.eq_ignore_ascii_case(&member.host)
                    && Some(child.rank) != member.rank
            });
            for link in moved.map(|(link, _)| link).collect::<Vec<LinkId>>() {
                let why = "its rank is another one now";
                self.lose_child(link, MemberState::Absent, why);
                self.cx.decline(link, why);
            }
            for (link, hello) in waiting {
                if self.cx.links.role(link) != Some(LinkRole::Handshaking) {
                    continue;
                }
                if member.rank.is_some() {
                    self.on_hello(link, Hello { rank: member.rank, ..hello });
                    continue;
                }
                let message = format!(
                    "{} is in no member list, and its acting root has no rank for it: it takes \
                     none, or has {UNLISTED_MAX} of them",
                    hello.host
                );
                let nack = HelloNack { code: NackCode::Members, message, redirect: Vec::new() };
                self.refuse(link, &hello, nack);
            }
        }
    }
}
