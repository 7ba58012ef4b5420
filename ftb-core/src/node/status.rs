//! What a node says about itself when asked.

use super::Node;
use crate::condition::{Subject, Truth, WATCHED};
use crate::frame::Content;
use crate::ident::{EventId, OriginId, Rank};
use crate::log::entries::Log;
use crate::node::STATEMENT_BYTES_MAX;
use crate::node::api::{ClientId, JournalState, MemberState};
use crate::node::delivery::ClientUse;
use crate::node::role::Role;
use crate::numbers::LogIndex;
use crate::position::{Epoch, Position};
use crate::severity::Severity;

/// A node as an administrator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its role in the tree.
    pub role: TreeRole,
    /// Its place, where it has one.
    pub rank: Option<Rank>,
    /// Its incarnation.
    pub origin: OriginId,
    /// The parent's host.
    pub parent: Option<String>,
    /// The parent's place.
    pub parent_rank: Option<Rank>,
    /// The last position known to be confirmed.
    pub position: Position,
    /// The children by rank.
    pub children: Vec<ChildStatus>,
    /// The clients by id.
    pub clients: Vec<ClientStatus>,
    /// Bytes of the log or ring.
    pub log_bytes: usize,
    /// Bytes of own clients' events that are not confirmed.
    pub outbox_bytes: usize,
    /// How the journal is; `None` without one.
    pub journal: Option<JournalState>,
    /// What was counted since the start.
    pub counters: Vec<(&'static str, u64)>,
}

/// The role of an agent, as administrators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeRole {
    /// The acting root.
    Root,
    /// It has the whole log of the acting root.
    Standby,
    /// It has a parent.
    Member,
    /// It looks for a parent.
    Searching,
}

/// One child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildStatus {
    /// Its host.
    pub host: String,
    /// Its place.
    pub rank: Rank,
    /// Its incarnation.
    pub origin: OriginId,
    /// Bytes that it has not been sent (up to all of the log, wanted or not).
    pub queued_bytes: usize,
    /// Since when it is here, on the monotonic clock.
    pub since_ns: u64,
}

/// One client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientStatus {
    /// Its id.
    pub client: ClientId,
    /// What it calls itself.
    pub name: String,
    /// What it says it belongs to.
    pub job_id: String,
    /// From its credentials.
    pub uid: u32,
    /// From its credentials.
    pub pid: u32,
    /// Events taken from it.
    pub published: u64,
    /// Events handed to it.
    pub delivered: u64,
    /// Events it lost by being slow.
    pub shed: u64,
    /// Bytes that its slowest subscription has not read (up to all of the log).
    pub queued_bytes: usize,
    /// Its filters.
    pub filters: Vec<String>,
}

/// What the acting root knows of the whole cluster, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Members in each state, in the order of [`MemberState::ALL`].
    pub members: [u64; MemberState::ALL.len()],
    /// Conditions that hold, by severity, INFO first. Watches are not among them.
    pub holding: [u64; Severity::ALL.len()],
    /// Conditions and watches that are unknown.
    pub unknown: u64,
    /// Conditions by which a service of ftb says that it does not act, and its unknown watches,
    /// in the order of [`SERVICES`].
    pub services: [u64; SERVICES.len()],
    /// Rows of the table of conditions.
    pub rows: u64,
}

/// Services of ftb whose failure is seen in the table of conditions. `ftb-act` is its open breaker,
/// `ftb-act-watch` its lost watch, `ftb-act-page` its rules whose requests no web server takes:
/// alerts on the first must not fire for the others.
pub const SERVICES: [&str; 5] =
    ["ftb-act", "ftb-slurm", "ftb-bridge", "ftb-act-watch", "ftb-act-page"];
/// The place of `ftb-act-watch` in [`SERVICES`].
const ACT_WATCH: usize = 3;
/// The place of `ftb-act-page` in [`SERVICES`].
const PAGES: usize = 4;

/// What the table says of [`SERVICES`].
#[derive(Default)]
struct ServiceRows {
    /// Conditions by which a service says that it does not act.
    idle: [u64; SERVICES.len()],
    /// Unknown ones, and unknown watches: perhaps of a host from which the service has moved.
    unknown: [u64; SERVICES.len()],
    /// Some host states the watch of the service.
    is_watched: [bool; SERVICES.len()],
}

impl ServiceRows {
    fn note(&mut self, subject: &Subject, truth: Truth) {
        let is_watch = subject.key() == WATCHED;
        let service = match subject.key() {
            WATCHED => match subject.component() {
                "ftb.slurm" => Some(1),
                "ftb.bridge" => Some(2),
                "ftb.act" => Some(ACT_WATCH),
                _ => None,
            },
            "BREAKER_OPEN" => Some(0),
            "SLURM_UNREACHABLE" => Some(1),
            "NATS_UNREACHABLE" => Some(2),
            "PAGE_FAILED" => Some(PAGES),
            _ => None,
        };
        let Some(service) = service else { return };
        match truth {
            Truth::True if is_watch => self.is_watched[service] = true,
            Truth::True => self.idle[service] += 1,
            Truth::Unknown => self.unknown[service] += 1,
            Truth::False => {}
        }
    }

    /// Rows that say that the service does not act. What is unknown does not count while the
    /// service is watched elsewhere.
    fn count(&self) -> [u64; SERVICES.len()] {
        core::array::from_fn(|service| {
            // Requests are a part of ftb-act, whose watch says where it runs.
            let watch = if service == PAGES { ACT_WATCH } else { service };
            let unknown = if self.is_watched[watch] { 0 } else { self.unknown[service] };
            self.idle[service] + unknown
        })
    }
}

impl Node {
    /// Numbers of the whole cluster; `None`: this agent is no acting root. Goes through all
    /// members and conditions.
    pub fn census(&self) -> Option<Census> {
        if !self.is_root() {
            return None;
        }
        let table = self.log.entries().conditions();
        let mut services = ServiceRows::default();
        let mut census = Census {
            members: self.membership.count_members(&self.cx),
            rows: table.len() as u64,
            ..Census::default()
        };
        for (subject, row) in table.iter() {
            services.note(subject, row.truth);
            match row.truth {
                Truth::True if subject.key() != WATCHED => {
                    let severity = Severity::ALL.iter().position(|one| *one == row.severity);
                    census.holding[severity.unwrap_or(0)] += 1;
                }
                Truth::Unknown => census.unknown += 1,
                Truth::True | Truth::False => {}
            }
        }
        census.services = services.count();
        Some(census)
    }

    /// What an administrator wants to know.
    pub fn status(&self) -> NodeStatus {
        let role = match self.role {
            Role::Root(_) => TreeRole::Root,
            Role::Searching(_) => TreeRole::Searching,
            Role::Standby(..) => TreeRole::Standby,
            Role::Member(_) | Role::Syncing(..) | Role::Offering(..) => TreeRole::Member,
        };
        let mut children: Vec<ChildStatus> = self
            .tree
            .children()
            .map(|(link, child)| ChildStatus {
                host: child.host.clone(),
                rank: child.rank,
                origin: child.origin,
                queued_bytes: self.delivery.queued_for_child(&self.log, link),
                since_ns: child.since_ns,
            })
            .collect();
        children.sort_by_key(|child| child.rank);
        NodeStatus {
            role,
            rank: self.cx.rank,
            origin: self.cx.config.origin,
            parent: self.role.parent().map(|parent| parent.host.clone()),
            parent_rank: self.role.parent().map(|parent| parent.rank),
            position: self.log.position(),
            children,
            clients: self.client_statuses(),
            log_bytes: self.log.entries().bytes(),
            outbox_bytes: self.publishing.waiting_bytes(),
            journal: self.journal.state(),
            counters: self.cx.counters.list(),
        }
    }

    fn client_statuses(&self) -> Vec<ClientStatus> {
        let statuses = self.delivery.client_ids().filter_map(|id| {
            let (info, published) = self.publishing.client(id)?;
            let ClientUse { delivered, shed, queued_bytes, filters } =
                self.delivery.client_use(&self.log, id)?;
            Some(ClientStatus {
                client: id,
                name: info.name.clone(),
                job_id: info.job_id.clone(),
                uid: info.uid,
                pid: info.pid,
                published,
                delivered,
                shed,
                queued_bytes,
                filters,
            })
        });
        statuses.collect()
    }
}

impl Node {
    /// The parent's rank.
    pub fn parent_rank(&self) -> Option<Rank> {
        self.role.parent().map(|parent| parent.rank)
    }

    /// The place in the tree, where there is one.
    pub fn rank(&self) -> Option<Rank> {
        self.cx.rank
    }

    /// Whether this is an acting root.
    pub fn is_root(&self) -> bool {
        self.role.is_root()
    }

    /// How often a state was reached that cannot be. A simulation fails when it is not zero.
    pub fn impossible_states(&self) -> u64 {
        self.cx.counters.impossible
    }

    /// How often a child spoke about an agent that is not below it.
    pub fn refused_claims(&self) -> u64 {
        self.cx.counters.claims_refused
    }

    /// The newest epoch of the log that is consumed here.
    pub fn epoch(&self) -> Epoch {
        self.log.head()
    }

    /// The last position known to be confirmed.
    pub fn position(&self) -> Position {
        self.log.position()
    }

    /// Whether an event is here: in the log or what passed by, in a copy of a log, in the log of an
    /// earlier life, or kept for its publisher. Looks through all of it.
    pub fn holds(&self, id: EventId) -> bool {
        let replica = self.role.replica().or(self.past.as_ref().map(|past| &past.replica));
        self.log.entries().holds(id)
            || replica.is_some_and(|replica| replica.log.holds(id))
            || self.publishing.holds(id)
    }

    /// Where the events are that are here in the log or what passed by, in a copy of a log, or in
    /// the log of an earlier life. Goes through all of it.
    pub fn places(&self) -> impl Iterator<Item = (EventId, Position)> {
        let replica = self.role.replica().or(self.past.as_ref().map(|past| &past.replica));
        let copy = replica.map(|replica| (&replica.log, &replica.epochs));
        let logs = [(self.log.entries(), self.log.epochs())].into_iter().chain(copy);
        let items = logs
            .flat_map(|(log, epochs)| log.after(LogIndex::ZERO).map(move |item| (item, epochs)));
        items.flat_map(|(item, epochs)| {
            let Content::Events(run) = &item.content else { return Vec::new() };
            let place = |(at, event): (usize, crate::SealedRef<'_>)| {
                (event.id(), epochs.position(item.index + at as u64))
            };
            run.iter().enumerate().map(place).collect()
        })
    }

    /// Whether it is known here that the log went as far as a position.
    pub fn has_heard(&self, position: Position) -> bool {
        self.log.commit_index() >= position.index && self.log.epochs().contains(position)
    }

    /// Bytes of events that are held here, whatever for.
    pub fn held_bytes(&self) -> usize {
        self.log.entries().bytes()
            + self.role.replica().map_or(0, |replica| {
                replica.log.bytes() + usize::try_from(replica.kept.bytes()).unwrap_or(usize::MAX)
            })
            + self.past.as_ref().map_or(0, |past| past.replica.log.bytes())
            + self.condition_bytes()
            + self.publishing.bytes()
            + self.role.root().map_or(0, |root| root.grouping.bytes())
            + self.delivery.held_bytes()
    }

    fn condition_bytes(&self) -> usize {
        let copy = self.role.replica().map(|replica| &replica.log);
        let past = self.past.as_ref().map(|past| &past.replica.log);
        let logs = [Some(self.log.entries()), copy, past].into_iter().flatten();
        logs.map(Log::condition_bytes).sum::<usize>() + self.conditions.bytes()
    }

    /// What [`Node::held_bytes`] can be at most with its children and subscriptions of now.
    pub fn held_bytes_max(&self) -> usize {
        let config = &self.cx.config;
        let readers = self.delivery.readers();
        let window = usize::try_from(config.window_bytes).unwrap_or(usize::MAX);
        // One frame may go beyond each bound: it is looked at after it was taken.
        let slack = crate::limits::FRAME_BYTES_MAX;
        let log = config.log_bytes.max(config.ring_bytes) + config.uncommitted_bytes + slack;
        let lag = config.lag_bytes + config.lag_bytes / 4 + slack;
        let outbox = 2 * config.outbox_bytes + config.log_bytes + 2 * slack;
        let kept = usize::try_from(crate::node::dispatch::KEPT_WINDOWS).unwrap_or(usize::MAX)
            * window
            + slack;
        let conditions = 8 * config.conditions.bytes + STATEMENT_BYTES_MAX;
        2 * log
            + conditions
            + kept
            + outbox
            + crate::node::publishing::FOLD_BYTES_MAX
            + crate::node::role::grouping::CARRIER_BYTES_MAX
            + slack
            + readers * lag
            + self.tree.children().count() * (2 * window + slack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_say_by_conditions_and_lost_watches_that_they_do_not_act() {
        let count = |rows: &[(&str, &str, &str, Truth)]| {
            let mut services = ServiceRows::default();
            for (host, component, key, truth) in rows {
                services.note(&Subject::new(host, component, key), *truth);
            }
            services.count()
        };
        let lost = ("n1", "ftb.slurm", WATCHED, Truth::Unknown);
        assert_eq!(count(&[lost]), [0, 1, 0, 0, 0]);
        let moved = ("n2", "ftb.slurm", WATCHED, Truth::True);
        let left_behind = ("n1", "", "SLURM_UNREACHABLE", Truth::Unknown);
        assert_eq!(count(&[lost, left_behind, moved]), [0; 5], "it runs elsewhere");
        let cut_off = ("n2", "", "SLURM_UNREACHABLE", Truth::True);
        assert_eq!(count(&[moved, cut_off]), [0, 1, 0, 0, 0]);
        assert_eq!(count(&[("n1", "", "SLURM_UNREACHABLE", Truth::False)]), [0; 5]);
        let open = ("n1", "ftb-act", "BREAKER_OPEN", Truth::True);
        let lives = ("n1", "ftb.act", WATCHED, Truth::True);
        assert_eq!(count(&[open, lives]), [1, 0, 0, 0, 0]);
        let gone = ("n1", "ftb.act", WATCHED, Truth::Unknown);
        assert_eq!(count(&[gone]), [0, 0, 0, 1, 0], "it is not its breaker");
        let bridge = ("n1", "ftb.bridge", WATCHED, Truth::Unknown);
        let no_nats = ("n2", "ftb-bridge", "NATS_UNREACHABLE", Truth::True);
        assert_eq!(count(&[bridge]), [0, 0, 1, 0, 0]);
        assert_eq!(count(&[no_nats]), [0, 0, 1, 0, 0]);
        assert_eq!(count(&[("n1", "ftb.ipmi", WATCHED, Truth::Unknown)]), [0; 5]);
        let page = ("n1", "pager", "PAGE_FAILED", Truth::True);
        assert_eq!(count(&[page, lives]), [0, 0, 0, 0, 1]);
        let left_behind = ("n1", "pager", "PAGE_FAILED", Truth::Unknown);
        assert_eq!(count(&[left_behind]), [0, 0, 0, 0, 1]);
        let moved = ("n2", "ftb.act", WATCHED, Truth::True);
        assert_eq!(count(&[left_behind, gone, moved]), [0; 5], "it runs elsewhere");
    }
}
