//! The two ways to run: the dry run, and the daemon with all its tasks.

use crate::config::Config;
use crate::publish::Outlet;
use crate::table;
use crate::watch::{Note, Plan, Report, Watcher};
use ftb_client::daemon::{self, Failure, Signals};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Most findings on their way out; when it is full, BMCs are polled later.
const REPORTS_MAX: usize = 1024;
/// How long the tasks may take to close their sessions at the end.
const STOP_DEADLINE: Duration = Duration::from_secs(2);

/// Reads every sensor once and prints the table.
///
/// # Errors
/// Bad input where a rule matches no sensor anywhere or nothing can be reached before somebody
/// changes something; failed where a BMC does not answer.
pub async fn once(config: &Config, is_json: bool) -> Result<(), Failure> {
    let tables = table::read_all(config).await;
    // Without a single sensor there is no table, only the reason.
    if tables.iter().any(|node| node.rows.is_ok()) {
        let text = if is_json { table::json_lines(&tables) } else { table::text(&tables) };
        seen_enough(std::io::stdout().lock().write_all(text.as_bytes()))?;
    }
    let errors = tables.iter().filter_map(|node| Some((node, node.rows.as_ref().err()?)));
    let mut errors: Vec<_> = errors.collect();
    // The worst one ends the program with its line; the log has the others.
    errors.sort_by_key(|(_, error)| error.is_permanent());
    let worst = errors.pop();
    for (node, error) in errors {
        tracing::error!(node = node.node, %error, "not read");
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

/// A reader of standard output that has gone is no failure; a disk that is full is one.
fn seen_enough(written: io::Result<()>) -> io::Result<()> {
    written.or_else(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })
}

fn unmatched(config: &Config, rule: usize) -> String {
    let described = config.rules.get(rule).map_or(String::new(), crate::rules::Rule::describe);
    format!(
        "the rule with {described} matches no sensor: correct it (ftb-ipmi --once lists the sensors) or set optional = true"
    )
}

/// Watches until a signal comes.
///
/// # Errors
/// Bad input where no BMC can be reached before somebody changes something, or a rule matches no
/// sensor of any BMC.
pub async fn watch(config: &Config, is_print: bool) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let outlet = Outlet::open(config, is_print)?;
    let (reports_in, mut reports) = mpsc::channel::<Report>(REPORTS_MAX);
    let (notes_in, mut notes) = mpsc::channel(config.nodes.len() * 2 + 1);
    let plan = Plan {
        interval: config.interval,
        sel_interval: config.sel_interval,
        restate: config.restate,
        state_dir: config.state_dir.clone(),
        rules: config.rules.clone().into(),
    };
    let mut tasks = tokio::task::JoinSet::new();
    for node in &config.nodes {
        let watcher =
            Watcher::new(node.clone(), plan.clone(), reports_in.clone(), notes_in.clone());
        tasks.spawn(watcher.run());
    }
    drop((reports_in, notes_in));
    daemon::notify_ready(&format!("watching {} BMCs", config.nodes.len()));
    let mut outlook = Outlook::new(config);
    let result = loop {
        tokio::select! {
            biased;
            signal = signals.stop() => {
                tracing::info!(signal, "stopping");
                break Ok(());
            }
            Some(note) = notes.recv() => {
                if let Some(failure) = outlook.take(note) {
                    break Err(failure);
                }
            }
            Some(report) = reports.recv() => {
                if let Err(error) = outlet.publish(&report) {
                    break seen_enough(Err(error)).map_err(Failure::from);
                }
            }
            () = daemon::feed_watchdog() => {}
        }
    };
    daemon::notify_stopping();
    drop(reports);
    let closing = async { while tasks.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(STOP_DEADLINE, closing).await;
    outlet.close().await;
    result
}

/// Whether it is worth going on.
struct Outlook<'a> {
    config: &'a Config,
    has_worked: bool,
    /// Nodes whose BMC cannot be reached before something is changed.
    hopeless: BTreeSet<Arc<str>>,
    /// Nodes whose records were compared with the rules.
    compared: BTreeSet<Arc<str>>,
    /// On how many of them each rule matches nothing.
    unmatched: Vec<usize>,
}

impl<'a> Outlook<'a> {
    fn new(config: &'a Config) -> Self {
        Self {
            config,
            has_worked: false,
            hopeless: BTreeSet::new(),
            compared: BTreeSet::new(),
            unmatched: vec![0; config.rules.len()],
        }
    }

    fn take(&mut self, note: Note) -> Option<Failure> {
        match note {
            Note::Working => self.has_worked = true,
            Note::Hopeless { node, message } => {
                tracing::error!(message, "a BMC cannot be reached before something is changed");
                self.hopeless.insert(node);
                if !self.has_worked && self.hopeless.len() >= self.config.nodes.len() {
                    return Some(Failure::bad_input(message));
                }
            }
            Note::Unmatched { node, rules } => {
                if !self.compared.insert(node) {
                    return None;
                }
                for rule in rules {
                    let count = self.unmatched.get_mut(rule)?;
                    *count += 1;
                    let message = unmatched(self.config, rule);
                    tracing::warn!(message, "a rule without sensors");
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

    fn hopeless(node: &str) -> Note {
        Note::Hopeless { node: node.into(), message: "the password is wrong".to_owned() }
    }

    fn unmatched(node: &str) -> Note {
        Note::Unmatched { node: node.into(), rules: vec![0] }
    }

    #[test]
    fn one_node_that_says_it_again_is_not_all_nodes() {
        let config = two_nodes();
        let mut outlook = Outlook::new(&config);
        for _ in 0..3 {
            assert!(outlook.take(hopeless("node1")).is_none());
            assert!(outlook.take(unmatched("node1")).is_none());
        }
        assert!(outlook.take(unmatched("node2")).is_some());
        assert!(outlook.take(hopeless("node2")).is_some());
    }

    #[test]
    fn where_one_bmc_works_the_others_are_tried_on() {
        let config = two_nodes();
        let mut outlook = Outlook::new(&config);
        assert!(outlook.take(Note::Working).is_none());
        assert!(outlook.take(hopeless("node1")).is_none());
        assert!(outlook.take(hopeless("node2")).is_none());
    }
}
