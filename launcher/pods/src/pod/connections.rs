//! Probes the TCP connections of a pod that has joined its bridge again.
//!
//! TCP sends a reset once. If a peer resets a connection while this pod is off its bridge, the
//! reset is lost, and a rank that only reads would wait forever. So the pod's kernel sends a window
//! probe on each established connection. A peer that still has the connection acknowledges it;
//! another one answers with a reset. The kernel sends the probe when a socket leaves repair mode
//! (`tcp_send_window_probe`).
//!
//! Limit: connections that the pod has half closed are not probed.

use super::processes::processes;
use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;

/// `TCP_ESTABLISHED` in the tables of the kernel.
const ESTABLISHED: &str = "01";

/// Probes each established connection of a pod, and returns their number.
pub(super) fn probe(pause: u32) -> usize {
    let mut open = established(pause);
    let mut probed = 0;
    for process in processes(pause) {
        if open.is_empty() {
            break;
        }
        for (number, inode) in sockets(process) {
            if open.remove(&inode) && duplicate(process, number).is_some_and(|fd| send(&fd)) {
                probed += 1;
            }
        }
    }
    probed
}

/// Inodes of the established connections in the network of a process.
fn established(process: u32) -> BTreeSet<u64> {
    let table = |name| fs::read_to_string(format!("/proc/{process}/net/{name}"));
    let tables = ["tcp", "tcp6"].map(|name| table(name).unwrap_or_default());
    tables.iter().flat_map(|table| table.lines().filter_map(inode)).collect()
}

/// The inode in a line of `/proc/net/tcp` (proc_pid_net(5)), if the connection is established.
fn inode(line: &str) -> Option<u64> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let inode = fields.get(9).filter(|_| fields.get(3) == Some(&ESTABLISHED))?;
    inode.parse().ok()
}

/// The descriptors of a process that are sockets, with their inodes.
fn sockets(process: u32) -> Vec<(i32, u64)> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten();
    let socket = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        let inode = target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
        Some((entry.file_name().to_str()?.parse().ok()?, inode))
    };
    entries.filter_map(|entry| socket(entry.ok()?)).collect()
}

fn duplicate(process: u32, number: i32) -> Option<OwnedFd> {
    let process = Pid::from_raw(i32::try_from(process).ok()?)?;
    let process = pidfd_open(process, PidfdFlags::empty()).ok()?;
    pidfd_getfd(process, number, PidfdGetfdFlags::empty()).ok()
}

/// Enters and leaves repair mode. SO_REUSEADDR is lost by that and set again.
fn send(socket: &OwnedFd) -> bool {
    let reuse = getsockopt(socket, sockopt::ReuseAddr).unwrap_or(false);
    let probed = setsockopt(socket, sockopt::TcpRepair, &1)
        .and_then(|()| setsockopt(socket, sockopt::TcpRepair, &0));
    let kept = setsockopt(socket, sockopt::ReuseAddr, &reuse);
    probed.and(kept).is_ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    /// Both ends of a connection in a network namespace. One end is reset while that network is
    /// down, so the other end does not receive the reset.
    const LOST_RESET: &str = r#"
import socket, struct, subprocess
def loopback(state):
    subprocess.run(["ip", "link", "set", "lo", state], check=True)
loopback("up")
listener = socket.create_server(("127.0.0.1", 0))
reader = socket.create_connection(listener.getsockname())
writer, _ = listener.accept()
loopback("down")
writer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
writer.close()
loopback("up")
reader.settimeout(0.3)
try:
    reader.recv(1)
except TimeoutError:
    print("lost", flush=True)
reader.settimeout(60)
try:
    reader.recv(1)
except ConnectionResetError:
    print("reset", flush=True)
"#;

    #[test]
    fn a_reset_that_was_lost_is_sent_again_for_a_probe() {
        let python = Command::new("python3").arg("-V").output();
        if !nix::unistd::Uid::effective().is_root() || python.is_err() {
            return ftb_tests::skip::skip("a network namespace needs root, and the test python3");
        }
        let mut command = Command::new("unshare");
        command.args(["--net", "--pid", "--fork", "--kill-child", "python3", "-c", LOST_RESET]);
        let mut unshare = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(unshare.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "lost");
        let children = format!("/proc/{0}/task/{0}/children", unshare.id());
        let child = fs::read_to_string(children).unwrap().trim().parse().unwrap();
        assert_eq!(probe(child), 1);
        assert_eq!(lines.next().unwrap().unwrap(), "reset");
        unshare.wait().unwrap();
    }

    #[test]
    fn only_established_connections_of_the_kernels_table_count() {
        let line = |state: &str| {
            format!(
                "   1: 0100C60A:1F90 0200C60A:C350 {state} 0:0 00:0 0 0 0 4711 1 0 20 4 0 10 -1"
            )
        };
        assert_eq!(inode(&line("01")), Some(4711));
        assert_eq!(inode(&line("0A")), None);
        assert_eq!(inode("  sl  local_address rem_address   st tx_queue"), None);
    }
}
