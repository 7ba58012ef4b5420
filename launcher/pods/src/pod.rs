//! The pod of a node: its ranks, with process ids, mounts, IPC and a network address of their own, so that they can be
//! saved and moved as a whole, by processes that know nothing of it.
//!
//! A task of its own has everything of one pod: the holder of its namespaces, the two pipes to the tender inside
//! ([`tend`]), the link. Nothing of it outlives the agent: the holder ends with its standard input.

mod activity;
mod connections;
mod feed;
mod holder;
mod image;
pub mod net;
mod pipes;
mod saving;
mod stop;
mod task;
pub mod tend;
pub mod words;

use crate::input::JobInput;
use crate::output::Frame;
use crate::spec::NodeSpec;
use crate::timeline::Step;
use core::time::Duration;
use ftb_launcher_core::names::{Episode, Ranks, SetId};
use ftb_launcher_core::nla::Input;
use holder::Holder;
use std::io;
use task::Task;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use words::ToTender;

/// Orders of the agent that wait for the pod's task, and words of the tender that wait for it.
const ORDERS_MAX: usize = 1024;
/// How long the tender may take to answer: it only has to finish what it is at.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// How long the namespaces may take.
const HOLDER_WAIT: Duration = Duration::from_secs(10);
/// How long what stopped ranks have sent may take to arrive.
const DRAIN_WAIT: Duration = Duration::from_millis(20);
/// Output of a rank on its way through the agent.
const OUTPUT_BYTES: usize = 64 * 1024;

/// What the agent wants of a pod.
#[derive(Debug)]
pub enum Order {
    /// Start a rank.
    Spawn {
        /// Which.
        rank: u32,
        /// Of which start.
        incarnation: u64,
        /// Program and arguments.
        argv: Vec<String>,
        /// Its environment.
        env: Vec<(String, String)>,
    },
    /// Give rank 0 the standard input of the job, when this connection to the launcher is made.
    Feed(JoinSet<io::Result<JobInput>>),
    /// To the tender, as it is.
    Tell(ToTender),
    /// See [`ftb_launcher_core::nla::Output::Prepare`].
    Prepare(Episode, SetId),
    /// See [`ftb_launcher_core::nla::Output::Save`].
    Save {
        /// The episode.
        episode: Episode,
        /// Name of the image.
        set: SetId,
        /// The ranks are gone then.
        leave: bool,
        /// The PMI key-value space.
        space: String,
    },
    /// See [`ftb_launcher_core::nla::Output::Release`].
    Release,
}

/// The agent's end of a pod. When the last one is dropped the pod ends with everything in it.
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

    /// Tells the pod's task. One that has ended has told so already.
    pub async fn order(&self, order: Order) {
        let _ = self.orders.send(order).await;
    }

    /// Waits until nothing is left of it, within reason. Nobody else may hold it.
    pub async fn ended(self) {
        let Self { orders, mut done } = self;
        drop(orders);
        let _ = tokio::time::timeout(ANSWER_WAIT, done.changed()).await;
    }

    /// Whether it has ended.
    pub fn over(&self) -> bool {
        self.orders.is_closed()
    }
}

/// Where words of a pod go.
#[derive(Clone, Debug)]
pub struct Ends {
    /// To the agent's core.
    pub inputs: mpsc::Sender<Input>,
    /// Output of the ranks.
    pub frames: mpsc::Sender<Frame>,
}

/// Begins a pod without ranks. What goes wrong is told for the first rank that is to start in it.
pub fn begin(spec: &NodeSpec, number: u32, ends: Ends) -> Pod {
    let (pod, orders, alive) = Pod::new();
    let spec = spec.clone();
    tokio::spawn(async move {
        let _alive = alive;
        let task = async {
            let address = spec
                .pod
                .as_ref()
                .map(|net| net.address)
                .ok_or("the node has no network for pods")?;
            let holder = Holder::make(true).await?;
            let mut task = Task::hold(&spec, number, holder, address, ends.clone(), true).await?;
            let program = std::env::current_exe().map_err(|error| error.to_string())?;
            task.start_tender(&program)?;
            Ok::<_, String>(task)
        };
        match task.await {
            Ok(task) => task.run(orders).await,
            Err(reason) => refuse(orders, &ends, &reason).await,
        }
    });
    pod
}

/// No pod could be made: each rank that is to start there is told as failed.
async fn refuse(mut orders: mpsc::Receiver<Order>, ends: &Ends, reason: &str) {
    while let Some(order) = orders.recv().await {
        let input = match order {
            Order::Spawn { rank, incarnation, .. } => {
                Input::SpawnFailed { rank, incarnation, reason: reason.to_owned() }
            }
            Order::Prepare(episode, _) => {
                Input::Prepared { episode, result: Err(reason.to_owned()) }
            }
            _ => continue,
        };
        let _ = ends.inputs.send(input).await;
    }
}

/// A pod that is made ready while the image of its ranks is on its way here. Nothing is left of it when it is dropped.
pub struct Coming {
    set: SetId,
    making: JoinSet<Option<Task>>,
}

impl Coming {
    /// For which set.
    pub fn set(&self) -> &SetId {
        &self.set
    }

    /// Its pod, when it is ready; none where that has failed.
    async fn ready(mut self) -> Option<Task> {
        self.making.join_next().await?.ok().flatten()
    }
}

/// An image on its way to this node.
#[derive(Clone, Debug)]
pub struct Copy {
    /// The episode that needs it.
    pub episode: Episode,
    /// Which set.
    pub set: SetId,
    /// Its ranks.
    pub ranks: Ranks,
}

/// Takes the image of ranks here (`copied`, its bytes), and makes a pod for them meanwhile. The answer, [`Input::CopyEnded`], comes when the image
/// is here.
pub fn expect(
    spec: &NodeSpec,
    number: u32,
    ends: Ends,
    coming: Copy,
    copied: impl Future<Output = Result<u64, String>> + Send + 'static,
) -> Coming {
    let set = coming.set.clone();
    let mut making = JoinSet::new();
    let spec = spec.clone();
    making.spawn(async move {
        let Copy { episode, set, ranks } = coming;
        let copied = async {
            let result = copied.await;
            let good = result.is_ok();
            let _ = ends.inputs.send(Input::CopyEnded { episode, result }).await;
            good.then_some(()).ok_or("the image did not come")
        };
        let (holder, copied) = tokio::join!(made(&spec), copied);
        let task = async {
            copied?;
            Task::receive(&spec, number, holder?, &set, &ranks, ends.clone()).await
        };
        let task: Result<_, String> = task.await;
        // Tried again when the ranks are to come back, and told then.
        task.inspect_err(|error| tracing::debug!(%error, "no pod was made in advance")).ok()
    });
    Coming { set, making }
}

/// Namespaces for ranks that come back.
async fn made(spec: &NodeSpec) -> Result<Holder, String> {
    let time = Step::begin();
    let holder = Holder::make(false).await?;
    time.done(&spec.node, "make the pod's namespaces");
    Ok(holder)
}

/// Ranks that are to come back.
pub struct Comeback {
    /// Of which start.
    pub incarnation: u64,
    /// From which set.
    pub set: SetId,
    /// Which.
    pub ranks: Ranks,
    /// The pod that must be gone first.
    pub before: Option<Pod>,
    /// What was made ready for them.
    pub coming: Option<Coming>,
}

/// Brings ranks back from their image into a pod. The answer is [`Input::Restored`].
pub fn restore(spec: &NodeSpec, number: u32, ends: Ends, comeback: Comeback) -> Pod {
    let (pod, orders, alive) = Pod::new();
    let spec = spec.clone();
    tokio::spawn(async move {
        let _alive = alive;
        let incarnation = comeback.incarnation;
        let result = match come_back(&spec, number, &ends, comeback).await {
            Ok((task, space)) => {
                let _ = ends.inputs.send(Input::Restored { incarnation, result: Ok(space) }).await;
                return task.run(orders).await;
            }
            Err(reason) => Err(reason),
        };
        let _ = ends.inputs.send(Input::Restored { incarnation, result }).await;
    });
    pod
}

async fn come_back(
    spec: &NodeSpec,
    number: u32,
    ends: &Ends,
    comeback: Comeback,
) -> Result<(Task, String), String> {
    let Comeback { incarnation, set, ranks, before, coming } = comeback;
    if let Some(before) = before {
        before.ended().await;
    }
    let ready = match coming.filter(|coming| coming.set == set) {
        Some(coming) => coming.ready().await,
        None => None,
    };
    let mut task = match ready {
        Some(task) => task,
        None => {
            let holder = made(spec).await?;
            Task::receive(spec, number, holder, &set, &ranks, ends.clone()).await?
        }
    };
    let space = task.revive(incarnation, &set, &ranks).await?;
    Ok((task, space))
}
