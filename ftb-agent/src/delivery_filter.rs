//! What a client may read of what the core has for it, and which of it is proven.
//!
//! The last hop alone decides that: on the way through the tree other agents carry the event, and
//! each removes it only from deliveries to its own clients. Not responsible for: the rules
//! ([`crate::access`]).

use crate::access::{Access, Allowed};
use crate::signing::Signing;
use arc_swap::ArcSwap;
use ftb_core::condition::{Truth, WATCHED};
use ftb_core::node::api::{SubscriptionId, ToClient};
use ftb_core::numbers::LogIndex;
use ftb_core::sealed::SealedRef;
use ftb_core::{Run, Severity};
use ftb_proto::client::{Outgoing, encode_history_end};
use ftb_transport::Credentials;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Removes events from deliveries, and names from gaps, that the client may not read, and
/// conditions that no signature proves; marks the verified events.
pub struct DeliveryFilter {
    access: Arc<ArcSwap<Access>>,
    signing: Arc<Signing>,
    allowed: Allowed,
    /// Removed statements that may make a host unhealthy, by subscription.
    hidden: BTreeMap<SubscriptionId, u32>,
    /// Whether the client knows that signatures are required. `None`: the configuration may have
    /// changed since the answer to its hello.
    required: Option<bool>,
}

/// Most subscriptions of a client whose removed statements are counted.
const HIDDEN_MAX: usize = 1_024;

impl DeliveryFilter {
    /// For the deliveries to a client with these credentials.
    pub fn new(access: Arc<ArcSwap<Access>>, signing: Arc<Signing>, who: Credentials) -> Self {
        let allowed = access.load().of(who);
        Self { access, signing, allowed, hidden: BTreeMap::new(), required: None }
    }

    /// What of a message the client may read; `None`: nothing.
    pub fn readable(&mut self, message: ToClient) -> Option<Outgoing> {
        self.allowed.refresh(&self.access.load());
        let core = |message| Some(Outgoing::Core(message));
        match message {
            ToClient::Covered { subscription, position, history_ended: true } => {
                let hidden = self.hidden.remove(&subscription).unwrap_or(0);
                let covered = encode_history_end(subscription, position, hidden);
                Some(Outgoing::Shell(covered))
            }
            ToClient::Deliver { subscription, epoch, items } => {
                let items = match self.allowed.reads_all() {
                    true => items,
                    false => self.readable_items(subscription, items),
                };
                // Read once: the configuration may change while the signatures are checked.
                let demands = self.signing.demands();
                let (items, verified) = self.signing.prove(&demands, items);
                if items.is_empty() {
                    return None;
                }
                let is_required = self.signing.requires_signatures(&demands);
                let requires_signatures = self.changed_demand(is_required);
                let deliver =
                    Outgoing::Deliver { subscription, epoch, items, verified, requires_signatures };
                Some(deliver)
            }
            message if self.allowed.reads_all() => core(message),
            ToClient::Gap { subscription, gap } => {
                let gap = self.allowed.readable_gap(gap)?;
                core(ToClient::Gap { subscription, gap })
            }
            message => core(message),
        }
    }

    /// Whether signatures are required, if the client does not know it. It learns that with the
    /// first events to which it applies.
    fn changed_demand(&mut self, is_required: bool) -> Option<bool> {
        (self.required.replace(is_required) != Some(is_required)).then_some(is_required)
    }

    fn readable_items(
        &mut self,
        subscription: SubscriptionId,
        items: Vec<(LogIndex, Run)>,
    ) -> Vec<(LogIndex, Run)> {
        let mut readable = Vec::with_capacity(items.len());
        for (first, run) in items {
            if run.groups().all(|(_, event)| self.may_read(event)) {
                readable.push((first, run));
                continue;
            }
            self.count_hidden(subscription, &run);
            let groups = run.groups().filter(|(_, event)| self.may_read(*event));
            let parts = groups
                .filter_map(|(places, _)| Some((first + places.start as u64, run.slice(places)?)));
            readable.extend(parts);
        }
        readable
    }

    fn may_read(&self, event: SealedRef<'_>) -> bool {
        self.allowed.may_read(event.space().as_bytes(), event.uid())
    }

    fn count_hidden(&mut self, subscription: SubscriptionId, run: &Run) {
        let may_hurt = |event: &SealedRef<'_>| {
            event.condition().is_some_and(|condition| match condition.head().truth {
                Truth::True => {
                    condition.severity() >= Severity::Warning && condition.key() != WATCHED
                }
                Truth::Unknown => true,
                Truth::False => false,
            })
        };
        let hidden = run.iter().filter(may_hurt).filter(|event| !self.may_read(*event)).count();
        if hidden > 0 {
            let counted = self.hidden.entry(subscription).or_default();
            *counted = counted.saturating_add(u32::try_from(hidden).unwrap_or(u32::MAX));
            while self.hidden.len() > HIDDEN_MAX {
                self.hidden.pop_first();
            }
        }
    }
}
