//! The shell of the bridge: follows the conditions, reads Slurm, carries out orders, publishes.

use crate::bridge::{Bridge, Order};
use crate::config::Config;
use crate::notices::{event_of, event_of_service};
use crate::rules::Statement;
use crate::service::{COMPONENT, Refusals, Service, ServiceNotice};
use crate::slurm::{Slurm, SlurmError};
use crate::store::Store;
use ftb_client::daemon::{self, Failure};
use ftb_client::{Client, ConditionState, ConditionUpdate, Conditions, Event, NameError};
use ftb_client::{Proofs, SILENCED, Silence, now_ns};
use ftb_core::condition::{Subject, Truth};
use ftb_core::hostlist;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// Changes of conditions that wait for the bridge. When it is full, the subscription waits.
const CHANGES_MAX: usize = 1_024;
/// Most calls for one reading of the conditions; the rest follows after `poll`.
const CALLS_MAX: usize = 64;
/// The pause before the agent is looked for again.
const AGENT_AGAIN: Duration = Duration::from_millis(100);

/// A row of the table of conditions.
struct Row {
    subject: Subject,
    statement: Statement,
    silence: Option<Silence>,
}

/// What the table of conditions says.
enum Change {
    Table(Vec<Row>),
    One(Box<Row>),
}

/// Runs until `stop` resolves.
///
/// # Errors
/// The agent refuses the subscription.
pub async fn run(
    config: Config,
    client: &Client,
    stop: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid())?;
    let user = user.ok_or_else(|| Failure::failed("the user of this process has no name"))?.name;
    let slurm = Slurm::new(config.scontrol.clone(), config.sinfo.clone());
    let store = Store::open(&config.state).unwrap_or_else(|problem| {
        tracing::error!("{problem}; nodes that people have resumed may be drained again");
        Store::empty(&config.state)
    });
    let mut bridge = Bridge::new(config.rules.clone(), user);
    bridge.set_accepted(store.saved().clone());
    let mut shell = Shell {
        bridge,
        store,
        unsaved: None,
        silences: BTreeMap::new(),
        slurm,
        client: client.clone(),
        is_observer: config.is_observer,
        observed: Vec::new(),
        problem: None,
        service: Service::new(|_| false),
        of_service: BTreeSet::new(),
    };
    let (sender, mut changes) = mpsc::channel(CHANGES_MAX);
    let followed = client.clone();
    let mut follower = tokio::spawn(async move {
        Conditions::follow(&followed, "condition=*", sender, change_of).await
    });
    let work = async {
        shell.await_table(&mut changes).await;
        shell.begin().await;
        Proofs::new(&shell.client).warn_without("drain every node");
        daemon::notify_ready("watching conditions and nodes");
        loop {
            shell.pass().await;
            shell.next_change(&mut changes, config.poll, config.settle).await;
        }
    };
    let ended = tokio::select! {
        () = stop => Ok(()),
        () = daemon::feed_watchdog() => Ok(()),
        ended = &mut follower => Err(match ended {
            Ok(why) => Failure::from(why),
            Err(error) => Failure::from(error),
        }),
        () = work => Ok(()),
    };
    follower.abort();
    ended
}

fn change_of(update: ConditionUpdate<'_>) -> Change {
    match update {
        ConditionUpdate::Table(all) => Change::Table(all.states().map(stated).collect()),
        ConditionUpdate::Row(state) => Change::One(Box::new(stated(state))),
    }
}

fn stated(state: &ConditionState) -> Row {
    let (truth, severity, onset_ns) = (state.truth, state.severity, state.onset_ns);
    let statement = Statement { truth, severity, onset_ns };
    Row { subject: state.subject.clone(), statement, silence: Silence::of(state) }
}

struct Shell {
    bridge: Bridge,
    store: Store,
    /// Why the store has not what it should: it is logged once.
    unsaved: Option<String>,
    /// Silences that have not been ended by hand.
    silences: BTreeMap<Subject, Silence>,
    slurm: Slurm,
    client: Client,
    is_observer: bool,
    /// What would be done, as it was logged.
    observed: Vec<Order>,
    /// The last problem with Slurm: it is logged once.
    problem: Option<String>,
    service: Service,
    /// Conditions of services of this kind that hold or are unknown, by host and key.
    of_service: BTreeSet<(String, String)>,
}

impl Shell {
    /// What a bridge on this host has stated of itself before is this one's.
    async fn begin(&mut self) {
        let host = loop {
            match self.client.agent() {
                Some(agent) => break agent.host,
                // It has sent the table, and may be away just now.
                None => sleep(AGENT_AGAIN).await,
            }
        };
        let host = host.to_ascii_lowercase();
        let holds = |key: &str| self.of_service.contains(&(host.clone(), key.to_owned()));
        self.service = Service::new(holds);
    }

    async fn await_table(&mut self, changes: &mut mpsc::Receiver<Change>) {
        while let Some(change) = changes.recv().await {
            let is_table = matches!(change, Change::Table(_));
            self.apply(change);
            if is_table {
                return;
            }
        }
    }

    /// Waits for a change, and for those that follow it at once; or for `poll`.
    async fn next_change(
        &mut self,
        changes: &mut mpsc::Receiver<Change>,
        poll: Duration,
        settle: Duration,
    ) {
        let Ok(Some(change)) = timeout(poll, changes.recv()).await else { return };
        self.apply(change);
        let settled = sleep(settle);
        tokio::pin!(settled);
        loop {
            tokio::select! {
                () = &mut settled => return,
                change = changes.recv() => match change {
                    Some(change) => self.apply(change),
                    None => return,
                },
            }
        }
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Table(table) => {
                self.silences.clear();
                self.bridge.on_table([]);
                table.into_iter().for_each(|row| self.apply_row(row));
            }
            Change::One(row) => self.apply_row(*row),
        }
    }

    fn apply_row(&mut self, row: Row) {
        if row.subject.key() == SILENCED {
            match row.silence {
                Some(silence) => self.silences.insert(row.subject.clone(), silence),
                None => self.silences.remove(&row.subject),
            };
        }
        if row.subject.component() == COMPONENT {
            let name = (row.subject.host().to_owned(), row.subject.key().to_owned());
            match row.statement.truth {
                Truth::False => self.of_service.remove(&name),
                Truth::True | Truth::Unknown => self.of_service.insert(name),
            };
        }
        self.bridge.on_statement(row.subject, row.statement);
    }

    /// Reads the nodes and calls Slurm until there is no order.
    async fn pass(&mut self) {
        self.bridge.on_pass();
        let mut refusals = Refusals::default();
        for _ in 0..CALLS_MAX {
            match self.step(&mut refusals).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return self.failed(&error),
            }
        }
        if let Some(problem) = Some(&refusals.problem).filter(|text| !text.is_empty()) {
            self.log_problem(problem.clone());
        } else if self.problem.take().is_some() {
            tracing::info!("Slurm answers again");
        }
        let notice = self.service.on_pass(refusals);
        self.publish_service(notice);
    }

    /// One reading, and the order that follows; false: there is none.
    ///
    /// # Errors
    /// Slurm cannot be read.
    async fn step(&mut self, refusals: &mut Refusals) -> Result<bool, SlurmError> {
        let nodes = self.slurm.nodes().await?;
        let notices = self.service.on_read();
        self.publish_service(notices);
        let now_ns = now_ns();
        let active = self.silences.values().filter(|silence| silence.is_active(now_ns));
        self.bridge.on_silences(active.cloned().collect());
        let seen = self.is_observer.then(|| nodes.clone());
        let decision = self.bridge.on_nodes(nodes);
        self.save();
        for notice in &decision.notices {
            self.publish(event_of(notice));
        }
        if let Some(nodes) = seen {
            self.observe(self.bridge.plan(nodes));
            return Ok(false);
        }
        let Some(order) = decision.order else { return Ok(false) };
        let again = self.slurm.some_nodes(order.hosts()).await?;
        let all: BTreeSet<String> = order.hosts().iter().cloned().collect();
        let order = self.bridge.recheck(order, again);
        let left: BTreeSet<&String> = order.iter().flat_map(Order::hosts).collect();
        let changed = all.iter().filter(|host| !left.contains(host)).map(String::as_str);
        let changed = hostlist::fold(changed);
        if !changed.is_empty() {
            tracing::info!("changed meanwhile, so left alone: {changed}");
        }
        let Some(order) = order else { return Ok(true) };
        log(&order, "");
        match self.slurm.execute(&order).await {
            Ok(()) => self.bridge.on_obeyed(order),
            Err(error @ SlurmError::Failed(..)) => {
                self.bridge.on_refused(&order);
                if let [host] = order.hosts() {
                    refusals.add(host, order.word(), &error.to_string());
                }
            }
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// What people have resumed outlives this process. If it cannot be saved, the bridge goes on.
    fn save(&mut self) {
        let unsaved = self.store.save(self.bridge.accepted()).err();
        if let Some(problem) =
            unsaved.as_ref().filter(|problem| self.unsaved.as_ref() != Some(*problem))
        {
            tracing::error!(
                "{problem}; after a restart, nodes that people resumed are drained again"
            );
        }
        self.unsaved = unsaved;
    }

    /// Logs what would be done, as far as it was not logged before.
    fn observe(&mut self, plan: Vec<Order>) {
        for order in plan.iter().filter(|order| !self.observed.contains(order)) {
            log(order, "would ");
        }
        if plan.is_empty() && !self.observed.is_empty() {
            tracing::info!("would do nothing");
        }
        self.observed = plan;
    }

    fn failed(&mut self, error: &SlurmError) {
        let problem = error.to_string();
        let notice = self.service.on_failure(&problem);
        self.publish_service(notice);
        self.log_problem(problem);
    }

    fn log_problem(&mut self, problem: String) {
        if self.problem.as_ref() != Some(&problem) {
            tracing::error!("{problem}; tried again later");
        }
        self.problem = Some(problem);
    }

    fn publish_service(&self, notices: impl IntoIterator<Item = ServiceNotice>) {
        for notice in notices {
            self.publish(event_of_service(&notice));
        }
    }

    fn publish(&self, event: Result<Event, NameError>) {
        let publish = |event: Event| {
            let text = String::from_utf8_lossy(&event.payload).into_owned();
            tracing::info!(event = %event.name, hosts = %text, "publish");
            self.client.publish(event).map(drop)
        };
        match event.map(publish) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "an event is not published"),
            Err(error) => tracing::warn!(%error, "an event has no name"),
        }
    }
}

fn log(order: &Order, prefix: &str) {
    let hosts = hostlist::fold(order.hosts().iter().map(String::as_str));
    match order {
        Order::Drain { reason, .. } => tracing::warn!(reason, "{prefix}drain {hosts}"),
        Order::Undrain { .. } => tracing::info!("{prefix}resume {hosts}"),
    }
}
