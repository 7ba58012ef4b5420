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
        let ranks = || {
            let ranks = tag("ranks").unwrap_or_default();
            parse_ranks(ranks).ok_or_else(|| problem(format!("{ranks:?} is no list of ranks")))
        };
        let kind = match name.to_ascii_uppercase().as_str() {
            names::FTB_CHECKPOINT => RequestKind::Checkpoint { set: set()? },
            names::FTB_MIGRATE => RequestKind::Migrate { set: set()?, ranks: ranks()? },
            names::FTB_JL_ROLLBACK => {
                let left = tag("left").map(parse_ranks).map_or(Some(Vec::new()), |left| left);
                let left = left.ok_or_else(|| problem("no list of ranks".to_owned()))?;
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

fn parse_ranks(text: &str) -> Option<Vec<u32>> {
    let parse = |word: &str| word.parse().ok().filter(|rank| *rank < limits::RANKS_MAX);
    let ranks: Vec<u32> = text
        .split_ascii_whitespace()
        .take(limits::RANKS_MAX as usize + 1)
        .map(parse)
        .collect::<Option<_>>()?;
    (!ranks.is_empty() && ranks.len() <= limits::RANKS_MAX as usize).then_some(ranks)
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

    #[test]
    fn a_malformed_request_is_refused_by_name() {
        for (name, payload, tags) in [
            ("FTB_CHECKPOINT", "../../etc", &[("episode", "1")][..]),
            ("FTB_CHECKPOINT", "s1", &[("episode", "-1")]),
            ("FTB_CHECKPOINT", "s1", &[]),
            ("FTB_JL_REPAIR", "{}", &[("episode", "1")]),
            ("FTB_MIGRATE", "n", &[("episode", "1"), ("set", "s")]),
            ("FTB_MIGRATE", "n", &[("episode", "1"), ("set", "s"), ("ranks", "1 x")]),
        ] {
            let error = parse(name, payload, tags).expect_err("malformed");
            assert!(error.contains(name), "{error}");
        }
    }
}
