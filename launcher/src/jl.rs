//! The process of the job launcher. It starts the NLAs, carries events to the core and back, keeps
//! the state on disk, stores sets, prints the ranks' output, and feeds faults to the policy.

use super::backplane::{self, EventGate, Received};
use super::connection::{self, Purpose};
use super::console;
use super::jobdir::{JobDir, JobFile, StateFile};
use super::links::{self, LinkNews};
use super::output;
use super::progress::{Progress, Wiper};
use super::refused::{Reason, Refusals};
use super::remote_kill::RemoteKill;
use super::sets::Manifest;
use super::spec::{NlaSpec, NodePart, StartMethod, Starting};
use super::streams::{self, InputNews};
use super::transfer::{self, Addresses, ImageServer, Origin};
use crate::clock::Clock;
use crate::{control, drills, nla, nodedir, reports, starter, waiting};
use core::time::Duration;
use ftb_client::{Client, Start};
use ftb_core::{Event, EventId};
use ftb_launcher_core::drill::{self, Drill};
use ftb_launcher_core::jl::{Initiator, JlInput, JlOutput, Request};
use ftb_launcher_core::link::cipher::Secret;
use ftb_launcher_core::link::packet::{FromNode, ToNode};
use ftb_launcher_core::link::router::{LinkInput, Router};
use ftb_launcher_core::manner::Moves;
use ftb_launcher_core::message::{
    Answer, FromJl, JobRequest, NlaSays, NumberedRequest, Outcome, Placement,
};
use ftb_launcher_core::names::{Episode, NodeName, SetId};
use ftb_launcher_core::policy::{self, Action, Policy, Report};
use ftb_launcher_core::tree::TreeMessage;
use ftb_launcher_core::wire::{self, WireError};
use ftb_launcher_pods::images::Outlives;
use ftb_launcher_pods::output::Frame;
use ftb_launcher_pods::pod::{self, net::PodNet};
use ftb_launcher_pods::timeline::Stopwatch;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Most inputs that wait for the core.
const INPUTS_MAX: usize = 4096;
/// Time at the end for the NLAs to leave and for their output.
const END_WAIT: Duration = Duration::from_secs(5);
/// Interval of the checks on NLAs of an adopted job.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Most checks of the network of an ended job.
const NETWORK_LOOKS_MAX: u32 = 20;
/// Exit code of a job that was asked to end: 128 + SIGTERM.
const KILLED: i32 = 143;
/// Exit code after a second signal.
const FORCED: i32 = 130;
/// Exit code after the time limit, as timeout(1).
const TIMED_OUT: i32 = 124;

/// The inputs of a job's run.
#[derive(Debug)]
pub struct LaunchJob {
    /// The request of the user.
    pub file: JobFile,
    /// The job's directory, locked by the caller.
    pub dir: JobDir,
    pub state: StateFile,
    /// How to start the NLAs; `None` if an earlier JL has started the job.
    pub starting: Option<Starting>,
    /// The policy, parsed from [`JobFile::policy`].
    pub policy: Policy,
    /// Print only the ranks' output.
    pub quiet: bool,
    pub time_limit: Option<Duration>,
    /// Conditions that hold at the start keep no node from being used.
    pub ignores_conditions: bool,
    /// End an adopted job at once.
    pub end: bool,
}

struct JobLauncher {
    file: JobFile,
    dir: JobDir,
    state: StateFile,
    policy: Policy,
    quiet: bool,
    progress: Progress,
    limit_ns: u64,
    clock: Clock,
    gate: EventGate,
    client: Client,
    inputs: mpsc::Sender<JlInput>,
    links: JobLinks,
    local: bool,
    /// Kills NLAs on other hosts.
    remote_kill: RemoteKill,
}

/// Runs a job to its end; returns the exit code.
///
/// # Errors
/// The launcher itself cannot start (no agent, no NLA program).
pub async fn run(run: LaunchJob) -> Result<i32, String> {
    connection::allow_many_files();
    let job = run.file.job.clone();
    let clock = Clock::start();
    let progress = Progress::new(run.quiet);
    let (listener, address) = nla::listen(&run.file.listen, &run.file.address).await?;
    let client = backplane::attach("ftb-launch", &run.file.agent, job.as_str()).await?;
    let (to_heard, mut heard) = mpsc::channel(INPUTS_MAX);
    let gate = EventGate { refusals: Refusals::default(), clock };
    let own = backplane::subscribe_own(&client, &format!("jobid={job}"), Start::Now).await?;
    tokio::spawn(backplane::forward(own, gate.clone(), to_heard));
    let nodes = run.file.specs.keys();
    let begun = reports::begin(&client, run.policy.spaces(), nodes, &gate).await?;
    let (conditions, mut reports) = begun;
    let mut drills = drills::begin(&client, job.as_str(), &gate).await?;

    let (inputs, mut from_tasks) = mpsc::channel(INPUTS_MAX);
    let (say, mut words) = mpsc::channel(INPUTS_MAX);
    let (starting, end) = (run.starting.clone(), run.end);
    let ignores = run.ignores_conditions;
    let joined = join(&run, (listener, address), clock, progress.wiper());
    let (ends, mut from_nodes, printer) = joined;
    let mut shell = JobLauncher::new(run, (clock, gate), client, inputs, ends, progress);
    shell.adopt_faults();
    let later = shell.read_conditions(conditions, starting.is_none(), ignores).await;
    let mut signals = Caught::listen().map_err(|error| error.to_string())?;
    if let Some(starting) = starting {
        shell.start_nlas(starting, say);
        shell.handle(JlInput::Started).await;
    } else {
        shell.take_over(end, say).await;
    }
    shell.act(later).await;
    let mut stops = 0;
    while shell.state.exit.is_none() {
        let deadline = shell.next_deadline_ns();
        tokio::select! {
            biased;
            signal = signals.next() => stops += shell.on_signal(signal, stops).await,
            Some(word) = words.recv() => shell.on_tree_message(word).await,
            Some(input) = from_tasks.recv() => shell.handle(input).await,
            Some(says) = from_nodes.recv() => shell.handle(JlInput::Nla(says)).await,
            Some(heard) = heard.recv() => shell.on_event(heard).await,
            Some(report) = reports.recv() => shell.on_report(&report).await,
            Some((id, drill)) = drills.recv() => shell.on_drill(id, &drill).await,
            () = clock.sleep_until(deadline) => shell.on_tick().await,
        }
        shell.gate.look();
    }
    shell.gate.close();
    let code = shell.state.exit.unwrap_or(FORCED);
    shell.leave_nodes().await;
    let printed = print_rest(printer, &mut signals, &shell.links.arriving);
    waiting::on("the ranks' output to be printed", printed).await;
    shell.kill_all_nlas();
    waiting::on("launch agents on other hosts to be killed", shell.remote_kill.done()).await;
    waiting::on("the network of the job to be removed", shell.clear_networks()).await;
    backplane::close(shell.client).await;
    Ok(code)
}

/// The ends of the job connection.
struct JobLinks {
    to_nodes: mpsc::Sender<LinkInput>,
    input: mpsc::UnboundedSender<InputNews>,
    /// Where this JL listens.
    address: String,
    /// Where the nodes listen.
    addresses: Arc<Mutex<Addresses>>,
    arriving: Arc<Mutex<Arriving>>,
}

/// Output on the way.
#[derive(Default)]
struct Arriving {
    /// Nodes whose last message has not arrived.
    nodes: BTreeSet<NodeName>,
    /// Frames so far.
    frames: u64,
}

/// Serves processes of the job: messages, streams and images. Returns also the messages of nodes,
/// and the task that prints.
fn join(
    run: &LaunchJob,
    (listener, address): (TcpListener, String),
    clock: Clock,
    wiper: Wiper,
) -> (JobLinks, mpsc::Receiver<NlaSays>, JoinHandle<()>) {
    let secret = run.file.secret();
    let addresses = Arc::new(Mutex::new(run.state.addresses.clone()));
    let images = ImageServer::of_store(&run.dir, &run.file);
    let (to_tree, accepted) = mpsc::channel(INPUTS_MAX);
    tokio::spawn(connection::serve(listener, secret.clone(), images, to_tree));
    let router = Router::of_jl(control::random() | 1, run.file.specs.keys().cloned());
    let (to_nodes, orders) = mpsc::channel(INPUTS_MAX);
    let (to_shell, from_nodes) = mpsc::channel(INPUTS_MAX);
    let (frames, to_print) = mpsc::unbounded_channel();
    let printed = to_nodes.downgrade();
    let printer = tokio::spawn(output::print(to_print, printed, run.printing(), wiper));
    let (to_input, input_news) = mpsc::unbounded_channel();
    let input = to_input.clone();
    tokio::spawn(streams::give(input_news, to_nodes.downgrade()));
    let joined: BTreeMap<NodeName, watch::Sender<bool>> =
        run.state.addresses.keys().map(|node| (node.clone(), watch::Sender::new(false))).collect();
    for (node, to) in &run.state.addresses {
        let joined = joined.get(node).map(watch::Sender::subscribe);
        tokio::spawn(announce(address.clone(), to.clone(), secret.clone(), joined));
    }
    let (known, arriving) = (addresses.clone(), Arc::new(Mutex::new(Arriving::default())));
    let output = arriving.clone();
    let news = move |news| match news {
        LinkNews::Launcher(_) => {}
        LinkNews::Left(node) => drop(locked(&output).nodes.remove(&node)),
        LinkNews::Joined { node, address, first } => {
            if first {
                locked(&output).nodes.insert(node.clone());
            }
            if let Some(joined) = joined.get(&node) {
                joined.send_replace(true);
            }
            let _ = input.send(InputNews::Path(node.clone(), true));
            locked(&known).insert(node, address);
        }
        LinkNews::Parted(node) => drop(input.send(InputNews::Path(node, false))),
        LinkNews::Message { node, message } => match FromNode::decode(message) {
            // A message that finds no room is repeated by its node.
            Some(FromNode::Nla(message)) => {
                drop(to_shell.try_send(NlaSays { node, message }));
            }
            Some(FromNode::OutputLost(bytes)) => {
                lose(&node, &format!("its file was full: {bytes} bytes"))
            }
            Some(FromNode::Output { rank, stream, bytes }) => {
                locked(&output).frames += 1;
                drop(frames.send((node, Frame { rank, stream, bytes })));
            }
            Some(FromNode::WantInput { request }) => {
                drop(input.send(InputNews::Wanted((node, request))));
            }
            Some(FromNode::InputTaken { request, bytes }) => {
                drop(input.send(InputNews::Taken((node, request), bytes)));
            }
            Some(FromNode::InputDone { request }) => {
                drop(input.send(InputNews::Done((node, request))));
            }
            None => tracing::warn!(%node, "a message is malformed"),
        },
    };
    tokio::spawn(links::run(router, secret, clock, accepted, orders, news));
    let links = JobLinks { to_nodes, input: to_input, address, addresses, arriving };
    (links, from_nodes, printer)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn address_in(addresses: &Mutex<Addresses>, node: &NodeName) -> Option<String> {
    locked(addresses).get(node).cloned()
}

/// Reports lost output; the exit code shows it too.
fn lose(node: &NodeName, reason: &str) {
    console::err().line(&format!("ftb-launch: output of node {node} is lost: {reason}"));
    console::out().lose("it did not arrive");
}

/// Announces the address of this JL to an NLA of an earlier one until it has joined.
async fn announce(own: String, to: String, secret: Secret, joined: Option<watch::Receiver<bool>>) {
    let Some(mut joined) = joined else { return };
    let purpose = Purpose::Launcher(own);
    loop {
        let dialed = connection::dial(&to, &secret, &purpose).await;
        let _ = dialed.inspect_err(|error| tracing::info!(%to, %error, "no launch agent answers"));
        let joins = joined.wait_for(|joined| *joined);
        if tokio::time::timeout(nla::ANNOUNCE_EVERY, joins).await.is_ok() {
            return;
        }
    }
}

/// Waits for the rest of the ranks' output while it arrives, and as long as a slow reader needs.
/// Nothing for [`END_WAIT`] or a signal ends the wait.
async fn print_rest(mut printer: JoinHandle<()>, signals: &mut Caught, arriving: &Mutex<Arriving>) {
    let mut frames = locked(arriving).frames;
    loop {
        tokio::select! {
            _ = &mut printer => return,
            _ = signals.next() => return console::out().lose("it was not read to its end"),
            () = tokio::time::sleep(END_WAIT) => {
                let arriving = locked(arriving);
                let more = core::mem::replace(&mut frames, arriving.frames) != arriving.frames;
                if !more && !console::out().is_busy() && !console::err().is_busy() {
                    for node in &arriving.nodes {
                        lose(node, "its end did not arrive");
                    }
                    return;
                }
            }
        }
    }
}

impl LaunchJob {
    /// `ftb-launch kill` prints its own answer on standard output.
    fn printing(&self) -> output::Printing {
        output::Printing { prefix: self.file.prefix, all_to_err: self.end }
    }
}

/// The signals that the launcher takes.
struct Caught(Vec<(i32, Signals)>);

impl Caught {
    fn listen() -> std::io::Result<Self> {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
        ];
        let listen = |kind: SignalKind| Ok((kind.as_raw_value(), signal(kind)?));
        kinds.into_iter().map(listen).collect::<std::io::Result<_>>().map(Self)
    }

    async fn next(&mut self) -> i32 {
        let waits = self.0.iter_mut().map(|(number, signal)| {
            Box::pin(async move {
                signal.recv().await;
                *number
            })
        });
        futures_util::future::select_all(waits).await.0
    }
}

impl JobLauncher {
    fn new(
        run: LaunchJob,
        (clock, gate): (Clock, EventGate),
        client: Client,
        inputs: mpsc::Sender<JlInput>,
        links: JobLinks,
        progress: Progress,
    ) -> Self {
        let now = clock.now();
        let after = |wait: Option<Duration>| wait.map_or(u64::MAX, |wait| now.deadline_ns(wait));
        Self {
            remote_kill: RemoteKill::new(run.file.starting.clone()),
            limit_ns: after(run.time_limit),
            file: run.file,
            dir: run.dir,
            state: run.state,
            policy: run.policy,
            quiet: run.quiet,
            progress,
            clock,
            gate,
            client,
            inputs,
            links,
            local: false,
        }
    }

    fn next_deadline_ns(&self) -> u64 {
        let cores = self.state.jl.next_deadline_ns().min(self.policy.next_deadline_ns());
        cores.min(self.limit_ns).min(self.progress.next_deadline_ns())
    }

    /// SIGUSR1 and SIGUSR2 go to the ranks. Other signals end the job; a second one ends it by
    /// force.
    async fn on_signal(&mut self, signal: i32, stops: u32) -> u32 {
        if matches!(Signal::try_from(signal), Ok(Signal::SIGUSR1 | Signal::SIGUSR2)) {
            self.handle(JlInput::Signal(signal)).await;
            return 0;
        }
        if stops > 0 {
            self.kill_all_nlas();
            for (node, spec) in &self.file.specs {
                self.remote_kill.kill(node, &spec.image_dir);
            }
            self.state.exit = Some(FORCED);
            return 1;
        }
        let name = Signal::try_from(signal).map_or("a signal", Signal::as_str);
        let reason = format!("the launcher got {name}");
        let want = Request::Kill { code: 128 + signal, reason };
        self.handle(JlInput::Request { want, by: Initiator::Internal }).await;
        1
    }

    fn start_nlas(&mut self, starting: Starting, say: mpsc::Sender<TreeMessage>) {
        self.local = starting.means == StartMethod::Local;
        let Some(any) = self.file.specs.values().next().cloned() else {
            return;
        };
        let any = NlaSpec { uplinks: vec![self.links.address.clone()], ..any };
        let nodes: Vec<NodePart> = self.file.specs.values().map(NlaSpec::part).collect();
        tokio::spawn(starter::run(starting, any, nodes, self.clock, say));
    }

    /// Handles a message of the launch tree.
    async fn on_tree_message(&mut self, word: TreeMessage) {
        match word {
            TreeMessage::Up { node, pid } if self.local => {
                self.state.nlas.insert(node, pid);
            }
            TreeMessage::Up { node, .. } => tracing::debug!(%node, "its launch agent is up"),
            TreeMessage::Lost { node, reason } => self.handle(JlInput::Gone { node, reason }).await,
        }
    }

    /// Continues the work of an earlier JL. If that one was killed before all launch agents were
    /// up, all are started again; an agent that exists reports in place of the second one.
    async fn take_over(&mut self, end: bool, say: mpsc::Sender<TreeMessage>) {
        let starting = self.file.starting.clone();
        self.local = starting.as_ref().is_some_and(|starting| starting.means == StartMethod::Local);
        if self.local {
            self.find_nlas();
        }
        self.watch_nlas();
        self.handle(JlInput::Adopted).await;
        let gathers = self.state.jl.gathers();
        match starting.filter(|_| gathers && !end) {
            Some(starting) => self.start_nlas(starting, say),
            None if self.local => self.miss_nlas().await,
            None => {}
        }
        if end {
            let reason = "it was asked to".to_owned();
            let want = Request::Kill { code: KILLED, reason };
            self.handle(JlInput::Request { want, by: Initiator::Internal }).await;
        }
    }

    /// Finds local launch agents that the earlier JL has started but not recorded.
    fn find_nlas(&mut self) {
        for (node, spec) in &self.file.specs {
            if !self.state.nlas.contains_key(node)
                && let Some(pid) = nodedir::agent_of(&spec.image_dir)
            {
                self.state.nlas.insert(node.clone(), pid);
            }
        }
    }

    /// Reports local nodes without a launch agent as gone.
    async fn miss_nlas(&mut self) {
        let known = &self.state.nlas;
        let missing = self.file.specs.keys().filter(|node| !known.contains_key(*node));
        for node in missing.cloned().collect::<Vec<_>>() {
            let reason = "its launch agent is not there".to_owned();
            self.handle(JlInput::Gone { node, reason }).await;
        }
    }

    /// NLAs of an earlier JL are not children of this process, so it polls for their ends.
    fn watch_nlas(&self) {
        for (node, pid) in self.state.nlas.clone() {
            let inputs = self.inputs.clone();
            tokio::spawn(async move {
                while nodedir::is_agent(pid) {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                let reason = "its launch agent has ended".to_owned();
                let _ = inputs.send(JlInput::Gone { node, reason }).await;
            });
        }
    }

    fn kill_all_nlas(&mut self) {
        for node in self.state.nlas.keys().cloned().collect::<Vec<_>>() {
            self.kill_own_nla(&node);
        }
    }

    /// Removes the job's own bridge if the launch agents could not.
    async fn clear_networks(&self) {
        let nets: Vec<PodNet> =
            self.file.specs.values().filter_map(|spec| spec.pod.clone()).collect();
        let Some(net) = nets.into_iter().find(|net| net.own) else {
            return;
        };
        // Links disappear a moment after their processes.
        for _ in 0..NETWORK_LOOKS_MAX {
            let net = net.clone();
            let gone = tokio::task::spawn_blocking(move || pod::net::remove_bridge(&net)).await;
            if gone.unwrap_or(true) {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        tracing::warn!(bridge = net.bridge, "the job's bridge stays: something hangs on it");
    }

    fn kill_nla(&mut self, node: &NodeName) {
        if let Some(spec) = self.file.specs.get(node) {
            self.remote_kill.kill(node, &spec.image_dir);
        }
        self.kill_own_nla(node);
    }

    fn kill_own_nla(&mut self, node: &NodeName) {
        let Some(pid) = self.state.nlas.remove(node).filter(|pid| nodedir::is_agent(*pid)) else {
            return;
        };
        if let Ok(pid) = i32::try_from(pid) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }

    /// Whether the launch agent of a node is a live process on this host.
    fn lives(&self, node: &NodeName) -> bool {
        self.state.nlas.get(node).is_some_and(|pid| nodedir::is_agent(*pid))
    }

    async fn on_event(&mut self, heard: Received) {
        let event = match heard {
            Received::Event(event) => event,
            Received::Gap => return self.handle(JlInput::Gap).await,
        };
        let space = event.space.as_str().to_ascii_lowercase();
        let input = match space.as_str() {
            wire::SPACE_NLA => wire::from_nla(&event).map(JlInput::Nla),
            wire::SPACE_MPI => wire::from_rank(&event).map(JlInput::Rank),
            wire::SPACE_JOB => match wire::from_request(&event) {
                Ok(Ok(asked)) => return self.on_request(&asked).await,
                Ok(Err(_)) => return,
                Err(error) => Err(error),
            },
            _ => return,
        };
        match input {
            Ok(input) => self.handle(input).await,
            // Other messages in these spaces are not for the launcher.
            Err(error @ WireError::Unknown(_)) => tracing::debug!(%error, "an event was ignored"),
            Err(error) => self.gate.refuse(Reason::Malformed, error),
        }
    }

    async fn on_request(&mut self, asked: &NumberedRequest) {
        match &asked.what {
            JobRequest::ResetBreaker => {
                self.policy.reset();
                let words = "the policy acts again".to_owned();
                let answer = Answer { request: asked.request, outcome: Outcome::Done, words };
                self.publish(wire::answer(&answer)).await;
            }
            JobRequest::Drain(node) => self.policy.drain(node),
            JobRequest::Usable(node) => self.policy.usable(self.clock.now(), node),
            JobRequest::Checkpoint | JobRequest::Migrate(_) | JobRequest::Kill => {}
        }
        if let Some(want) = Request::of_request(asked) {
            self.handle(JlInput::Request { want, by: Initiator::Request(asked.request) }).await;
        }
    }

    async fn on_report(&mut self, report: &Report) {
        if let Some(node) = self.node_of(report) {
            let facts = self.facts();
            let actions = self.policy.event(self.clock.now(), report, &node, &facts);
            self.act(actions).await;
        }
    }

    /// Answers what would be done. Nothing is.
    async fn on_drill(&self, id: EventId, drill: &Drill) {
        let (now, jl) = (self.clock.now(), &self.state.jl);
        let answer = drill::decide(now, drill, id, &self.policy, jl, &self.facts());
        tracing::info!(drill = %drill.number, "{}", answer.words);
        self.publish(drill::answer(&answer, id)).await;
    }

    /// The node of the job that a report is about, if its publisher may speak about it.
    fn node_of(&self, report: &Report) -> Option<NodeName> {
        let node = report.node().filter(|node| self.state.jl.job().nodes.contains_key(node))?;
        let checked = self.policy.check(report, &node, self.facts().owner);
        checked.map_err(|error| self.gate.refuse(Reason::Unproven, error)).ok()?;
        Some(node)
    }

    /// Takes the conditions that hold, before a job begins: nodes with a fault get no ranks.
    /// Returns the actions that need a JL that has begun.
    async fn read_conditions(
        &mut self,
        rows: Vec<Report>,
        adopts: bool,
        ignores: bool,
    ) -> Vec<Action> {
        let now = self.clock.now();
        // Before the start no rank is to be moved.
        let nodes = if adopts { self.facts().nodes } else { BTreeSet::new() };
        let facts = policy::Facts { nodes, ..self.facts() };
        let mut actions = Vec::new();
        for report in &rows {
            let Some(node) = self.node_of(report) else { continue };
            let of_row = self.policy.event(now, report, &node, &facts);
            if ignores {
                self.policy.usable(now, &node);
            } else {
                actions.extend(of_row);
            }
        }
        let faulty = self.state.jl.job().nodes.iter();
        let faulty =
            faulty.filter(|(_, node)| node.unusable.as_ref().is_some_and(|why| !why.lasts));
        let faulty: Vec<NodeName> = faulty.map(|(name, _)| name.clone()).collect();
        for node in faulty {
            actions.extend(self.policy.adopt_unusable(now, &node));
        }
        let is_first = |action: &Action| !adopts && matches!(action, Action::Unusable { .. });
        let (first, later) = actions.into_iter().partition(is_first);
        self.act(first).await;
        later
    }

    /// Passes orders and waiting faults of an earlier launcher to the policy.
    fn adopt_faults(&mut self) {
        self.policy.adopt_orders(self.state.orders.clone());
        let now = self.clock.now();
        self.policy.follow(self.state.jl.job().faults.newest());
        for (fault, node, reason) in self.state.jl.waiting_faults() {
            self.policy.adopt(now, fault, node, reason);
        }
    }

    fn facts(&self) -> policy::Facts {
        let job = self.state.jl.job();
        let owner = nix::unistd::Uid::effective().as_raw();
        policy::Facts { nodes: job.placement().into_keys().collect(), owner }
    }

    async fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Tell(words) => self.tell(&words),
                Action::Unusable { node, why } => {
                    self.handle(JlInput::Unusable { node, why }).await;
                }
                Action::Request { want, fault } => {
                    let by = match fault {
                        Some((fault, cause)) => {
                            self.handle(JlInput::Explained { fault, cause }).await;
                            Initiator::Fault(fault)
                        }
                        None => Initiator::Internal,
                    };
                    self.handle(JlInput::Request { want, by }).await;
                }
                Action::Cancel { faults, reason } => {
                    self.handle(JlInput::Cancel { faults, reason }).await;
                }
                Action::Gone { node, .. } if self.lives(&node) => self.tell(&format!(
                    "node {node} is out of the backplane, but its launch agent lives: waiting for its agent"
                )),
                Action::Gone { node, reason } => self.handle(JlInput::Gone { node, reason }).await,
            }
        }
    }

    async fn on_tick(&mut self) {
        let facts = self.facts();
        let actions = self.policy.tick(self.clock.now(), &facts);
        self.act(actions).await;
        let now = self.clock.now();
        if now.mono_ns >= self.limit_ns {
            self.limit_ns = u64::MAX;
            let want = Request::Kill { code: TIMED_OUT, reason: "its time is over".to_owned() };
            self.handle(JlInput::Request { want, by: Initiator::Internal }).await;
        }
        self.handle(JlInput::Tick).await;
    }

    async fn handle(&mut self, input: JlInput) {
        let mut out = Vec::new();
        self.state.jl.handle(self.clock.now(), input, &mut out);
        let mut out = VecDeque::from(out);
        while let Some(output) = out.pop_front() {
            match output {
                JlOutput::Save => self.save(&mut out),
                output => self.output(output).await,
            }
        }
        self.progress.look(self.clock.now(), &self.state.jl);
    }

    /// Writes the state. If that fails, the core takes back what the batch has decided.
    fn save(&mut self, batch: &mut VecDeque<JlOutput>) {
        let time = Stopwatch::start();
        self.state.addresses.clone_from(&locked(&self.links.addresses));
        self.state.orders.clone_from(self.policy.orders());
        let saved = self.dir.write("state.json", &self.state);
        time.done(&"launcher", "write the job's state");
        let (now, jl, mut more) = (self.clock.now(), &mut self.state.jl, Vec::new());
        match saved {
            Ok(()) if jl.is_unsaved() => jl.handle(now, JlInput::Saved, &mut more),
            Ok(()) => {}
            Err(why) => {
                jl.handle(now, JlInput::SaveFailed { why }, &mut more);
                batch.retain(|output| !jl.is_taken_back(output));
            }
        }
        batch.extend(more);
    }

    async fn publish(&self, event: Event) {
        backplane::publish(&self.client, event).await;
    }

    /// PMI and requests to protect images go over the job connection, FTB_JL_ALIVE both ways. The
    /// target of a copy gets the addresses of the sources. `node`: the only receiver of a message
    /// over the job connection.
    async fn say(&self, node: Option<NodeName>, message: FromJl) {
        let mut node = node;
        let event = wire::to_jl(&message);
        if let Some((target, sources)) = message.parties() {
            for source in sources {
                let Some(address) = address_in(&self.links.addresses, source) else { continue };
                let message = ToNode::Address { node: source.clone(), address }.encode();
                let node = Some(target.clone());
                let send = LinkInput::Send { node, message, keep: true };
                let _ = self.links.to_nodes.send(send).await;
            }
            node = node.or_else(|| Some(target.clone()));
        }
        if event.is_none() || message == FromJl::Alive {
            let message = ToNode::Jl(message).encode();
            let _ = self.links.to_nodes.send(LinkInput::Send { node, message, keep: false }).await;
        }
        if let Some(event) = event {
            self.publish(event).await;
        }
    }

    /// Waits for no further output of lost nodes. Launch agents close their connections when they
    /// leave; lost ones may not.
    async fn leave_nodes(&self) {
        for (node, _) in self.state.jl.job().nodes.iter().filter(|(_, row)| row.lost) {
            locked(&self.links.arriving).nodes.remove(node);
            let _ = self.links.to_nodes.send(LinkInput::Forget(node.clone())).await;
        }
        let _ = self.links.to_nodes.send(LinkInput::Leave).await;
    }

    async fn output(&mut self, output: JlOutput) {
        match output {
            // Before all others of its batch.
            JlOutput::Save => {}
            JlOutput::Publish(message) => self.say(None, message).await,
            JlOutput::Repeat { node, message } => self.say(Some(node), message).await,
            JlOutput::Answer(answer) => self.publish(wire::answer(&answer)).await,
            JlOutput::Store { episode, set, from } => self.store(episode, set, from),
            JlOutput::DropStored(set) => self.dir.drop_set(&set),
            JlOutput::KillNla(node) => {
                self.kill_nla(&node);
                let _ = self.links.input.send(InputNews::Path(node, false));
            }
            JlOutput::Tell(words) => self.tell(&words),
            JlOutput::Exit(code) => {
                self.state.exit = Some(code);
                if let Err(error) = self.dir.write("state.json", &self.state) {
                    tracing::error!(%error, "the end of the job is not on disk");
                }
            }
        }
    }

    fn tell(&self, words: &str) {
        tracing::info!(target: "ftb::transition", job = %self.file.job, "{words}");
        if !self.quiet {
            self.progress.wiper().wipe();
            console::err().line(&format!("ftb-launch: {words}"));
        }
    }

    /// Fetches all images of a set into the store and commits the set when all are complete.
    fn store(&self, episode: Episode, set: SetId, from: Placement) {
        let (inputs, dir, job) = (self.inputs.clone(), self.dir.clone(), self.file.job.clone());
        let (secret, addresses) = (self.file.secret(), self.links.addresses.clone());
        let set_key = self.file.set_key.clone();
        let size = self.state.jl.job().config.size;
        // Restored ranks keep the grouping of their set.
        let together = self.state.jl.job().config.manner.moves == Moves::Alone;
        let pods = from.values().filter(|_| together).cloned().collect();
        tokio::task::spawn_blocking(move || {
            let mut all = BTreeMap::new();
            let result = from.iter().try_for_each(|(node, ranks)| {
                let server = address_in(&addresses, node);
                let server = server.ok_or_else(|| format!("node {node} has no connection"))?;
                let from = Origin { server: &server, secret: &secret, early: false };
                let images = transfer::fetch(from, &dir.sets(), &set, ranks, Outlives::Host)?;
                all.extend(ranks.iter().zip(images));
                Ok(())
            });
            let result = result.and_then(|()| {
                let images: Vec<(u64, u32)> = all.into_values().collect();
                let bytes = images.iter().map(|(bytes, _)| bytes).sum();
                let (digests, code) = (Vec::new(), String::new());
                let set = set.clone();
                let manifest = Manifest { job, set, size, images, pods, digests, code };
                let sealed = set_key.seal(&dir.sets(), manifest)?;
                dir.commit(&sealed).map(|()| bytes)
            });
            if result.is_err() {
                dir.drop_set(&set);
            }
            let _ = inputs.blocking_send(JlInput::Stored { episode, result });
        });
    }
}
