//! From the agent to callbacks and polling queues: what one connected client receives.
//!
//! A stream of the agent is read on the engine's thread. Who gets an event is the
//! [table](crate::table)'s to say; an event for a callback goes through a short queue to the client's
//! own callback thread, which asks again, since the program may have unsubscribed meanwhile. When
//! callbacks are slow that queue is full, the stream is not read, and what comes later waits in the
//! log of the backplane.

use crate::abi::{Code, ReceiveEvent};
use crate::convert;
use crate::engine::{Engine, spawn_deaf};
use crate::ffi::callback::Callback;
use crate::report::Reporter;
use crate::streams::{Answer, Ends, Streams};
use crate::subscription::Mask;
use crate::table::{Table, Winner};
use ftb_client::{Client, Delivery as Next, Received, Start};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Events between the agent's stream and the callback thread.
const CALLS_MAX: usize = 64;
/// How long a subscription may take to become active in the whole tree, while an agent is there and
/// no longer wait is demanded.
pub(crate) const SUBSCRIBE_MAX: Duration = Duration::from_secs(5);
/// How long unsubscribing and disconnecting wait for a callback that is running.
pub(crate) const RETURN_MAX: Duration = Duration::from_secs(1);
/// A stream that is replaced, and has brought nothing for so long, has nothing more to bring.
const DRAINED_AFTER: Duration = Duration::from_secs(10);

struct State {
    table: Table<Callback>,
    streams: Streams,
    /// To the callback thread, once there is one.
    calls: Option<mpsc::Sender<Box<ReceiveEvent>>>,
    callback_thread: Option<ThreadId>,
    /// The subscription whose callback is running.
    running: Option<u16>,
    closed: bool,
}

/// What one connected client receives.
pub(crate) struct Delivery {
    state: Mutex<State>,
    /// Notified when a callback has returned.
    returned: Condvar,
    link: Client,
    engine: Engine,
    reporter: Reporter,
    /// For what is said to people.
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
        queue_max: usize,
        subscribe_max: Duration,
    ) -> Arc<Self> {
        let state = State {
            table: Table::new(queue_max),
            streams: Streams::default(),
            calls: None,
            callback_thread: None,
            running: None,
            closed: false,
        };
        let (state, returned) = (Mutex::new(state), Condvar::new());
        Arc::new(Self { state, returned, link, engine, reporter, name, subscribe_max })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
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
        if callback.is_some() && state.calls.is_none() {
            state.calls = Some(self.start_callback_thread().map_err(|_| Code::General)?);
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

    /// The first queued event that this subscription wants.
    pub(crate) fn poll(&self, number: u16) -> Result<Box<ReceiveEvent>, Code> {
        self.lock().table.poll(number)
    }

    /// Nothing is received from now on.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.table.clear();
        state.streams.close();
        state.calls = None;
        self.wait_returned(state, |running| running.is_some());
    }

    fn wait_returned(&self, state: MutexGuard<'_, State>, runs: impl Fn(Option<u16>) -> bool) {
        if state.callback_thread == Some(std::thread::current().id()) {
            return;
        }
        let waited = self.returned.wait_timeout_while(state, RETURN_MAX, |s| runs(s.running));
        drop(waited);
    }

    /// Opens, replaces or closes the stream so that it brings what the table wants.
    fn retarget(self: &Arc<Self>, state: &mut State) {
        let filter = state.table.filter();
        state.streams.want(filter, |ends| self.engine.spawn(Arc::clone(self).read(ends)));
    }

    /// Less is wanted. A program that subscribes and unsubscribes in turns must not open a stream with
    /// each: while many are still ending, the newest goes on and brings more than is wanted.
    fn narrow(self: &Arc<Self>, state: &mut State) {
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
                // Who waited may be gone.
                let _ = answer.send(Answer::Refused);
                return;
            }
        };
        // Nothing was read yet: it stands where it begins.
        if !self.lock().streams.active(number, stream.position()) {
            return;
        }
        let _ = answer.send(Answer::Active);
        loop {
            let replaced = until.borrow_and_update().is_some();
            let next = tokio::select! {
                next = stream.next() => next,
                _ = until.changed() => continue,
                () = tokio::time::sleep(DRAINED_AFTER), if replaced => {
                    if self.link.connected() { break } else { continue }
                }
            };
            // Read again: it may have been set while the event was on its way.
            let last = *until.borrow();
            match next {
                Some(Next::Event(event)) if last.is_some_and(|last| event.position > last) => break,
                Some(Next::Event(event)) => self.deliver(&event).await,
                Some(Next::Gap(gap)) => self.reporter.say(&format!(
                    "client {}: {} events are missing: {:?}",
                    self.name, gap.count, gap.reason
                )),
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

    async fn deliver(&self, received: &Received) {
        let event = Box::new(convert::delivered(received));
        let calls = {
            let mut state = self.lock();
            if !state.streams.is_new(received.id, received.position) {
                return;
            }
            match state.table.winner(&event) {
                Winner::Callback(..) => state.calls.clone(),
                Winner::Poll => return self.queue(&mut state, event),
                Winner::None => return,
            }
        };
        if let Some(calls) = calls {
            // An error says that the client is being disconnected.
            let _ = calls.send(event).await;
        }
    }

    fn queue(&self, state: &mut State, event: Box<ReceiveEvent>) {
        // Told when it begins; the sum is told in the end.
        if state.table.push(event) == Some(1) {
            self.reporter.say(&format!(
                "client {}: its polling queue is full: the oldest events are dropped; poll more \
                 often, or connect with a longer client_polling_queue_len",
                self.name
            ));
        }
    }

    fn start_callback_thread(self: &Arc<Self>) -> std::io::Result<mpsc::Sender<Box<ReceiveEvent>>> {
        let (calls, called) = mpsc::channel(CALLS_MAX);
        let delivery = Arc::clone(self);
        spawn_deaf("ftb-callback", move || delivery.call_back(called))?;
        Ok(calls)
    }

    /// The callback thread: one call after the other until the client is disconnected.
    fn call_back(&self, mut called: mpsc::Receiver<Box<ReceiveEvent>>) {
        self.lock().callback_thread = Some(std::thread::current().id());
        while let Some(mut event) = called.blocking_recv() {
            let mut state = self.lock();
            // Asked again: the one that was to be called may have been unsubscribed.
            let callback = match state.table.winner(&event) {
                Winner::Callback(number, callback) => {
                    state.running = Some(number);
                    callback
                }
                Winner::Poll => {
                    self.queue(&mut state, event);
                    continue;
                }
                Winner::None => continue,
            };
            drop(state);
            callback.call(&mut event);
            self.lock().running = None;
            self.returned.notify_all();
        }
    }
}
