//! The shell of the job launcher: starts the NLAs, carries events to the core and back, keeps the state on disk,
//! fetches sets into the store, prints the ranks' output, and asks the policy what a fault means.

use super::console;
use super::far::Far;
use super::jobdir::{JobDir, JobFile, Manifest, StateFile};
use super::link::{self, Door, Heard};
use super::output;
use super::progress::Progress;
use super::refused::{Reason, Refusals};
use super::seal::Seal;
use super::secret::Secret;
use super::spec::{Means, NlaSpec, NodePart, Starting};
use super::streams;
use super::transfer::{self, Origin};
use crate::clock::Clock;
use crate::{nla, nodedir, starter, waiting};
use core::time::Duration;
use ftb_client::Client;
use ftb_core::Event;
use ftb_launcher_core::jl::{By, Input, Output, Want};
use ftb_launcher_core::manner::Moves;
use ftb_launcher_core::message::{Answer, Asked, FromJl, Outcome, Request};
use ftb_launcher_core::names::{Episode, NodeName, Ranks, SetId};
use ftb_launcher_core::policy::{self, Action, Policy};
use ftb_launcher_core::tree::Word;
use ftb_launcher_core::wire::{self, WireError};
use ftb_launcher_pods::images::Outlives;
use ftb_launcher_pods::pod::{self, net::PodNet};
use ftb_launcher_pods::timeline::Step;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal as Signals, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Inputs that wait for the core.
const INPUTS_MAX: usize = 4096;
/// How long to wait at the end for the NLAs to be gone and their output to be printed.
const END_WAIT: Duration = Duration::from_secs(5);
/// How often the NLAs of an adopted job are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// How often the network of an ended job is looked at before it is left.
const NETWORK_LOOKS_MAX: u32 = 20;
/// The exit code of a job that was asked to end: 128 + SIGTERM.
const KILLED: i32 = 143;
/// The exit code when a second signal ends the launcher by force.
const FORCED: i32 = 130;
/// The exit code of a job whose time limit is over, as timeout(1).
const TIMED_OUT: i32 = 124;

/// What the run of a job is made of.
#[derive(Debug)]
pub struct Run {
    /// What was asked for.
    pub file: JobFile,
    /// The job's directory; made, locked by the caller.
    pub dir: JobDir,
    /// The state to begin with.
    pub state: StateFile,
    /// How to start the NLAs; none where a JL before this one has started the job.
    pub starting: Option<Starting>,
    /// The policy, read from [`JobFile::policy`].
    pub policy: Policy,
    /// Say nothing but what the ranks say.
    pub quiet: bool,
    /// End it after so long.
    pub time_limit: Option<Duration>,
    /// Of a job that is taken over: end it at once.
    pub end: bool,
}

struct Shell {
    file: JobFile,
    dir: JobDir,
    state: StateFile,
    policy: Policy,
    quiet: bool,
    progress: Progress,
    limit_ns: u64,
    clock: Clock,
    door: Door,
    client: Client,
    inputs: mpsc::Sender<Input>,
    /// Where output is taken and input given.
    streams: String,
    /// The NLAs are processes of this host.
    local: bool,
    /// Ends those of other hosts by force.
    far: Far,
}

/// Runs a job to its end; returns the exit code.
///
/// # Errors
/// One line: the launcher itself cannot start (no agent, no NLA program).
pub async fn run(run: Run) -> Result<i32, String> {
    allow_many_files();
    let key = run.file.specs.values().next().map(|spec| spec.token.clone()).unwrap_or_default();
    let (listener, store) = listen(&run.file).await?;
    tokio::spawn(transfer::serve(listener, run.dir.sets(), Secret::new(&key)));
    let (listener, streams) = listen(&run.file).await?;
    let (frames, to_print) = mpsc::channel(output::FRAMES_MAX);
    let input = Arc::new(streams::Input::new());
    let serving = tokio::spawn(streams::serve(listener, Secret::new(&key), frames, input));
    let progress = Progress::new(run.quiet);
    let printer = tokio::spawn(output::print(to_print, run.printing(), progress.wiper()));

    let job = run.file.job.clone();
    let client = link::attach("ftb-launch", &run.file.agent, job.as_str()).await?;
    let (to_heard, mut heard) = mpsc::channel(INPUTS_MAX);
    let clock = Clock::start();
    let seal = Seal::new(job.as_str(), &Secret::new(&key));
    let door = Door { seal, refusals: Refusals::default(), clock };
    let own = link::subscribe(&client, &format!("jobid={job}")).await?;
    tokio::spawn(link::forward(own, Some(door.clone()), to_heard));
    let (to_faults, mut faults) = mpsc::channel(INPUTS_MAX);
    for space in run.policy.spaces() {
        let subscription = link::subscribe(&client, &format!("event_space={space}")).await?;
        tokio::spawn(link::forward(subscription, None, to_faults.clone()));
    }

    let (inputs, mut from_tasks) = mpsc::channel(INPUTS_MAX);
    let (say, mut words) = mpsc::channel(INPUTS_MAX);
    let (starting, end) = (run.starting.clone(), run.end);
    let mut shell = Shell::new(run, (clock, door), client, inputs, streams, progress);
    shell.adopt_faults();
    let mut signals = Caught::listen().map_err(|error| error.to_string())?;
    if let Some(starting) = starting {
        shell.start_nlas(starting, say);
        shell.handle(Input::Started { store }).await;
    } else {
        shell.take_over(Input::Adopted { store }, end, say).await;
    }
    let mut stops = 0;
    while shell.state.exit.is_none() {
        let deadline = shell.next_deadline_ns();
        tokio::select! {
            biased;
            signal = signals.next() => stops += shell.signalled(signal, stops).await,
            Some(word) = words.recv() => shell.word(word).await,
            Some(input) = from_tasks.recv() => shell.handle(input).await,
            Some(heard) = heard.recv() => shell.hear(heard).await,
            Some(fault) = faults.recv() => shell.fault(fault).await,
            () = clock.sleep_until(deadline) => shell.tick().await,
        }
        shell.door.look();
    }
    shell.door.close();
    let code = shell.state.exit.unwrap_or(FORCED);
    // Connections that are there are read to their end.
    serving.abort();
    let _ = serving.await;
    waiting::on("the ranks' output to be printed", print_rest(printer, &mut signals)).await;
    shell.kill_all_nlas();
    waiting::on("launch agents on other hosts to be killed", shell.far.done()).await;
    waiting::on("the network of the job to be removed", shell.clear_networks()).await;
    link::close(shell.client).await;
    Ok(code)
}

/// Waits for the rest of the ranks' output: [`END_WAIT`] for what is still to come, and as long as
/// a slow reader takes for what is there. A signal ends the wait.
async fn print_rest(mut printer: JoinHandle<()>, signals: &mut Caught) {
    loop {
        tokio::select! {
            _ = &mut printer => return,
            _ = signals.next() => return console::out().lose("it was not read to its end"),
            () = tokio::time::sleep(END_WAIT) => {
                if !console::out().is_busy() && !console::err().is_busy() {
                    // A node that is lost has not closed its stream.
                    tracing::warn!("some output of the ranks may be missing");
                    return;
                }
            }
        }
    }
}

impl Run {
    /// How the ranks' output is printed. `ftb-launch kill` has its own answer on standard output.
    fn printing(&self) -> output::Printing {
        output::Printing { prefix: self.file.prefix, all_to_err: self.end }
    }
}

/// Listens for the nodes; the address that they reach it at.
async fn listen(file: &JobFile) -> Result<(TcpListener, String), String> {
    let fail = |error| format!("cannot listen on {}: {error}", file.listen);
    let listener = TcpListener::bind(&file.listen).await.map_err(fail)?;
    let address = nla::reached_at(&listener, &file.address).map_err(fail)?;
    Ok((listener, address))
}

/// Each node has connections here: as many files as this user may open. With fewer the job still runs, while there
/// are not too many nodes.
fn allow_many_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
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

impl Shell {
    fn new(
        run: Run,
        (clock, door): (Clock, Door),
        client: Client,
        inputs: mpsc::Sender<Input>,
        streams: String,
        progress: Progress,
    ) -> Self {
        let now = clock.now();
        let after = |wait: Option<Duration>| wait.map_or(u64::MAX, |wait| now.deadline_ns(wait));
        Self {
            far: Far::new(run.file.starting.clone()),
            limit_ns: after(run.time_limit),
            file: run.file,
            dir: run.dir,
            state: run.state,
            policy: run.policy,
            quiet: run.quiet,
            progress,
            clock,
            door,
            client,
            inputs,
            streams,
            local: false,
        }
    }

    fn next_deadline_ns(&self) -> u64 {
        let cores = self.state.jl.next_deadline_ns().min(self.policy.next_deadline_ns());
        cores.min(self.limit_ns).min(self.progress.next_deadline_ns())
    }

    /// SIGUSR1 and SIGUSR2 go to the ranks; the others end the job, the second time by force.
    async fn signalled(&mut self, signal: i32, stops: u32) -> u32 {
        if matches!(Signal::try_from(signal), Ok(Signal::SIGUSR1 | Signal::SIGUSR2)) {
            self.handle(Input::Signal(signal)).await;
            return 0;
        }
        if stops > 0 {
            self.kill_all_nlas();
            for (node, spec) in &self.file.specs {
                self.far.kill(node, &spec.image_dir);
            }
            self.state.exit = Some(FORCED);
            return 1;
        }
        let name = Signal::try_from(signal).map_or("a signal", Signal::as_str);
        let reason = format!("the launcher got {name}");
        let want = Want::Kill { code: 128 + signal, reason };
        self.handle(Input::Want { want, by: By::Nobody }).await;
        1
    }

    fn start_nlas(&mut self, starting: Starting, say: mpsc::Sender<Word>) {
        self.local = starting.means == Means::Local;
        let Some(any) = self.file.specs.values().next().cloned() else {
            return;
        };
        let any = NlaSpec { streams: self.streams.clone(), ..any };
        let nodes: Vec<NodePart> = self.file.specs.values().map(NlaSpec::part).collect();
        tokio::spawn(starter::run(starting, any, nodes, self.clock, say));
    }

    /// What comes up the launch tree.
    async fn word(&mut self, word: Word) {
        match word {
            Word::Up { node, pid } if self.local => {
                self.state.nlas.insert(node, pid);
            }
            Word::Up { node, .. } => tracing::debug!(%node, "its launch agent is up"),
            Word::Lost { node, reason } => self.handle(Input::Gone { node, reason }).await,
        }
    }

    /// Goes on where another JL was. One that was killed before all launch agents were up has left
    /// some that never began: they are started again, and one that is there already says so.
    async fn take_over(&mut self, adopted: Input, end: bool, say: mpsc::Sender<Word>) {
        let starting = self.file.starting.clone();
        self.local = starting.as_ref().is_some_and(|starting| starting.means == Means::Local);
        if self.local {
            self.find_nlas();
        }
        self.watch_nlas();
        self.handle(adopted).await;
        let gathers = self.state.jl.gathers();
        match starting.filter(|_| gathers && !end) {
            Some(starting) => self.start_nlas(starting, say),
            None if self.local => self.miss_nlas().await,
            None => {}
        }
        if end {
            let reason = "it was asked to".to_owned();
            let want = Want::Kill { code: KILLED, reason };
            self.handle(Input::Want { want, by: By::Nobody }).await;
        }
    }

    /// Launch agents on this host that the JL before this one has started, and not written down any
    /// more.
    fn find_nlas(&mut self) {
        for (node, spec) in &self.file.specs {
            if !self.state.nlas.contains_key(node)
                && let Some(pid) = nodedir::agent_of(&spec.image_dir)
            {
                self.state.nlas.insert(node.clone(), pid);
            }
        }
    }

    /// Nodes on this host without a launch agent are gone.
    async fn miss_nlas(&mut self) {
        let known = &self.state.nlas;
        let missing = self.file.specs.keys().filter(|node| !known.contains_key(*node));
        for node in missing.cloned().collect::<Vec<_>>() {
            let reason = "its launch agent is not there".to_owned();
            self.handle(Input::Gone { node, reason }).await;
        }
    }

    /// NLAs that another JL started are no children of this one: their ends are seen by looking.
    fn watch_nlas(&self) {
        for (node, pid) in self.state.nlas.clone() {
            let inputs = self.inputs.clone();
            tokio::spawn(async move {
                while nodedir::is_agent(pid) {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                let reason = "its launch agent has ended".to_owned();
                let _ = inputs.send(Input::Gone { node, reason }).await;
            });
        }
    }

    fn kill_all_nlas(&mut self) {
        for node in self.state.nlas.keys().cloned().collect::<Vec<_>>() {
            self.kill_own_nla(&node);
        }
    }

    /// Bridges of the job's own, where a launch agent could not remove them itself.
    async fn clear_networks(&self) {
        let nets: Vec<PodNet> =
            self.file.specs.values().filter_map(|spec| spec.pod.clone()).collect();
        let Some(net) = nets.into_iter().find(|net| net.own) else {
            return;
        };
        // Links go a moment after the processes that they belonged to.
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
            self.far.kill(node, &spec.image_dir);
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

    /// Whether the launch agent of a node is a living process on this host.
    fn lives(&self, node: &NodeName) -> bool {
        self.state.nlas.get(node).is_some_and(|pid| nodedir::is_agent(*pid))
    }

    async fn hear(&mut self, heard: Heard) {
        let event = match heard {
            Heard::Event { event, .. } => event,
            Heard::Gap => return self.handle(Input::Gap).await,
        };
        let space = event.space.as_str().to_ascii_lowercase();
        let input = match space.as_str() {
            wire::SPACE_NLA => wire::from_nla(&event).map(Input::Nla),
            wire::SPACE_MPI => wire::from_rank(&event).map(Input::Rank),
            wire::SPACE_JOB => match wire::from_request(&event) {
                Ok(Ok(asked)) => return self.asked(&asked).await,
                Ok(Err(_)) => return,
                Err(error) => Err(error),
            },
            _ => return,
        };
        match input {
            Ok(input) => self.handle(input).await,
            // Ranks and others may say more in these spaces than the launcher needs.
            Err(error @ WireError::Unknown(_)) => tracing::debug!(%error, "an event was ignored"),
            Err(error) => self.door.refuse(Reason::Malformed, error),
        }
    }

    async fn asked(&mut self, asked: &Asked) {
        match &asked.what {
            Request::ResetBreaker => {
                self.policy.reset();
                let words = "the policy acts again".to_owned();
                let answer = Answer { request: asked.request, outcome: Outcome::Done, words };
                self.publish(wire::answer(&answer)).await;
            }
            Request::Drain(node) => self.policy.drain(node),
            Request::Usable(node) => self.policy.usable(node),
            Request::Checkpoint | Request::Migrate(_) | Request::Kill => {}
        }
        if let Some(want) = Want::of_request(asked) {
            self.handle(Input::Want { want, by: By::Request(asked.request) }).await;
        }
    }

    async fn fault(&mut self, heard: Heard) {
        let Heard::Event { event, host } = heard else {
            return;
        };
        let Some(node) = policy::node_of(&event, &host) else {
            return;
        };
        if !self.state.jl.job().nodes.contains_key(&node) {
            return;
        }
        let facts = self.facts();
        let actions = self.policy.event(self.clock.now(), &event, &node, &facts);
        self.act(actions).await;
    }

    /// What the launcher before this one has wanted because of faults is known to the policy of this one.
    fn adopt_faults(&mut self) {
        let now = self.clock.now();
        self.policy.follow(self.state.jl.job().faults.newest());
        for (fault, node, reason) in self.state.jl.waiting_faults() {
            self.policy.adopt(now, fault, node, reason);
        }
    }

    fn facts(&self) -> policy::Facts {
        let job = self.state.jl.job();
        policy::Facts { nodes: job.placement().into_keys().collect() }
    }

    async fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Tell(words) => self.tell(&words),
                Action::Want { want, fault } => {
                    let by = fault.map_or(By::Nobody, By::Fault);
                    self.handle(Input::Want { want, by }).await;
                }
                Action::CallOff { faults, reason } => {
                    self.handle(Input::CallOff { faults, reason }).await;
                }
                Action::Gone { node, .. } if self.lives(&node) => self.tell(&format!(
                    "node {node} is out of the backplane, but its launch agent lives: waiting for its agent"
                )),
                Action::Gone { node, reason } => self.handle(Input::Gone { node, reason }).await,
            }
        }
    }

    async fn tick(&mut self) {
        let facts = self.facts();
        let actions = self.policy.tick(self.clock.now(), &facts);
        self.act(actions).await;
        let now = self.clock.now();
        if now.mono_ns >= self.limit_ns {
            self.limit_ns = u64::MAX;
            let want = Want::Kill { code: TIMED_OUT, reason: "its time is over".to_owned() };
            self.handle(Input::Want { want, by: By::Nobody }).await;
        }
        self.handle(Input::Tick).await;
    }

    async fn handle(&mut self, input: Input) {
        let mut out = Vec::new();
        self.state.jl.handle(self.clock.now(), input, &mut out);
        for output in out {
            self.output(output).await;
        }
        self.progress.look(self.clock.now(), &self.state.jl);
    }

    async fn publish(&self, event: Event) {
        link::publish_sealed(&self.client, &self.door.seal, event).await;
    }

    /// Shows that it is there, and where it takes output and gives input.
    async fn publish_alive(&self) {
        self.publish(wire::with_streams(wire::to_jl(&FromJl::Alive), &self.streams)).await;
    }

    async fn output(&mut self, output: Output) {
        match output {
            Output::Save => {
                let time = Step::begin();
                if let Err(error) = self.dir.write("state.json", &self.state) {
                    tracing::error!(%error, "the state of the job is not on disk");
                }
                time.done(&"launcher", "write the job's state");
            }
            Output::Publish(FromJl::Alive) => self.publish_alive().await,
            // A launch agent that another launcher has started knows the streams of that one.
            Output::Publish(message @ FromJl::Launch(_)) => {
                self.publish_alive().await;
                self.publish(wire::to_jl(&message)).await;
            }
            Output::Publish(message) => self.publish(wire::to_jl(&message)).await,
            Output::Answer(answer) => self.publish(wire::answer(&answer)).await,
            Output::Store { episode, set, from } => self.store(episode, set, from),
            Output::DropStored(set) => self.dir.drop_set(&set),
            Output::KillNla(node) => self.kill_nla(&node),
            Output::Tell(words) => self.tell(&words),
            Output::Exit(code) => {
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

    /// Fetches all images of a set into the store, and commits it there when every one is complete.
    fn store(&self, episode: Episode, set: SetId, from: BTreeMap<NodeName, (String, Ranks)>) {
        let (inputs, dir, job) = (self.inputs.clone(), self.dir.clone(), self.file.job.clone());
        let token = self.file.specs.values().next().map(|spec| spec.token.clone());
        let secret = Secret::new(&token.unwrap_or_default());
        let size = self.state.jl.job().config.size;
        // Ranks that are brought back from their image, and not started, come back as they were saved.
        let together = self.state.jl.job().config.manner.moves == Moves::Alone;
        let pods = from.values().map(|(_, ranks)| ranks.clone()).filter(|_| together).collect();
        tokio::task::spawn_blocking(move || {
            let mut all = BTreeMap::new();
            let fetch = |(server, ranks): &(String, Ranks)| {
                let from = Origin { server, secret: &secret, early: false };
                let images = transfer::fetch(from, &dir.sets(), &set, ranks, Outlives::Host)?;
                Ok::<_, String>(ranks.iter().zip(images).collect::<Vec<_>>())
            };
            let result =
                from.values().try_for_each(|source| fetch(source).map(|got| all.extend(got)));
            let result = result.and_then(|()| {
                let images: Vec<(u64, u32)> = all.into_values().collect();
                let bytes = images.iter().map(|(bytes, _)| bytes).sum();
                let manifest = Manifest { job, set: set.clone(), size, images, pods };
                dir.commit(&manifest).map(|()| bytes)
            });
            if result.is_err() {
                dir.drop_set(&set);
            }
            let _ = inputs.blocking_send(Input::Stored { episode, result });
        });
    }
}
