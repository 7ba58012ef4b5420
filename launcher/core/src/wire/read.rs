//! Events into messages.

use super::{SPACE_JL, SPACE_JOB, SPACE_MPI, SPACE_NLA, list_key};
use crate::message::{
    Answer, Closed, ExitCause, FaultCause, FromJl, FromNla, FromRank, HangNotice, HungRank, Ipt,
    JobRequest, Launch, NlaMessage, NumberedRequest, Outcome, Placement, RankMessage, TimeLeft,
    Waiting,
};
use crate::names::{Episode, FaultId, NodeName, Ranks, SetId};
use crate::progress::Activity;
use core::fmt::Display;
use core::str::FromStr;
use ftb_core::Event;
use ftb_core::catalog::names;
use ftb_core::hostlist::Hostlist;
use serde::de::DeserializeOwned;

/// An event that is not a message of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The name is unknown in that space.
    #[error("{0} is not an event of the launcher's protocol")]
    Unknown(String),
    /// A field is missing or wrong.
    #[error("event {event}: {field}: {problem}")]
    Field { event: String, field: &'static str, problem: String },
}

struct Reader<'a>(&'a Event);

impl<'a> Reader<'a> {
    fn bad(&self, field: &'static str, problem: impl ToString) -> WireError {
        WireError::Field { event: self.0.name.to_string(), field, problem: problem.to_string() }
    }

    fn unknown<T>(&self) -> Result<T, WireError> {
        Err(WireError::Unknown(format!("{} {}", self.0.space, self.0.name)))
    }

    fn payload(&self) -> Result<&'a str, WireError> {
        core::str::from_utf8(&self.0.payload).map_err(|e| self.bad("payload", e))
    }

    fn json<T: DeserializeOwned>(&self) -> Result<T, WireError> {
        serde_json::from_slice(&self.0.payload).map_err(|e| self.bad("payload", e))
    }

    fn text(&self, field: &'static str) -> Result<&'a str, WireError> {
        self.0.tag(field).ok_or_else(|| self.bad(field, "this tag is missing"))
    }

    fn parsed<T: FromStr<Err: Display>>(&self, field: &'static str) -> Result<T, WireError> {
        self.text(field)?.parse().map_err(|e| self.bad(field, e))
    }

    /// As [`Reader::parsed`]; `None` where the tag is missing.
    fn parsed_if<T: FromStr<Err: Display>>(
        &self,
        field: &'static str,
    ) -> Result<Option<T>, WireError> {
        self.0.tag(field).map(|_| self.parsed(field)).transpose()
    }

    fn episode(&self) -> Result<Episode, WireError> {
        self.parsed("episode").map(Episode)
    }

    fn set(&self) -> Result<SetId, WireError> {
        self.parsed("set")
    }

    fn ranks(&self) -> Result<Ranks, WireError> {
        self.list("ranks")
    }

    /// A list of ranks, with the tags in which a long one goes on.
    fn list(&self, field: &'static str) -> Result<Ranks, WireError> {
        let mut words = self.text(field)?.to_owned();
        let more = (2..).map_while(|number| self.0.tag(&list_key(field, number)));
        more.for_each(|more| words.extend([" ", more]));
        words.parse().map_err(|e| self.bad(field, e))
    }

    fn placement(&self) -> Result<Placement, WireError> {
        let mut placement = Placement::new();
        for word in self.payload()?.split_ascii_whitespace() {
            let Some((node, ranks)) = word.split_once('=') else {
                return Err(self.bad("payload", format!("{word:?} is not node=ranks")));
            };
            let node = NodeName::new(node).map_err(|e| self.bad("payload", e))?;
            let ranks = Ranks::split(ranks, ',').map_err(|e| self.bad("payload", e))?;
            placement.insert(node, ranks);
        }
        Ok(placement)
    }

    fn name_is(&self, space: &str) -> Result<String, WireError> {
        if self.0.space.as_str().eq_ignore_ascii_case(space) {
            Ok(self.0.name.as_str().to_ascii_uppercase())
        } else {
            self.unknown()
        }
    }
}

/// Reads a message of the JL.
///
/// # Errors
/// [`WireError`] when the event is none.
pub fn from_jl(event: &Event) -> Result<FromJl, WireError> {
    let read = Reader(event);
    let name = read.name_is(SPACE_JL)?;
    if matches!(name.as_str(), names::FTB_JL_ASK) {
        return Ok(FromJl::Ask);
    }
    if matches!(name.as_str(), names::FTB_JL_ALIVE) {
        return Ok(FromJl::Alive);
    }
    let episode = read.episode()?;
    Ok(match name.as_str() {
        names::FTB_JL_LAUNCH => FromJl::Launch(Launch {
            episode,
            incarnation: read.parsed("incarnation")?,
            barrier: read.parsed("barrier")?,
            size: read.parsed("size")?,
            set: event.tag("set").map(|_| read.set()).transpose()?,
            set_size: event.tag("set_size").map(|_| read.parsed("set_size")).transpose()?,
            placement: read.placement()?,
        }),
        names::FTB_CHECKPOINT => {
            let (set, loop_id) = (read.set()?, read.parsed_if("loop")?);
            FromJl::Checkpoint { episode, set, loop_id }
        }
        names::FTB_JL_PREPARE => FromJl::Prepare { episode, set: read.set()? },
        names::FTB_JL_RELEASE => FromJl::Release { episode },
        names::FTB_MIGRATE => FromJl::Migrate {
            episode,
            source: read.parsed("source")?,
            set: read.set()?,
            ranks: read.ranks()?,
        },
        names::FTB_MIGRATE_ABORT => FromJl::MigrateAbort {
            episode,
            source: read.parsed("source")?,
            reason: read.payload()?.to_owned(),
        },
        names::FTB_JL_COPY => FromJl::Copy {
            episode,
            from: read.parsed_if("source")?,
            target: read.parsed("target")?,
            set: read.set()?,
            ranks: read.ranks()?,
        },
        names::FTB_MIGRATE_IPT => FromJl::MigrateIpt(Ipt {
            episode,
            target: read.parsed("target")?,
            ranks: read.ranks()?,
            set: read.set()?,
            incarnation: read.parsed("incarnation")?,
            barrier: read.parsed("barrier")?,
        }),
        names::FTB_JL_RESET => FromJl::Reset {
            episode,
            barrier: read.parsed("barrier")?,
            reason: read.payload()?.to_owned(),
        },
        names::FTB_JL_ROLLBACK => {
            let left =
                event.tag("left").map(|_| read.list("left")).transpose()?.unwrap_or_default();
            FromJl::Rollback { episode, set: read.set()?, ranks: read.ranks()?, left }
        }
        names::FTB_JL_USABLE => FromJl::Usable { episode, target: read.parsed("target")? },
        names::FTB_JL_EVICT => FromJl::Evict { episode, target: read.parsed("target")? },
        names::FTB_JL_DROP => FromJl::Drop { episode, set: read.set()? },
        names::FTB_JL_SIGNAL => FromJl::Signal {
            episode,
            signal: read.payload()?.parse().map_err(|e| read.bad("payload", e))?,
        },
        names::FTB_JL_KILL => FromJl::Kill { episode, reason: read.payload()?.to_owned() },
        names::FTB_JL_HUNG | names::FTB_JL_HANG_OVER => FromJl::Hang(hang(&read, episode, &name)?),
        names::FTB_JL_REPAIR => FromJl::Repair { episode, news: read.json()? },
        names::FTB_JL_WAITING => FromJl::Waiting(Waiting {
            episode,
            node: read.parsed("node")?,
            since_ns: read.parsed("since_ns")?,
            until_ns: read.parsed("until_ns")?,
            words: read.payload()?.to_owned(),
        }),
        names::FTB_JL_EPISODE => FromJl::Closed(Closed {
            episode,
            kind: read.text("kind")?.to_owned(),
            done: read.text("outcome")? == "done",
            words: read.payload()?.to_owned(),
            phases: read.text("phases")?.to_owned(),
            fault: event.tag("fault").map(|_| read.parsed("fault").map(FaultId)).transpose()?,
            cause: event.tag("cause").map(|what| FaultCause {
                what: what.to_owned(),
                rule: event.tag("rule").unwrap_or_default().to_owned(),
            }),
            choice: event.tag("choice").unwrap_or_default().to_owned(),
            why: event.tag("why").unwrap_or_default().to_owned(),
            left: time_left(&read)?,
        }),
        _ => return read.unknown(),
    })
}

fn time_left(read: &Reader<'_>) -> Result<Option<TimeLeft>, WireError> {
    let Some(left_ms) = read.parsed_if("left_ms")? else {
        return Ok(None);
    };
    Ok(Some(TimeLeft {
        left_ms,
        checkpoint_p95_ms: read.parsed_if("checkpoint_p95_ms")?,
        memory_p95_ms: read.parsed_if("memory_p95_ms")?,
        migration_p95_ms: read.parsed_if("migration_p95_ms")?,
    }))
}

fn hang(read: &Reader<'_>, episode: Episode, name: &str) -> Result<HangNotice, WireError> {
    let rank = match read.0.tag("rank") {
        None => None,
        Some(_) => Some(HungRank {
            node: read.parsed("node")?,
            rank: read.parsed("rank")?,
            incarnation: read.parsed("incarnation")?,
            pid: read.parsed("pid")?,
        }),
    };
    Ok(HangNotice {
        episode,
        rank,
        kind: read.parsed("kind")?,
        is_over: name.ends_with("_OVER"),
        kill: read.0.tag("kill") == Some("yes"),
        words: read.payload()?.to_owned(),
    })
}

fn how(read: &Reader<'_>) -> Result<ExitCause, WireError> {
    let text = read.text("how")?;
    let number = |word: &str| word.parse::<i32>().map_err(|e| read.bad("how", e));
    match text.split_once(' ') {
        None if text == "left" => Ok(ExitCause::Left),
        Some(("exit", code)) => Ok(ExitCause::Exit(number(code)?)),
        Some(("signal", signal)) => Ok(ExitCause::Signal(number(signal)?)),
        _ => Err(read.bad("how", "expected left, exit N or signal N")),
    }
}

/// Reads a message of an NLA.
///
/// # Errors
/// [`WireError`] when the event is none.
pub fn from_nla(event: &Event) -> Result<NlaMessage, WireError> {
    let read = Reader(event);
    let name = read.name_is(SPACE_NLA)?;
    let node = read.parsed("node")?;
    let episode = read.episode()?;
    let message = match name.as_str() {
        names::FTB_NLA_STATE => FromNla::State {
            episode,
            from: read.parsed("from")?,
            to: read.parsed("state")?,
            changes: read.parsed("changes")?,
        },
        names::FTB_NLA_LAUNCHED => FromNla::Launched {
            episode,
            incarnation: read.parsed("incarnation")?,
            ranks: read.ranks()?,
        },
        names::FTB_NLA_LAUNCH_FAILED => FromNla::LaunchFailed {
            episode,
            incarnation: read.parsed("incarnation")?,
            ranks: read.ranks()?,
            reason: read.payload()?.to_owned(),
        },
        names::FTB_NLA_PREPARED => FromNla::Prepared { episode, loop_id: read.parsed_if("loop")? },
        names::FTB_NLA_HANG_OVER if event.tag("kind").is_none() => {
            FromNla::HangLeft { job: read.parsed("job")?, rank: read.parsed("rank")? }
        }
        names::FTB_NLA_HUNG | names::FTB_NLA_HANG_OVER => FromNla::Hang {
            episode,
            rank: read.parsed("rank")?,
            incarnation: read.parsed("incarnation")?,
            job: read.parsed("job")?,
            kind: read.parsed("kind")?,
            is_over: name.ends_with("_OVER"),
            words: read.payload()?.to_owned(),
        },
        names::FTB_NLA_EXITED => FromNla::Exited {
            episode,
            rank: read.parsed("ranks")?,
            incarnation: read.parsed("incarnation")?,
            how: how(&read)?,
        },
        names::FTB_MIGRATE_PIC => FromNla::Pic { episode, ranks: read.ranks()?, set: read.set()? },
        names::FTB_NLA_COPIED => FromNla::Copied {
            episode,
            set: read.set()?,
            ranks: read.ranks()?,
            bytes: read.parsed("bytes")?,
        },
        names::FTB_NLA_COPY_FAILED => FromNla::CopyFailed {
            episode,
            set: read.set()?,
            ranks: read.ranks()?,
            reason: read.payload()?.to_owned(),
        },
        names::FTB_NLA_RESTARTED => FromNla::Restarted {
            episode,
            incarnation: read.parsed("incarnation")?,
            ranks: read.ranks()?,
        },
        names::FTB_NLA_RESET => FromNla::Reset { episode },
        names::FTB_NLA_STOPPED => FromNla::Stopped { episode },
        _ => return read.unknown(),
    };
    Ok(NlaMessage { node, message })
}

/// Reads a message of a rank.
///
/// # Errors
/// [`WireError`] when the event is none.
pub fn from_rank(event: &Event) -> Result<RankMessage, WireError> {
    let read = Reader(event);
    let message = match read.name_is(SPACE_MPI)?.as_str() {
        names::FTB_MPI_SUSPENDED => FromRank::Suspended,
        names::FTB_CHECKPOINT_DONE => FromRank::CheckpointDone {
            set: read.set()?,
            bytes: read.parsed("bytes")?,
            activity: match (read.parsed_if("cpu_ms")?, read.parsed_if("sent")?) {
                (Some(cpu_ms), Some(sent)) => Some(Activity { cpu_ms, sent }),
                _ => None,
            },
        },
        names::FTB_CHECKPOINT_FAILED => {
            FromRank::CheckpointFailed { set: read.set()?, reason: read.text("reason")?.to_owned() }
        }
        names::FTB_MPI_RESUMED => FromRank::Resumed,
        names::FTB_ROLLBACK_FAILED => {
            FromRank::RollbackFailed { set: read.set()?, reason: read.text("reason")?.to_owned() }
        }
        names::FTB_MPI_REPAIR => FromRank::Repair(read.json()?),
        _ => return read.unknown(),
    };
    Ok(RankMessage { episode: read.episode()?, rank: read.parsed("rank")?, message })
}

/// Reads a request, or an answer to one.
///
/// # Errors
/// [`WireError`] when the event is neither.
pub fn from_request(event: &Event) -> Result<Result<NumberedRequest, Answer>, WireError> {
    let read = Reader(event);
    let name = read.name_is(SPACE_JOB)?;
    let request = read.parsed("request")?;
    let words = read.payload()?;
    match name.as_str() {
        names::FTB_JOB_REQUEST => {
            let node = |name: &str| NodeName::new(name).map_err(|e| read.bad("payload", e));
            let what = match words.split_once(' ') {
                None if words == "checkpoint" => JobRequest::Checkpoint,
                None if words == "reset-breaker" => JobRequest::ResetBreaker,
                None if words == "kill" => JobRequest::Kill,
                Some(("migrate", name)) => JobRequest::Migrate(node(name)?),
                Some(("drain", name)) => JobRequest::Drain(node(name)?),
                Some(("usable", name)) => JobRequest::Usable(node(name)?),
                Some(("add", list)) => {
                    let list = Hostlist::parse(list).map_err(|e| read.bad("payload", e))?;
                    JobRequest::Add(list.iter().map(|name| node(&name)).collect::<Result<_, _>>()?)
                }
                _ => return Err(read.bad("payload", "this request is not known")),
            };
            Ok(Ok(NumberedRequest { request, what }))
        }
        names::FTB_JOB_ANSWER => {
            let outcome = match read.text("outcome")? {
                "accepted" => Outcome::Accepted,
                "done" => Outcome::Done,
                "refused" => Outcome::Refused,
                "failed" => Outcome::Failed,
                _ => return Err(read.bad("outcome", "this outcome is not known")),
            };
            let words = words.to_owned();
            Ok(Err(Answer { request, outcome, words }))
        }
        _ => read.unknown(),
    }
}
