//! Parked processes of the node: what the core wants of them ([`crate::parking`]).

use super::{LaunchAgent, NlaInput, NlaOutput};
use crate::ranks::RankStart;
use ftb_launcher_core::nla::Spawn;

impl LaunchAgent {
    pub(super) fn park_output(&mut self, output: NlaOutput) -> Option<NlaInput> {
        match output {
            NlaOutput::Park => {
                let (guard, memory) = (&self.guard, self.memory.as_ref());
                let started = self.parking.park(&self.spec, guard, memory, &self.inputs);
                let program = self.spec.argv.first().map_or("", String::as_str);
                let reason = |error| format!("{error} ({program})");
                Some(NlaInput::ParkStarted(started.map_err(reason)))
            }
            NlaOutput::EndParked { pid, kill } => {
                self.parking.end(pid, kill);
                None
            }
            NlaOutput::Adopt { pid, spawn } => {
                self.adopt(pid, spawn);
                None
            }
            _ => None,
        }
    }

    /// A process that cannot be adopted is killed, and the core starts the rank at its end.
    fn adopt(&mut self, pid: u32, spawn: Spawn) {
        let (rank, incarnation) = (spawn.rank, spawn.incarnation);
        let start = RankStart { spawn, argv: None };
        let tell = self.teller(rank, incarnation);
        match self.parking.adopt(pid, &self.spec, &start, tell, &self.frames) {
            Ok(Some(running)) => self.runs(rank, incarnation, running),
            Ok(None) => {}
            Err(error) => tracing::warn!(rank, pid, %error, "a parked process cannot be adopted"),
        }
    }
}
