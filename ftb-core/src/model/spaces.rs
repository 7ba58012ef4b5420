//! The event spaces of events that are missing.

use crate::limits::GAP_SPACES_MAX;
use crate::space::{EventSpace, NameError};
use std::sync::Arc;

/// A few event spaces by name, or any. Cloning is cheap.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Spaces(Option<Arc<[EventSpace]>>);

impl Spaces {
    /// It is not known which.
    pub const ANY: Self = Self(None);

    /// Those names; none of them, or more than [`GAP_SPACES_MAX`]: any.
    ///
    /// # Errors
    /// [`NameError`] where one of them is no event space.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, NameError> {
        let mut spaces: Vec<EventSpace> = Vec::new();
        for name in names {
            let space = EventSpace::new(name)?;
            if !spaces.contains(&space) {
                spaces.push(space);
            }
            if spaces.len() > GAP_SPACES_MAX {
                return Ok(Self::ANY);
            }
        }
        Ok(Self((!spaces.is_empty()).then(|| spaces.into())))
    }

    /// The one of an event.
    pub fn of(space: &str) -> Self {
        Self::named([space]).unwrap_or(Self::ANY)
    }

    /// Their names; `None`: any.
    pub fn names(&self) -> Option<&[EventSpace]> {
        self.0.as_deref()
    }

    /// What concerns these or those.
    #[must_use]
    pub fn joined(&self, others: &Self) -> Self {
        if self == others {
            return self.clone();
        }
        let (Some(ours), Some(theirs)) = (self.names(), others.names()) else { return Self::ANY };
        let all = ours.iter().chain(theirs).map(EventSpace::as_str);
        Self::named(all).unwrap_or(Self::ANY)
    }

    /// Bytes of the names.
    pub fn len(&self) -> usize {
        self.names().unwrap_or_default().iter().map(|space| space.as_str().len()).sum()
    }

    /// Whether no name is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_are_named_and_many_are_any() {
        let two =
            Spaces::of("ftb.ib").joined(&Spaces::of("ftb.ipmi")).joined(&Spaces::of("ftb.ib"));
        assert_eq!(two.names().map(<[EventSpace]>::len), Some(2));
        assert_eq!(two.len(), "ftb.ibftb.ipmi".len());
        assert_eq!(two.joined(&Spaces::ANY), Spaces::ANY);
        let names: Vec<String> = (0..=GAP_SPACES_MAX).map(|at| format!("ftb.s{at}")).collect();
        let named = |count: usize| Spaces::named(names[..count].iter().map(String::as_str));
        assert!(named(GAP_SPACES_MAX).is_ok_and(|spaces| !spaces.is_empty()));
        assert_eq!(named(GAP_SPACES_MAX + 1), Ok(Spaces::ANY));
        assert_eq!(Spaces::named([]), Ok(Spaces::ANY));
        assert!(Spaces::named(["no..space"]).is_err());
    }
}
