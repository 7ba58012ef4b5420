//! `loop`: programs in any language that call `ftb_loop` (libftbjob, Python `ftb.job`). Each rank
//! saves itself there, when its node agent asks it to. The node agent runs no commands.

use super::{Backend, Manner, Moment, Moves, Need, Saver, Step, Unit};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loop;

impl Backend for Loop {
    fn name(&self) -> &'static str {
        "loop"
    }

    /// The ranks communicate by means of their own, so none starts again without the others.
    fn manner(&self) -> Manner {
        Manner { saver: Saver::Loop, moves: Moves::Anew }
    }

    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }

    fn steps(&self, _moment: Moment, _unit: &Unit<'_>) -> Vec<Step> {
        Vec::new()
    }

    fn restart(&self, _unit: &Unit<'_>) -> Option<Vec<String>> {
        None
    }
}
