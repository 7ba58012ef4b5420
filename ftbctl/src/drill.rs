//! `ftbctl drill`: a supposed fault takes the path of a real one, up to the decisions of the
//! launchers. It measures each stage, and publishes the result.
//!
//! Not responsible for: what a launcher would do (`ftb_launcher_core::drill`).

use crate::cli::DrillArgs;
use crate::common::Common;
use crate::failure::Failure;
use crate::output::{BAD, FAINT, GOOD, Output, STRONG, styled};
use crate::text::{self, printable};
use crate::trace::delay_ms;
use core::hash::{BuildHasher as _, Hasher as _};
use core::time::Duration;
use ftb_client::{
    Client, Delivery, Event, EventId, EventName, EventSpace, Received, Severity, Start,
    Subscription, Tag, Unconfirmed, admin::Admin, now_ns,
};
use ftb_core::catalog::names;
use ftb_core::trace::TraceStep;
use ftb_launcher_core::drill::{self, Choice, Drill, DrillAnswer, DrillCheck, DrillId};
use ftb_launcher_core::jl;
use ftb_launcher_core::names::{JobId, NodeName};
use ftb_launcher_core::policy::Brake;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use tokio::time::{Instant, timeout, timeout_at};

/// Most launchers of which a drill waits for answers; others may answer, but need not.
const LAUNCHERS_MAX: usize = 4096;
/// A launcher that has reported itself within this time is expected to answer.
const ALIVE_WITHIN: Duration = Duration::from_secs(3 * jl::ALIVE.as_secs());
/// What an answer without a reason leaves out.
const OLDER: &str = "its launcher is older than this command, and checks neither whether the \
                     publisher may speak about the node nor its signature";
/// What a policy in shadow mode leaves out.
const SHADOW: &str = "its policy is in shadow mode, and only reports what it would do";
/// The code of a publish that an access rule forbids.
const DENIED: &str = "denied";

/// A launcher: its job, and the user who runs it.
type Launcher = (String, u32);

/// Milliseconds from the publish to the end of each stage.
#[derive(Clone, Copy, Debug, Default)]
struct Stages {
    /// The local agent has taken it.
    published: Option<f64>,
    committed: Option<f64>,
    /// A subscription here has got it.
    delivered: Option<f64>,
    /// The last expected launcher has answered.
    decided: Option<f64>,
}

impl Stages {
    fn rows(&self) -> [(&'static str, Option<f64>); 4] {
        [
            ("published", self.published),
            ("committed", self.committed),
            ("delivered", self.delivered),
            ("decided", self.decided),
        ]
    }
}

/// What has happened so far.
#[derive(Debug, Default)]
struct Progress {
    stages: Stages,
    /// Launchers that must answer, with their hosts.
    expected: BTreeMap<Launcher, String>,
    answers: BTreeMap<Launcher, (String, DrillAnswer)>,
}

impl Progress {
    /// Launchers that have not answered.
    fn silent(&self) -> impl Iterator<Item = (&Launcher, &String)> {
        self.expected.iter().filter(|(launcher, _)| !self.answers.contains_key(*launcher))
    }

    fn is_complete(&self) -> bool {
        let Stages { committed, delivered, .. } = self.stages;
        committed.is_some() && delivered.is_some() && self.silent().next().is_none()
    }

    fn on_answer(&mut self, drill: DrillId, received: Received, ms: f64) {
        let answer = drill::from_answer(&received.event).ok();
        let Some(answer) = answer.filter(|answer| answer.number == drill) else { return };
        if self.answers.len() < LAUNCHERS_MAX {
            let launcher = (received.event.job_id, received.uid);
            self.answers.insert(launcher, (received.host, answer));
            self.stages.decided = Some(ms);
        }
    }

    /// A launcher of the past seconds: it lives, or its job has ended.
    fn on_launcher(&mut self, received: Received) {
        let event = &received.event;
        let launcher = (event.job_id.clone(), received.uid);
        let is_end =
            event.name.as_str() == names::FTB_JL_EPISODE && event.tag("kind") == Some("end");
        if is_end {
            self.expected.remove(&launcher);
        } else if event.name.as_str() == names::FTB_JL_ALIVE && self.expected.len() < LAUNCHERS_MAX
        {
            self.expected.insert(launcher, received.host);
        }
    }

    /// Answers of launchers that have the node.
    fn decided(&self) -> impl Iterator<Item = (&Launcher, &DrillAnswer)> {
        let all = self.answers.iter().map(|(launcher, (_, answer))| (launcher, answer));
        all.filter(|(_, answer)| answer.choice != Choice::NotOfJob)
    }

    /// What a real fault would have met and the drill has not, by check.
    fn unchecked(&self) -> BTreeSet<DrillCheck> {
        let is_open =
            |check: &DrillCheck| self.decided().any(|(_, answer)| !answer.checked.contains(check));
        DrillCheck::ALL.into_iter().filter(is_open).collect()
    }

    /// The same in words, with the action if a policy only reports it.
    fn unexercised(&self) -> Vec<&'static str> {
        let is_shadow = |answer: &DrillAnswer| answer.braked == Some(Brake::Shadow);
        let mut words = words_of(&self.unchecked());
        words.extend(self.decided().any(|(_, answer)| is_shadow(answer)).then_some("action"));
        words
    }

    /// The same for people, by launcher.
    fn omissions(&self) -> impl Iterator<Item = String> {
        let open = self.decided().filter(|(_, of)| of.checked.len() < DrillCheck::ALL.len());
        let open = open.map(|((job, _), of)| (job, of.unchecked.as_deref().unwrap_or(OLDER)));
        let shadow = self.decided().filter(|(_, of)| of.braked == Some(Brake::Shadow));
        let shadow = shadow.map(|((job, _), _)| (job, SHADOW));
        open.chain(shadow).map(|(job, why)| {
            format!("not exercised for job {}: {}", printable(job), printable(why))
        })
    }

    /// What is wrong; empty: the drill has passed.
    fn failures(&self, waited: Duration, job: Option<&JobId>) -> Vec<String> {
        let waited = text::exact(waited);
        if self.stages.committed.is_none() {
            return vec![format!("the event was not committed within {waited}")];
        }
        let mut failures = Vec::new();
        if self.stages.delivered.is_none() {
            failures.push(format!("the event was not delivered here within {waited}"));
        }
        failures.extend(self.silent().map(|((job, uid), host)| {
            let (job, host) = (printable(job), printable(host));
            format!(
                "the launcher of job {job} (uid {uid}, on {host}) did not answer within {waited}: \
                 it may be older than this command, or not yours"
            )
        }));
        let refused = self.answers.iter().filter(|(_, (_, of))| of.choice == Choice::Refused);
        failures.extend(refused.map(|((job, uid), (host, answer))| {
            let (job, host, words) = (printable(job), printable(host), printable(&answer.words));
            format!("the launcher of job {job} (uid {uid}, on {host}) {words}")
        }));
        let braked = self.answers.iter();
        let braked = braked.filter(|(_, (_, of))| of.braked == Some(Brake::Breaker));
        failures.extend(braked.map(|((job, uid), (host, _))| {
            let (job, host) = (printable(job), printable(host));
            format!(
                "the launcher of job {job} (uid {uid}, on {host}) would do nothing: its circuit \
                 breaker is open, or would open; close it with ftb-launch policy reset {job}"
            )
        }));
        let unknown = self.answers.iter().filter(|(_, (_, of))| of.choice == Choice::Other);
        failures.extend(unknown.map(|((job, uid), (host, answer))| {
            let (job, host, words) = (printable(job), printable(host), printable(&answer.words));
            format!(
                "the launcher of job {job} (uid {uid}, on {host}) is later than this command and \
                 answers: {words}"
            )
        }));
        if let Some(job) = job.filter(|_| self.expected.is_empty() && self.answers.is_empty()) {
            failures.push(format!("no launcher of job {job} runs"));
        }
        failures
    }
}

/// Runs a drill.
pub(crate) async fn run(
    common: &Common,
    args: DrillArgs,
    mut output: Output,
) -> Result<(), Failure> {
    let client = common.client().build().map_err(Failure::failed)?;
    client.wait_connected(common.timeout()).await?;
    let drill = drill_of(common, &args).await?;
    let ran = match attempt(common, &client, &drill, false).await {
        Err(Refused::Denied) if args.job.is_some() => attempt(common, &client, &drill, true).await,
        ran => ran,
    };
    let (id, own, progress) = ran.map_err(|refused| match refused {
        Refused::Denied => Failure::failed(
            "only root and the agent's user may drill all jobs: drill your own with --job JOB",
        ),
        Refused::Other(failure) => failure,
    })?;
    let failures = progress.failures(common.timeout(), args.job.as_ref());
    let reported = report(&client, &drill, own, &progress, &failures);
    let reported = timeout(common.timeout(), reported).await;
    match output.is_json() {
        true => show_json(&mut output, id, &drill, &progress, &failures)?,
        false => show(&mut output, &drill, &progress, &failures)?,
    }
    output.flush()?;
    client.close(common.timeout()).await?;
    match reported {
        _ if !failures.is_empty() => Err(Failure::failed("the drill has failed")),
        Ok(Ok(())) => Ok(()),
        _ => Err(Failure::no_answer("the drill has passed, but its result is not committed")),
    }
}

/// A failed fan of the node; without node and job, of this host.
async fn drill_of(common: &Common, args: &DrillArgs) -> Result<Drill, Failure> {
    let node = match (&args.node, &args.job) {
        (None, None) => {
            let mut admin = Admin::connect(&common.socket(), common.timeout()).await?;
            let host = admin.status().await?.host;
            Some(NodeName::new(&host).map_err(Failure::failed)?)
        }
        (node, _) => node.clone(),
    };
    let entry = ftb_core::catalog::event(names::FTB_IPMI_FANFAIL);
    let entry = entry.ok_or_else(|| Failure::failed("the catalogue has no such event"))?;
    Ok(Drill {
        number: DrillId(std::hash::RandomState::new().build_hasher().finish()),
        fault: (
            EventSpace::new(entry.space).map_err(Failure::failed)?,
            EventName::new(entry.name).map_err(Failure::failed)?,
        ),
        severity: Severity::Error,
        condition: entry.sets().next().map(|condition| condition.key.to_owned()),
        node,
        from: args.from.clone(),
        job: args.job.as_ref().map(ToString::to_string).unwrap_or_default(),
    })
}

/// Why a drill did not begin.
enum Refused {
    /// An access rule forbids it.
    Denied,
    Other(Failure),
}

impl<F: Into<Failure>> From<F> for Refused {
    fn from(failure: F) -> Self {
        Self::Other(failure.into())
    }
}

/// Publishes the drill and waits for its stages, at most until the deadline. `own`: as the owner
/// of the job.
async fn attempt(
    common: &Common,
    client: &Client,
    drill: &Drill,
    own: bool,
) -> Result<(EventId, bool, Progress), Refused> {
    let mut progress = Progress::default();
    launchers(common, client, drill, &mut progress).await?;
    let event = drill::to_drill(drill, own);
    let delivered = format!("event_space={}, event_name={}", event.space, event.name);
    let answers = format!("event_space={}", drill::SPACE_OF_ANSWERS);
    let mut delivered = subscribe(common, client, &delivered, Start::Now).await?;
    let mut answers = subscribe(common, client, &answers, Start::Now).await?;
    let (begin, begin_ns) = (Instant::now(), now_ns());
    let ms = || begin.elapsed().as_secs_f64() * 1e3;
    let deadline = begin + common.timeout();
    let receipt = client.publish(event)?;
    let mut confirmed = core::pin::pin!(receipt.confirmed());
    let mut id = None;
    while !progress.is_complete() {
        tokio::select! {
            done = &mut confirmed, if id.is_none() => match done {
                Ok(done) => {
                    id = Some(done);
                    progress.stages.committed = Some(ms());
                }
                Err(Unconfirmed::Refused { code, .. }) if code == DENIED => {
                    return Err(Refused::Denied);
                }
                Err(error) => return Err(error.into()),
            },
            Some(Delivery::Event(received)) = delivered.next() => {
                let number = drill::from_drill(&received.event).map(|heard| heard.number);
                if number == Ok(drill.number) {
                    progress.stages.delivered.get_or_insert(ms());
                }
            }
            Some(Delivery::Event(received)) = answers.next() => {
                progress.on_answer(drill.number, *received, ms());
            }
            () = tokio::time::sleep_until(deadline) => break,
        }
    }
    let id = id.ok_or_else(|| {
        let waited = text::exact(common.timeout());
        Failure::no_answer(format_args!("the event was not committed within {waited}"))
    })?;
    progress.stages.published = published(common, id, begin_ns).await;
    Ok((id, own, progress))
}

/// Finds the launchers that run.
async fn launchers(
    common: &Common,
    client: &Client,
    drill: &Drill,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let names = format!("{}|{}", names::FTB_JL_ALIVE, names::FTB_JL_EPISODE);
    let job = match drill.job.as_str() {
        "" => String::new(),
        job => format!(", jobid={job}"),
    };
    let filter = format!("event_space=ftb.jl, event_name={names}{job}");
    let within = u64::try_from(ALIVE_WITHIN.as_nanos()).unwrap_or(u64::MAX);
    let since = Start::SinceNs(now_ns().saturating_sub(within));
    let mut past = subscribe(common, client, &filter, since).await?;
    let deadline = Instant::now() + common.timeout();
    let read = async {
        while let Some(delivery) = past.next_of_past().await {
            if let Delivery::Event(received) = delivery {
                progress.on_launcher(*received);
            }
        }
    };
    let late = |_| Failure::no_answer("the events of running launchers did not arrive in time");
    timeout_at(deadline, read).await.map_err(late)
}

async fn subscribe(
    common: &Common,
    client: &Client,
    filter: &str,
    start: Start,
) -> Result<Subscription, Failure> {
    let subscribed = timeout(common.timeout(), client.subscribe(filter, start)).await;
    let late = |_| Failure::no_answer("a subscription was not active in time");
    subscribed.map_err(late)?.map_err(Failure::from)
}

/// When the local agent took the event, if it remembers.
async fn published(common: &Common, id: EventId, begin_ns: u64) -> Option<f64> {
    let mut admin = Admin::connect(&common.socket(), common.timeout()).await.ok()?;
    let trace = admin.trace(id).await.ok()?;
    let mut hops = trace.agents.iter().flat_map(|agent| &agent.hops);
    let taken = hops.find(|hop| hop.step == TraceStep::Published as i32)?;
    Some(delay_ms(begin_ns, taken.at_ns))
}

/// Publishes the result.
async fn report(
    client: &Client,
    drill: &Drill,
    own: bool,
    progress: &Progress,
    failures: &[String],
) -> Result<(), Failure> {
    let mut event = Event::new(
        EventSpace::new(if own { drill::SPACE_OF_JOB } else { drill::SPACE })
            .map_err(Failure::failed)?,
        EventName::new(names::FTB_DRILL_DONE).map_err(Failure::failed)?,
    );
    event.severity = if failures.is_empty() { Severity::Info } else { Severity::Error };
    event.job_id.clone_from(&drill.job);
    event.payload = verdict(progress, failures).into();
    let mut tag = |key: &str, value: String| event.tags.push(Tag { key: key.to_owned(), value });
    tag("drill", drill.number.to_string());
    tag("result", if failures.is_empty() { "passed" } else { "failed" }.to_owned());
    tag("jobs", progress.answers.len().to_string());
    if let Some(node) = &drill.node {
        tag("node", node.to_string());
    }
    let unchecked = progress.unexercised();
    if !unchecked.is_empty() {
        tag("unchecked", unchecked.join(" "));
    }
    for (stage, ms) in progress.stages.rows() {
        if let Some(ms) = ms {
            tag(&format!("{stage}_ms"), format!("{ms:.3}"));
        }
    }
    client.publish(event)?.confirmed().await?;
    Ok(())
}

/// The result in one line.
fn verdict(progress: &Progress, failures: &[String]) -> String {
    if let [first, rest @ ..] = failures {
        return match rest.len() {
            0 => format!("failed: {first}"),
            more => format!("failed: {first}; {more} more"),
        };
    }
    let decided = match (progress.answers.len(), progress.decided().count()) {
        (0, _) => "no job runs, so the path was tested up to the delivery".to_owned(),
        (_, 0) => "no job has the node, so the path was tested up to the launchers".to_owned(),
        (_, 1) => "one launcher has decided".to_owned(),
        (_, count) => format!("{count} launchers have decided"),
    };
    let unchecked = progress.unexercised();
    match unchecked.is_empty() {
        true => format!("passed: {decided}"),
        false => format!("passed: {decided}; not exercised: {}", unchecked.join(", ")),
    }
}

fn show(
    output: &mut Output,
    drill: &Drill,
    progress: &Progress,
    failures: &[String],
) -> Result<(), Failure> {
    let (number, (_, name)) = (drill.number, &drill.fault);
    let node = drill.node.as_ref().map(|node| format!(" of {node}")).unwrap_or_default();
    output.line(&format!("{}  suppose {name}{node}: nothing is done", styled(STRONG, "drill")))?;
    output.line(&styled(FAINT, &format!("number {number}")))?;
    for (stage, ms) in progress.stages.rows() {
        let ms = ms.map_or_else(|| format!("{:>11}   ", "-"), |ms| format!("{ms:>11.3} ms"));
        output.line(&format!("{stage:<10}{ms}"))?;
    }
    for ((job, uid), (host, answer)) in &progress.answers {
        let (job, host) = (styled(STRONG, &printable(job)), printable(host));
        let words = printable(&answer.words);
        output.line(&format!("job {job} (uid {uid}, launcher on {host}): {words}"))?;
    }
    for omission in progress.omissions() {
        output.line(&styled(FAINT, &omission))?;
    }
    for failure in failures {
        output.line(&styled(BAD, failure))?;
    }
    let style = if failures.is_empty() { GOOD } else { BAD };
    output.line(&styled(style, &verdict(progress, failures)))
}

fn show_json(
    output: &mut Output,
    id: EventId,
    drill: &Drill,
    progress: &Progress,
    failures: &[String],
) -> Result<(), Failure> {
    for ((job, uid), (host, answer)) in &progress.answers {
        output.json(&json!({
            "type": "answer",
            "job": job,
            "uid": uid,
            "host": host,
            "node": answer.node.as_ref().map(ToString::to_string),
            "choice": answer.choice.as_str(),
            "rule": answer.rule,
            "target": answer.target.as_ref().map(ToString::to_string),
            "words": answer.words,
            "checked": words_of(&answer.checked),
            "unchecked": answer.unchecked,
            "braked": answer.braked.map(Brake::as_str),
        }))?;
    }
    let Stages { published, committed, delivered, decided } = progress.stages;
    output.json(&json!({
        "type": "drill",
        "id": id.to_string(),
        "drill": drill.number.to_string(),
        "fault": drill.fault.1.as_str(),
        "node": drill.node.as_ref().map(ToString::to_string),
        "passed": failures.is_empty(),
        "published_ms": published,
        "committed_ms": committed,
        "delivered_ms": delivered,
        "decided_ms": decided,
        "answers": progress.answers.len(),
        "unchecked": progress.unexercised(),
        "failures": failures,
    }))
}

fn words_of(checks: &BTreeSet<DrillCheck>) -> Vec<&'static str> {
    checks.iter().map(|check| check.as_str()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const WAITED: Duration = Duration::from_secs(5);

    fn answer() -> DrillAnswer {
        DrillAnswer {
            number: DrillId(1),
            node: None,
            choice: Choice::Nothing,
            rule: None,
            target: None,
            words: "would leave it".to_owned(),
            checked: BTreeSet::from(DrillCheck::ALL),
            unchecked: None,
            braked: None,
        }
    }

    fn progress(expected: &[&str], answered: &[&str]) -> Progress {
        let launcher = |job: &&str| ((*job).to_owned(), 7);
        let stages = Stages { committed: Some(1.0), delivered: Some(2.0), ..Stages::default() };
        let expected = expected.iter().map(|job| (launcher(job), "login".to_owned())).collect();
        let answered = answered.iter().map(|job| (launcher(job), ("login".to_owned(), answer())));
        Progress { stages, expected, answers: answered.collect() }
    }

    #[test]
    fn a_drill_without_a_job_passes_and_says_how_far_it_went() {
        let none = progress(&[], &[]);
        assert!(none.is_complete() && none.failures(WAITED, None).is_empty());
        assert!(verdict(&none, &[]).contains("no job runs"));
        let job = JobId::new("solver").unwrap();
        assert_eq!(none.failures(WAITED, Some(&job)), ["no launcher of job solver runs"]);
    }

    #[test]
    fn each_launcher_that_runs_must_answer() {
        let all = progress(&["a", "b"], &["a", "b", "new"]);
        assert!(all.is_complete() && all.failures(WAITED, None).is_empty());
        let one = progress(&["a", "b"], &["a"]);
        assert!(!one.is_complete());
        let failures = one.failures(WAITED, None);
        assert_eq!(failures.len(), 1);
        assert!(failures[0].contains("job b (uid 7, on login) did not answer within 5s"));
        assert!(verdict(&one, &failures).starts_with("failed: the launcher of job b"));
    }

    #[test]
    fn a_launcher_that_would_refuse_the_fault_fails_the_drill_with_its_reason() {
        let mut refused = progress(&["a"], &["a"]);
        let (_, answer) = refused.answers.values_mut().next().unwrap();
        answer.choice = Choice::Refused;
        answer.words = "would refuse the fault: mgmt1 is not among the monitors".to_owned();
        assert!(refused.is_complete());
        let expected = "the launcher of job a (uid 7, on login) would refuse the fault: mgmt1 is \
                        not among the monitors";
        assert_eq!(refused.failures(WAITED, None), [expected]);
    }

    fn changed(answers: &mut Progress, job: &str, change: impl Fn(&mut DrillAnswer)) {
        let (_, answer) = answers.answers.get_mut(&(job.to_owned(), 7)).unwrap();
        change(answer);
    }

    #[test]
    fn a_drill_that_passes_says_what_it_did_not_exercise() {
        let mut all = progress(&["a", "b", "c"], &["a", "b", "c"]);
        assert_eq!(verdict(&all, &[]), "passed: 3 launchers have decided");
        changed(&mut all, "a", |answer| {
            answer.checked = BTreeSet::from([DrillCheck::Publisher]);
            answer.unchecked = Some("it is not signed".to_owned());
        });
        assert_eq!(
            verdict(&all, &[]),
            "passed: 3 launchers have decided; not exercised: signature"
        );
        // Of the release before.
        changed(&mut all, "b", |answer| answer.checked = BTreeSet::new());
        changed(&mut all, "c", |answer| {
            (answer.choice, answer.checked) = (Choice::NotOfJob, BTreeSet::new());
        });
        let expected = "passed: 2 launchers have decided; not exercised: publisher, signature";
        assert_eq!(verdict(&all, &[]), expected);
        let omissions: Vec<String> = all.omissions().collect();
        assert_eq!(omissions[0], "not exercised for job a: it is not signed");
        assert!(omissions[1].starts_with("not exercised for job b: its launcher is older"));
        assert_eq!(omissions.len(), 2);
    }

    /// A launcher that would do nothing is not ready for the fault.
    #[test]
    fn an_open_circuit_breaker_fails_the_drill_and_shadow_mode_is_named() {
        let mut both = progress(&["a", "b"], &["a", "b"]);
        changed(&mut both, "b", |answer| answer.braked = Some(Brake::Shadow));
        assert!(both.failures(WAITED, None).is_empty());
        assert_eq!(verdict(&both, &[]), "passed: 2 launchers have decided; not exercised: action");
        let omissions: Vec<String> = both.omissions().collect();
        assert_eq!(omissions, [format!("not exercised for job b: {SHADOW}")]);
        changed(&mut both, "a", |answer| answer.braked = Some(Brake::Breaker));
        let expected = "the launcher of job a (uid 7, on login) would do nothing: its circuit \
                        breaker is open, or would open; close it with ftb-launch policy reset a";
        assert_eq!(both.failures(WAITED, None), [expected]);
    }

    #[test]
    fn a_drill_about_a_node_of_no_job_says_that_no_policy_was_asked() {
        let mut foreign = progress(&["a"], &["a"]);
        changed(&mut foreign, "a", |answer| {
            (answer.choice, answer.checked) = (Choice::NotOfJob, BTreeSet::new());
        });
        assert!(verdict(&foreign, &[]).starts_with("passed: no job has the node"));
        assert_eq!(foreign.omissions().count(), 0);
    }

    #[test]
    fn an_answer_that_is_later_than_the_command_fails_the_drill() {
        let mut later = progress(&["a"], &["a"]);
        changed(&mut later, "a", |answer| answer.choice = Choice::Other);
        let expected = "the launcher of job a (uid 7, on login) is later than this command and \
                        answers: would leave it";
        assert_eq!(later.failures(WAITED, None), [expected]);
    }

    #[test]
    fn a_stage_that_is_missing_fails_the_drill() {
        let mut cut = progress(&[], &[]);
        cut.stages.delivered = None;
        assert!(!cut.is_complete());
        assert_eq!(cut.failures(WAITED, None), ["the event was not delivered here within 5s"]);
        cut.stages.committed = None;
        assert_eq!(cut.failures(WAITED, None), ["the event was not committed within 5s"]);
    }
}
