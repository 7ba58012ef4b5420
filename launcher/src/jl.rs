//! The process of the job launcher. It starts the NLAs, carries events to the core and back, keeps
//! the state on disk, stores sets, prints the ranks' output, and feeds faults to the policy.

mod adding;
mod agents;
mod joining;
mod signals;

use super::backplane::{self, EventGate, Received, StandingSubscription};
use super::console;
use super::jobdir::{JobDir, JobFile, StateFile};
use super::listener;
use super::output;
use super::progress::Progress;
use super::refused::{Reason, Refusals};
use super::remote_kill::RemoteKill;
use super::sets::Manifest;
use super::spec::Starting;
use super::streams::InputNews;
use super::transfer::{self, Origin};
use crate::clock::Clock;
use crate::reports::{self, ReportNews};
use crate::{drills, nla, waiting};
use adding::{Adding, Starts};
use core::time::Duration;
use ftb_client::Client;
use ftb_core::Event;
use ftb_launcher_core::drill::{self, Drill, DrillSource};
use ftb_launcher_core::jl::{ADDING_MAX, Initiator, JlInput, JlOutput, Request};
use ftb_launcher_core::link::packet::ToNode;
use ftb_launcher_core::link::router::LinkInput;
use ftb_launcher_core::manner::Moves;
use ftb_launcher_core::message::{Answer, FromJl, JobRequest, NumberedRequest, Outcome, Placement};
use ftb_launcher_core::names::{Episode, NodeName, SetId};
use ftb_launcher_core::packet::PacketHead as _;
use ftb_launcher_core::policy::{self, Action, EventSource, HandledEvents, Policy, Report};
use ftb_launcher_core::wire::{self, WireError};
use ftb_launcher_pods::images::Outlives;
use ftb_launcher_pods::timeline::Stopwatch;
use joining::{JobLinks, address_in, join, locked, print_rest};
use nix::sys::signal::Signal;
use signals::Caught;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tokio::sync::mpsc;

/// Most inputs that wait for the core.
const INPUTS_MAX: usize = 4096;
/// Time at the end for the NLAs to leave and for their output.
const END_WAIT: Duration = Duration::from_secs(5);
/// Interval of the checks on NLAs of an adopted job.
const LOOK_EVERY: Duration = Duration::from_millis(300);
/// Exit code of a job that was asked to end: 128 + SIGTERM.
const KILLED: i32 = 143;
/// Exit code after a second signal.
const FORCED: i32 = 130;
/// Exit code after the time limit, as timeout(1).
const TIMED_OUT: i32 = ftb_cli::TIME_LIMIT as i32;

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
    /// What the state on disk says is handled.
    saved_handled: HandledEvents,
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
    adding: Adding,
}

/// Runs a job to its end; returns the exit code.
///
/// # Errors
/// The launcher itself cannot start (no agent, no NLA program).
pub async fn run(mut run: LaunchJob) -> Result<i32, String> {
    listener::allow_many_files();
    let job = run.file.job.clone();
    let clock = Clock::start();
    let progress = Progress::new(run.quiet);
    let (listener, address) = nla::listen(&run.file.listen, &run.file.address).await?;
    let client = backplane::attach("ftb-launch", &run.file.agent, job.as_str()).await?;
    let (to_heard, mut heard) = mpsc::channel(INPUTS_MAX);
    let gate = EventGate { refusals: Refusals::default(), clock };
    let own = StandingSubscription::begin(&client, format!("jobid={job}"), true, &gate).await?;
    tokio::spawn(backplane::forward(own, to_heard));
    let nodes = run.file.specs.keys();
    let (spaces, handled) = (run.policy.spaces(), &mut run.state.handled);
    let started = reports::begin(&client, spaces, nodes, &gate, handled).await?;
    let (conditions, mut reports, readers) = started;
    let mut drills = drills::begin(&client, job.as_str(), &gate).await?;

    let (inputs, mut from_tasks) = mpsc::channel(INPUTS_MAX);
    let (say, mut words) = mpsc::channel(INPUTS_MAX);
    let (joining, mut joins) = mpsc::channel(ADDING_MAX);
    let (starting, end) = (run.starting.clone(), run.end);
    let ignores = run.ignores_conditions;
    let joined = join(&run, (listener, address), clock, progress.wiper());
    let (ends, mut from_nodes, printer) = joined;
    let adding =
        Adding { readers, joining, say, starts: Starts::default(), dying: BTreeMap::new() };
    let mut shell = JobLauncher::new(run, (clock, gate), client, inputs, ends, progress, adding);
    let adopted = shell.adopt_faults();
    let how = (starting.is_none(), ignores);
    let later = shell.read_conditions(conditions, adopted, how).await;
    let mut signals = Caught::listen().map_err(|error| error.to_string())?;
    if let Some(starting) = starting {
        shell.start_nlas(starting);
        shell.handle(JlInput::Started).await;
    } else {
        shell.take_over(end).await;
    }
    shell.act(later, None).await;
    let mut stops = 0;
    while shell.state.exit.is_none() {
        let deadline = shell.next_deadline_ns();
        tokio::select! {
            biased;
            signal = signals.next() => stops += shell.on_signal(signal, stops).await,
            Some((start, word)) = words.recv() => shell.on_tree_message(start, word).await,
            Some(input) = from_tasks.recv() => shell.handle(input).await,
            Some(says) = from_nodes.recv() => shell.handle(JlInput::Nla(says)).await,
            Some(heard) = heard.recv() => shell.on_event(heard).await,
            Some(news) = reports.recv() => shell.on_report_news(news).await,
            Some((by, drill)) = drills.recv() => shell.on_drill(&by, &drill).await,
            Some(join) = joins.recv() => shell.on_join(join).await,
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

impl LaunchJob {
    /// `ftb-launch kill` prints its own answer on standard output.
    fn printing(&self) -> output::Printing {
        output::Printing { prefix: self.file.prefix, all_to_err: self.end }
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
        adding: Adding,
    ) -> Self {
        let now = clock.now();
        let after = |wait: Option<Duration>| wait.map_or(u64::MAX, |wait| now.deadline_ns(wait));
        Self {
            remote_kill: RemoteKill::new(run.file.starting.clone()),
            limit_ns: after(run.time_limit),
            file: run.file,
            dir: run.dir,
            saved_handled: HandledEvents::default(),
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
            adding,
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
        if self.state.jl.is_repeated(asked.request) {
            return;
        }
        match &asked.what {
            JobRequest::ResetBreaker => {
                self.policy.reset();
                self.save_handled();
                let words = "the policy acts again".to_owned();
                let answer = Answer { request: asked.request, outcome: Outcome::Done, words };
                self.publish(wire::answer(&answer)).await;
            }
            JobRequest::Drain(node) => self.policy.drain(node),
            JobRequest::Usable(node) => self.policy.usable(self.clock.now(), node),
            JobRequest::Add(nodes) => self.begin_join(asked.request, nodes).await,
            JobRequest::Checkpoint | JobRequest::Migrate(_) | JobRequest::Kill => {}
        }
        if let Some(want) = Request::of_request(asked) {
            self.handle(JlInput::Request { want, by: Initiator::Request(asked.request) }).await;
        }
    }

    async fn on_report_news(&mut self, news: ReportNews) {
        match news {
            ReportNews::Report(report) => self.on_report(&report).await,
            ReportNews::Reading(place) => {
                let (now, facts) = (self.clock.now(), self.facts());
                let actions = self.policy.end_reading(now, place, &facts);
                self.act(actions, None).await;
            }
            ReportNews::Position(space, position) => {
                let all_done = !self.policy.is_waiting();
                self.state.handled.on_position(&space, position, all_done);
                self.save_handled();
            }
        }
    }

    /// An event that an earlier launcher has handled counts no second time.
    async fn on_report(&mut self, report: &Report) {
        if report.source.as_ref().is_some_and(|source| self.state.handled.has(source)) {
            return;
        }
        let (now, facts) = (self.clock.now(), self.facts());
        let mut actions = self.policy.tick(now, &facts);
        if let Some(node) = self.node_of(report) {
            actions.extend(self.policy.event(now, report, &node, &facts));
        }
        self.act(actions, report.source.as_ref()).await;
    }

    /// Notes in the state what the policy has handled, with this event as the last.
    fn note_handled(&mut self, event: Option<&EventSource>) {
        let (policy, handled) = (&self.policy, &mut self.state.handled);
        handled.look(|id| policy.waits_for(id));
        if let Some(source) = event {
            handled.on_event(source, policy.waits_for(source.id), !policy.is_waiting());
        } else if !policy.is_waiting() {
            handled.settle();
        }
    }

    /// Answers what would be done. Nothing is.
    async fn on_drill(&mut self, by: &DrillSource, drill: &Drill) {
        self.learn_host();
        let (now, jl) = (self.clock.now(), &self.state.jl);
        let answer = drill::decide(now, drill, by, &self.policy, jl, &self.facts());
        tracing::info!(drill = %drill.number, "{}", answer.words);
        self.publish(drill::answer(&answer, by.id)).await;
    }

    /// The host of the agent that is attached now: that of the next one may have another name.
    fn learn_host(&mut self) {
        if let Some(agent) = self.client.agent() {
            self.policy.set_host(agent.host);
        }
    }

    /// The node of the job that a report is about, if its publisher may speak about it.
    fn node_of(&mut self, report: &Report) -> Option<NodeName> {
        self.learn_host();
        let node = report.node().filter(|node| self.state.jl.job().nodes.contains_key(node))?;
        if let Err(error) = self.policy.check(report, &node, self.facts().owner) {
            self.policy.on_refused(report, &node);
            self.gate.refuse(Reason::Unproven, error);
            return None;
        }
        Some(node)
    }

    /// Takes the conditions that hold, before a job begins: nodes with a fault get no ranks.
    /// Returns these and other actions that need a JL that has begun.
    async fn read_conditions(
        &mut self,
        rows: Vec<Report>,
        mut actions: Vec<Action>,
        (adopts, ignores): (bool, bool),
    ) -> Vec<Action> {
        let now = self.clock.now();
        // Before the start no rank is to be moved.
        let nodes = if adopts { self.facts().nodes } else { BTreeSet::new() };
        let facts = policy::Facts { nodes, ..self.facts() };
        for report in &rows {
            let Some(node) = self.node_of(report) else { continue };
            let of_row = self.policy.event(now, report, &node, &facts);
            if ignores {
                self.policy.usable(now, &node);
            } else {
                actions.extend(of_row);
            }
        }
        self.policy.end_first_reading();
        let faulty = self.state.jl.job().nodes.iter();
        let faulty =
            faulty.filter(|(_, node)| node.unusable.as_ref().is_some_and(|why| !why.lasts));
        let faulty: Vec<NodeName> = faulty.map(|(name, _)| name.clone()).collect();
        for node in faulty {
            actions.extend(self.policy.adopt_unusable(now, &node));
        }
        let is_first = |action: &Action| !adopts && matches!(action, Action::Unusable { .. });
        let (first, later) = actions.into_iter().partition(is_first);
        self.act(first, None).await;
        later
    }

    /// Passes orders and waiting faults of an earlier launcher to the policy.
    fn adopt_faults(&mut self) -> Vec<Action> {
        let now = self.clock.now();
        let mut actions = self.policy.adopt_orders(now, self.state.orders.clone());
        for (name, node) in &self.state.jl.job().nodes {
            let ban = node.unusable.as_ref().filter(|unusable| unusable.lasts);
            if let Some(ban) = ban.filter(|_| !self.state.orders.is_banned(name)) {
                actions.extend(self.policy.adopt_ban(now, name, &ban.why));
            }
        }
        self.policy.follow(self.state.jl.job().faults.newest());
        for (fault, node, reason) in self.state.jl.waiting_faults() {
            self.policy.adopt(now, fault, node, reason);
        }
        actions
    }

    fn facts(&self) -> policy::Facts {
        let job = self.state.jl.job();
        let owner = nix::unistd::Uid::effective().as_raw();
        policy::Facts { nodes: job.placement().into_keys().collect(), owner }
    }

    /// Takes the actions of what was handled, with this event as the last. The state on disk says
    /// so together with the first step of the last request: a launcher that dies before takes them
    /// again.
    async fn act(&mut self, actions: Vec<Action>, event: Option<&EventSource>) {
        let is_step =
            |action: &Action| !matches!(action, Action::Notify(_) | Action::Unusable { .. });
        let (is_empty, last) = (actions.is_empty(), actions.iter().rposition(is_step));
        for (index, action) in actions.into_iter().enumerate() {
            if Some(index) == last {
                self.note_handled(event);
            }
            match action {
                Action::Notify(words) => self.tell(&words),
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
                Action::Sooner { fault, node, fails_ns } => {
                    self.handle(JlInput::Sooner { fault, node, fails_ns }).await;
                }
                Action::Cancel { faults, reason } => {
                    self.handle(JlInput::Cancel { faults, reason }).await;
                }
                Action::Gone { node, fault, cause } => {
                    self.give_up(node, &cause.words(fault)).await
                }
            }
        }
        if last.is_none() {
            self.note_handled(event);
        }
        if !is_empty || self.state.orders != *self.policy.orders() {
            self.save_handled();
        }
    }

    /// By a rule of the policy.
    async fn give_up(&mut self, node: NodeName, cause: &str) {
        if self.lives(&node) {
            return self.tell(&format!(
                "node {node} is out of the backplane ({cause}), but its launch agent lives: \
                 waiting for its agent"
            ));
        }
        self.handle(JlInput::Gone { node, reason: cause.to_owned() }).await;
    }

    async fn on_tick(&mut self) {
        let facts = self.facts();
        let actions = self.policy.tick(self.clock.now(), &facts);
        self.act(actions, None).await;
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
        if saved.is_ok() {
            self.saved_handled.clone_from(&self.state.handled);
        }
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

    /// Writes how far reports are handled and which nodes are banned, unless that is on disk. After
    /// a failure the next report tries it again; until then a launcher that takes over may report
    /// one of them again.
    fn save_handled(&mut self) {
        let orders = self.policy.orders();
        let is_saved = self.state.handled == self.saved_handled && self.state.orders == *orders;
        if is_saved || self.state.jl.is_unsaved() {
            return;
        }
        let before = core::mem::replace(&mut self.state.orders, orders.clone());
        match self.dir.write("state.json", &self.state) {
            Ok(()) => self.saved_handled.clone_from(&self.state.handled),
            Err(error) => {
                self.state.orders = before;
                tracing::warn!(%error, "cannot save the list of handled events");
            }
        }
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
            JlOutput::StartNlas(nodes) => self.start_more(nodes).await,
            JlOutput::KillNla(node) => {
                self.kill_nla(&node);
                let _ = self.links.input.send(InputNews::Path(node, false));
            }
            JlOutput::Notify(words) => self.tell(&words),
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
                // A rank that was left out has no image: its place holds nothing.
                let image = |rank| all.get(&rank).copied().unwrap_or_default();
                let images: Vec<(u64, u32)> = (0..size).map(image).collect();
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
