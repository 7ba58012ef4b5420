//! Polls all futures of one connection in a single task.
//!
//! A connection consists of the HTTP/2 codec, its streams and their readers, and each message
//! passes through several of them. As separate tasks of the runtime they would wake each other
//! across threads, which takes longer than handling one small message. The executor polls them in
//! turn until none is ready.
//!
//! One message may also be for several connections. [`wake_in_order`] then lets each executor wake
//! the next one after its own turn, instead of one thread for each.
//!
//! Not responsible for: what the futures do.

use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use core::task::{Context, Poll, Waker};
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use std::cell::RefCell;
use std::sync::Arc;
use std::task::Wake;
use tokio::task::coop;

/// Rounds in one turn of the task. More than one message needs, and few enough that a busy
/// connection does not hold a thread of the runtime.
const ROUNDS_MAX: usize = 16;

/// No future is polled or woken.
const IDLE: u8 = 0;
/// Futures are being polled.
const POLLING: u8 = 1;
/// Bit: a future was woken since the round began.
const WOKEN: u8 = 2;
/// Bit: the executor before this one wakes it, or the next ordinary wake-up does.
const QUEUED: u8 = 4;

/// Most executors that wake each other in order; more are woken at once on several threads.
const ORDERED_MAX: usize = 3;

thread_local! {
    /// Executors woken within [`wake_in_order`] on this thread.
    static DEFERRED: RefCell<Option<Vec<Arc<Shared>>>> = const { RefCell::new(None) };
}

/// Runs `work`. The executors it wakes run one after the other, in that order, if they are at most
/// three. Use it for work after which each of them has little to do.
pub fn wake_in_order<R>(work: impl FnOnce() -> R) -> R {
    let outer = DEFERRED.replace(Some(Vec::new()));
    let deferred = DeferredGuard { outer };
    let result = work();
    drop(deferred);
    result
}

/// Wakes the deferred executors, also after a panic.
struct DeferredGuard {
    outer: Option<Vec<Arc<Shared>>>,
}

impl Drop for DeferredGuard {
    fn drop(&mut self) {
        let deferred = DEFERRED.replace(self.outer.take()).unwrap_or_default();
        if deferred.len() > ORDERED_MAX {
            deferred.iter().for_each(|executor| executor.task.wake());
        } else {
            wake_first(deferred);
        }
    }
}

/// Wakes the first executor, which wakes the others after its turn.
fn wake_first(executors: Vec<Arc<Shared>>) {
    let mut executors = executors.into_iter();
    while let Some(first) = executors.next() {
        let mut inbox = first.inbox.lock();
        // A closed executor has no more turns.
        if !inbox.closed {
            inbox.followers.extend(executors);
            drop(inbox);
            return first.task.wake();
        }
    }
}

type BoxTask = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Accepts futures, which run within [`Executor::run`]. Cheap to clone.
#[derive(Clone, Default)]
pub struct Executor(Arc<Shared>);

impl core::fmt::Debug for Executor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Executor")
    }
}

#[derive(Default)]
struct Shared {
    state: AtomicU8,
    /// The task that polls all futures.
    task: AtomicWaker,
    inbox: Mutex<Inbox>,
}

/// Input from other threads.
#[derive(Default)]
struct Inbox {
    spawned: Vec<BoxTask>,
    /// Executors to wake after this one's turn.
    followers: Vec<Arc<Shared>>,
    /// `run` has ended: new futures are dropped.
    closed: bool,
}

impl Shared {
    fn notify(self: &Arc<Self>) {
        let before = self.state.fetch_or(WOKEN, Ordering::AcqRel);
        if before != IDLE && before & QUEUED == 0 {
            return;
        }
        // A wake-up may come while the thread drops its thread-local variables.
        let is_deferred = DEFERRED.try_with(|deferred| {
            let mut deferred = deferred.borrow_mut();
            let Some(deferred) = deferred.as_mut() else { return false };
            if self.state.fetch_or(QUEUED, Ordering::AcqRel) & QUEUED == 0 {
                deferred.push(Arc::clone(self));
            }
            true
        });
        if !is_deferred.unwrap_or(false) {
            self.state.fetch_and(!QUEUED, Ordering::AcqRel);
            self.task.wake();
        }
    }
}

impl Executor {
    /// Adds a future. It starts in the next round; a future added after `run` has ended is dropped.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut inbox = self.0.inbox.lock();
        if inbox.closed {
            return;
        }
        inbox.spawned.push(Box::pin(task));
        drop(inbox);
        self.0.notify();
    }

    /// Runs `main` and all added futures, and returns the output of `main` when all have ended.
    /// After `main` has ended the others may run until `grace` ends; then they are dropped.
    pub async fn run<F: Future>(&self, main: F, grace: impl Future<Output = ()>) -> F::Output {
        let (mut main, mut grace) = (pin!(Some(main)), pin!(grace));
        let main_waker = Arc::new(TaskWaker::new(&self.0));
        let waker = Waker::from(Arc::clone(&main_waker));
        let mut tasks = Tasks { shared: Arc::clone(&self.0), tasks: Vec::new() };
        let mut output = None;
        core::future::poll_fn(|context| {
            let _turn = Turn(&self.0);
            tasks.shared.task.register(context.waker());
            for _ in 0..ROUNDS_MAX {
                // Everything done before a wake-up is visible from here on.
                tasks.shared.state.swap(POLLING, Ordering::AcqRel);
                if let Some(future) = main.as_mut().as_pin_mut()
                    && main_waker.take()
                    && let Poll::Ready(value) = future.poll(&mut Context::from_waker(&waker))
                {
                    output = Some(value);
                    main.set(None);
                }
                tasks.poll();
                let mut over = || tasks.is_empty() || grace.as_mut().poll(context).is_ready();
                if let Some(output) = output.take_if(|_| over()) {
                    return Poll::Ready(output);
                }
                let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
                let state = &tasks.shared.state;
                if state.compare_exchange(POLLING, IDLE, success, failure).is_ok() {
                    if !coop::has_budget_remaining() {
                        tasks.rotate();
                    }
                    return Poll::Pending;
                }
            }
            tasks.rotate();
            // The state says POLLING: further wake-ups rely on this one.
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Executor {
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

/// The waker of one future.
struct TaskWaker {
    woken: AtomicBool,
    shared: Arc<Shared>,
}

impl TaskWaker {
    /// For a new future, which is to be polled.
    fn new(shared: &Arc<Shared>) -> Self {
        Self { woken: AtomicBool::new(true), shared: Arc::clone(shared) }
    }

    fn take(&self) -> bool {
        // Most futures were not woken, and a load is cheaper than a swap.
        self.woken.load(Ordering::Acquire) && self.woken.swap(false, Ordering::AcqRel)
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.shared.notify();
        }
    }
}

/// One turn of an executor; wakes the followers at its end, however it ends.
struct Turn<'a>(&'a Shared);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let followers = std::mem::take(&mut self.0.inbox.lock().followers);
        wake_first(followers);
    }
}

/// The added futures, while they run.
struct Tasks {
    shared: Arc<Shared>,
    tasks: Vec<(BoxTask, Arc<TaskWaker>, Waker)>,
}

impl Tasks {
    /// Polls each woken future once.
    fn poll(&mut self) {
        let spawned = std::mem::take(&mut self.shared.inbox.lock().spawned);
        self.tasks.extend(spawned.into_iter().map(|task| {
            let task_waker = Arc::new(TaskWaker::new(&self.shared));
            let waker = Waker::from(Arc::clone(&task_waker));
            (task, task_waker, waker)
        }));
        self.tasks.retain_mut(|(task, task_waker, waker)| {
            let mut context = Context::from_waker(waker);
            !(task_waker.take() && task.as_mut().poll(&mut context).is_ready())
        });
    }

    /// Lets another future go first in the next turn. All futures share the runtime's budget for
    /// one task, and a busy future at the front could use all of it in each turn.
    fn rotate(&mut self) {
        if self.tasks.len() > 1 {
            self.tasks.rotate_left(1);
        }
    }

    fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.shared.inbox.lock().spawned.is_empty()
    }
}

/// Futures hold the executor they run in, so none may stay in it. Followers must not wait for a
/// turn that never comes.
impl Drop for Tasks {
    fn drop(&mut self) {
        let mut inbox = self.shared.inbox.lock();
        inbox.closed = true;
        let spawned = std::mem::take(&mut inbox.spawned);
        let followers = std::mem::take(&mut inbox.followers);
        drop(inbox);
        drop(spawned);
        wake_first(followers);
    }
}

#[cfg(test)]
mod tests;
