#![allow(clippy::unwrap_used)]
use super::*;
use core::future::{pending, poll_fn, ready};
use core::sync::atomic::AtomicUsize;
use futures_util::task::noop_waker;
use tokio::sync::mpsc;

/// All futures run within one turn of the task, in whatever order they wake each other.
#[test]
fn a_message_passes_through_all_futures_in_one_turn() {
    let executor = Executor::default();
    let (sender, mut first) = mpsc::unbounded_channel();
    let mut before = sender.clone();
    for _ in 0..5 {
        let (next, mut receiver) = mpsc::unbounded_channel();
        let sender = std::mem::replace(&mut before, next);
        // Later futures wake earlier ones, and the other way round.
        executor.spawn(async move {
            while let Some(number) = receiver.recv().await {
                sender.send(number + 1).unwrap();
            }
        });
    }
    before.send(0).unwrap();
    let mut run = pin!(executor.run(async { first.recv().await.unwrap() }, ready(())));
    let given = run.as_mut().poll(&mut Context::from_waker(&noop_waker()));
    assert_eq!(given, Poll::Ready(5));
    drop(sender);
}

#[test]
fn only_woken_futures_are_polled() {
    let (executor, polls) = (Executor::default(), Arc::new(AtomicUsize::new(0)));
    let (sender, mut receiver) = mpsc::unbounded_channel::<()>();
    let counted = Arc::clone(&polls);
    executor.spawn(poll_fn(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Poll::Pending
    }));
    let received = async move { while receiver.recv().await.is_some() {} };
    let mut run = pin!(executor.run(received, ready(())));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..3 {
        sender.send(()).unwrap();
        assert!(run.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(polls.load(Ordering::Relaxed), 1, "in its first round");
    drop(sender);
    assert!(run.as_mut().poll(&mut context).is_ready());
}

#[test]
fn after_main_the_others_run_until_the_grace_time_ends() {
    let mut context = Context::from_waker(Waker::noop());
    for (patient, over) in [(false, true), (true, false)] {
        let executor = Executor::default();
        executor.spawn(pending());
        let patience = async move {
            if patient {
                pending().await
            }
        };
        let mut run = pin!(executor.run(ready(7), patience));
        let given = run.as_mut().poll(&mut context);
        assert_eq!(given.is_ready(), over);
    }
}

/// The first future uses all of the runtime.s budget in each turn.
#[tokio::test]
async fn a_busy_future_does_not_starve_the_others() {
    const TURNS: usize = 1_000;
    let executor = Executor::default();
    let (sender, mut receiver) = mpsc::unbounded_channel();
    (0..TURNS).for_each(|number| sender.send(number).unwrap());
    let (ended, mut has_ended) = tokio::sync::oneshot::channel();
    executor.spawn(async move {
        // Far more turns than the other future needs.
        for _ in 0..TURNS * TURNS {
            if has_ended.try_recv().is_ok() {
                return;
            }
            coop::consume_budget().await;
        }
        unreachable!("the other future never ran");
    });
    executor.spawn(async move {
        for _ in 0..TURNS {
            receiver.recv().await.unwrap();
        }
        ended.send(()).unwrap();
    });
    executor.run(ready(()), pending()).await;
}

/// The futures hold the executor, which must not keep them alive.
#[test]
fn a_closed_executor_drops_its_futures() {
    let kept = Arc::new(());
    let executor = Executor::default();
    let member = || {
        let (executor, kept) = (executor.clone(), Arc::clone(&kept));
        async move {
            pending::<()>().await;
            drop((executor, kept));
        }
    };
    executor.spawn(member());
    let mut run = Box::pin(executor.run(pending::<()>(), ready(())));
    assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    executor.spawn(member());
    assert_eq!(Arc::strong_count(&kept), 3);
    drop(run);
    executor.spawn(member());
    assert_eq!(Arc::strong_count(&kept), 1);
}

/// Several executors, each waiting for a message; records the order of receipt.
struct Group {
    senders: Vec<mpsc::UnboundedSender<()>>,
    /// To a second future of each executor.
    others: Vec<mpsc::UnboundedSender<()>>,
    runs: Vec<Pin<Box<dyn Future<Output = ()>>>>,
    received: Arc<Mutex<Vec<usize>>>,
    woken: Vec<Arc<Flag>>,
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Group {
    fn new(count: usize) -> Self {
        let received = Arc::new(Mutex::new(Vec::new()));
        let mut all =
            Self { senders: vec![], others: vec![], runs: vec![], received, woken: vec![] };
        for number in 0..count {
            let (sender, mut receiver) = mpsc::unbounded_channel();
            let (other, mut other_receiver) = mpsc::unbounded_channel();
            let (executor, received) = (Executor::default(), Arc::clone(&all.received));
            executor.spawn(async move { while other_receiver.recv().await.is_some() {} });
            all.others.push(other);
            let receive = async move {
                while receiver.recv().await.is_some() {
                    received.lock().push(number);
                }
            };
            all.senders.push(sender);
            all.runs.push(Box::pin(async move { executor.run(receive, ready(())).await }));
            all.woken.push(Arc::default());
            assert!(!all.turn(number), "it waits");
        }
        all
    }

    /// Runs one turn; true when `run` has ended.
    fn turn(&mut self, number: usize) -> bool {
        self.woken[number].0.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&self.woken[number]));
        self.runs[number].as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
    }

    fn woken(&self) -> Vec<usize> {
        let woken = |number: &usize| self.woken[*number].0.load(Ordering::Relaxed);
        (0..self.woken.len()).filter(woken).collect()
    }

    fn send(&self, numbers: &[usize]) {
        for number in numbers {
            self.senders[*number].send(()).unwrap();
        }
    }
}

#[test]
fn executors_woken_in_order_run_in_that_order() {
    let mut all = Group::new(3);
    wake_in_order(|| all.send(&[2, 0, 1]));
    for (order, woken) in [2, 0, 1].into_iter().enumerate() {
        assert_eq!(all.woken(), [woken], "{order}");
        assert!(!all.turn(woken));
    }
    assert!(all.woken().is_empty());
    assert_eq!(*all.received.lock(), [2, 0, 1]);
    all.send(&[0, 1]);
    assert_eq!(all.woken(), [0, 1], "at once");
}

/// A message from elsewhere does not wait for the executors before it.
#[test]
fn a_queued_executor_can_be_woken_directly() {
    let mut all = Group::new(3);
    wake_in_order(|| all.send(&[0, 1, 2]));
    assert_eq!(all.woken(), [0]);
    all.others[1].send(()).unwrap();
    assert_eq!(all.woken(), [0, 1]);
    for number in [1, 0, 2] {
        assert!(!all.turn(number));
    }
    assert_eq!(*all.received.lock(), [1, 0, 2]);
}

#[test]
fn many_executors_are_woken_at_once() {
    let all = Group::new(ORDERED_MAX + 1);
    let everyone: Vec<usize> = (0..=ORDERED_MAX).collect();
    wake_in_order(|| all.send(&everyone));
    assert_eq!(all.woken(), everyone);
}

#[test]
fn followers_do_not_wait_for_a_closed_executor() {
    // Dropped while the others are queued behind it.
    let mut all = Group::new(3);
    wake_in_order(|| all.send(&[0, 1, 2]));
    assert_eq!(all.woken(), [0]);
    all.runs[0] = Box::pin(pending());
    assert_eq!(all.woken(), [0, 1]);
    // Closed in its turn.
    all.senders[1] = mpsc::unbounded_channel().0;
    assert!(all.turn(1));
    assert!(all.woken().contains(&2));
    // Closed before its followers are known.
    let mut all = Group::new(2);
    wake_in_order(|| {
        all.send(&[0, 1]);
        all.runs[0] = Box::pin(pending());
    });
    assert!(all.woken().contains(&1));
}

/// A thread-local variable older than DEFERRED is dropped after it.
#[test]
fn a_wake_up_from_an_ending_thread_arrives() {
    struct AtTheEnd(RefCell<Option<mpsc::UnboundedSender<()>>>);
    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            let sender = self.0.take().unwrap();
            sender.send(()).unwrap();
        }
    }
    thread_local! {
        static AT_THE_END: AtTheEnd = const { AtTheEnd(RefCell::new(None)) };
    }
    let all = Group::new(2);
    let (early, late) = (all.senders[0].clone(), all.senders[1].clone());
    let thread = std::thread::spawn(move || {
        AT_THE_END.with(|at_the_end| at_the_end.0.replace(Some(late)));
        early.send(()).unwrap();
    });
    thread.join().unwrap();
    assert_eq!(all.woken(), [0, 1]);
}

/// Four threads send all the time, and the executor misses nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wake_ups_from_other_threads_are_not_lost() {
    const EACH: u32 = 20_000;
    let executor = Executor::default();
    let mut counts = Vec::new();
    for _ in 0..4 {
        let (sender, mut receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            for number in 0..EACH {
                sender.send(number).await.unwrap();
            }
        });
        let (count, counted) = tokio::sync::oneshot::channel();
        executor.spawn(async move {
            let mut got = 0;
            while receiver.recv().await.is_some() {
                got += 1;
            }
            count.send(got).unwrap();
        });
        counts.push(counted);
    }
    let all = async {
        let mut sum = 0;
        for count in counts {
            sum += count.await.unwrap();
        }
        sum
    };
    assert_eq!(executor.run(all, pending()).await, 4 * EACH);
}
