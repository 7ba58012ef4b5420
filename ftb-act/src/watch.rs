//! The shell: follows the table of conditions, saves what the core decides, then does it.

use crate::act::{Act, Input, Kind, Output, Row, Rule, Turn};
use crate::config::Config;
use crate::pages::{PageNews, PageNotice, Pages};
use crate::post::{Poster, server_of};
use crate::publish::until_confirmed;
use crate::store::Store;
use crate::{program, publish};
use ftb_client::daemon::{self, Failure};
use ftb_client::{
    Agent, Client, ConditionState, ConditionUpdate, Conditions, Proofs, Silence, Truth, now_ns,
};
use ftb_core::text::cut;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::sleep;

/// Changes of conditions that wait for the core. When it is full, the subscription waits.
const CHANGES_MAX: usize = 1_024;
/// Most inputs before what they lead to is saved, together.
const TOGETHER_MAX: usize = 1_024;
/// News of requests that wait for the shell. As many requests are sent at a time.
const NEWS_MAX: usize = 1_024;
/// The pause before the state is saved again after an error.
const SAVE_AGAIN: Duration = Duration::from_secs(1);
/// The pause before the agent is looked for again.
const AGENT_AGAIN: Duration = Duration::from_millis(100);
/// Most bytes of the text of a condition that are kept.
const MESSAGE_BYTES_MAX: usize = 256;
/// What became of an order that was saved too late.
const TOO_LATE: &str = "not done: the state could not be saved in time";
/// How long the core may sleep: clocks may be set.
const SLEEP_MAX: Duration = Duration::from_secs(5);

/// Runs until `stop` resolves.
///
/// # Errors
/// The state cannot be opened, or the agent refuses the subscription.
pub async fn run(
    config: Config,
    client: &Client,
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let (store, saved) = Store::open(&config.state, now_ns())?;
    let poster = Poster::new(config.ca.as_deref()).map_err(Failure::bad_input)?;
    let (sender, changes) = mpsc::channel(CHANGES_MAX);
    let followed = client.clone();
    let mut follower = tokio::spawn(async move {
        Conditions::follow(&followed, "condition=*", sender, input_of_update).await
    });
    let (news, of_pages) = mpsc::channel(NEWS_MAX);
    let mut shell = Shell {
        pages: Pages::default(),
        posting: posting_rules(&config.rules.rules),
        news,
        of_pages,
        states_conditions: config.rules.states_conditions_of_others(),
        act: Act::new(config.rules, saved),
        store,
        poster,
        client: client.clone(),
        programs: JoinSet::new(),
        actions: JoinSet::new(),
        stop: watch::Sender::new(false),
        changes,
    };
    tokio::pin!(stop);
    let ended = tokio::select! {
        () = &mut stop => Ok(()),
        () = daemon::feed_watchdog() => Ok(()),
        ended = &mut follower => Err(match ended {
            Ok(why) => Failure::from(why),
            Err(error) => Failure::from(error),
        }),
        () = shell.work() => Ok(()),
    };
    follower.abort();
    // Programs get SIGTERM, and time to end; the rest ends with its task. What ran is reported by
    // the next ftb-act.
    shell.actions.abort_all();
    shell.stop.send_replace(true);
    while shell.programs.join_next().await.is_some() {}
    ended
}

/// The names of the rules that send requests.
fn posting_rules(rules: &[Rule]) -> BTreeSet<String> {
    let rules = rules.iter().filter(|rule| rule.then.kind() == Kind::Webhook);
    rules.map(|rule| rule.name.clone()).collect()
}

fn input_of_update(update: ConditionUpdate<'_>) -> Input {
    match update {
        ConditionUpdate::Table(conditions) => Input::Table(conditions.states().map(row).collect()),
        ConditionUpdate::Row(state) => Input::Row(Box::new(row(state))),
    }
}

/// A row as the core needs it.
pub(crate) fn row(state: &ConditionState) -> Row {
    Row {
        subject: state.subject.clone(),
        truth: state.truth,
        severity: state.severity,
        action: state.action,
        onset_ns: state.onset_ns,
        space: state.event.split(' ').next().unwrap_or_default().to_owned(),
        message: cut(&state.message, MESSAGE_BYTES_MAX).to_owned(),
        silence: Silence::of(state),
    }
}

/// Whether what ftb-act states of drained hosts counts at the agents.
///
/// # Errors
/// It does not: what to do.
pub fn check_monitors(agent: &Agent) -> Result<(), String> {
    match agent.is_own_host_only {
        true => Err(format!(
            "no drain takes effect: agents count no OUT_OF_SERVICE that {} states of other hosts. \
             Name it in `monitors` of agent.toml on all hosts, and reload the agents",
            agent.host
        )),
        false => Ok(()),
    }
}

struct Shell {
    /// Some rule states conditions of other hosts.
    states_conditions: bool,
    act: Act,
    store: Store,
    poster: Poster,
    client: Client,
    /// Programs that run: each gives the input that follows.
    programs: JoinSet<Input>,
    /// Requests and events: the same.
    actions: JoinSet<Input>,
    /// Ends the programs.
    stop: watch::Sender<bool>,
    changes: mpsc::Receiver<Input>,
    /// What is stated about requests.
    pages: Pages,
    /// Rules that send some.
    posting: BTreeSet<String>,
    /// What becomes of them, with their rules and orders.
    news: mpsc::Sender<(String, u64, PageNews)>,
    of_pages: mpsc::Receiver<(String, u64, PageNews)>,
}

impl Shell {
    async fn work(&mut self) {
        // Nothing counts before the table is known.
        let Some(table) = self.changes.recv().await else { return };
        let agent = self.agent().await;
        if let Err(problem) = check_monitors(&agent)
            && self.states_conditions
        {
            tracing::error!("{problem}");
        }
        self.act.set_host(&agent.host);
        self.begin_pages(&agent.host, &table);
        Proofs::new(&self.client).warn_without("have every rule act on every host");
        let turn = self.act.handle(now_ns(), table);
        self.execute(turn).await;
        let published = publish::watching().map(|event| self.client.publish(event).map(drop));
        if let Ok(Err(error)) = published {
            tracing::error!(%error, "nothing says that ftb-act watches");
        }
        daemon::notify_ready("watching conditions");
        loop {
            let Some(input) = self.next().await else { return };
            for notice in self.pages.on_tick(now_ns()) {
                self.state_pages(&notice);
            }
            let mut turn = self.take(input);
            for _ in 1..TOGETHER_MAX {
                let Ok(input) = self.changes.try_recv() else { break };
                turn.extend(self.take(input));
            }
            self.execute(turn).await;
        }
    }

    fn take(&mut self, input: Input) -> Turn {
        match &input {
            Input::Row(row) => self.pages.on_row(&row.subject, row.truth, &row.space),
            Input::Table(rows) => {
                for row in rows {
                    self.pages.on_row(&row.subject, row.truth, &row.space);
                }
            }
            Input::Ended { .. } | Input::Confirmed(_) | Input::Tick => {}
        }
        self.act.handle(now_ns(), input)
    }

    /// Goes on with what a former ftb-act has stated about its requests.
    fn begin_pages(&mut self, host: &str, table: &Input) {
        let Input::Table(rows) = table else { return };
        let rules: BTreeSet<&str> = self.posting.iter().map(String::as_str).collect();
        let (pages, notices) = Pages::new(host, rows, &rules);
        self.pages = pages;
        for notice in notices {
            self.state_pages(&notice);
        }
    }

    fn state_pages(&self, notice: &PageNotice) {
        let published = publish::of_pages(notice).map(|event| self.client.publish(event).map(drop));
        if let Ok(Err(error)) = published {
            tracing::error!(%error, ?notice, "an event is not published");
        }
    }

    /// The agent, which has sent the table; it may be away just now.
    async fn agent(&self) -> Agent {
        loop {
            match self.client.agent() {
                Some(agent) => return agent,
                None => sleep(AGENT_AGAIN).await,
            }
        }
    }

    async fn next(&mut self) -> Option<Input> {
        let wait = self.act.deadline_ns().map_or(SLEEP_MAX, |at_ns| {
            Duration::from_nanos(at_ns.saturating_sub(now_ns())).min(SLEEP_MAX)
        });
        tokio::select! {
            () = sleep(wait) => Some(Input::Tick),
            Some(ended) = self.actions.join_next() => Some(input_of(ended)),
            Some(ended) = self.programs.join_next() => Some(input_of(ended)),
            Some((rule, order, news)) = self.of_pages.recv() => {
                if let Some(notice) = self.pages.on_news(now_ns(), (&rule, order), news) {
                    if notice.is_failing {
                        tracing::error!(rule, "no web server takes its requests: {}", notice.text);
                    }
                    self.state_pages(&notice);
                }
                Some(Input::Tick)
            }
            change = self.changes.recv() => change,
        }
    }

    /// Saves first: what cannot be saved is not done, however long that takes. Programs and
    /// requests that had to wait for it are not done at all: their causes may be over by then.
    async fn execute(&mut self, turn: Turn) {
        let mut is_late = false;
        while let Err(error) = self.store.append(&turn.deltas) {
            if !std::mem::replace(&mut is_late, true) {
                tracing::error!(%error, "the state cannot be saved: nothing is done until it is");
            }
            sleep(SAVE_AGAIN).await;
        }
        for output in turn.outputs {
            match output {
                Output::Run { work, .. } | Output::Post { work, .. } if is_late => {
                    let news = self.news.clone();
                    self.actions.spawn(async move {
                        if work.order.kind == Kind::Webhook {
                            let why = PageNews::GivenUp(TOO_LATE.to_owned());
                            let _ = news.send((work.order.rule, work.order.id, why)).await;
                        }
                        let text = TOO_LATE.to_owned();
                        Input::Ended { id: work.order.id, is_done: false, text }
                    });
                }
                output => self.begin(output),
            }
        }
    }

    fn begin(&mut self, output: Output) {
        match output {
            Output::Log(line) => tracing::warn!("{line}"),
            Output::Run { work, program, time_limit } => {
                tracing::warn!(rule = work.order.rule, order = work.key, "runs {}", program[0]);
                let stop = self.stop.subscribe();
                self.programs.spawn(async move {
                    let ran = program::run(&work, &program, time_limit, stop).await;
                    let (is_done, text) = ran;
                    Input::Ended { id: work.order.id, is_done, text }
                });
            }
            Output::Post { work, url, time_limit } => {
                let server = server_of(&url);
                tracing::warn!(rule = work.order.rule, order = work.key, "posts to {server}");
                let (poster, news) = (self.poster.clone(), self.news.clone());
                self.actions.spawn(async move {
                    let body = publish::json_of(&work);
                    let (rule, id) = (&work.order.rule, work.order.id);
                    // Where there is no room, it is not late, but it may be given up.
                    let late = |why| drop(news.try_send((rule.clone(), id, PageNews::Late(why))));
                    let post = poster.post(&url, &work.key, &body, time_limit, late);
                    let (is_done, text) = post.await;
                    let said = match is_done {
                        true => PageNews::Taken,
                        false => PageNews::GivenUp(text.clone()),
                    };
                    let _ = news.send((rule.clone(), id, said)).await;
                    Input::Ended { id, is_done, text }
                });
            }
            Output::Publish { id, notice } => {
                let client = self.client.clone();
                self.actions.spawn(async move {
                    until_confirmed(client, *notice).await;
                    Input::Confirmed(id)
                });
            }
        }
    }
}

fn input_of(ended: Result<Input, JoinError>) -> Input {
    ended.unwrap_or_else(|error| {
        tracing::error!(%error, "an action has ended by itself");
        Input::Tick
    })
}

/// Closes the breaker of each ftb-act of the cluster that has opened it. Gives how many.
///
/// # Errors
/// The agent does not answer, or refuses it.
pub async fn resume(client: &Client, deadline: Duration) -> Result<usize, Failure> {
    let closed = async {
        let filter = format!("condition={}", crate::act::BREAKER_OPEN);
        let mut conditions = Conditions::open(client, &filter).await?;
        conditions.load().await?;
        let open = conditions.states().filter(|state| state.truth == Truth::True);
        let hosts: Vec<String> = open.map(|state| state.subject.host().to_owned()).collect();
        for host in &hosts {
            client.publish(publish::resume(host)?)?.confirmed().await?;
        }
        Ok::<usize, Failure>(hosts.len())
    };
    let late = |_| Failure::no_answer(format!("no answer within {deadline:?}"));
    tokio::time::timeout(deadline, closed).await.map_err(late)?
}
