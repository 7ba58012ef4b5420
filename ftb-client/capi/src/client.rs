//! One connected client: what it declared, what it publishes, how it leaves.

use crate::abi::{
    ClientHandle, ClientId, ClientInfo, Code, DEFAULT_POLLING_Q_LEN, EventHandle, EventInfo,
    EventProperties, LocationId, SUBSCRIPTION_NONE, SUBSCRIPTION_NOTIFY, SUBSCRIPTION_POLLING,
};
use crate::common::Shared;
use crate::convert;
use crate::declared::{Added, Declared};
use crate::delivery::{Delivery, SUBSCRIBE_MAX};
use crate::engine::Engine;
use crate::report::Reporter;
use crate::text::{bounded, field, lossy, text};
use crate::{ending, schema, space};
use bytes::Bytes;
use ftb_client::{
    Client, ClientConfig, Event, EventKind, EventName, EventRef, EventSpace, PublishError, Receipt,
    Severity, Tag, Unconfirmed,
};
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

/// Bound of the events of one client that are not confirmed, in bytes: thousands of full ones.
const BUFFER_BYTES: usize = 4 * 1024 * 1024;
/// Bound of what a client's stream holds before it is read from the log again, in bytes. Events
/// arrive in bursts, and reading from the log costs more than the memory.
const QUEUE_BYTES: usize = 4 * 1024 * 1024;
/// How long publishing waits for room while an agent is there. This and what follows is longer
/// where a longer wait for an agent is demanded: [`Settings::patience`].
///
/// [`Settings::patience`]: crate::settings::Settings::patience
pub(crate) const ROOM_MAX: Duration = Duration::from_secs(5);
/// How long publishing a fatal event waits for its confirmation while an agent is there: it is
/// often the last thing that a process says.
pub(crate) const FATAL_MAX: Duration = Duration::from_secs(1);
/// How long disconnecting waits for confirmations while an agent is there...
pub(crate) const FLUSH_MAX: Duration = Duration::from_secs(5);
/// ...and while there is none.
pub(crate) const FLUSH_ALONE_MAX: Duration = Duration::from_secs(1);
/// How long starting a client may take on the engine's thread: it has nothing to wait for.
pub(crate) const START_MAX: Duration = Duration::from_secs(5);
/// How long disconnecting waits for the goodbye.
const GOODBYE_MAX: Duration = Duration::from_millis(500);

/// How soon it is seen that the agent has gone that was to make room.
const GONE_SEEN_AFTER: Duration = Duration::from_millis(20);

/// The client of `FTB_Connect`, as far as it is checked before the handle is written.
pub(crate) struct Identity {
    pub(crate) id: ClientId,
    space: EventSpace,
    style: u8,
}

impl Identity {
    /// Checks style, event space and name, in this order.
    pub(crate) fn read(info: &ClientInfo) -> Result<Self, Code> {
        const BOTH: u8 = SUBSCRIPTION_POLLING | SUBSCRIPTION_NOTIFY;
        let styles = [
            ("FTB_SUBSCRIPTION_POLLING", SUBSCRIPTION_POLLING),
            ("FTB_SUBSCRIPTION_NOTIFY", SUBSCRIPTION_NOTIFY),
            ("FTB_SUBSCRIPTION_BOTH", BOTH),
            ("FTB_SUBSCRIPTION_NONE", SUBSCRIPTION_NONE),
        ];
        let word = text(&info.client_subscription_style).ok_or(Code::SubscriptionStyle)?;
        let style = styles.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
        let (_, style) = *style.ok_or(Code::SubscriptionStyle)?;
        let whole = text(&info.event_space).ok_or(Code::EventspaceFormat)?;
        let [region, category, component] = space::split(whole).ok_or(Code::EventspaceFormat)?;
        let space = EventSpace::new(&lossy(whole)).map_err(|_| Code::EventspaceFormat)?;
        let name = text(&info.client_name).ok_or(Code::InvalidValue)?;
        let id = ClientId {
            region: field(region),
            comp_cat: field(category),
            comp: field(component),
            client_name: field(name),
            ext: 0,
        };
        Ok(Self { id, space, style })
    }

    pub(crate) fn handle(&self) -> ClientHandle {
        ClientHandle { valid: 1, client_id: self.id }
    }
}

/// Whether both are the same client of one process. The region does not count.
pub(crate) fn same_client(a: &ClientId, b: &ClientId) -> bool {
    fn same<const N: usize>(a: &[u8; N], b: &[u8; N]) -> bool {
        // A program passes the handle that it was given: mostly the bytes are equal.
        a == b || bounded(a).eq_ignore_ascii_case(bounded(b))
    }
    same(&a.comp_cat, &b.comp_cat)
        && same(&a.comp, &b.comp)
        && same(&a.client_name, &b.client_name)
        && a.ext == b.ext
}

/// An event that is about to be published: what the client itself does not have of it.
pub(crate) struct Publication<'a> {
    name: EventName,
    severity: Severity,
    kind: EventKind,
    tags: Vec<Tag>,
    payload: &'a [u8],
}

/// One connected client.
pub(crate) struct Connected {
    pub(crate) id: ClientId,
    pub(crate) link: Client,
    pub(crate) delivery: Arc<Delivery>,
    engine: Engine,
    reporter: Reporter,
    space: EventSpace,
    style: u8,
    name: String,
    job: String,
    declared: RwLock<Declared>,
    seqnum: AtomicU16,
    /// The agent's host, once one was there.
    host: OnceLock<String>,
    shared: Shared,
}

impl Connected {
    /// A client that begins to attach.
    pub(crate) fn start(
        identity: Identity,
        info: &ClientInfo,
        engine: &Engine,
        reporter: &Reporter,
        shared: &Shared,
    ) -> Result<Self, Code> {
        let Identity { id, space, style } = identity;
        let job = lossy(text(&info.client_jobid).ok_or(Code::InvalidValue)?);
        let name = lossy(bounded(&id.client_name));
        // Programs leave these unset: any bytes. An agent takes no control characters in a hello;
        // the events carry what the program said.
        let shown = |text: &str| text.replace(char::is_control, "\u{fffd}");
        let config = ClientConfig {
            job_id: shown(&job),
            socket: shared.settings.socket.clone(),
            buffer_bytes: BUFFER_BYTES,
            queue_bytes: QUEUE_BYTES,
            ..ClientConfig::new(shown(&name))
        };
        let start_max = shared.settings.patience(START_MAX);
        let link = engine.wait(start_max, async move { Client::connect(config) });
        let link = link.ok_or(Code::General)?.map_err(|_| Code::General)?;
        // Programs that leave the length unset, and those that ask for the default of the original,
        // ask for no length of their own.
        let asked = usize::try_from(info.client_polling_queue_len).ok();
        let queue_events_max = asked.filter(|length| ![0, DEFAULT_POLLING_Q_LEN].contains(length));
        let delivery = Delivery::new(
            link.clone(),
            engine.clone(),
            reporter.clone(),
            format!("{name:?} of {space}"),
            queue_events_max,
            shared.settings.patience(SUBSCRIBE_MAX),
        );
        Ok(Self {
            id,
            link,
            delivery,
            engine: engine.clone(),
            reporter: reporter.clone(),
            space,
            style,
            name,
            job,
            declared: RwLock::default(),
            seqnum: AtomicU16::new(0),
            host: OnceLock::new(),
            shared: shared.clone(),
        })
    }

    /// Says something about this client to people.
    pub(crate) fn say(&self, what: &str) {
        self.reporter.say(&self.line(what));
    }

    fn line(&self, what: &str) -> String {
        format!("client {:?} of {}: {what}", self.name, self.space)
    }

    /// Says once when an agent turns this client away that has been in before, or comes later.
    pub(crate) fn watch(self: &Arc<Self>) {
        // Not the client itself: it goes when it is disconnected.
        let (refused, client) = (self.link.refused(), Arc::downgrade(self));
        self.engine.spawn(async move {
            if let (Some(why), Some(client)) = (refused.await, client.upgrade()) {
                client.say(&why);
            }
        });
    }

    /// Whether the client's style has that bit.
    pub(crate) fn may(&self, style: u8) -> bool {
        self.style & style != 0
    }

    /// Declares events from an array. An event that is declared already ends it with success, as in
    /// the original: what stands behind it is not looked at.
    pub(crate) fn declare(&self, events: &[EventInfo], count: usize) -> Result<(), Code> {
        let mut declared = self.declared.write().unwrap_or_else(PoisonError::into_inner);
        for index in 0..count {
            if declared.is_full() {
                return Err(Code::General);
            }
            let event = events.get(index).ok_or(Code::General)?;
            let name = text(&event.event_name).ok_or(Code::InvalidField)?;
            let severity = text(&event.severity).ok_or(Code::InvalidField)?;
            if declared.add(name, severity)? == Added::Already {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Declares events from a schema file. One that is declared already is passed over.
    pub(crate) fn declare_from(&self, path: &Path) -> Result<(), Code> {
        let bytes = schema::read(path)?;
        let (events, skipped) = schema::parse(&bytes, self.space.as_str())?;
        if skipped {
            let path = path.display();
            self.reporter.say(&format!("{path}: what stands before the first start is ignored"));
        }
        let mut declared = self.declared.write().unwrap_or_else(PoisonError::into_inner);
        for (name, severity) in events {
            declared.add(name, severity)?;
        }
        Ok(())
    }

    /// Makes an event with the client's next number, and its handle.
    pub(crate) fn make<'a>(
        &self,
        name: &[u8],
        properties: Option<&'a EventProperties>,
    ) -> Result<(Publication<'a>, EventHandle), Code> {
        let declared = self.declared.read().unwrap_or_else(PoisonError::into_inner).get(name);
        let declared = declared.ok_or(Code::InvalidEventName)?;
        let event_name = EventName::new(&lossy(name)).map_err(|_| Code::InvalidEventName)?;
        let (kind, payload) = convert::properties(properties)?;
        let seqnum = self.seqnum.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let tags = convert::tags(seqnum, &self.shared.process, &declared.spelling);
        let severity = declared.severity;
        let event = Publication { name: event_name, severity, kind, tags, payload };
        let handle = EventHandle {
            event_name: field(name),
            severity: declared.spelling,
            client_id: self.id,
            pad: 0,
            seqnum,
            location_id: self.location(),
        };
        Ok((event, handle))
    }

    /// The host as the agent calls it, so that handles compare equal at both ends; the system's
    /// name as long as no agent was there.
    fn location(&self) -> LocationId {
        let host = self.host.get().or_else(|| {
            let host = self.link.agent()?.host;
            Some(self.host.get_or_init(|| host))
        });
        let host = host.unwrap_or(&self.shared.host);
        LocationId {
            hostname: field(host.as_bytes()),
            pid_starttime: field(self.shared.starttime.as_bytes()),
            pid: self.shared.pid,
        }
    }

    /// Hands an event to the backplane.
    pub(crate) fn send(&self, publication: Publication<'_>) -> Result<(), Code> {
        let event = EventRef {
            space: &self.space,
            name: &publication.name,
            severity: publication.severity,
            // The library below says when.
            time_ns: 0,
            client_name: &self.name,
            job_id: &self.job,
            kind: publication.kind,
            tags: &publication.tags,
            // The pairs of the agent say what it states.
            condition: None,
            payload: publication.payload,
        };
        let fatal = event.severity == Severity::Fatal;
        let demands_agent = self.demands_agent();
        let published = if demands_agent || self.link.connected() {
            // Nearly always there is room: the publisher does not wait.
            match self.link.publish_if_room(event).transpose() {
                Some(published) => published,
                None => {
                    let (link, event) = (self.link.clone(), self.owned(publication));
                    let published = publish_with_room(link, event, demands_agent);
                    let room_max = self.shared.settings.patience(ROOM_MAX);
                    self.engine.wait(room_max, published).ok_or(Code::NetworkGeneral)?
                }
            }
        } else {
            // Without an agent no room comes: the event of the lowest severity is shed.
            self.link.publish_ref(event)
        };
        match published {
            Ok(receipt) if fatal && self.link.connected() => self.confirmed(receipt),
            Ok(_) => Ok(()),
            Err(PublishError::Closed) => Err(Code::InvalidHandle),
            Err(PublishError::Full { .. } | PublishError::BatchFull { .. }) => {
                Err(Code::NetworkGeneral)
            }
            // The agent takes only smaller ones.
            Err(PublishError::Event(_)) => Err(Code::General),
        }
    }

    /// Whether the program demands an agent: then it also waits while its agent is away.
    fn demands_agent(&self) -> bool {
        self.shared.settings.connect_wait.is_some()
    }

    fn owned(&self, publication: Publication<'_>) -> Event {
        let Publication { name, severity, kind, tags, payload } = publication;
        Event {
            severity,
            client_name: self.name.clone(),
            job_id: self.job.clone(),
            kind,
            tags,
            payload: Bytes::copy_from_slice(payload),
            ..Event::new(self.space.clone(), name)
        }
    }

    fn confirmed(&self, receipt: Receipt) -> Result<(), Code> {
        let fatal_max = self.shared.settings.patience(FATAL_MAX);
        match self.engine.wait(fatal_max, receipt.confirmed()) {
            Some(Err(Unconfirmed::Refused { .. })) => Err(Code::General),
            // Not yet: it goes on behind the caller's back.
            _ => Ok(()),
        }
    }

    /// Hands over what can be handed over within `longest`.
    pub(crate) fn flush(&self, longest: Duration) -> bool {
        let stats = self.link.stats();
        if stats.waiting_bytes + stats.in_flight_bytes == 0 {
            return true;
        }
        let alone = longest.min(FLUSH_ALONE_MAX);
        let waits = self.demands_agent() || self.link.connected();
        let deadline = if waits { longest } else { alone };
        let link = self.link.clone();
        let flushed = self.engine.wait(deadline, async move { link.flush(deadline).await });
        flushed.is_some_and(|flushed| flushed.is_ok())
    }

    /// Ends the client: no more events, hands over what is under way, says goodbye.
    pub(crate) fn leave(&self) -> Result<(), Code> {
        self.delivery.close();
        let flushed = self.flush(self.shared.settings.patience(FLUSH_MAX));
        // It goes on by itself when it takes longer.
        let link = self.link.clone();
        let _ = self.engine.wait(GOODBYE_MAX, async move { link.close(Duration::ZERO).await });
        self.report_end();
        self.reporter.settle();
        if flushed { Ok(()) } else { Err(Code::NetworkGeneral) }
    }

    /// Reports what this client lost and was not reported yet, in both directions.
    pub(crate) fn report_end(&self) {
        self.delivery.report_losses();
        for line in ending::lines(&self.link.stats()) {
            // A client ends once: that limits the rate.
            self.reporter.say_limited(&self.line(&line));
        }
    }

    /// The process ends: waits a moment until everything is written that was reported.
    pub(crate) fn end_reports(&self) {
        self.reporter.end();
    }
}

/// Publishes when there is room. When the agent goes meanwhile, no room comes: then the event of
/// the lowest severity is shed, unless the program demands an agent.
async fn publish_with_room(
    link: Client,
    event: Event,
    demands_agent: bool,
) -> Result<Receipt, PublishError> {
    let event = EventRef::from(&event);
    let gone = async {
        while demands_agent || link.connected() {
            tokio::time::sleep(GONE_SEEN_AFTER).await;
        }
    };
    tokio::select! {
        published = link.publish_ref_wait(event) => published,
        () = gone => link.publish_ref(event),
    }
}
