//! The pod of a node: its ranks with their own process ids, mounts, IPC and network address. CRIU
//! can save and move them as a whole, without their help.
//!
//! One task owns each pod: the pause process with the namespaces, the pipes to the supervisor
//! inside ([`supervisor`]), and the link. Nothing of a pod outlives the agent: the pause process
//! ends with its standard input.

mod connections;
mod image;
pub mod ipc;
pub mod net;
mod pause;
mod pipes;
mod processes;
mod stdin;
mod stop;
pub mod supervisor;
mod task;

use crate::input::JobInput;
use crate::output::Frame;
use crate::spec::NodeSpec;
use crate::timeline::Stopwatch;
use core::pin::{Pin, pin};
use core::time::Duration;
use ftb_launcher_core::names::{Episode, Ranks, SetId};
use ftb_launcher_core::nla::NlaInput;
use ipc::ToSupervisor;
use pause::PauseProcess;
use task::Task;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Most waiting orders of the agent, and most waiting messages of the supervisor.
const ORDERS_MAX: usize = 1024;
/// How long the supervisor may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// How long the namespaces may take.
const PAUSE_WAIT: Duration = Duration::from_secs(10);
/// Time for data of stopped ranks to arrive.
const DRAIN_WAIT: Duration = Duration::from_millis(20);
/// Buffer for the output of a rank.
const OUTPUT_BYTES: usize = 64 * 1024;

/// An order of the agent for a pod.
#[derive(Debug)]
pub enum Order {
    Spawn {
        rank: u32,
        incarnation: u64,
        argv: Vec<String>,
        env: Vec<(String, String)>,
    },
    /// Give rank 0 the standard input of the job.
    Stdin(JobInput),
    /// Pass a message to the supervisor.
    Tell(ToSupervisor),
    Prepare(Episode, SetId),
    Save {
        episode: Episode,
        set: SetId,
        /// The ranks are gone afterwards.
        leave: bool,
        space: String,
        /// Most bytes of an image in memory.
        room: Option<u64>,
    },
    Release,
}

/// The agent's handle of a pod. The pod ends when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Pod {
    orders: mpsc::Sender<Order>,
    /// Closed when nothing is left of the pod.
    done: watch::Receiver<()>,
}

impl Pod {
    fn new() -> (Self, mpsc::Receiver<Order>, watch::Sender<()>) {
        let (orders, waiting) = mpsc::channel(ORDERS_MAX);
        let (alive, done) = watch::channel(());
        (Self { orders, done }, waiting, alive)
    }

    /// Sends an order to the pod's task. A pod that has ended ignores it.
    pub async fn order(&self, order: Order) {
        let _ = self.orders.send(order).await;
    }

    /// Waits a bounded time until nothing is left of it. No other handle may exist.
    pub async fn ended(self) {
        until_closed(Some(&mut self.end())).await;
    }

    /// Ends it; what is returned is closed when nothing is left. No other handle may exist.
    fn end(self) -> watch::Receiver<()> {
        self.done
    }

    pub fn over(&self) -> bool {
        self.orders.is_closed()
    }
}

/// The channels from a pod to the agent.
#[derive(Clone, Debug)]
pub struct PodChannels {
    pub inputs: mpsc::Sender<NlaInput>,
    pub frames: mpsc::Sender<Frame>,
}

/// Makes a pod without ranks. A failure is reported for each rank that is to start in it.
pub fn begin(spec: &NodeSpec, number: u32, ends: PodChannels) -> Pod {
    let (pod, orders, alive) = Pod::new();
    let spec = spec.clone();
    tokio::spawn(async move {
        let _alive = alive;
        let task = async {
            let net = spec.pod.as_ref().ok_or("the node has no network for pods")?;
            let pause = PauseProcess::make(&spec, true).await?;
            let task = Task::hold(&spec, number, pause, net.address, ends.clone(), true);
            let mut task = task.await?;
            let program = std::env::current_exe().map_err(|error| error.to_string())?;
            task.start_supervisor(&program)?;
            Ok::<_, String>(task)
        };
        match task.await {
            Ok(task) => task.run(orders).await,
            Err(reason) => refuse(orders, &ends, &reason).await,
        }
    });
    pod
}

/// Reports each rank as failed, because no pod could be made.
async fn refuse(mut orders: mpsc::Receiver<Order>, ends: &PodChannels, reason: &str) {
    while let Some(order) = orders.recv().await {
        let input = match order {
            Order::Spawn { rank, incarnation, .. } => {
                NlaInput::SpawnFailed { rank, incarnation, reason: reason.to_owned() }
            }
            Order::Prepare(episode, _) => {
                NlaInput::Prepared { episode, result: Err(reason.to_owned()) }
            }
            _ => continue,
        };
        let _ = ends.inputs.send(input).await;
    }
}

/// A pod that is prepared while the image of its ranks arrives. It ends when it is dropped.
pub struct IncomingPod {
    set: SetId,
    making: JoinSet<Option<Task>>,
}

impl IncomingPod {
    pub fn set(&self) -> &SetId {
        &self.set
    }

    /// The pod when it is ready; `None` after a failure.
    async fn ready(mut self) -> Option<Task> {
        self.making.join_next().await?.ok().flatten()
    }

    /// The same in time: what is not made by then ends with its namespaces.
    async fn ready_in_time(self) -> Option<Task> {
        tokio::time::timeout(ANSWER_WAIT, self.ready()).await.ok().flatten()
    }
}

/// Waits a bounded time until nothing is left of a pod.
async fn until_closed(done: Option<&mut watch::Receiver<()>>) {
    if let Some(done) = done {
        let _ = tokio::time::timeout(ANSWER_WAIT, done.changed()).await;
    }
}

/// An image on its way to this node.
#[derive(Clone, Debug)]
pub struct Copy {
    pub episode: Episode,
    pub set: SetId,
    pub ranks: Ranks,
}

/// Waits for the image (`copied`, its bytes) and prepares a pod meanwhile. [`NlaInput::CopyEnded`]
/// reports the image.
pub fn expect(
    spec: &NodeSpec,
    number: u32,
    ends: PodChannels,
    coming: Copy,
    copied: impl Future<Output = Result<u64, String>> + Send + 'static,
) -> IncomingPod {
    let set = coming.set.clone();
    let mut making = JoinSet::new();
    let spec = spec.clone();
    making.spawn(async move {
        let Copy { episode, set, ranks } = coming;
        let copied = async {
            let result = copied.await;
            let good = result.is_ok();
            let _ = ends.inputs.send(NlaInput::CopyEnded { episode, result }).await;
            good.then_some(()).ok_or("the image did not come")
        };
        let (pause, copied) = tokio::join!(made(&spec), copied);
        let task = async {
            copied?;
            Task::receive(&spec, number, pause?, &set, &ranks, ends.clone()).await
        };
        let task: Result<_, String> = task.await;
        // The restore tries again and reports the failure.
        task.inspect_err(|error| tracing::debug!(%error, "no pod was made in advance")).ok()
    });
    IncomingPod { set, making }
}

/// Namespaces for ranks to restore.
async fn made(spec: &NodeSpec) -> Result<PauseProcess, String> {
    let time = Stopwatch::start();
    let pause = PauseProcess::make(spec, false).await?;
    time.done(&spec.node, "make the pod's namespaces");
    Ok(pause)
}

/// Ranks to restore.
pub struct Restore {
    pub incarnation: u64,
    pub set: SetId,
    pub ranks: Ranks,
    /// The earlier pod, which must end first.
    pub before: Option<Pod>,
    /// The prepared pod.
    pub coming: Option<IncomingPod>,
    /// Ends when the image is where [`NodeSpec::image`] says.
    pub unpacked: Unpacking,
    /// Becomes true when the ranks are not wanted any more.
    pub cancelled: watch::Receiver<bool>,
}

/// Returns when the ranks are not wanted any more, with the reason.
async fn given_up(cancelled: &mut watch::Receiver<bool>) -> String {
    if cancelled.wait_for(|is| *is).await.is_err() {
        core::future::pending::<()>().await;
    }
    "another start has replaced it".to_owned()
}

/// Work that brings an image to its place.
pub type Unpacking = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Restores ranks from their image into a pod. Answered by [`NlaInput::Restored`].
pub fn restore(spec: &NodeSpec, number: u32, ends: PodChannels, comeback: Restore) -> Pod {
    let (pod, orders, alive) = Pod::new();
    let spec = spec.clone();
    tokio::spawn(async move {
        let _alive = alive;
        let incarnation = comeback.incarnation;
        let result = match restore_ranks(&spec, number, &ends, comeback).await {
            Ok((task, space)) => {
                let _ =
                    ends.inputs.send(NlaInput::Restored { incarnation, result: Ok(space) }).await;
                return task.run(orders).await;
            }
            Err(reason) => Err(reason),
        };
        let _ = ends.inputs.send(NlaInput::Restored { incarnation, result }).await;
    });
    pod
}

/// Ends a pod that is being made, and has no ranks.
async fn discard(made: Option<impl Future<Output = Option<Task>>>) {
    if let Some(made) = made
        && let Some(task) = made.await
    {
        task.discard().await;
    }
}

async fn restore_ranks(
    spec: &NodeSpec,
    number: u32,
    ends: &PodChannels,
    comeback: Restore,
) -> Result<(Task, String), String> {
    let Restore { incarnation, set, ranks, before, coming, unpacked, mut cancelled } = comeback;
    let mut before = before.map(Pod::end);
    let here = async { tokio::join!(until_closed(before.as_mut()), unpacked).1 };
    let here = tokio::select! {
        unpacked = here => unpacked,
        why = given_up(&mut cancelled) => Err(why),
    };
    let coming = coming.filter(|coming| coming.set == set);
    if let Err(why) = here {
        // Another node may restore the image of the earlier pod next, with its address.
        until_closed(before.as_mut()).await;
        discard(coming.map(IncomingPod::ready_in_time)).await;
        return Err(why);
    }
    let mut received = pin!(async {
        let ready = match coming {
            Some(coming) => coming.ready().await,
            None => None,
        };
        match ready {
            Some(task) => Ok(task),
            None => {
                let pause = made(spec).await?;
                Task::receive(spec, number, pause, &set, &ranks, ends.clone()).await
            }
        }
    });
    let made = tokio::select! {
        task = &mut received => Ok(task?),
        why = given_up(&mut cancelled) => Err(why),
    };
    let mut task = match made {
        Ok(task) => task,
        Err(why) => {
            let made = tokio::time::timeout(ANSWER_WAIT, received);
            discard(Some(async { made.await.ok()?.ok() })).await;
            return Err(why);
        }
    };
    let revived = tokio::select! {
        revived = task.revive(incarnation, &set, &ranks) => revived,
        why = given_up(&mut cancelled) => Err(why),
    };
    match revived {
        Ok(space) => Ok((task, space)),
        Err(why) => {
            task.discard().await;
            Err(why)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::backend::Choice;
    use ftb_launcher_core::names::{JobId, NodeName};
    use std::path::PathBuf;

    fn spec() -> NodeSpec {
        NodeSpec {
            job: JobId::new("job").unwrap(),
            node: NodeName::new("node01").unwrap(),
            size: 1,
            image_dir: PathBuf::from("/nowhere"),
            cwd: PathBuf::from("/"),
            stdin: false,
            backend: Choice::default(),
            pod: None,
            memory: None,
        }
    }

    /// Another start would wait for an image that is not wanted any more.
    #[tokio::test]
    async fn a_restore_that_is_cancelled_waits_for_the_earlier_pod_and_not_for_its_image() {
        let (before, _orders, alive) = Pod::new();
        let (inputs, mut from_pod) = mpsc::channel(1);
        let (frames, _output) = mpsc::channel(1);
        let (give_up, cancelled) = watch::channel(false);
        let (unpacking, begun) = tokio::sync::oneshot::channel();
        let unpacked: Unpacking = Box::pin(async move {
            let _ = unpacking.send(());
            core::future::pending().await
        });
        let (incarnation, set) = (7, SetId::of_checkpoint(Episode(3)));
        let (before, ranks) = (Some(before), Ranks::from_iter([0]));
        let comeback =
            Restore { incarnation, set, ranks, before, coming: None, unpacked, cancelled };
        let _pod = restore(&spec(), 1, PodChannels { inputs, frames }, comeback);
        begun.await.unwrap();
        give_up.send_replace(true);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(from_pod.try_recv().is_err(), "the earlier pod has its address");
        drop(alive);
        let answer = tokio::time::timeout(ftb_tests::cluster::PATIENCE, from_pod.recv()).await;
        let Some(NlaInput::Restored { incarnation: 7, result: Err(why) }) = answer.unwrap() else {
            panic!("another answer");
        };
        assert_eq!(why, "another start has replaced it");
    }
}
