//! The inputs and outputs of a [`Node`](super::Node): the contract with every shell.
//!
//! A shell feeds inputs with `handle`, does what the outputs say, and pulls frames and messages
//! with `poll_link` and `poll_client` when a transport has room. All queues live in the core,
//! bounded in bytes, so that the simulation covers shedding. Everything that can come late carries
//! the id of its dial, link or client. A stale one is counted and ignored.

mod journal;

pub use journal::{
    JournalBegin, JournalPage, JournalRead, JournalState, JournalWrite, Restored, Stored,
};

use crate::condition::{Condition, Provenance};
use crate::confirm_level::ConfirmLevel;
use crate::filter::Filter;
use crate::frame::Frame;
use crate::ident::{PublisherId, Rank};
use crate::node::config::MemberList;
use crate::numbers::{LogIndex, PublisherSeq};
use crate::position::{Epoch, Position, Trail};
use crate::run::Run;
use crate::sealed::Sealed;
use crate::severity::Severity;
use crate::storm::StormRule;
use crate::trace::{EventTrace, TraceSubject, TrustReport};

pub use crate::log::gap::{Gap, GapReason, Loss};
pub use crate::model::member::MemberState;

/// One attempt to reach another agent. Never used twice in the life of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DialId(pub u64);

/// One transport connection between two agents. Chosen by the shell, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// One attached client. Chosen by the shell, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// One subscription of one client, chosen by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(pub u32);

/// One question of the shell's, chosen by the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId(pub u64);

/// Who a client is; the shell has it from the peer credentials and the client's hello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    /// Whose budget it uses: from the peer credentials of the socket.
    pub uid: u32,
    /// From the peer credentials of the socket.
    pub gid: u32,
    /// From the peer credentials of the socket.
    pub pid: u32,
    /// What the client calls itself.
    pub name: String,
    /// What the client says it belongs to.
    pub job_id: String,
    /// What its events are known by.
    pub publisher: PublisherId,
}

/// Where a new subscription begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the first event after the subscription is active in the whole tree.
    Now,
    /// Behind a position that the subscriber has already seen.
    After(Position),
    /// The same for one that has been in several epochs: it goes on from the furthest place that it
    /// has in common with the log.
    AfterTrail(Trail),
    /// With the oldest event in the log whose time is not before this Unix time.
    SinceNs(u64),
    /// With the table of conditions: the last statement about each, oldest first. Then with the
    /// first event after it.
    Conditions,
}

/// What happens to a node.
#[derive(Debug)]
pub enum Input {
    /// Time has passed; nothing else happened.
    Tick,
    /// The shell has a transport to the agent that [`Output::Dial`] named.
    Dialed {
        /// Which attempt.
        dial: DialId,
        /// The new link.
        link: LinkId,
    },
    /// The attempt failed or ran into its deadline.
    DialFailed {
        /// Which attempt.
        dial: DialId,
        /// For the log.
        error: String,
        /// What the host answered.
        answer: HostAnswer,
    },
    /// Another agent has connected. It has said nothing yet.
    Accepted {
        /// The new link.
        link: LinkId,
        /// Host names that its certificate vouches for; `None` without TLS.
        certified_hosts: Option<Vec<String>>,
    },
    /// A decoded frame.
    Frame {
        /// From which link.
        link: LinkId,
        /// What it says.
        frame: Frame,
    },
    /// The transport is gone. Without a Close before it this is a suspected loss.
    LinkClosed {
        /// Which link.
        link: LinkId,
        /// For the log.
        error: String,
    },
    /// A client said hello.
    ClientAttached {
        /// Its id.
        client: ClientId,
        /// Who it is.
        info: ClientInfo,
    },
    /// A client is gone.
    ClientDetached {
        /// Which.
        client: ClientId,
    },
    /// A client's events in publisher order, sealed by the shell. The sequence numbers (in their
    /// ids) are dense within a client's life; what was already taken is ignored.
    Publish {
        /// Who.
        client: ClientId,
        /// What.
        events: Run,
        /// What each must survive before it is confirmed, if that can be had.
        confirm: ConfirmLevel,
    },
    /// What a client has stated about conditions, sealed by the shell: its agent has started again.
    /// The agent states it for the client; the events are not published again.
    Restate {
        /// Who.
        client: ClientId,
        /// The last statement about each subject.
        events: Run,
    },
    /// A client subscribes.
    Subscribe {
        /// Who.
        client: ClientId,
        /// The client's name for it.
        subscription: SubscriptionId,
        /// What it wants.
        filter: Box<Filter>,
        /// From where.
        start: Start,
    },
    /// A client ends a subscription.
    Unsubscribe {
        /// Who.
        client: ClientId,
        /// Which.
        subscription: SubscriptionId,
    },
    /// How a client wants to hear from now on that its events are held; at once until it says so.
    DelayAcks {
        /// Who.
        client: ClientId,
        /// True: with the next message, after [`ACK_DELAY_EVENTS_MAX`](super::ACK_DELAY_EVENTS_MAX)
        /// events, or after [`ACK_DELAY_MS`](super::ACK_DELAY_MS). The client does not wait for it.
        delayed: bool,
    },
    /// A client of this node asks for the whole tree.
    QueryTree {
        /// The shell's name for the question.
        query: QueryId,
        /// When the local view must do, on the monotonic clock.
        deadline_ns: u64,
    },
    /// A client of this node asks all agents.
    QueryTrace {
        /// The shell's name for the question.
        query: QueryId,
        /// What for.
        subject: TraceSubject,
        /// Time for the answer, in milliseconds.
        within_ms: u32,
    },
    /// When the first certificate or revocation list of this agent ends, in Unix nanoseconds.
    CertificatesEnd(Option<u64>),
    /// How the shell proves statements of conditions has changed. The core adds the time of the
    /// last unproven one.
    Trust(Box<TrustReport>),
    /// The journal failed, and can be written again. The next write has a `begin`.
    JournalOpened {
        /// What it holds now.
        stored: Stored,
        /// What an earlier life of the agent has left in it, where that could not be read when the
        /// agent started.
        restored: Option<Box<Restored>>,
        /// What is wrong with the journal; the agent announces it.
        damage: Option<String>,
    },
    /// What [`poll_journal`](super::Node::poll_journal) gave is on disk, as safe as its fsync
    /// policy says.
    Journaled {
        /// The write's generation.
        generation: u64,
        /// The write's `until`.
        until: LogIndex,
        /// A power failure leaves the log up to this index. Said again when only this has risen.
        synced: LogIndex,
    },
    /// What [`Output::ReadJournal`] asked for; `None`: it cannot be read.
    JournalRead {
        /// Which read.
        read: u64,
        /// What was read.
        page: Option<JournalPage>,
    },
    /// The journal can not be written; nothing that it was given counts until it is opened again.
    JournalFailed {
        /// For the log and the event that tells it.
        error: String,
    },
    /// Member list, fan-out or storm rules may have changed in the configuration. Members added at
    /// the end change no rank; an agent whose own rank changes leaves the tree and comes back.
    Reconfigure {
        /// The new list.
        members: MemberList,
        /// The new fan-out.
        fanout: u32,
        /// Whether agents that are in no list may join.
        allow_unlisted: bool,
        /// The new storm rules.
        storm: Vec<StormRule>,
    },
    /// The agent is about to stop: each link gets a Close.
    Stop,
}

/// What a node wants done.
#[derive(Debug)]
pub enum Output {
    /// Connect to that agent and answer with `Dialed` or `DialFailed`, within the deadline.
    Dial {
        /// The attempt.
        dial: DialId,
        /// Whom.
        rank: Rank,
        /// Its host.
        host: String,
        /// Where it listens.
        address: String,
        /// When the shell must give up, on the monotonic clock.
        deadline_ns: u64,
    },
    /// There is something to pull with `poll_link`. Said once when a queue stops being empty.
    LinkReady(LinkId),
    /// Close that transport once what is queued for it is sent.
    CloseLink {
        /// Which.
        link: LinkId,
        /// For the log.
        reason: String,
    },
    /// There is something to pull with `poll_journal`. Said once when there stops being nothing.
    JournalReady,
    /// Read a page of the journal, and answer with `JournalRead`, in any case. No more than
    /// [`JOURNAL_READS_MAX`](super::JOURNAL_READS_MAX) are under way at a time.
    ReadJournal(JournalRead),
    /// There is something to pull with `poll_client`. Said once when a queue stops being empty.
    ClientReady(ClientId),
    /// Stop reading publications of that client until `ResumeClient`: too much is unconfirmed.
    PauseClient(ClientId),
    /// Read publications of that client again.
    ResumeClient(ClientId),
    /// Answer to `QueryTree`.
    Tree {
        /// Which question.
        query: QueryId,
        /// The members.
        nodes: Vec<TreeNode>,
        /// Whether the acting root said so; else it is this agent's own view.
        complete: bool,
    },
    /// Answer to `QueryTrace`.
    Trace {
        /// Which question.
        query: QueryId,
        /// What the agents remember.
        trace: Box<EventTrace>,
    },
    /// A state transition, one log line.
    Transition(Transition),
    /// An event of the agent's own (`ftb.agent`, `FTB_NODE_DEAD` and the like): the shell encodes
    /// and seals it under the agent's own publisher id and gives it back with `Publish` under
    /// [`ClientId::AGENT`].
    Announce(Box<Announcement>),
    /// After `Stop`: nothing more will come.
    Stopped,
}

impl ClientId {
    /// The agent itself, as publisher of its own events. Always attached.
    pub const AGENT: Self = Self(0);
}

/// One line of the log: a state machine of the node has moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// Which machine: "role", "parent", "child", "root", "standby", "journal", "node", "client".
    pub machine: &'static str,
    /// Whose, e.g. the peer's host; the cause for "role"; may be empty.
    pub subject: String,
    /// From which state.
    pub from: &'static str,
    /// To which state.
    pub to: &'static str,
    /// Why, in words.
    pub why: String,
}

/// What the agent itself has to say to the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The event name, e.g. `FTB_NODE_DEAD`.
    pub name: &'static str,
    /// How bad.
    pub severity: Severity,
    /// Facts, e.g. `("host", "node003")`.
    pub tags: Vec<(&'static str, String)>,
    /// The text of the payload.
    pub payload: String,
    /// A condition that it states.
    pub condition: Option<(Condition, Provenance)>,
    /// The statement that it repeats or gives up; its tags and payload are copied.
    pub about: Option<Sealed>,
}

/// What goes to a client, pulled with `poll_client`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToClient {
    /// All of the client's events up to this sequence are confirmed.
    Confirmed {
        /// The highest such.
        seq: PublisherSeq,
        /// The lowest level of those that were to be on disk; `None`: there are none.
        level: Option<ConfirmLevel>,
    },
    /// The subscription is active in the whole tree.
    Subscribed {
        /// Which.
        subscription: SubscriptionId,
        /// Everything that matches behind this is delivered.
        active_after: Position,
    },
    /// A subscription or an event was not accepted.
    Refused {
        /// What.
        what: RefusedWhat,
        /// Why, for programs.
        code: RejectCode,
        /// For people.
        message: String,
    },
    /// Events in log order, all of one epoch.
    Deliver {
        /// For which subscription.
        subscription: SubscriptionId,
        /// The epoch of all of them.
        epoch: Epoch,
        /// Events whose indices follow each other, each with the index of the first.
        items: Vec<(LogIndex, Run)>,
    },
    /// Events that this subscription will not get.
    Gap {
        /// For which subscription.
        subscription: SubscriptionId,
        /// What is missing.
        gap: Gap,
    },
    /// Everything that the subscription wants up to here was delivered or reported as a gap. A
    /// quiet subscription gets this now and then, so that it resumes from here and not from its
    /// last event.
    Covered {
        /// Which subscription.
        subscription: SubscriptionId,
        /// Up to where.
        position: Position,
        /// The past that it began in ends here: what comes from now on is new. Said once, at once.
        history_ended: bool,
    },
}

/// What was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedWhat {
    /// A subscription.
    Subscription(SubscriptionId),
    /// Events, by their publisher sequence numbers.
    Events {
        /// The first.
        first: PublisherSeq,
        /// The last.
        last: PublisherSeq,
    },
}

/// Why a subscription, an event or a client was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectCode {
    /// The filter cannot be parsed.
    Filter,
    /// A limit is reached.
    Limit,
    /// An access rule forbids it.
    Denied,
    /// Client and agent have no common version of the protocol.
    Protocol,
    /// The bytes are malformed.
    Malformed,
    /// A storm rule limits the publisher.
    Rate,
    /// A code of a later version.
    Other,
}

impl RejectCode {
    /// The stable word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Limit => "limit",
            Self::Denied => "denied",
            Self::Protocol => "protocol",
            Self::Malformed => "malformed",
            Self::Rate => "rate",
            Self::Other => "other",
        }
    }
}

/// What a host answers to a dial that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostAnswer {
    /// Nothing.
    Nothing,
    /// It refused: it is alive, and its agent is not there.
    Refused,
    /// It took the connection, and nothing was said on it: it is alive, and its agent stopped. A
    /// host whose agent takes nothing for long answers nothing any more.
    Taken,
}

/// One member as `ftbctl tree` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeNode {
    /// Its place.
    pub rank: Rank,
    /// Its host.
    pub host: String,
    /// Where it stands.
    pub state: MemberState,
    /// Its parent; `None` for the acting root and for agents that are not up.
    pub parent: Option<Rank>,
    /// Its incarnation, 0 when not known.
    pub origin: u64,
    /// Since when, Unix nanoseconds; 0 when not known.
    pub since_ns: u64,
}
