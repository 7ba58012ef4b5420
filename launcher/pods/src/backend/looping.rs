//! `loop`: programs in any language that call `ftb_loop` (libftbjob, Python `ftb.job`). Each rank
//! saves itself there, when its node agent asks it to. The node agent runs no commands.

use super::{Backend, Manner, Moves, Saver};

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
}
