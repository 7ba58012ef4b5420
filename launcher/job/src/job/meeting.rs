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
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The key of the ranks that are left, in the result of a barrier; none while all are.
const MEMBERS: &str = "ftb-members";

/// Opens when this rank knows who is left. Before that a peer may connect: it left the barrier
/// earlier.
#[derive(Default)]
struct Gate {
    is_open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let is_open = lock(&self.is_open);
        let waited = self.opened.wait_while(is_open, |is_open| !*is_open);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Opens a gate at its end.
struct Opener(Arc<Gate>);

impl Drop for Opener {
    fn drop(&mut self) {
        *lock(&self.0.is_open) = true;
        self.0.opened.notify_all();
    }
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

    /// Opens this rank's endpoints and waits for all others. Addresses are looked up on demand.
    fn fence(&mut self, fence: u64) -> Result<()> {
        let (number, size) = (self.config.rank, self.config.size);
        let token = stream::random_bytes().map_err(|error| Error::Channel {
            channel: "any",
            problem: format!("no secret for it: {error}"),
        })?;
        let router = Arc::clone(&self.router);
        let gate = Arc::new(Gate::default());
        let opener = Opener(Arc::clone(&gate));
        let opening = Opening {
            own: Endpoint {
                rank: number,
                node: self.config.node.clone(),
                token,
                addresses: BTreeMap::new(),
            },
            size,
            fence,
            inbox: Arc::clone(&self.inbox),
            counts: Arc::new(move |peer| {
                gate.pass();
                router.counts(peer)
            }),
        };
        self.router.set_directory(None);
        let own = self.registry.open(&opening)?;
        let Some(pmi) = self.pmi.clone() else {
            return Ok(());
        };
        let members = {
            let mut pmi = lock(&pmi);
            pmi.put(&format!("addr-{fence}-{number}"), &own.encode())?;
            pmi.barrier()?;
            members_in(&mut pmi, size)?
        };
        self.adopt(fence, members)?;
        drop(opener);
        let registry = self.registry.clone();
        self.router.set_directory(Some(Box::new(move |peer| {
            let address = lock(&pmi).get(&format!("addr-{fence}-{peer}"))?;
            registry.route(&own, &Endpoint::decode(peer, &address)?)
        })));
        Ok(())
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

fn members_in(pmi: &mut Pmi, size: u32) -> Result<Members> {
    let Some(text) = pmi.find(MEMBERS)? else {
        return Ok(Members::all(size));
    };
    Members::parse(&text, size).ok_or_else(|| Error::Pmi {
        command: "get",
        problem: format!("{text:.64?} is no list of ranks below {size}"),
    })
}
