//! The shell of the node launch agent: reads its spec, serves images, starts ranks, and carries inputs to the core
//! and outputs from it. One thread does all of it, so that the kernel's "die with your parent" means this process.

use super::guard::Guard;
use super::link::{self, Heard};
use super::output::{self, Frame};
use super::ranks::{self, Running, Word};
use super::spec::{NlaSpec, SPEC_BYTES_MAX};
use super::{Clock, images};
use crate::message::NlaSays;
use crate::nla::{Input, Nla, NlaConfig, Output};
use crate::wire;
use core::time::Duration;
use ftb_client::Client;
use std::collections::BTreeMap;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Inputs that wait for the core: beyond, ranks and copies are held.
const INPUTS_MAX: usize = 1024;
/// How long to wait for the rest of the ranks' output at the end.
const OUTPUT_WAIT: Duration = Duration::from_secs(2);

struct Shell {
    spec: NlaSpec,
    core: Nla,
    clock: Clock,
    client: Client,
    running: BTreeMap<u32, (u64, Running)>,
    inputs: mpsc::Sender<Input>,
    frames: mpsc::Sender<Frame>,
    guard: Guard,
    leaving: bool,
}

/// Reads the spec from standard input.
///
/// # Errors
/// One line: it is not there or no spec.
pub async fn read_spec() -> Result<NlaSpec, String> {
    let mut text = String::new();
    let read = tokio::io::stdin().take(SPEC_BYTES_MAX).read_to_string(&mut text).await;
    read.map_err(|error| format!("cannot read the specification: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("the specification is wrong: {error}"))
}

/// Runs until the job ends here.
///
/// # Errors
/// One line: no agent, no directory, no socket.
pub async fn run(spec: NlaSpec) -> Result<(), String> {
    std::fs::create_dir_all(&spec.image_dir)
        .map_err(|error| format!("cannot make {}: {error}", spec.image_dir.display()))?;
    let listener = TcpListener::bind(&spec.listen).await;
    let listener =
        listener.map_err(|error| format!("cannot listen on {}: {error}", spec.listen))?;
    let images = listener.local_addr().map_err(|error| error.to_string())?.to_string();
    tokio::spawn(images::serve(listener, spec.image_dir.clone(), spec.token.clone()));

    let client =
        link::attach(&format!("nla-{}", spec.node), &spec.agent, spec.job.as_str()).await?;
    let filter = format!("event_space=ftb.jl, jobid={}", spec.job);
    let subscription = link::subscribe(&client, &filter).await?;
    let (to_heard, mut heard) = mpsc::channel(INPUTS_MAX);
    tokio::spawn(link::forward(subscription, true, to_heard));

    let (frames, frames_out) = mpsc::channel(output::FRAMES_MAX);
    let spill = spec.image_dir.join("output");
    let writer = tokio::spawn(output::write(frames_out, tokio::io::stdout(), spill));
    let (inputs, mut from_ranks) = mpsc::channel(INPUTS_MAX);
    let guard = Guard::start().map_err(|error| format!("cannot start the guard: {error}"))?;
    let clock = Clock::start();
    let config = NlaConfig {
        job: spec.job.clone(),
        node: spec.node.clone(),
        images,
        orphan_grace: spec.orphan_grace,
        kill_grace: spec.kill_grace,
    };
    let core = Nla::new(clock.now(), config, spec.spare);
    let mut shell = Shell {
        core,
        clock,
        client,
        running: BTreeMap::new(),
        inputs,
        frames,
        guard,
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
    }
    let Shell { client, frames, .. } = shell;
    drop(frames);
    let _ = tokio::time::timeout(OUTPUT_WAIT, writer).await;
    let _ = client.close(link::CLOSE_WAIT).await;
    Ok(())
}

impl Shell {
    async fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Event { event, .. } => match wire::from_jl(&event) {
                Ok(message) => self.handle(Input::Jl(message)).await,
                Err(error) => tracing::warn!(%error, "an event was refused"),
            },
            Heard::Stranger { name, uid } => {
                tracing::warn!(%name, uid, "an event of another user was refused");
            }
            // Whatever the job launcher wants answered it asks again.
            Heard::Gap => tracing::warn!("events of the job launcher were missed"),
        }
    }

    async fn handle(&mut self, input: Input) {
        if let Input::Ended { rank, incarnation, .. } = &input
            && self.running.get(rank).is_some_and(|(of, _)| of == incarnation)
        {
            self.running.remove(rank);
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
                let says = NlaSays { node: self.spec.node.clone(), message };
                link::publish(&self.client, wire::to_nla(&says)).await;
            }
            Output::Spawn { rank, local_rank, local_size, incarnation, episode, restore } => {
                let start =
                    ranks::Start { rank, local_rank, local_size, incarnation, episode, restore };
                return self.spawn(start);
            }
            Output::Signal { rank, signal } => {
                if let Some((_, running)) = self.running.get(&rank) {
                    running.signal(signal);
                }
            }
            Output::PmiReply { rank, line } => {
                if let Some((_, running)) = self.running.get(&rank) {
                    running.reply(line);
                }
            }
            Output::Copy { episode, from, set, ranks } => {
                let (inputs, spec) = (self.inputs.clone(), self.spec.clone());
                tokio::task::spawn_blocking(move || {
                    let fetched = images::fetch(&from, &spec.token, &spec.image_dir, &set, &ranks);
                    let result = fetched.map(|images| images.iter().map(|(bytes, _)| bytes).sum());
                    let _ = inputs.blocking_send(Input::CopyEnded { episode, result });
                });
            }
            Output::DropSet(set) => images::drop_set(&self.spec.image_dir, &set),
            Output::Note(words) => tracing::warn!(node = %self.spec.node, "{words}"),
            Output::Leave => self.leaving = true,
        }
        None
    }

    fn spawn(&mut self, start: ranks::Start) -> Option<Input> {
        let (rank, incarnation) = (start.rank, start.incarnation);
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
            Ok(running) => {
                self.running.insert(rank, (incarnation, running));
                None
            }
            Err(error) => {
                let reason = format!("{}: {error}", self.spec.argv.join(" "));
                Some(Input::SpawnFailed { rank, incarnation, reason })
            }
        }
    }
}
