//! The shell of the bridge: follows the conditions, reads Slurm, carries out orders, publishes.

use crate::bridge::{Bridge, Notice, Order, Statement};
use crate::config::Config;
use crate::slurm::Slurm;
use ftb_client::daemon::{self, Failure};
use ftb_client::{Client, ConditionState, ConditionUpdate, Conditions, Event, EventBuilder};
use ftb_client::{NameError, Proofs, SILENCED, Severity, Silence, event, now_ns};
use ftb_core::catalog::names;
use ftb_core::condition::Subject;
use ftb_core::hostlist;
use ftb_core::text::cut;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

/// The event space of the bridge.
pub const SPACE: &str = "ftb.slurm";
/// Changes of conditions that wait for the bridge. When it is full, the subscription waits.
const CHANGES_MAX: usize = 1_024;
/// Most calls for one reading of the conditions; the rest follows after `poll`.
const CALLS_MAX: usize = 64;
/// Most bytes of a tag: what is longer is cut.
const TAG_BYTES_MAX: usize = 256;

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
    let mut shell = Shell {
        bridge: Bridge::new(config.rules.clone(), user),
        silences: BTreeMap::new(),
        slurm,
        client: client.clone(),
        is_observer: config.is_observer,
        problem: None,
    };
    let (sender, mut changes) = mpsc::channel(CHANGES_MAX);
    let followed = client.clone();
    let mut follower = tokio::spawn(async move {
        Conditions::follow(&followed, "condition=*", sender, change_of).await
    });
    let work = async {
        shell.await_table(&mut changes).await;
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
    /// Silences that have not been ended by hand.
    silences: BTreeMap<Subject, Silence>,
    slurm: Slurm,
    client: Client,
    is_observer: bool,
    /// The last problem with Slurm: it is logged once.
    problem: Option<String>,
}

impl Shell {
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
        self.bridge.on_statement(row.subject, row.statement);
    }

    /// Reads the nodes and calls Slurm until there is no order.
    async fn pass(&mut self) {
        for _ in 0..CALLS_MAX {
            let nodes = match self.slurm.nodes().await {
                Ok(nodes) => nodes,
                Err(error) => return self.failed(error.to_string()),
            };
            let now_ns = now_ns();
            let active = self.silences.values().filter(|silence| silence.is_active(now_ns));
            self.bridge.on_silences(active.cloned().collect());
            let decision = self.bridge.on_nodes(nodes);
            for notice in decision.notices {
                self.publish(&notice);
            }
            let Some(order) = decision.order else { break };
            log(&order, self.is_observer);
            if self.is_observer {
                return;
            }
            match self.slurm.execute(&order).await {
                Ok(()) => self.bridge.on_obeyed(order),
                Err(error) => return self.failed(error.to_string()),
            }
        }
        if self.problem.take().is_some() {
            tracing::info!("Slurm answers again");
        }
    }

    fn failed(&mut self, problem: String) {
        if self.problem.as_ref() != Some(&problem) {
            tracing::error!("{problem}; tried again later");
        }
        self.problem = Some(problem);
    }

    fn publish(&self, notice: &Notice) {
        let publish = |event: Event| {
            let hosts = String::from_utf8_lossy(&event.payload).into_owned();
            tracing::info!(event = %event.name, %hosts, "publish");
            self.client.publish(event).map(drop)
        };
        let published = event_of(notice).map(publish);
        match published {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "an event is not published"),
            Err(error) => tracing::warn!(%error, "an event has no name"),
        }
    }
}

fn log(order: &Order, is_observer: bool) {
    let hosts = |hosts: &[String]| hostlist::fold(hosts.iter().map(String::as_str));
    let prefix = if is_observer { "would " } else { "" };
    match order {
        Order::Drain { hosts: all, reason } => {
            tracing::warn!(reason, "{prefix}drain {}", hosts(all));
        }
        Order::Undrain { hosts: all } => tracing::info!("{prefix}resume {}", hosts(all)),
    }
}

/// The event of a change: the payload is the host list.
fn event_of(notice: &Notice) -> Result<Event, NameError> {
    let tag = |builder: EventBuilder, key: &str, text: &str| match text {
        "" => builder,
        text => builder.tag(key, cut(text, TAG_BYTES_MAX)),
    };
    let (name, severity, hosts) = match notice {
        Notice::Drained { hosts, .. } => (names::FTB_SLURM_DRAINED, Severity::Warning, hosts),
        Notice::Resumed { hosts } => (names::FTB_SLURM_RESUMED, Severity::Info, hosts),
        Notice::Down { hosts, .. } => (names::FTB_SLURM_DOWN, Severity::Warning, hosts),
        Notice::Up { hosts } => (names::FTB_SLURM_UP, Severity::Info, hosts),
        Notice::Limited { hosts } => (names::FTB_SLURM_LIMITED, Severity::Error, hosts),
    };
    let folded = hostlist::fold(hosts.iter().map(String::as_str));
    let builder = event(SPACE, name)?.severity(severity).payload(folded);
    let builder = match notice {
        Notice::Drained { reason, user, .. } => tag(tag(builder, "reason", reason), "user", user),
        Notice::Down { reason, .. } => tag(builder, "reason", reason),
        _ => builder,
    };
    Ok(builder.build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_folded_hosts_reason_and_user() {
        let hosts = vec!["node01".to_owned(), "node02".to_owned()];
        let (reason, user) = ("\u{e9}".repeat(200), "ann".to_owned());
        let event = event_of(&Notice::Drained { hosts, reason, user }).expect("it has a name");
        assert_eq!(&event.payload[..], b"node[01-02]");
        assert_eq!((event.name.as_str(), event.tag("user")), ("FTB_SLURM_DRAINED", Some("ann")));
        assert_eq!(event.tag("reason").map(str::len), Some(TAG_BYTES_MAX));
    }
}
