//! A running rank as the node agent holds it: a process of its own, or one in the pod.

use super::ranks::Running;
use ftb_launcher_pods::pod::words::ToTender;
use ftb_launcher_pods::pod::{Order, Pod};

/// See the module.
#[derive(Debug)]
pub enum Live {
    /// A child of the agent.
    Own(Running),
    /// A child of the pod's tender.
    InPod(Pod),
}

impl Live {
    /// Sends a signal to the process group of the rank.
    pub async fn signal(&self, rank: u32, signal: i32) {
        match self {
            Self::Own(running) => running.signal(signal),
            Self::InPod(pod) => pod.order(Order::Tell(ToTender::Signal { rank, signal })).await,
        }
    }

    /// Sends a PMI answer.
    pub async fn reply(&self, rank: u32, line: String) {
        match self {
            Self::Own(running) => running.reply(line),
            Self::InPod(pod) => pod.order(Order::Tell(ToTender::Pmi { rank, line })).await,
        }
    }

    /// Its process id, where it means something outside of a pod; else 0.
    pub fn pid(&self) -> u32 {
        match self {
            Self::Own(running) => running.pid(),
            Self::InPod(_) => 0,
        }
    }
}
