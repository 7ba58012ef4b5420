//! The process of the node launch agent. It starts ranks, and carries inputs to the core and
//! outputs from it. All on one thread, because the kernel ties "die with your parent" to a
//! thread.

mod joining;
mod warm;

pub(super) use joining::listen;

use super::addresses::{self, Addresses};
use super::backplane::{self, EventGate, Received};
use super::clock::Clock;
use super::guard::{self, Guard};
use super::hang_conditions;
use super::listener;
use super::loops::Loops;
use super::memory::{self, NodeMemory, peers};
use super::nodedir;
use super::output;
use super::parking::ParkingLot;
use super::ranks::{self, RankOutput, Running};
use super::refused::Reason;
use super::running::RunningRank;
use super::spec::{Handover, NlaSpec, SPEC_BYTES_MAX, StartMethod};
use super::streams::InputSlot;
use super::transfer;
use super::{starter, streams};
use core::time::Duration;
use ftb_client::Client;
use ftb_launcher_core::link::cipher::Secret;
use ftb_launcher_core::link::packet::FromNode;
use ftb_launcher_core::link::router::LinkInput;
use ftb_launcher_core::memory::GroupTask;
use ftb_launcher_core::message::{FromJl, FromNla, NlaMessage};
use ftb_launcher_core::names::{Episode, NodeName, Ranks, SetId};
use ftb_launcher_core::nla::{Nla, NlaInput, NlaOutput, Spawn};
use ftb_launcher_core::packet::PacketHead as _;
use ftb_launcher_core::progress::{RankSample, Sample};
use ftb_launcher_core::wire;
use ftb_launcher_pods::activity::Sampler;
use ftb_launcher_pods::backend::{Choice, Criu, Moment};
use ftb_launcher_pods::images;
use ftb_launcher_pods::input::JobInput;
use ftb_launcher_pods::installed;
use ftb_launcher_pods::memory::MemoryRoot;
use ftb_launcher_pods::output::Frame;
use ftb_launcher_pods::owner;
use ftb_launcher_pods::pod::ipc::ToSupervisor;
use ftb_launcher_pods::pod::{self, IncomingPod, Order, Pod, PodChannels, Restore};
use ftb_launcher_pods::rank_hooks::{self, Member};
use ftb_launcher_pods::spec::NodeSpec;
use joining::{Joined, attach, join, report, stand_in};
use std::collections::BTreeMap;
use std::fs::File;
use tokio::io::AsyncReadExt as _;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle};

/// Most inputs that wait for the core; further ones block ranks and copies.
const INPUTS_MAX: usize = 1024;
/// Most messages of other launch agents that wait to go up.
const WORDS_MAX: usize = 256;
/// Time at the end for messages to arrive, and for the nodes behind this one to leave.
const LINKS_WAIT: Duration = Duration::from_secs(2);

/// Interval at which a second agent checks whether the first lives.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Pause before a JL is announced again.
pub(super) const ANNOUNCE_EVERY: Duration = Duration::from_secs(2);

struct LaunchAgent {
    spec: NlaSpec,
    core: Nla,
    clock: Clock,
    gate: EventGate,
    client: Client,
    running: BTreeMap<u32, (u64, RunningRank)>,
    /// The pod of the ranks with its start.
    pod: Option<(u64, Pod)>,
    pods: u32,
    /// The pod that is prepared for arriving ranks.
    coming: Option<IncomingPod>,
    inputs: mpsc::Sender<NlaInput>,
    frames: mpsc::Sender<Frame>,
    guard: Guard,
    /// To the JL and the nodes behind this one.
    to_jl: mpsc::Sender<LinkInput>,
    path: watch::Sender<output::Uplink>,
    /// Standard input of rank 0.
    input: InputSlot,
    /// The address of the JL.
    launcher: watch::Receiver<String>,
    /// The addresses of nodes with images for this one.
    addresses: watch::Receiver<Addresses>,
    /// Of this one.
    address: String,
    /// Images in memory, if the job has them.
    memory: Option<NodeMemory>,
    /// The ranks that save themselves in `ftb_loop`, if the job has such.
    loops: Option<Loops>,
    /// Processes that wait for a rank to replace.
    parking: ParkingLot,
    /// The place of those of pods.
    pod_images: Option<MemoryRoot>,
    /// The set in memory that the pod is being saved for.
    saving: Option<SetId>,
    /// Gives up the last restore, that of this incarnation.
    give_up: Option<(u64, watch::Sender<bool>)>,
    /// The task that carries standard input to rank 0.
    feeding: Option<AbortHandle>,
    sampler: Sampler,
    /// The set of the open preparation.
    prepared_set: Option<SetId>,
    leaving: bool,
}

/// Reads the specification from standard input. `of_all`: the name of this node, if all agents get
/// the same.
///
/// # Errors
/// It is missing or invalid.
pub async fn read_handover(of_all: Option<&str>) -> Result<Handover, String> {
    let mut packet = Vec::new();
    let read = tokio::io::stdin().take(SPEC_BYTES_MAX).read_to_end(&mut packet).await;
    read.map_err(|error| format!("cannot read the specification: {error}"))?;
    let handover = Handover::decode(packet.into())
        .map_err(|error| format!("the specification is wrong: {error}"))?;
    match of_all {
        None => Ok(handover),
        Some(name) => {
            let node = NodeName::new(name).map_err(|error| error.to_string())?;
            handover.for_one_of_all(&node)
        }
    }
}

/// Runs until the job ends on this node.
///
/// # Errors
/// No agent, no directory, no socket.
pub async fn run(handover: Handover) -> Result<(), String> {
    let Handover { mut spec, behind, starting } = handover;
    if starting.means != StartMethod::Local {
        // On the launcher's own host the launcher has checked it.
        installed::check(&spec.backend)?;
    }
    listener::allow_many_files();
    let (budget, clock) = (memory_budget(&spec)?, Clock::start());
    let (say, words) = mpsc::channel(WORDS_MAX);
    spec.image_dir = nodedir::placed(&spec.image_dir)?;
    let (listener, address) = listen(&spec.listen, &spec.address).await?;
    let own_dir = nodedir::own(&spec.image_dir, &address).await?;
    if !behind.is_empty() {
        let mut theirs = spec.clone();
        theirs.uplinks.splice(..0, own_dir.is_ok().then(|| address.clone()));
        tokio::spawn(starter::run(starting, theirs, behind, clock, say));
    }
    let own_dir = match own_dir {
        Ok(own) => own,
        Err(pid) => return stand_in(&spec, pid, words).await,
    };
    let (clearing, _holder) = (clear_left(&spec), keep_holder(&spec)?);
    let (client, mut heard, gate) = attach(&spec, clock).await?;
    let (memory, pod_images) = node_memory(&spec, budget).await?;
    let Joined { to_jl, path, input, launcher, addresses, target, mut from_jl, links } =
        join(&spec, memory.clone(), listener, address.clone(), clock);
    report(&spec.node, std::process::id(), words);
    let (frames, frames_out) = mpsc::channel(output::FRAMES_MAX);
    let writer = tokio::spawn(output::write(frames_out, target));
    let (inputs, mut from_ranks) = mpsc::channel(INPUTS_MAX);
    let guard = Guard::start(&spec).map_err(|error| format!("cannot start the guard: {error}"))?;
    hang_conditions::read_left(&client, clock, &inputs);
    let mut shell = LaunchAgent {
        core: Nla::new(clock.now(), spec.config(), spec.spare),
        loops: (spec.backend == Choice::Loop).then(|| Loops::new(inputs.clone())),
        clock,
        gate,
        client,
        running: BTreeMap::new(),
        pod: None,
        pods: 0,
        coming: None,
        inputs,
        frames,
        guard,
        to_jl,
        path,
        input,
        launcher,
        addresses,
        address,
        memory,
        parking: ParkingLot::default(),
        pod_images,
        saving: None,
        give_up: None,
        feeding: None,
        sampler: Sampler::default(),
        prepared_set: None,
        leaving: false,
        spec,
    };
    shell.serve(&mut heard, &mut from_ranks, &mut from_jl).await;
    let to_jl = shell.end(writer).await;
    drop(own_dir);
    let _ = clearing.await;
    drop(to_jl);
    let _ = tokio::time::timeout(LINKS_WAIT, links).await;
    Ok(())
}

/// Removes in the background what dead launch agents of this node have left.
fn clear_left(spec: &NlaSpec) -> JoinHandle<()> {
    let (dir, node, pods) = (spec.image_dir.clone(), spec.node.clone(), spec.pod.is_some());
    tokio::task::spawn_blocking(move || {
        nodedir::clear_left(&dir, &node);
        if pods {
            pod::net::clear_left(guard::watches);
        }
    })
}

/// Keeps the user namespace of the pods, if they have one.
fn keep_holder(spec: &NlaSpec) -> Result<Option<File>, String> {
    let holder = spec.pod.as_ref().and_then(|net| net.holder);
    let kept = holder.map(owner::keep).transpose();
    kept.map_err(|error| format!("the pods' user namespace is gone: {error}"))
}

/// Most bytes of images of this node in memory, if the job uses it.
fn memory_budget(spec: &NlaSpec) -> Result<Option<u64>, String> {
    let Some(of_job) = &spec.memory else { return Ok(None) };
    of_job.budget(memory::available()?).map(Some)
}

/// The memory for images of this node, and the place of those of its pods.
async fn node_memory(
    spec: &NlaSpec,
    budget: Option<u64>,
) -> Result<(Option<NodeMemory>, Option<MemoryRoot>), String> {
    let Some(budget) = budget else { return Ok((None, None)) };
    let memory = NodeMemory::new(spec.node.clone(), budget);
    let Some(net) = &spec.pod else { return Ok((Some(memory), None)) };
    let root = MemoryRoot::make(&spec.image_dir, budget, net.holder).await?;
    Ok((Some(memory.with_pods(root.here())), Some(root)))
}

/// Brings the image of ranks that are restored together to its place, if it is in memory.
async fn unpack(memory: Option<NodeMemory>, set: SetId, ranks: Ranks) -> Result<(), String> {
    let (Some(memory), Some(first)) = (memory, ranks.iter().next()) else { return Ok(()) };
    if !set.is_in_memory() {
        return Ok(());
    }
    let work = tokio::task::spawn_blocking(move || memory.unpack(&set, first));
    work.await.map_err(|error| error.to_string())?
}

impl LaunchAgent {
    /// Handles inputs until the job ends on this node.
    async fn serve(
        &mut self,
        heard: &mut mpsc::Receiver<Received>,
        from_ranks: &mut mpsc::Receiver<NlaInput>,
        from_jl: &mut mpsc::Receiver<NlaInput>,
    ) {
        while !self.leaving {
            let deadline = self.core.next_deadline_ns();
            tokio::select! {
                biased;
                Some(input) = from_ranks.recv() => self.handle(input).await,
                Some(heard) = heard.recv() => self.on_event(heard).await,
                Some(input) = from_jl.recv() => self.handle(input).await,
                () = self.clock.sleep_until(deadline) => self.handle(NlaInput::Tick).await,
            }
            self.gate.look();
        }
        self.gate.close();
    }

    /// Waits for the end of the ranks' output and of the backplane's connection. Returns the
    /// connection to the JL: its end shows that nothing of this node is left.
    async fn end(self, writer: JoinHandle<()>) -> mpsc::Sender<LinkInput> {
        let Self { client, frames, pod, running, to_jl, path, .. } = self;
        drop((frames, running));
        path.send_modify(|path| path.leaving = true);
        if let Some((_, pod)) = pod {
            pod.ended().await;
        }
        let _ = writer.await;
        backplane::close(client).await;
        to_jl
    }

    async fn on_event(&mut self, heard: Received) {
        match heard {
            Received::Event(event) => match wire::from_jl(&event) {
                // It comes over the job connection too, which shows that there is a path.
                Ok(FromJl::Alive) => {}
                Ok(message) => self.handle(NlaInput::Jl(message)).await,
                Err(error) => self.gate.refuse(Reason::Malformed, error),
            },
            // The job launcher repeats what matters.
            Received::Gap => self.gate.refuse(Reason::Missed, "events of the job launcher"),
        }
    }

    async fn handle(&mut self, input: NlaInput) {
        let input = self.kept(input);
        if let NlaInput::ParkedEnded { pid, .. } = &input {
            self.parking.forget(*pid);
        }
        if let NlaInput::Ended { rank, incarnation, .. } = &input
            && self.running.get(rank).is_some_and(|(of, _)| of == incarnation)
        {
            self.running.remove(rank);
            if *rank == 0
                && let Some(feeding) = self.feeding.take()
            {
                feeding.abort();
            }
        }
        let mut waiting = vec![input];
        while let Some(input) = waiting.pop() {
            let from = self.core.state();
            let mut out = Vec::new();
            self.core.handle(self.clock.now(), input, &mut out);
            let to = self.core.state();
            if from != to {
                tracing::info!(target: "ftb::transition", node = %self.spec.node, "{from}->{to}");
            }
            for output in out {
                waiting.extend(match &self.loops {
                    Some(loops) if loops.takes(&output) => loops.act(&output),
                    _ => self.output(output).await,
                });
            }
        }
        self.feed_first();
    }

    async fn output(&mut self, output: NlaOutput) -> Option<NlaInput> {
        match output {
            NlaOutput::Publish(message) => {
                if matches!(message, FromNla::Reset { .. }) {
                    self.end_pod().await;
                }
                let says = NlaMessage { node: self.spec.node.clone(), message };
                self.say(says).await;
            }
            NlaOutput::Spawn(spawn) => return self.spawn(spawn).await,
            output @ (NlaOutput::Park | NlaOutput::Adopt { .. } | NlaOutput::EndParked { .. }) => {
                return self.park_output(output);
            }
            NlaOutput::Sample => self.sample().await,
            NlaOutput::Signal { rank, signal } => {
                if let Some((_, running)) = self.running.get(&rank) {
                    running.signal(rank, signal).await;
                }
            }
            NlaOutput::PmiReply { rank, line } => {
                if let Some((_, running)) = self.running.get(&rank) {
                    running.reply(rank, line).await;
                }
            }
            NlaOutput::Copy { episode, from, set, ranks } => self.copy(episode, from, set, ranks),
            NlaOutput::Protect(task) => self.work_for_group(task, false),
            NlaOutput::Gather(task) => self.work_for_group(task, true),
            NlaOutput::Prepare { episode, set, .. } if self.pod.is_some() => {
                self.order(Order::Prepare(episode, set)).await;
            }
            NlaOutput::Save { episode, set, leave, space, .. } if self.pod.is_some() => {
                self.save_pod(episode, set, leave, space).await;
            }
            NlaOutput::Release { .. } if self.pod.is_some() => self.order(Order::Release).await,
            NlaOutput::Prepare { episode, set, ranks } => {
                let (spec, members) = self.to_save(&ranks);
                self.prepared_set = Some(set.clone());
                self.later(async move {
                    let result = rank_hooks::run(&spec, &set, Moment::Prepare, &members).await;
                    NlaInput::Prepared { episode, result }
                });
            }
            NlaOutput::Save { episode, set, ranks, .. } => {
                let (spec, members) = self.to_save(&ranks);
                self.later(async move {
                    let result = rank_hooks::save(&spec, &set, &members).await;
                    NlaInput::Saved { episode, result }
                });
            }
            NlaOutput::Release { .. } => self.release(),
            NlaOutput::Restore { incarnation, set, ranks, .. } => {
                self.restore(incarnation, set, ranks).await;
            }
            NlaOutput::CancelRestore { incarnation } => self.cancel_restore(incarnation),
            NlaOutput::PublishFor(says) => {
                backplane::publish(&self.client, wire::to_rank(&says)).await;
            }
            NlaOutput::DropSet(set) => {
                self.coming.take_if(|coming| *coming.set() == set);
                match &self.memory {
                    Some(memory) if set.is_in_memory() => memory.drop_set(&set),
                    _ => images::drop_set(&self.spec.image_dir, &set),
                }
            }
            NlaOutput::Note(words) => tracing::warn!(node = %self.spec.node, "{words}"),
            NlaOutput::Leave => self.leaving = true,
        }
        None
    }

    async fn save_pod(&mut self, episode: Episode, set: SetId, leave: bool, space: String) {
        let memory = self.memory.as_ref().filter(|_| set.is_in_memory());
        let room = memory.map(NodeMemory::left);
        self.saving = memory.map(|_| set.clone());
        self.order(Order::Save { episode, set, leave, space, room }).await;
    }

    /// The saved image of a pod counts when it is kept in memory.
    fn kept(&mut self, input: NlaInput) -> NlaInput {
        let NlaInput::Saved { episode, result } = input else { return input };
        let (Some(set), Some(memory)) = (self.saving.take(), &self.memory) else {
            return NlaInput::Saved { episode, result };
        };
        let result = result.and_then(|sizes| memory.keep_pod(&set, &sizes).map(|()| sizes));
        NlaInput::Saved { episode, result }
    }

    /// What the node needs to save and restore its ranks.
    fn site(&self) -> NodeSpec {
        NodeSpec { memory: self.pod_images.clone(), ..self.spec.site() }
    }

    /// Looks at the ranks.
    async fn sample(&self) {
        if self.pod.is_some() {
            return self.order(Order::Tell(ToSupervisor::Sample)).await;
        }
        let ranks = self.running.iter().filter_map(|(rank, (incarnation, running))| {
            let own = running.own()?;
            Some((*rank, *incarnation, i32::try_from(own.pid()).ok()?, own.steps()))
        });
        let (ranks, sampler) = (ranks.collect::<Vec<_>>(), self.sampler.clone());
        self.later(async move {
            let groups = ranks.iter().map(|(_, _, pid, _)| *pid).collect();
            let seen = tokio::task::spawn_blocking(move || sampler.look(&groups)).await;
            let seen = seen.unwrap_or_default();
            let sample = |(rank, incarnation, pid, steps)| {
                let sample = Sample { steps, ..*seen.get(&pid)? };
                Some(RankSample { rank, incarnation, sample })
            };
            NlaInput::Sampled(ranks.into_iter().filter_map(sample).collect())
        });
    }

    /// PMI, FTB_NLA_READY and progress go over the job connection. Only root may state conditions.
    async fn say(&self, says: NlaMessage) {
        if let Some(mut event) = wire::to_nla(&says) {
            if let FromNla::Hang { rank, is_over: false, .. } = says.message {
                self.guard.hung(rank);
            }
            event.condition.take_if(|_| !hang_conditions::are_stated());
            backplane::publish(&self.client, event).await;
            if let FromNla::Hang { rank, is_over: true, .. } = says.message {
                self.guard.hung_no_more(rank);
            }
            return;
        }
        let message = FromNode::Nla(says.message).encode();
        let _ = self.to_jl.send(LinkInput::Send { node: None, message, keep: false }).await;
    }

    /// Runs work that ends with an input.
    fn later(&self, work: impl Future<Output = NlaInput> + Send + 'static) {
        let inputs = self.inputs.clone();
        tokio::spawn(async move {
            let _ = inputs.send(work.await).await;
        });
    }

    /// Makes parity or copies; `gathers`: after it has taken the place of a lost member.
    fn work_for_group(&self, task: GroupTask, gathers: bool) {
        let (episode, known) = (task.episode, self.addresses.clone());
        let own = self.address.clone();
        let (memory, secret) = (self.memory.clone(), Secret::new(&self.spec.token));
        self.later(async move {
            let result = match memory {
                Some(memory) => peers::work(memory, secret, task, (known, own), gathers).await,
                None => Err("this node holds nothing in memory".to_owned()),
            };
            match gathers {
                true => NlaInput::CopyEnded { episode, result },
                false => NlaInput::ProtectEnded { episode, result },
            }
        });
    }

    /// Fetches images, and prepares a pod meanwhile.
    fn copy(&mut self, episode: Episode, from: Option<NodeName>, set: SetId, ranks: Ranks) {
        let (spec, launcher) = (self.spec.clone(), self.launcher.borrow().clone());
        let moves = self.spec.backend.pods().is_some() && set.migration().is_some();
        let copy = pod::Copy { episode, set: set.clone(), ranks: ranks.clone() };
        let (known, memory) = (self.addresses.clone(), self.memory.clone());
        let copied = async move {
            let server = match from {
                Some(node) => addresses::address_of(&node, known).await?,
                None => launcher,
            };
            if let Some(memory) = memory.filter(|_| set.is_in_memory()) {
                return peers::fetch(memory, Secret::new(&spec.token), server, set, ranks).await;
            }
            transfer::take(&spec, server, &set, &ranks).await
        };
        if moves {
            self.pods += 1;
            let site = self.site();
            self.coming = Some(pod::expect(&site, self.pods, self.ends(), copy, copied));
            return;
        }
        self.later(async move { NlaInput::CopyEnded { episode, result: copied.await } });
    }

    /// Restores ranks into a pod after the end of the earlier pod.
    async fn restore(&mut self, incarnation: u64, set: SetId, ranks: Ranks) {
        self.pods += 1;
        let (before, coming) = (self.pod.take().map(|(_, pod)| pod), self.coming.take());
        let unpacked = Box::pin(unpack(self.memory.clone(), set.clone(), ranks.clone()));
        let (give_up, cancelled) = watch::channel(false);
        self.give_up = Some((incarnation, give_up));
        let of = ranks.clone();
        let comeback = Restore { incarnation, set, ranks: of, before, coming, unpacked, cancelled };
        let pod = pod::restore(&self.site(), self.pods, self.ends(), comeback);
        for rank in ranks.iter() {
            self.running.insert(rank, (incarnation, RunningRank::InPod(pod.clone())));
        }
        self.pod = Some((incarnation, pod));
        self.feed_pod(&ranks).await;
    }

    /// Another start has replaced that of these ranks.
    fn cancel_restore(&mut self, incarnation: u64) {
        if let Some((_, give_up)) = self.give_up.take_if(|(of, _)| *of == incarnation) {
            give_up.send_replace(true);
        }
    }

    fn to_save(&self, ranks: &Ranks) -> (NodeSpec, Vec<Member>) {
        let pid = |rank| self.running.get(&rank).map_or(0, |(_, running)| running.pid());
        let members = ranks.iter().map(|rank| (rank, pid(rank))).collect();
        (self.site(), members)
    }

    /// Undoes a preparation. A failure is logged; the ranks may need help.
    fn release(&mut self) {
        let Some(set) = self.prepared_set.take() else {
            return;
        };
        let ranks = self.running.keys().copied().collect();
        let (spec, members) = self.to_save(&ranks);
        tokio::spawn(async move {
            if let Err(error) = rank_hooks::run(&spec, &set, Moment::Release, &members).await {
                tracing::warn!(node = %spec.node, %error, "a rank may not go on");
            }
        });
    }

    fn ends(&self) -> PodChannels {
        PodChannels { inputs: self.inputs.clone(), frames: self.frames.clone() }
    }

    async fn order(&self, order: Order) {
        if let Some((_, pod)) = &self.pod {
            pod.order(order).await;
        }
    }

    /// Ends a pod whose ranks have all ended, because its address is needed. Returns when it is
    /// free.
    async fn end_pod(&mut self) {
        if let Some((_, pod)) = self.pod.take() {
            pod.ended().await;
        }
    }

    /// Starts a rank in the pod of its start; the first rank makes the pod.
    async fn spawn_in_pod(&mut self, start: ranks::RankStart) {
        let (rank, incarnation) = (start.spawn.rank, start.spawn.incarnation);
        let known = self.pod.as_ref().filter(|(of, pod)| *of == incarnation && !pod.over());
        let pod = match known {
            Some((_, pod)) => pod.clone(),
            None => {
                self.end_pod().await;
                self.pods += 1;
                pod::begin(&self.site(), self.pods, self.ends())
            }
        };
        self.pod = Some((incarnation, pod.clone()));
        let defaults = self.spec.backend.pods().map(Criu::env).unwrap_or_default();
        let env = defaults.into_iter().chain(ranks::environment(&self.spec, &start)).collect();
        let argv = self.spec.argv.clone();
        pod.order(Order::Spawn { rank, incarnation, argv, env }).await;
        self.running.insert(rank, (incarnation, RunningRank::InPod(pod)));
        self.feed_pod(&Ranks::from_iter([rank])).await;
    }

    /// Connects rank 0 to the JL's standard input, if it is one of these.
    async fn feed_pod(&self, ranks: &Ranks) {
        if self.spec.stdin && ranks.has(0) {
            self.order(Order::Stdin(self.request_input())).await;
        }
    }

    fn request_input(&self) -> JobInput {
        self.input.request(self.to_jl.clone(), self.path.subscribe())
    }

    async fn spawn(&mut self, spawn: Spawn) -> Option<NlaInput> {
        let set = spawn.restore.as_ref();
        let argv = set.and_then(|set| rank_hooks::restart(&self.site(), set, spawn.rank));
        let start = ranks::RankStart { spawn, argv };
        if self.spec.backend.pods().is_some() {
            self.spawn_in_pod(start).await;
            return None;
        }
        let (rank, incarnation) = (start.spawn.rank, start.spawn.incarnation);
        let tell = self.teller(rank, incarnation);
        let keeps = (&self.guard, self.memory.as_ref(), self.loops.as_ref());
        match ranks::start(&self.spec, &start, tell, &self.frames, keeps) {
            Ok(running) => {
                self.runs(rank, incarnation, running);
                None
            }
            Err(error) => {
                let reason = format!("{}: {error}", self.spec.argv.join(" "));
                Some(NlaInput::SpawnFailed { rank, incarnation, reason })
            }
        }
    }

    /// Passes on what a rank says, and its end.
    fn teller(
        &self,
        rank: u32,
        incarnation: u64,
    ) -> impl Fn(RankOutput) -> JoinHandle<()> + Send + Sync + Clone + 'static {
        let (inputs, root) = (self.inputs.clone(), self.spec.image_dir.clone());
        move |word: RankOutput| {
            let input = match word {
                RankOutput::Pmi(line) => NlaInput::PmiLine { rank, incarnation, line },
                RankOutput::Ended(how) => {
                    let image = images::newest_migration(&root, rank);
                    NlaInput::Ended { rank, incarnation, how, image }
                }
            };
            let inputs = inputs.clone();
            tokio::spawn(async move {
                let _ = inputs.send(input).await;
            })
        }
    }

    /// A process of this agent is a rank now.
    fn runs(&mut self, rank: u32, incarnation: u64, mut running: Running) {
        if rank != 0 {
            running.stdin = None;
        }
        self.running.insert(rank, (incarnation, RunningRank::Own(running)));
        self.feed_first();
    }

    /// Connects rank 0 to the JL's standard input, once. A process that has not confirmed that it
    /// is the rank may fail: what it had read would be lost.
    fn feed_first(&mut self) {
        if !self.core.is_adopting(0)
            && let Some((_, running)) = self.running.get_mut(&0)
            && let Some(stdin) = running.take_stdin()
        {
            self.feed(stdin);
        }
    }

    /// Connects rank 0 to the JL's standard input.
    fn feed(&mut self, stdin: tokio::process::ChildStdin) {
        let feeding = streams::feed(self.request_input(), stdin);
        let task = tokio::spawn(async move {
            if let Err(error) = feeding.await {
                tracing::info!(%error, "standard input of rank 0 ends");
            }
        });
        if let Some(before) = self.feeding.replace(task.abort_handle()) {
            before.abort();
        }
    }
}
