//! The requests of the launcher: the five events of `ftb.jl` for ranks.
//!
//! Pure: from an event to a request. Not responsible for the source of events.

use crate::repair::RepairNews;
use ftb_core::Event;
use ftb_launcher_core::message::FromJl;
use ftb_launcher_core::wire::{self, WireError};
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

impl Request {
    /// Reads an event of the space `ftb.jl`; `Ok(None)` if it is not for ranks.
    ///
    /// # Errors
    /// [`WireError`] for a malformed event; it must be ignored.
    pub fn from_event(event: &Event) -> Result<Option<Self>, WireError> {
        let message = match wire::from_jl(event) {
            Ok(message) => message,
            Err(WireError::Unknown(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let (episode, kind) = match message {
            FromJl::Checkpoint { episode, set, .. } => {
                (episode, RequestKind::Checkpoint { set: set.into() })
            }
            FromJl::Migrate { episode, set, ranks, .. } => {
                (episode, RequestKind::Migrate { set: set.into(), ranks: ranks.iter().collect() })
            }
            FromJl::Rollback { episode, set, ranks, left } => {
                let (ranks, left) = (ranks.iter().collect(), left.iter().collect());
                (episode, RequestKind::Rollback { set: set.into(), ranks, left })
            }
            FromJl::MigrateAbort { episode, .. } => (episode, RequestKind::Abort),
            FromJl::Repair { episode, news } => (episode, RequestKind::Repair(news)),
            _ => return Ok(None),
        };
        Ok(Some(Self { episode: episode.0, kind }))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ftb_core::Tag;

    fn parse(name: &str, payload: &str, tags: &[(&str, &str)]) -> Result<Option<Request>, String> {
        let mut event = Event::new(wire::SPACE_JL.parse().unwrap(), name.parse().unwrap());
        let tag = |(key, value): &(&str, &str)| Tag { key: (*key).into(), value: (*value).into() };
        event.tags = tags.iter().map(tag).collect();
        event.payload = payload.to_owned().into();
        Request::from_event(&event).map_err(|error| error.to_string())
    }

    #[test]
    fn the_five_events_for_ranks_are_read_and_all_others_ignored() {
        let checkpoint = RequestKind::Checkpoint { set: "s1".into() };
        let expected = |kind| Ok(Some(Request { episode: 4, kind }));
        let (episode, source) = (("episode", "4"), ("source", "node02"));
        assert_eq!(parse("FTB_CHECKPOINT", "s1", &[episode, ("set", "s1")]), expected(checkpoint));
        assert_eq!(
            parse("ftb_migrate", "node02", &[episode, source, ("set", "m4"), ("ranks", "2 3")]),
            expected(RequestKind::Migrate { set: "m4".into(), ranks: vec![2, 3] })
        );
        let again = RequestKind::Rollback { set: "s1".into(), ranks: vec![0, 2], left: vec![2] };
        let tags = [episode, ("set", "s1"), ("ranks", "0 2"), ("left", "2")];
        assert_eq!(parse("FTB_JL_ROLLBACK", "s1", &tags), expected(again));
        assert_eq!(
            parse("FTB_MIGRATE_ABORT", "why", &[episode, source]),
            expected(RequestKind::Abort)
        );
        let news = r#"{"dead":"1,3-4","revoked":[[2,0]],"seen":1,"decided":null}"#;
        let (dead, revoked) = ([1, 3, 4].into_iter().collect(), vec![(2, 0)]);
        let repair = RequestKind::Repair(RepairNews { dead, revoked, seen: 1, decided: None });
        assert_eq!(parse("FTB_JL_REPAIR", news, &[episode]), expected(repair));
        for other in ["FTB_JL_ALIVE", "FTB_JL_USELESS"] {
            assert_eq!(parse(other, "", &[episode]), Ok(None));
        }
    }

    /// That of half of a job of 512 ranks, and of every second rank of one of 1,024.
    #[test]
    fn a_long_list_of_ranks_has_ranges_and_goes_on_in_further_tags() {
        let migrate = |more: &[(&str, &str)]| {
            let tags = [&[("episode", "4"), ("set", "m4"), ("source", "n")], more].concat();
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
        let (episode, set) = (("episode", "1"), ("set", "s"));
        for (name, payload, tags) in [
            ("FTB_CHECKPOINT", "", &[episode, ("set", "../../etc")][..]),
            ("FTB_CHECKPOINT", "s1", &[("episode", "-1"), set]),
            ("FTB_CHECKPOINT", "s1", &[set]),
            ("FTB_JL_REPAIR", "{}", &[episode]),
            ("FTB_MIGRATE", "n", &[episode, ("source", "n"), set]),
            ("FTB_MIGRATE", "n", &[episode, ("source", "n"), set, ("ranks", "1 x")]),
            ("FTB_MIGRATE", "n", &[episode, ("source", "n"), set, ("ranks", "3-1")]),
            ("FTB_MIGRATE", "n", &[episode, ("source", "n"), set, ("ranks", "0-8192")]),
            ("FTB_MIGRATE", "n", &[episode, ("source", "n"), set, ("ranks", "0-8191 0-8191")]),
        ] {
            let error = parse(name, payload, tags).expect_err("malformed");
            assert!(error.contains(name), "{error}");
        }
    }
}
