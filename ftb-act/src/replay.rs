//! `ftb-act run --dry-run --since`: what the rules would have done about the log, by the same core.
//!
//! Every action is taken as done at once. Conditions that began before the time are known as far as
//! the log repeats them. A statement counts by the rules of the table, as for `ftb-act run`.

use crate::act::{Act, BREAKER_ID, Input, Notice, Output, Saved, Turn};
use crate::config::Config;
use crate::post::server_of;
use crate::watch::row;
use ftb_client::daemon::Failure;
use ftb_client::{Client, ConditionState, Delivery, Proofs, Start, Truth, now_ns};
use ftb_core::log::conditions::Claim;
use ftb_core::log::table_view::{ReadPlace, TableView};
use std::io::Write as _;
use std::time::{Duration, UNIX_EPOCH};
use tokio::time::timeout;

/// Most inputs that follow from one event: beyond is a fault of the core.
const STEPS_MAX: usize = 1_000_000;

/// Reads the log since then, and prints a line for each action.
///
/// # Errors
/// The agent does not answer.
pub async fn run(
    config: Config,
    client: &Client,
    since: Duration,
    patience: Duration,
) -> Result<(), Failure> {
    let since_ns = now_ns().saturating_sub(since.as_nanos().try_into().unwrap_or(u64::MAX));
    let mut replay = Replay::new(Act::new(config.rules, Saved::default()), since_ns);
    let mut past = client.subscribe("condition=*", Start::SinceNs(since_ns)).await?;
    replay.take(Input::Table(Vec::new()))?;
    let proofs = Proofs::new(client);
    loop {
        let next = timeout(patience, past.next_of_past()).await;
        match next.map_err(|_| Failure::no_answer(format!("no answer within {patience:?}")))? {
            Some(Delivery::Event(received)) if proofs.is_missing(&received) => {}
            Some(Delivery::Event(received)) => {
                if let Some(state) = ConditionState::of(&received) {
                    replay.state(&state)?;
                }
            }
            Some(Delivery::Gap(_)) => replay.gaps += 1,
            None => match past.ended() {
                Some(why) => return Err(why.into()),
                None => break,
            },
        }
    }
    replay.until(now_ns())?;
    let (actions, gaps) = (replay.actions, replay.gaps);
    let lost = if gaps > 0 { format!(", {gaps} gaps in the log") } else { String::new() };
    writeln!(std::io::stdout(), "{actions} actions{lost}")?;
    Ok(())
}

struct Replay {
    act: Act,
    view: TableView<Claim>,
    now_ns: u64,
    actions: u64,
    gaps: u64,
}

impl Replay {
    fn new(act: Act, now_ns: u64) -> Self {
        Self { act, view: TableView::default(), now_ns, actions: 0, gaps: 0 }
    }

    /// The next statement of the log.
    fn state(&mut self, state: &ConditionState) -> Result<(), Failure> {
        self.until(state.changed_ns)?;
        // What it replaces may be older than the part of the log that is read.
        let place = ReadPlace { is_row: true, ..ReadPlace::default() };
        match self.view.take(state.subject.clone(), place, state.claim) {
            true => self.take(Input::Row(Box::new(row(state)))),
            false => Ok(()),
        }
    }

    /// Time passes.
    fn until(&mut self, end_ns: u64) -> Result<(), Failure> {
        while let Some(at_ns) = self.act.deadline_ns().filter(|at_ns| *at_ns <= end_ns) {
            self.now_ns = self.now_ns.max(at_ns);
            self.take(Input::Tick)?;
        }
        // Clocks of publishers differ: time does not go back.
        self.now_ns = self.now_ns.max(end_ns);
        Ok(())
    }

    /// Gives an input to the core, and the ends of all that follows.
    fn take(&mut self, input: Input) -> Result<(), Failure> {
        let mut inputs = vec![input];
        for _ in 0..STEPS_MAX {
            let Some(input) = inputs.pop() else { return Ok(()) };
            let Turn { outputs, .. } = self.act.handle(self.now_ns, input);
            for output in outputs {
                inputs.extend(self.print(output)?);
            }
        }
        Err(Failure::failed("the rules never end"))
    }

    fn print(&mut self, output: Output) -> Result<Option<Input>, Failure> {
        let line = line_of(&output);
        let input = match output {
            Output::Log(_) => None,
            Output::Run { work, .. } | Output::Post { work, .. } => Some(ended(work.order.id)),
            Output::Publish { id, .. } => (id != BREAKER_ID).then_some(Input::Confirmed(id)),
        };
        if let Some(line) = line {
            self.actions += u64::from(input.is_some());
            let time = UNIX_EPOCH + Duration::from_nanos(self.now_ns);
            let time = humantime::format_rfc3339_millis(time);
            writeln!(std::io::stdout(), "{time}  {line}")?;
        }
        Ok(input)
    }
}

/// What is printed of an output. Of an address only the server: the rest is often a secret.
fn line_of(output: &Output) -> Option<String> {
    match output {
        Output::Log(line) => Some(line.clone()),
        Output::Run { work, program, .. } => {
            let order = &work.order;
            Some(format!("{} runs {}: {}", order.rule, program[0], order.host_list()))
        }
        Output::Post { work, url, .. } => {
            let (order, server) = (&work.order, server_of(url));
            Some(format!("{} posts to {server}: {}", order.rule, order.host_list()))
        }
        Output::Publish { notice, .. } => match &**notice {
            Notice::Event { work, .. } => {
                Some(format!("{} publishes: {}", work.order.rule, work.order.host_list()))
            }
            Notice::Service { subject, truth: Truth::True, text } => {
                Some(format!("drains {} ({text})", subject.host()))
            }
            Notice::Service { subject, .. } => Some(format!("resumes {}", subject.host())),
            Notice::Report(_) | Notice::Breaker { .. } => None,
        },
    }
}

fn ended(id: u64) -> Input {
    Input::Ended { id, is_done: true, text: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::{Kind, Order, Stage, Work};
    use ftb_core::condition::Subject;
    use ftb_core::{EventId, PublisherId, Severity};

    /// What a publisher states of the fan of a host.
    fn stated(token: u64, truth: Truth, time_ns: u64) -> ConditionState {
        let publisher = PublisherId { account: 1, token };
        let source = EventId { publisher, seq: 1.into() };
        let subject = Subject::new("n1", "FAN 1", "FANFAIL");
        ConditionState::new(subject, truth, Severity::Error, source, time_ns)
    }

    /// It said that all was well, long before the fan failed: a log that merged brings that late.
    #[test]
    fn a_statement_that_the_table_rejects_changes_nothing() {
        const MINUTE_NS: u64 = 60_000_000_000;
        let text = "[[rule]]\nname = \"a\"\nthen = \"drain\"\nconditions = [\"FANFAIL\"]\n\
                    [[profile]]\nhosts = \"n1\"\nmode = \"drain\"\n";
        let config = Config::parse(text).expect("the rules are good");
        let mut replay = Replay::new(Act::new(config.rules, Saved::default()), 1);
        replay.take(Input::Table(Vec::new())).expect("it begins");
        for state in [stated(1, Truth::True, 10 * MINUTE_NS), stated(2, Truth::False, 1)] {
            replay.state(&state).expect("it ends");
        }
        replay.until(20 * MINUTE_NS).expect("it ends");
        assert_eq!(replay.actions, 1, "the host is drained");
    }

    #[test]
    fn the_secret_of_an_address_is_not_printed() {
        let order = Order {
            id: 1,
            rule: "page".to_owned(),
            kind: Kind::Webhook,
            group: "n1".to_owned(),
            causes: Vec::new(),
            hosts: vec!["n1".to_owned()],
            stage: Stage::Live,
            changes_hosts: false,
            is_persons: false,
            passes: false,
        };
        let work = Work { order, key: "7-1".to_owned(), conditions: Vec::new() };
        let url = "https://hooks.example.org/T0/SECRET".to_owned();
        let output = Output::Post { work, url, time_limit: Duration::from_secs(1) };
        assert_eq!(line_of(&output).as_deref(), Some("page posts to hooks.example.org: n1"));
    }
}
