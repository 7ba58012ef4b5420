#![allow(clippy::unwrap_used)]
use super::*;
use core::future::{pending, poll_fn, ready};
use core::sync::atomic::AtomicUsize;
use futures_util::task::noop_waker;
use tokio::sync::mpsc;

/// A message goes round between members, which takes one turn of the task, not one a hand-over.
#[test]
fn a_message_goes_from_member_to_member_in_one_turn() {
    let crew = Crew::default();
    let (sender, mut first) = mpsc::unbounded_channel();
    let mut before = sender.clone();
    for _ in 0..5 {
        let (next, mut receiver) = mpsc::unbounded_channel();
        let sender = std::mem::replace(&mut before, next);
        // Each is behind the one that it is woken by, or before it: both ways.
        crew.join(async move {
            while let Some(number) = receiver.recv().await {
                sender.send(number + 1).unwrap();
            }
        });
    }
    before.send(0).unwrap();
    let mut run = pin!(crew.run(async { first.recv().await.unwrap() }, ready(())));
    let given = run.as_mut().poll(&mut Context::from_waker(&noop_waker()));
    assert_eq!(given, Poll::Ready(5));
    drop(sender);
}

#[test]
fn nobody_is_polled_who_was_not_woken() {
    let (crew, polls) = (Crew::default(), Arc::new(AtomicUsize::new(0)));
    let (sender, mut receiver) = mpsc::unbounded_channel::<()>();
    let counted = Arc::clone(&polls);
    crew.join(poll_fn(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Poll::Pending
    }));
    let heard = async move { while receiver.recv().await.is_some() {} };
    let mut run = pin!(crew.run(heard, ready(())));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..3 {
        sender.send(()).unwrap();
        assert!(run.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(polls.load(Ordering::Relaxed), 1, "when it joined");
    drop(sender);
    assert!(run.as_mut().poll(&mut context).is_ready());
}

#[test]
fn the_others_have_as_long_as_patience_takes() {
    let mut context = Context::from_waker(Waker::noop());
    for (patient, over) in [(false, true), (true, false)] {
        let crew = Crew::default();
        crew.join(pending());
        let patience = async move {
            if patient {
                pending().await
            }
        };
        let mut run = pin!(crew.run(ready(7), patience));
        let given = run.as_mut().poll(&mut context);
        assert_eq!(given.is_ready(), over);
    }
}

/// The runtime lets a task do only so much in a turn; here one member would always use it up.
#[tokio::test]
async fn one_that_never_rests_leaves_the_others_their_turns() {
    const TURNS: usize = 1_000;
    let crew = Crew::default();
    let (sender, mut receiver) = mpsc::unbounded_channel();
    (0..TURNS).for_each(|number| sender.send(number).unwrap());
    let (ended, mut has_ended) = tokio::sync::oneshot::channel();
    crew.join(async move {
        // Thousands of turns, were there nobody else.
        for _ in 0..TURNS * TURNS {
            if has_ended.try_recv().is_ok() {
                return;
            }
            coop::consume_budget().await;
        }
        unreachable!("the other has had no turn");
    });
    crew.join(async move {
        for _ in 0..TURNS {
            receiver.recv().await.unwrap();
        }
        ended.send(()).unwrap();
    });
    crew.run(ready(()), pending()).await;
}

/// Members hold the crew; what they hold besides must go with it.
#[test]
fn nothing_is_left_of_one_that_is_over() {
    let kept = Arc::new(());
    let crew = Crew::default();
    let member = || {
        let (crew, kept) = (crew.clone(), Arc::clone(&kept));
        async move {
            pending::<()>().await;
            drop((crew, kept));
        }
    };
    crew.join(member());
    let mut run = Box::pin(crew.run(pending::<()>(), ready(())));
    assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    crew.join(member());
    assert_eq!(Arc::strong_count(&kept), 3);
    drop(run);
    crew.join(member());
    assert_eq!(Arc::strong_count(&kept), 1);
}

/// Three crews that wait for a word each; gives who has heard it, in order.
struct Waiting {
    tells: Vec<mpsc::UnboundedSender<()>>,
    /// To a second member of each.
    others: Vec<mpsc::UnboundedSender<()>>,
    runs: Vec<Pin<Box<dyn Future<Output = ()>>>>,
    heard: Arc<Mutex<Vec<usize>>>,
    woken: Vec<Arc<Flag>>,
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Waiting {
    fn new(count: usize) -> Self {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let mut all = Self { tells: vec![], others: vec![], runs: vec![], heard, woken: vec![] };
        for number in 0..count {
            let (tell, mut told) = mpsc::unbounded_channel();
            let (other, mut told_other) = mpsc::unbounded_channel();
            let (crew, heard) = (Crew::default(), Arc::clone(&all.heard));
            crew.join(async move { while told_other.recv().await.is_some() {} });
            all.others.push(other);
            let hear = async move {
                while told.recv().await.is_some() {
                    heard.lock().unwrap().push(number);
                }
            };
            all.tells.push(tell);
            all.runs.push(Box::pin(async move { crew.run(hear, ready(())).await }));
            all.woken.push(Arc::default());
            assert!(!all.turn(number), "it has begun, and waits");
        }
        all
    }

    /// Gives whether it is over.
    fn turn(&mut self, number: usize) -> bool {
        self.woken[number].0.store(false, Ordering::Relaxed);
        let waker = Waker::from(Arc::clone(&self.woken[number]));
        self.runs[number].as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
    }

    fn woken(&self) -> Vec<usize> {
        let woken = |number: &usize| self.woken[*number].0.load(Ordering::Relaxed);
        (0..self.woken.len()).filter(woken).collect()
    }

    fn tell(&self, numbers: &[usize]) {
        for number in numbers {
            self.tells[*number].send(()).unwrap();
        }
    }
}

#[test]
fn crews_that_are_woken_in_turn_have_their_turns_in_that_order() {
    let mut all = Waiting::new(3);
    one_after_another(|| all.tell(&[2, 0, 1]));
    for (order, woken) in [2, 0, 1].into_iter().enumerate() {
        assert_eq!(all.woken(), [woken], "{order}");
        assert!(!all.turn(woken));
    }
    assert!(all.woken().is_empty());
    assert_eq!(*all.heard.lock().unwrap(), [2, 0, 1]);
    all.tell(&[0, 1]);
    assert_eq!(all.woken(), [0, 1], "at once");
}

/// What comes for it from elsewhere does not wait for those before it.
#[test]
fn who_stands_in_line_can_be_woken() {
    let mut all = Waiting::new(3);
    one_after_another(|| all.tell(&[0, 1, 2]));
    assert_eq!(all.woken(), [0]);
    all.others[1].send(()).unwrap();
    assert_eq!(all.woken(), [0, 1]);
    for number in [1, 0, 2] {
        assert!(!all.turn(number));
    }
    assert_eq!(*all.heard.lock().unwrap(), [1, 0, 2]);
}

#[test]
fn many_are_woken_at_once() {
    let all = Waiting::new(IN_TURN_MAX + 1);
    let everybody: Vec<usize> = (0..=IN_TURN_MAX).collect();
    one_after_another(|| all.tell(&everybody));
    assert_eq!(all.woken(), everybody);
}

#[test]
fn nobody_waits_for_one_that_is_over() {
    // Dropped while the others wait for it.
    let mut all = Waiting::new(3);
    one_after_another(|| all.tell(&[0, 1, 2]));
    assert_eq!(all.woken(), [0]);
    all.runs[0] = Box::pin(pending());
    assert_eq!(all.woken(), [0, 1]);
    // Over in its turn.
    all.tells[1] = mpsc::unbounded_channel().0;
    assert!(all.turn(1));
    assert!(all.woken().contains(&2));
    // Woken first, and over before it is known who comes behind it.
    let mut all = Waiting::new(2);
    one_after_another(|| {
        all.tell(&[0, 1]);
        all.runs[0] = Box::pin(pending());
    });
    assert!(all.woken().contains(&1));
}

/// A variable of a thread that is older than those of this module goes after them.
#[test]
fn who_is_woken_when_a_thread_ends_is_woken() {
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
    let all = Waiting::new(2);
    let (early, late) = (all.tells[0].clone(), all.tells[1].clone());
    let thread = std::thread::spawn(move || {
        AT_THE_END.with(|at_the_end| at_the_end.0.replace(Some(late)));
        early.send(()).unwrap();
    });
    thread.join().unwrap();
    assert_eq!(all.woken(), [0, 1]);
}

/// Woken from other threads all the time, it misses nothing and never sleeps over it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_woken_from_elsewhere_is_polled() {
    const EACH: u32 = 20_000;
    let crew = Crew::default();
    let mut counts = Vec::new();
    for _ in 0..4 {
        let (sender, mut receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            for number in 0..EACH {
                sender.send(number).await.unwrap();
            }
        });
        let (count, counted) = tokio::sync::oneshot::channel();
        crew.join(async move {
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
    assert_eq!(crew.run(all, pending()).await, 4 * EACH);
}
