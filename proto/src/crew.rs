//! Futures that run as one task.
//!
//! What a connection is made of (HTTP/2, the streams on it, whoever reads them) hands every message on
//! several times. As tasks of the runtime each hand-over goes through its queues, and often wakes another
//! thread, which for a message that comes alone takes longer than all the rest. Here they are polled one
//! after the other by the one task that they are, until none has anything left to do.
//!
//! Where one message wakes several crews, each wakes the next when it has had its turn
//! ([`one_after_another`]): the runtime would wake another thread for the second, before the first has run.
//!
//! Responsible for: polling whom somebody has woken, and nobody else. Not responsible for: what they do.

use core::pin::{Pin, pin};
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use core::task::{Context, Poll, Waker};
use futures_util::task::AtomicWaker;
use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use tokio::task::coop;

/// Rounds in one turn; then others have theirs. More than a message needs on its way, and few enough that
/// a connection that never rests does not keep a thread.
const ROUNDS_MAX: usize = 16;

/// Nobody polls, nobody has been woken since.
const ASLEEP: u8 = 0;
/// Members are being polled.
const POLLING: u8 = 1;
/// Bit: somebody was woken since the round began.
const AGAIN: u8 = 2;
/// Bit: it is woken when those before it have had their turns, or when somebody else wakes it.
const IN_LINE: u8 = 4;

/// Most crews that wait for each other; where more are woken at once, several threads are worth waking.
const IN_TURN_MAX: usize = 3;

thread_local! {
    /// Crews that were woken within [`one_after_another`] on this thread.
    static HELD: RefCell<Option<Vec<Arc<Shared>>>> = const { RefCell::new(None) };
}

/// Crews that are woken within `work` have their turns one after the other, in that order, if they are
/// few: for work of which each has little to do.
pub fn one_after_another<R>(work: impl FnOnce() -> R) -> R {
    let outer = HELD.replace(Some(Vec::new()));
    let held = Held { outer };
    let result = work();
    drop(held);
    result
}

/// Wakes those that were held back, also when the work has panicked.
struct Held {
    outer: Option<Vec<Arc<Shared>>>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let held = HELD.replace(self.outer.take()).unwrap_or_default();
        if held.len() > IN_TURN_MAX {
            held.iter().for_each(|crew| crew.task.wake());
        } else {
            wake_in_turn(held);
        }
    }
}

/// Wakes the first, which wakes the others when it has had its turn.
fn wake_in_turn(crews: Vec<Arc<Shared>>) {
    let mut crews = crews.into_iter();
    while let Some(first) = crews.next() {
        let mut outside = first.outside();
        // One that is over has no turn any more.
        if !outside.over {
            outside.behind.extend(crews);
            drop(outside);
            return first.task.wake();
        }
    }
}

type Member = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes futures in, which run with [`Crew::run`]. Cheap to clone.
#[derive(Clone, Default)]
pub struct Crew(Arc<Shared>);

impl core::fmt::Debug for Crew {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Crew")
    }
}

#[derive(Default)]
struct Shared {
    state: AtomicU8,
    /// The task that polls all of them.
    task: AtomicWaker,
    outside: Mutex<Outside>,
}

/// What others leave for it.
#[derive(Default)]
struct Outside {
    newcomers: Vec<Member>,
    /// Those that are woken when this one has had its turn.
    behind: Vec<Arc<Shared>>,
    /// It is over: nobody is taken in any more.
    over: bool,
}

impl Shared {
    fn again(self: &Arc<Self>) {
        let before = self.state.fetch_or(AGAIN, Ordering::AcqRel);
        if before != ASLEEP && before & IN_LINE == 0 {
            return;
        }
        // A thread that ends may still wake somebody when its own variables are gone.
        let is_held = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            let Some(held) = held.as_mut() else { return false };
            if self.state.fetch_or(IN_LINE, Ordering::AcqRel) & IN_LINE == 0 {
                held.push(Arc::clone(self));
            }
            true
        });
        if !is_held.unwrap_or(false) {
            self.state.fetch_and(!IN_LINE, Ordering::AcqRel);
            self.task.wake();
        }
    }

    fn outside(&self) -> MutexGuard<'_, Outside> {
        // Nothing that could panic happens under it.
        self.outside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Crew {
    /// Takes a future in. It begins when the others have run; once the crew is over it is dropped.
    pub fn join(&self, member: impl Future<Output = ()> + Send + 'static) {
        let mut outside = self.0.outside();
        if outside.over {
            return;
        }
        outside.newcomers.push(Box::pin(member));
        drop(outside);
        self.0.again();
    }

    /// Runs `first` and who has joined; gives what `first` gave once all have ended. When it has ended,
    /// the others have as long as `patience` takes, which begins then; who is still there is dropped.
    pub async fn run<F: Future>(&self, first: F, patience: impl Future<Output = ()>) -> F::Output {
        let (mut first, mut patience) = (pin!(Some(first)), pin!(patience));
        let call = Arc::new(Call::of(&self.0));
        let waker = Waker::from(Arc::clone(&call));
        let mut others = Others { shared: Arc::clone(&self.0), members: Vec::new() };
        let mut output = None;
        core::future::poll_fn(|context| {
            let _turn = Turn(&self.0);
            others.shared.task.register(context.waker());
            for _ in 0..ROUNDS_MAX {
                // What was done before somebody was woken is seen from here on.
                others.shared.state.swap(POLLING, Ordering::AcqRel);
                if let Some(leader) = first.as_mut().as_pin_mut()
                    && call.take()
                    && let Poll::Ready(given) = leader.poll(&mut Context::from_waker(&waker))
                {
                    output = Some(given);
                    first.set(None);
                }
                others.poll();
                let mut over = || others.is_empty() || patience.as_mut().poll(context).is_ready();
                if let Some(output) = output.take_if(|_| over()) {
                    return Poll::Ready(output);
                }
                let (all, none) = (Ordering::AcqRel, Ordering::Relaxed);
                if others.shared.state.compare_exchange(POLLING, ASLEEP, all, none).is_ok() {
                    if !coop::has_budget_remaining() {
                        others.rotate();
                    }
                    return Poll::Pending;
                }
            }
            others.rotate();
            // Whoever is woken from now on finds it woken.
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }
}

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Crew {
    fn execute(&self, member: F) {
        self.join(member);
    }
}

/// How one member is woken.
struct Call {
    woken: AtomicBool,
    shared: Arc<Shared>,
}

impl Call {
    /// Of one that has not begun.
    fn of(shared: &Arc<Shared>) -> Self {
        Self { woken: AtomicBool::new(true), shared: Arc::clone(shared) }
    }

    fn take(&self) -> bool {
        // Read first: most of the time nobody was woken, and a swap costs more.
        self.woken.load(Ordering::Acquire) && self.woken.swap(false, Ordering::AcqRel)
    }
}

impl Wake for Call {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.shared.again();
        }
    }
}

/// A turn of a crew: when it is over, those behind it have theirs, however it ends.
struct Turn<'a>(&'a Shared);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let behind = std::mem::take(&mut self.0.outside().behind);
        wake_in_turn(behind);
    }
}

/// Those who have joined, while they run.
struct Others {
    shared: Arc<Shared>,
    members: Vec<(Member, Arc<Call>, Waker)>,
}

impl Others {
    /// Polls once whom somebody has woken.
    fn poll(&mut self) {
        let newcomers = std::mem::take(&mut self.shared.outside().newcomers);
        self.members.extend(newcomers.into_iter().map(|member| {
            let call = Arc::new(Call::of(&self.shared));
            let waker = Waker::from(Arc::clone(&call));
            (member, call, waker)
        }));
        self.members.retain_mut(|(member, call, waker)| {
            !(call.take() && member.as_mut().poll(&mut Context::from_waker(waker)).is_ready())
        });
    }

    /// Another begins the next turn: they share what the runtime lets one task do in a turn, and one that never
    /// rests leaves nothing of it to those behind it.
    fn rotate(&mut self) {
        if self.members.len() > 1 {
            self.members.rotate_left(1);
        }
    }

    fn is_empty(&self) -> bool {
        self.members.is_empty() && self.shared.outside().newcomers.is_empty()
    }
}

/// The futures hold the crew that they have joined: nobody may be left in it. Nor may anybody wait for a
/// turn that it will not have.
impl Drop for Others {
    fn drop(&mut self) {
        let mut outside = self.shared.outside();
        outside.over = true;
        let left = std::mem::take(&mut outside.newcomers);
        let behind = std::mem::take(&mut outside.behind);
        drop(outside);
        drop(left);
        wake_in_turn(behind);
    }
}

#[cfg(test)]
mod tests;
