//! Nodes that join a running job, and a job that waits for them.

use super::*;
use std::collections::BTreeMap;

const MINUTES_10: Duration = Duration::from_secs(600);

/// A job on `a` and `b` with a set; `s` takes no ranks.
fn saved(wait: Duration) -> Clocked {
    let mut job = Clocked::started(Interval::Never, false);
    job.jl.job.config.wait_for_nodes = wait;
    job.meet(true);
    job.asks(Clocked::checkpoint());
    save(&mut job);
    job.out.clear();
    job
}

fn add(job: &mut Clocked, names: &[&str]) {
    let (nodes, racks) = (names.iter().map(|name| node(name)).collect(), BTreeMap::new());
    job.feed(JlInput::Add { nodes, racks, by: Initiator::Request(7) });
}

fn gone(job: &mut Clocked, name: &str) {
    job.feed(JlInput::Gone { node: node(name), reason: "power is off".to_owned() });
    for name in ["a", "b", "s"] {
        let episode = job.jl.job.episode;
        job.says(name, FromNla::Reset { episode });
    }
}

fn answers(job: &mut Clocked) -> Vec<(Outcome, String)> {
    let all = core::mem::take(&mut job.out).into_iter().filter_map(|output| match output {
        JlOutput::Answer(answer) => Some((answer.outcome, answer.words)),
        _ => None,
    });
    all.collect()
}

fn started(job: &Clocked) -> Vec<NodeName> {
    let all = job.out.iter().filter_map(|output| match output {
        JlOutput::StartNlas(nodes) => Some(nodes.clone()),
        _ => None,
    });
    all.flatten().collect()
}

fn phase(job: &Clocked) -> &str {
    job.jl.open().map_or("", |open| &open.phase)
}

#[test]
fn a_job_without_a_spare_ends_unless_it_is_to_wait() {
    let mut job = saved(Duration::ZERO);
    gone(&mut job, "b");
    assert!(job.jl.ends() && job.jl.node_wait().is_none());
    let mut job = saved(MINUTES_10);
    gone(&mut job, "b");
    assert_eq!(phase(&job), WAIT);
    assert!(job.reported("the job waits up to 10m for a node"), "{:?}", job.out);
    let wait = job.jl.node_wait().unwrap();
    assert_eq!((wait.node.as_str(), wait.until_ns - wait.since_ns), ("b", 600_000_000_000));
    let is_published = |output: &JlOutput| match output {
        JlOutput::Publish(FromJl::Waiting(waiting)) => waiting.node == node("b"),
        _ => false,
    };
    let saved = job.out.iter().rposition(|output| *output == JlOutput::Save);
    assert!(
        saved < job.out.iter().position(is_published),
        "saved before it is published: {:?}",
        job.out
    );
}

#[test]
fn a_wait_ends_when_a_condition_clears() {
    let mut job = saved(MINUTES_10);
    job.is_unusable("s");
    job.jl.job.nodes.get_mut(&node("s")).unwrap().state = Some(MigrationState::Spare);
    gone(&mut job, "b");
    assert_eq!(phase(&job), WAIT, "its spare is not usable");
    let want = Request::Usable { node: node("s") };
    job.feed(JlInput::Request { want, by: Initiator::Internal });
    assert_eq!(phase(&job), "reset", "{:?}", job.out);
    let episode = job.jl.job.episode;
    for name in ["a", "s"] {
        job.says(name, FromNla::Reset { episode });
    }
    assert!(matches!(phase(&job), "copy"), "{}", phase(&job));
    assert_eq!(job.jl.job.waits.as_ref().map(|of| of.node.as_str()), Some("b"));
    for name in ["a", "s"] {
        let (set, ranks) = (job.jl.job.sets[0].clone(), Ranks::default());
        job.says(name, FromNla::Copied { episode, set, ranks, bytes: 1 });
    }
    assert_eq!((phase(&job), &job.jl.job.waits), ("launch", &None));
}

#[test]
fn a_wait_ends_when_a_node_is_added_or_returns() {
    for name in ["n", "b"] {
        let mut job = saved(MINUTES_10);
        gone(&mut job, "b");
        job.out.clear();
        add(&mut job, &[name]);
        assert_eq!(started(&job), [node(name)]);
        assert_eq!(phase(&job), WAIT);
        // An agent from before the loss leaves.
        job.ready(name, MigrationState::Ready);
        let evicts = |output: &JlOutput| matches!(output, JlOutput::Publish(FromJl::Evict { .. }));
        assert!(job.out.iter().any(evicts) && phase(&job) == WAIT);
        job.ready(name, MigrationState::Spare);
        assert_eq!(phase(&job), "reset");
        let words = answers(&mut job);
        assert_eq!(words.last().unwrap(), &(Outcome::Done, "1 node is a spare of the job".into()));
    }
}

/// The launcher itself tries lost nodes again.
#[test]
fn a_job_that_waits_tries_lost_nodes_again() {
    let mut job = saved(MINUTES_10);
    gone(&mut job, "b");
    job.out.clear();
    job.wait(14);
    assert_eq!(started(&job), []);
    job.wait(2);
    assert_eq!(started(&job), [node("b")]);
    let reason = "no route to host".to_owned();
    job.feed(JlInput::Gone { node: node("b"), reason });
    assert!(!job.reported("cannot be added"), "no one has asked for it");
    job.wait(15);
    assert_eq!(started(&job), [node("b"), node("b")]);
}

#[test]
fn added_nodes_are_spares_once_each_and_progress_is_answered() {
    let mut job = saved(Duration::ZERO);
    add(&mut job, &["m", "n"]);
    assert_eq!(started(&job), [node("m"), node("n")]);
    // Again, by another request: no second start.
    let (nodes, racks) = ([node("n")].into(), BTreeMap::new());
    job.feed(JlInput::Add { nodes, racks, by: Initiator::Request(8) });
    assert_eq!(started(&job).len(), 2);
    assert!(job.jl.spare_is(None), "they have not reported");
    job.out.clear();
    job.ready("n", MigrationState::Spare);
    let now = answers(&mut job);
    assert_eq!(now[0], (Outcome::Accepted, "node n is a spare (1 of 2)".to_owned()));
    assert_eq!(now[1], (Outcome::Done, "1 node is a spare of the job".to_owned()));
    job.feed(JlInput::Gone { node: node("m"), reason: "no route to host".to_owned() });
    let now = answers(&mut job);
    assert_eq!(now, [(Outcome::Failed, "1 of 2 nodes added; m: no route to host".to_owned())]);
    assert!(job.jl.spare_is(Some("n")));
    add(&mut job, &["n", "a"]);
    let now = answers(&mut job);
    assert_eq!(now, [(Outcome::Done, "a,n is part of the job already".to_owned())]);
}

#[test]
fn nodes_that_are_not_usable_are_refused_by_name() {
    let mut job = saved(Duration::ZERO);
    job.is_unusable("s");
    add(&mut job, &["n", "s"]);
    let why = "node s is not usable (fan failed: FAN 1 FANFAIL)".to_owned();
    assert_eq!(answers(&mut job), [(Outcome::Refused, why)]);
    assert!(!job.jl.job.nodes.contains_key(&node("n")), "all or none");
}

#[test]
fn a_node_that_never_reports_is_given_up() {
    let mut job = saved(Duration::ZERO);
    add(&mut job, &["n"]);
    answers(&mut job);
    // Only the others answer.
    for _ in 0..61 {
        job.seconds += 1;
        for name in ["a", "b"] {
            job.ready(name, MigrationState::Ready);
        }
        job.ready("s", MigrationState::Inactive);
        job.feed(JlInput::Tick);
    }
    let failed = answers(&mut job);
    assert_eq!(failed.last().map(|(outcome, _)| *outcome), Some(Outcome::Failed), "{failed:?}");
    job.ready("n", MigrationState::Spare);
    assert!(job.jl.job.nodes[&node("n")].lost, "it is too late");
}

#[test]
fn tries_of_one_node_do_not_put_off_the_end_of_another() {
    let mut job = saved(MINUTES_10);
    gone(&mut job, "b");
    add(&mut job, &["n"]);
    answers(&mut job);
    for _ in 0..61 {
        job.seconds += 1;
        for (name, row) in job.jl.job.nodes.clone() {
            if !row.lost {
                job.ready(name.as_str(), row.state.unwrap());
            }
        }
        job.feed(JlInput::Gone { node: node("b"), reason: "no route to host".to_owned() });
        job.feed(JlInput::Tick);
    }
    let failed = answers(&mut job);
    assert_eq!(failed.last().map(|(outcome, _)| *outcome), Some(Outcome::Failed), "{failed:?}");
}

/// A rank of a lost node is dead until its recovery has begun.
#[test]
fn a_node_does_not_join_in_the_middle_of_a_recovery() {
    let mut job = saved(Duration::ZERO);
    job.jl.job.nodes.get_mut(&node("s")).unwrap().state = Some(MigrationState::Spare);
    job.feed(JlInput::Gone { node: node("b"), reason: "power is off".to_owned() });
    add(&mut job, &["b"]);
    job.ready("b", MigrationState::Spare);
    assert!(job.jl.job.nodes[&node("b")].lost && job.jl.open().is_some());
    // It reports for longer than it has time.
    for _ in 0..2 {
        job.seconds += 40;
        job.ready("b", MigrationState::Spare);
        job.jl.arrivals_tick(Now { mono_ns: job.seconds * 1_000_000_000, wall_ns: 0 });
    }
    assert!(job.jl.job.nodes[&node("b")].arriving, "it is not given up");
    job.jl.open = None;
    job.ready("b", MigrationState::Spare);
    assert!(!job.jl.job.nodes[&node("b")].lost);
}

#[test]
fn an_agent_is_not_started_before_the_state_says_so() {
    let mut job = saved(Duration::ZERO);
    add(&mut job, &["n"]);
    let mut batch = core::mem::take(&mut job.out);
    job.feed(JlInput::SaveFailed { why: "no space".to_owned() });
    batch.retain(|output| !job.jl.is_taken_back(output));
    assert!(!batch.iter().any(|output| matches!(output, JlOutput::StartNlas(_))), "{batch:?}");
    job.out.clear();
    job.feed(JlInput::Saved);
    assert_eq!(started(&job), [node("n")]);
}

impl Jl {
    fn spare_is(&self, name: Option<&str>) -> bool {
        self.job.spare(&[]) == name.map(node)
    }
}
