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
use core::pin::Pin;
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
        let Self { orders, mut done } = self;
        drop(orders);
        let _ = tokio::time::timeout(ANSWER_WAIT, done.changed()).await;
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

async fn restore_ranks(
    spec: &NodeSpec,
    number: u32,
    ends: &PodChannels,
    comeback: Restore,
) -> Result<(Task, String), String> {
    let Restore { incarnation, set, ranks, before, coming, unpacked, mut cancelled } = comeback;
    let ended = async {
        if let Some(before) = before {
            before.ended().await;
        }
    };
    let ((), unpacked) = tokio::join!(ended, unpacked);
    unpacked?;
    let received = async {
        let ready = match coming.filter(|coming| coming.set == set) {
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
    };
    let mut task = tokio::select! {
        task = received => task?,
        why = given_up(&mut cancelled) => return Err(why),
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
