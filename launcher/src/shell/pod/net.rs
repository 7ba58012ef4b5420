//! The network of a pod: one link into a bridge, one address, which moves with the pod. The hardware address is made
//! of it, so that the others' caches stay right.

use core::net::Ipv4Addr;
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
}

/// The bridge of a job's own.
pub fn own_bridge(job: &str) -> String {
    format!("ftb{:08x}", crc32c::crc32c(job.as_bytes()))
}

/// A name for the outer end of a pod's link, of this node agent alone.
pub fn link_name(job: &str, node: &str, number: u32) -> String {
    let crc = crc32c::crc32c(format!("{job} {node}").as_bytes());
    // Fifteen bytes are all that the kernel takes.
    format!("v{crc:08x}{:04x}", number & 0xffff)
}

/// The hardware address that goes with an address; locally administered.
pub fn mac(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("02:f7:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// Runs `ip` with a batch of commands, in the network namespace of a process where one is named.
async fn ip(inside: Option<u32>, batch: &str) -> Result<(), String> {
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
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let fail = |error: std::io::Error| format!("cannot run ip: {error}");
    let mut child = command.spawn().map_err(fail)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(batch.as_bytes()).await.map_err(fail)?;
    }
    let output = child.wait_with_output().await.map_err(fail)?;
    if output.status.success() {
        return Ok(());
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

/// Gives the pod of `holder` its link and address. The link leads nowhere yet. It has a carrier all the same, now and
/// whenever it is cut: programs count a device without one as not there.
///
/// # Errors
/// One line.
pub async fn join(net: &PodNet, holder: u32, link: &str, address: Ipv4Addr) -> Result<(), String> {
    let mac = mac(address);
    let outside = format!(
        "link add name {link} type veth peer name eth0 address {mac} netns {holder}\n\
         link set dev {link} up\n"
    );
    ip(None, &outside).await?;
    let inside = format!(
        "link set dev lo up\n\
         addr add {address}/{} dev eth0\n\
         link set dev eth0 up\n\
         ntable change name arp_cache dev eth0 retrans {ASK_EVERY_MS} mcast_probes {ASKS_MAX}\n",
        net.prefix
    );
    ip(Some(holder), &inside).await
}

/// Lets the pod talk: its link becomes a port of the bridge. (It is cut by the backend's commands.)
///
/// # Errors
/// One line.
pub async fn open(net: &PodNet, link: &str) -> Result<(), String> {
    let mut opened = port(net, link).await;
    // The first pod of the job makes the bridge; another agent of the job may just be removing one that was empty.
    for _ in 0..3 {
        if opened.is_ok() {
            break;
        }
        make_bridge(net).await;
        opened = port(net, link).await;
    }
    opened
}

async fn port(net: &PodNet, link: &str) -> Result<(), String> {
    let bridge = &net.bridge;
    ip(None, &format!("link set dev {link} master {bridge}\nlink set dev {bridge} up\n")).await
}

/// Makes a bridge that is the job's own, where it is not there yet. What fails shows when a pod joins it.
async fn make_bridge(net: &PodNet) {
    let bridge = &net.bridge;
    if net.own && !Path::new("/sys/class/net").join(bridge).exists() {
        let made = ip(None, &format!("link add name {bridge} type bridge\n")).await;
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
    ip(None, &format!("link del dev {link}\n")).await
}

/// Removes a bridge that is the job's own when nothing hangs on it any more. Whether it is gone.
pub fn remove_bridge(net: &PodNet) -> bool {
    let bridge = Path::new("/sys/class/net").join(&net.bridge);
    let ports = std::fs::read_dir(bridge.join("brif"));
    let empty = ports.is_ok_and(|mut ports| ports.next().is_none());
    if net.own && empty {
        let mut command = std::process::Command::new("ip");
        command.args(["link", "del", "dev", &net.bridge]);
        // Another agent may have been quicker.
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
    !net.own || !bridge.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_the_kernel_and_differ() {
        let names =
            [own_bridge("a"), own_bridge("b"), link_name("a", "n", 1), link_name("a", "n", 2)];
        assert!(names.iter().all(|name| name.len() <= 15), "{names:?}");
        assert!(names.windows(2).all(|two| two[0] != two[1]));
        assert_eq!(mac(Ipv4Addr::new(10, 198, 0, 3)), "02:f7:0a:c6:00:03");
    }
}
