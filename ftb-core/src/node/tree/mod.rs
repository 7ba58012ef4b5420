//! The place of an agent in the tree: the search for a parent, the choice of one, and the children.
//!
//! Responsible for: whom to ask, which answer to take, who may be a child. Not responsible for: the
//! log, and what a change of the place means for the other parts ([`crate::node::dispatch`]).

mod children;
mod epoch_rate;
mod mismatches;
mod plausible;
mod search;
mod uplink;

pub(crate) use children::{Child, check_listed};
pub(crate) use epoch_rate::Raise;
pub(crate) use plausible::implausible;
pub use plausible::{EPOCH_FLOOR, INDEX_FLOOR, check_stored};
pub(crate) use search::NextDial;

use crate::ident::{OriginId, Rank};
use crate::node::api::LinkId;
use crate::node::cx::Cx;
use epoch_rate::EpochRates;
use mismatches::Findings;
use std::collections::BTreeMap;
use uplink::Uplink;

/// The part of an agent that finds its place.
pub(crate) struct Tree {
    uplink: Uplink,
    children: BTreeMap<LinkId, Child>,
    /// Incarnations whose place below us another one has taken.
    replaced: BTreeMap<Rank, OriginId>,
    /// Announced differences between agents.
    findings: Findings,
    epoch_rates: EpochRates,
}

impl Tree {
    pub(crate) fn new() -> Self {
        Self {
            uplink: Uplink::new(),
            children: BTreeMap::new(),
            replaced: BTreeMap::new(),
            findings: Findings::new(),
            epoch_rates: EpochRates::default(),
        }
    }

    /// The agent of a rank says an epoch that is higher than all that are known here.
    pub(crate) fn raise(&mut self, cx: &Cx, rank: Rank, epoch: u64) -> Raise {
        self.epoch_rates.raise(rank, epoch, cx.now.mono_ns)
    }
}
