//! What ftb-act and ftb-slurm do about a condition by their configuration on this host: `ftbctl
//! explain`. Not responsible for: the policies of jobs.

use crate::failure::Failure;
use ftb_act::act::Rules;
use ftb_core::Severity;
use ftb_core::catalog::{self, ConditionEntry};
use ftb_core::condition::RecommendedAction;
use std::path::{Path, PathBuf};

/// Where they read their configuration.
const ACT: &str = "/etc/ftb/act.toml";
const SLURM: &str = "/etc/ftb/slurm.toml";

/// A statement of a condition: its entry, the event space, and the worst severity.
pub(crate) type Stated = (&'static ConditionEntry, &'static str, Severity);

/// What a program of the site does about a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalReaction {
    /// Of ftb-act; empty for ftb-slurm, which has no rules.
    pub(crate) rule: String,
    pub(crate) action: String,
    pub(crate) when: String,
    /// It is only logged.
    pub(crate) is_observed: bool,
}

/// A configuration file that could be read, or why there is nothing to say.
struct Read<T> {
    file: PathBuf,
    found: Result<T, String>,
}

/// See the module.
pub(crate) struct LocalRules {
    act: Read<Rules>,
    slurm: Read<(ftb_slurm::rules::Rules, bool)>,
}

/// What one program does.
pub(crate) struct LocalPart<'a> {
    pub(crate) program: &'static str,
    pub(crate) file: &'a Path,
    /// Or why it is not known.
    pub(crate) reactions: Result<Vec<LocalReaction>, &'a str>,
}

impl LocalRules {
    /// Reads the files, or those of this host.
    ///
    /// # Errors
    /// A named file cannot be read.
    pub(crate) fn load(act: Option<&Path>, slurm: Option<&Path>) -> Result<Self, Failure> {
        let of_act = |path: &Path| ftb_act::config::Config::load(path).map(|config| config.rules);
        let of_slurm = |path: &Path| {
            let config = ftb_slurm::config::Config::load(path);
            config.map(|config| (config.rules, config.is_observer))
        };
        let (act, slurm) =
            (read(act, ACT, "--act", of_act)?, read(slurm, SLURM, "--slurm", of_slurm)?);
        Ok(Self { act, slurm })
    }

    /// What the programs do about these statements.
    pub(crate) fn about(&self, stated: &[Stated]) -> [LocalPart<'_>; 2] {
        let part = |program, file, reactions| LocalPart { program, file, reactions };
        let act = self.act.found.as_ref().map(|rules| of_act(rules, stated));
        let slurm = self.slurm.found.as_ref().map(|of| of_slurm(of, stated));
        [
            part("ftb-act", &self.act.file, act.map_err(String::as_str)),
            part("ftb-slurm", &self.slurm.file, slurm.map_err(String::as_str)),
        ]
    }
}

/// The statements by which a condition begins.
pub(crate) fn stated_of(entry: &'static ConditionEntry) -> Vec<Stated> {
    let by = entry.set_by.iter().filter_map(|name| catalog::event(name));
    let stated: Vec<Stated> = by.map(|event| (entry, event.space, event.worst())).collect();
    if stated.is_empty() { vec![(entry, "", Severity::Fatal)] } else { stated }
}

fn read<T, E: std::fmt::Display>(
    named: Option<&Path>,
    default: &str,
    option: &str,
    load: impl FnOnce(&Path) -> Result<T, E>,
) -> Result<Read<T>, Failure> {
    let file = named.map_or_else(|| PathBuf::from(default), Path::to_owned);
    let found = match (named, file.exists()) {
        (None, false) => {
            Err(format!("there is no {default} on this host; {option} FILE reads another"))
        }
        (None, true) => load(&file).map_err(|error| error.to_string()),
        (Some(_), _) => Ok(load(&file).map_err(Failure::usage)?),
    };
    Ok(Read { file, found })
}

fn of_act(rules: &Rules, stated: &[Stated]) -> Vec<LocalReaction> {
    let mut all: Vec<LocalReaction> = Vec::new();
    for (entry, space, worst) in stated {
        let action = entry.action.parse().unwrap_or(RecommendedAction::None);
        for reaction in ftb_act::act::reactions(rules, entry.key, space, action, *worst) {
            let ftb_act::act::Reaction { rule, action, when, is_observed } = reaction;
            if all.iter().all(|known| known.rule != rule) {
                all.push(LocalReaction { rule, action, when, is_observed });
            }
        }
    }
    all
}

fn of_slurm(
    (rules, is_observed): &(ftb_slurm::rules::Rules, bool),
    stated: &[Stated],
) -> Vec<LocalReaction> {
    let mut all = Vec::new();
    for (entry, _, worst) in stated {
        let Some((action, when)) = rules.reaction(entry.key, *worst) else { continue };
        let (rule, is_observed) = (String::new(), *is_observed);
        let reaction = LocalReaction { rule, action, when, is_observed };
        if !all.contains(&reaction) {
            all.push(reaction);
        }
    }
    all
}
