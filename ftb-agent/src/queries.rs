//! What one user may ask an agent: each question about the tree makes the acting root list it, and
//! each about an event, or for the reports, makes all agents answer.
//!
//! A refusal comes late, so that a program that asks again at once costs the agent little. Root and
//! the agent's user are not limited. Not responsible for: the answers ([`crate::admin`]).

use crate::handle::Stopping;
use ftb_transport::token_bucket::{Rate, TokenBucket};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::Status;

/// Questions of one user.
pub const RATE: Rate = Rate { per_s: 20, burst: 40 };
/// Questions of one user without an answer.
pub const PENDING_MAX: usize = 8;
/// The delay of a refusal: a connection carries few requests at once.
pub const REFUSED_AFTER: Duration = Duration::from_millis(500);
/// A question to all agents counts as that number of others.
pub const WIDE_COST: u32 = 10;
/// Questions to all agents of one user without an answer.
pub const WIDE_PENDING_MAX: usize = 2;
/// Questions of all these users without an answer: the driver has places for more.
const ALL_PENDING_MAX: usize = 48;
/// The same for those to all agents: the node has places for more.
const ALL_WIDE_PENDING_MAX: usize = 12;

/// Whom a question is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryReach {
    /// This agent, or the acting root.
    One,
    /// All agents.
    All,
}

/// The questions of all users.
#[derive(Clone, Debug, Default)]
pub struct Queries(Arc<Mutex<HashMap<u32, User>>>);

#[derive(Debug)]
struct User {
    bucket: TokenBucket,
    pending: usize,
    /// Those of them to all agents.
    wide: usize,
}

/// A question that waits for its answer.
#[derive(Debug)]
pub struct Pending {
    queries: Queries,
    uid: u32,
    asked: QueryReach,
}

impl Queries {
    /// As [`Self::begin`], but a refusal comes [`REFUSED_AFTER`] later.
    ///
    /// # Errors
    /// The user asks too much.
    pub async fn admit(&self, uid: u32, asked: QueryReach) -> Result<Pending, Status> {
        let begun = self.begin(uid, asked);
        if begun.is_err() {
            tokio::time::sleep(REFUSED_AFTER).await;
        }
        begun
    }

    /// Counts a question of a user.
    ///
    /// # Errors
    /// The user asks too much.
    #[allow(clippy::result_large_err)] // As tonic has it.
    pub fn begin(&self, uid: u32, asked: QueryReach) -> Result<Pending, Status> {
        let now = Instant::now();
        let mut users = self.0.lock();
        // A user whose bucket is full is as one that never asked.
        users.retain(|_, user| user.pending > 0 || !user.bucket.is_full(now));
        let (all, all_wide) =
            users.values().fold((0, 0), |(all, wide), user| (all + user.pending, wide + user.wide));
        let new = || User { bucket: TokenBucket::new(RATE, now), pending: 0, wide: 0 };
        let user = users.entry(uid).or_insert_with(new);
        let (cost, is_full) = match asked {
            QueryReach::One => (1, false),
            QueryReach::All => {
                let is_full = user.wide >= WIDE_PENDING_MAX || all_wide >= ALL_WIDE_PENDING_MAX;
                (WIDE_COST, is_full)
            }
        };
        let is_full = is_full || user.pending >= PENDING_MAX || all >= ALL_PENDING_MAX;
        if is_full || !user.bucket.take(cost, now) {
            return Err(Status::resource_exhausted(format!(
                "user {uid} asks too much: at most {} questions a second, {PENDING_MAX} without an \
                 answer; one to all agents counts as {WIDE_COST}, and {WIDE_PENDING_MAX} may wait",
                RATE.per_s
            )));
        }
        user.pending += 1;
        user.wide += usize::from(asked == QueryReach::All);
        Ok(Pending { queries: self.clone(), uid, asked })
    }
}

/// Asks. A requester that goes away frees its place only with the answer: the question waits at the
/// driver and at other agents until then.
///
/// # Errors
/// The agent stops.
pub async fn ask<T: Send + 'static>(
    pending: Option<Pending>,
    question: impl Future<Output = Result<T, Stopping>> + Send + 'static,
) -> Result<T, Stopping> {
    let asked = tokio::spawn(async move {
        let answer = question.await;
        drop(pending);
        answer
    });
    // Else the runtime ends.
    asked.await.unwrap_or(Err(Stopping))
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(user) = self.queries.0.lock().get_mut(&self.uid) {
            user.pending = user.pending.saturating_sub(1);
            user.wide = user.wide.saturating_sub(usize::from(self.asked == QueryReach::All));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_user_that_asks_too_much_is_refused_late_and_another_is_not() {
        let queries = Queries::default();
        for _ in 0..RATE.burst {
            queries.begin(1000, QueryReach::One).unwrap();
        }
        let begun = Instant::now();
        let refused = queries.admit(1000, QueryReach::One).await.unwrap_err();
        assert!(begun.elapsed() >= REFUSED_AFTER);
        assert!(refused.message().contains("user 1000 asks too much"), "{refused}");
        queries.begin(1001, QueryReach::One).unwrap();
        tokio::time::advance(Duration::from_secs(1) - begun.elapsed()).await;
        for _ in 0..RATE.per_s {
            queries.begin(1000, QueryReach::One).unwrap();
        }
        assert!(queries.begin(1000, QueryReach::One).is_err());
        tokio::time::advance(Duration::from_secs(60)).await;
        let pending: Vec<Pending> =
            (0..PENDING_MAX).map(|_| queries.begin(1000, QueryReach::One).unwrap()).collect();
        assert!(queries.begin(1000, QueryReach::One).is_err(), "nothing was answered");
        queries.begin(1001, QueryReach::One).unwrap();
        drop(pending);
        queries.begin(1000, QueryReach::One).unwrap();
    }

    #[tokio::test]
    async fn a_user_that_goes_away_keeps_its_place_until_the_answer() {
        let queries = Queries::default();
        let begin = || queries.begin(1000, QueryReach::All);
        let (answers, mut questions) = (0..WIDE_PENDING_MAX)
            .map(|_| {
                let (answer, question) = tokio::sync::oneshot::channel();
                let question = async { question.await.map_err(|_| Stopping) };
                (answer, Box::pin(ask(Some(begin().unwrap()), question)))
            })
            .unzip::<_, _, Vec<_>, Vec<_>>();
        for question in &mut questions {
            assert!(tokio::time::timeout(Duration::ZERO, question).await.is_err());
        }
        drop(questions);
        assert!(begin().is_err(), "the other agents still work on its questions");
        answers.into_iter().for_each(|answer| answer.send(()).unwrap());
        while begin().is_err() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn questions_to_all_agents_count_more_and_leave_places_for_root() {
        let queries = Queries::default();
        let begin = |uid| queries.begin(uid, QueryReach::All);
        let pending = [begin(1000).unwrap(), begin(1000).unwrap()];
        assert!(begin(1000).is_err(), "two wait");
        queries.begin(1000, QueryReach::One).unwrap();
        drop(pending);
        begin(1000).unwrap();
        assert!(begin(1000).is_err(), "each counts as ten");
        tokio::time::advance(Duration::from_secs(1)).await;
        begin(1000).unwrap();
        let others: Vec<_> =
            (2000..2100).flat_map(|uid| [begin(uid), begin(uid)]).filter_map(Result::ok).collect();
        assert_eq!(others.len(), ALL_WIDE_PENDING_MAX, "all users together");
        let tree = (3000..3100).flat_map(|uid| (0..PENDING_MAX).map(move |_| uid));
        let tree: Vec<_> =
            tree.filter_map(|uid| queries.begin(uid, QueryReach::One).ok()).collect();
        assert_eq!(tree.len() + others.len(), ALL_PENDING_MAX);
    }
}
