//! The driver: the one task that owns the core.
//!
//! It feeds the core its inputs in order and executes its outputs: dial, fill transports, pause
//! clients, log transitions, publish announcements. Not responsible for: decisions and sockets.

use crate::announce::Announcer;
use crate::expiry::Expiry;
use crate::handle::{Command, Inbox, LinkOrigin, Status, Tree, charged_bytes};
use crate::heap::Heap;
use crate::journal::{LogWriter, WRITE_BYTES};
use crate::links::{Dial, Links};
use crate::repeats::Repeats;
use crate::transports::TransportQueues;
use crate::world::{Alarm, Clock};
use ftb_core::frame::Frame;
use ftb_core::limits::{BATCH_BYTES_TARGET, LINK_BYTES_TARGET};
use ftb_core::node::Node;
use ftb_core::node::api::{
    Announcement, ClientId, Input, JournalRead, JournalWrite, LinkId, Output, QueryId, Transition,
};
use ftb_core::trace::{EventTrace, TraceSubject};
use ftb_core::{ConfirmLevel, Now, Severity};
use ftb_log::TRANSITION;
use ftb_proto::client::Outgoing;
use ftb_transport::executor::wake_in_order;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// Commands taken from one inbox before the other inbox.
const TURN_COMMANDS_MAX: usize = 128;
/// Pending queries about the tree, and about paths; a further one drops the oldest.
const QUERIES_MAX: usize = 64;
/// Input below this size is passed on within the thread: waking a second thread takes longer.
const SMALL_BYTES: u64 = 8 * 1024;
/// Time for the last frames of a closed link.
const LINGER: Duration = Duration::from_secs(1);

/// The driver of one agent.
pub struct Driver {
    node: Node,
    clock: Arc<dyn Clock>,
    links: Links,
    announcer: Announcer,
    started: Now,
    out: Vec<Output>,
    link_outboxes: TransportQueues<LinkId, Frame>,
    client_outboxes: TransportQueues<ClientId, Outgoing>,
    /// One transport, the disk; empty without a journal.
    journal: TransportQueues<(), JournalWrite>,
    journal_ready: bool,
    /// Requests for pages of the journal.
    journal_reads: Option<mpsc::Sender<JournalRead>>,
    link_ends: BTreeMap<LinkId, CancellationToken>,
    client_pauses: BTreeMap<ClientId, watch::Sender<bool>>,
    ready_links: BTreeSet<LinkId>,
    /// In the order of the core's outputs: deliveries come before confirmations.
    ready_clients: Vec<ClientId>,
    /// Bytes of input since the transports were filled.
    given_bytes: u64,
    /// The core has received input in this turn.
    is_fed: bool,
    queries: BTreeMap<QueryId, oneshot::Sender<Tree>>,
    traces: BTreeMap<QueryId, oneshot::Sender<EventTrace>>,
    heap: Heap,
    expiry: Expiry,
    repeats: Repeats,
    /// The last transition, for status reports.
    role: watch::Sender<String>,
    stopping: bool,
}

enum Wake {
    Link(Option<Command>),
    Client(Option<Command>),
    LinkRoom(LinkId),
    ClientRoom(ClientId),
    JournalRoom,
    Deadline,
}

impl Driver {
    /// A driver for a new node.
    pub fn new(
        node: Node,
        clock: Arc<dyn Clock>,
        links: Links,
        announcer: Announcer,
        role: watch::Sender<String>,
    ) -> Self {
        let started = clock.now();
        let expiry = Expiry::new(announcer.host());
        Self {
            node,
            clock,
            links,
            announcer,
            started,
            out: Vec::new(),
            link_outboxes: TransportQueues::default(),
            client_outboxes: TransportQueues::default(),
            journal: TransportQueues::default(),
            journal_ready: false,
            journal_reads: None,
            link_ends: BTreeMap::new(),
            client_pauses: BTreeMap::new(),
            ready_links: BTreeSet::new(),
            ready_clients: Vec::new(),
            given_bytes: 0,
            is_fed: false,
            queries: BTreeMap::new(),
            traces: BTreeMap::new(),
            heap: Heap::default(),
            expiry,
            repeats: Repeats::default(),
            role,
            stopping: false,
        }
    }

    /// Adds a journal, if there is one.
    #[must_use]
    pub fn journaled(mut self, log_writer: Option<LogWriter>) -> Self {
        if let Some(LogWriter { writes, reads }) = log_writer {
            self.journal.open((), writes);
            self.journal_reads = Some(reads);
        }
        self
    }

    /// Runs until everything is sent after [`Command::Stop`], or all handles are dropped. `alarm`
    /// comes from the driver's clock.
    pub async fn run(mut self, mut inbox: Inbox, mut alarm: Box<dyn Alarm>) {
        self.feed(Input::Tick);
        loop {
            match std::mem::take(&mut self.given_bytes) {
                1..SMALL_BYTES => wake_in_order(|| self.pump()),
                _ => self.pump(),
            }
            if self.stopping
                && self.link_outboxes.is_empty()
                && self.client_outboxes.is_empty()
                && self.journal.is_empty()
            {
                return;
            }
            let due_ns = self.due_ns();
            let wake = tokio::select! {
                biased;
                key = self.link_outboxes.room() => Wake::LinkRoom(key),
                key = self.client_outboxes.room() => Wake::ClientRoom(key),
                () = self.journal.room() => Wake::JournalRoom,
                command = inbox.links.recv() => Wake::Link(command),
                command = inbox.clients.recv() => Wake::Client(command),
                () = poll_fn(|context| alarm.poll_due(context, due_ns)) => Wake::Deadline,
            };
            self.is_fed = false;
            match wake {
                Wake::LinkRoom(link) => drop(self.ready_links.insert(link)),
                Wake::ClientRoom(client) => self.ready_clients.push(client),
                Wake::JournalRoom => self.journal_ready = true,
                Wake::Link(Some(command)) | Wake::Client(Some(command)) => self.execute(command),
                Wake::Link(None) | Wake::Client(None) => return,
                Wake::Deadline => {}
            }
            self.take_turn(&mut inbox.links);
            self.take_turn(&mut inbox.clients);
            // Each input also runs expired timers.
            if !self.is_fed {
                self.tick_if_due();
            }
        }
    }

    /// Takes waiting commands, so that batches form and no inbox starves.
    fn take_turn(&mut self, inbox: &mut mpsc::Receiver<Command>) {
        for _ in 0..TURN_COMMANDS_MAX {
            let Ok(command) = inbox.try_recv() else { return };
            self.execute(command);
        }
    }

    /// The next deadline.
    fn due_ns(&self) -> Option<u64> {
        let (heap_ns, expiry_ns) = (self.heap.deadline_ns(), self.expiry.deadline_ns());
        let deadlines = [self.node.next_deadline_ns(), heap_ns, expiry_ns];
        deadlines.into_iter().flatten().min()
    }

    fn tick_if_due(&mut self) {
        let now = self.clock.now();
        if self.heap.is_over(now.mono_ns) {
            ftb_transport::heap::trim();
        }
        if self.expiry.deadline_ns().is_some_and(|deadline| deadline <= now.mono_ns) {
            let announcement = self.expiry.on_time(now);
            self.announce(now, announcement);
        }
        if self.node.next_deadline_ns().is_some_and(|deadline| deadline <= now.mono_ns) {
            self.feed(Input::Tick);
        }
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Input { input, charge } => {
                match &input {
                    Input::LinkClosed { link, .. } => self.forget_link(*link),
                    Input::ClientDetached { client } => {
                        // A client that has said goodbye still reads.
                        self.pump_client(self.clock.now(), *client);
                        self.forget_client(*client);
                    }
                    _ => {}
                }
                let (now, bytes) = (self.clock.now(), charged_bytes(charge.as_ref()));
                self.given_bytes += bytes;
                self.heap.on_handled(now.mono_ns, bytes);
                self.feed_at(now, input);
                drop(charge);
            }
            Command::LinkOpened { cancel, .. } if self.stopping => cancel.cancel(),
            Command::LinkOpened { link, origin, outbox, cancel } => {
                self.link_outboxes.open(link, outbox);
                self.link_ends.insert(link, cancel);
                self.feed(match origin {
                    LinkOrigin::Dialed(dial) => Input::Dialed { dial, link },
                    LinkOrigin::Accepted { certified_hosts } => {
                        Input::Accepted { link, certified_hosts }
                    }
                });
            }
            // Dropping both channels sends the client a goodbye.
            Command::ClientOpened { .. } if self.stopping => {}
            Command::ClientOpened { client, info, outbox, paused } => {
                self.client_outboxes.open(client, outbox);
                self.client_pauses.insert(client, paused);
                self.feed(Input::ClientAttached { client, info });
            }
            Command::Status(reply) => {
                let node = self.node.status();
                let (started_ns, now_ns) = (self.started.mono_ns, self.clock.now().mono_ns);
                let certificate_end_ns = self.expiry.first_end_ns();
                // The requester may be gone, here and below.
                let _ = reply.send(Status { node, started_ns, now_ns, certificate_end_ns });
            }
            Command::Census(reply) => drop(reply.send(self.node.census())),
            Command::Tree { within, reply } => self.ask_tree(within, reply),
            Command::Trace { subject, within, reply } => self.ask_all(subject, within, reply),
            Command::Certificates(files) => {
                let now = self.clock.now();
                let announcement = self.expiry.on_files(now, files);
                self.announce(now, announcement);
                self.feed_at(now, Input::CertificatesEnd(self.expiry.first_end_ns()));
            }
            Command::Stop => {
                self.stopping = true;
                self.feed(Input::Stop);
                self.ready_clients.extend(self.client_outboxes.close_all());
                self.ready_links.extend(self.link_outboxes.close_all());
                self.journal_ready |= !self.journal.close_all().is_empty();
            }
        }
    }

    fn ask_tree(&mut self, within: Duration, reply: oneshot::Sender<Tree>) {
        if self.queries.len() >= QUERIES_MAX {
            self.queries.pop_first();
        }
        let query = QueryId(self.links.handle.next_id());
        self.queries.insert(query, reply);
        let deadline_ns = self.clock.now().deadline_ns(within);
        self.feed(Input::QueryTree { query, deadline_ns });
    }

    fn ask_all(
        &mut self,
        subject: TraceSubject,
        within: Duration,
        reply: oneshot::Sender<EventTrace>,
    ) {
        if self.traces.len() >= QUERIES_MAX {
            self.traces.pop_first();
        }
        let query = QueryId(self.links.handle.next_id());
        self.traces.insert(query, reply);
        let within_ms = u32::try_from(within.as_millis()).unwrap_or(u32::MAX);
        self.feed(Input::QueryTrace { query, subject, within_ms });
    }

    fn feed(&mut self, input: Input) {
        self.feed_at(self.clock.now(), input);
    }

    /// Feeds an input to the core and executes the outputs, which may cause further inputs.
    fn feed_at(&mut self, now: Now, input: Input) {
        self.is_fed = true;
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let mut out = std::mem::take(&mut self.out);
            self.node.handle(now, input, &mut out);
            for output in out.drain(..) {
                inputs.extend(self.act(now, output));
            }
            self.out = out;
        }
    }

    /// Publishes an announcement of the shell, and logs it.
    fn announce(&mut self, now: Now, announcement: Option<Announcement>) {
        let Some(announcement) = announcement else { return };
        // The announcer logs those that are worse.
        if announcement.severity == Severity::Info {
            tracing::info!(event = announcement.name, "{}", announcement.payload);
        }
        if let Some(input) = self.act(now, Output::Announce(Box::new(announcement))) {
            self.feed_at(now, input);
        }
    }

    /// Executes one output; returns the input that follows from it.
    fn act(&mut self, now: Now, output: Output) -> Option<Input> {
        match output {
            Output::Dial { dial, rank: _, host, address, deadline_ns } => {
                let deadline = self.clock.instant(deadline_ns);
                self.links.dial(Dial { id: dial, host, address, deadline });
            }
            Output::LinkReady(link) => drop(self.ready_links.insert(link)),
            Output::CloseLink { link, reason } => self.close_link(link, &reason),
            Output::ClientReady(client) => self.ready_clients.push(client),
            Output::JournalReady => self.journal_ready = true,
            Output::ReadJournal(read) => return self.read_journal(read),
            Output::PauseClient(client) => self.pause(client, true),
            Output::ResumeClient(client) => self.pause(client, false),
            Output::Tree { query, nodes, complete } => {
                if let Some(reply) = self.queries.remove(&query) {
                    let _ = reply.send(Tree { nodes, complete });
                }
            }
            Output::Trace { query, trace } => {
                if let Some(reply) = self.traces.remove(&query) {
                    let _ = reply.send(*trace);
                }
            }
            Output::Transition(transition) => self.log(now, &transition),
            Output::Announce(announcement) => {
                let name = announcement.name;
                match self.announcer.seal(now, *announcement) {
                    Ok(event) => {
                        let events = self.links.signing.sign(event.into());
                        let confirm = ConfirmLevel::Memory;
                        return Some(Input::Publish { client: ClientId::AGENT, events, confirm });
                    }
                    Err(error) => tracing::error!(name, %error, "cannot announce"),
                }
            }
            Output::Stopped => {}
        }
        None
    }

    /// Requests a page of the journal. The channel has room for all requests of the core.
    fn read_journal(&self, read: JournalRead) -> Option<Input> {
        let id = read.read;
        let sent = self.journal_reads.as_ref().map(|reads| reads.try_send(read));
        match sent {
            Some(Ok(())) => None,
            _ => Some(Input::JournalRead { read: id, page: None }),
        }
    }

    fn log(&mut self, now: Now, transition: &Transition) {
        let Transition { machine, subject, from, to, why } = transition;
        // A rejected agent tries again.
        let again = ["refused", "rejected"].contains(to);
        let line = || format!("{machine} {subject} {to} {why}");
        let suppressed = if again { self.repeats.admit(now.mono_ns, line()) } else { Some(0) };
        match suppressed {
            None => {}
            Some(0) => {
                tracing::info!(target: TRANSITION, machine, subject, from, to, why, "transition");
            }
            Some(suppressed) => {
                tracing::info!(
                    target: TRANSITION,
                    machine, subject, from, to, why, suppressed, "transition"
                );
            }
        }
        if *machine == "root" || *machine == "parent" {
            self.role.send_replace(format!("{machine} {subject}: {to}"));
        }
    }

    fn pause(&self, client: ClientId, paused: bool) {
        if let Some(sender) = self.client_pauses.get(&client) {
            sender.send_replace(paused);
        }
    }

    /// Closes a link after its queued frames, or after [`LINGER`].
    fn close_link(&mut self, link: LinkId, reason: &str) {
        tracing::debug!(link = link.0, reason, "closing a link");
        self.link_outboxes.close(link);
        self.ready_links.insert(link);
        if let Some(cancel) = self.link_ends.remove(&link) {
            let ended = self.links.ended.clone();
            self.links.tasks.spawn(async move {
                tokio::select! {
                    () = ended.cancelled() => {}
                    () = cancel.cancelled() => {}
                    () = tokio::time::sleep(LINGER) => cancel.cancel(),
                }
            });
        }
    }

    fn forget_link(&mut self, link: LinkId) {
        self.link_outboxes.remove(link);
        self.link_ends.remove(&link);
    }

    fn forget_client(&mut self, client: ClientId) {
        self.client_outboxes.remove(client);
        self.client_pauses.remove(&client);
    }

    /// Fills the transports that have something to send.
    fn pump(&mut self) {
        let now = self.clock.now();
        loop {
            let (node, out) = (&mut self.node, &mut self.out);
            if std::mem::take(&mut self.journal_ready) {
                self.journal.pump((), |()| node.poll_journal(now, WRITE_BYTES, out));
            }
            for link in std::mem::take(&mut self.ready_links) {
                let poll = |link| node.poll_link(now, link, LINK_BYTES_TARGET, out);
                self.link_outboxes.pump(link, poll);
            }
            for client in std::mem::take(&mut self.ready_clients) {
                self.pump_client(now, client);
            }
            // A poll can make other transports ready.
            let outputs = std::mem::take(&mut self.out);
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                if let Some(input) = self.act(now, output) {
                    self.feed_at(now, input);
                }
            }
        }
    }

    fn pump_client(&mut self, now: Now, client: ClientId) {
        let (node, out) = (&mut self.node, &mut self.out);
        self.client_outboxes.pump(client, |client| {
            node.poll_client(now, client, BATCH_BYTES_TARGET, out).map(Outgoing::Core)
        });
        if !self.client_outboxes.is_known(client) {
            self.client_pauses.remove(&client);
        }
    }
}
