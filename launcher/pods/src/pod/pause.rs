//! The pause process of a pod ([`super::supervisor`]), as the node agent sees it.

use super::PAUSE_WAIT;
use crate::owner;
use crate::spec::NodeSpec;
use std::io;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// The namespaces of a pod. They end with everything in them when it is dropped.
pub(super) struct PauseProcess {
    process: Child,
    /// The process id of the pause process itself.
    pub(super) pid: u32,
}

impl PauseProcess {
    /// Makes namespaces in the user namespace of the holder, if any, with the images in memory.
    /// `fresh`: for ranks that start, not for restored ones.
    pub(super) async fn make(spec: &NodeSpec, fresh: bool) -> Result<Self, String> {
        let holder = spec.pod.as_ref().and_then(|net| net.holder);
        let fail = |error: io::Error| format!("cannot make a pod: {error}");
        let mut command = Command::from(owner::command(holder, "/proc/self/exe"));
        command.arg("make-pod").args(fresh.then_some("--fresh")).args(holder.map(|_| "--user"));
        if let Some(memory) = &spec.memory {
            command.arg("--mounts").arg(memory.pid().to_string());
        }
        command.kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = command.spawn().map_err(fail)?;
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            let mut stdout = BufReader::new(stdout);
            let read = tokio::time::timeout(PAUSE_WAIT, stdout.read_line(&mut line)).await;
            read.map_err(|_| "the pod's namespaces were not made in time".to_owned())?
                .map_err(fail)?;
        }
        let pid = line.trim().parse().map_err(|_| "cannot make a pod".to_owned())?;
        Ok(Self { process, pid })
    }

    /// Ends the namespaces; returns when nothing is left in them.
    pub(super) async fn end(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait().await;
    }
}
