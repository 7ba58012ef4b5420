//! Messages into events.

use super::{SPACE_JL, SPACE_JOB, SPACE_MPI, SPACE_NLA, list_key};
use crate::message::{
    Answer, Closed, ExitCause, FromJl, FromNla, FromRank, HangNotice, Ipt, JobRequest, Launch,
    NlaMessage, NumberedRequest, Outcome, Placement, RankMessage,
};
use crate::names::{Episode, JobId, NodeName, Ranks, SetId};
use crate::nla;
use bytes::Bytes;
use ftb_core::catalog::{self, names};
use ftb_core::condition::{Condition, RecommendedAction, Truth};
use ftb_core::limits::TAG_VALUE_BYTES_MAX;
use ftb_core::{Event, EventName, EventSpace, Severity, Tag, hostlist};
use serde::Serialize;

/// An event under construction.
struct Draft(Event);

impl Draft {
    fn new(space: &str, name: &str, severity: Severity, payload: impl Into<String>) -> Self {
        debug_assert!(catalog::event(name).is_some_and(|entry| entry.space == space), "{name}");
        let space = EventSpace::new(space).expect("the spaces of the protocol are well formed");
        let name = EventName::new(name).expect("the names of the protocol are well formed");
        let mut event = Event::new(space, name);
        event.severity = severity;
        event.payload = Bytes::from(payload.into());
        Self(event)
    }

    fn tag(mut self, key: &str, value: impl ToString) -> Self {
        // Words for people may be longer. Lists of ranks are not cut ([`Self::ranks`]).
        let mut value = value.to_string();
        while value.len() > TAG_VALUE_BYTES_MAX {
            value.pop();
        }
        self.0.tags.push(Tag { key: key.to_owned(), value });
        self
    }

    fn tag_if(self, key: &str, value: Option<&impl ToString>) -> Self {
        match value {
            Some(value) => self.tag(key, value.to_string()),
            None => self,
        }
    }

    /// Adds the tag, if there is a value.
    fn maybe(self, key: &str, value: Option<impl ToString>) -> Self {
        match value {
            Some(value) => self.tag(key, value),
            None => self,
        }
    }

    fn states(mut self, condition: Condition) -> Self {
        self.0.condition = Some(condition);
        self
    }

    fn episode(self, episode: Episode) -> Self {
        self.tag("episode", episode)
    }

    /// Adds a list of ranks. A long one goes on in further tags.
    fn ranks(mut self, key: &'static str, ranks: &Ranks) -> Self {
        let mut words = rank_text(ranks);
        for number in 1.. {
            let rest = cut(&mut words);
            self = self.tag(&list_key(key, number), &words);
            match rest {
                Some(rest) => words = rest,
                None => break,
            }
        }
        self
    }

    /// Ranks of a start.
    fn started(self, episode: Episode, ranks: &Ranks, incarnation: u64) -> Self {
        self.episode(episode).ranks("ranks", ranks).tag("incarnation", incarnation)
    }

    /// Images of some ranks.
    fn images(self, episode: Episode, set: &SetId, ranks: &Ranks) -> Self {
        self.episode(episode).tag("set", set).ranks("ranks", ranks)
    }
}

/// A list of ranks; one that is longer than a tag begins with a range. Libraries of earlier
/// releases refuse it, and do not take the first tag for the whole list.
fn rank_text(ranks: &Ranks) -> String {
    let text = ranks.to_string();
    if text.len() <= TAG_VALUE_BYTES_MAX {
        return text;
    }
    let text = ranks.join_ranges(" ");
    match text.split_once(' ') {
        Some((first, rest)) if !first.contains('-') => format!("{first}-{first} {rest}"),
        _ => text,
    }
}

/// Leaves as many words as fit into a tag; the others.
fn cut(words: &mut String) -> Option<String> {
    if words.len() <= TAG_VALUE_BYTES_MAX {
        return None;
    }
    let at = words.get(..=TAG_VALUE_BYTES_MAX)?.rfind(' ')?;
    let rest = words.split_off(at).split_off(1);
    Some(rest)
}

/// The text of a message of numbers and lists.
fn json(message: &impl Serialize) -> String {
    serde_json::to_string(message).expect("numbers and lists have a text")
}

/// `node01=0,1 node02=2,3`.
fn placement_text(placement: &Placement) -> String {
    let words: Vec<String> =
        placement.iter().map(|(node, ranks)| format!("{node}={}", ranks.join(","))).collect();
    words.join(" ")
}

/// A message of the JL as an event; `None` for PMI and the protection of images in memory.
pub fn to_jl(message: &FromJl) -> Option<Event> {
    use Severity::{Info, Warning};
    let draft = |name, severity, payload: &str| Draft::new(SPACE_JL, name, severity, payload);
    let draft = match message {
        FromJl::Launch(message) => launch(message),
        FromJl::MigrateIpt(message) => ipt(message),
        FromJl::Checkpoint { episode, set, loop_id } => {
            let draft = draft(names::FTB_CHECKPOINT, Info, set.as_str());
            draft.episode(*episode).tag("set", set).tag_if("loop", loop_id.as_ref())
        }
        FromJl::Prepare { episode, set } => {
            draft(names::FTB_JL_PREPARE, Info, set.as_str()).episode(*episode).tag("set", set)
        }
        FromJl::Release { episode } => draft(names::FTB_JL_RELEASE, Info, "").episode(*episode),
        FromJl::Migrate { episode, source, set, ranks } => {
            draft(names::FTB_MIGRATE, Warning, source.as_str())
                .episode(*episode)
                .tag("source", source)
                .tag("set", set)
                .ranks("ranks", ranks)
        }
        FromJl::MigrateAbort { episode, source, reason } => {
            draft(names::FTB_MIGRATE_ABORT, Warning, reason).episode(*episode).tag("source", source)
        }
        FromJl::Copy { episode, from, target, set, ranks } => {
            draft(names::FTB_JL_COPY, Info, target.as_str())
                .images(*episode, set, ranks)
                .tag("target", target)
                .maybe("source", from.as_ref())
        }
        FromJl::Pmi { .. } | FromJl::Protect(_) | FromJl::Gather(_) => return None,
        FromJl::Reset { episode, barrier, reason } => {
            draft(names::FTB_JL_RESET, Warning, reason).episode(*episode).tag("barrier", barrier)
        }
        FromJl::Rollback { episode, set, ranks, left } => {
            let draft = draft(names::FTB_JL_ROLLBACK, Warning, set.as_str());
            let draft = draft.images(*episode, set, ranks);
            if left.is_empty() { draft } else { draft.ranks("left", left) }
        }
        FromJl::Usable { episode, target } => draft(names::FTB_JL_USABLE, Info, target.as_str())
            .episode(*episode)
            .tag("target", target),
        FromJl::Evict { episode, target } => draft(names::FTB_JL_EVICT, Warning, target.as_str())
            .episode(*episode)
            .tag("target", target),
        FromJl::Drop { episode, set } => {
            draft(names::FTB_JL_DROP, Info, set.as_str()).episode(*episode).tag("set", set)
        }
        FromJl::Signal { episode, signal } => {
            draft(names::FTB_JL_SIGNAL, Info, &signal.to_string()).episode(*episode)
        }
        FromJl::Kill { episode, reason } => {
            draft(names::FTB_JL_KILL, Info, reason).episode(*episode)
        }
        FromJl::Hang(notice) => hang(notice),
        FromJl::Waiting(waiting) => {
            let draft = draft(names::FTB_JL_WAITING, Warning, &waiting.words);
            let draft = draft.episode(waiting.episode).tag("node", &waiting.node);
            draft.tag("since_ns", waiting.since_ns).tag("until_ns", waiting.until_ns)
        }
        FromJl::Repair { episode, news } => {
            draft(names::FTB_JL_REPAIR, Info, &json(news)).episode(*episode)
        }
        FromJl::Ask => draft(names::FTB_JL_ASK, Info, ""),
        FromJl::Closed(closed) => episode(closed),
        FromJl::Alive => draft(names::FTB_JL_ALIVE, Info, ""),
    };
    Some(draft.0)
}

fn episode(closed: &Closed) -> Draft {
    let severity = if closed.done { Severity::Info } else { Severity::Warning };
    Draft::new(SPACE_JL, names::FTB_JL_EPISODE, severity, &*closed.words)
        .episode(closed.episode)
        .tag("kind", &closed.kind)
        .tag("outcome", if closed.done { "done" } else { "failed" })
        .tag("phases", &closed.phases)
        .maybe("fault", closed.fault)
        .maybe("cause", closed.cause.as_ref().map(|cause| &cause.what))
        .maybe("rule", closed.cause.as_ref().map(|cause| &cause.rule))
        .tag("choice", &closed.choice)
        .tag("why", &closed.why)
        .maybe("left_ms", closed.left.map(|left| left.left_ms))
        .maybe("checkpoint_p95_ms", closed.left.and_then(|left| left.checkpoint_p95_ms))
        .maybe("memory_p95_ms", closed.left.and_then(|left| left.memory_p95_ms))
        .maybe("migration_p95_ms", closed.left.and_then(|left| left.migration_p95_ms))
}

fn hang(notice: &HangNotice) -> Draft {
    let (name, severity) = match notice.is_over {
        true => (names::FTB_JL_HANG_OVER, Severity::Info),
        false => (names::FTB_JL_HUNG, Severity::Warning),
    };
    let draft = Draft::new(SPACE_JL, name, severity, &notice.words)
        .episode(notice.episode)
        .tag("kind", notice.kind);
    let draft = if notice.kill { draft.tag("kill", "yes") } else { draft };
    match &notice.rank {
        Some(of) => draft
            .tag("node", &of.node)
            .tag("rank", of.rank)
            .tag("incarnation", of.incarnation)
            .tag("pid", of.pid),
        None => draft,
    }
}

fn launch(launch: &Launch) -> Draft {
    let text = placement_text(&launch.placement);
    let draft = Draft::new(SPACE_JL, names::FTB_JL_LAUNCH, Severity::Info, text)
        .episode(launch.episode)
        .tag("incarnation", launch.incarnation)
        .tag("barrier", launch.barrier)
        .tag("size", launch.size);
    let draft = match &launch.set {
        Some(set) => draft.tag("set", set),
        None => draft,
    };
    match launch.set_size {
        Some(size) => draft.tag("set_size", size),
        None => draft,
    }
}

fn ipt(ipt: &Ipt) -> Draft {
    let text = format!("{} {}", ipt.target, rank_text(&ipt.ranks));
    Draft::new(SPACE_JL, names::FTB_MIGRATE_IPT, Severity::Info, text)
        .episode(ipt.episode)
        .tag("target", &ipt.target)
        .ranks("ranks", &ipt.ranks)
        .tag("set", &ipt.set)
        .tag("incarnation", ipt.incarnation)
        .tag("barrier", ipt.barrier)
}

/// A message of an NLA as an event; `None` for PMI, FTB_NLA_READY, progress, and the protection of
/// images in memory.
pub fn to_nla(says: &NlaMessage) -> Option<Event> {
    use Severity::{Error, Info};
    let node: &NodeName = &says.node;
    let draft = |name, severity, payload: String| {
        Draft::new(SPACE_NLA, name, severity, payload).tag("node", node)
    };
    let draft = match &says.message {
        FromNla::Ready { .. }
        | FromNla::Pmi { .. }
        | FromNla::Progress(_)
        | FromNla::Protected { .. }
        | FromNla::ProtectFailed { .. } => return None,
        FromNla::State { episode, from, to, changes } => {
            draft(names::FTB_NLA_STATE, Info, format!("{from}->{to}"))
                .episode(*episode)
                .tag("from", from)
                .tag("state", to)
                .tag("changes", changes)
        }
        FromNla::Launched { episode, incarnation, ranks } => {
            let draft = draft(names::FTB_NLA_LAUNCHED, Info, rank_text(ranks));
            draft.started(*episode, ranks, *incarnation)
        }
        FromNla::LaunchFailed { episode, incarnation, ranks, reason } => {
            let draft = draft(names::FTB_NLA_LAUNCH_FAILED, Error, reason.clone());
            draft.started(*episode, ranks, *incarnation)
        }
        FromNla::Prepared { episode, loop_id } => {
            let draft = draft(names::FTB_NLA_PREPARED, Info, String::new());
            draft.episode(*episode).tag_if("loop", loop_id.as_ref())
        }
        message @ (FromNla::Hang { .. } | FromNla::HangLeft { .. }) => hung_rank(node, message)?,
        FromNla::Exited { episode, rank, incarnation, how } => {
            let well = matches!(how, ExitCause::Left | ExitCause::Exit(0));
            let severity = if well { Info } else { Error };
            draft(names::FTB_NLA_EXITED, severity, format!("{rank} {how}"))
                .episode(*episode)
                .tag("ranks", rank)
                .tag("incarnation", incarnation)
                .tag("how", how)
        }
        FromNla::Pic { episode, ranks, set } => {
            draft(names::FTB_MIGRATE_PIC, Info, node.to_string())
                .tag("source", node)
                .images(*episode, set, ranks)
        }
        FromNla::Copied { episode, set, ranks, bytes } => {
            draft(names::FTB_NLA_COPIED, Info, set.to_string())
                .images(*episode, set, ranks)
                .tag("bytes", bytes)
        }
        FromNla::CopyFailed { episode, set, ranks, reason } => {
            draft(names::FTB_NLA_COPY_FAILED, Error, reason.clone()).images(*episode, set, ranks)
        }
        FromNla::Restarted { episode, incarnation, ranks } => {
            let draft = draft(names::FTB_NLA_RESTARTED, Info, rank_text(ranks));
            draft.started(*episode, ranks, *incarnation)
        }
        FromNla::Reset { episode } => {
            draft(names::FTB_NLA_RESET, Info, String::new()).episode(*episode)
        }
        FromNla::Stopped { episode } => {
            draft(names::FTB_NLA_STOPPED, Info, String::new()).episode(*episode)
        }
    };
    Some(draft.0)
}

/// The condition of the NLA's own host.
fn hung(job: &JobId, rank: u32, truth: Truth) -> Condition {
    Condition {
        component: nla::hung_component(job, rank),
        action: RecommendedAction::RestartProcess,
        // A hung rank does not make its host unhealthy.
        severity: Some(Severity::Info),
        // Ranks end with their NLA: without it none is hung.
        is_kept: truth == Truth::False,
        ..Condition::new(nla::HUNG, truth)
    }
}

fn hung_rank(node: &NodeName, message: &FromNla) -> Option<Draft> {
    let draft =
        |name, severity, words| Draft::new(SPACE_NLA, name, severity, words).tag("node", node);
    if let FromNla::HangLeft { job, rank } = message {
        let words = "it has ended with its launch agent";
        let draft = draft(names::FTB_NLA_HANG_OVER, Severity::Info, words).episode(Episode(0));
        let draft = draft.tag("rank", rank).tag("job", job);
        return Some(draft.states(hung(job, *rank, Truth::False)));
    }
    let FromNla::Hang { episode, rank, incarnation, job, kind, is_over, words } = message else {
        return None;
    };
    let (name, severity, truth) = match is_over {
        true => (names::FTB_NLA_HANG_OVER, Severity::Info, Truth::False),
        false => (names::FTB_NLA_HUNG, Severity::Warning, Truth::True),
    };
    let condition = hung(job, *rank, truth);
    let draft = draft(name, severity, words).episode(*episode);
    let draft = draft.tag("rank", rank).tag("incarnation", incarnation);
    Some(draft.tag("job", job).tag("kind", kind).states(condition))
}

/// A message of a rank as an event.
pub fn to_rank(says: &RankMessage) -> Event {
    let (name, severity) = match &says.message {
        FromRank::Suspended => (names::FTB_MPI_SUSPENDED, Severity::Info),
        FromRank::CheckpointDone { .. } => (names::FTB_CHECKPOINT_DONE, Severity::Info),
        FromRank::CheckpointFailed { .. } => (names::FTB_CHECKPOINT_FAILED, Severity::Error),
        FromRank::Resumed => (names::FTB_MPI_RESUMED, Severity::Info),
        FromRank::RollbackFailed { .. } => (names::FTB_ROLLBACK_FAILED, Severity::Error),
        FromRank::Repair(_) => (names::FTB_MPI_REPAIR, Severity::Info),
    };
    let payload = match &says.message {
        FromRank::Repair(call) => json(call),
        _ => says.rank.to_string(),
    };
    let draft =
        Draft::new(SPACE_MPI, name, severity, payload).episode(says.episode).tag("rank", says.rank);
    match &says.message {
        FromRank::CheckpointDone { set, bytes, activity } => {
            let draft = draft.tag("set", set).tag("bytes", bytes);
            match activity {
                Some(done) => draft.tag("cpu_ms", done.cpu_ms).tag("sent", done.sent),
                None => draft,
            }
        }
        FromRank::CheckpointFailed { set, reason } | FromRank::RollbackFailed { set, reason } => {
            draft.tag("set", set).tag("reason", reason)
        }
        FromRank::Suspended | FromRank::Resumed | FromRank::Repair(_) => draft,
    }
    .0
}

/// A request as an event.
pub fn request(asked: &NumberedRequest) -> Event {
    let words = match &asked.what {
        JobRequest::Checkpoint => "checkpoint".to_owned(),
        JobRequest::Migrate(node) => format!("migrate {node}"),
        JobRequest::Drain(node) => format!("drain {node}"),
        JobRequest::Usable(node) => format!("usable {node}"),
        JobRequest::Add(nodes) => {
            format!("add {}", hostlist::fold(nodes.iter().map(NodeName::as_str)))
        }
        JobRequest::ResetBreaker => "reset-breaker".to_owned(),
        JobRequest::Kill => "kill".to_owned(),
    };
    Draft::new(SPACE_JOB, names::FTB_JOB_REQUEST, Severity::Info, words)
        .tag("request", asked.request)
        .0
}

/// An answer as an event.
pub fn answer(answer: &Answer) -> Event {
    let (word, severity) = match answer.outcome {
        Outcome::Accepted => ("accepted", Severity::Info),
        Outcome::Done => ("done", Severity::Info),
        Outcome::Refused => ("refused", Severity::Warning),
        Outcome::Failed => ("failed", Severity::Warning),
    };
    Draft::new(SPACE_JOB, names::FTB_JOB_ANSWER, severity, answer.words.clone())
        .tag("request", answer.request)
        .tag("outcome", word)
        .0
}
