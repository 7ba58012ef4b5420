//! The task that owns one pod: its namespaces, link, IPC, and the output and input of its ranks.
//! [`saving`] saves and restores it.

mod saving;

use super::ipc::{FromSupervisor, ToSupervisor};
use super::pause::PauseProcess;
use super::pipes::{pipes, read_messages, write_messages};
use super::stdin::{STDIN_RANK, Stdin};
use super::{DRAIN_WAIT, ORDERS_MAX, OUTPUT_BYTES, Order, PodChannels, connections, net};
use crate::backend::{Moment, nsenter_words};
use crate::images::ImagePath;
use crate::output::{self, Stream};
use crate::owner;
use crate::spec::NodeSpec;
use crate::timeline::Stopwatch;
use core::net::Ipv4Addr;
use ftb_launcher_core::message::ExitCause;
use ftb_launcher_core::names::{Episode, RANKS_PER_NODE_MAX, SetId};
use ftb_launcher_core::nla::NlaInput;
use ftb_launcher_core::progress::RankSample;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

pub(super) struct InPod {
    incarnation: u64,
    out: DuplexStream,
    err: DuplexStream,
}

pub(super) struct Task {
    spec: NodeSpec,
    ends: PodChannels,
    pause: PauseProcess,
    link: String,
    address: Ipv4Addr,
    ranks: BTreeMap<u32, InPod>,
    supervisor: u32,
    pipes: (u64, u64),
    to_supervisor: Option<mpsc::Sender<ToSupervisor>>,
    said: mpsc::Receiver<FromSupervisor>,
    /// Messages for the supervisor while it must not be written to.
    kept: Vec<ToSupervisor>,
    quiet: bool,
    /// The open preparation.
    preparing: Option<(Episode, Stopwatch)>,
    prepared: Option<SetId>,
    /// Copies the memory of running ranks; they are stopped afterwards.
    precopy: JoinSet<Option<SetId>>,
    /// The set whose image has begun that way.
    precopied: Option<SetId>,
    input: Stdin,
    /// What was heard of the open look at the ranks.
    samples: Vec<RankSample>,
    /// The failed end of the last rank, reported when nothing is left of the pod.
    last: Option<(u32, u64, ExitCause)>,
}

impl Task {
    /// Makes the link of a pod. `fresh`: it joins the bridge at once; the link of restored ranks
    /// joins it later.
    pub(super) async fn hold(
        spec: &NodeSpec,
        number: u32,
        pause: PauseProcess,
        address: Ipv4Addr,
        ends: PodChannels,
        fresh: bool,
    ) -> Result<Self, String> {
        let net = spec.pod.as_ref().ok_or("the node has no network for pods")?;
        let link = net::link_name(net.mark, spec.node.as_str(), number);
        let job = spec.job.as_str();
        if fresh && !net.own {
            net::join_where_free(net, job, pause.pid, &link, address).await?;
        } else {
            net::join(net, pause.pid, &link, address).await?;
            if fresh {
                net::open(net, job, &link).await?;
            }
        }
        if fresh {
            net::wait_up(net, pause.pid).await?;
        }
        let (_, said) = mpsc::channel(1);
        Ok(Self {
            spec: spec.clone(),
            ends,
            pause,
            link,
            address,
            ranks: BTreeMap::new(),
            supervisor: 0,
            pipes: (0, 0),
            to_supervisor: None,
            said,
            kept: Vec::new(),
            quiet: false,
            preparing: None,
            prepared: None,
            precopy: JoinSet::new(),
            precopied: None,
            input: Stdin::default(),
            samples: Vec::new(),
            last: None,
        })
    }

    /// Joins the link to the bridge.
    pub(super) async fn open(&self) -> Result<(), String> {
        let net = self.spec.pod.as_ref().ok_or("the node has no network for pods")?;
        net::open(net, self.spec.job.as_str(), &self.link).await
    }

    /// Asks the peers of the pod's connections for resets that were lost while it was off its
    /// bridge.
    pub(super) async fn probe(&self) {
        let pause = self.pause.pid;
        let probed = tokio::task::spawn_blocking(move || connections::probe(pause)).await;
        tracing::debug!(node = %self.spec.node, connections = probed.unwrap_or(0), "probed");
    }

    /// Starts the tasks of the pipes; returns the supervisor's ends.
    pub(super) fn connect(&mut self) -> Result<(OwnedFd, OwnedFd), String> {
        let pipes = pipes().map_err(|error| format!("no pipes for a pod: {error}"))?;
        let (to_supervisor, words) = mpsc::channel(ORDERS_MAX);
        let (to_task, said) = mpsc::channel(ORDERS_MAX);
        tokio::spawn(write_messages(pipes.writer, words));
        tokio::spawn(read_messages(pipes.reader, to_task));
        self.to_supervisor = Some(to_supervisor);
        self.said = said;
        self.pipes = pipes.inodes;
        Ok(pipes.theirs)
    }

    pub(super) fn start_supervisor(&mut self, program: &Path) -> Result<(), String> {
        let (input, output) = self.connect()?;
        let holder = self.spec.pod.as_ref().and_then(|net| net.holder);
        let mut command = Command::from(owner::command(holder, "nsenter"));
        command.args(nsenter_words(holder, self.pause.pid));
        command.arg(program).arg("supervise").args(holder.map(|_| "--user")).current_dir("/");
        command.stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::null());
        command.spawn().map(drop).map_err(|error| format!("cannot enter the pod: {error}"))
    }

    pub(super) fn add(&mut self, rank: u32, incarnation: u64) {
        let stream = |stream| {
            let (ours, theirs) = tokio::io::duplex(OUTPUT_BYTES);
            tokio::spawn(output::read(rank, stream, theirs, self.ends.frames.clone()));
            ours
        };
        let (out, err) = (stream(Stream::Out), stream(Stream::Err));
        self.ranks.insert(rank, InPod { incarnation, out, err });
    }

    /// Runs until the ranks have ended, or the agent drops the pod.
    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        loop {
            tokio::select! {
                biased;
                said = self.said.recv() => match said {
                    Some(said) => self.hear(said).await,
                    None => break,
                },
                order = orders.recv() => match order {
                    Some(order) => {
                        if self.execute(order).await {
                            break;
                        }
                    }
                    None => break,
                },
                Some(done) = self.precopy.join_next() => {
                    self.precopied = done.ok().flatten();
                    self.hold_ranks().await;
                }
                bytes = self.input.next(), if !self.quiet => {
                    self.say(ToSupervisor::Input { rank: STDIN_RANK, bytes }).await;
                }
            }
        }
        self.end().await;
    }

    /// Ends the pod. Ranks without another report count as killed. The failure of a last rank is
    /// reported when the address is free, because an image of this pod may be restored next.
    async fn end(mut self) {
        drop(self.to_supervisor.take());
        let net = self.spec.pod.clone();
        if let Some(net) = &net
            && let Err(error) = net::close(net, &self.link).await
        {
            tracing::debug!(%error, "the link of a pod has gone before it");
        }
        self.pause.end().await;
        if let Some((rank, incarnation, how)) = self.last.take() {
            self.ended(rank, incarnation, how).await;
        }
        for (rank, InPod { incarnation, .. }) in core::mem::take(&mut self.ranks) {
            let how = ExitCause::Signal(nix::libc::SIGKILL);
            self.ended(rank, incarnation, how).await;
        }
        if let Some(net) = net {
            let _ = tokio::task::spawn_blocking(move || net::remove_bridge(&net)).await;
        }
    }

    /// Ends a pod whose ranks were not restored; nothing of them is reported.
    pub(super) async fn discard(mut self) {
        self.ranks.clear();
        self.end().await;
    }

    async fn ended(&self, rank: u32, incarnation: u64, how: ExitCause) {
        let input = NlaInput::Ended { rank, incarnation, how, image: None };
        let _ = self.ends.inputs.send(input).await;
    }

    pub(super) async fn hear(&mut self, said: FromSupervisor) {
        match said {
            FromSupervisor::Begun(pid) => self.supervisor = pid,
            FromSupervisor::Output { rank, stream, bytes } => {
                if let Some(of) = self.ranks.get_mut(&rank) {
                    let pipe = if stream == Stream::Out { &mut of.out } else { &mut of.err };
                    let _ = pipe.write_all(&bytes).await;
                }
            }
            FromSupervisor::Pmi { rank, text } => {
                if let Some(incarnation) = self.ranks.get(&rank).map(|of| of.incarnation) {
                    let line = String::from_utf8_lossy(&text).into_owned();
                    let input = NlaInput::PmiLine { rank, incarnation, line };
                    let _ = self.ends.inputs.send(input).await;
                }
            }
            FromSupervisor::Ended(rank, how) => {
                let Some(InPod { incarnation, .. }) = self.ranks.remove(&rank) else {
                    return;
                };
                if rank == STDIN_RANK {
                    self.input = Stdin::default();
                }
                if self.ranks.is_empty() && how != ExitCause::Exit(0) {
                    // The supervisor ends with its input, and the pod with the supervisor.
                    self.last = Some((rank, incarnation, how));
                    self.to_supervisor = None;
                } else {
                    // A pod whose ranks have ended with code 0 stays until the end of the job. Its
                    // kernel repeats unacknowledged data, and answers peers whose connection was
                    // reset.
                    self.ended(rank, incarnation, how).await;
                }
            }
            FromSupervisor::Failed(rank, reason) => {
                if let Some(InPod { incarnation, .. }) = self.ranks.remove(&rank) {
                    let input = NlaInput::SpawnFailed { rank, incarnation, reason };
                    let _ = self.ends.inputs.send(input).await;
                }
            }
            FromSupervisor::Sampled(rank, sample) => {
                if let Some(incarnation) = self.ranks.get(&rank).map(|of| of.incarnation)
                    && self.samples.len() < RANKS_PER_NODE_MAX
                {
                    self.samples.push(RankSample { rank, incarnation, sample: *sample });
                }
            }
            FromSupervisor::SampledAll => {
                let samples = core::mem::take(&mut self.samples);
                let _ = self.ends.inputs.send(NlaInput::Sampled(samples)).await;
            }
            FromSupervisor::Worked(rank, activity) => {
                if let Some(incarnation) = self.ranks.get(&rank).map(|of| of.incarnation) {
                    let input = NlaInput::Worked { rank, incarnation, activity };
                    let _ = self.ends.inputs.send(input).await;
                }
            }
            FromSupervisor::Held(number) => {
                if let Some((episode, step)) = self.preparing.take_if(|(of, _)| of.0 == number) {
                    step.done(&self.spec.node, "stop the ranks");
                    let result = self.settle().await;
                    let _ = self.ends.inputs.send(NlaInput::Prepared { episode, result }).await;
                }
            }
            FromSupervisor::Took(bytes) => self.input.took(bytes),
            FromSupervisor::Synced => {}
        }
    }

    pub(super) async fn say(&mut self, word: ToSupervisor) {
        if self.quiet {
            return self.kept.push(word);
        }
        if let Some(to_supervisor) = &self.to_supervisor {
            let _ = to_supervisor.send(word).await;
        }
    }

    /// Executes an order; `true`: the pod is over.
    async fn execute(&mut self, order: Order) -> bool {
        match order {
            Order::Spawn { rank, incarnation, argv, env } => {
                self.add(rank, incarnation);
                let cwd = self.spec.cwd.clone();
                let stdin = self.spec.stdin && rank == STDIN_RANK;
                self.say(ToSupervisor::Spawn { rank, argv, env, cwd, stdin }).await;
            }
            Order::Stdin(input) => self.input = Stdin::begin(input),
            Order::Tell(word) => self.say(word).await,
            Order::Prepare(episode, set) => {
                self.preparing = Some((episode, Stopwatch::start()));
                let moves = set.migration().is_some();
                if moves && self.precopied.as_ref() != Some(&set) && self.precopy.is_empty() {
                    self.begin_precopy(set.clone());
                }
                self.prepared = Some(set);
                if self.precopy.is_empty() {
                    self.hold_ranks().await;
                }
            }
            Order::Save { episode, set, leave, space, room } => {
                let result = self.save(&set, leave, &space, room).await;
                let gone = leave && result.is_ok();
                if gone {
                    self.ranks.clear();
                    self.input = Stdin::default();
                }
                let _ = self.ends.inputs.send(NlaInput::Saved { episode, result }).await;
                return gone;
            }
            Order::Release => self.release().await,
        }
        false
    }

    /// Stops the ranks, if a preparation is open.
    async fn hold_ranks(&mut self) {
        if let Some((episode, step)) = &mut self.preparing {
            *step = Stopwatch::start();
            let word = ToSupervisor::Hold(episode.0);
            self.say(word).await;
        }
    }

    /// The ranks are stopped. Their data arrives and is acknowledged while the pod is on its
    /// bridge. A restored connection would repeat it only after a second.
    async fn settle(&self) -> Result<(), String> {
        let Some(set) = &self.prepared else {
            return Err("it was cancelled".to_owned());
        };
        let step = Stopwatch::start();
        tokio::time::sleep(DRAIN_WAIT).await;
        step.done(&self.spec.node, "let what they have sent arrive");
        self.steps(Moment::Prepare, set, &ImagePath::none()).await
    }

    async fn release(&mut self) {
        self.preparing = None;
        if let Some(set) = self.prepared.take()
            && self.steps(Moment::Release, &set, &ImagePath::none()).await.is_err()
            // While all pods were cut off, the bridge had no ports and may have been removed.
            && let Err(error) = self.open().await
        {
            tracing::warn!(node = %self.spec.node, %error, "the ranks may not go on");
        }
        self.probe().await;
        self.quiet = false;
        self.say(ToSupervisor::Go).await;
        for word in core::mem::take(&mut self.kept) {
            self.say(word).await;
        }
    }
}
