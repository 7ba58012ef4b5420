//! The thread that receives requests and agreement frames while the program computes, and the place
//! where the program waits for the agreement.
//!
//! The thin shell around [`crate::agreement`]. Not responsible for the actions at the safe point.

use crate::agreement::{Agreement, AgreementFrame, Counts, Output, Step};
use crate::backplane::{Backplane, Notice, RequestSink};
use crate::channel::Registry;
use crate::error::{Error, Result};
use crate::inbox::{ControlSink, Inbox, Recall};
use crate::repair::Repairs;
use crate::request::{Request, RequestKind};
use crate::router::Router;
use crate::{limits, lock, spawn_helper};
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval of the checks on the links of the agreement.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Why a program cannot go on with fewer ranks in place.
pub(crate) const NOT_DIVIDED: &str = "the program does not divide its state among fewer ranks";

/// An input of the control thread.
pub(crate) enum Input {
    Request(Request),
    Frame { from: u32, payload: Vec<u8> },
    Stop,
}

/// The senders of the control thread's queue; made before all its sources.
pub(crate) struct Inputs {
    sender: SyncSender<Input>,
    receiver: Receiver<Input>,
}

impl Inputs {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = sync_channel(limits::CONTROL_INPUTS_MAX);
        Self { sender, receiver }
    }

    pub(crate) fn request_sink(&self) -> RequestSink {
        let sender = self.sender.clone();
        RequestSink(Box::new(move |request| sender.send(Input::Request(request)).is_ok()))
    }

    pub(crate) fn control_sink(&self) -> ControlSink {
        let sender = self.sender.clone();
        Box::new(move |from, payload| match sender.try_send(Input::Frame { from, payload }) {
            Err(TrySendError::Full(Input::Frame { payload, .. })) => Some(payload),
            Err(TrySendError::Disconnected(_)) => {
                tracing::debug!(from, "control frame after the end");
                None
            }
            _ => None,
        })
    }
}

/// The agreement and everything that it needs to act.
pub(crate) struct Control {
    shared: Arc<Shared>,
    sender: SyncSender<Input>,
    /// Until the thread takes it.
    receiver: Option<Receiver<Input>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    rank: u32,
    agreement: Mutex<Agreement>,
    woken: Condvar,
    router: Arc<Router>,
    backplane: Arc<dyn Backplane>,
    /// The answer to the last episode.
    answer: Mutex<Option<Notice>>,
    inbox: Arc<Inbox>,
    registry: Registry,
    recovery: Mutex<Recovery>,
    repairs: Repairs,
}

/// Going back to an image in place.
struct Recovery {
    /// Whether the program can go back; unknown until it says so or communicates without having
    /// said so.
    able: Option<bool>,
    /// Whether it can divide its state anew among fewer ranks.
    divides: bool,
    /// The last episode in which it was asked to, or the one that started it.
    seen: u64,
    /// A request to go back from that time.
    early: Option<Recall>,
}

impl Control {
    pub(crate) fn new(
        inputs: Inputs,
        rank: u32,
        agreement: Agreement,
        router: Arc<Router>,
        backplane: Arc<dyn Backplane>,
        recalled: (Arc<Inbox>, Registry, u64),
    ) -> Self {
        let (inbox, registry, seen) = recalled;
        let shared = Arc::new(Shared {
            rank,
            agreement: Mutex::new(agreement),
            woken: Condvar::new(),
            router,
            backplane,
            answer: Mutex::new(None),
            inbox,
            registry,
            recovery: Mutex::new(Recovery { able: None, divides: false, seen, early: None }),
            repairs: Repairs::default(),
        });
        Self { shared, sender: inputs.sender, receiver: Some(inputs.receiver), thread: None }
    }

    /// Starts to handle inputs. Only when the channels are resumed: an answer to another rank must
    /// not be dropped.
    pub(crate) fn listen(&mut self) -> Result<()> {
        if let Some(receiver) = self.receiver.take() {
            let shared = Arc::clone(&self.shared);
            let run = move || shared.run(&receiver);
            self.thread = Some(spawn_helper("ftb-control", run).map_err(Error::Thread)?);
        }
        Ok(())
    }

    /// The program has reached its next safe point: `None` to go on. Waits while the ranks agree,
    /// and `until` then for a request; `check` fails when that is hopeless.
    pub(crate) fn arrive(
        &self,
        until: Option<Instant>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Option<Request>> {
        let mut agreement = lock(&self.shared.agreement);
        loop {
            let waits = until.is_some_and(|until| Instant::now() < until);
            let step = if waits { agreement.arrive_for_request() } else { agreement.arrive() };
            match step {
                Step::Pass => return Ok(None),
                Step::Act(request) => return Ok(Some(request)),
                Step::Wait => {}
            }
            check()?;
            let waited = self.shared.woken.wait_timeout(agreement, CHECK_INTERVAL);
            agreement = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Reports how much this rank has sent, and waits for how much must arrive; `check` as above.
    pub(crate) fn exchange(&self, sent: Counts, check: &dyn Fn() -> Result<()>) -> Result<Counts> {
        let mut outputs = Vec::new();
        lock(&self.shared.agreement).suspended(sent, &mut outputs);
        self.shared.perform(outputs);
        let mut agreement = lock(&self.shared.agreement);
        loop {
            if let Some(expected) = agreement.expected() {
                return Ok(expected.clone());
            }
            check()?;
            let waited = self.shared.woken.wait_timeout(agreement, CHECK_INTERVAL);
            agreement = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Safe points passed, without the present one.
    pub(crate) fn passed(&self) -> u64 {
        lock(&self.shared.agreement).passed()
    }

    /// Whether the launcher has cancelled the leaving of that episode.
    pub(crate) fn is_aborted(&self, episode: u64) -> bool {
        lock(&self.shared.agreement).is_aborted(episode)
    }

    /// Publishes the answer to the open request.
    pub(crate) fn answer(&self, notice: Notice) {
        self.shared.backplane.publish(&notice);
        *lock(&self.shared.answer) = Some(notice);
    }

    /// The request is executed and the channels are resumed.
    pub(crate) fn finished(&self) {
        let mut outputs = Vec::new();
        lock(&self.shared.agreement).finished(&mut outputs);
        self.shared.perform(outputs);
    }

    /// Whether the program can go back to an image in place.
    pub(crate) fn can_roll_back(&self, able: bool) {
        let early = {
            let mut recovery = lock(&self.shared.recovery);
            recovery.able = Some(able);
            recovery.early.take()
        };
        if let Some(recall) = early {
            self.shared.call_back(recall, &[]);
        }
    }

    /// Whether the program can divide its state anew among fewer ranks.
    pub(crate) fn can_divide(&self, able: bool) {
        lock(&self.shared.recovery).divides = able;
    }

    pub(crate) fn divides(&self) -> bool {
        lock(&self.shared.recovery).divides
    }

    /// The open call to the launcher.
    pub(crate) fn repairs(&self) -> &Repairs {
        &self.shared.repairs
    }

    /// The rank has gone back: earlier agreements are void.
    pub(crate) fn go_back(&self, agreement: Agreement) {
        *lock(&self.shared.agreement) = agreement;
        *lock(&self.shared.answer) = None;
    }

    /// Stops the thread; returns the open requests.
    pub(crate) fn stop(&mut self) -> Vec<Request> {
        let Some(thread) = self.thread.take() else {
            return Vec::new();
        };
        // It ends by itself only when it has panicked; then there is nothing to stop.
        self.sender.send(Input::Stop).ok();
        thread.join().ok();
        let mut agreement = lock(&self.shared.agreement);
        let refused = agreement.refused();
        if refused.queue_full + refused.unexpected > 0 {
            tracing::warn!(rank = self.shared.rank, ?refused, "requests were refused");
        }
        agreement.abandon()
    }
}

impl Shared {
    fn run(&self, inputs: &Receiver<Input>) {
        while let Ok(input) = inputs.recv() {
            let mut outputs = Vec::new();
            match input {
                Input::Stop => return,
                Input::Request(Request {
                    episode,
                    kind: RequestKind::Rollback { set, ranks, left },
                }) => {
                    let divides = !left.is_empty();
                    self.call_back(Recall { episode, set, divides }, &ranks);
                }
                Input::Request(Request { kind: RequestKind::Repair(news), .. }) => {
                    // In this order: a send that ends says why.
                    self.inbox.mark_dead(&news.dead.0);
                    self.registry.sever(&news.dead.0);
                    self.inbox.revoke(&news.revoked);
                    self.repairs.hear(news);
                }
                Input::Request(request) => {
                    tracing::debug!(rank = self.rank, ?request, "request");
                    lock(&self.agreement).handle_request(request, &mut outputs);
                }
                Input::Frame { from, payload } => match serde_json::from_slice(&payload) {
                    Ok(frame) => lock(&self.agreement).handle_frame(from, frame, &mut outputs),
                    Err(error) => {
                        tracing::warn!(rank = self.rank, from, %error, "malformed control frame");
                    }
                },
            }
            self.perform(outputs);
        }
    }

    /// Ranks have died. Every wait of the program ends; its next call goes back.
    fn call_back(&self, recall: Recall, dead: &[u32]) {
        let episode = recall.episode;
        let mut recovery = lock(&self.recovery);
        if episode <= recovery.seen || dead.contains(&self.rank) {
            return;
        }
        let Some(able) = recovery.able else {
            recovery.early = Some(recall);
            return;
        };
        let refusal = match (able, recall.divides && !recovery.divides) {
            (false, _) => Some("the program does not go back in place"),
            (true, true) => Some(NOT_DIVIDED),
            (true, false) => None,
        };
        if let Some(reason) = refusal {
            let (set, reason) = (recall.set, reason.to_owned());
            return self.backplane.publish(&Notice::RollbackFailed { episode, set, reason });
        }
        recovery.seen = episode;
        tracing::info!(rank = self.rank, episode, set = recall.set, "called back");
        // In this order: a call that ends says why.
        self.inbox.call_back(recall);
        self.registry.call_back(episode, &dead.iter().copied().collect());
        // A thread between its check and its wait holds the lock.
        drop(lock(&self.agreement));
        self.woken.notify_all();
    }

    fn perform(&self, outputs: Vec<Output>) {
        let mut outputs = VecDeque::from(outputs);
        while let Some(output) = outputs.pop_front() {
            match output {
                Output::Send { to, frame } if to == self.rank => {
                    let mut more = Vec::new();
                    lock(&self.agreement).handle_frame(to, frame, &mut more);
                    outputs.extend(more);
                }
                Output::Send { to, frame } => self.send(to, &frame),
                Output::Wake => self.woken.notify_all(),
                Output::AnswerAgain { episode } => {
                    tracing::debug!(rank = self.rank, episode, "answered again");
                    if let Some(notice) = &*lock(&self.answer) {
                        self.backplane.publish(notice);
                    }
                }
            }
        }
    }

    fn send(&self, to: u32, frame: &AgreementFrame) {
        match serde_json::to_vec(frame) {
            Ok(payload) if payload.len() <= limits::CONTROL_BYTES_MAX => {
                self.router.send_control(to, &payload);
            }
            Ok(payload) => {
                let bytes = payload.len();
                tracing::error!(rank = self.rank, bytes, "control frame over its bound");
            }
            Err(error) => tracing::error!(rank = self.rank, %error, "control frame not encoded"),
        }
    }
}
