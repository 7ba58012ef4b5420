//! A job whose ranks are threads of this process, with a real PMI-1 server, real sockets and real
//! image files: what the launcher would do, to the letter of launcher/core/protocol.md.
#![allow(clippy::unwrap_used, dead_code, unreachable_pub, missing_docs)]

pub mod chain;
pub mod pmi_server;
pub mod processes;

use ftb_job::{
    Backplane, Channel, Config, Error, Job, Notice, Request, RequestKind, RequestSink, Result,
    Setup,
};
use pmi_server::PmiServer;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What a rank's program came to.
#[derive(Debug)]
pub enum Ended<T> {
    Finished(T),
    /// Its image is written, it goes on elsewhere.
    MovedAway,
}

/// All events of the job, and who hears requests.
#[derive(Default)]
pub struct Bus {
    heard: Mutex<Heard>,
    changed: Condvar,
}

#[derive(Default)]
struct Heard {
    sinks: BTreeMap<u32, RequestSink>,
    notices: Vec<(u32, Notice)>,
}

impl Bus {
    /// Tells all ranks that listen.
    pub fn publish(&self, request: &Request) {
        self.heard.lock().unwrap().tell(request, &|_| true);
    }

    /// Tells all ranks until that number of such answers is there.
    pub fn request(
        &self,
        request: &Request,
        count: usize,
        wanted: impl Fn(&Notice) -> bool,
    ) -> Vec<(u32, Notice)> {
        self.request_of(request, |_| true, count, wanted)
    }

    /// Tells some ranks, while the others lose the event; as a launcher does, again and again until
    /// that number of such answers is there. An answer that is given twice counts once.
    pub fn request_of(
        &self,
        request: &Request,
        hears: impl Fn(u32) -> bool,
        count: usize,
        wanted: impl Fn(&Notice) -> bool,
    ) -> Vec<(u32, Notice)> {
        const REPEAT: Duration = Duration::from_millis(100);
        let mut heard = self.heard.lock().unwrap();
        loop {
            let mut found = Vec::new();
            for (rank, notice) in heard.notices.iter().filter(|(_, notice)| wanted(notice)) {
                if !found.contains(&(*rank, notice.clone())) {
                    found.push((*rank, notice.clone()));
                }
            }
            if found.len() >= count {
                return found;
            }
            heard.tell(request, &hears);
            heard = self.changed.wait_timeout(heard, REPEAT).unwrap().0;
        }
    }

    /// Waits until that number of such answers was given, doubled ones included.
    pub fn wait_for(&self, count: usize, wanted: impl Fn(&Notice) -> bool) {
        let mut heard = self.heard.lock().unwrap();
        while heard.count(&wanted) < count {
            heard = self.changed.wait(heard).unwrap();
        }
    }

    /// How many answers like that were given.
    pub fn count(&self, wanted: impl Fn(&Notice) -> bool) -> usize {
        self.heard.lock().unwrap().count(&wanted)
    }

    pub fn notices(&self) -> Vec<(u32, Notice)> {
        self.heard.lock().unwrap().notices.clone()
    }
}

impl Heard {
    fn count(&self, wanted: &dyn Fn(&Notice) -> bool) -> usize {
        self.notices.iter().filter(|(_, notice)| wanted(notice)).count()
    }

    fn tell(&mut self, request: &Request, hears: &dyn Fn(u32) -> bool) {
        self.sinks.retain(|rank, sink| !hears(*rank) || sink.send(request.clone()));
    }
}

struct Attached {
    rank: u32,
    bus: Arc<Bus>,
}

impl Backplane for Attached {
    fn publish(&self, notice: &Notice) {
        let mut heard = self.bus.heard.lock().unwrap();
        heard.notices.push((self.rank, notice.clone()));
        self.bus.changed.notify_all();
    }

    fn confirm(&self, _: Duration) -> bool {
        true
    }
}

/// Makes the channels of a rank.
pub type Channels = fn(&Config) -> Vec<Arc<dyn Channel>>;

/// A job and where its ranks are.
pub struct Harness {
    pub bus: Arc<Bus>,
    pub pmi: Arc<PmiServer>,
    pub images: tempfile::TempDir,
    pub size: u32,
    pub receive_bytes_max: usize,
    /// A launcher takes care of the dead: who has lost a peer waits for it.
    pub remedied: bool,
    /// Other channels than the default ones.
    pub channels: Option<Channels>,
}

pub type Running<T> = JoinHandle<Result<Ended<T>>>;

impl Harness {
    pub fn new(size: u32) -> Self {
        Self {
            bus: Arc::default(),
            pmi: PmiServer::new(size),
            images: tempfile::tempdir().unwrap(),
            size,
            receive_bytes_max: ftb_job::limits::RECEIVE_BYTES_DEFAULT,
            remedied: false,
            channels: None,
        }
    }

    pub fn config(&self, rank: u32, node: &str, episode: u64, restore: Option<PathBuf>) -> Config {
        let size = self.size.to_string();
        let variables = [
            ("FTB_JOB_ID", "job-1".to_owned()),
            ("FTB_RANK", rank.to_string()),
            ("FTB_SIZE", size),
            ("FTB_NODE", node.to_owned()),
            ("FTB_EPISODE", episode.to_string()),
            ("FTB_IMAGE_DIR", self.image_dir(node).display().to_string()),
            ("PMI_FD", "99".to_owned()),
        ];
        let lookup = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| value.clone())
        };
        let config = Config::from_lookup(&lookup).unwrap();
        let agent_socket = self.remedied.then(|| PathBuf::from("/nowhere"));
        Config { restore, agent_socket, receive_bytes_max: self.receive_bytes_max, ..config }
    }

    /// Each node has its own directory.
    pub fn image_dir(&self, node: &str) -> PathBuf {
        self.images.path().join(node)
    }

    pub fn setup(&self, config: Config) -> Setup {
        let rank = config.rank;
        let bus = Arc::clone(&self.bus);
        let default: Channels = Setup::default_channels;
        Setup {
            pmi: Some(self.pmi.connect(rank)),
            agent: None,
            channels: self.channels.unwrap_or(default)(&config),
            connect: Some(Box::new(move |sink| {
                bus.heard.lock().unwrap().sinks.insert(rank, sink);
                Ok(Box::new(Attached { rank, bus }))
            })),
            config,
        }
    }

    /// Starts one rank with that program.
    pub fn spawn<T: Send + 'static>(
        &self,
        config: Config,
        program: impl FnOnce(Job) -> Result<Ended<T>> + Send + 'static,
    ) -> Running<T> {
        let setup = self.setup(config);
        thread::spawn(move || program(Job::start(setup)?))
    }

    /// Starts all ranks, each on the node that the function names; they listen when it returns.
    pub fn spawn_all<T: Send + 'static, P>(
        &self,
        node: impl Fn(u32) -> String,
        program: P,
    ) -> Vec<Running<T>>
    where
        P: FnOnce(Job) -> Result<Ended<T>> + Clone + Send + 'static,
    {
        let running = (0..self.size)
            .map(|rank| self.spawn(self.config(rank, &node(rank), 0, None), program.clone()))
            .collect();
        self.pmi.wait_barriers(1);
        running
    }

    /// What the node launch agents do between the two phases of a migration.
    pub fn copy_images(&self, set: &str, from: &str, to: &str, ranks: &[u32]) {
        let (from, to) = (self.image_dir(from).join(set), self.image_dir(to).join(set));
        std::fs::create_dir_all(&to).unwrap();
        for rank in ranks {
            let name = format!("rank-{rank}.img");
            std::fs::copy(from.join(&name), to.join(&name)).unwrap();
        }
    }

    pub fn set_dir(&self, node: &str, set: &str) -> PathBuf {
        self.image_dir(node).join(set)
    }
}

pub fn finish<T: std::fmt::Debug>(running: Running<T>) -> T {
    match running.join().unwrap() {
        Ok(Ended::Finished(value)) => value,
        other => panic!("the rank did not finish: {other:?}"),
    }
}

pub fn finish_all<T: std::fmt::Debug>(running: Vec<Running<T>>) -> Vec<T> {
    running.into_iter().map(finish).collect()
}

pub fn checkpoint(episode: u64, set: &str) -> Request {
    let set = set.to_owned();
    Request { episode, kind: RequestKind::Checkpoint { set } }
}

pub fn migrate(episode: u64, set: &str, ranks: &[u32]) -> Request {
    Request { episode, kind: RequestKind::Migrate { set: set.to_owned(), ranks: ranks.to_vec() } }
}

pub fn abort(episode: u64) -> Request {
    Request { episode, kind: RequestKind::Abort }
}

pub fn rollback(episode: u64, set: &str, ranks: &[u32]) -> Request {
    let (set, ranks, left) = (set.to_owned(), ranks.to_vec(), Vec::new());
    Request { episode, kind: RequestKind::Rollback { set, ranks, left } }
}

pub fn is_done(notice: &Notice) -> bool {
    matches!(notice, Notice::CheckpointDone { .. })
}

pub fn is_resumed(notice: &Notice) -> bool {
    matches!(notice, Notice::Resumed { .. })
}

pub fn image_path(directory: &Path, rank: u32) -> PathBuf {
    directory.join(format!("rank-{rank}.img"))
}

pub fn failure<T: std::fmt::Debug>(running: Running<T>) -> Error {
    match running.join().unwrap() {
        Err(error) => error,
        Ok(ended) => panic!("the rank ended well: {ended:?}"),
    }
}
