//! Services of this host that run another program than the installed one: an upgrade or downgrade
//! replaced the file, and did not restart the service, because the installed release rejects its
//! configuration.
//!
//! Not responsible for: programs that are not attached to the agent of this host, and jobs, which
//! end with the program that they began with.

use super::{AREAS, Finding, Grade};
use std::collections::BTreeSet;
use std::path::Path;
use tokio::net::UnixStream;

/// The services, and how each checks its configuration.
const SERVICES: [(&str, &str); 6] = [
    ("ftb-act", "ftb-act check"),
    ("ftb-agent", "ftb-agent --check-config"),
    ("ftb-bridge", "ftb-bridge check"),
    ("ftb-ib", "ftb-ib --check-config"),
    ("ftb-ipmi", "ftb-ipmi --check-config"),
    ("ftb-slurm", "ftb-slurm --check-config"),
];
/// What the kernel adds to the path of a program whose file is gone.
const GONE: &str = " (deleted)";

/// The process that listens at this socket.
pub(super) async fn agent_at(socket: &Path) -> Option<u32> {
    let stream = UnixStream::connect(socket).await.ok()?;
    u32::try_from(stream.peer_cred().ok()?.pid()?).ok()
}

/// A finding for each service among these processes whose program was replaced. Other users see the
/// programs of their own processes only.
pub(super) fn old(pids: impl IntoIterator<Item = u32>) -> Vec<Finding> {
    let pids: BTreeSet<u32> = pids.into_iter().collect();
    let replaced = pids.into_iter().filter_map(|pid| {
        let program = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let path = Path::new(program.to_str()?.strip_suffix(GONE)?);
        path.exists().then_some(())?;
        let name = path.file_name()?.to_str()?;
        let (_, check) = SERVICES.iter().find(|(service, _)| *service == name)?;
        let what = format!("{name} runs another program than the installed one (process {pid})");
        let fix = format!("{check}; correct what it names, then systemctl restart {name}");
        Some(Finding::new(Grade::Warning, AREAS[3], what, &fix))
    });
    replaced.collect()
}
