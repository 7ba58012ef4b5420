//! `app`: programs that link `ftb-job` save themselves at a safe point and move by the protocol of
//! `launcher/core/protocol.md`. The node agent runs no commands.

use super::{Backend, Manner, Moves, Saver};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct App;

impl Backend for App {
    fn name(&self) -> &'static str {
        "app"
    }

    fn manner(&self) -> Manner {
        Manner { saver: Saver::Ranks, moves: Moves::Meeting }
    }
}
