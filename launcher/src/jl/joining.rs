//! The job connection as the job launcher has it: nodes join and part, their messages and the
//! output of their ranks arrive, until the last output is printed.

use super::signals::Caught;
use super::{END_WAIT, INPUTS_MAX, LaunchJob};
use crate::addresses::Addresses;
use crate::clock::Clock;
use crate::connection::{self, Purpose};
use crate::image_server::ImageServer;
use crate::links::{self, LinkNews};
use crate::listener;
use crate::progress::Wiper;
use crate::streams::{self, InputNews};
use crate::{console, control, nla, output};
use ftb_launcher_core::link::cipher::Secret;
use ftb_launcher_core::link::packet::FromNode;
use ftb_launcher_core::link::router::{LinkInput, Router};
use ftb_launcher_core::message::NlaMessage;
use ftb_launcher_core::names::NodeName;
use ftb_launcher_core::packet::PacketHead as _;
use ftb_launcher_pods::output::Frame;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// The ends of the job connection.
pub(super) struct JobLinks {
    pub(super) to_nodes: mpsc::Sender<LinkInput>,
    pub(super) input: mpsc::UnboundedSender<InputNews>,
    /// Where this JL listens.
    pub(super) address: String,
    /// Where the nodes listen.
    pub(super) addresses: Arc<Mutex<Addresses>>,
    pub(super) arriving: Arc<Mutex<Arriving>>,
}

/// Output on the way.
#[derive(Default)]
pub(super) struct Arriving {
    /// Nodes whose last message has not arrived.
    pub(super) nodes: BTreeSet<NodeName>,
    /// Frames so far.
    pub(super) frames: u64,
}

/// Serves processes of the job: messages, streams and images. Returns also the messages of nodes,
/// and the task that prints.
pub(super) fn join(
    run: &LaunchJob,
    (listener, address): (TcpListener, String),
    clock: Clock,
    wiper: Wiper,
) -> (JobLinks, mpsc::Receiver<NlaMessage>, JoinHandle<()>) {
    let secret = run.file.secret();
    let addresses = Arc::new(Mutex::new(run.state.addresses.clone()));
    let images = ImageServer::of_store(&run.dir, &run.file);
    let (to_tree, accepted) = mpsc::channel(INPUTS_MAX);
    tokio::spawn(listener::serve(listener, secret.clone(), images, to_tree));
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
            Ok(FromNode::Nla(message)) => {
                drop(to_shell.try_send(NlaMessage { node, message }));
            }
            Ok(FromNode::OutputLost(bytes)) => {
                lose(&node, &format!("its file was full: {bytes} bytes"))
            }
            Ok(FromNode::Output { rank, stream, bytes }) => {
                locked(&output).frames += 1;
                drop(frames.send((node, Frame { rank, stream, bytes })));
            }
            Ok(FromNode::WantInput { request }) => {
                drop(input.send(InputNews::Wanted((node, request))));
            }
            Ok(FromNode::InputTaken { request, bytes }) => {
                drop(input.send(InputNews::Taken((node, request), bytes)));
            }
            Ok(FromNode::InputDone { request }) => {
                drop(input.send(InputNews::Done((node, request))));
            }
            Err(error) => tracing::warn!(%node, %error, "a message was refused"),
        },
    };
    tokio::spawn(links::run(router, secret, clock, accepted, orders, news));
    let links = JobLinks { to_nodes, input: to_input, address, addresses, arriving };
    (links, from_nodes, printer)
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn address_in(addresses: &Mutex<Addresses>, node: &NodeName) -> Option<String> {
    locked(addresses).get(node).cloned()
}

/// Reports lost output; the exit code shows it too.
pub(super) fn lose(node: &NodeName, reason: &str) {
    console::err().line(&format!("ftb-launch: output of node {node} is lost: {reason}"));
    console::out().lose("it did not arrive");
}

/// Announces the address of this JL to an NLA of an earlier one until it has joined.
pub(super) async fn announce(
    own: String,
    to: String,
    secret: Secret,
    joined: Option<watch::Receiver<bool>>,
) {
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
pub(super) async fn print_rest(
    mut printer: JoinHandle<()>,
    signals: &mut Caught,
    arriving: &Mutex<Arriving>,
) {
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
