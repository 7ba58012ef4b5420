//! The health of this host for programs that ask before they start a job on it: the service that
//! NVIDIA's Resiliency Extension (`ft_launcher`) calls before each rendezvous.
//!
//! Responsible for: the verdict, and its words for all three readings of that contract. A caller
//! looks at `success`, at `fail_count`, or at `failed_checks`: the three always agree. What cannot
//! be known never keeps a node out of a job. Not responsible for: the table of conditions, and the
//! socket, which is that of the clients ([`crate::serve`]).

use crate::access::SeverityName;
use crate::admin::AdminService;
use crate::public_reading::{self, ReadingSources};
use crate::queries::QueryReach;
use ftb_core::filter::Filter;
use ftb_core::{Severity, condition::Truth};
use ftb_proto::condition_state::ConditionState;
use ftb_proto::nvhcd::health_check_service_server::HealthCheckService;
use ftb_proto::nvhcd::{HealthCheckRequest, HealthCheckResponse};
use ftb_proto::silence::{self, Silence};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tonic::{Request, Response, Status};

/// How long the log may take to give the conditions; later the health is unknown.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// Conditions that an answer names; `fail_count` counts further ones.
const NAMED_MAX: usize = 64;

/// The table `[health]` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HealthConfig {
    /// The mildest condition that counts.
    severity: SeverityName,
    /// Keys of conditions that never count.
    ignore: Vec<String>,
}

impl Default for HealthConfig {
    /// A certificate that ends within a month is no reason to leave the node out.
    fn default() -> Self {
        let ignore = vec!["CERTIFICATE_EXPIRES".to_owned()];
        Self { severity: SeverityName(Severity::Error), ignore }
    }
}

impl HealthConfig {
    fn counts(&self, state: &ConditionState) -> bool {
        let is_ignored = |key: &String| key.eq_ignore_ascii_case(state.subject.key());
        state.severity >= self.severity.0
            && !ftb_core::catalog::is_of_service(state.subject.key())
            && !self.ignore.iter().any(is_ignored)
    }
}

/// The service.
#[derive(Clone)]
pub struct HealthService {
    admin: AdminService,
    sources: ReadingSources,
    config: Arc<HealthConfig>,
}

impl HealthService {
    /// `admin` limits how much a user asks.
    pub fn new(admin: AdminService, sources: ReadingSources, config: &HealthConfig) -> Self {
        Self { admin, sources, config: Arc::new(config.clone()) }
    }

    /// The service for administrators.
    pub fn admin(&self) -> &AdminService {
        &self.admin
    }

    /// What reads the log.
    pub fn sources(&self) -> &ReadingSources {
        &self.sources
    }

    async fn verdict(&self) -> Result<Verdict, String> {
        let host = &self.sources.terms.host;
        let read = async {
            let mut rows = self.rows(&format!("condition=*, subject={host}")).await?;
            if rows.iter().any(|state| self.config.counts(state)) {
                // Where not everyone may read silences, there are none here.
                let stated = self.rows(silence::FILTER).await.unwrap_or_default();
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let now_ns = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
                let silences = stated.iter().filter_map(Silence::of);
                let active: Vec<_> = silences.filter(|one| one.is_active(now_ns)).collect();
                rows.retain(|state| !active.iter().any(|one| one.covers(&state.subject)));
            }
            Ok(Verdict::of(&rows, &self.config))
        };
        let late = |_| "the log does not answer in time".to_owned();
        tokio::time::timeout(ANSWER_MAX, read).await.map_err(late)?
    }

    async fn rows(&self, filter: &str) -> Result<Vec<ConditionState>, String> {
        let filter = Filter::parse(filter).map_err(|error| error.to_string())?;
        let table = public_reading::conditions(&self.sources, filter).await;
        table.map(|table| table.rows().to_vec()).map_err(|error| error.to_string())
    }
}

#[tonic::async_trait]
impl HealthCheckService for HealthService {
    async fn run_health_check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let (_, _pending) = self.admin.admit(&request, QueryReach::One).await?;
        Ok(Response::new(response(self.verdict().await)))
    }
}

/// What counts of the conditions of a host: those that hold, worst first.
#[derive(Debug, Default, Serialize)]
struct Verdict {
    fail_count: usize,
    failed_checks: Vec<String>,
    /// Conditions whose publisher is lost.
    unknown_checks: Vec<String>,
}

impl Verdict {
    fn of(rows: &[ConditionState], config: &HealthConfig) -> Self {
        let counted = rows.iter().filter(|state| config.counts(state));
        let (mut failed, unknown): (Vec<_>, Vec<_>) =
            counted.partition(|state| state.truth == Truth::True);
        failed.sort_by_key(|state| std::cmp::Reverse(state.severity));
        let words = |states: &[&ConditionState]| {
            states.iter().take(NAMED_MAX).map(|state| check(state)).collect()
        };
        Self {
            fail_count: failed.len(),
            failed_checks: words(&failed),
            unknown_checks: words(&unknown),
        }
    }
}

/// A condition as a failed check: `ftb.ipmi FANFAIL CPU 1 FAN`.
fn check(state: &ConditionState) -> String {
    let space = state.event.split_once(' ').map_or(&state.event[..], |(space, _)| space);
    let text = format!("{space} {} {}", state.subject.key(), state.subject.component());
    text.trim_end().to_owned()
}

fn response(verdict: Result<Verdict, String>) -> HealthCheckResponse {
    let (verdict, why) = match verdict {
        Ok(verdict) => (verdict, String::new()),
        Err(why) => (Verdict::default(), format!("the health is unknown: {why}")),
    };
    let success = verdict.fail_count == 0;
    // Of numbers and texts: it cannot fail, and an empty text is no verdict for any reader.
    let output = serde_json::to_string(&verdict).unwrap_or_default();
    HealthCheckResponse { success, exit_code: i32::from(!success), output, error: why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftb_core::condition::Subject;
    use ftb_core::numbers::PublisherSeq;
    use ftb_core::{EventId, PublisherId};

    const ID: EventId =
        EventId { publisher: PublisherId { account: 1, token: 1 }, seq: PublisherSeq::new(1) };

    fn state(key: &str, component: &str, severity: Severity, truth: Truth) -> ConditionState {
        let subject = Subject::new("node01", component, key);
        ConditionState {
            event: format!("ftb.ipmi FTB_{key}"),
            publisher_host: "node01".to_owned(),
            ..ConditionState::new(subject, truth, severity, ID, 1)
        }
    }

    #[test]
    fn only_what_holds_and_is_severe_enough_fails() {
        let rows = [
            state("CERTIFICATE_EXPIRES", "", Severity::Fatal, Truth::True),
            state("FANWARN", "FAN 1", Severity::Warning, Truth::True),
            state("BREAKER_OPEN", "ftb-act", Severity::Error, Truth::True),
            state("FANFAIL", "CPU 1 FAN", Severity::Error, Truth::True),
            state("PORT_ERR", "", Severity::Fatal, Truth::True),
            state("PSUFAIL", "PSU 2", Severity::Error, Truth::Unknown),
        ];
        let verdict = Verdict::of(&rows, &HealthConfig::default());
        assert_eq!(verdict.failed_checks, ["ftb.ipmi PORT_ERR", "ftb.ipmi FANFAIL CPU 1 FAN"]);
        assert_eq!(verdict.unknown_checks, ["ftb.ipmi PSUFAIL PSU 2"]);
        let answer = response(Ok(verdict));
        assert_eq!((answer.success, answer.exit_code, &answer.error[..]), (false, 1, ""));
        assert!(answer.output.starts_with("{\"fail_count\":2,\"failed_checks\":["));
        let verdict = Verdict::of(&rows[5..], &HealthConfig::default());
        assert!(response(Ok(verdict)).success, "what is unknown keeps no node out of a job");
    }

    #[test]
    fn an_answer_counts_all_conditions_and_names_a_bounded_number() {
        let row = |number: usize| state("BAD", &number.to_string(), Severity::Error, Truth::True);
        let rows: Vec<_> = (0..NAMED_MAX + 1).map(row).collect();
        let verdict = Verdict::of(&rows, &HealthConfig::default());
        assert_eq!((verdict.fail_count, verdict.failed_checks.len()), (NAMED_MAX + 1, NAMED_MAX));
    }

    #[test]
    fn an_unknown_health_says_why_and_keeps_no_node_out_of_a_job() {
        let answer = response(Err("the agent is stopping".to_owned()));
        assert_eq!((answer.success, answer.exit_code), (true, 0));
        assert_eq!(answer.error, "the health is unknown: the agent is stopping");
        assert!(answer.output.starts_with("{\"fail_count\":0,\"failed_checks\":[]"));
    }
}
