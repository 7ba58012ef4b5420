//! The barrier of a start, a move or a recovery: all ranks meet, learn who they are, and connect.

use super::divide::Divided;
use super::members::Members;
use super::role::{Role, RoleEvent};
use super::{Job, Restoring, Source};
use crate::agreement::Agreement;
use crate::channel::{Endpoint, Opening, stream};
use crate::control::NOT_DIVIDED;
use crate::error::{Error, Result};
use crate::lock;
use crate::pmi::Pmi;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// The key of the ranks that are left, in the result of a barrier; none while all are.
const MEMBERS: &str = "ftb-members";

/// The key of the ranks that have put their addresses, in the result of a barrier: the others are
/// the processes of before. None under a launcher that does not say so.
const JOINED: &str = "ftb-joined";

/// The key of the address of a rank.
fn address_key(rank: u32) -> String {
    format!("ftb-addr-{rank}")
}

/// What a rank knows of addresses.
#[derive(Default)]
pub(super) struct Addresses {
    /// Its own, once its channels were opened.
    own: Option<Endpoint>,
    /// Those of other ranks that it has looked up.
    others: Arc<Mutex<BTreeMap<u32, Endpoint>>>,
}

impl Job {
    /// Meets all ranks in the barrier and connects.
    pub(super) fn meet(&mut self, episode: u64) -> Result<()> {
        self.fence(episode)?;
        self.turn(RoleEvent::Met);
        self.inbox.end_suspension();
        self.router.resume()?;
        self.turn(match self.restore {
            None => RoleEvent::Connected,
            Some(_) => RoleEvent::ConnectedFromSet,
        });
        Ok(())
    }

    /// Meets all others. A rank whose channels are open keeps its address and the links to
    /// processes that live; another one opens them and puts its address. Addresses are looked up on
    /// demand.
    fn fence(&mut self, fence: u64) -> Result<()> {
        let (number, size) = (self.config.rank, self.config.size);
        self.router.set_directory(None);
        self.inbox.begin(fence);
        let kept = self.addresses.own.take().filter(|_| self.registry.begin(fence));
        let is_new = kept.is_none();
        let own = match kept {
            Some(own) => own,
            None => self.open(fence)?,
        };
        self.addresses.own = Some(own.clone());
        let Some(pmi) = self.pmi.clone() else {
            self.registry.meet(&BTreeSet::new());
            return Ok(());
        };
        let (members, joined) = {
            let mut pmi = lock(&pmi);
            if is_new {
                pmi.put(&address_key(number), &own.encode())?;
            }
            pmi.barrier()?;
            (members_in(&mut pmi, size)?, joined_in(&mut pmi, size)?)
        };
        self.adopt(fence, members)?;
        let is_gone = |rank: &u32| {
            let is_replaced = joined.as_ref().is_some_and(|joined| joined.contains(rank));
            *rank != number && (is_replaced || self.members.rank_of(*rank).is_none())
        };
        let gone: BTreeSet<u32> = (0..size).filter(is_gone).collect();
        let is_known = |rank: &u32| !is_new && joined.is_some() && !gone.contains(rank);
        lock(&self.addresses.others).retain(|rank, _| is_known(rank));
        self.registry.meet(&gone);
        let (registry, addresses) = (self.registry.clone(), Arc::clone(&self.addresses.others));
        self.router.set_directory(Some(Box::new(move |peer| {
            if let Some(known) = lock(&addresses).get(&peer) {
                return registry.route(&own, known);
            }
            let address = lock(&pmi).get(&address_key(peer))?;
            let found = Endpoint::decode(peer, &address)?;
            let route = registry.route(&own, &found)?;
            lock(&addresses).insert(peer, found);
            Ok(route)
        })));
        Ok(())
    }

    /// Opens this rank's endpoints.
    fn open(&self, fence: u64) -> Result<Endpoint> {
        let token = stream::random_bytes().map_err(|error| Error::Channel {
            channel: "any",
            problem: format!("no secret for it: {error}"),
        })?;
        let router = Arc::clone(&self.router);
        self.registry.open(&Opening {
            own: Endpoint {
                rank: self.config.rank,
                node: self.config.node.clone(),
                token,
                addresses: BTreeMap::new(),
            },
            size: self.config.size,
            fence,
            inbox: Arc::clone(&self.inbox),
            counts: Arc::new(move |peer| router.counts(peer)),
        })
    }

    /// These ranks are left. Where others made the set that this process goes on from, nothing of
    /// its communication counts, and its state is divided anew.
    fn adopt(&mut self, episode: u64, members: Members) -> Result<()> {
        if members == self.members {
            return Ok(());
        }
        let number = self.config.rank;
        if members.rank_of(number).is_none() {
            return Err(Error::Pmi {
                command: "barrier_in",
                problem: format!("process {number} is not one of {:?}", members.numbers()),
            });
        }
        let before = core::mem::replace(&mut self.members, members);
        tracing::info!(rank = number, episode, members = ?self.members.numbers(), "fewer ranks");
        let nothing = || (0..self.config.size).map(|_| (0, Vec::new()));
        self.router.go_back(nothing().collect());
        self.inbox.go_back(episode, nothing().map(|_| (0, Vec::new())).collect());
        let passed = self.control.passed();
        self.control.go_back(Agreement::new(number, self.members.numbers(), episode, passed));
        let Some(Restoring { source, set, .. }) = &mut self.restore else {
            return Ok(());
        };
        *source = Source::Divided(Divided { set: set.clone(), before });
        // A process that has just started cannot have said yet whether it divides:
        // `State::restore_part` refuses where it does not.
        if self.control.divides() || self.role == Role::Bootstrapping {
            return Ok(());
        }
        let why = NOT_DIVIDED.to_owned();
        Err(Error::Environment { variable: "FTB_RESTORE", value: set.clone(), problem: why })
    }
}

/// The ranks that have put their addresses in the last barrier, if its result has them.
fn joined_in(pmi: &mut Pmi, size: u32) -> Result<Option<BTreeSet<u32>>> {
    let Some(text) = pmi.find(JOINED)? else {
        return Ok(None);
    };
    if text.is_empty() {
        return Ok(Some(BTreeSet::new()));
    }
    let joined = Members::parse(&text, size).ok_or_else(|| no_ranks(&text, size))?;
    Ok(Some(joined.numbers().iter().copied().collect()))
}

fn no_ranks(text: &str, size: u32) -> Error {
    Error::Pmi { command: "get", problem: format!("{text:.64?} is no list of ranks below {size}") }
}

fn members_in(pmi: &mut Pmi, size: u32) -> Result<Members> {
    let Some(text) = pmi.find(MEMBERS)? else {
        return Ok(Members::all(size));
    };
    Members::parse(&text, size).ok_or_else(|| no_ranks(&text, size))
}
