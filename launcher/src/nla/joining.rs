//! How a node launch agent joins its job: it attaches to the node's agent, listens, connects to the
//! job launcher through the launch tree, and reports itself. A second one stands in for a starter
//! that is gone.

use super::{ANNOUNCE_EVERY, INPUTS_MAX, LOOK_EVERY, WORDS_MAX};
use crate::addresses::Addresses;
use crate::backplane::{self, EventGate, Received, StandingSubscription};
use crate::clock::Clock;
use crate::connection::{self, Purpose};
use crate::control;
use crate::image_server::ImageServer;
use crate::links::{self, LinkNews};
use crate::listener;
use crate::memory::NodeMemory;
use crate::nodedir::{self, OUTPUT};
use crate::output::{self, OutputTarget};
use crate::refused::Refusals;
use crate::spec::NlaSpec;
use crate::streams::InputSlot;
use ftb_client::Client;
use ftb_launcher_core::link::cipher::Secret;
use ftb_launcher_core::link::packet::ToNode;
use ftb_launcher_core::link::router::{LinkInput, Router};
use ftb_launcher_core::names::NodeName;
use ftb_launcher_core::nla::NlaInput;
use ftb_launcher_core::packet::PacketHead as _;
use ftb_launcher_core::tree::TreeMessage;
use std::io::Write as _;
use std::path::Path;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Attaches to the node's agent and receives the JL's events.
pub(super) async fn attach(
    spec: &NlaSpec,
    clock: Clock,
) -> Result<(Client, mpsc::Receiver<Received>, EventGate), String> {
    let name = format!("nla-{}", spec.node);
    let client = backplane::attach(&name, &spec.agent, spec.job.as_str()).await?;
    let host = client.agent().map(|agent| agent.host);
    if let Some(words) = host.and_then(|host| backplane::misnamed(spec.node.as_str(), &host)) {
        tracing::warn!(node = %spec.node, "{words}");
    }
    let filter = format!("event_space=ftb.jl, jobid={}", spec.job);
    let gate = EventGate { refusals: Refusals::default(), clock };
    let own = StandingSubscription::begin(&client, filter, true, &gate).await?;
    let (to_heard, heard) = mpsc::channel(INPUTS_MAX);
    tokio::spawn(backplane::forward(own, to_heard));
    Ok((client, heard, gate))
}

/// The ends of the job connection.
pub(super) struct Joined {
    pub(super) to_jl: mpsc::Sender<LinkInput>,
    pub(super) path: watch::Sender<output::Uplink>,
    pub(super) input: InputSlot,
    /// The address of the JL.
    pub(super) launcher: watch::Receiver<String>,
    /// The addresses of nodes with images for this one.
    pub(super) addresses: watch::Receiver<Addresses>,
    pub(super) target: OutputTarget,
    pub(super) from_jl: mpsc::Receiver<NlaInput>,
    pub(super) links: JoinHandle<()>,
}

/// Serves processes of the job, and connects to the JL.
pub(super) fn join(
    spec: &NlaSpec,
    memory: Option<NodeMemory>,
    listener: TcpListener,
    address: String,
    clock: Clock,
) -> Joined {
    let secret = Secret::new(&spec.token);
    let (to_tree, accepted) = mpsc::channel(WORDS_MAX);
    let images = ImageServer::new(spec.image_dir.clone());
    let images = match memory {
        Some(memory) => images.with_memory(memory, secret.clone()),
        None => images,
    };
    tokio::spawn(listener::serve(listener, secret.clone(), images, to_tree));
    let uplinks = spec.uplinks.clone();
    let router = Router::of_nla(spec.node.clone(), control::random(), address, uplinks);
    let (to_jl, orders) = mpsc::channel(INPUTS_MAX);
    let (path, of_output) = watch::channel(output::Uplink::default());
    let (launchers, launcher) = watch::channel(spec.uplinks.last().cloned().unwrap_or_default());
    let (book, addresses) = watch::channel(Addresses::new());
    let (to_shell, from_jl) = mpsc::channel(INPUTS_MAX);
    let (printed, taken) = mpsc::unbounded_channel();
    let input = InputSlot::default();
    let (paths, slot) = (path.clone(), input.clone());
    // A message that finds no room is repeated by the JL.
    let news = move |news| match news {
        LinkNews::Launcher(address) => drop(launchers.send_replace(address)),
        LinkNews::Left(_) => {}
        LinkNews::Parted(_) => paths.send_modify(|path| path.joined = false),
        LinkNews::Joined { first, .. } => {
            paths.send_modify(|path| {
                path.joined = true;
                path.launchers += u64::from(first);
            });
            let _ = to_shell.try_send(NlaInput::Started);
        }
        LinkNews::Message { message, .. } => match ToNode::decode(message) {
            Ok(ToNode::Jl(message)) => drop(to_shell.try_send(NlaInput::Jl(message))),
            Ok(ToNode::Address { node, address }) => {
                book.send_modify(|known| drop(known.insert(node, address)));
            }
            Ok(ToNode::Taken(bytes)) => drop(printed.send(bytes)),
            Ok(ToNode::Input { request, bytes }) => slot.give(request, bytes),
            Err(error) => tracing::warn!(%error, "a message of the job launcher was refused"),
        },
    };
    let links = tokio::spawn(links::run(router, secret, clock, accepted, orders, news));
    let spill = spec.image_dir.join(OUTPUT);
    let target = OutputTarget { uplink: of_output, to_jl: to_jl.clone(), taken, spill };
    Joined { to_jl, path, input, launcher, addresses, target, from_jl, links }
}

/// Another launch agent of this job exists, and its starter is gone. This one takes its place in
/// the launch tree, reports the node as up, announces the JL, and ends with the first one.
pub(super) async fn stand_in(
    spec: &NlaSpec,
    pid: u32,
    words: mpsc::Receiver<TreeMessage>,
) -> Result<(), String> {
    let (dir, secret) = (&spec.image_dir, Secret::new(&spec.token));
    report(&spec.node, pid, words);
    let freed = async {
        while !nodedir::is_free(dir) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let announced = async {
        if let Some(launcher) = spec.uplinks.last() {
            announce(dir, launcher, &secret).await;
        }
        core::future::pending().await
    };
    tokio::select! {
        () = freed => Err("the launch agent of this node has ended".to_owned()),
        never = announced => never,
    }
}

/// Announces the JL at this address to the launch agent of the directory. That one may not serve
/// its listener yet, and the JL may be gone.
pub(super) async fn announce(dir: &Path, launcher: &str, secret: &Secret) {
    let purpose = Purpose::Launcher(launcher.to_owned());
    loop {
        if let Some(address) = nodedir::address_of(dir) {
            let announced = match connection::dial(launcher, secret, &Purpose::Tree).await {
                Ok(_) => connection::dial(&address, secret, &purpose).await,
                gone => gone,
            };
            match announced {
                Ok(_) => return,
                Err(error) => tracing::info!(%error, "the JL is not announced"),
            }
        }
        tokio::time::sleep(ANNOUNCE_EVERY).await;
    }
}

/// Listens for processes of the job; returns the address for them.
pub(crate) async fn listen(at: &str, address: &str) -> Result<(TcpListener, String), String> {
    let fail = |error| format!("cannot listen on {at}: {error}");
    let listener = TcpListener::bind(at).await.map_err(fail)?;
    let address = reached_at(&listener, address).map_err(fail)?;
    Ok((listener, address))
}

/// The address of a listener for other nodes; the node's address if it listens on all.
pub(super) fn reached_at(listener: &TcpListener, address: &str) -> std::io::Result<String> {
    let local = listener.local_addr()?;
    if !local.ip().is_unspecified() || address.is_empty() {
        return Ok(local.to_string());
    }
    let v6 = address.contains(':') && !address.starts_with('[');
    let host = if v6 { format!("[{address}]") } else { address.to_owned() };
    Ok(format!("{host}:{}", local.port()))
}

/// Reports this node as up, then passes on messages from behind it. A starter that is gone needs
/// none.
pub(super) fn report(node: &NodeName, pid: u32, mut words: mpsc::Receiver<TreeMessage>) {
    let say = |word: TreeMessage| {
        let mut out = std::io::stdout();
        out.write_all(&word.encode()).and_then(|()| out.flush())
    };
    let up = TreeMessage::Up { node: node.clone(), pid };
    let mut heard = say(up).is_ok();
    tokio::spawn(async move {
        while let Some(word) = words.recv().await {
            heard = heard && say(word).is_ok();
        }
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::listener::FromListener;

    async fn served(secret: &Secret) -> (String, mpsc::Receiver<FromListener>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (to_tree, accepted) = mpsc::channel(4);
        let images = ImageServer::new("/nowhere".into());
        tokio::spawn(listener::serve(listener, secret.clone(), images, to_tree));
        (address, accepted)
    }

    /// The first agent of the node may still attach to the backplane.
    #[tokio::test]
    async fn a_launcher_is_announced_until_the_first_agent_answers() {
        let (dir, secret) = (tempfile::tempdir().unwrap(), Secret::new("key"));
        let (launcher, _tree) = served(&secret).await;
        let (agent, mut accepted) = served(&secret).await;
        let (place, to) = (dir.path().to_owned(), launcher.clone());
        let announced = tokio::spawn(async move { announce(&place, &to, &secret).await });
        tokio::time::sleep(LOOK_EVERY).await;
        let file = std::fs::write(dir.path().join(nodedir::LOCK), format!("1 {agent}"));
        file.unwrap();
        let heard = tokio::time::timeout(2 * ANNOUNCE_EVERY, accepted.recv()).await.unwrap();
        assert!(matches!(heard, Some(FromListener::Launcher(address)) if address == launcher));
        announced.await.unwrap();
    }
}
