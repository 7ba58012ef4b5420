//! What one user may ask an agent: each question about the tree makes the acting root list it.
//!
//! Root and the agent's user are not limited. Not responsible for: the answers ([`crate::admin`]).

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::Status;

/// Questions of one user a second.
pub const PER_S: u32 = 20;
/// Questions of one user at once.
pub const BURST: u32 = 40;
/// Questions of one user without an answer.
pub const PENDING_MAX: usize = 8;

/// The questions of all users.
#[derive(Clone, Debug, Default)]
pub struct Queries(Arc<Mutex<HashMap<u32, User>>>);

#[derive(Debug)]
struct User {
    /// Questions that may be asked at `since`.
    left: f64,
    since: Instant,
    pending: usize,
}

impl User {
    fn fill(&mut self, now: Instant) {
        let more = now.saturating_duration_since(self.since).as_secs_f64() * f64::from(PER_S);
        self.left = (self.left + more).min(BURST.into());
        self.since = now;
    }
}

/// A question that waits for its answer.
#[derive(Debug)]
pub struct Pending {
    queries: Queries,
    uid: u32,
}

impl Queries {
    /// Counts a question of a user.
    ///
    /// # Errors
    /// The user asks too much.
    #[allow(clippy::result_large_err)] // As tonic has it.
    pub fn begin(&self, uid: u32) -> Result<Pending, Status> {
        let now = Instant::now();
        let mut users = self.0.lock();
        // A user whose bucket is full is as one that never asked.
        let idle = Duration::from_secs((BURST / PER_S).into());
        users.retain(|_, user| user.pending > 0 || now - user.since < idle);
        let new = || User { left: BURST.into(), since: now, pending: 0 };
        let user = users.entry(uid).or_insert_with(new);
        user.fill(now);
        if user.left < 1.0 || user.pending >= PENDING_MAX {
            return Err(Status::resource_exhausted(format!(
                "user {uid} asks too much: at most {PER_S} questions a second, {PENDING_MAX} \
                 without an answer"
            )));
        }
        user.left -= 1.0;
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
    async fn a_user_that_asks_too_much_is_refused_and_another_is_not() {
        let queries = Queries::default();
        for _ in 0..BURST {
            queries.begin(1000).unwrap();
        }
        let refused = queries.begin(1000).unwrap_err();
        assert!(refused.message().contains("user 1000 asks too much"), "{refused}");
        queries.begin(1001).unwrap();
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..PER_S {
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
