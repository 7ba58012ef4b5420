//! The children: who may come, who is there, and which epoch history each follows.

use crate::frame::{Hello, HelloNack, NackCode};
use crate::ident::{OriginId, Rank};
use crate::node::api::{LinkId, MemberState};
use crate::node::around::{ChildView, Sighting};
use crate::node::cx::Cx;
use crate::node::tree::Tree;
use crate::position::Epoch;

/// One child.
pub(crate) struct Child {
    pub(crate) rank: Rank,
    pub(crate) host: String,
    pub(crate) origin: OriginId,
    attempt: u64,
    pub(crate) since_ns: u64,
    /// The head of the epoch history that it got last.
    reported: Epoch,
    /// It has said in this epoch history where it resumes.
    pub(crate) attached: bool,
}

impl Child {
    /// An agent that has just been accepted.
    pub(crate) fn new(cx: &Cx, hello: &Hello, rank: Rank, reported: Epoch) -> Self {
        Self {
            rank,
            host: hello.host.clone(),
            origin: hello.origin,
            attempt: hello.attempt,
            since_ns: cx.now.mono_ns,
            reported,
            attached: false,
        }
    }

    pub(crate) fn sighting(&self) -> Sighting {
        Sighting { rank: self.rank, origin: self.origin, attempt: self.attempt }
    }
}

/// Most agents that a full parent names to an agent that it refuses.
const REDIRECTS_MAX: usize = 8;

impl Tree {
    pub(crate) fn children(&self) -> impl Iterator<Item = (LinkId, &Child)> {
        self.children.iter().map(|(link, child)| (*link, child))
    }

    pub(crate) fn child(&self, link: LinkId) -> Option<&Child> {
        self.children.get(&link)
    }

    pub(crate) fn is_attached(&self, link: LinkId) -> bool {
        self.child(link).is_some_and(|child| child.attached)
    }

    /// The children as other parts see them.
    pub(crate) fn child_views(&self) -> Vec<ChildView> {
        let view = |(link, child): (LinkId, &Child)| ChildView {
            link,
            sighting: child.sighting(),
            host: child.host.clone(),
            attached: child.attached,
        };
        self.children().map(view).collect()
    }

    /// The link of the child with a rank.
    pub(crate) fn link_of(&self, rank: Rank) -> Option<LinkId> {
        self.children().find(|(_, child)| child.rank == rank).map(|(link, _)| link)
    }

    pub(crate) fn add_child(&mut self, link: LinkId, child: Child) {
        self.children.insert(link, child);
    }

    /// A child is gone, and its place is free again.
    pub(crate) fn remove_child(&mut self, link: LinkId) -> Option<Child> {
        let child = self.children.remove(&link)?;
        self.replaced.remove(&child.rank);
        Some(child)
    }

    /// All children get an epoch history; gives those that must say again where they resume, with
    /// the epoch that they got before.
    pub(crate) fn report_epoch(&mut self, epoch: Epoch) -> Vec<(LinkId, Epoch)> {
        let news = self.children.iter_mut().filter(|(_, child)| child.reported != epoch);
        let unsettled = news.map(|(link, child)| {
            child.attached = false;
            (*link, std::mem::replace(&mut child.reported, epoch))
        });
        unsettled.collect()
    }

    /// A child says where it resumes. Says whether it was not attached before; `None` where it
    /// answers to an older epoch history: another answer is on its way.
    pub(crate) fn attach(&mut self, cx: &mut Cx, link: LinkId, head: Epoch) -> Option<bool> {
        let Some(child) = self.children.get_mut(&link) else {
            cx.impossible("ChildIsKnown");
            return None;
        };
        if child.reported != head {
            cx.counters.stale += 1;
            return None;
        }
        Some(!std::mem::replace(&mut child.attached, true))
    }

    /// Children that have no place any more. `has_moved`: this agent has another rank.
    pub(crate) fn children_off_member_list(
        &self,
        cx: &Cx,
        has_moved: bool,
    ) -> Vec<(LinkId, MemberState)> {
        let strange = self.children().filter_map(|(link, child)| {
            match cx.has_left_member_list(child.rank, &child.host) {
                true => Some((link, MemberState::Absent)),
                false => has_moved.then_some((link, MemberState::Moved)),
            }
        });
        strange.collect()
    }

    /// Whether an agent speaks the protocol, and is who it says.
    ///
    /// # Errors
    /// What to answer.
    pub(crate) fn check_hello(
        &self,
        cx: &Cx,
        link: LinkId,
        hello: &Hello,
    ) -> Result<(), HelloNack> {
        let (own, ours) = (&cx.config.host, cx.config.versions);
        if ours.common(hello.versions).is_none() {
            return refuse(
                NackCode::Protocol,
                format!(
                    "{} speaks protocol {}, {own} speaks {ours}: upgrade both to the same release",
                    hello.host, hello.versions
                ),
            );
        }
        if hello.cluster != cx.config.cluster {
            return refuse(
                NackCode::Cluster,
                format!(
                    "{} is of cluster {:?}, {own} of {:?}: set the same cluster in both",
                    hello.host, hello.cluster, cx.config.cluster
                ),
            );
        }
        if let Some(hosts) = cx.links.certified_hosts(link)
            && !hosts.iter().any(|host| host.eq_ignore_ascii_case(&hello.host))
        {
            let whom = if hosts.is_empty() { "no host".to_owned() } else { hosts.join(", ") };
            let of = &hello.host;
            let message = format!("the certificate of {of} is for {whom}: give it one of its own");
            return refuse(NackCode::Host, message);
        }
        Ok(())
    }

    /// Whether an agent may be a child with that rank.
    ///
    /// # Errors
    /// What to answer.
    pub(crate) fn check_place(&self, cx: &Cx, rank: Rank, hello: &Hello) -> Result<(), HelloNack> {
        let own = &cx.config.host;
        if cx.rank.is_none_or(|own| rank <= own) {
            let have = cx.rank.map_or_else(|| "none".to_owned(), |rank| rank.to_string());
            let of = &hello.host;
            let message =
                format!("{of} has rank {rank}, {own} has {have}: a parent has the lower rank");
            return refuse(NackCode::Rank, message);
        }
        self.check_duplicate(rank, hello)?;
        // Agents that are in no list take no place from those that are.
        if self.peers_of(rank).count() < cx.config.children_max {
            return Ok(());
        }
        let listed = self.children.values().map(|child| child.rank);
        let below: Vec<Rank> =
            listed.filter(|r| *r < rank && !r.is_unlisted()).take(REDIRECTS_MAX).collect();
        // An agent whose rank is the lowest has nowhere else to go.
        if below.is_empty() && self.peers_of(rank).any(|(_, child)| child.rank > rank) {
            return Ok(());
        }
        let message = format!("{own} has all the children it may have");
        Err(HelloNack { code: NackCode::Full, message, redirect: below })
    }

    /// The child that must go elsewhere so that an agent with that rank can come.
    pub(crate) fn to_displace(&self, cx: &Cx, rank: Rank) -> Option<LinkId> {
        if self.peers_of(rank).count() < cx.config.children_max {
            return None;
        }
        self.peers_of(rank).max_by_key(|(_, child)| child.rank).map(|(link, _)| link)
    }

    /// The children that compete with an agent of that rank for places.
    fn peers_of(&self, rank: Rank) -> impl Iterator<Item = (LinkId, &Child)> {
        let is_peer = move |child: &Child| {
            child.rank != rank && child.rank.is_unlisted() == rank.is_unlisted()
        };
        self.children().filter(move |(_, child)| is_peer(child))
    }
}

fn refuse<T>(code: NackCode, message: String) -> Result<T, HelloNack> {
    Err(HelloNack { code, message, redirect: Vec::new() })
}

/// Whether the member list has that agent in that place.
///
/// # Errors
/// What to answer.
pub(crate) fn check_listed(cx: &Cx, rank: Rank, hello: &Hello) -> Result<(), HelloNack> {
    let own = &cx.config.host;
    let (code, message) = match cx.config.members.get(rank) {
        Some(member) if member.host.eq_ignore_ascii_case(&hello.host) => return Ok(()),
        Some(member) => (
            NackCode::Rank,
            format!(
                "{} says it has rank {rank}, which is {} for {own}: the member lists differ",
                hello.host, member.host
            ),
        ),
        None => (
            NackCode::Members,
            format!(
                "{} says it has rank {rank}, {own} knows {} members: the member lists differ",
                hello.host,
                cx.config.members.len()
            ),
        ),
    };
    Err(HelloNack { code, message, redirect: Vec::new() })
}
