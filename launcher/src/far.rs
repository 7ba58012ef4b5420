//! Ends launch agents on other hosts by force, over the way by which agents are started there: those that do not leave
//! when they are told to, or whose node counts as lost. The agent's ranks and guard go with it.
//!
//! Which process it is says the lock in the node's directory: it is killed only while it has that file open, so never
//! another one that has got its number.

use super::spec::{Means, Starting};
use super::starter;
use core::time::Duration;
use ftb_launcher_core::names::NodeName;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// So many are ended at a time; the others wait.
pub const KILLS_MAX: usize = 64;
/// How long one may take: the host may be gone.
pub const KILL_WAIT: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub struct Far {
    starting: Option<Starting>,
    kills: JoinSet<()>,
    places: Arc<Semaphore>,
}

impl Far {
    /// For the agents that are started like this.
    pub fn new(starting: Option<Starting>) -> Self {
        let starting = starting.filter(|starting| starting.means != Means::Local);
        Self { starting, kills: JoinSet::new(), places: Arc::new(Semaphore::new(KILLS_MAX)) }
    }

    /// Begins to end the agent of a node, whose directory for the job is `dir`. Agents of this host are others' business.
    pub fn kill(&mut self, node: &NodeName, dir: &Path) {
        let Some(starting) = &self.starting else {
            return;
        };
        let words = starter::on_host(starting, node, &script(dir));
        let (places, node) = (Arc::clone(&self.places), node.clone());
        self.kills.spawn(async move {
            let Ok(_place) = places.acquire().await else { return };
            let Some((program, arguments)) = words.split_first() else { return };
            let mut command = Command::new(program);
            command.args(arguments).process_group(0).kill_on_drop(true);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let ended = tokio::time::timeout(KILL_WAIT, command.status()).await;
            if !matches!(ended, Ok(Ok(status)) if status.success()) {
                tracing::warn!(%node, "its launch agent may be alive: it could not be reached to be killed");
            }
        });
    }

    /// Waits until all that was begun is done, or has taken too long.
    pub async fn done(&mut self) {
        while self.kills.join_next().await.is_some() {}
    }
}

/// For a POSIX shell on the node. Fails only where the agent could not be killed.
fn script(dir: &Path) -> String {
    let quoted = |path: &Path| starter::quoted(&path.display().to_string());
    let lock = Path::new(super::nodedir::LOCK);
    let mut places = quoted(&dir.join(lock));
    // The launch agent may have had to go beside the default place.
    if let (Some(base), Some(name)) = (dir.parent(), dir.file_name())
        && *base == super::nodedir::default_base()
    {
        places = format!("{places} {}.*/{}", quoted(base), quoted(&Path::new(name).join(lock)));
    }
    format!(
        "for l in {places}; do [ -s \"$l\" ] && [ -O \"$l\" ] || continue; p=$(cat \"$l\"); \
         for f in /proc/$p/fd/*; do [ \"$f\" -ef \"$l\" ] && exec kill -KILL \"$p\"; done; done; :"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
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
    fn only_who_holds_the_lock_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("it's here");
        std::fs::create_dir(&dir).unwrap();
        assert!(run(&dir), "nobody is there");
        let lock = dir.join(super::super::nodedir::LOCK);
        std::fs::write(&lock, "").unwrap();
        let (mut holder, other) = (sleeper(&lock), dir.join("other"));
        std::fs::write(&other, "").unwrap();
        let mut stranger = sleeper(&other);
        // The shell has become what it was to become when the file is open.
        for (child, file) in [(&holder, &lock), (&stranger, &other)] {
            let link = format!("/proc/{}/fd/3", child.id());
            while std::fs::read_link(&link).ok().as_ref() != Some(file) {
                std::thread::yield_now();
            }
        }
        std::fs::write(&lock, stranger.id().to_string()).unwrap();
        assert!(run(&dir));
        assert_eq!(stranger.try_wait().unwrap(), None, "another process has the number");
        std::fs::write(&lock, holder.id().to_string()).unwrap();
        assert!(run(&dir));
        assert_eq!(holder.wait().unwrap().signal(), Some(9));
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}
