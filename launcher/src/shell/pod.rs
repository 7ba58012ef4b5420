//! The pod of a node: its ranks, with process ids, mounts, IPC and a network address of their own, so that they can be
//! saved and moved as a whole, by processes that know nothing of it.
//!
//! A task of its own has everything of one pod: the holder of its namespaces, the two pipes to the tender inside
//! ([`tend`]), the link. Nothing of it outlives the agent: the holder ends with its standard input.

mod image;
pub mod net;
pub mod tend;
pub mod words;

use super::output::{self, Frame, Stream};
use super::ranks::Word;
use super::spec::NlaSpec;
use super::{images, saver, steps};
use crate::backend::{Moment, PodPlace, Unit};
use crate::message::How;
use crate::names::{Episode, Ranks, SetId};
use crate::nla::Input;
use core::net::Ipv4Addr;
use core::time::Duration;
use image::Facts;
use nix::fcntl::OFlag;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;
use tokio::io::{
    AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream,
};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use words::{HEAD_BYTES, Said, ToTender};

/// Orders of the agent that wait for the pod's task, and words of the tender that wait for it.
const ORDERS_MAX: usize = 1024;
/// How long the tender may take to answer: it only has to finish what it is at.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// How long the namespaces may take.
const HOLDER_WAIT: Duration = Duration::from_secs(10);
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
    /// To the tender, as it is.
    Tell(ToTender),
    /// See [`crate::nla::Output::Prepare`].
    Prepare(Episode, SetId),
    /// See [`crate::nla::Output::Save`].
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
    /// See [`crate::nla::Output::Release`].
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
pub fn begin(spec: &NlaSpec, number: u32, ends: Ends) -> Pod {
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
            let mut task = Task::hold(&spec, number, address, true, ends.clone()).await?;
            net::open(&task.link).await?;
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

/// Brings a pod back from its image, when the one `before` it is gone. The answer is [`Input::Restored`].
pub fn restore(
    spec: &NlaSpec,
    number: u32,
    ends: Ends,
    incarnation: u64,
    set: SetId,
    ranks: &Ranks,
    before: Option<Pod>,
) -> Pod {
    let (pod, orders, alive) = Pod::new();
    let (spec, ranks) = (spec.clone(), ranks.clone());
    tokio::spawn(async move {
        let _alive = alive;
        if let Some(before) = before {
            before.ended().await;
        }
        let restored = Task::restore(&spec, number, incarnation, &set, &ranks, ends.clone()).await;
        let (task, result) = match restored {
            Ok((task, space)) => (Some(task), Ok(space)),
            Err(reason) => (None, Err(reason)),
        };
        let _ = ends.inputs.send(Input::Restored { incarnation, result }).await;
        if let Some(task) = task {
            task.run(orders).await;
        }
    });
    pod
}

/// A rank in the pod.
struct InPod {
    incarnation: u64,
    out: DuplexStream,
    err: DuplexStream,
}

struct Task {
    spec: NlaSpec,
    ends: Ends,
    holder: Child,
    holder_pid: u32,
    link: String,
    address: Ipv4Addr,
    ranks: BTreeMap<u32, InPod>,
    tender: u32,
    pipes: (u64, u64),
    to_tender: Option<mpsc::Sender<ToTender>>,
    said: mpsc::Receiver<Said>,
    /// What comes for the tender while it must not be written to.
    kept: Vec<ToTender>,
    quiet: bool,
    /// The answer that a preparation waits for.
    preparing: Option<Episode>,
    prepared: Option<SetId>,
    /// The end of the last rank, told when nothing is left of the pod.
    last: Option<(u32, u64, How)>,
}

/// The two pipes: our ends as streams, the tender's as descriptors, and their inode numbers.
struct Pipes {
    writer: pipe::Sender,
    reader: pipe::Receiver,
    theirs: (OwnedFd, OwnedFd),
    inodes: (u64, u64),
}

fn pipes() -> io::Result<Pipes> {
    let inode = |fd: &OwnedFd| nix::sys::stat::fstat(fd).map(|data| data.st_ino);
    let (input, to) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    let (from, output) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    let inodes = (inode(&input)?, inode(&output)?);
    Ok(Pipes {
        writer: pipe::Sender::from_owned_fd(to)?,
        reader: pipe::Receiver::from_owned_fd(from)?,
        theirs: (input, output),
        inodes,
    })
}

async fn write_words(mut writer: pipe::Sender, mut words: mpsc::Receiver<ToTender>) {
    while let Some(word) = words.recv().await {
        let Ok(mut line) = serde_json::to_vec(&word) else { continue };
        line.push(b'\n');
        if writer.write_all(&line).await.is_err() {
            return;
        }
    }
}

/// Reads frames until the pipe ends: the tender is gone then. What is no frame ends it too.
async fn read_words(reader: pipe::Receiver, said: mpsc::Sender<Said>) {
    let mut reader = BufReader::new(reader);
    loop {
        let mut head = [0; HEAD_BYTES];
        if reader.read_exact(&mut head).await.is_err() {
            return;
        }
        let mut body = vec![0; Said::body_length(head)];
        if reader.read_exact(&mut body).await.is_err() {
            return;
        }
        let Some(word) = Said::read(head, body) else {
            tracing::warn!("a pod said what is no word of it: it is ended");
            return;
        };
        if said.send(word).await.is_err() {
            return;
        }
    }
}

impl Task {
    /// Makes the namespaces and the link, which is down.
    async fn hold(
        spec: &NlaSpec,
        number: u32,
        address: Ipv4Addr,
        fresh: bool,
        ends: Ends,
    ) -> Result<Self, String> {
        let fail = |error: io::Error| format!("cannot make a pod: {error}");
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("make-pod")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        if fresh {
            command.arg("--fresh");
        }
        let mut holder = command.kill_on_drop(true).spawn().map_err(fail)?;
        let mut line = String::new();
        if let Some(stdout) = holder.stdout.take() {
            let mut stdout = BufReader::new(stdout);
            let read = tokio::time::timeout(HOLDER_WAIT, stdout.read_line(&mut line)).await;
            read.map_err(|_| "the pod's namespaces were not made in time".to_owned())?
                .map_err(fail)?;
        }
        let pid = line.trim().parse().map_err(|_| "cannot make a pod: is this root?".to_owned())?;
        let net = spec.pod.as_ref().ok_or("the node has no network for pods")?;
        let link = net::link_name(spec.job.as_str(), spec.node.as_str(), number);
        net::join(net, pid, &link, address).await?;
        let (_, said) = mpsc::channel(1);
        Ok(Self {
            spec: spec.clone(),
            ends,
            holder,
            holder_pid: pid,
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
            last: None,
        })
    }

    /// Starts the carriers of words; the tender's ends of the pipes are returned.
    fn connect(&mut self) -> Result<(OwnedFd, OwnedFd), String> {
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

    fn start_tender(&mut self, program: &Path) -> Result<(), String> {
        let (input, output) = self.connect()?;
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.holder_pid.to_string(), "--mount", "--net", "--pid", "--"]);
        command.arg(program).arg("tend").current_dir("/");
        command.stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::null());
        command.spawn().map(drop).map_err(|error| format!("cannot enter the pod: {error}"))
    }

    fn add(&mut self, rank: u32, incarnation: u64) {
        let stream = |stream| {
            let (ours, theirs) = tokio::io::duplex(OUTPUT_BYTES);
            tokio::spawn(output::read(rank, stream, theirs, self.ends.frames.clone()));
            ours
        };
        let (out, err) = (stream(Stream::Out), stream(Stream::Err));
        self.ranks.insert(rank, InPod { incarnation, out, err });
    }

    /// Until the pod ends: by itself, because its ranks have, or because nobody wants it any more.
    async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
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
            }
        }
        self.end().await;
    }

    /// Everything in the pod dies; ranks of which nothing else was told are told as killed. The last word comes when the
    /// address is free: somebody may be about to bring an image of this pod back.
    async fn end(mut self) {
        drop(self.to_tender.take());
        let net = self.spec.pod.clone();
        if let Err(error) = net::close(&self.link).await {
            tracing::debug!(%error, "the link of a pod has gone before it");
        }
        drop(self.holder.stdin.take());
        let _ = self.holder.wait().await;
        if let Some((rank, incarnation, how)) = self.last.take() {
            self.tell(rank, incarnation, Word::Ended(how)).await;
        }
        for (rank, InPod { incarnation, .. }) in core::mem::take(&mut self.ranks) {
            let how = How::Signal(nix::libc::SIGKILL);
            self.tell(rank, incarnation, Word::Ended(how)).await;
        }
        if let Some(net) = net {
            let _ = tokio::task::spawn_blocking(move || net::remove_bridge(&net)).await;
        }
    }

    async fn tell(&self, rank: u32, incarnation: u64, word: Word) {
        let input = match word {
            Word::Pmi(line) => Input::PmiLine { rank, incarnation, line },
            Word::Ended(how) => Input::Ended { rank, incarnation, how, image: None },
        };
        let _ = self.ends.inputs.send(input).await;
    }

    async fn hear(&mut self, said: Said) {
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
                    self.tell(rank, incarnation, Word::Pmi(line)).await;
                }
            }
            Said::Ended(rank, how) => {
                let Some(InPod { incarnation, .. }) = self.ranks.remove(&rank) else {
                    return;
                };
                if self.ranks.is_empty() {
                    // The tender ends with its input, and the pod with the tender.
                    self.last = Some((rank, incarnation, how));
                    self.to_tender = None;
                } else {
                    self.tell(rank, incarnation, Word::Ended(how)).await;
                }
            }
            Said::Failed(rank, reason) => {
                if let Some(InPod { incarnation, .. }) = self.ranks.remove(&rank) {
                    let input = Input::SpawnFailed { rank, incarnation, reason };
                    let _ = self.ends.inputs.send(input).await;
                }
            }
            Said::Held(number) => {
                if let Some(episode) = self.preparing.take_if(|episode| episode.0 == number) {
                    let input = Input::Prepared { episode, result: Ok(()) };
                    let _ = self.ends.inputs.send(input).await;
                }
            }
            Said::Synced => {}
        }
    }

    async fn say(&mut self, word: ToTender) {
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
                self.say(ToTender::Spawn { rank, argv, env, cwd }).await;
            }
            Order::Tell(word) => self.say(word).await,
            Order::Prepare(episode, set) => {
                self.prepared = Some(set.clone());
                match self.steps(Moment::Prepare, &set, Path::new("/")).await {
                    Ok(()) => {
                        self.preparing = Some(episode);
                        self.say(ToTender::Hold(episode.0)).await;
                    }
                    Err(reason) => {
                        let input = Input::Prepared { episode, result: Err(reason) };
                        let _ = self.ends.inputs.send(input).await;
                    }
                }
            }
            Order::Save { episode, set, leave, space } => {
                let result = self.save(&set, leave, &space).await;
                let gone = leave && result.is_ok();
                if gone {
                    self.ranks.clear();
                }
                let _ = self.ends.inputs.send(Input::Saved { episode, result }).await;
                return gone;
            }
            Order::Release => self.release().await,
        }
        false
    }

    async fn release(&mut self) {
        self.preparing = None;
        if let Some(set) = self.prepared.take()
            && let Err(error) = self.steps(Moment::Release, &set, Path::new("/")).await
        {
            tracing::warn!(node = %self.spec.node, %error, "the ranks may not go on");
        }
        self.quiet = false;
        self.say(ToTender::Go).await;
        for word in core::mem::take(&mut self.kept) {
            self.say(word).await;
        }
    }

    /// Runs what the backend has for a moment, for the pod as a whole.
    async fn steps(&self, moment: Moment, set: &SetId, image: &Path) -> Result<(), String> {
        self.steps_with(moment, set, image, None).await
    }

    async fn steps_with(
        &self,
        moment: Moment,
        set: &SetId,
        image: &Path,
        pipes: Option<((OwnedFd, OwnedFd), (u64, u64))>,
    ) -> Result<(), String> {
        let (mut fds, inodes) =
            pipes.map_or((None, self.pipes), |(fds, inodes)| (Some(fds), inodes));
        let unit = Unit {
            job: &self.spec.job,
            node: &self.spec.node,
            set,
            size: self.spec.size,
            rank: self.ranks.keys().next().copied().unwrap_or(0),
            pid: self.tender,
            image,
            pod: Some(PodPlace { holder: self.holder_pid, link: &self.link, pipes: inodes }),
        };
        let env = saver::env(&unit, &self.spec);
        for step in self.spec.backend.get().steps(moment, &unit) {
            let fds = if step.piped { fds.take() } else { None };
            let done = steps::run(&step, &env, Path::new("/"), fds).await;
            done.map_err(|error| format!("{error}{}", image::log_error(image)))?;
        }
        Ok(())
    }

    /// Waits for a word of the tender; what else it says is heard meanwhile. An error when there is none in time.
    async fn synced(&mut self) -> Result<(), String> {
        self.say(ToTender::Sync).await;
        let wait = async {
            while let Some(said) = self.said.recv().await {
                let synced = said == Said::Synced;
                self.hear(said).await;
                if synced {
                    return true;
                }
            }
            false
        };
        match tokio::time::timeout(ANSWER_WAIT, wait).await {
            Ok(true) => Ok(()),
            Ok(false) => Err("the pod has ended".to_owned()),
            Err(_) => Err("the pod's tender does not answer".to_owned()),
        }
    }

    /// Writes the image of the pod: into the directory of its first rank; those of the others say where it is.
    async fn save(
        &mut self,
        set: &SetId,
        leave: bool,
        space: &str,
    ) -> Result<Vec<(u32, u64)>, String> {
        self.synced().await?;
        self.quiet = true;
        let root = self.spec.image_dir.clone();
        let ranks: Vec<u32> = self.ranks.keys().copied().collect();
        let first = *ranks.first().ok_or("the ranks have ended")?;
        let image = images::path(&root, set, first);
        let facts = Facts { address: self.address, pipes: self.pipes, tender: self.tender, ranks };
        let made = image::make(&image, &facts, space)
            .map_err(|error| format!("cannot make {}: {error}", image.display()));
        let written = match made {
            Ok(()) => self.dump(set, &image, leave).await,
            Err(error) => Err(error),
        };
        let sizes = written.and_then(|()| image::sizes(&root, set, &image, &facts.ranks));
        if sizes.is_err() {
            images::drop_set(&root, set);
        }
        sizes
    }

    async fn dump(&mut self, set: &SetId, image: &Path, leave: bool) -> Result<(), String> {
        self.steps(Moment::Save { leave }, set, image).await?;
        if leave {
            // Everything that the ranks have said is in the pipe, and the pipe ends.
            let rest = async {
                while let Some(said) = self.said.recv().await {
                    self.hear(said).await;
                }
            };
            let ended = tokio::time::timeout(ANSWER_WAIT, rest).await;
            ended.map_err(|_| "the pod lives on after its dump".to_owned())?;
        }
        Ok(())
    }
}

impl Task {
    /// Brings a pod back; also the PMI key-value space that was saved with it.
    async fn restore(
        spec: &NlaSpec,
        number: u32,
        incarnation: u64,
        set: &SetId,
        ranks: &Ranks,
        ends: Ends,
    ) -> Result<(Self, String), String> {
        let first = ranks.iter().next().ok_or("no ranks to bring back")?;
        let image = images::path(&spec.image_dir, set, first);
        let (facts, space) = Facts::read(&image, ranks)?;
        let mut task = Self::hold(spec, number, facts.address, false, ends).await?;
        task.tender = facts.tender;
        for rank in ranks.iter() {
            task.add(rank, incarnation);
        }
        let theirs = task.connect()?;
        task.steps_with(Moment::Restore, set, &image, Some((theirs, facts.pipes))).await?;
        net::open(&task.link).await?;
        task.say(ToTender::Go).await;
        Ok((task, space))
    }
}
