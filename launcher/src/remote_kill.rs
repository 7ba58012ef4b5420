//! Kills launch agents on other hosts, the way they were started there: agents that do not leave,
//! or whose node counts as lost. Their ranks and guards end with them.
//!
//! The lock in the node's directory has the process id. The process is killed only while it has
//! that file open, so a reused id is safe. A successor has the same lock: it is started only after
//! the kill ([`RemoteKill::ended`]).

use super::spec::{StartMethod, Starting};
use super::starter;
use core::time::Duration;
use ftb_launcher_core::names::NodeName;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use tokio::process::Command;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// Most kills at a time; others wait.
pub const KILLS_MAX: usize = 64;
/// Deadline of one kill; the host may be gone.
pub const KILL_WAIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct RemoteKill {
    starting: Option<Starting>,
    kills: JoinSet<()>,
    places: Arc<Semaphore>,
    /// Kills under way, by node: closed when they have ended.
    under_way: BTreeMap<NodeName, Vec<watch::Receiver<()>>>,
}

impl RemoteKill {
    pub fn new(starting: Option<Starting>) -> Self {
        let starting = starting.filter(|starting| starting.means != StartMethod::Local);
        let places = Arc::new(Semaphore::new(KILLS_MAX));
        Self { starting, kills: JoinSet::new(), places, under_way: BTreeMap::new() }
    }

    /// Starts to kill the agent of a node with directory `dir`. Agents on this host are not its
    /// concern.
    pub fn kill(&mut self, node: &NodeName, dir: &Path) {
        let Some(starting) = &self.starting else {
            return;
        };
        let words = starter::on_host(starting, node, &script(dir));
        let (ends, ended) = watch::channel(());
        let of_node = self.under_way.entry(node.clone()).or_default();
        of_node.retain(|kill| kill.has_changed().is_ok());
        of_node.push(ended);
        let (places, node) = (Arc::clone(&self.places), node.clone());
        self.kills.spawn(async move {
            let _ends = ends;
            let Ok(_place) = places.acquire().await else { return };
            let Some((program, arguments)) = words.split_first() else { return };
            let mut command = Command::new(program);
            command.args(arguments).process_group(0).kill_on_drop(true);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let ended = tokio::time::timeout(KILL_WAIT, command.status()).await;
            if !matches!(ended, Ok(Ok(status)) if status.success()) {
                let may = "its launch agent may be alive: it could not be reached to be killed";
                tracing::warn!(%node, "{may}");
            }
        });
    }

    /// Waits until the kills on these nodes are done or overdue.
    pub fn ended(&mut self, nodes: &[NodeName]) -> impl Future<Output = ()> + Send + use<> {
        while self.kills.try_join_next().is_some() {}
        let kills = nodes.iter().filter_map(|node| self.under_way.get(node).cloned()).flatten();
        let kills: Vec<watch::Receiver<()>> = kills.collect();
        async move {
            for mut kill in kills {
                // Nothing is ever sent: an error says that the kill has ended.
                while kill.changed().await.is_ok() {}
            }
        }
    }

    /// Waits until all kills are done or overdue.
    pub async fn done(&mut self) {
        while self.kills.join_next().await.is_some() {}
    }
}

/// A script for a POSIX shell on the node. It fails only if the agent could not be killed.
fn script(dir: &Path) -> String {
    let quoted = |path: &Path| starter::quoted(&path.display().to_string());
    let lock = Path::new(super::nodedir::LOCK);
    let mut places = quoted(&dir.join(lock));
    // The launch agent may use a directory beside the default place.
    if let (Some(base), Some(name)) = (dir.parent(), dir.file_name())
        && *base == super::nodedir::default_base()
    {
        places = format!("{places} {}.*/{}", quoted(base), quoted(&Path::new(name).join(lock)));
    }
    format!(
        "for l in {places}; do [ -s \"$l\" ] && [ -O \"$l\" ] || continue; \
         p=$(cut -d' ' -f1 \"$l\"); for f in /proc/$p/fd/*; do \
         [ \"$f\" -ef \"$l\" ] && exec kill -KILL \"$p\"; done; done; :"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use core::task::Poll;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Child;

    fn sleeper(lock: &Path) -> Child {
        let script = "exec sleep 1005 3<\"$0\"";
        std::process::Command::new("sh").args(["-c", script]).arg(lock).spawn().unwrap()
    }

    fn run(dir: &Path) -> bool {
        let done = std::process::Command::new("sh").arg("-c").arg(script(dir)).status();
        done.unwrap().success()
    }

    #[test]
    fn only_the_process_with_the_lock_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("it's here");
        std::fs::create_dir(&dir).unwrap();
        assert!(run(&dir), "no process is there");
        let lock = dir.join(super::super::nodedir::LOCK);
        std::fs::write(&lock, "").unwrap();
        let (mut pause, other) = (sleeper(&lock), dir.join("other"));
        std::fs::write(&other, "").unwrap();
        let mut stranger = sleeper(&other);
        // Wait until the shell has become the sleeper: then the file is open.
        for (child, file) in [(&pause, &lock), (&stranger, &other)] {
            let link = format!("/proc/{}/fd/3", child.id());
            while std::fs::read_link(&link).ok().as_ref() != Some(file) {
                std::thread::yield_now();
            }
        }
        std::fs::write(&lock, format!("{} 127.0.0.1:9", stranger.id())).unwrap();
        assert!(run(&dir));
        assert_eq!(stranger.try_wait().unwrap(), None, "another process has the number");
        std::fs::write(&lock, format!("{} 127.0.0.1:9", pause.id())).unwrap();
        assert!(run(&dir));
        assert_eq!(pause.wait().unwrap().signal(), Some(9));
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }

    /// A slow host: its next launch agent waits for the kill of the former one, others do not.
    #[tokio::test]
    async fn the_successor_of_a_killed_agent_waits_for_the_kill() {
        let dir = tempfile::tempdir().unwrap();
        let gate = dir.path().join("gate");
        let wait = format!("until [ -e '{}' ]; do sleep 0.02; done", gate.display());
        let command = ["sh", "-c", &wait].map(ToOwned::to_owned).to_vec();
        let (program, deadline) = ("ftb-nla".into(), Duration::from_secs(1));
        let means = StartMethod::Ssh;
        let starting = Starting { means, command, program, fanout: 1, deadline };
        let mut kills = RemoteKill::new(Some(starting));
        let nodes = ["node01", "node02"].map(|name| NodeName::new(name).unwrap());
        kills.kill(&nodes[0], dir.path());
        kills.kill(&nodes[0], dir.path());
        kills.ended(&nodes[1..]).await;
        let mut ended = core::pin::pin!(kills.ended(&nodes));
        let waits = core::future::poll_fn(|context| Poll::Ready(ended.as_mut().poll(context)));
        assert!(waits.await.is_pending());
        std::fs::write(&gate, "").unwrap();
        ended.await;
    }
}
