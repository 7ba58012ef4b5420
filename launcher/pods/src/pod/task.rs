//! The task that has everything of one pod: its namespaces, its link, the words from and to its tender, the ranks'
//! output and input. How it is saved and brought back is in [`super::saving`].

use super::feed::{FED_RANK, Feed};
use super::holder::Holder;
use super::pipes::{pipes, read_words, write_words};
use super::words::{Said, ToTender};
use super::{DRAIN_WAIT, Ends, ORDERS_MAX, OUTPUT_BYTES, Order, connections, net};
use crate::backend::Moment;
use crate::output::{self, Stream};
use crate::spec::NodeSpec;
use crate::timeline::Step;
use core::net::Ipv4Addr;
use ftb_launcher_core::message::How;
use ftb_launcher_core::names::{Episode, SetId};
use ftb_launcher_core::nla::Input;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// A rank in the pod.
pub(super) struct InPod {
    incarnation: u64,
    out: DuplexStream,
    err: DuplexStream,
}

/// Everything of one pod.
pub(super) struct Task {
    pub(super) spec: NodeSpec,
    pub(super) ends: Ends,
    pub(super) holder: Holder,
    pub(super) link: String,
    pub(super) address: Ipv4Addr,
    pub(super) ranks: BTreeMap<u32, InPod>,
    pub(super) tender: u32,
    pub(super) pipes: (u64, u64),
    pub(super) to_tender: Option<mpsc::Sender<ToTender>>,
    pub(super) said: mpsc::Receiver<Said>,
    /// What comes for the tender while it must not be written to.
    pub(super) kept: Vec<ToTender>,
    pub(super) quiet: bool,
    /// The answer that a preparation waits for.
    pub(super) preparing: Option<(Episode, Step)>,
    pub(super) prepared: Option<SetId>,
    /// The memory of the ranks on its way while they work; the ranks are stopped when it is over.
    pub(super) precopy: JoinSet<Option<SetId>>,
    /// The set whose image has begun so.
    pub(super) precopied: Option<SetId>,
    /// Standard input on its way to rank 0.
    pub(super) input: Feed,
    /// The end of the last rank, where it has failed: told when nothing is left of the pod.
    pub(super) last: Option<(u32, u64, How)>,
}

impl Task {
    /// Makes the link of a pod. That of ranks that come back leads nowhere yet; `fresh`: that of ranks that start does.
    pub(super) async fn hold(
        spec: &NodeSpec,
        number: u32,
        holder: Holder,
        address: Ipv4Addr,
        ends: Ends,
        fresh: bool,
    ) -> Result<Self, String> {
        let net = spec.pod.as_ref().ok_or("the node has no network for pods")?;
        let link = net::link_name(net.mark, spec.node.as_str(), number);
        let job = spec.job.as_str();
        if fresh && !net.own {
            net::join_where_free(net, job, holder.pid, &link, address).await?;
        } else {
            net::join(net, holder.pid, &link, address).await?;
            if fresh {
                net::open(net, job, &link).await?;
            }
        }
        if fresh {
            net::wait_up(holder.pid).await?;
        }
        let (_, said) = mpsc::channel(1);
        Ok(Self {
            spec: spec.clone(),
            ends,
            holder,
            link,
            address,
            ranks: BTreeMap::new(),
            tender: 0,
            pipes: (0, 0),
            to_tender: None,
            said,
            kept: Vec::new(),
            quiet: false,
            preparing: None,
            prepared: None,
            precopy: JoinSet::new(),
            precopied: None,
            input: Feed::default(),
            last: None,
        })
    }

    /// Lets the pod talk.
    pub(super) async fn open(&self) -> Result<(), String> {
        let net = self.spec.pod.as_ref().ok_or("the node has no network for pods")?;
        net::open(net, self.spec.job.as_str(), &self.link).await
    }

    /// Asks the peers of the pod's connections for resets that were sent while it was off its bridge.
    pub(super) async fn probe(&self) {
        let holder = self.holder.pid;
        let probed = tokio::task::spawn_blocking(move || connections::probe(holder)).await;
        tracing::debug!(node = %self.spec.node, connections = probed.unwrap_or(0), "probed");
    }

    /// Starts the carriers of words; the tender's ends of the pipes are returned.
    pub(super) fn connect(&mut self) -> Result<(OwnedFd, OwnedFd), String> {
        let pipes = pipes().map_err(|error| format!("no pipes for a pod: {error}"))?;
        let (to_tender, words) = mpsc::channel(ORDERS_MAX);
        let (to_task, said) = mpsc::channel(ORDERS_MAX);
        tokio::spawn(write_words(pipes.writer, words));
        tokio::spawn(read_words(pipes.reader, to_task));
        self.to_tender = Some(to_tender);
        self.said = said;
        self.pipes = pipes.inodes;
        Ok(pipes.theirs)
    }

    pub(super) fn start_tender(&mut self, program: &Path) -> Result<(), String> {
        let (input, output) = self.connect()?;
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.holder.pid.to_string(), "--mount", "--net", "--pid", "--"]);
        command.arg(program).arg("tend").current_dir("/");
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

    /// Until the pod ends: by itself, because its ranks have, or because nobody wants it any more.
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
                        if self.obey(order).await {
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
                    self.say(ToTender::Input { rank: FED_RANK, bytes }).await;
                }
            }
        }
        self.end().await;
    }

    /// Everything in the pod dies; ranks of which nothing else was told are told as killed. The word that a last rank has
    /// failed comes when the address is free: somebody may be about to bring an image of this pod back.
    async fn end(mut self) {
        drop(self.to_tender.take());
        let net = self.spec.pod.clone();
        if let Err(error) = net::close(&self.link).await {
            tracing::debug!(%error, "the link of a pod has gone before it");
        }
        self.holder.end().await;
        if let Some((rank, incarnation, how)) = self.last.take() {
            self.ended(rank, incarnation, how).await;
        }
        for (rank, InPod { incarnation, .. }) in core::mem::take(&mut self.ranks) {
            let how = How::Signal(nix::libc::SIGKILL);
            self.ended(rank, incarnation, how).await;
        }
        if let Some(net) = net {
            let _ = tokio::task::spawn_blocking(move || net::remove_bridge(&net)).await;
        }
    }

    async fn ended(&self, rank: u32, incarnation: u64, how: How) {
        let input = Input::Ended { rank, incarnation, how, image: None };
        let _ = self.ends.inputs.send(input).await;
    }

    pub(super) async fn hear(&mut self, said: Said) {
        match said {
            Said::Begun(pid) => self.tender = pid,
            Said::Output(rank, stream, bytes) => {
                if let Some(of) = self.ranks.get_mut(&rank) {
                    let pipe = if stream == Stream::Out { &mut of.out } else { &mut of.err };
                    let _ = pipe.write_all(&bytes).await;
                }
            }
            Said::Pmi(rank, line) => {
                if let Some(incarnation) = self.ranks.get(&rank).map(|of| of.incarnation) {
                    let input = Input::PmiLine { rank, incarnation, line };
                    let _ = self.ends.inputs.send(input).await;
                }
            }
            Said::Ended(rank, how) => {
                let Some(InPod { incarnation, .. }) = self.ranks.remove(&rank) else {
                    return;
                };
                if rank == FED_RANK {
                    self.input = Feed::default();
                }
                if self.ranks.is_empty() && how != How::Exit(0) {
                    // The tender ends with its input, and the pod with the tender.
                    self.last = Some((rank, incarnation, how));
                    self.to_tender = None;
                } else {
                    // A pod whose ranks have ended well stays until the job is over. Its kernel repeats what a peer has
                    // not got yet, and answers a peer that asks for a connection that was reset.
                    self.ended(rank, incarnation, how).await;
                }
            }
            Said::Failed(rank, reason) => {
                if let Some(InPod { incarnation, .. }) = self.ranks.remove(&rank) {
                    let input = Input::SpawnFailed { rank, incarnation, reason };
                    let _ = self.ends.inputs.send(input).await;
                }
            }
            Said::Worked(rank, activity) => {
                if let Some(incarnation) = self.ranks.get(&rank).map(|of| of.incarnation) {
                    let input = Input::Worked { rank, incarnation, activity };
                    let _ = self.ends.inputs.send(input).await;
                }
            }
            Said::Held(number) => {
                if let Some((episode, step)) = self.preparing.take_if(|(of, _)| of.0 == number) {
                    step.done(&self.spec.node, "stop the ranks");
                    let result = self.settle().await;
                    let _ = self.ends.inputs.send(Input::Prepared { episode, result }).await;
                }
            }
            Said::Took(bytes) => self.input.took(bytes),
            Said::Synced => {}
        }
    }

    pub(super) async fn say(&mut self, word: ToTender) {
        if self.quiet {
            return self.kept.push(word);
        }
        if let Some(to_tender) = &self.to_tender {
            let _ = to_tender.send(word).await;
        }
    }

    /// Does what the agent wants; `true` when the pod is over with that.
    async fn obey(&mut self, order: Order) -> bool {
        match order {
            Order::Spawn { rank, incarnation, argv, env } => {
                self.add(rank, incarnation);
                let cwd = self.spec.cwd.clone();
                let fed = self.spec.stdin && rank == FED_RANK;
                self.say(ToTender::Spawn { rank, argv, env, cwd, fed }).await;
            }
            Order::Feed(connecting) => self.input = Feed::begin(connecting),
            Order::Tell(word) => self.say(word).await,
            Order::Prepare(episode, set) => {
                self.preparing = Some((episode, Step::begin()));
                let moves = set.migration().is_some();
                if moves && self.precopied.as_ref() != Some(&set) && self.precopy.is_empty() {
                    self.begin_precopy(set.clone());
                }
                self.prepared = Some(set);
                if self.precopy.is_empty() {
                    self.hold_ranks().await;
                }
            }
            Order::Save { episode, set, leave, space } => {
                let result = self.save(&set, leave, &space).await;
                let gone = leave && result.is_ok();
                if gone {
                    self.ranks.clear();
                    self.input = Feed::default();
                }
                let _ = self.ends.inputs.send(Input::Saved { episode, result }).await;
                return gone;
            }
            Order::Release => self.release().await,
        }
        false
    }

    /// Stops the ranks that are to be saved, if that is still wanted.
    async fn hold_ranks(&mut self) {
        if let Some((episode, step)) = &mut self.preparing {
            *step = Step::begin();
            let word = ToTender::Hold(episode.0);
            self.say(word).await;
        }
    }

    /// The ranks stand still: what they have sent arrives and is acknowledged while the pod still can talk, so that nobody
    /// need send it again. (A connection that is brought back would do that only after a second.)
    async fn settle(&self) -> Result<(), String> {
        let Some(set) = &self.prepared else {
            return Err("it was called off".to_owned());
        };
        let step = Step::begin();
        tokio::time::sleep(DRAIN_WAIT).await;
        step.done(&self.spec.node, "let what they have sent arrive");
        self.steps(Moment::Prepare, set, Path::new("/")).await
    }

    async fn release(&mut self) {
        self.preparing = None;
        if let Some(set) = self.prepared.take()
            && self.steps(Moment::Release, &set, Path::new("/")).await.is_err()
            // While all pods were cut off the bridge looked left, and somebody may have removed it: it is made again.
            && let Err(error) = self.open().await
        {
            tracing::warn!(node = %self.spec.node, %error, "the ranks may not go on");
        }
        self.probe().await;
        self.quiet = false;
        self.say(ToTender::Go).await;
        for word in core::mem::take(&mut self.kept) {
            self.say(word).await;
        }
    }
}
