//! `command`: the user's hooks, for SCR, DMTCP and similar tools. The words of [`WORDS`] in braces
//! are replaced in each command line; the environment has the same facts.

use super::{Backend, Manner, Moment, Moves, Need, STEP_DEADLINE, Saver, Step, Unit};
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// Words that a hook may have in braces.
pub(super) const WORDS: [&str; 7] = ["rank", "size", "pid", "image", "set", "job", "node"];

/// Each hook runs once for each rank, on its node, in the job's working directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// Before any rank of the job is saved. It must succeed for all ranks before the next hook runs
    /// anywhere.
    #[serde(default)]
    pre: Vec<String>,
    /// Writes the image into the directory `{image}`.
    checkpoint: Vec<String>,
    /// When all ranks are saved or the checkpoint is cancelled: undoes `pre`.
    #[serde(default)]
    resume: Vec<String>,
    /// Checks the image, after it was written and before a rank starts from it.
    #[serde(default)]
    verify: Vec<String>,
    /// Becomes the rank, from its image. Default: the program itself, with `FTB_IMAGE` set.
    #[serde(default)]
    restart: Vec<String>,
    #[serde(with = "humantime_serde", default = "step_deadline")]
    deadline: Duration,
}

fn step_deadline() -> Duration {
    STEP_DEADLINE
}

impl Command {
    fn hooks(&self) -> [(&'static str, &Vec<String>); 5] {
        [
            ("pre", &self.pre),
            ("checkpoint", &self.checkpoint),
            ("resume", &self.resume),
            ("verify", &self.verify),
            ("restart", &self.restart),
        ]
    }

    pub(super) fn has_verify(&self) -> bool {
        !self.verify.is_empty()
    }

    /// Rejects settings that can never work.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.checkpoint.is_empty() {
            return Err("checkpoint: without a command nothing is ever saved".to_owned());
        }
        if self.deadline.is_zero() {
            return Err("deadline: every hook would fail at once".to_owned());
        }
        for (name, hook) in self.hooks() {
            for word in hook {
                unknown(word).map_or(Ok(()), |bad| {
                    let known = WORDS.map(|word| format!("{{{word}}}")).join(" ");
                    Err(format!("{name}: {{{bad}}} is not known (known: {known})"))
                })?;
            }
        }
        Ok(())
    }
}

/// The first word in braces that is not in [`WORDS`]. Braces with anything but lower-case letters
/// belong to the hook.
fn unknown(text: &str) -> Option<&str> {
    let words = text.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    let mut names = words.map(|(name, _)| name);
    let ours = |name: &&str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase());
    names.find(|name| ours(name) && !WORDS.contains(name))
}

fn fill(hook: &[String], unit: &Unit<'_>) -> Vec<String> {
    let values = [
        unit.rank.to_string(),
        unit.size.to_string(),
        unit.pid.to_string(),
        unit.image.display().to_string(),
        unit.set.to_string(),
        unit.job.to_string(),
        unit.node.to_string(),
    ];
    let fill = |word: &String| {
        let pairs = WORDS.iter().zip(&values);
        pairs.fold(word.clone(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
    };
    hook.iter().map(fill).collect()
}

impl Backend for Command {
    fn name(&self) -> &'static str {
        "command"
    }

    fn manner(&self) -> Manner {
        Manner { saver: Saver::Agent, moves: Moves::Anew }
    }

    fn needs(&self) -> Vec<Need> {
        let programs = self.hooks().into_iter().filter_map(|(_, hook)| hook.first());
        let fixed = programs.filter(|program| !program.contains('{'));
        let need = |program: &String| Need {
            program: program.into(),
            way_out: "install it, or correct the hook in the backend file",
        };
        fixed.map(need).collect()
    }

    fn steps(&self, moment: Moment, unit: &Unit<'_>) -> Vec<Step> {
        let (name, hook) = match moment {
            Moment::Prepare => ("pre", &self.pre),
            Moment::Save { .. } => ("checkpoint", &self.checkpoint),
            Moment::Release => ("resume", &self.resume),
            Moment::Verify => ("verify", &self.verify),
            Moment::Precopy | Moment::Unpack | Moment::Restore => return Vec::new(),
        };
        if hook.is_empty() {
            return Vec::new();
        }
        vec![Step { name, argv: fill(hook, unit), deadline: self.deadline, piped: false }]
    }

    fn restart(&self, unit: &Unit<'_>) -> Option<Vec<String>> {
        (!self.restart.is_empty()).then(|| fill(&self.restart, unit))
    }
}
