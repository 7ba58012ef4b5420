//! The filters of an agent's subtree, what the parent knows of them, and since which index all
//! their matches come down.

use crate::filter::{Filter, FilterSet};
use crate::frame::Interest;
use crate::numbers::LogIndex;

/// A filter set, and the index behind which the agent's store has everything that it matches.
#[derive(Clone, Debug)]
struct Active {
    filters: FilterSet,
    since: LogIndex,
}

/// Most older filter sets remembered; without them a widening would forget since when the narrower
/// interest is complete.
const HISTORY_MAX: usize = 8;

/// The interest of a subtree.
#[derive(Clone, Debug, Default)]
pub(super) struct Interests {
    reported: FilterSet,
    version: u64,
    active_version: u64,
    /// Where the stream from the parent began.
    resumed: LogIndex,
    /// Oldest first; a later one covers all earlier ones.
    active: Vec<Active>,
}

impl Interests {
    /// The subtree wants this now. Says whether the parent must know.
    pub(super) fn want(&mut self, wanted: FilterSet) -> bool {
        if wanted.covers_set(&self.reported) && self.reported.covers_set(&wanted) {
            return false;
        }
        // What is not wanted any more may stop coming down at once, long before we hear that: from
        // now on only what is still wanted is complete here.
        let kept = self.active.iter().find(|old| old.filters.covers_set(&wanted));
        let kept = kept.map(|old| Active { filters: wanted.clone(), since: old.since });
        self.active.retain(|old| wanted.covers_set(&old.filters));
        if let Some(kept) = kept
            && self.complete_since(&wanted).is_none()
        {
            self.active.push(kept);
        }
        self.reported = wanted;
        self.version += 1;
        true
    }

    /// What the subtree wants.
    pub(super) fn wanted(&self) -> &FilterSet {
        &self.reported
    }

    /// Whether the parent knows of a filter, or will.
    pub(super) fn announces(&self, filter: &Filter) -> bool {
        self.reported.covers(filter)
    }

    /// What to tell the parent.
    pub(super) fn reported(&self) -> Interest {
        Interest { version: self.version, filters: self.reported.filters().to_vec() }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// That version is active up to the acting root; its matches behind the index come down.
    pub(super) fn activate(&mut self, version: u64, index: LogIndex) {
        if version != self.version || version == self.active_version {
            return;
        }
        self.active_version = version;
        // A parent that lags behind us names an index that was before its stream to us began.
        self.set_active(index.max(self.resumed));
    }

    /// On a new link, or in another epoch history: all matches of the reported filters come down
    /// after that index.
    pub(super) fn restart(&mut self, index: LogIndex) {
        for active in &mut self.active {
            active.since = active.since.min(index);
        }
        self.resumed = index;
        self.set_active(index);
    }

    fn set_active(&mut self, index: LogIndex) {
        let filters = self.reported.clone();
        let covering = self.active.iter().find(|old| old.filters.covers_set(&filters));
        let since = covering.map_or(index, |old| old.since);
        self.active.retain(|old| old.since < since && filters.covers_set(&old.filters));
        self.active.push(Active { filters, since });
        if self.active.len() > HISTORY_MAX {
            self.active.remove(0);
        }
    }

    /// Since which index everything that a filter matches is here; `None`: it is not active.
    pub(super) fn complete_since(&self, filters: &FilterSet) -> Option<LogIndex> {
        self.active.iter().find(|active| active.filters.covers_set(filters)).map(|a| a.since)
    }

    /// Whether the interest that is active up to the root covers a filter.
    pub(super) fn covers(&self, filter: &Filter) -> bool {
        self.version == self.active_version
            && self.active.last().is_some_and(|active| active.filters.covers(filter))
    }

    /// On a new link no filter counts as active until the parent reports it.
    pub(super) fn unsettle(&mut self) {
        self.active_version = 0;
        self.version += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(texts: &[&str]) -> FilterSet {
        let filters: Vec<Filter> =
            texts.iter().map(|text| Filter::parse(text).expect("a filter")).collect();
        FilterSet::merge(&filters)
    }

    #[test]
    fn a_widened_interest_remembers_since_when_the_narrower_one_is_complete() {
        let mut interests = Interests::default();
        let narrow = set(&["event_space=ftb.ipmi"]);
        let wide = set(&["event_space=ftb.ipmi", "event_space=ftb.ib.*"]);
        assert!(interests.want(narrow.clone()));
        assert!(!interests.want(narrow.clone()));
        interests.activate(1, 10.into());
        assert!(interests.want(wide.clone()));
        assert_eq!(interests.complete_since(&wide), None);
        interests.activate(1, 15.into());
        interests.activate(2, 20.into());
        assert_eq!(interests.complete_since(&narrow), Some(10.into()));
        assert_eq!(interests.complete_since(&wide), Some(20.into()));
        assert!(interests.want(narrow.clone()));
        assert_eq!(interests.complete_since(&wide), None, "it may have stopped to come");
        assert!(interests.want(wide.clone()));
        interests.restart(40.into());
        assert_eq!(interests.complete_since(&wide), Some(40.into()));
        assert_eq!(interests.complete_since(&narrow), Some(10.into()));
        assert!(interests.want(narrow.clone()));
        interests.activate(5, 30.into());
        assert!(interests.want(wide.clone()));
        interests.activate(6, 35.into());
        assert_eq!(interests.complete_since(&wide), Some(40.into()), "the stream began there");
        assert!(interests.want(narrow.clone()));
        interests.activate(7, 50.into());
        assert_eq!(interests.complete_since(&wide), None);
        assert_eq!(interests.complete_since(&narrow), Some(10.into()));
    }
}
