//! The network of a pod: one link into a bridge, and one address that moves with the pod. The
//! hardware address is derived from it, so neighbour caches of peers stay valid.
//!
//! The alias of a bridge names its job, so the bridge of a killed job can be found and removed
//! ([`clear_left`]).

use crate::owner;
use core::net::Ipv4Addr;
use core::time::Duration;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, send, socket};
use serde::{Deserialize, Serialize};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Stdio;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// The network of the pods of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodNet {
    /// The address of a pod that starts on this node.
    pub address: Ipv4Addr,
    /// Prefix length of the pods' network.
    pub prefix: u8,
    pub bridge: String,
    /// The job owns the bridge; its node agents make and remove it.
    pub own: bool,
    /// Random number of the job, so that bridges and links of two jobs of one name differ.
    #[serde(default)]
    pub mark: u32,
    /// The process that holds the user namespace of the pods; `None`: the job is root's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<u32>,
}

impl PodNet {
    fn outside(&self) -> At {
        At(self.holder, None)
    }

    fn inside(&self, pause: u32) -> At {
        At(self.holder, Some(pause))
    }
}

/// Prefix of the alias of a job's own bridge; the job's name follows.
const ALIAS: &str = "ftb:";

/// Name of a job's own bridge.
pub fn own_bridge(mark: u32) -> String {
    format!("ftb{mark:08x}")
}

/// Name of the outer end of a pod's link, unique to this node agent.
pub fn link_name(mark: u32, node: &str, number: u32) -> String {
    let crc = crc32c::crc32c(format!("{mark} {node}").as_bytes());
    // The kernel takes at most 15 bytes.
    format!("v{crc:08x}{:04x}", number & 0xffff)
}

/// The locally administered hardware address for an address.
pub fn mac(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("02:f7:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

/// Where the kernel lists network links.
const LINKS: &str = "/sys/class/net";

/// Where `ip` commands run: the holder of the job, and the pod of this pause process, if any.
#[derive(Clone, Copy)]
struct At(Option<u32>, Option<u32>);

/// Runs a batch of `ip` commands; returns its output.
async fn ip(At(holder, inside): At, batch: &str) -> Result<String, String> {
    let mut command: Command = match inside {
        Some(pid) => {
            let mut command = owner::command(holder, "nsenter");
            command.args(["--target", &pid.to_string(), "--net", "--", "ip"]);
            command.into()
        }
        None => owner::command(holder, "ip").into(),
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

/// Interval of ARP requests of a pod, in milliseconds (the kernel's default is 1 s). A restored pod
/// sends its first request while it is on no bridge, and must repeat it soon.
const ASK_EVERY_MS: u32 = 20;
/// Most ARP requests; the next packet starts again.
const ASKS_MAX: u32 = 20;

/// Interval of the requests for a free address.
const PROBE_WAIT: Duration = Duration::from_millis(20);
/// Requests for an address before it counts as free.
const PROBES: u32 = 4;
/// Most looks at the neighbour table while the kernel still asks.
const PROBE_LOOKS_MAX: u32 = 50;

/// Most looks at a new link before it counts as broken.
const UP_LOOKS_MAX: u32 = 250;

/// Gives a pod its link and address; the link joins no bridge yet. It always has a carrier, because
/// programs ignore a device without one.
pub async fn join(net: &PodNet, pause: u32, link: &str, address: Ipv4Addr) -> Result<(), String> {
    make_link(net, pause, link).await?;
    add_address(net, pause, address).await
}

/// As [`join`] and then [`open`], for a new pod on a shared bridge: fails if the address is taken.
///
/// # Errors
/// The address is taken, and what to do.
pub async fn join_where_free(
    net: &PodNet,
    job: &str,
    pause: u32,
    link: &str,
    address: Ipv4Addr,
) -> Result<(), String> {
    // It asks with an unused hardware address: that of the pod's address may be taken too.
    make_link(net, pause, link).await?;
    open(net, job, link).await?;
    if is_taken(net, pause, address).await? {
        return Err(format!(
            "the pods' address {address} is taken on bridge {}: another job uses it; start again, \
             or name another \
             network in [backend.criu]",
            net.bridge
        ));
    }
    add_address(net, pause, address).await
}

/// Asks on the bridge for an address before the pod has it (RFC 5227). The kernel asks; the
/// neighbour table has the answer.
async fn is_taken(net: &PodNet, pause: u32, address: Ipv4Addr) -> Result<bool, String> {
    let wait = PROBE_WAIT.as_millis();
    let ask = format!(
        "link set dev lo up\n\
         link set dev eth0 up\n\
         ntable change name arp_cache dev eth0 retrans {wait} mcast_probes {PROBES}\n\
         neigh replace {address} dev eth0 use nud none\n"
    );
    ip(net.inside(pause), &ask).await?;
    for _ in 0..PROBE_LOOKS_MAX {
        tokio::time::sleep(PROBE_WAIT).await;
        let said = ip(net.inside(pause), &format!("neigh show to {address} dev eth0\n")).await?;
        if !said.contains("INCOMPLETE") {
            return Ok(said.contains("lladdr"));
        }
    }
    Err(format!("the kernel did not say whether the address {address} is free"))
}

/// Waits until the kernel reports the pod's link as up. UCX uses no other link, and a program that
/// starts too early fails in `MPI_Init`.
pub async fn wait_up(net: &PodNet, pause: u32) -> Result<(), String> {
    for _ in 0..UP_LOOKS_MAX {
        let said = ip(net.inside(pause), "link show dev eth0\n").await?;
        if said.contains("state UP") {
            return Ok(());
        }
        tokio::time::sleep(PROBE_WAIT).await;
    }
    Err("the pod's network link does not come up".to_owned())
}

async fn make_link(net: &PodNet, pause: u32, link: &str) -> Result<(), String> {
    let outside = format!(
        "link add name {link} type veth peer name eth0 netns {pause}\nlink set dev {link} up\n"
    );
    ip(net.outside(), &outside).await.map(drop)
}

async fn add_address(net: &PodNet, pause: u32, address: Ipv4Addr) -> Result<(), String> {
    let mac = mac(address);
    let inside = format!(
        "link set dev lo up\n\
         link set dev eth0 address {mac}\n\
         addr add {address}/{} dev eth0\n\
         link set dev eth0 up\n\
         ntable change name arp_cache dev eth0 retrans {ASK_EVERY_MS} mcast_probes {ASKS_MAX}\n",
        net.prefix
    );
    ip(net.inside(pause), &inside).await.map(drop)
}

/// Joins the pod's link to the bridge. The backend's commands cut it.
pub async fn open(net: &PodNet, job: &str, link: &str) -> Result<(), String> {
    let mut opened = port(net, link).await;
    // The first pod of a job makes the bridge; another agent of the job may be removing it.
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
    ip(net.outside(), &batch).await.map(drop)
}

/// Makes the job's own bridge if it is missing. A failure shows when a pod joins it.
async fn make_bridge(net: &PodNet, job: &str) {
    let bridge = &net.bridge;
    // The links of a holder's network are not listed here.
    if net.own && (net.holder.is_some() || !Path::new(LINKS).join(bridge).exists()) {
        let batch = format!(
            "link add name {bridge} type bridge\nlink set dev {bridge} alias {ALIAS}{job}\n"
        );
        let made = ip(net.outside(), &batch).await;
        if let Err(error) = made {
            tracing::debug!(%error, "another agent may have made the bridge");
        }
    }
}

/// Removes the pod's link.
///
/// # Errors
/// The link may have gone with the pod.
pub async fn close(net: &PodNet, link: &str) -> Result<(), String> {
    ip(net.outside(), &format!("link del dev {link}\n")).await.map(drop)
}

/// The device of a pod.
const DEVICE: &str = "eth0";

/// Removes the link of the pod that this process is in, if it has one. A socket that waits for an
/// acknowledgement keeps the network of a dead pod for minutes.
///
/// It asks the kernel itself: no process can begin in a pod whose first process is dead.
pub(super) fn cut_off() {
    let kind = (AddressFamily::Netlink, SockType::Raw, SockProtocol::NetlinkRoute);
    let socket = socket(kind.0, kind.1, SockFlag::SOCK_CLOEXEC, kind.2);
    // Its agent may have removed it.
    let _ = socket.and_then(|to| send(to.as_raw_fd(), &deletion(DEVICE), MsgFlags::empty()));
}

/// The message that removes a link by its name (rtnetlink(7)).
fn deletion(device: &str) -> Vec<u8> {
    const RTM_DELLINK: u16 = 17;
    const NLM_F_REQUEST: u16 = 1;
    const IFLA_IFNAME: u16 = 3;
    /// Two headers: of the message, and of the link, whose fields are 0.
    const HEADERS: usize = 32;
    const ALIGNMENT: usize = 4;
    let name = [device.as_bytes(), b"\0"].concat();
    let length = (size_of::<u16>() * 2 + name.len()) as u16;
    let total = (HEADERS + usize::from(length)).next_multiple_of(ALIGNMENT);
    let mut message = (total as u32).to_ne_bytes().to_vec();
    message.extend(RTM_DELLINK.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.resize(HEADERS, 0);
    message.extend([length, IFLA_IFNAME].map(u16::to_ne_bytes).concat());
    message.extend(name);
    message.resize(total, 0);
    message
}

/// Removes the job's own bridge when it has no ports. Returns whether it is gone.
pub fn remove_bridge(net: &PodNet) -> bool {
    // A bridge of a holder ends with it.
    !net.own || net.holder.is_some() || remove_empty(&net.bridge)
}

/// Removes a bridge without ports. Returns whether it is gone.
pub fn remove_empty(bridge: &str) -> bool {
    let path = Path::new(LINKS).join(bridge);
    let ports = std::fs::read_dir(path.join("brif"));
    if ports.is_ok_and(|mut ports| ports.next().is_none()) {
        let mut command = std::process::Command::new("ip");
        command.args(["link", "del", "dev", bridge]);
        // Another agent may have removed it.
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
    !path.exists()
}

/// Removes bridges of killed jobs: without ports, and not watched by a guard. The bridge of a live
/// job has no ports while all its pods are cut off.
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
