//! The dry run, and the daemon with its tasks.

use crate::config::Config;
use crate::publish::Outlet;
use crate::table;
use crate::watch::{Plan, Progress, Report, Watcher};
use ftb_client::daemon::{self, Failure, Signals};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Most unpublished findings. When full, tasks wait and poll their BMCs later.
const REPORTS_MAX: usize = 1024;
/// How long the end waits until the tasks have closed their sessions.
const STOP_DEADLINE: Duration = Duration::from_secs(2);

/// Reads every sensor once and prints the table.
///
/// # Errors
/// Bad input if a rule matches no sensor of any node, or a BMC needs a change by an administrator.
/// Failed if a BMC does not answer.
pub async fn once(config: &Config, is_json: bool) -> Result<(), Failure> {
    let tables = table::read_all(config).await;
    // Without any sensor, print the reason instead of a table.
    if tables.iter().any(|node| node.rows.is_ok()) {
        let text = if is_json { table::json_lines(&tables) } else { table::text(&tables) };
        ignore_closed_pipe(std::io::stdout().lock().write_all(text.as_bytes()))?;
    }
    let errors = tables.iter().filter_map(|node| Some((node, node.rows.as_ref().err()?)));
    let mut errors: Vec<_> = errors.collect();
    // The worst error is the exit message; the log has the others.
    errors.sort_by_key(|(_, error)| error.is_permanent());
    let worst = errors.pop();
    for (node, error) in errors {
        tracing::error!(node = node.node, %error, "the sensors are not readable");
    }
    if let Some((node, error)) = worst {
        let line = format!("node {}: {error}", node.node);
        return Err(match error.is_permanent() {
            true => Failure::bad_input(line),
            false => Failure::failed(line),
        });
    }
    let is_everywhere = |rule: &usize| tables.iter().all(|node| node.unmatched.contains(rule));
    match (0..config.rules.len()).find(is_everywhere) {
        Some(rule) => Err(Failure::bad_input(unmatched(config, rule))),
        None => Ok(()),
    }
}

/// Ignores a closed pipe: the reader of standard output has ended.
fn ignore_closed_pipe(written: io::Result<()>) -> io::Result<()> {
    written.or_else(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })
}

fn unmatched(config: &Config, rule: usize) -> String {
    let described = config.rules.get(rule).map_or(String::new(), crate::rules::Rule::describe);
    format!(
        "the rule with {described} matches no sensor: correct it (ftb-ipmi --once lists the \
         sensors) or set optional = true"
    )
}

/// Watches until a signal arrives.
///
/// # Errors
/// Bad input if every BMC needs a change by an administrator, or a rule matches no sensor of any
/// BMC.
pub async fn watch(config: &Config, is_print: bool) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let outlet = Outlet::open(config, is_print)?;
    let (reports_in, mut reports) = mpsc::channel::<Report>(REPORTS_MAX);
    let (progress_in, mut progress) = mpsc::channel(config.nodes.len() * 2 + 1);
    let plan = Plan {
        interval: config.interval,
        sel_interval: config.sel_interval,
        restate: config.restate,
        state_dir: config.state_dir.clone(),
        rules: config.rules.clone().into(),
        has_table: !is_print,
    };
    let mut tasks = tokio::task::JoinSet::new();
    let (mut missed, mut inboxes) = (BTreeMap::new(), BTreeMap::new());
    for node in &config.nodes {
        let watcher =
            Watcher::new(node.clone(), plan.clone(), reports_in.clone(), progress_in.clone());
        missed.insert(node.node.to_ascii_lowercase(), watcher.missed());
        inboxes.insert(node.node.to_ascii_lowercase(), watcher.news());
        tasks.spawn(watcher.run());
    }
    drop((reports_in, progress_in));
    let listeners =
        [tokio::spawn(outlet.follow_missed(missed)), tokio::spawn(outlet.follow_table(inboxes))];
    daemon::notify_ready(&format!("watching {} BMCs", config.nodes.len()));
    let mut startup = Startup::new(config);
    let result = loop {
        tokio::select! {
            biased;
            signal = signals.stop() => {
                tracing::info!(signal, "stopping");
                break Ok(());
            }
            Some(progress) = progress.recv() => {
                if let Some(failure) = startup.on_progress(progress) {
                    break Err(failure);
                }
            }
            Some(report) = reports.recv() => {
                if let Err(error) = outlet.publish(&report) {
                    break ignore_closed_pipe(Err(error)).map_err(Failure::from);
                }
            }
            () = daemon::feed_watchdog() => {}
        }
    };
    daemon::notify_stopping();
    listeners.iter().for_each(tokio::task::JoinHandle::abort);
    // The bookmark of a log may have passed the entries of these findings.
    reports.close();
    drain(&mut reports, |report| outlet.publish(report)).await;
    let closing = async { while tasks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(STOP_DEADLINE, closing).await;
    outlet.close().await;
    result
}

/// Publishes the findings in a closed queue, until one fails.
async fn drain(
    reports: &mut mpsc::Receiver<Report>,
    mut publish: impl FnMut(&Report) -> io::Result<()>,
) {
    while let Some(report) = reports.recv().await {
        if let Err(error) = publish(&report).or_else(|error| ignore_closed_pipe(Err(error))) {
            return tracing::warn!(%error, "the last findings are not published");
        }
    }
}

/// The start of all tasks: decides whether the daemon must end with an error.
struct Startup<'a> {
    config: &'a Config,
    has_worked: bool,
    /// Nodes whose BMC needs a change by an administrator.
    unreachable: BTreeSet<Arc<str>>,
    /// Nodes whose sensors were compared with the rules.
    compared: BTreeSet<Arc<str>>,
    /// For each rule: the number of nodes on which it matches no sensor.
    unmatched: Vec<usize>,
}

impl<'a> Startup<'a> {
    fn new(config: &'a Config) -> Self {
        Self {
            config,
            has_worked: false,
            unreachable: BTreeSet::new(),
            compared: BTreeSet::new(),
            unmatched: vec![0; config.rules.len()],
        }
    }

    fn on_progress(&mut self, progress: Progress) -> Option<Failure> {
        match progress {
            Progress::Working => self.has_worked = true,
            Progress::Unreachable { node, message } => {
                tracing::error!(message, "a BMC is unreachable until a change by an administrator");
                self.unreachable.insert(node);
                if !self.has_worked && self.unreachable.len() >= self.config.nodes.len() {
                    return Some(Failure::bad_input(message));
                }
            }
            Progress::Unmatched { node, rules } => {
                if !self.compared.insert(node) {
                    return None;
                }
                for rule in rules {
                    let count = self.unmatched.get_mut(rule)?;
                    *count += 1;
                    let message = unmatched(self.config, rule);
                    tracing::warn!(message, "a rule matches no sensor");
                    if *count >= self.config.nodes.len() {
                        return Some(Failure::bad_input(message));
                    }
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::TargetFile;
    use crate::monitor::{Finding, FindingKind};
    use crate::rules::Rule;

    fn two_nodes() -> Config {
        let target = TargetFile {
            bmc: "bmc[1-2]".to_owned(),
            node: Some("node[1-2]".to_owned()),
            ..TargetFile::default()
        };
        let mut config = Config::of_target(&target).unwrap();
        config.rules = vec![Rule { name: Some("x".to_owned()), ..Rule::default() }];
        config
    }

    fn unreachable(node: &str) -> Progress {
        Progress::Unreachable { node: node.into(), message: "the password is wrong".to_owned() }
    }

    fn unmatched(node: &str) -> Progress {
        Progress::Unmatched { node: node.into(), rules: vec![0] }
    }

    #[test]
    fn repeated_reports_of_one_node_do_not_count_for_all_nodes() {
        let config = two_nodes();
        let mut startup = Startup::new(&config);
        for _ in 0..3 {
            assert!(startup.on_progress(unreachable("node1")).is_none());
            assert!(startup.on_progress(unmatched("node1")).is_none());
        }
        assert!(startup.on_progress(unmatched("node2")).is_some());
        assert!(startup.on_progress(unreachable("node2")).is_some());
    }

    #[test]
    fn the_daemon_goes_on_if_one_bmc_works() {
        let config = two_nodes();
        let mut startup = Startup::new(&config);
        assert!(startup.on_progress(Progress::Working).is_none());
        assert!(startup.on_progress(unreachable("node1")).is_none());
        assert!(startup.on_progress(unreachable("node2")).is_none());
    }

    #[tokio::test]
    async fn findings_that_wait_at_the_end_are_published() {
        let (reports_in, mut reports) = mpsc::channel(4);
        for time_ns in 0..3 {
            let finding = Finding::node(FindingKind::MemErr, None);
            let (node, bmc) = ("n1".into(), "bmc".into());
            reports_in.send(Report { node, bmc, time_ns, finding, kept: None }).await.unwrap();
        }
        reports.close();
        let mut published = Vec::new();
        drain(&mut reports, |report| {
            published.push(report.time_ns);
            Ok(())
        })
        .await;
        assert_eq!(published, [0, 1, 2]);
    }
}
