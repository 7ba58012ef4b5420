//! What the JL would do about inputs: a copy takes them; its outputs are not executed.

use super::{Jl, JlInput, JlOutput, Open, Workflow};
use crate::names::NodeName;
use ftb_core::Now;

/// What would follow from inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The lines that the user would see.
    pub lines: Vec<String>,
    /// The kind of the episode that would open.
    pub opens: Option<&'static str>,
    /// Where ranks would move.
    pub target: Option<NodeName>,
}

impl Jl {
    /// Takes inputs in a copy. What is due now by the clock does not count.
    pub fn preview(&self, now: Now, inputs: Vec<JlInput>) -> Preview {
        let mut copy = self.clone();
        copy.handle(now, JlInput::Tick, &mut Vec::new());
        let before = copy.open().map(|open| open.episode);
        let mut out = Vec::new();
        inputs.into_iter().for_each(|input| copy.handle(now, input, &mut out));
        let line = |output| match output {
            JlOutput::Notify(words) => Some(words),
            _ => None,
        };
        let lines = out.into_iter().filter_map(line).collect();
        let open = copy.open().filter(|open| Some(open.episode) != before);
        Preview {
            lines,
            opens: open.map(|open| open.workflow.kind()),
            target: open.and_then(|open| copy.target_of(open)),
        }
    }

    /// Where the ranks of an episode that has just opened would move.
    fn target_of(&self, open: &Open) -> Option<NodeName> {
        match &open.workflow {
            Workflow::Migration(migration) => {
                migration.target().cloned().or_else(|| self.job.spare(&[]))
            }
            Workflow::Checkpoint(checkpoint) if checkpoint.leaving().is_some() => {
                self.job.spare(&[])
            }
            _ => None,
        }
    }
}
