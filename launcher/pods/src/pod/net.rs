//! The network of a pod: one link into a bridge, one address, which moves with the pod. The hardware address is made
//! of it, so that the others' caches stay right.
//!
//! Whose a bridge is says its alias: so what a killed job has left of its own can be told from everything else, and
//! the next one removes it ([`clear_left`]).

use core::net::Ipv4Addr;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::process::Stdio;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// Where the pods of a node are joined with the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodNet {
    /// The address of a pod that starts on this node.
    pub address: Ipv4Addr,
    /// Prefix length of the pods' network.
    pub prefix: u8,
    /// The bridge.
    pub bridge: String,
    /// The bridge is the job's own: made and removed by its node agents.
    pub own: bool,
    /// Drawn when the job was started, so that bridges and links of two jobs of one name differ.
    #[serde(default)]
    pub mark: u32,
}

/// What the alias of a bridge of a job's own begins with; the job's name follows.
const ALIAS: &str = "ftb:";

/// The bridge of a job's own.
pub fn own_bridge(mark: u32) -> String {
    format!("ftb{mark:08x}")
}

/// A name for the outer end of a pod's link, of this node agent alone.
pub fn link_name(mark: u32, node: &str, number: u32) -> String {
    let crc = crc32c::crc32c(format!("{mark} {node}").as_bytes());
    // Fifteen bytes are all that the kernel takes.
    format!("v{crc:08x}{:04x}", number & 0xffff)
}

/// The hardware address that goes with an address; locally administered.
pub fn mac(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("02:f7:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// Where the kernel tells of its network links.
const LINKS: &str = "/sys/class/net";

/// Runs `ip` with a batch of commands, in the network namespace of a process where one is named; what it says.
async fn ip(inside: Option<u32>, batch: &str) -> Result<String, String> {
    let mut command = match inside {
        Some(pid) => {
            let mut command = Command::new("nsenter");
            command.args(["--target", &pid.to_string(), "--net", "--", "ip"]);
            command
        }
        None => Command::new("ip"),
    };
    command
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let fail = |error: std::io::Error| format!("cannot run ip: {error}");
    let mut child = command.spawn().map_err(fail)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(batch.as_bytes()).await.map_err(fail)?;
    }
    let output = child.wait_with_output().await.map_err(fail)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().next().unwrap_or_default();
    Err(format!("the pod's network cannot be made: ip: {first}"))
}

/// How often a pod asks for the hardware address of a peer that does not answer, in milliseconds (the kernel's own: each
/// second): one that was brought back asks at first while it is on no bridge yet, and must ask again soon after.
const ASK_EVERY_MS: u32 = 20;
/// So many times; then the next packet begins anew.
const ASKS_MAX: u32 = 20;

/// How long a probe takes: as long as [`PROBES`] questions.
const PROBE_WAIT: Duration = Duration::from_millis(20);
/// How often a probe asks before nobody has the address.
const PROBES: u32 = 4;
/// How often the answer to a probe is looked for, while the kernel still asks.
const PROBE_LOOKS_MAX: u32 = 50;

/// How often a link that was made is looked at before it counts as broken.
const UP_LOOKS_MAX: u32 = 250;

/// Gives the pod of `holder` its link and address. The link leads nowhere yet. It has a carrier all the same, now and
/// whenever it is cut: programs count a device without one as not there.
///
/// # Errors
/// One line.
pub async fn join(net: &PodNet, holder: u32, link: &str, address: Ipv4Addr) -> Result<(), String> {
    make_link(holder, link).await?;
    add_address(net, holder, address).await
}

/// As [`join`] and then [`open`], for a pod that is new, on a bridge that is not the job's own: only where nobody there
/// has the address already.
///
/// # Errors
/// One line; that somebody has it, and the way out.
pub async fn join_where_free(
    net: &PodNet,
    job: &str,
    holder: u32,
    link: &str,
    address: Ipv4Addr,
) -> Result<(), String> {
    // It asks with a hardware address that nobody has: that of the pods' address may be another's as well.
    make_link(holder, link).await?;
    open(net, job, link).await?;
    if is_taken(holder, address).await? {
        return Err(format!(
            "the pods' address {address} is taken on bridge {}: another job uses it; start again, or name another \
             network in [backend.criu]",
            net.bridge
        ));
    }
    add_address(net, holder, address).await
}

/// Asks on the bridge for an address that the pod does not have yet (RFC 5227: the question names no asker, since the pod
/// has no address at all). The kernel asks, and its table of neighbours has the answer.
async fn is_taken(holder: u32, address: Ipv4Addr) -> Result<bool, String> {
    let wait = PROBE_WAIT.as_millis();
    let ask = format!(
        "link set dev lo up\n\
         link set dev eth0 up\n\
         ntable change name arp_cache dev eth0 retrans {wait} mcast_probes {PROBES}\n\
         neigh replace {address} dev eth0 use nud none\n"
    );
    ip(Some(holder), &ask).await?;
    for _ in 0..PROBE_LOOKS_MAX {
        tokio::time::sleep(PROBE_WAIT).await;
        let said = ip(Some(holder), &format!("neigh show to {address} dev eth0\n")).await?;
        if !said.contains("INCOMPLETE") {
            return Ok(said.contains("lladdr"));
        }
    }
    Err(format!("the kernel did not say whether the address {address} is free"))
}

/// Waits until the kernel counts the pod's link as up, which it does a moment after it is: UCX takes no other, and a program
/// that looks too early fails in `MPI_Init`.
///
/// # Errors
/// One line: it does not come up.
pub async fn wait_up(holder: u32) -> Result<(), String> {
    for _ in 0..UP_LOOKS_MAX {
        let said = ip(Some(holder), "link show dev eth0\n").await?;
        if said.contains("state UP") {
            return Ok(());
        }
        tokio::time::sleep(PROBE_WAIT).await;
    }
    Err("the pod's network link does not come up".to_owned())
}

async fn make_link(holder: u32, link: &str) -> Result<(), String> {
    let outside = format!(
        "link add name {link} type veth peer name eth0 netns {holder}\nlink set dev {link} up\n"
    );
    ip(None, &outside).await.map(drop)
}

async fn add_address(net: &PodNet, holder: u32, address: Ipv4Addr) -> Result<(), String> {
    let mac = mac(address);
    let inside = format!(
        "link set dev lo up\n\
         link set dev eth0 address {mac}\n\
         addr add {address}/{} dev eth0\n\
         link set dev eth0 up\n\
         ntable change name arp_cache dev eth0 retrans {ASK_EVERY_MS} mcast_probes {ASKS_MAX}\n",
        net.prefix
    );
    ip(Some(holder), &inside).await.map(drop)
}

/// Lets the pod talk: its link becomes a port of the bridge. (It is cut by the backend's commands.)
///
/// # Errors
/// One line.
pub async fn open(net: &PodNet, job: &str, link: &str) -> Result<(), String> {
    let mut opened = port(net, link).await;
    // The first pod of the job makes the bridge; another agent of the job may just be removing one that was empty.
    for _ in 0..3 {
        if opened.is_ok() {
            break;
        }
        make_bridge(net, job).await;
        opened = port(net, link).await;
    }
    opened
}

async fn port(net: &PodNet, link: &str) -> Result<(), String> {
    let bridge = &net.bridge;
    let batch = format!("link set dev {link} master {bridge}\nlink set dev {bridge} up\n");
    ip(None, &batch).await.map(drop)
}

/// Makes a bridge that is the job's own, where it is not there yet. What fails shows when a pod joins it.
async fn make_bridge(net: &PodNet, job: &str) {
    let bridge = &net.bridge;
    if net.own && !Path::new(LINKS).join(bridge).exists() {
        let batch = format!(
            "link add name {bridge} type bridge\nlink set dev {bridge} alias {ALIAS}{job}\n"
        );
        let made = ip(None, &batch).await;
        if let Err(error) = made {
            tracing::debug!(%error, "another agent may have been quicker");
        }
    }
}

/// Removes the pod's link: from now on nothing leaves it.
///
/// # Errors
/// One line; the link may have gone with the pod.
pub async fn close(link: &str) -> Result<(), String> {
    ip(None, &format!("link del dev {link}\n")).await.map(drop)
}

/// Removes a bridge that is the job's own when nothing hangs on it any more. Whether it is gone.
pub fn remove_bridge(net: &PodNet) -> bool {
    !net.own || remove_empty(&net.bridge)
}

/// Removes a bridge when nothing hangs on it. Whether it is gone.
pub fn remove_empty(bridge: &str) -> bool {
    let path = Path::new(LINKS).join(bridge);
    let ports = std::fs::read_dir(path.join("brif"));
    if ports.is_ok_and(|mut ports| ports.next().is_none()) {
        let mut command = std::process::Command::new("ip");
        command.args(["link", "del", "dev", bridge]);
        // Another agent may have been quicker.
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
    !path.exists()
}

/// Removes bridges of jobs' own on which nothing hangs and which no guard `watches`: those of jobs of which everything was
/// killed at once. (On the bridge of a job that lives nothing hangs either while all its pods are cut off.)
pub fn clear_left(watches: impl Fn(&str) -> bool) {
    for link in std::fs::read_dir(LINKS).into_iter().flatten().filter_map(Result::ok) {
        let alias = std::fs::read_to_string(link.path().join("ifalias")).unwrap_or_default();
        let name = link.file_name();
        if let Some(job) = alias.trim_end().strip_prefix(ALIAS)
            && let Some(name) = name.to_str()
            && !watches(name)
            && remove_empty(name)
        {
            tracing::info!(job, bridge = name, "a killed job had left its bridge: removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_the_kernel_and_differ() {
        let names = [own_bridge(7), own_bridge(8), link_name(7, "n", 1), link_name(7, "n", 2)];
        assert!(names.iter().all(|name| name.len() <= 15), "{names:?}");
        assert!(names.windows(2).all(|two| two[0] != two[1]));
        assert_eq!(mac(Ipv4Addr::new(10, 198, 0, 3)), "02:f7:0a:c6:00:03");
    }
}
