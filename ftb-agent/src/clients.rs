//! Clients: gRPC streams over the Unix socket.
//!
//! Responsible for: hello and version, who the client is (peer credentials), what it may do
//! ([`crate::access`]), sealing its events, and back-pressure on what it publishes. Not responsible
//! for: queues, matching and confirmation, which are the core's.

use crate::access::{Access, Allowed, ReadRight};
use crate::delivery_filter::DeliveryFilter;
use crate::handle::{Command, Handle};
use crate::signing::Signing;
use crate::transports;
use arc_swap::ArcSwap;
use bytes::Bytes;
use ftb_core::condition::ConditionError;
use ftb_core::condition::pairs::ConditionPairs;
use ftb_core::filter::Filter;
use ftb_core::limits;
use ftb_core::node::api::{
    ClientId, ClientInfo, Input, RefusedWhat, RejectCode, Start, SubscriptionId, ToClient,
};
use ftb_core::protocol::{Features, PROTOCOL};
use ftb_core::{ConfirmLevel, EventId, OriginId, PublisherId, Run};
use ftb_proto::client::{
    ATTACH_METHOD, FromClient, Hello, HelloAck, Outgoing, encode_close, encode_nack, negotiate,
};
use ftb_proto::event::{Onsets, SealError, SealRules, SealedBatch, Stamps, seal_batch};
use ftb_proto::v1;
use ftb_proto::wire::Outbound as _;
use ftb_transport::executor::Executor;
use ftb_transport::frame_body::FrameBody;
use ftb_transport::limiter::Peer;
use ftb_transport::outbound::OutboundStream;
use ftb_transport::peer_errors::PeerErrors;
use ftb_transport::stream::server::StreamService;
use ftb_transport::stream::{InboundStream, StreamError};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::codegen::http::Extensions;

/// Largest message of a client, in bytes.
pub const MESSAGE_BYTES_MAX: usize = limits::FRAME_BYTES_MAX + 64 * 1024;

/// How long the last words to a client may take.
const LINGER: Duration = Duration::from_secs(1);

/// What every client needs.
#[derive(Clone)]
pub struct Clients {
    /// The driver.
    pub handle: Handle,
    /// Where misbehaviour is counted.
    pub errors: Arc<PeerErrors>,
    /// The rules, replaced when the configuration is read again.
    pub access: Arc<ArcSwap<Access>>,
    /// The events that state conditions by their names, replaced likewise.
    pub pairs: Arc<ArcSwap<ConditionPairs>>,
    /// Signs their events, and verifies those that they get.
    pub signing: Arc<Signing>,
    /// What is the same for all clients.
    pub terms: Arc<Terms>,
    /// Cancelled when the agent ends.
    pub ended: CancellationToken,
}

/// What is the same for all clients of one agent.
pub struct Terms {
    /// The cluster's name.
    pub cluster: String,
    /// This host, as events are stamped with it.
    pub host: String,
    /// This incarnation of the agent.
    pub origin: OriginId,
    /// Largest payload, in bytes.
    pub payload_bytes_max: usize,
    /// Most subscriptions of one client.
    pub subscriptions_max: usize,
    /// What events must survive before they are confirmed, unless their publisher says.
    pub confirm: ConfirmLevel,
    /// How long a stream may take to say hello.
    pub hello: Duration,
}

impl StreamService for Clients {
    const METHOD: &'static str = ATTACH_METHOD;
    const MESSAGE_BYTES_MAX: usize = MESSAGE_BYTES_MAX;
    type Messages = OutboundStream<Outgoing>;

    fn accept(
        &self,
        connection: &Extensions,
        inbound: InboundStream,
        executor: &Executor,
    ) -> Result<Self::Messages, Status> {
        let Some(peer) = connection.get::<Peer>().cloned() else {
            return Err(Status::internal("the connection has no peer"));
        };
        let Some(credentials) = peer.credentials() else {
            return Err(Status::permission_denied("clients attach over the agent's Unix socket"));
        };
        peer.claim_stream().map_err(|error| Status::already_exists(error.to_string()))?;
        let (outbox, receiver) = mpsc::channel(transports::DEPTH);
        let cancel = self.ended.child_token();
        let allowed = self.access.load().of(credentials);
        let mut delivery_filter =
            DeliveryFilter::new(Arc::clone(&self.access), Arc::clone(&self.signing), credentials);
        let body = |message: Outgoing| FrameBody::message(message.into_slices());
        let encode = move |message: Outgoing| match message {
            Outgoing::Core(message) => delivery_filter.readable(message).map(body),
            message => Some(body(message)),
        };
        let close = body(Outgoing::Shell(encode_close("closed by the agent")));
        let outbound = OutboundStream::new(receiver, encode, Some(close), cancel.clone());
        let session = Session {
            clients: self.clone(),
            peer,
            allowed,
            inbound,
            outbox,
            cancel,
            subscriptions: BTreeSet::new(),
            onsets: RefCell::default(),
        };
        executor.spawn(session.run());
        Ok(outbound)
    }
}

/// The receiving half of one client's stream.
struct Session {
    clients: Clients,
    peer: Peer,
    allowed: Allowed,
    inbound: InboundStream,
    outbox: mpsc::Sender<Outgoing>,
    cancel: CancellationToken,
    subscriptions: BTreeSet<SubscriptionId>,
    onsets: RefCell<Onsets>,
}

/// The stream ends here.
struct End;

/// Why something was rejected, for programs and for people.
struct Refusal(RejectCode, String);

impl Session {
    async fn run(mut self) {
        if let Some(info) = self.hello().await {
            let client = ClientId(self.clients.handle.next_id());
            let (paused, pause) = watch::channel(false);
            let publisher = info.publisher;
            let outbox = self.outbox.clone();
            let opened = Command::ClientOpened { client, info, outbox, paused };
            if self.clients.handle.client_command(opened).await.is_ok() {
                self.listen(client, publisher, pause).await;
                let gone = Input::ClientDetached { client };
                let _ = self.clients.handle.client_input(gone, 0).await;
            }
        }
        // What was said last is on its way. The peer closes the connection when it has read that;
        // one that does not read is cut off.
        drop(self.outbox);
        let _ = tokio::time::timeout(LINGER, self.peer.closed()).await;
        self.peer.close();
    }

    /// Takes what the client says, until it has ended, the agent ends, or the driver has forgotten
    /// it.
    async fn listen(
        &mut self,
        client: ClientId,
        publisher: PublisherId,
        mut pause: watch::Receiver<bool>,
    ) {
        let (cancel, mut forgotten) = (self.cancel.clone(), pause.clone());
        // Once for all messages: to begin to wait for it costs more than to take a message.
        let mut over = pin!(async move {
            tokio::select! {
                () = cancel.cancelled() => {}
                _ = forgotten.wait_for(|_| false) => {}
            }
        });
        loop {
            let next = async {
                if *pause.borrow() {
                    pause.wait_for(|paused| !paused).await.ok()?;
                }
                self.next().await
            };
            let said = tokio::select! {
                biased;
                () = &mut over => return,
                said = next => said,
            };
            let Some(said) = said else { return };
            if self.handle(client, publisher, said).await.is_err() {
                return;
            }
        }
    }

    /// The next message; `None` when the stream has ended.
    async fn next(&mut self) -> Option<FromClient> {
        let bytes = match self.inbound.message().await {
            Ok(bytes) => bytes?,
            Err(StreamError::Malformed(what)) => {
                self.malformed(&what).await;
                return None;
            }
            Err(StreamError::Status(_)) => return None,
        };
        match FromClient::decode(bytes) {
            Ok(message) => Some(message),
            Err(error) => {
                self.malformed(&error.to_string()).await;
                None
            }
        }
    }

    async fn malformed(&mut self, what: &str) {
        self.clients.errors.count("client_malformed", self.peer.address(), what);
        self.say(encode_nack(RejectCode::Malformed, what)).await;
    }

    async fn say(&mut self, message: v1::ToClient) {
        let sent = self.outbox.send(Outgoing::Shell(message));
        tokio::select! {
            () = self.cancel.cancelled() => {}
            _ = sent => {}
        }
    }

    async fn hello(&mut self) -> Option<ClientInfo> {
        let deadline = self.clients.terms.hello;
        let cancel = self.cancel.clone();
        let first = tokio::time::timeout(deadline, cancel.run_until_cancelled(self.next()));
        let first = first.await.ok()???;
        let FromClient::Hello(hello) = first else {
            self.malformed("the first message is no hello").await;
            return None;
        };
        match self.accept(hello) {
            Ok((info, ack)) => {
                self.say(ack.encode()).await;
                Some(info)
            }
            Err(Refusal(code, message)) => {
                self.clients.errors.count("clients_refused", self.peer.address(), &message);
                self.say(encode_nack(code, &message)).await;
                None
            }
        }
    }

    fn accept(&self, hello: Hello) -> Result<(ClientInfo, HelloAck), Refusal> {
        let terms = &self.clients.terms;
        let Some((protocol, mut features)) = negotiate(&hello) else {
            let text = format!(
                "the client speaks protocol {}, the agent of {} speaks {PROTOCOL}: upgrade both to \
                 the same release",
                hello.versions, terms.host
            );
            return Err(Refusal(RejectCode::Protocol, text));
        };
        if !self.clients.signing.is_required() {
            features = features.without(Features::SIGNED);
        }
        if !self.clients.signing.is_own_host_only(&terms.host) {
            features = features.without(Features::OWN_HOST_ONLY);
        }
        for (what, text) in [("client name", &hello.client_name), ("job id", &hello.job_id)] {
            if text.len() > limits::CLIENT_NAME_BYTES_MAX || text.chars().any(char::is_control) {
                let max = limits::CLIENT_NAME_BYTES_MAX;
                let text = format!("the {what} must be text of at most {max} bytes");
                return Err(Refusal(RejectCode::Limit, text));
            }
        }
        self.peer.on_hello().map_err(|full| Refusal(RejectCode::Limit, full.to_string()))?;
        // Checked when the stream was accepted.
        let who = self.peer.credentials().ok_or(Refusal(RejectCode::Denied, String::new()))?;
        let account = PublisherId::account_of(&terms.host, who.uid);
        let info = ClientInfo {
            uid: self.clients.access.load().payer(who.uid),
            gid: who.gid,
            pid: who.pid,
            name: hello.client_name,
            job_id: hello.job_id,
            publisher: PublisherId { account, token: hello.token },
        };
        let ack = HelloAck {
            protocol,
            features,
            cluster: terms.cluster.clone(),
            host: terms.host.clone(),
            origin: terms.origin,
            account,
            payload_bytes_max: terms.payload_bytes_max,
        };
        Ok((info, ack))
    }

    /// Handles one message.
    async fn handle(
        &mut self,
        client: ClientId,
        publisher: PublisherId,
        message: FromClient,
    ) -> Result<(), End> {
        let input = match message {
            FromClient::Publish { first_seq, events, again, confirm } => {
                let id = EventId { publisher, seq: first_seq.into() };
                let confirm = confirm.unwrap_or(self.clients.terms.confirm);
                return self.publish(client, id, (&events, again), confirm).await;
            }
            FromClient::Restate { events } => {
                return self.restate(client, publisher, &events).await;
            }
            FromClient::Subscribe { subscription, filter, start } => {
                match self.subscribe(client, subscription, &filter, start) {
                    Ok(input) => input,
                    Err(Refusal(code, message)) => {
                        let what = RefusedWhat::Subscription(subscription);
                        self.refuse(what, code, message).await;
                        return Ok(());
                    }
                }
            }
            FromClient::Unsubscribe(subscription) => {
                self.subscriptions.remove(&subscription);
                Input::Unsubscribe { client, subscription }
            }
            FromClient::DelayAcks { delayed } => Input::DelayAcks { client, delayed },
            FromClient::Close { .. } => {
                // Its last acknowledgements are sent at once.
                let input = Input::DelayAcks { client, delayed: false };
                let _ = self.clients.handle.client_input(input, 0).await;
                return Err(End);
            }
            FromClient::Hello(_) => {
                self.malformed("a second hello").await;
                return Err(End);
            }
        };
        self.clients.handle.client_input(input, 0).await.map_err(|_| End)
    }

    async fn refuse(&mut self, what: RefusedWhat, code: RejectCode, message: String) {
        self.clients.errors.count_quietly("client_requests_refused");
        let refused = ToClient::Refused { what, code, message };
        let sent = self.outbox.send(Outgoing::Core(refused));
        tokio::select! {
            () = self.cancel.cancelled() => {}
            _ = sent => {}
        }
    }

    fn subscribe(
        &mut self,
        client: ClientId,
        subscription: SubscriptionId,
        filter: &str,
        start: Start,
    ) -> Result<Input, Refusal> {
        let max = limits::FILTER_BYTES_MAX;
        if filter.len() > max {
            let text = format!("the filter has {} bytes: at most {max}", filter.len());
            return Err(Refusal(RejectCode::Limit, text));
        }
        let filter = Filter::parse(filter)
            .map_err(|error| Refusal(RejectCode::Filter, error.to_string()))?;
        self.allowed.refresh(&self.clients.access.load());
        let filter =
            narrowed(&self.allowed, filter).map_err(|text| Refusal(RejectCode::Denied, text))?;
        let max = self.clients.terms.subscriptions_max;
        if !self.subscriptions.contains(&subscription) && self.subscriptions.len() >= max {
            return Err(Refusal(
                RejectCode::Limit,
                format!("a client has at most {max} subscriptions"),
            ));
        }
        self.subscriptions.insert(subscription);
        Ok(Input::Subscribe { client, subscription, filter: filter.into(), start })
    }

    /// The client comes from another incarnation of the agent: its statements are not published
    /// again. Those that it may not make (any more) are left out.
    async fn restate(
        &mut self,
        client: ClientId,
        publisher: PublisherId,
        events: &[(u64, Bytes)],
    ) -> Result<(), End> {
        let mut sealed = Vec::new();
        for (seq, event) in events {
            let id = EventId { publisher, seq: (*seq).into() };
            sealed.extend(self.seal(id, std::slice::from_ref(event), true).await?.run);
        }
        let events = Run::collect(sealed.iter().flat_map(Run::iter));
        let Some(events) = events else { return Ok(()) };
        let bytes = events.len();
        let input = Input::Restate { client, events };
        self.clients.handle.client_input(input, bytes).await.map_err(|_| End)
    }

    /// Checks events, and adds the envelope.
    async fn seal(
        &mut self,
        id: EventId,
        events: &[Bytes],
        again: bool,
    ) -> Result<SealedBatch, End> {
        self.allowed.refresh(&self.clients.access.load());
        let terms = Arc::clone(&self.clients.terms);
        // Checked when the stream was accepted.
        let who = self.peer.credentials().ok_or(End)?;
        let stamps =
            Stamps { id, host: &terms.host, uid: who.uid, pid: who.pid, republished: again };
        let events = events.iter().map(|event| &event[..]);
        let pairs = self.clients.pairs.load_full();
        let sealed = {
            let rules = SealRules {
                payload_bytes_max: terms.payload_bytes_max,
                pairs: Some(&pairs),
                owner: terms.origin,
                onsets: Some(&self.onsets),
            };
            seal_batch(&stamps, events, &rules, |space| self.allowed.permission(space))
        };
        match sealed {
            Ok(batch) => Ok(batch),
            Err(error) => {
                self.malformed(&error.to_string()).await;
                Err(End)
            }
        }
    }

    async fn publish(
        &mut self,
        client: ClientId,
        id: EventId,
        (events, again): (&[Bytes], bool),
        confirm: ConfirmLevel,
    ) -> Result<(), End> {
        let batch = self.seal(id, events, again).await?;
        for (seq, error) in batch.refused {
            let code = match error {
                SealError::Event(_) => RejectCode::Malformed,
                SealError::Condition(
                    ConditionError::Denied(_) | ConditionError::OtherHost { .. },
                )
                | SealError::Denied(_) => RejectCode::Denied,
                SealError::Condition(_) => RejectCode::Malformed,
            };
            self.refuse(RefusedWhat::Events { first: seq, last: seq }, code, error.to_string())
                .await;
        }
        if batch.lowered > 0 {
            let (count, address) = (batch.lowered, self.peer.address());
            let what = format!("{count} events: the highest severity of their user is lower");
            self.clients.errors.count("severity_lowered", address, &what);
        }
        for (_, error) in batch.ignored {
            let address = self.peer.address();
            self.clients.errors.count("conditions_ignored", address, &error.to_string());
        }
        let Some(events) = batch.run else { return Ok(()) };
        let signing = &self.clients.signing;
        let events = signing.sign(signing.of_own_programs(events));
        let bytes = events.len();
        let input = Input::Publish { client, events, confirm };
        self.clients.handle.client_input(input, bytes).await.map_err(|_| End)
    }
}

/// A filter that names event spaces of which its user reads only own events is for these: so
/// events of other users fill no queue of the subscription.
///
/// # Errors
/// The user may not read one of these spaces.
pub(crate) fn narrowed(allowed: &Allowed, filter: Filter) -> Result<Filter, String> {
    let Some(spaces) = filter.literal_spaces() else { return Ok(filter) };
    let reading = |space: &String| allowed.reading(space.as_bytes());
    if let Some(space) = spaces.iter().find(|space| reading(space) == ReadRight::None) {
        return Err(format!("your user may not subscribe to event space {space}"));
    }
    let uid = allowed.uid();
    let is_own = spaces.iter().all(|space| reading(space) == ReadRight::Own);
    let names_own = filter.uids().is_none_or(|uids| uids.contains(&uid));
    Ok(if is_own && names_own { filter.of_users(Some(&[uid])) } else { filter })
}
