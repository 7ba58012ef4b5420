//! Which subscriptions may want an event, found by its event space: those that want another space
//! cost nothing.

use crate::filter::Filter;
use crate::limits::SPACE_BYTES_MAX;
use crate::node::api::{ClientId, SubscriptionId};
use crate::sealed::SealedRef;
use std::collections::{BTreeMap, BTreeSet};

/// One subscription of one client.
type SubscriptionKey = (ClientId, SubscriptionId);

/// All subscriptions of a node.
#[derive(Debug, Default)]
pub(super) struct SubscriptionIndex {
    /// By each event space, in lower case, that a filter names without wildcard.
    by_space: BTreeMap<Box<[u8]>, BTreeSet<SubscriptionKey>>,
    /// Those that may want any space.
    open: BTreeSet<SubscriptionKey>,
}

impl SubscriptionIndex {
    pub(super) fn insert(&mut self, client: ClientId, id: SubscriptionId, filter: &Filter) {
        let Some(spaces) = filter.literal_spaces() else {
            self.open.insert((client, id));
            return;
        };
        for space in spaces {
            self.by_space.entry(space.into_bytes().into()).or_default().insert((client, id));
        }
    }

    /// Takes the same filter out again.
    pub(super) fn remove(&mut self, client: ClientId, id: SubscriptionId, filter: &Filter) {
        self.open.remove(&(client, id));
        for space in filter.literal_spaces().unwrap_or_default() {
            if let Some(keys) = self.by_space.get_mut(space.as_bytes()) {
                keys.remove(&(client, id));
                if keys.is_empty() {
                    self.by_space.remove(space.as_bytes());
                }
            }
        }
    }

    /// The subscriptions that may want an event; each once, in no order that means anything.
    pub(super) fn candidates(&self, event: SealedRef<'_>) -> impl Iterator<Item = SubscriptionKey> {
        let space = event.space().as_bytes();
        let mut lower = [0; SPACE_BYTES_MAX];
        // A longer one is none, and nothing wants it.
        let named = lower.get_mut(..space.len()).and_then(|lower| {
            lower.copy_from_slice(space);
            lower.make_ascii_lowercase();
            self.by_space.get(&*lower)
        });
        self.open.iter().chain(named.into_iter().flatten()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sealed;

    #[test]
    fn only_who_may_want_the_space_is_asked() {
        let filters = [
            "event_space=FTB.test",
            "event_space=ftb.other",
            "event_space=ftb.other|ftb.test",
            "event_space=ftb.*",
            "severity>=error",
        ];
        let client = ClientId(1);
        let mut index = SubscriptionIndex::default();
        let mut all = Vec::new();
        for (id, text) in (0..).map(SubscriptionId).zip(filters) {
            let filter = Filter::parse(text).expect("a filter");
            index.insert(client, id, &filter);
            all.push((id, filter));
        }
        let candidates = |index: &SubscriptionIndex| {
            let mut found: Vec<u32> =
                index.candidates(sealed(1, 1).as_ref()).map(|key| key.1.0).collect();
            found.sort_unstable();
            found
        };
        assert_eq!(candidates(&index), [0, 2, 3, 4]);
        for (id, filter) in &all {
            index.remove(client, *id, filter);
        }
        assert_eq!(candidates(&index), [0_u32; 0]);
        assert!(index.by_space.is_empty() && index.open.is_empty());
    }
}
