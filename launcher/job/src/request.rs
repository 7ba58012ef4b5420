//! The requests of the launcher: the five events of `ftb.jl` for ranks.
//!
//! Pure: from an event's name, payload and tags to a request. Not responsible for the source of
//! events.

use crate::config::is_name;
use crate::limits;
use crate::repair::RepairNews;
use ftb_core::catalog::names;
use serde::{Deserialize, Serialize};

/// A request with its episode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The episode: grows within the job, and names the migration barrier.
    pub episode: u64,
    /// What is asked.
    pub kind: RequestKind,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestKind {
    /// `FTB_CHECKPOINT`: every rank saves itself and goes on.
    Checkpoint {
        /// The set that the images belong to.
        set: String,
    },
    /// `FTB_MIGRATE`: these ranks save themselves and leave; the others wait for their return
    /// elsewhere.
    Migrate {
        /// The set that the images belong to.
        set: String,
        /// The ranks that leave.
        ranks: Vec<u32>,
    },
    /// `FTB_JL_ROLLBACK`: ranks have died; the others restore their state of that set in place.
    Rollback {
        /// The set that all go back to.
        set: String,
        /// Ranks that have died; older processes of these ranks do not count.
        ranks: Vec<u32>,
        /// Those of them that the job goes on without.
        left: Vec<u32>,
    },
    /// `FTB_MIGRATE_ABORT`: ranks that have not left stay.
    Abort,
    /// `FTB_JL_REPAIR`: dead ranks that the job goes on without, and what was decided.
    Repair(RepairNews),
}

/// A malformed event for ranks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event}: {problem}")]
pub struct RequestError {
    /// The event's name.
    pub event: String,
    /// What is wrong with it.
    pub problem: String,
}

impl Request {
    /// Reads an event of the space `ftb.jl`; `Ok(None)` if it is not for ranks.
    ///
    /// # Errors
    /// [`RequestError`] for a malformed event; it must be ignored.
    pub fn from_event<'a>(
        name: &str,
        payload: &str,
        tag: &dyn Fn(&str) -> Option<&'a str>,
    ) -> Result<Option<Self>, RequestError> {
        let problem = |problem: String| RequestError { event: name.to_owned(), problem };
        let set = || {
            let set = tag("set").unwrap_or(payload);
            match is_name(set) {
                true => Ok(set.to_owned()),
                false => Err(problem(format!("{set:?} is no set id"))),
            }
        };
        let list = |key: &str| {
            let ranks = joined(key, tag);
            parse_ranks(&ranks).ok_or_else(|| problem(format!("{ranks:.64?} is no list of ranks")))
        };
        let ranks = || list("ranks");
        let kind = match name.to_ascii_uppercase().as_str() {
            names::FTB_CHECKPOINT => RequestKind::Checkpoint { set: set()? },
            names::FTB_MIGRATE => RequestKind::Migrate { set: set()?, ranks: ranks()? },
            names::FTB_JL_ROLLBACK => {
                let left = tag("left").map_or(Ok(Vec::new()), |_| list("left"))?;
                RequestKind::Rollback { set: set()?, ranks: ranks()?, left }
            }
            names::FTB_MIGRATE_ABORT => RequestKind::Abort,
            names::FTB_JL_REPAIR => {
                let news = serde_json::from_str(payload);
                RequestKind::Repair(news.map_err(|error| problem(error.to_string()))?)
            }
            _ => return Ok(None),
        };
        let episode = tag("episode").unwrap_or_default();
        let episode = episode.parse().map_err(|_| problem(format!("{episode:?} is no episode")))?;
        Ok(Some(Self { episode, kind }))
    }

    /// The set that images of this request belong to.
    pub fn set(&self) -> Option<&str> {
        match &self.kind {
            RequestKind::Checkpoint { set }
            | RequestKind::Migrate { set, .. }
            | RequestKind::Rollback { set, .. } => Some(set),
            RequestKind::Abort | RequestKind::Repair(_) => None,
        }
    }
}

/// A list, with the tags in which a long one goes on: `ranks`, `ranks2`, `ranks3`.
fn joined<'a>(key: &str, tag: &dyn Fn(&str) -> Option<&'a str>) -> String {
    let mut words = tag(key).unwrap_or_default().to_owned();
    let more = (2..=limits::RANKS_MAX).map_while(|number| tag(&format!("{key}{number}")));
    more.for_each(|more| words.extend([" ", more]));
    words
}

/// Ranks and ranges of ranks: `0-255 300`.
fn parse_ranks(text: &str) -> Option<Vec<u32>> {
    let mut ranks = Vec::new();
    for word in text.split_ascii_whitespace() {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= limits::RANKS_MAX {
            return None;
        }
        ranks.extend(first..=last);
        if ranks.len() > limits::RANKS_MAX as usize {
            return None;
        }
    }
    (!ranks.is_empty()).then_some(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str, payload: &str, tags: &[(&str, &str)]) -> Result<Option<Request>, String> {
        let tag = |key: &str| tags.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        Request::from_event(name, payload, &tag).map_err(|error| error.to_string())
    }

    #[test]
    fn the_five_events_for_ranks_are_read_and_all_others_ignored() {
        let checkpoint = RequestKind::Checkpoint { set: "s1".into() };
        let expected = |kind| Ok(Some(Request { episode: 4, kind }));
        assert_eq!(parse("FTB_CHECKPOINT", "s1", &[("episode", "4")]), expected(checkpoint));
        assert_eq!(
            parse("ftb_migrate", "node02", &[("episode", "4"), ("set", "m4"), ("ranks", "2 3")]),
            expected(RequestKind::Migrate { set: "m4".into(), ranks: vec![2, 3] })
        );
        let again = RequestKind::Rollback { set: "s1".into(), ranks: vec![0, 2], left: vec![2] };
        let tags = [("episode", "4"), ("set", "s1"), ("ranks", "0 2"), ("left", "2")];
        assert_eq!(parse("FTB_JL_ROLLBACK", "s1", &tags), expected(again));
        assert_eq!(
            parse("FTB_MIGRATE_ABORT", "why", &[("episode", "4")]),
            expected(RequestKind::Abort)
        );
        let news = r#"{"dead":"1,3-4","revoked":[[2,0]],"seen":1,"decided":null}"#;
        let (dead, revoked) = ([1, 3, 4].into(), vec![(2, 0)]);
        let repair = RequestKind::Repair(RepairNews { dead, revoked, seen: 1, decided: None });
        assert_eq!(parse("FTB_JL_REPAIR", news, &[("episode", "4")]), expected(repair));
        assert_eq!(parse("FTB_JL_ALIVE", "", &[]), Ok(None));
    }

    /// That of half of a job of 512 ranks, and of every second rank of one of 1,024.
    #[test]
    fn a_long_list_of_ranks_has_ranges_and_goes_on_in_further_tags() {
        let migrate = |more: &[(&str, &str)]| {
            let tags = [&[("episode", "4"), ("set", "m4")], more].concat();
            match parse("FTB_MIGRATE", "n", &tags).expect("well formed").expect("for ranks").kind {
                RequestKind::Migrate { ranks, .. } => ranks,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(migrate(&[("ranks", "0-255")]), (0..256).collect::<Vec<_>>());
        let tags = [("ranks", "0 2-3"), ("ranks2", "5"), ("ranks3", "7-9"), ("ranks5", "11")];
        assert_eq!(migrate(&tags), [0, 2, 3, 5, 7, 8, 9]);
        let left =
            [("episode", "4"), ("set", "s1"), ("ranks", "0-9"), ("left", "2"), ("left2", "4")];
        let expected =
            RequestKind::Rollback { set: "s1".into(), ranks: (0..10).collect(), left: vec![2, 4] };
        let back = parse("FTB_JL_ROLLBACK", "s1", &left);
        assert_eq!(back, Ok(Some(Request { episode: 4, kind: expected })));
    }

    #[test]
    fn a_malformed_request_is_refused_by_name() {
        for (name, payload, tags) in [
            ("FTB_CHECKPOINT", "../../etc", &[("episode", "1")][..]),
            ("FTB_CHECKPOINT", "s1", &[("episode", "-1")]),
            ("FTB_CHECKPOINT", "s1", &[]),
            ("FTB_JL_REPAIR", "{}", &[("episode", "1")]),
            ("FTB_MIGRATE", "n", &[("episode", "1"), ("set", "s")]),
            ("FTB_MIGRATE", "n", &[("episode", "1"), ("set", "s"), ("ranks", "1 x")]),
            ("FTB_MIGRATE", "n", &[("episode", "1"), ("set", "s"), ("ranks", "3-1")]),
            ("FTB_MIGRATE", "n", &[("episode", "1"), ("set", "s"), ("ranks", "0-1024")]),
            ("FTB_MIGRATE", "n", &[("episode", "1"), ("set", "s"), ("ranks", "0-900 0-900")]),
        ] {
            let error = parse(name, payload, tags).expect_err("malformed");
            assert!(error.contains(name), "{error}");
        }
    }
}
