//! Counts the conditions for which a silence holds (`ftbctl silence`), for the metrics of the
//! acting root.
//!
//! Not responsible for: what a silence is (`ftb_client::silences`, which writes the text that is
//! read here), who may state one (the access rules).

use super::metrics::BySeverity;
use super::{CLUSTER_MAX, unix_ns};
use crate::public_reading::{self, ReadingSources};
use ftb_core::Severity;
use ftb_core::condition::{SILENCE_SPACE, SILENCED, Subject, Truth, WATCHED};
use ftb_core::filter::Filter;
use ftb_core::hostlist::Hostlist;
use ftb_core::limits::FILTER_WEIGHT_MAX;
use ftb_proto::condition_state::ConditionState;
use tokio::time::timeout;

/// A silence that has not been ended.
struct Silence {
    hosts: Hostlist,
    /// The only key, in upper case; `None`: every one.
    key: Option<String>,
    from_ns: u64,
    until_ns: u64,
}

impl Silence {
    /// Of its row: `HOSTS KEY [from MS] until MS: REASON`, with `*` for every key.
    fn of(state: &ConditionState) -> Option<Self> {
        if !state.is_silence() || state.truth != Truth::True {
            return None;
        }
        let (head, _) = state.message.split_once(": ")?;
        let words: Vec<&str> = head.split(' ').collect();
        let (list, key, from_ms, until_ms) = match words[..] {
            [list, key, "until", until_ms] => (list, key, "0", until_ms),
            [list, key, "from", from_ms, "until", until_ms] => (list, key, from_ms, until_ms),
            _ => return None,
        };
        let ns = |ms: &str| ms.parse::<u64>().ok()?.checked_mul(1_000_000);
        Some(Self {
            hosts: Hostlist::parse_within(list, FILTER_WEIGHT_MAX).ok()?,
            key: (key != "*").then(|| key.to_ascii_uppercase()),
            from_ns: ns(from_ms)?,
            until_ns: ns(until_ms)?,
        })
    }

    fn is_active(&self, now_ns: u64) -> bool {
        self.from_ns <= now_ns && now_ns < self.until_ns
    }

    fn covers(&self, subject: &Subject) -> bool {
        let is_key = match &self.key {
            Some(key) => key == subject.key(),
            None => subject.key() != SILENCED,
        };
        is_key && subject.key() != WATCHED && self.hosts.contains(subject.host())
    }
}

/// The conditions that hold and are silenced, by severity; `None`: they cannot be read now.
pub(super) async fn count(sources: &ReadingSources) -> Option<BySeverity> {
    let read = async |filter: &str| {
        let filter = Filter::parse(filter).ok()?;
        public_reading::conditions(sources, filter).await.ok()
    };
    let counting = async {
        let stated = read(&format!("condition={SILENCED}, event_space={SILENCE_SPACE}")).await?;
        let now_ns = unix_ns();
        let silences = stated.rows().iter().filter_map(Silence::of);
        let silences: Vec<_> = silences.filter(|silence| silence.is_active(now_ns)).collect();
        let mut counts = BySeverity::default();
        if silences.is_empty() {
            return Some(counts);
        }
        for state in read("condition=*").await?.rows() {
            let is_silenced = silences.iter().any(|silence| silence.covers(&state.subject));
            if state.truth == Truth::True && is_silenced {
                let severity = Severity::ALL.iter().position(|one| *one == state.severity);
                counts[severity.unwrap_or(0)] += 1;
            }
        }
        Some(counts)
    };
    timeout(CLUSTER_MAX, counting).await.ok().flatten()
}
