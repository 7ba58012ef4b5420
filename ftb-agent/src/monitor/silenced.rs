//! Counts the conditions for which a silence holds (`ftbctl silence`), for the metrics of the
//! acting root.
//!
//! Not responsible for: what a silence is ([`ftb_proto::silence`]), who may state one (the access
//! rules).

use super::metrics::BySeverity;
use super::{CLUSTER_MAX, unix_ns};
use crate::public_reading::{self, ReadingSources};
use ftb_core::Severity;
use ftb_core::condition::Truth;
use ftb_core::filter::Filter;
use ftb_proto::silence::{FILTER, Silence};
use tokio::time::timeout;

/// The conditions that hold and are silenced, by severity; `None`: they cannot be read now.
pub(super) async fn count(sources: &ReadingSources) -> Option<BySeverity> {
    let read = async |filter: &str| {
        let filter = Filter::parse(filter).ok()?;
        public_reading::conditions(sources, filter).await.ok()
    };
    let counting = async {
        let stated = read(FILTER).await?;
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
