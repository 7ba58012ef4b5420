//! What a whole subtree wants: many filters merged into few.

use super::Filter;
use crate::sealed::SealedRef;
use crate::severity::Severity;
use crate::spaces::Spaces;

/// Most filters that an agent tells its parent; with more it asks for more than it needs.
pub const FILTERS_MAX: usize = 64;

/// Filters merged with covering: none of them covers another. With more than [`FILTERS_MAX`] they
/// are widened (first to space and severity, then to everything): the subtree then gets more than
/// it asked for and drops it, never less.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct FilterSet {
    filters: Vec<Filter>,
}

impl FilterSet {
    /// Wants nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Merges filters.
    pub fn merge<'a, I: IntoIterator<Item = &'a Filter>>(filters: I) -> Self {
        let mut set = Self::new();
        for filter in filters {
            set.insert(filter);
        }
        set
    }

    /// Adds one; says whether the set wants more than before.
    pub fn insert(&mut self, filter: &Filter) -> bool {
        if self.covers(filter) {
            return false;
        }
        self.add(filter.clone());
        if self.filters.len() > FILTERS_MAX {
            let narrow = std::mem::take(&mut self.filters);
            for filter in narrow {
                let wide = filter.widened();
                if !self.covers(&wide) {
                    self.add(wide);
                }
            }
        }
        if self.filters.len() > FILTERS_MAX {
            let both = [false, true].map(|single| Filter::everything().with_single(single));
            let is_needed = |all: &Filter| self.filters.iter().any(|filter| all.covers(filter));
            self.filters = both.into_iter().filter(is_needed).collect();
        }
        true
    }

    fn add(&mut self, filter: Filter) {
        self.filters.retain(|old| !filter.covers(old));
        self.filters.push(filter);
    }

    /// Whether one of the filters may want an event of those spaces that is no worse than that;
    /// `None`: of any severity.
    pub fn may_want(&self, severity_max: Option<Severity>, spaces: &Spaces) -> bool {
        self.filters.iter().any(|filter| filter.may_want(severity_max, spaces))
    }

    /// Whether one of the filters covers that one.
    pub fn covers(&self, filter: &Filter) -> bool {
        self.filters.iter().any(|ours| ours.covers(filter))
    }

    /// Whether each filter of the other set is covered.
    pub fn covers_set(&self, other: &Self) -> bool {
        other.filters.iter().all(|filter| self.covers(filter))
    }

    /// The hosts of the conditions that the filters want ([`Filter::subject_hosts`]).
    pub fn subject_hosts(&self) -> Option<Vec<String>> {
        let hosts: Option<Vec<Vec<String>>> =
            self.filters.iter().map(Filter::subject_hosts).collect();
        Some(hosts?.concat())
    }

    /// Whether one of the filters wants that event.
    pub fn matches<'a>(&self, event: impl Into<SealedRef<'a>>) -> bool {
        let event = event.into();
        self.filters.iter().any(|filter| filter.matches(event))
    }

    /// The filters.
    pub fn filters(&self) -> &[Filter] {
        &self.filters
    }

    /// Whether nothing is wanted.
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }
}
