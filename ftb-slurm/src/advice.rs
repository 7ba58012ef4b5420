//! `ftb-slurm advice`: which nodes a job should not get when it is submitted or requeued, from the
//! conditions that the local agent knows.
//!
//! Responsible for: the list and how it is printed. Not responsible for: carrying it out. Slurm is
//! not asked.

use crate::cli::AdviceArgs;
use crate::reason::reason_of;
use crate::rules::Rules;
use ftb_client::daemon::Failure;
use ftb_client::{Client, ConditionState, Conditions, Silence, Truth, now_ns};
use ftb_core::hostlist::{self, Hostlist};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use tokio::time::timeout;

/// Which conditions keep a job away from a node, and which nodes may be named.
#[derive(Debug)]
pub struct Choice<'a> {
    /// Which conditions count.
    pub rules: &'a Rules,
    /// The only nodes that may be named: Slurm rejects a list with a host that is no node.
    pub nodes: Option<&'a Hostlist>,
    /// Nodes that the job excludes already.
    pub also: Option<&'a Hostlist>,
    /// The silences that are active: what they cover counts as little as for the bridge.
    pub silences: &'a [Silence],
}

impl Choice<'_> {
    /// A host as Slurm writes it, as far as that is known: names in conditions are in lower case,
    /// and Slurm rejects another spelling.
    fn spelled(&self, host: &str) -> String {
        let mut lists = self.nodes.into_iter().chain(self.also);
        let found = lists.find_map(|list| list.get(list.position(host)?));
        found.unwrap_or_else(|| host.to_owned())
    }
}

/// What is advised.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// The nodes, as a host list; empty: none.
    exclude: String,
    /// The job.
    job: Option<String>,
    /// Nodes with conditions, and their reasons.
    reasons: BTreeMap<String, Vec<String>>,
    /// Conditions that this user may not read.
    hidden: u32,
}

impl Advice {
    /// The advice for a job (`None`: for one that is submitted).
    pub fn of<'a>(
        states: impl Iterator<Item = &'a ConditionState>,
        choice: &Choice<'_>,
        job: Option<&str>,
    ) -> Self {
        let counts = |state: &&ConditionState| {
            let subject = &state.subject;
            state.truth == Truth::True
                && choice.rules.counts(subject.key(), state.severity)
                && choice.nodes.is_none_or(|nodes| nodes.contains(subject.host()))
                && !choice.silences.iter().any(|silence| silence.covers(subject))
        };
        let mut reasons: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for state in states.filter(counts) {
            let host = choice.spelled(state.subject.host());
            reasons.entry(host).or_default().push(reason_of(&state.subject));
        }
        let also = choice.also.into_iter().flat_map(Hostlist::iter);
        let also = also.map(|host| choice.spelled(&host));
        let hosts: BTreeSet<String> = reasons.keys().cloned().chain(also).collect();
        let exclude = hostlist::fold(hosts.iter().map(String::as_str));
        Self { exclude, job: job.map(str::to_owned), reasons, hidden: 0 }
    }

    /// The lines of standard output: an option of `sbatch` and `srun`; for a job the commands that
    /// requeue it. Slurm changes the list only of a job that waits. If it refuses the list, the job
    /// is not left on hold.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = match (&self.job, self.exclude.as_str()) {
            (None, "") => Ok(()),
            (None, hosts) => writeln!(text, "--exclude={hosts}"),
            (Some(job), "") => writeln!(text, "scontrol requeue {job}"),
            (Some(job), hosts) => writeln!(
                text,
                "scontrol requeuehold {job}\n\
                 scontrol update jobid={job} 'excnodelist={hosts}' || \
                 {{ scontrol release {job}; exit 1; }}\n\
                 scontrol release {job}"
            ),
        };
        text
    }

    /// What a person should know besides: one line.
    pub fn remark(&self) -> Option<String> {
        match (self.reasons.is_empty(), self.hidden) {
            (_, 1..) => {
                Some(format!("{} conditions are in spaces that you may not read", self.hidden))
            }
            (true, 0) => Some("no node has a condition that counts".to_owned()),
            (false, 0) => None,
        }
    }
}

/// Asks the agent.
///
/// # Errors
/// No answer came in time, or the agent refuses.
pub async fn ask(args: &AdviceArgs) -> Result<Advice, Failure> {
    let late = || Failure::no_answer(format!("no answer within {} ms", args.timeout.as_millis()));
    timeout(args.timeout, answer(args)).await.map_err(|_| late())?
}

async fn answer(args: &AdviceArgs) -> Result<Advice, Failure> {
    let mut builder = Client::builder("ftb-slurm-advice");
    if let Some(socket) = &args.agent {
        builder = builder.agent(socket);
    }
    let client = builder.build()?;
    client.wait_connected(args.timeout).await.map_err(Failure::no_answer)?;
    let mut conditions = Conditions::open(&client, "condition=*").await?;
    conditions.load().await?;
    let rules = args.rules.config()?.rules;
    let now_ns = now_ns();
    let stated = conditions.states().filter_map(Silence::of);
    let silences: Vec<Silence> = stated.filter(|silence| silence.is_active(now_ns)).collect();
    let (nodes, also) = (args.nodes.as_ref(), args.also.as_ref());
    let choice = Choice { rules: &rules, nodes, also, silences: &silences };
    let advice = Advice::of(conditions.states(), &choice, args.job.as_deref());
    Ok(Advice { hidden: conditions.hidden(), ..advice })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::Config;
    use ftb_core::condition::{Subject, WATCHED};
    use ftb_core::numbers::PublisherSeq;
    use ftb_core::{EventId, PublisherId, Severity};

    const SOURCE: EventId =
        EventId { publisher: PublisherId { account: 1, token: 1 }, seq: PublisherSeq::new(1) };

    fn state(host: &str, key: &str, truth: Truth, severity: Severity) -> ConditionState {
        ConditionState::new(Subject::new(host, "", key), truth, severity, SOURCE, 1)
    }

    fn states() -> Vec<ConditionState> {
        use Severity::{Error, Fatal, Info, Warning};
        vec![
            state("login1", "FANFAIL", Truth::True, Error),
            state("node01", WATCHED, Truth::True, Info),
            state("node02", "FANFAIL", Truth::True, Error),
            state("node02", "NODE_DEAD", Truth::True, Fatal),
            state("node03", "FANFAIL", Truth::True, Error),
            state("node04", "FANFAIL", Truth::False, Error),
            state("node05", "FANFAIL", Truth::Unknown, Error),
            state("node06", "FANWARN", Truth::True, Warning),
            state("node07", "CERTIFICATE_EXPIRES", Truth::True, Error),
            state("node08", "BREAKER_OPEN", Truth::True, Error),
        ]
    }

    fn rules() -> Rules {
        Config::parse("").unwrap().rules
    }

    fn advice(nodes: Option<&str>, also: Option<&str>, job: Option<&str>) -> Advice {
        let list = |text: Option<&str>| text.map(|text| Hostlist::parse(text).unwrap());
        let (nodes, also) = (list(nodes), list(also));
        let (nodes, also) = (nodes.as_ref(), also.as_ref());
        let choice = Choice { rules: &rules(), nodes, also, silences: &[] };
        Advice::of(states().iter(), &choice, job)
    }

    fn nothing(job: Option<&str>) -> Advice {
        let choice = Choice { rules: &rules(), nodes: None, also: None, silences: &[] };
        Advice::of([].iter(), &choice, job)
    }

    #[test]
    fn a_silenced_condition_keeps_no_job_away() {
        let lasts = (0, std::time::Duration::from_secs(1));
        let silence = Silence::new("a".to_owned(), "node02", None, lasts, "new fan").unwrap();
        let (rules, silences) = (rules(), [silence]);
        let choice = Choice { rules: &rules, nodes: None, also: None, silences: &silences };
        let advice = Advice::of(states().iter(), &choice, None);
        assert_eq!(advice.text(), "--exclude=login1,node03\n");
    }

    #[test]
    fn hosts_are_written_as_slurm_writes_them() {
        let of_slurm = advice(Some("Node[01-16]"), Some("node03,node04"), None);
        assert_eq!(of_slurm.text(), "--exclude=Node[02-04]\n");
        assert!(of_slurm.reasons.contains_key("Node02"));
        let only_also = advice(None, Some("NODE03"), None);
        assert_eq!(only_also.text(), "--exclude=NODE03,login1,node02\n");
    }

    #[test]
    fn nodes_with_conditions_that_hold_are_excluded_and_no_others() {
        let all = advice(None, None, None);
        assert_eq!(all.text(), "--exclude=login1,node[02-03]\n");
        assert_eq!(all.reasons["node02"], ["ftb:FANFAIL", "ftb:NODE_DEAD"]);
        let of_slurm = advice(Some("node[01-16]"), None, None);
        assert_eq!(of_slurm.text(), "--exclude=node[02-03]\n");
        let none = nothing(None);
        assert_eq!(none.text(), "", "sbatch gets no option");
        assert_eq!(none.remark().unwrap(), "no node has a condition that counts");
    }

    #[test]
    fn a_job_keeps_the_nodes_that_it_excludes_already() {
        let advice = advice(Some("node[01-16]"), Some("node[03-04]"), Some("7"));
        let lines = "scontrol requeuehold 7\n\
                     scontrol update jobid=7 'excnodelist=node[02-04]' || \
                     { scontrol release 7; exit 1; }\n\
                     scontrol release 7\n";
        assert_eq!(advice.text(), lines);
        assert_eq!(nothing(Some("7")).text(), "scontrol requeue 7\n");
    }
}
