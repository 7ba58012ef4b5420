//! From the agent to callbacks and polling queues: what one connected client receives.
//!
//! A task on the engine's thread reads the agent's stream in batches and converts them. The
//! [table](crate::table) says which subscription gets an event. Events for callbacks wait in a
//! short list, which the client's own callback thread takes as a whole. When callbacks are slow the
//! list is full, the task stops reading, and later events wait in the log of the backplane.

use crate::abi::{Code, Gap as CGap, ReceiveEvent};
use crate::convert::{self, Parts};
use crate::engine::{Engine, spawn_deaf};
use crate::ffi::callback::Callback;
use crate::gaps;
use crate::report::Reporter;
use crate::streams::{Answer, Ends, Streams};
use crate::subscription::Mask;
use crate::table::{Table, Winner};
use core::pin::pin;
use ftb_client::{Client, Deliveries, EventBatch, EventId, Gap, Position, Severity, Start};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Events that wait for the callback thread, beside as many that it has taken (some 200 KiB each).
const CALLS_MAX: usize = 256;
/// Events that are handed out under one lock.
const CHUNK_EVENTS: usize = 64;
/// How long a subscription may take to become active in the whole tree, while an agent is there and
/// no longer wait is demanded.
pub(crate) const SUBSCRIBE_MAX: Duration = Duration::from_secs(5);
/// How long unsubscribing and disconnecting wait for a callback that is running.
pub(crate) const RETURN_MAX: Duration = Duration::from_secs(1);
/// A stream that is replaced, and was silent for this time, has no more events.
const DRAINED_AFTER: Duration = Duration::from_secs(10);
/// Losses of one client within this time become one line for each reason.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// An event for a callback.
struct Call {
    event: ReceiveEvent,
    severity: Severity,
    number: u16,
    callback: Callback,
    /// [`Table::changes`] when the callback was chosen.
    changes: u64,
}

struct DeliveryState {
    table: Table<Callback>,
    streams: Streams,
    /// Events for the callback thread. Bound: [`CALLS_MAX`].
    calls: Vec<Call>,
    callback_thread: CallbackThread,
    /// The subscription whose callback is running.
    running: Option<u16>,
    /// Threads that wait for it to return.
    waiting_for_return: usize,
    /// A task reports losses, or waits until the next report is due.
    reporting: bool,
    closed: bool,
}

/// The thread that runs callbacks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CallbackThread {
    /// No subscription has needed it so far.
    None,
    Starting,
    /// It calls, or looks for the next call.
    Busy(ThreadId),
    /// It waits for a call.
    Idle(ThreadId),
}

impl CallbackThread {
    fn is_current(self) -> bool {
        matches!(self, Self::Busy(id) | Self::Idle(id) if id == std::thread::current().id())
    }
}

/// What one connected client receives.
pub(crate) struct Delivery {
    state: Mutex<DeliveryState>,
    /// Notified when there is a call, or the client is closed.
    called: Condvar,
    /// Notified when the callback thread has taken all calls, or the client is closed.
    room: Notify,
    /// Notified when a callback has returned.
    returned: Condvar,
    link: Client,
    engine: Engine,
    reporter: Reporter,
    /// For messages.
    name: String,
    /// How long a subscription may take to become active, while an agent is there.
    subscribe_max: Duration,
}

impl Delivery {
    pub(crate) fn new(
        link: Client,
        engine: Engine,
        reporter: Reporter,
        name: String,
        queue_events_max: Option<usize>,
        subscribe_max: Duration,
    ) -> Arc<Self> {
        let state = DeliveryState {
            table: Table::new(queue_events_max),
            streams: Streams::default(),
            calls: Vec::new(),
            callback_thread: CallbackThread::None,
            running: None,
            waiting_for_return: 0,
            reporting: false,
            closed: false,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            called: Condvar::new(),
            room: Notify::new(),
            returned: Condvar::new(),
            link,
            engine,
            reporter,
            name,
            subscribe_max,
        })
    }

    fn lock(&self) -> MutexGuard<'_, DeliveryState> {
        // A panic inside is a defect; what the state holds is still the best there is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes. With an agent: waits until the subscription is active. Without one it becomes
    /// active when an agent comes. Gives the subscription's number.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        mask: Mask,
        callback: Option<Callback>,
    ) -> Result<u16, Code> {
        let mut state = self.lock();
        if state.closed {
            return Err(Code::InvalidHandle);
        }
        if callback.is_some() && state.callback_thread == CallbackThread::None {
            self.start_callback_thread().map_err(|_| Code::General)?;
            state.callback_thread = CallbackThread::Starting;
        }
        let number = state.table.add(mask, callback)?;
        self.retarget(&mut state);
        drop(state);
        match self.activated() {
            Ok(()) => Ok(number),
            Err(code) => {
                let mut state = self.lock();
                state.table.remove(number);
                self.narrow(&mut state);
                Err(code)
            }
        }
    }

    /// Waits for what the agent says to the newest stream: it feeds all subscriptions.
    fn activated(&self) -> Result<(), Code> {
        let start = Instant::now();
        while self.link.connected() {
            let Some(mut answer) = self.lock().streams.answer() else { break };
            let left = self.subscribe_max.checked_sub(start.elapsed());
            let left = left.ok_or(Code::NetworkGeneral)?;
            let answered = async move {
                answer.wait_for(|answer| *answer != Answer::Waiting).await.map(|answer| *answer)
            };
            match self.engine.wait(left, answered) {
                Some(Ok(Answer::Active)) => return Ok(()),
                Some(Ok(_)) => return Err(Code::General),
                // A newer stream has taken its place.
                Some(Err(_)) => {}
                None if self.link.connected() => return Err(Code::NetworkGeneral),
                None => break,
            }
        }
        Ok(())
    }

    /// Unsubscribes. Afterwards its callback does not run any more, unless it runs right now and
    /// takes longer than [`RETURN_MAX`], or is the caller.
    pub(crate) fn unsubscribe(self: &Arc<Self>, number: u16) -> Result<(), Code> {
        let mut state = self.lock();
        if !state.table.remove(number) {
            return Err(Code::InvalidHandle);
        }
        self.narrow(&mut state);
        self.wait_returned(state, |running| running == Some(number));
        Ok(())
    }

    /// Hands the first queued event that this subscription wants to `take`.
    pub(crate) fn poll(&self, number: u16, take: impl FnOnce(&ReceiveEvent)) -> Result<(), Code> {
        self.lock().table.poll(number, take)
    }

    /// What this subscription missed, of one reason, since this was last asked.
    pub(crate) fn poll_gap(&self, number: u16) -> Result<CGap, Code> {
        let (reason, loss) = self.lock().table.take_loss(number)?;
        Ok(gaps::as_c(reason, &loss))
    }

    /// Receives nothing from now on.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.table.clear();
        state.streams.close();
        state.calls.clear();
        self.called.notify_all();
        self.room.notify_waiters();
        self.wait_returned(state, |running| running.is_some());
    }

    fn wait_returned(
        &self,
        mut state: MutexGuard<'_, DeliveryState>,
        runs: impl Fn(Option<u16>) -> bool,
    ) {
        if state.callback_thread.is_current() || !runs(state.running) {
            return;
        }
        state.waiting_for_return += 1;
        let waited = self.returned.wait_timeout_while(state, RETURN_MAX, |s| runs(s.running));
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting_for_return -= 1;
    }

    /// Opens, replaces or closes the stream so that it brings what the table wants.
    fn retarget(self: &Arc<Self>, state: &mut DeliveryState) {
        let filter = state.table.filter();
        state.streams.want(filter, |ends| self.engine.spawn(Arc::clone(self).read(ends)));
    }

    /// Less is wanted. A program that subscribes and unsubscribes in turns must not open a stream
    /// with each: while many are still ending, the newest goes on and brings more than is wanted.
    fn narrow(self: &Arc<Self>, state: &mut DeliveryState) {
        if state.table.is_empty() || !state.streams.are_many() {
            self.retarget(state);
        }
    }

    /// Reads one stream of the agent.
    async fn read(self: Arc<Self>, ends: Ends) {
        let Ends { number, filter, answer, mut until } = ends;
        let mut stream = match self.link.subscribe(&filter, Start::Now).await {
            Ok(stream) => stream,
            Err(why) => {
                self.reporter.say(&format!("client {}: no events: {why}", self.name));
                self.lock().streams.ended(number);
                // The thread that waited may be gone.
                let _ = answer.send(Answer::Refused);
                return;
            }
        };
        // Nothing was read yet: it stands where it begins.
        if !self.lock().streams.active(number, stream.position()) {
            return;
        }
        let _ = answer.send(Answer::Active);
        let mut chunk = Vec::new();
        loop {
            let replaced = until.borrow_and_update().is_some();
            let next = if replaced {
                tokio::select! {
                    biased;
                    next = stream.next_batch() => next,
                    _ = until.changed() => continue,
                    () = tokio::time::sleep(DRAINED_AFTER) => {
                        if self.link.connected() { break } else { continue }
                    }
                }
            } else {
                tokio::select! {
                    biased;
                    next = stream.next_batch() => next,
                    _ = until.changed() => continue,
                }
            };
            // Read again: it may have been set while the events were on their way.
            let last = *until.borrow();
            match next {
                Some(Deliveries::Events(batch)) => {
                    self.deliver(&batch, last, &mut chunk).await;
                    if last.is_some_and(|last| batch.last_position() > Some(last)) {
                        break;
                    }
                }
                // The newer stream reports gaps that begin where it began.
                Some(Deliveries::Gap(gap)) if last.is_some_and(|last| gap.after >= last) => break,
                Some(Deliveries::Gap(gap)) => self.miss(&gap),
                None => {
                    if let Some(why) = stream.ended().filter(|_| !self.lock().closed) {
                        self.reporter.say(&format!("client {}: no more events: {why}", self.name));
                    }
                    return self.lock().streams.ended(number);
                }
            }
        }
        // Another has taken its place.
        let mut state = self.lock();
        state.streams.ended(number);
        self.narrow(&mut state);
    }

    /// Hands out the events of a batch up to `last`. `chunk` is empty, and only lends its memory.
    async fn deliver(
        self: &Arc<Self>,
        batch: &EventBatch,
        last: Option<Position>,
        chunk: &mut Vec<Arrived>,
    ) {
        let mut events = batch
            .iter()
            .take_while(|event| last.is_none_or(|last| event.position() <= last))
            .map(|event| Arrived {
                id: event.id(),
                position: event.position(),
                severity: event.severity(),
                event: convert::delivered(&Parts::from(event)),
            });
        loop {
            chunk.extend(events.by_ref().take(CHUNK_EVENTS));
            if chunk.is_empty() {
                return;
            }
            while !self.hand_out(chunk) {
                if !self.has_room().await {
                    return chunk.clear();
                }
            }
            // Other tasks of this thread have their turn.
            tokio::task::consume_budget().await;
        }
    }

    /// Waits until the callback thread takes calls. Returns false if the client was closed.
    async fn has_room(&self) -> bool {
        let room = |state: &DeliveryState| (state.calls.len() < CALLS_MAX).then_some(!state.closed);
        loop {
            let mut taken = pin!(self.room.notified());
            // Before the look at the state: what changes in between is not missed.
            taken.as_mut().enable();
            if let Some(open) = room(&self.lock()) {
                return open;
            }
            taken.await;
        }
    }

    /// Hands each event to the subscription that gets it, and empties the chunk. Returns false, and
    /// does nothing, if the list of calls is full.
    fn hand_out(self: &Arc<Self>, chunk: &mut Vec<Arrived>) -> bool {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.calls.len() >= CALLS_MAX {
            return false;
        }
        let mut has_lost = false;
        // By reference: an event is large, and is copied once.
        for Arrived { id, position, severity, event } in &*chunk {
            if !state.streams.is_new(*id, *position) {
                continue;
            }
            let severity = *severity;
            match state.table.winner(event) {
                Winner::Callback(number, callback) => {
                    let (event, changes) = (*event, state.table.changes());
                    state.calls.push(Call { event, severity, number, callback, changes });
                }
                Winner::Poll => has_lost |= state.table.push(event, severity),
                Winner::None => {}
            }
        }
        chunk.clear();
        if has_lost {
            self.report_soon(state);
        }
        let wakes =
            !state.calls.is_empty() && matches!(state.callback_thread, CallbackThread::Idle(_));
        drop(guard);
        if wakes {
            self.called.notify_one();
        }
        true
    }

    /// The agent reports a gap.
    fn miss(self: &Arc<Self>, gap: &Gap) {
        let mut state = self.lock();
        state.table.miss(gap);
        self.report_soon(&mut state);
    }

    /// Reports losses on standard error: at once, then at most once in each [`REPORT_EVERY`].
    fn report_soon(self: &Arc<Self>, state: &mut DeliveryState) {
        if std::mem::replace(&mut state.reporting, true) {
            return;
        }
        let delivery = Arc::downgrade(self);
        self.engine.spawn(async move {
            while delivery.upgrade().is_some_and(|delivery| delivery.report_losses()) {
                tokio::time::sleep(REPORT_EVERY).await;
            }
        });
    }

    /// Writes what was lost since the last report, a line for each reason. Returns whether there
    /// was any; if not, the next loss is reported at once.
    pub(crate) fn report_losses(&self) -> bool {
        let mut state = self.lock();
        let lines = state.table.take_unreported().take_lines();
        state.reporting = !lines.is_empty();
        drop(state);
        for (reason, loss, line) in &lines {
            if !self.reporter.say_limited(&format!("client {}: {line}", self.name)) {
                self.lock().table.not_reported(*reason, loss);
            }
        }
        !lines.is_empty()
    }

    fn start_callback_thread(self: &Arc<Self>) -> std::io::Result<()> {
        let delivery = Arc::clone(self);
        spawn_deaf("ftb-callback", move || delivery.call_back())
    }

    /// The callback thread: one call after the other until the client is disconnected.
    fn call_back(self: &Arc<Self>) {
        let thread = std::thread::current().id();
        let mut calls = Vec::new();
        let mut state = self.lock();
        loop {
            while state.calls.is_empty() && !state.closed {
                state.callback_thread = CallbackThread::Idle(thread);
                state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.callback_thread = CallbackThread::Busy(thread);
            if state.closed {
                return;
            }
            std::mem::swap(&mut state.calls, &mut calls);
            self.room.notify_waiters();
            for call in &mut calls {
                state = self.call(state, call);
            }
            calls.clear();
        }
    }

    /// Makes one call, unless the program unsubscribed meanwhile: then another subscription may get
    /// the event.
    fn call<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, DeliveryState>,
        call: &mut Call,
    ) -> MutexGuard<'a, DeliveryState> {
        let winner = if call.changes == state.table.changes() {
            Winner::Callback(call.number, call.callback)
        } else {
            state.table.winner(&call.event)
        };
        let callback = match winner {
            Winner::Callback(number, callback) => {
                state.running = Some(number);
                callback
            }
            Winner::Poll => {
                if state.table.push(&call.event, call.severity) {
                    self.report_soon(&mut state);
                }
                return state;
            }
            Winner::None => return state,
        };
        drop(state);
        callback.call(&mut call.event);
        let mut state = self.lock();
        state.running = None;
        if state.waiting_for_return > 0 {
            self.returned.notify_all();
        }
        state
    }
}

/// An event that has just arrived.
struct Arrived {
    id: EventId,
    position: Position,
    severity: Severity,
    event: ReceiveEvent,
}
