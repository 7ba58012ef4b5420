//! A rate with a burst: how often one peer may do something that costs the agent work.
//!
//! Not responsible for: whose it is, and what happens beyond it.

use std::time::Duration;
use tokio::time::Instant;

/// A rate with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Tokens that come back in a second.
    pub per_s: u32,
    /// Most tokens at once.
    pub burst: u32,
}

impl Rate {
    /// Time without use after which a bucket is full.
    pub fn forgotten_after(self) -> Duration {
        Duration::from_secs(self.burst.div_ceil(self.per_s.max(1)).into())
    }
}

/// The tokens of one peer.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate: Rate,
    left: f64,
    since: Instant,
}

impl TokenBucket {
    /// A full bucket.
    pub fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, left: rate.burst.into(), since: now }
    }

    /// Takes tokens; `false`, and none, if there are too few.
    pub fn take(&mut self, count: u32, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        self.left = (self.left + passed * f64::from(self.rate.per_s)).min(self.rate.burst.into());
        self.since = now;
        let are_left = self.left >= count.into();
        if are_left {
            self.left -= f64::from(count);
        }
        are_left
    }

    /// Whether it is full again.
    pub fn is_full(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= self.rate.forgotten_after()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_bucket_gives_its_burst_and_then_its_rate() {
        let rate = Rate { per_s: 10, burst: 20 };
        let mut bucket = TokenBucket::new(rate, Instant::now());
        let taken =
            |bucket: &mut TokenBucket| (0..100).filter(|_| bucket.take(1, Instant::now())).count();
        assert_eq!(taken(&mut bucket), 20);
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(taken(&mut bucket), 5);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!bucket.is_full(Instant::now()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(bucket.is_full(Instant::now()));
        assert_eq!(taken(&mut bucket), 20);
    }
}
