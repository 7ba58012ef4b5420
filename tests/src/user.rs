//! Threads that act as ordinary users of the host.
//!
//! Responsible for: a thread with another user id, and clients on it that speak the bare protocol.
//! The kernel tells the agent the user of the thread that connects.

use anyhow::{Context as _, Result, bail, ensure};
use ftb_proto::v1::clients_client::ClientsClient;
use ftb_proto::v1::{self, to_agent, to_client};
use nix::errno::Errno;
use nix::libc;
use nix::unistd::Uid;
use std::path::Path;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

/// Two users without any right of their own, and without processes.
pub const ORDINARY: [u32; 2] = [64_001, 64_002];

/// Why no thread can act as another user; `None` if one can.
pub fn impossible() -> Option<String> {
    let is_root = Uid::effective().is_root();
    (!is_root).then(|| "only root can act as another user".to_owned())
}

/// Runs `work` on a thread and a runtime of its own, as that user.
///
/// # Panics
/// The thread cannot be started, or cannot become the user.
pub fn as_user<T, F>(uid: u32, work: F) -> std::thread::JoinHandle<T>
where
    T: Send + 'static,
    F: AsyncFnOnce() -> T + Send + 'static,
{
    std::thread::spawn(move || {
        become_user(uid).unwrap_or_else(|error| panic!("cannot become user {uid}: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.unwrap_or_else(|error| panic!("no runtime: {error}"));
        runtime.block_on(work())
    })
}

/// Changes the user of this thread alone, for good.
#[allow(unsafe_code, reason = "the C library changes the user of all threads")]
fn become_user(uid: u32) -> Result<(), Errno> {
    // SAFETY: the call has no pointers; it changes nothing but the user of the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) };
    Errno::result(result).map(drop)
}

/// A client that reads only if it is asked to.
#[derive(Debug)]
pub struct BareClient {
    to_agent: mpsc::Sender<v1::ToAgent>,
    from_agent: Streaming<v1::ToClient>,
}

impl BareClient {
    /// Attaches to an agent.
    ///
    /// # Errors
    /// The agent cannot be reached, or refuses the client.
    pub async fn attach(socket: &Path, token: u64) -> Result<Self> {
        let uri = format!("unix://{}", socket.display());
        let channel = tonic::transport::Endpoint::from_shared(uri)?.connect().await?;
        let (to_agent, receiver) = mpsc::channel(16);
        let hello = v1::ClientHello {
            protocol: ftb_core::protocol::PROTOCOL.max,
            client_name: "bare".to_owned(),
            token,
            ..v1::ClientHello::default()
        };
        let message = Some(to_agent::Message::Hello(hello));
        to_agent.send(v1::ToAgent { message }).await?;
        let attached = ClientsClient::new(channel).attach(ReceiverStream::new(receiver)).await?;
        let mut client = Self { to_agent, from_agent: attached.into_inner() };
        match client.hear().await? {
            to_client::Message::HelloAck(_) => Ok(client),
            other => bail!("not welcome: {other:?}"),
        }
    }

    /// The next message of the agent.
    ///
    /// # Errors
    /// The stream ended.
    pub async fn hear(&mut self) -> Result<to_client::Message> {
        let message = self.from_agent.message().await?.context("the stream ended")?;
        message.message.context("an empty message")
    }

    /// Says something.
    ///
    /// # Errors
    /// The stream ended.
    pub async fn say(&self, message: to_agent::Message) -> Result<()> {
        self.to_agent.send(v1::ToAgent { message: Some(message) }).await?;
        Ok(())
    }

    /// Says something, and reads what comes until it is said.
    ///
    /// # Errors
    /// The stream ended.
    pub async fn say_and_read(&mut self, message: to_agent::Message) -> Result<()> {
        let said = self.to_agent.send(v1::ToAgent { message: Some(message) });
        tokio::pin!(said);
        loop {
            tokio::select! {
                said = &mut said => return Ok(said?),
                heard = self.from_agent.message() => heard?.context("the stream ended")?,
            };
        }
    }

    /// Subscribes, and waits until the subscription is active or refused: then it gives the words
    /// of the refusal.
    ///
    /// # Errors
    /// The stream ended, or something else came.
    pub async fn subscribe(&mut self, subscription: u32, filter: &str) -> Result<Option<String>> {
        let filter = filter.to_owned();
        let wanted = v1::Subscribe { subscription, filter, ..v1::Subscribe::default() };
        self.say(to_agent::Message::Subscribe(wanted)).await?;
        loop {
            match self.hear().await? {
                to_client::Message::Subscribed(active) => {
                    ensure!(active.subscription == subscription, "{active:?}");
                    return Ok(None);
                }
                to_client::Message::Rejected(refused) => return Ok(Some(refused.message)),
                to_client::Message::Covered(_) | to_client::Message::Deliver(_) => {}
                other => bail!("{other:?} instead of an answer"),
            }
        }
    }
}

impl BareClient {
    /// Subscribes many times with one filter, the ids from 0, and waits until all are active.
    ///
    /// # Errors
    /// The stream ended, or a subscription was refused.
    pub async fn subscribe_often(&mut self, count: u32, filter: &str) -> Result<()> {
        for subscription in 0..count {
            let filter = filter.to_owned();
            let wanted = v1::Subscribe { subscription, filter, ..v1::Subscribe::default() };
            self.say(to_agent::Message::Subscribe(wanted)).await?;
        }
        let mut active = 0;
        while active < count {
            match self.hear().await? {
                to_client::Message::Subscribed(_) => active += 1,
                to_client::Message::Rejected(refused) => bail!("{refused:?}"),
                _ => {}
            }
        }
        Ok(())
    }
}

/// What a process has of its own in memory, in KiB: what it shares with the file that it was
/// started from is not its.
///
/// # Errors
/// There is no such process.
pub fn own_kib(pid: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    Ok(line.and_then(|rest| rest.split_whitespace().next()).context("no RssAnon")?.parse()?)
}
