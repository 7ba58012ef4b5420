//! Links that run in the driver's task.
//!
//! What passes through an agent of a chain is read by one link, handled by the driver and written by another.
//! Where each of that is a task of its own, the threads of the runtime hand it to each other, and each
//! hand-over may wake a thread that finds its caches cold: it takes longer than the work itself. The first
//! links of an agent are polled by the driver's task instead, one after the other. Its other links have
//! tasks of their own, which the threads share, and so have its clients: one that publishes is read by
//! another thread than writes to those that subscribe.
//!
//! Responsible for: which links those are, and that one that panics takes nobody along. Not responsible
//! for: what they do.

use ftb_proto::crew::Crew;
use futures_util::FutureExt as _;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Links in the driver's task: a parent and two children, one of which is the standby.
const SEATS: usize = 3;

/// Places beside a driver. Cheap to clone.
#[derive(Clone)]
pub struct Seats {
    crew: Crew,
    free: Arc<Semaphore>,
}

impl Default for Seats {
    fn default() -> Self {
        Self { crew: Crew::default(), free: Arc::new(Semaphore::new(SEATS)) }
    }
}

impl Seats {
    /// Runs the driver, and beside it those who have a seat. When the driver has ended they have until
    /// `over` to end; then they are dropped.
    pub async fn run(self, driver: impl Future<Output = ()>, over: impl Future<Output = ()>) {
        self.crew.run(driver, over).await;
    }

    /// Runs a link in the driver's task.
    ///
    /// # Errors
    /// No seat is free: the link, which is to run elsewhere.
    pub fn take<F>(&self, link: F) -> Result<(), F>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Ok(seat) = Arc::clone(&self.free).try_acquire_owned() else { return Err(link) };
        self.crew.join(async move {
            // The panic itself is told by the runtime's hook, as that of a task is.
            let _ = AssertUnwindSafe(link).catch_unwind().await;
            drop(seat);
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::future::pending;
    use tokio::sync::{mpsc, oneshot};

    #[tokio::test]
    async fn the_first_links_run_beside_the_driver_and_one_that_ends_leaves_its_seat() {
        let seats = Seats::default();
        let (said, mut heard) = mpsc::unbounded_channel();
        let mut ends = Vec::new();
        let link = |number: usize| {
            let (end, ended) = oneshot::channel::<()>();
            let said = said.clone();
            let link = async move {
                said.send(number).unwrap();
                let _ = ended.await;
                assert!(number != 0, "this one panics at its end");
            };
            (end, link)
        };
        for number in 0..SEATS {
            let (end, link) = link(number);
            assert!(seats.take(link).is_ok());
            ends.push(end);
        }
        let (_end, one_more) = link(SEATS);
        assert!(seats.take(one_more).is_err());
        let (free, count) = (Arc::clone(&seats.free), ends.len());
        let driver = async {
            let mut numbers = Vec::new();
            for _ in 0..count {
                numbers.push(heard.recv().await.unwrap());
            }
            assert_eq!(numbers, (0..SEATS).collect::<Vec<_>>(), "all of them run");
            drop(ends);
            // Also of the one that has panicked.
            let all = u32::try_from(SEATS).unwrap();
            drop(free.acquire_many(all).await.unwrap());
        };
        seats.run(driver, pending()).await;
    }

    #[tokio::test]
    async fn there_is_time_to_end_after_the_driver_and_not_longer() {
        let seats = Seats::default();
        let (end, ended) = oneshot::channel::<()>();
        assert!(seats.take(async move { drop(ended.await) }).is_ok());
        assert!(seats.take(pending()).is_ok());
        let (over, is_over) = oneshot::channel::<()>();
        let mut run = Box::pin(seats.clone().run(async {}, async move { drop(is_over.await) }));
        assert!((&mut run).now_or_never().is_none(), "they still run");
        end.send(()).unwrap();
        assert!((&mut run).now_or_never().is_none(), "one of them does");
        over.send(()).unwrap();
        run.await;
        assert_eq!(seats.free.available_permits(), SEATS);
    }
}
