//! The shell of the node launch agent: reads its spec, serves images, starts ranks, and carries inputs to the core
//! and outputs from it. One thread does all of it, so that the kernel's "die with your parent" means this process.

use super::clock::Clock;
use super::guard::{self, Guard};
use super::link::{self, Door, Heard};
use super::live::Live;
use super::nodedir::{self, OUTPUT};
use super::output;
use super::ranks::{self, Word};
use super::refused::{Reason, Refusals};
use super::seal::Seal;
use super::secret::Secret;
use super::spec::{Handed, Means, NlaSpec, SPEC_BYTES_MAX};
use super::transfer::{self, CopyOf};
use super::{starter, streams};
use core::time::Duration;
use ftb_client::Client;
use ftb_launcher_core::message::{FromNla, NlaSays};
use ftb_launcher_core::names::{NodeName, Ranks, SetId};
use ftb_launcher_core::nla::{Input, Nla, NlaConfig, Output};
use ftb_launcher_core::tree::Word as TreeWord;
use ftb_launcher_core::wire;
use ftb_launcher_pods::backend::{Criu, Moment};
use ftb_launcher_pods::images;
use ftb_launcher_pods::installed;
use ftb_launcher_pods::output::Frame;
use ftb_launcher_pods::pod::{self, Comeback, Coming, Ends, Order, Pod};
use ftb_launcher_pods::saver::{self, Member};
use ftb_launcher_pods::spec::NodeSpec;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

/// Inputs that wait for the core: beyond, ranks and copies are held.
const INPUTS_MAX: usize = 1024;
/// Words of other launch agents that wait to go up.
const WORDS_MAX: usize = 256;
/// How long to wait for the rest of the ranks' output at the end.
const OUTPUT_WAIT: Duration = Duration::from_secs(2);

/// How often an agent that stands in for another looks whether that one is there.
const LOOK_EVERY: Duration = Duration::from_millis(300);

struct Shell {
    spec: NlaSpec,
    core: Nla,
    clock: Clock,
    door: Door,
    client: Client,
    running: BTreeMap<u32, (u64, Live)>,
    /// The pod of the ranks, for a backend that has pods, with the start that it is of.
    pod: Option<(u64, Pod)>,
    pods: u32,
    /// The pod that is made ready for ranks on their way here.
    coming: Option<Coming>,
    inputs: mpsc::Sender<Input>,
    frames: mpsc::Sender<Frame>,
    guard: Guard,
    /// Where the JL takes output and gives input.
    streams: watch::Sender<String>,
    /// Carries standard input to rank 0.
    feeding: Option<AbortHandle>,
    /// The set that ranks were made ready for.
    prepared_set: Option<SetId>,
    leaving: bool,
}

/// Reads from standard input what the starter hands over. `of_all`: the name of this node, where all agents get the
/// same.
///
/// # Errors
/// One line: it is not there, or nothing of ours.
pub async fn read_handed(of_all: Option<&str>) -> Result<Handed, String> {
    let mut text = String::new();
    let read = tokio::io::stdin().take(SPEC_BYTES_MAX).read_to_string(&mut text).await;
    read.map_err(|error| format!("cannot read the specification: {error}"))?;
    let handed: Handed = serde_json::from_str(&text)
        .map_err(|error| format!("the specification is wrong: {error}"))?;
    match of_all {
        None => Ok(handed),
        Some(name) => {
            let node = NodeName::new(name).map_err(|error| error.to_string())?;
            handed.for_one_of_all(&node)
        }
    }
}

/// Runs until the job ends here.
///
/// # Errors
/// One line: no agent, no directory, no socket.
pub async fn run(handed: Handed) -> Result<(), String> {
    let Handed { mut spec, behind, starting } = handed;
    if starting.means != Means::Local {
        // On the launcher's own host it was found by itself.
        installed::check(&spec.backend)?;
    }
    let clock = Clock::start();
    let (say, words) = mpsc::channel(WORDS_MAX);
    if !behind.is_empty() {
        tokio::spawn(starter::run(starting, spec.clone(), behind, clock, say.clone()));
    }
    spec.image_dir = nodedir::placed(&spec.image_dir)?;
    let own_dir = match nodedir::own(&spec.image_dir).await? {
        Ok(own) => own,
        Err(pid) => return stand_in(&spec.node, &spec.image_dir, pid, words).await,
    };
    let (dir, node, pods) = (spec.image_dir.clone(), spec.node.clone(), spec.pod.is_some());
    let clearing = tokio::task::spawn_blocking(move || {
        nodedir::clear_left(&dir, &node);
        if pods {
            pod::net::clear_left(guard::watches);
        }
    });
    let listener = TcpListener::bind(&spec.listen).await;
    let listener =
        listener.map_err(|error| format!("cannot listen on {}: {error}", spec.listen))?;
    let images = reached_at(&listener, &spec.address).map_err(|error| error.to_string())?;
    let secret = Secret::new(&spec.token);
    tokio::spawn(transfer::serve(listener, spec.image_dir.clone(), secret));

    let client =
        link::attach(&format!("nla-{}", spec.node), &spec.agent, spec.job.as_str()).await?;
    let host = client.agent().map(|agent| agent.host);
    if let Some(words) = host.and_then(|host| link::misnamed(spec.node.as_str(), &host)) {
        tracing::warn!(node = %spec.node, "{words}");
    }
    let filter = format!("event_space=ftb.jl, jobid={}", spec.job);
    let subscription = link::subscribe(&client, &filter).await?;
    let (to_heard, mut heard) = mpsc::channel(INPUTS_MAX);
    let seal = Seal::new(spec.job.as_str(), &Secret::new(&spec.token));
    let door = Door { seal, refusals: Refusals::default(), clock };
    tokio::spawn(link::forward(subscription, Some(door.clone()), to_heard));
    report(&spec.node, std::process::id(), words);

    let (frames, frames_out) = mpsc::channel(output::FRAMES_MAX);
    let (streams, address) = watch::channel(spec.streams.clone());
    let way = output::Way {
        address,
        secret: Secret::new(&spec.token),
        node: spec.node.to_string(),
        spill: spec.image_dir.join(OUTPUT),
    };
    let writer = tokio::spawn(output::write(frames_out, way));
    let (inputs, mut from_ranks) = mpsc::channel(INPUTS_MAX);
    let guard = Guard::start(&spec.image_dir, spec.pod.as_ref());
    let guard = guard.map_err(|error| format!("cannot start the guard: {error}"))?;
    let config = NlaConfig {
        job: spec.job.clone(),
        node: spec.node.clone(),
        images,
        orphan_grace: spec.orphan_grace,
        kill_grace: spec.kill_grace,
        manner: spec.backend.get().manner(),
    };
    let core = Nla::new(clock.now(), config, spec.spare);
    let mut shell = Shell {
        core,
        clock,
        door,
        client,
        running: BTreeMap::new(),
        pod: None,
        pods: 0,
        coming: None,
        inputs,
        frames,
        guard,
        streams,
        feeding: None,
        prepared_set: None,
        leaving: false,
        spec,
    };
    shell.handle(Input::Started).await;
    while !shell.leaving {
        let deadline = shell.core.next_deadline_ns();
        tokio::select! {
            biased;
            Some(input) = from_ranks.recv() => shell.handle(input).await,
            Some(heard) = heard.recv() => shell.hear(heard).await,
            () = clock.sleep_until(deadline) => shell.handle(Input::Tick).await,
        }
        shell.door.look();
    }
    shell.door.close();
    let Shell { client, frames, pod, running, .. } = shell;
    drop((frames, running));
    if let Some((_, pod)) = pod {
        pod.ended().await;
    }
    let written = tokio::time::timeout(OUTPUT_WAIT, writer).await;
    link::close(client).await;
    drop(own_dir);
    let _ = clearing.await;
    // The end of the output tells the JL that nothing of this node is left.
    drop(written);
    Ok(())
}

/// There is a launch agent of this job already, and whoever has started it is gone: this one takes its place in the
/// launch tree, says that the node is up, and ends with it.
async fn stand_in(
    node: &NodeName,
    dir: &Path,
    pid: u32,
    words: mpsc::Receiver<TreeWord>,
) -> Result<(), String> {
    report(node, pid, words);
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if nodedir::is_free(dir) {
            return Err("the launch agent of this node has ended".to_owned());
        }
    }
}

/// How others reach a listener: under the node's address where it listens on all of them.
pub(super) fn reached_at(listener: &TcpListener, address: &str) -> std::io::Result<String> {
    let local = listener.local_addr()?;
    if !local.ip().is_unspecified() || address.is_empty() {
        return Ok(local.to_string());
    }
    let v6 = address.contains(':') && !address.starts_with('[');
    let host = if v6 { format!("[{address}]") } else { address.to_owned() };
    Ok(format!("{host}:{}", local.port()))
}

/// Says upwards that this node is up, then what the nodes behind it say. Whoever has started this agent may be gone;
/// then nobody needs to know.
fn report(node: &NodeName, pid: u32, mut words: mpsc::Receiver<TreeWord>) {
    let say = |word: &TreeWord| {
        let mut out = std::io::stdout();
        writeln!(out, "{word}").and_then(|()| out.flush())
    };
    let up = TreeWord::Up { node: node.clone(), pid };
    let mut heard = say(&up).is_ok();
    tokio::spawn(async move {
        while let Some(word) = words.recv().await {
            heard = heard && say(&word).is_ok();
        }
    });
}

impl Shell {
    async fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Event { event, .. } => {
                if let Some(address) = wire::streams_of(&event) {
                    // Told on purpose though it be the same: the JL is there.
                    self.streams.send_replace(address.to_owned());
                }
                match wire::from_jl(&event) {
                    Ok(message) => self.handle(Input::Jl(message)).await,
                    Err(error) => self.door.refuse(Reason::Malformed, error),
                }
            }
            // Whatever the job launcher wants answered it asks again.
            Heard::Gap => self.door.refuse(Reason::Missed, "events of the job launcher"),
        }
    }

    async fn handle(&mut self, input: Input) {
        if let Input::Ended { rank, incarnation, .. } = &input
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
                waiting.extend(self.output(output).await);
            }
        }
    }

    async fn output(&mut self, output: Output) -> Option<Input> {
        match output {
            Output::Publish(message) => {
                if matches!(message, FromNla::Reset { .. }) {
                    self.end_pod().await;
                }
                let says = NlaSays { node: self.spec.node.clone(), message };
                link::publish_sealed(&self.client, &self.door.seal, wire::to_nla(&says)).await;
            }
            Output::Spawn(spawn) => {
                let set = spawn.restore.as_ref();
                let argv = set.and_then(|set| saver::restart(&self.spec.site(), set, spawn.rank));
                let start = ranks::Start { spawn, argv };
                return self.spawn(start).await;
            }
            Output::Signal { rank, signal } => {
                if let Some((_, running)) = self.running.get(&rank) {
                    running.signal(rank, signal).await;
                }
            }
            Output::PmiReply { rank, line } => {
                if let Some((_, running)) = self.running.get(&rank) {
                    running.reply(rank, line).await;
                }
            }
            Output::Copy { episode, from, set, ranks } => {
                self.copy(CopyOf { episode, from, set, ranks });
            }
            Output::Prepare { episode, set, .. } if self.pod.is_some() => {
                self.order(Order::Prepare(episode, set)).await;
            }
            Output::Save { episode, set, leave, space, .. } if self.pod.is_some() => {
                self.order(Order::Save { episode, set, leave, space }).await;
            }
            Output::Release { .. } if self.pod.is_some() => self.order(Order::Release).await,
            Output::Prepare { episode, set, ranks } => {
                let (spec, members) = self.to_save(&ranks);
                self.prepared_set = Some(set.clone());
                self.later(async move {
                    let result = saver::run(&spec, &set, Moment::Prepare, &members).await;
                    Input::Prepared { episode, result }
                });
            }
            Output::Save { episode, set, ranks, .. } => {
                let (spec, members) = self.to_save(&ranks);
                self.later(async move {
                    let result = saver::save(&spec, &set, &members).await;
                    Input::Saved { episode, result }
                });
            }
            Output::Release { .. } => self.release(),
            Output::Restore { incarnation, set, ranks, .. } => {
                self.restore(incarnation, set, ranks).await;
            }
            Output::PublishFor(says) => link::publish(&self.client, wire::to_rank(&says)).await,
            Output::DropSet(set) => {
                self.coming.take_if(|coming| *coming.set() == set);
                images::drop_set(&self.spec.image_dir, &set);
            }
            Output::Note(words) => tracing::warn!(node = %self.spec.node, "{words}"),
            Output::Leave => self.leaving = true,
        }
        None
    }

    /// Something that takes its time; what comes of it is an input.
    fn later(&self, work: impl Future<Output = Input> + Send + 'static) {
        let inputs = self.inputs.clone();
        tokio::spawn(async move {
            let _ = inputs.send(work.await).await;
        });
    }

    /// Takes images here. Where ranks come back into a pod, that is made meanwhile.
    fn copy(&mut self, of: CopyOf) {
        if self.spec.backend.pods().is_some() && of.set.migration().is_some() {
            self.pods += 1;
            let CopyOf { episode, from, set, ranks } = of;
            let copy = pod::Copy { episode, set: set.clone(), ranks: ranks.clone() };
            let spec = self.spec.clone();
            let copied = async move { transfer::take(&spec, &from, &set, &ranks).await };
            let site = self.spec.site();
            self.coming = Some(pod::expect(&site, self.pods, self.ends(), copy, copied));
            return;
        }
        let spec = self.spec.clone();
        self.later(async move {
            let result = transfer::take(&spec, &of.from, &of.set, &of.ranks).await;
            Input::CopyEnded { episode: of.episode, result }
        });
    }

    /// Brings ranks back into a pod, when that of before is gone.
    async fn restore(&mut self, incarnation: u64, set: SetId, ranks: Ranks) {
        self.pods += 1;
        let (before, coming) = (self.pod.take().map(|(_, pod)| pod), self.coming.take());
        let comeback = Comeback { incarnation, set, ranks: ranks.clone(), before, coming };
        let pod = pod::restore(&self.spec.site(), self.pods, self.ends(), comeback);
        for rank in ranks.iter() {
            self.running.insert(rank, (incarnation, Live::InPod(pod.clone())));
        }
        self.pod = Some((incarnation, pod));
        self.feed_pod(&ranks).await;
    }

    fn to_save(&self, ranks: &Ranks) -> (NodeSpec, Vec<Member>) {
        let pid = |rank| self.running.get(&rank).map_or(0, |(_, running)| running.pid());
        let members = ranks.iter().map(|rank| (rank, pid(rank))).collect();
        (self.spec.site(), members)
    }

    /// Undoes what was prepared. What fails then is told: the ranks may need a hand.
    fn release(&mut self) {
        let Some(set) = self.prepared_set.take() else {
            return;
        };
        let ranks = self.running.keys().copied().collect();
        let (spec, members) = self.to_save(&ranks);
        tokio::spawn(async move {
            if let Err(error) = saver::run(&spec, &set, Moment::Release, &members).await {
                tracing::warn!(node = %spec.node, %error, "a rank may not go on");
            }
        });
    }

    fn ends(&self) -> Ends {
        Ends { inputs: self.inputs.clone(), frames: self.frames.clone() }
    }

    async fn order(&self, order: Order) {
        if let Some((_, pod)) = &self.pod {
            pod.order(order).await;
        }
    }

    /// Ends a pod whose ranks have all ended: its address is about to be another's. Comes back when it is free.
    async fn end_pod(&mut self) {
        if let Some((_, pod)) = self.pod.take() {
            pod.ended().await;
        }
    }

    /// Starts a rank in the pod of its start, which begins with its first rank.
    async fn spawn_in_pod(&mut self, start: ranks::Start) {
        let (rank, incarnation) = (start.spawn.rank, start.spawn.incarnation);
        let known = self.pod.as_ref().filter(|(of, pod)| *of == incarnation && !pod.over());
        let pod = match known {
            Some((_, pod)) => pod.clone(),
            None => {
                self.end_pod().await;
                self.pods += 1;
                pod::begin(&self.spec.site(), self.pods, self.ends())
            }
        };
        self.pod = Some((incarnation, pod.clone()));
        let defaults = self.spec.backend.pods().map(Criu::env).unwrap_or_default();
        let env = defaults.into_iter().chain(ranks::environment(&self.spec, &start)).collect();
        let argv = self.spec.argv.clone();
        pod.order(Order::Spawn { rank, incarnation, argv, env }).await;
        self.running.insert(rank, (incarnation, Live::InPod(pod)));
        self.feed_pod(&Ranks::from_iter([rank])).await;
    }

    /// Standard input of the JL for rank 0, where it is one of these.
    async fn feed_pod(&self, ranks: &Ranks) {
        if self.spec.stdin && ranks.has(0) {
            let address = self.streams.borrow().clone();
            let (secret, node) = (Secret::new(&self.spec.token), self.spec.node.to_string());
            let mut connecting = JoinSet::new();
            connecting.spawn(async move { streams::input(&address, &secret, &node).await });
            self.order(Order::Feed(connecting)).await;
        }
    }

    async fn spawn(&mut self, start: ranks::Start) -> Option<Input> {
        if self.spec.backend.pods().is_some() {
            self.spawn_in_pod(start).await;
            return None;
        }
        let (rank, incarnation) = (start.spawn.rank, start.spawn.incarnation);
        let (inputs, root) = (self.inputs.clone(), self.spec.image_dir.clone());
        let tell = move |word: Word| {
            let input = match word {
                Word::Pmi(line) => Input::PmiLine { rank, incarnation, line },
                Word::Ended(how) => {
                    let image = images::newest_migration(&root, rank);
                    Input::Ended { rank, incarnation, how, image }
                }
            };
            let inputs = inputs.clone();
            tokio::spawn(async move {
                let _ = inputs.send(input).await;
            })
        };
        match ranks::start(&self.spec, &start, tell, &self.frames, &self.guard) {
            Ok(mut running) => {
                if let Some(stdin) = running.stdin.take() {
                    self.feed(stdin);
                }
                self.running.insert(rank, (incarnation, Live::Own(running)));
                None
            }
            Err(error) => {
                let reason = format!("{}: {error}", self.spec.argv.join(" "));
                Some(Input::SpawnFailed { rank, incarnation, reason })
            }
        }
    }

    /// Standard input of the JL for rank 0. A rank that has none (any more) reads its end.
    fn feed(&mut self, stdin: tokio::process::ChildStdin) {
        let (spec, address) = (&self.spec, self.streams.borrow().clone());
        let (secret, node) = (Secret::new(&spec.token), spec.node.to_string());
        let task = tokio::spawn(async move {
            if let Err(error) = streams::feed(&address, &secret, &node, stdin).await {
                tracing::info!(%error, "standard input of rank 0 ends");
            }
        });
        self.feeding = Some(task.abort_handle());
    }
}
