//! A running rank: a process of the agent, or one in the pod.

use super::ranks::Running;
use ftb_launcher_pods::pod::ipc::ToSupervisor;
use ftb_launcher_pods::pod::{Order, Pod};
use tokio::process::ChildStdin;

#[derive(Debug)]
pub enum RunningRank {
    /// A child of the agent.
    Own(Running),
    /// A child of the pod's supervisor.
    InPod(Pod),
}

impl RunningRank {
    /// A process of the agent; `None`: it is in the pod.
    pub fn own(&self) -> Option<&Running> {
        match self {
            Self::Own(running) => Some(running),
            Self::InPod(_) => None,
        }
    }

    /// Its standard input, once, if it has one and is a process of the agent.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        match self {
            Self::Own(running) => running.stdin.take(),
            Self::InPod(_) => None,
        }
    }

    /// Sends a signal to the process group of the rank.
    pub async fn signal(&self, rank: u32, signal: i32) {
        match self {
            Self::Own(running) => running.signal(signal),
            Self::InPod(pod) => pod.order(Order::Tell(ToSupervisor::Signal { rank, signal })).await,
        }
    }

    /// Sends a PMI answer.
    pub async fn reply(&self, rank: u32, line: String) {
        match self {
            Self::Own(running) => running.reply(line),
            Self::InPod(pod) => pod.order(Order::Tell(ToSupervisor::Pmi { rank, line })).await,
        }
    }

    /// Its process id outside of pods; 0 in a pod.
    pub fn pid(&self) -> u32 {
        match self {
            Self::Own(running) => running.pid(),
            Self::InPod(_) => 0,
        }
    }
}
