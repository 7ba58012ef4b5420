//! A cluster, a NATS server with little room of its own, and bridges.

use anyhow::{Context as _, Result, ensure};
use async_nats::jetstream::{self, Context, stream};
use bytes::Bytes;
use ftb_bridge::shell::state::{self, State};
use ftb_client::Client;
use ftb_tests::cluster::{Cluster, Part, Plan, wait_for};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The usual port of NATS.
const PORT: u16 = 4222;
const BRIDGE: &str = env!("CARGO_BIN_EXE_ftb-bridge");
/// Of the server and of each stream, in bytes: a machine of CI has little room.
const STORE_BYTES: u64 = 64 << 20;
pub(crate) const STREAM_BYTES: i64 = 32 << 20;
/// The stream of the cluster `test`.
pub(crate) const STREAM: &str = "FTB_test";
/// The shortest that a server takes: each outage is longer.
const DUPLICATE_WINDOW: Duration = Duration::from_millis(100);

pub(crate) struct Site {
    pub(crate) bridges: Vec<Option<Child>>,
    nats: Option<Child>,
    /// Where the server listens: an address of this site alone, also between two runs of it.
    nats_address: String,
    /// Further lines of the table [nats] of bridges.
    nats_keys: String,
    _part: Part,
    pub(crate) cluster: Cluster,
}

/// A message of the stream.
pub(crate) struct Stored {
    pub(crate) id: String,
    pub(crate) subject: String,
    pub(crate) body: Bytes,
}

impl Stored {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let bridges = self.bridges.iter_mut().filter_map(Option::take);
        for mut child in bridges.chain(self.nats.take()) {
            // It may have ended by itself; there is nothing to do then.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Site {
    pub(crate) async fn new(plan: Plan) -> Result<Self> {
        let mut site = Self::without_nats(plan).await?;
        site.configure_nats("")?;
        site.start_nats()?;
        Ok(site)
    }

    /// With an address for a server, which does not run yet.
    pub(crate) async fn without_nats(plan: Plan) -> Result<Self> {
        let cluster = plan.start().await?;
        let part = Part::claim(PORT, 1)?;
        let nats_address = format!("{}:{PORT}", part.address(0));
        let (bridges, nats_keys) = (Vec::new(), String::new());
        Ok(Self { bridges, nats: None, nats_address, nats_keys, _part: part, cluster })
    }

    /// The IP address of the server.
    pub(crate) fn nats_ip(&self) -> &str {
        self.nats_address.split(':').next().unwrap_or_default()
    }

    /// Writes the configuration of the server, with further lines.
    pub(crate) fn configure_nats(&self, more: &str) -> Result<()> {
        let (address, store) = (&self.nats_address, self.cluster.dir().join("nats"));
        let text = format!(
            "listen: \"{address}\"\njetstream {{ store_dir: {store:?}, \
             max_memory_store: {STORE_BYTES}, max_file_store: {STORE_BYTES} }}\n{more}"
        );
        Ok(fs::write(self.cluster.dir().join("nats.conf"), text)?)
    }

    /// What the server has logged.
    pub(crate) fn nats_log(&self) -> String {
        fs::read_to_string(self.cluster.dir().join("nats.log")).unwrap_or_default()
    }

    fn log(&self, name: &str) -> Result<Stdio> {
        let path = self.cluster.dir().join(name);
        Ok(fs::File::options().create(true).append(true).open(path)?.into())
    }

    pub(crate) fn start_nats(&mut self) -> Result<()> {
        let child = Command::new("nats-server")
            .arg("-c")
            .arg(self.cluster.dir().join("nats.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(self.log("nats.log")?)
            .spawn()
            .context("nats-server is missing: make deps")?;
        self.nats = Some(child);
        Ok(())
    }

    pub(crate) fn kill_nats(&mut self) -> Result<()> {
        let mut child = self.nats.take().context("no server runs")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// A connection that returns when the server answers.
    pub(crate) async fn connect(&self) -> Result<Context> {
        let url = format!("nats://{}", self.nats_address);
        wait_for("NATS", async || {
            let Ok(client) = async_nats::connect(&url).await else { return Ok(None) };
            Ok(Some(jetstream::new(client)))
        })
        .await
    }

    /// The stream as a careful administrator makes it, with a short memory of ids.
    pub(crate) async fn make_stream(&self) -> Result<()> {
        let config = stream::Config {
            name: STREAM.to_owned(),
            subjects: vec!["ftb.test.>".to_owned()],
            max_bytes: STREAM_BYTES,
            duplicate_window: DUPLICATE_WINDOW,
            ..stream::Config::default()
        };
        self.connect().await?.create_stream(config).await?;
        Ok(())
    }

    fn folder(&self, number: usize) -> PathBuf {
        self.cluster.dir().join(format!("bridge{number}"))
    }

    /// Starts a bridge at the agent of that rank, with further lines of configuration.
    pub(crate) fn start_bridge(&mut self, number: usize, rank: usize, more: &str) -> Result<()> {
        let (folder, socket) = (self.folder(number), self.cluster.socket(rank));
        fs::create_dir_all(&folder)?;
        let text = format!(
            "agent_socket = {socket:?}\nstate_dir = {folder:?}\n\
             [nats]\nservers = [\"nats://{}\"]\n{}\
             [export]\nmax_bytes = {STREAM_BYTES}\n{more}",
            self.nats_address, self.nats_keys
        );
        let config = folder.join("bridge.toml");
        fs::write(&config, text)?;
        let child = Command::new(BRIDGE)
            .arg("run")
            .arg("--config")
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(self.log(&format!("bridge{number}.log"))?)
            .spawn()?;
        self.bridges.resize_with(self.bridges.len().max(number + 1), || None);
        self.bridges[number] = Some(child);
        Ok(())
    }

    /// Starts a bridge without a state, with these keys in its table [nats].
    pub(crate) fn start_new_bridge(&mut self, nats_keys: &str) -> Result<()> {
        nats_keys.clone_into(&mut self.nats_keys);
        if self.folder(0).exists() {
            fs::remove_dir_all(self.folder(0))?;
        }
        self.start_bridge(0, 0, "")
    }

    pub(crate) fn kill_bridge(&mut self, number: usize) -> Result<()> {
        let mut child = self.bridges[number].take().context("no bridge runs")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// What `ftb-bridge status` says.
    pub(crate) fn state(&self, number: usize) -> State {
        state::read(&self.folder(number)).ok().flatten().unwrap_or_default()
    }

    pub(crate) fn client(&self, rank: usize) -> Result<Client> {
        Ok(Client::builder("test").agent(self.cluster.socket(rank)).build()?)
    }

    /// The sequence of the last message.
    pub(crate) async fn last(&self, context: &Context) -> Result<u64> {
        let mut stream = context.get_stream(STREAM).await?;
        Ok(stream.info().await?.state.last_sequence)
    }

    /// Waits until the stream has grown by this number of messages.
    pub(crate) async fn grown(&self, by: u64) -> Result<()> {
        let context = self.connect().await?;
        let wanted =
            wait_for("the stream", async || Ok(self.last(&context).await.ok())).await? + by;
        let what = format!("sequence {wanted}");
        self.wait(&what, async || {
            Ok(self.last(&context).await.is_ok_and(|last| last >= wanted).then_some(()))
        })
        .await
    }

    /// All messages of the stream.
    pub(crate) async fn stored(&self) -> Result<Vec<Stored>> {
        let context = self.connect().await?;
        let mut stream = context.get_stream(STREAM).await?;
        let state = stream.info().await?.state.clone();
        ensure!(state.first_sequence <= 1, "the stream has dropped messages");
        let mut stored = Vec::new();
        for sequence in 1..=state.last_sequence {
            let message = stream.get_raw_message(sequence).await?;
            let id = message.headers.get("Nats-Msg-Id").context("no id")?.as_str().to_owned();
            let subject = message.subject.to_string();
            stored.push(Stored { id, subject, body: message.payload });
        }
        Ok(stored)
    }

    /// The first message that fits.
    pub(crate) async fn find(&self, what: &str, fits: impl Fn(&Value) -> bool) -> Result<Value> {
        self.wait(what, async || {
            let stored = self.stored().await.unwrap_or_default();
            Ok(stored.iter().map(Stored::json).find(|body| fits(body)))
        })
        .await
    }

    /// Waits for a condition; the error has the ends of the logs.
    pub(crate) async fn wait<T>(
        &self,
        what: &str,
        condition: impl AsyncFnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        wait_for(what, condition).await.with_context(|| {
            let names = ["nats.log", "bridge0.log", "bridge1.log"];
            let logs = names.map(|name| {
                let log = fs::read_to_string(self.cluster.dir().join(name)).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                format!("--- {name}\n{}\n", lines[lines.len().saturating_sub(40)..].join("\n"))
            });
            logs.concat() + &self.cluster.logs()
        })
    }
}
