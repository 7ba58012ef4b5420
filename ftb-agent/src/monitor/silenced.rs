//! Counts the conditions for which a silence holds (`ftbctl silence`), for the metrics of the
//! acting root.
//!
//! Not responsible for: what a silence is ([`ftb_proto::silence`]), who may state one (the access
//! rules).

use super::metrics::BySeverity;
use super::{CLUSTER_MAX, unix_ns};
use crate::public_reading::{self, ReadingSources};
use ftb_core::Severity;
use ftb_core::condition::{Subject, Truth};
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
        if silences.is_empty() {
            return Some(BySeverity::default());
        }
        let table = read("condition=*").await?;
        let holding = table.rows().iter().filter(|state| state.truth == Truth::True);
        let holding = holding.map(|state| (state.subject.clone(), state.severity)).collect();
        counted(silences, holding).await
    };
    timeout(CLUSTER_MAX, counting).await.ok().flatten()
}

/// How many of these conditions are silenced. Ten million comparisons are possible: not on a thread
/// that serves others.
async fn counted(silences: Vec<Silence>, holding: Vec<(Subject, Severity)>) -> Option<BySeverity> {
    let count = move || {
        let mut counts = BySeverity::default();
        for (subject, severity) in &holding {
            if silences.iter().any(|silence| silence.covers(subject)) {
                let place = Severity::ALL.iter().position(|one| one == severity);
                counts[place.unwrap_or(0)] += 1;
            }
        }
        counts
    };
    tokio::task::spawn_blocking(count).await.ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use ftb_proto::silence::SILENCES_MAX;
    use std::time::Duration;

    #[tokio::test]
    async fn counting_many_silences_holds_up_nothing_else() {
        let silence = |number: usize| {
            let (lasts, list) = ((1, Duration::from_secs(9)), format!("n[{number}-4096]"));
            Silence::new(number.to_string(), &list, None, lasts, "new fans").unwrap()
        };
        let silences: Vec<Silence> = (0..SILENCES_MAX).map(|number| silence(number + 1)).collect();
        let holding =
            |number: usize| (Subject::new(&format!("n{number}"), "", "FAN"), Severity::Error);
        // One host in two is in no list.
        let all = (1..=2_000).flat_map(|number| [holding(number), holding(number + 10_000)]);
        let mut counting = core::pin::pin!(counted(silences, all.collect()));
        tokio::select! {
            biased;
            counts = &mut counting => panic!("the agent has waited for {counts:?}"),
            () = core::future::ready(()) => {}
        }
        assert_eq!(counting.await, Some([0, 0, 2_000, 0]));
    }
}
