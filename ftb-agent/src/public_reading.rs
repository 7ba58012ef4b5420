//! Reads the log with the rights that every user of the host has, as a client without a socket.
//!
//! Responsible for: attaching to the driver, subscribing, and what of the deliveries all users may
//! read. Not responsible for: what is done with it.

use crate::access::{Access, ReadRight};
use crate::clients::{Terms, narrowed};
use crate::delivery_filter::DeliveryFilter;
use crate::handle::{Command, Handle, Stopping};
use crate::signing::Signing;
use crate::transports;
use arc_swap::ArcSwap;
use ftb_core::PublisherId;
use ftb_core::condition::Truth;
use ftb_core::filter::Filter;
use ftb_core::log::conditions::Claim;
use ftb_core::log::table_view::{ReadPlace, TableView};
use ftb_core::node::api::{ClientId, ClientInfo, Input, Start, SubscriptionId};
use ftb_proto::client::{FromAgent, Outgoing};
use ftb_proto::condition_state::ConditionState;
use ftb_proto::json::ConditionObject;
use ftb_proto::wire::Outbound as _;
use ftb_transport::Credentials;
use serde::Serialize;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::task::TaskTracker;

/// No user of a host has this number: its rights are those of everyone, and it has published
/// nothing. Its subscriptions share the budget of one user.
const EVERYONE: Credentials = Credentials { uid: u32::MAX, gid: u32::MAX, pid: 0 };
const SUBSCRIPTION: SubscriptionId = SubscriptionId(0);

/// Rows of a table of conditions. Further ones are left out, and `complete` is false.
pub const ROWS_MAX: usize = 10_000;
/// How often a table is read that has gaps. Then the last one counts, and `complete` is false.
const READINGS_MAX: u32 = 3;
/// The pause between two readings.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// What a reading needs of the agent.
#[derive(Clone)]
pub struct ReadingSources {
    /// The driver.
    pub handle: Handle,
    /// Names of this agent.
    pub terms: Arc<Terms>,
    /// The rules by which users read events.
    pub access: Arc<ArcSwap<Access>>,
    /// Verifies events.
    pub signing: Arc<Signing>,
    /// The tasks of the agent.
    pub tasks: TaskTracker,
}

/// Why nothing can be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadingError {
    /// Not every user may read that.
    #[error("{0}")]
    Denied(String),
    /// A limit is reached.
    #[error("{0}")]
    Full(String),
    #[error("the agent is stopping")]
    Stopping,
}

impl From<Stopping> for ReadingError {
    fn from(_: Stopping) -> Self {
        Self::Stopping
    }
}

/// A subscription that runs. It ends when it is dropped.
pub(crate) struct PublicReading {
    client: ClientId,
    inbox: mpsc::Receiver<Outgoing>,
    filter: DeliveryFilter,
    handle: Handle,
    tasks: TaskTracker,
    /// The driver may pause a client that publishes; this one does not.
    _paused: watch::Receiver<bool>,
}

/// Whether every user may read all events of this event space.
pub(crate) fn is_open(sources: &ReadingSources, space: &str) -> bool {
    sources.access.load().of(EVERYONE).reading(space.as_bytes()) == ReadRight::All
}

/// Begins to read.
pub(crate) async fn open(
    sources: &ReadingSources,
    filter: Filter,
    start: Start,
) -> Result<PublicReading, ReadingError> {
    let ReadingSources { handle, access, signing, terms, tasks } = sources;
    let denied = |why: String| ReadingError::Denied(why);
    let filter = narrowed(&access.load().of(EVERYONE), filter).map_err(denied)?;
    let client = ClientId(handle.next_id());
    let (outbox, inbox) = mpsc::channel(transports::DEPTH);
    let (pause, paused) = watch::channel(false);
    let info = ClientInfo {
        uid: EVERYONE.uid,
        gid: EVERYONE.gid,
        pid: std::process::id(),
        name: "http".to_owned(),
        job_id: String::new(),
        publisher: PublisherId {
            account: PublisherId::account_of(&terms.host, EVERYONE.uid),
            token: client.0,
        },
    };
    let opened = Command::ClientOpened { client, info, outbox, paused: pause };
    handle.client_command(opened).await?;
    let reading = PublicReading {
        client,
        inbox,
        filter: DeliveryFilter::new(access.clone(), signing.clone(), EVERYONE),
        handle: handle.clone(),
        tasks: tasks.clone(),
        _paused: paused,
    };
    let filter = filter.into();
    let input = Input::Subscribe { client, subscription: SUBSCRIPTION, filter, start };
    handle.client_input(input, 0).await?;
    Ok(reading)
}

impl PublicReading {
    /// The next message, as a client reads it; `None`: the agent stops.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<FromAgent>> {
        loop {
            let Some(message) = ready!(self.inbox.poll_recv(cx)) else { return Poll::Ready(None) };
            let readable = match message {
                Outgoing::Core(message) => self.filter.readable(message),
                message => Some(message),
            };
            let bytes = readable.map(|message| message.into_slices().concat());
            // What this agent has encoded, it can decode.
            let decoded = bytes.and_then(|bytes| FromAgent::decode(bytes.into()).ok());
            if decoded.is_some() {
                return Poll::Ready(decoded);
            }
        }
    }

    async fn next(&mut self) -> Option<FromAgent> {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }
}

impl Drop for PublicReading {
    fn drop(&mut self) {
        let (handle, client) = (self.handle.clone(), self.client);
        self.tasks.spawn(async move {
            // A driver that has ended has forgotten it.
            let _ = handle.client_input(Input::ClientDetached { client }, 0).await;
        });
    }
}

/// The conditions that hold or are unknown, without watches; by host, component and key.
#[derive(Default)]
pub(crate) struct Table {
    rows: Vec<ConditionState>,
    hidden: u32,
    is_cut: bool,
}

/// A table that is being read. The log also delivers statements that were made meanwhile.
#[derive(Default)]
struct UnreadTable {
    view: TableView<UnreadRow>,
    /// Rows with a state.
    shown: usize,
    is_cut: bool,
}

/// A statement that counts; of one that says *false* only what decides about the next.
struct UnreadRow {
    claim: Claim,
    state: Option<Box<ConditionState>>,
}

impl AsRef<Claim> for UnreadRow {
    fn as_ref(&self) -> &Claim {
        &self.claim
    }
}

impl UnreadTable {
    fn take(&mut self, state: ConditionState) {
        if state.is_watch() {
            return;
        }
        let is_shown = state.truth != Truth::False;
        let known = self.view.get(&state.subject);
        let was_shown = known.is_some_and(|known| known.state.is_some());
        if is_shown && !was_shown && self.shown >= ROWS_MAX {
            self.is_cut = true;
            return;
        }
        let (subject, claim) = (state.subject.clone(), state.claim);
        let row = UnreadRow { claim, state: is_shown.then(|| Box::new(state)) };
        let place = ReadPlace { is_row: true, ..ReadPlace::default() };
        if self.view.take(subject, place, row) {
            self.shown = self.shown + usize::from(is_shown) - usize::from(was_shown);
        }
    }

    fn read(self, hidden: u32, has_gaps: bool) -> Table {
        let rows = self.view.into_rows().filter_map(|row| row.state.map(|state| *state));
        Table { rows: rows.collect(), hidden, is_cut: self.is_cut || has_gaps }
    }
}

/// The same for programs.
#[derive(Serialize)]
pub(crate) struct ConditionDocument<'a> {
    complete: bool,
    hidden: u32,
    conditions: Vec<ConditionObject<'a>>,
}

impl Table {
    /// The rows.
    pub(crate) fn rows(&self) -> &[ConditionState] {
        &self.rows
    }

    pub(crate) fn document(&self) -> ConditionDocument<'_> {
        ConditionDocument {
            complete: !self.is_cut,
            hidden: self.hidden,
            conditions: self.rows.iter().map(ConditionObject::from).collect(),
        }
    }
}

/// Reads the conditions that match a filter.
pub(crate) async fn conditions(
    sources: &ReadingSources,
    filter: Filter,
) -> Result<Table, ReadingError> {
    let mut readings = 1;
    loop {
        let (table, has_gaps) = read_table(sources, filter.clone()).await?;
        if !has_gaps || readings == READINGS_MAX {
            return Ok(table);
        }
        readings += 1;
        tokio::time::sleep(READ_AGAIN_AFTER).await;
    }
}

/// Reads the table once; says whether a statement may be missing.
async fn read_table(
    sources: &ReadingSources,
    filter: Filter,
) -> Result<(Table, bool), ReadingError> {
    let mut reading = open(sources, filter, Start::Conditions).await?;
    let (mut table, mut has_gaps) = (UnreadTable::default(), false);
    while let Some(message) = reading.next().await {
        match message {
            FromAgent::Deliver { mut events, .. } => {
                while let Some(received) = events.take_first() {
                    if let Some(state) = ConditionState::of(&received) {
                        table.take(state);
                    }
                }
            }
            FromAgent::Covered { history_ended: true, hidden, .. } => {
                return Ok((table.read(hidden, has_gaps), has_gaps));
            }
            FromAgent::Gap { gap, .. } => has_gaps |= gap.count != Some(0),
            FromAgent::Rejected { message, .. } => return Err(ReadingError::Full(message)),
            _ => {}
        }
    }
    Err(ReadingError::Stopping)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftb_core::condition::{Subject, WATCHED};
    use ftb_core::{EventId, PublisherId, Severity};

    const MINUTE_NS: u64 = 60_000_000_000;

    /// What a publisher states of the fan of a host.
    fn stated(host: &str, token: u64, truth: Truth, time_ns: u64) -> ConditionState {
        let publisher = PublisherId { account: 1, token };
        let source = EventId { publisher, seq: time_ns.into() };
        let subject = Subject::new(host, "FAN 1", "FANFAIL");
        ConditionState::new(subject, truth, Severity::Error, source, time_ns)
    }

    fn read(statements: Vec<ConditionState>) -> Table {
        let mut table = UnreadTable::default();
        statements.into_iter().for_each(|state| table.take(state));
        table.read(0, false)
    }

    fn hosts(table: &Table) -> Vec<&str> {
        table.rows().iter().map(|state| state.subject.host()).collect()
    }

    /// The log delivers them behind the rows that they replace, or do not.
    #[test]
    fn statements_that_are_made_while_the_table_is_read_count_by_its_rules() {
        let watch = Subject::new("n4", "", WATCHED);
        let table = read(vec![
            stated("n3", 1, Truth::True, 1),
            stated("n2", 1, Truth::True, 10 * MINUTE_NS),
            stated("n1", 1, Truth::False, 1),
            stated("n4", 1, Truth::Unknown, 1),
            ConditionState { subject: watch, ..stated("n4", 2, Truth::True, 1) },
            // It has gone;
            stated("n3", 1, Truth::False, 2),
            // another publisher said so an hour before it began;
            stated("n2", 2, Truth::False, 1),
            // it is back;
            stated("n1", 1, Truth::True, 2),
            // and what its publisher said first is of the past.
            stated("n4", 1, Truth::Unknown, 3),
            stated("n4", 1, Truth::False, 2),
        ]);
        assert_eq!(hosts(&table), ["n1", "n2", "n4"]);
        assert!(!table.is_cut);
    }

    #[test]
    fn a_table_with_too_many_rows_is_cut_and_holds_the_first() {
        let host = |number: usize| format!("n{number}");
        let table =
            read((0..=ROWS_MAX).map(|number| stated(&host(number), 1, Truth::True, 1)).collect());
        assert!(table.is_cut && table.rows().len() == ROWS_MAX);
        // What has gone makes room.
        let rows = (0..2 * ROWS_MAX).map(|number| {
            let truth = if number % 2 == 0 { Truth::True } else { Truth::False };
            stated(&host(number / 2), 1, truth, 1 + number as u64)
        });
        let table = read(rows.collect());
        assert!(!table.is_cut && table.rows().is_empty());
    }
}
