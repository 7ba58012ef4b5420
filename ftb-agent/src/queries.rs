//! What one user may ask an agent: each question about the tree makes the acting root list it.
//!
//! A refusal comes late, so that a program that asks again at once costs the agent little. Root and
//! the agent's user are not limited. Not responsible for: the answers ([`crate::admin`]).

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
/// A connection carries few requests at once, and a refused one waits so long for its answer.
pub const REFUSED_AFTER: Duration = Duration::from_millis(500);

/// The questions of all users.
#[derive(Clone, Debug, Default)]
pub struct Queries(Arc<Mutex<HashMap<u32, User>>>);

#[derive(Debug)]
struct User {
    bucket: TokenBucket,
    pending: usize,
}

/// A question that waits for its answer.
#[derive(Debug)]
pub struct Pending {
    queries: Queries,
    uid: u32,
}

impl Queries {
    /// As [`Self::begin`], but a refusal comes [`REFUSED_AFTER`] later.
    ///
    /// # Errors
    /// The user asks too much.
    pub async fn admit(&self, uid: u32) -> Result<Pending, Status> {
        let begun = self.begin(uid);
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
    pub fn begin(&self, uid: u32) -> Result<Pending, Status> {
        let now = Instant::now();
        let mut users = self.0.lock();
        // A user whose bucket is full is as one that never asked.
        users.retain(|_, user| user.pending > 0 || !user.bucket.is_full(now));
        let new = || User { bucket: TokenBucket::new(RATE, now), pending: 0 };
        let user = users.entry(uid).or_insert_with(new);
        if user.pending >= PENDING_MAX || !user.bucket.take(now) {
            return Err(Status::resource_exhausted(format!(
                "user {uid} asks too much: at most {} questions a second, {PENDING_MAX} without an \
                 answer",
                RATE.per_s
            )));
        }
        user.pending += 1;
        Ok(Pending { queries: self.clone(), uid })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(user) = self.queries.0.lock().get_mut(&self.uid) {
            user.pending = user.pending.saturating_sub(1);
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
            queries.begin(1000).unwrap();
        }
        let begun = Instant::now();
        let refused = queries.admit(1000).await.unwrap_err();
        assert!(begun.elapsed() >= REFUSED_AFTER);
        assert!(refused.message().contains("user 1000 asks too much"), "{refused}");
        queries.begin(1001).unwrap();
        tokio::time::advance(Duration::from_secs(1) - begun.elapsed()).await;
        for _ in 0..RATE.per_s {
            queries.begin(1000).unwrap();
        }
        assert!(queries.begin(1000).is_err());
        tokio::time::advance(Duration::from_secs(60)).await;
        let pending: Vec<Pending> =
            (0..PENDING_MAX).map(|_| queries.begin(1000).unwrap()).collect();
        assert!(queries.begin(1000).is_err(), "nothing was answered");
        queries.begin(1001).unwrap();
        drop(pending);
        queries.begin(1000).unwrap();
    }
}
