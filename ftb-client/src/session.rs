//! The protocol of one client with its agents: a state machine that lives through all attachments.
//!
//! Responsible for: which message is sent next, and the effects of received ones. No socket, clock
//! or task.

use crate::error::{SubscribeError, Unconfirmed};
use crate::fair_queue::{FairQueue, Ticket};
use crate::inbox::Inbox;
use crate::outbox::Outbox;
use crate::statements::Statements;
use crate::stream::Outgoing;
use ftb_core::filter::Filter;
use ftb_core::node::api::RefusedWhat;
use ftb_core::protocol::Features;
use ftb_core::{PublisherId, limits};
use ftb_proto::client::{FromAgent, FromClient, Hello, HelloAck};
use std::task::Waker;

/// The state of the current attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Attachment {
    Detached,
    /// Connected; the hello is not sent yet.
    Connected,
    /// The hello is sent; the agent has not answered.
    Handshaking,
    Attached(HelloAck),
    /// The Close message is sent: nothing follows.
    Left,
}

/// After this many messages whose outcomes no task waited for, the agent may delay confirmations.
const UNOBSERVED_MAX: u32 = 64;

/// What the shell must do after an input.
#[derive(Default)]
pub(crate) struct Effects {
    /// Readers to wake.
    pub(crate) wakers: Vec<Waker>,
    /// There may be something to send.
    pub(crate) send: bool,
    /// Wake the tasks that wait for a change.
    pub(crate) changed: bool,
    /// The agent refused the client, or the client closes or has ended.
    pub(crate) refused: bool,
}

/// Why no agent is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The first attempt has not ended yet.
    Untried,
    /// No agent listens at the socket.
    NoAgent(String),
    /// The agent refused this client.
    Refused { code: String, message: String },
    /// An agent listens, and the attachment ended or failed.
    Detached(String),
}

/// Why the stream must end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("the agent refused this client ({code}): {message}")]
    Refused { code: String, message: String },
    #[error("the agent sent a message that the protocol does not allow now")]
    OutOfTurn,
    #[error("the agent closed the attachment: {0}")]
    Closed(String),
}

pub(crate) struct Session {
    hello: Hello,
    attachment: Attachment,
    /// Counts attachments, to recognise streams of earlier ones.
    generation: u64,
    /// The agent's half of the publisher id; 0 before the first attachment.
    account: u64,
    /// The program closed the client; the Close message follows the buffered events.
    leaving: bool,
    /// The client's task has ended.
    ended: bool,
    attachments: u64,
    /// The agent may delay confirmations.
    delayed: bool,
    /// Messages with events since a task waited for an outcome.
    unobserved: u32,
    pub(crate) outbox: Outbox,
    pub(crate) statements: Statements,
    /// Publishers that wait for room in the outbox.
    pub(crate) room: FairQueue,
    pub(crate) inbox: Inbox,
    /// Wakes the outgoing stream, while it has nothing to send.
    pub(crate) sender: Option<Waker>,
    /// The result of the last attempt to attach.
    pub(crate) trouble: Trouble,
}

impl Session {
    pub(crate) fn new(hello: Hello, buffer_bytes: usize, queue_bytes: usize) -> Self {
        Self {
            hello,
            attachment: Attachment::Detached,
            generation: 0,
            account: 0,
            leaving: false,
            ended: false,
            attachments: 0,
            delayed: false,
            unobserved: 0,
            outbox: Outbox::new(buffer_bytes),
            statements: Statements::default(),
            room: FairQueue::new(buffer_bytes),
            inbox: Inbox::new(queue_bytes),
            sender: None,
            trouble: Trouble::Untried,
        }
    }

    /// The agent, while attached.
    pub(crate) fn hello_ack(&self) -> Option<&HelloAck> {
        match &self.attachment {
            Attachment::Attached(hello_ack) => Some(hello_ack),
            _ => None,
        }
    }

    pub(crate) fn attachments(&self) -> u64 {
        self.attachments
    }

    pub(crate) fn publisher(&self) -> PublisherId {
        PublisherId { account: self.account, token: self.hello.token }
    }

    /// The limit of payloads, in bytes.
    pub(crate) fn payload_bytes_max(&self) -> usize {
        self.hello_ack()
            .map_or(limits::PAYLOAD_BYTES_DEFAULT, |hello_ack| hello_ack.payload_bytes_max)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether no more events are accepted.
    pub(crate) fn is_closed(&self) -> bool {
        self.leaving
    }

    /// See [`FairQueue::may_enter`].
    pub(crate) fn may_enter(&mut self, ticket: Option<Ticket>, cost: usize) -> bool {
        self.room.may_enter(ticket, cost, self.outbox.held_bytes())
    }

    /// Enters without waiting, if there is room and no other publisher is first, or if the client
    /// is closed. Returns whether it entered.
    pub(crate) fn enters_now(&mut self, cost: usize) -> bool {
        let fits = self.outbox.has_room_for(cost) || self.outbox.is_empty();
        let goes = self.is_closed() || fits && self.may_enter(None, cost);
        if goes {
            self.room.entered(None, cost);
        }
        goes
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether the Close message is sent.
    pub(crate) fn has_left(&self) -> bool {
        self.attachment == Attachment::Left
    }

    /// A connection to an agent begins. Returns its generation.
    pub(crate) fn connected(&mut self) -> u64 {
        self.attachment = Attachment::Connected;
        self.delayed = false;
        self.sender = None;
        self.generation += 1;
        self.outbox.attached();
        self.inbox.attached();
        self.generation
    }

    /// The connection ended or failed.
    pub(crate) fn detached(&mut self, trouble: Trouble) -> Effects {
        self.attachment = Attachment::Detached;
        self.generation += 1;
        self.trouble = trouble;
        let refused = matches!(self.trouble, Trouble::Refused { .. });
        Effects { changed: true, refused, ..Effects::default() }
    }

    /// Accepts no more events; the Close message follows the buffered ones.
    pub(crate) fn leave(&mut self) -> Effects {
        self.leaving = true;
        let wakers = self.inbox.end_all(&SubscribeError::Closed);
        Effects { wakers, send: true, changed: true, refused: true }
    }

    /// Ends the client: all waiting tasks get an outcome.
    pub(crate) fn end(&mut self) -> Effects {
        let effects = self.leave();
        self.attachment = Attachment::Detached;
        self.outbox.abandon();
        self.ended = true;
        effects
    }

    /// A message as the agent of this attachment knows it: one of the release before has no folds
    /// of groups, and no key of filters for them.
    fn for_agent(&self, message: FromClient) -> FromClient {
        let Attachment::Attached(ack) = &self.attachment else { return message };
        match message {
            FromClient::Subscribe { subscription, filter, start }
                if !ack.features.contains(Features::FOLDS) =>
            {
                let known = Filter::parse(&filter).map(|filter| filter.with_single(false));
                let filter = known.map(|known| known.to_string()).unwrap_or(filter);
                FromClient::Subscribe { subscription, filter, start }
            }
            message => message,
        }
    }

    /// The next message; `None`: nothing to send now.
    pub(crate) fn next_message(&mut self) -> Option<Outgoing> {
        match &self.attachment {
            Attachment::Connected => {
                self.attachment = Attachment::Handshaking;
                Some(Outgoing::Message(FromClient::Hello(self.hello.clone())))
            }
            Attachment::Attached(_) => {
                if let Some(message) = self.inbox.take() {
                    return Some(Outgoing::Message(self.for_agent(message)));
                }
                if let Some(message) = self.confirmations() {
                    return Some(Outgoing::Message(message));
                }
                if !self.outbox.sends_again()
                    && let Some(message) = self.statements.take_due()
                {
                    return Some(Outgoing::Message(message));
                }
                if let Some(batch) = self.outbox.take() {
                    if !batch.again {
                        self.statements.on_sent(batch.first_seq, &batch.events);
                    }
                    self.unobserved = self.unobserved.saturating_add(1);
                    return Some(Outgoing::Publish(batch));
                }
                // Events beyond the window follow after confirmations.
                if self.leaving && self.outbox.waiting_bytes() == 0 {
                    self.attachment = Attachment::Left;
                    let reason = "closed".to_owned();
                    return Some(Outgoing::Message(FromClient::Close { reason }));
                }
                None
            }
            Attachment::Detached | Attachment::Handshaking | Attachment::Left => None,
        }
    }

    /// A change of the agent's confirmations: at once while tasks wait for outcomes or room may run
    /// short, else delayed.
    fn confirmations(&mut self) -> Option<FromClient> {
        if self.outbox.ack_interest().take_seen() || self.outbox.is_crowded() {
            self.unobserved = 0;
        }
        let delayed = self.unobserved >= UNOBSERVED_MAX;
        (delayed != self.delayed).then(|| {
            self.delayed = delayed;
            FromClient::DelayAcks { delayed }
        })
    }

    /// Wakes `watcher` when the agent must confirm at once. `false`: it must do that now.
    pub(crate) fn watch_ack_interest(&self, watcher: &Waker) -> bool {
        !self.delays_acks() || self.outbox.ack_interest().watch(watcher)
    }

    /// Whether the agent may delay confirmations.
    fn delays_acks(&self) -> bool {
        self.delayed && matches!(self.attachment, Attachment::Attached(_))
    }

    /// Whether the outgoing stream waits with this waker and has not been woken since.
    pub(crate) fn is_idle(&self, sender: &Waker) -> bool {
        self.sender.as_ref().is_some_and(|waiting| waiting.will_wake(sender))
            && !(self.delays_acks() && self.outbox.ack_interest().are_seen())
    }

    /// Handles a message of the agent.
    pub(crate) fn handle(&mut self, message: FromAgent) -> Result<Effects, SessionError> {
        match (&self.attachment, message) {
            (Attachment::Handshaking, FromAgent::HelloAck(ack)) => {
                self.account = ack.account;
                self.statements.on_attached();
                self.attachment = Attachment::Attached(ack);
                self.trouble = Trouble::Untried;
                self.attachments += 1;
                Ok(Effects { send: true, changed: true, ..Effects::default() })
            }
            (_, FromAgent::Nack { code, message }) => {
                Err(SessionError::Refused { code: code.as_str().to_owned(), message })
            }
            (_, FromAgent::Close { reason }) => Err(SessionError::Closed(reason)),
            (Attachment::Attached(_) | Attachment::Left, message) => self.attached(message),
            _ => Err(SessionError::OutOfTurn),
        }
    }

    /// The agent demands signatures, or not any more, since its configuration has changed.
    fn on_demand(&mut self, is_required: bool) {
        // A client that leaves acts on nothing.
        let Attachment::Attached(hello_ack) = &mut self.attachment else { return };
        hello_ack.features = match is_required {
            true => hello_ack.features.with(Features::SIGNED),
            false => hello_ack.features.without(Features::SIGNED),
        };
    }

    fn attached(&mut self, message: FromAgent) -> Result<Effects, SessionError> {
        let mut effects = Effects::default();
        match message {
            FromAgent::Confirmed { seq, level } => {
                self.outbox.confirm(seq, level, self.publisher());
                // A wake-up may cross threads: none without something to send.
                effects.send = self.outbox.has_waiting() || self.leaving;
                effects.changed = true;
            }
            FromAgent::Subscribed { subscription, active_after } => {
                self.inbox.subscribed(subscription, active_after);
                effects.changed = true;
            }
            FromAgent::Rejected { what, code, message } => {
                let code = code.as_str().to_owned();
                match what {
                    RefusedWhat::Subscription(id) => {
                        let why = SubscribeError::Refused { code, message };
                        effects.wakers.extend(self.inbox.refused(id, why));
                    }
                    RefusedWhat::Events { first, last } => {
                        self.statements.on_refused(first.get(), last.get());
                        let why = Unconfirmed::Refused { code, message };
                        self.outbox.refuse(first.get(), last.get(), why, self.publisher());
                    }
                }
                (effects.send, effects.changed) = (true, true);
            }
            FromAgent::Deliver { subscription, events, requires_signatures } => {
                if let Some(is_required) = requires_signatures {
                    self.on_demand(is_required);
                }
                effects.wakers.extend(self.inbox.deliver(subscription, events));
                // A full queue unsubscribes.
                effects.send = self.inbox.has_unsubscriptions();
            }
            FromAgent::Gap { subscription, gap } => {
                effects.wakers.extend(self.inbox.gap(subscription, gap));
                effects.send = self.inbox.has_unsubscriptions();
            }
            FromAgent::Covered { subscription, position, history_ended, hidden } => {
                let waker = self.inbox.covered(subscription, position, history_ended, hidden);
                effects.wakers.extend(waker);
                effects.send = self.inbox.has_unsubscriptions();
            }
            FromAgent::HelloAck(_) | FromAgent::Nack { .. } | FromAgent::Close { .. } => {
                return Err(SessionError::OutOfTurn);
            }
        }
        Ok(effects)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::completion::Completion;
    use ftb_core::node::api::{Gap, GapReason, Start};
    use ftb_core::protocol::{FEATURES, PROTOCOL};
    use ftb_core::{Epoch, Event, EventRef, OriginId, Position, Spaces};
    use ftb_proto::client::put_published;
    use ftb_proto::event::event_len;
    use std::sync::Arc;
    use std::task::Wake;

    fn hello() -> Hello {
        Hello {
            versions: PROTOCOL,
            features: FEATURES,
            client_name: "test".to_owned(),
            job_id: String::new(),
            token: 2,
        }
    }

    fn session() -> Session {
        Session::new(hello(), 1 << 20, 1 << 20)
    }

    fn hello_ack() -> FromAgent {
        FromAgent::HelloAck(HelloAck {
            protocol: PROTOCOL.max,
            features: FEATURES,
            cluster: "c".to_owned(),
            host: "node1".to_owned(),
            origin: OriginId(1),
            account: 7,
            payload_bytes_max: 100,
        })
    }

    fn publish(session: &mut Session) -> (Arc<Completion>, u32) {
        let event = Event::new("ftb.test".parse().unwrap(), "X".parse().unwrap());
        let event = EventRef::from(&event);
        let len = event_len(&event);
        let put = |bytes: &mut Vec<u8>| put_published(&event, len, bytes);
        session.outbox.push(None, event.severity, len, put).unwrap()
    }

    #[test]
    fn nothing_is_said_before_the_welcome_but_the_hello() {
        let mut session = session();
        session.inbox.add("x".to_owned(), Start::Now).unwrap();
        let (completion, index) = publish(&mut session);
        assert_eq!(session.next_message(), None);
        session.connected();
        assert!(matches!(session.next_message(), Some(Outgoing::Message(FromClient::Hello(_)))));
        assert_eq!(session.next_message(), None);
        assert!(session.handle(hello_ack()).unwrap().send);
        assert!(matches!(
            session.next_message(),
            Some(Outgoing::Message(FromClient::Subscribe { .. }))
        ));
        assert!(matches!(session.next_message(), Some(Outgoing::Publish(_))));
        assert_eq!(session.next_message(), None);
        session.handle(FromAgent::Confirmed { seq: 1, level: None }).unwrap();
        let id = completion.outcome(index).unwrap().unwrap();
        assert_eq!((id.publisher.account, id.publisher.token), (7, 2));
    }

    #[test]
    fn an_agent_that_speaks_out_of_turn_is_left() {
        let confirmed = || FromAgent::Confirmed { seq: 1, level: None };
        let mut session = session();
        session.connected();
        assert!(session.handle(hello_ack()).is_err(), "before the hello");
        session.next_message();
        assert!(session.handle(confirmed()).is_err(), "before the HelloAck");
        session.handle(hello_ack()).unwrap();
        assert!(session.handle(hello_ack()).is_err(), "a second HelloAck");
        assert!(session.handle(confirmed()).is_ok());
    }

    #[test]
    fn the_sender_wakes_only_if_there_is_a_message() {
        let mut session = Session::new(hello(), 1000, 200);
        session.connected();
        session.next_message();
        session.handle(hello_ack()).unwrap();
        session.inbox.add(String::new(), Start::Now).unwrap();
        let Some(Outgoing::Message(FromClient::Subscribe { subscription, .. })) =
            session.next_message()
        else {
            panic!("the subscription is not asked for");
        };
        let at = |index| Position { epoch: Epoch { number: 1, root: OriginId(1) }, index };
        let gap = |index| {
            let (after, until) = (at(index), at(index + 1));
            let (reason, count, spaces) = (GapReason::Retention, Some(1), Spaces::of("ftb.test"));
            let gap = Gap { after, until, reason, count, severity_max: None, spaces };
            FromAgent::Gap { subscription, gap }
        };
        assert!(!session.handle(gap(1.into())).unwrap().send);
        assert!(session.handle(gap(2.into())).unwrap().send, "its queue is full");
        let unsubscribe = FromClient::Unsubscribe(subscription);
        assert_eq!(session.next_message(), Some(Outgoing::Message(unsubscribe)));

        let confirmed = |seq| FromAgent::Confirmed { seq, level: None };
        let _ = publish(&mut session);
        assert!(matches!(session.next_message(), Some(Outgoing::Publish(_))));
        assert!(!session.handle(confirmed(1)).unwrap().send);
        while !session.outbox.has_waiting() {
            let _ = publish(&mut session);
            session.next_message();
        }
        assert!(session.handle(confirmed(2)).unwrap().send, "there is room for what waits");
        assert!(matches!(session.next_message(), Some(Outgoing::Publish(_))));
    }

    fn attach(session: &mut Session) {
        session.connected();
        session.next_message();
        session.handle(hello_ack()).unwrap();
    }

    /// Publishes an event, which goes: what is said before it.
    fn said_before_one(session: &mut Session) -> Option<Outgoing> {
        let _ = publish(session);
        let said = session.next_message();
        match said {
            Some(Outgoing::Publish(_)) => None,
            other => {
                assert!(matches!(session.next_message(), Some(Outgoing::Publish(_))));
                other
            }
        }
    }

    fn confirm(delayed: bool) -> Option<Outgoing> {
        Some(Outgoing::Message(FromClient::DelayAcks { delayed }))
    }

    struct Ignored;

    impl Wake for Ignored {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn acknowledgements_are_delayed_while_no_task_waits() {
        let mut session = session();
        attach(&mut session);
        for _ in 0..UNOBSERVED_MAX {
            assert_eq!(said_before_one(&mut session), None);
        }
        assert_eq!(said_before_one(&mut session), confirm(true));
        assert_eq!(said_before_one(&mut session), None);

        assert!(session.watch_ack_interest(Waker::noop()));
        let sender = Waker::from(Arc::new(Ignored));
        assert!(!session.is_idle(&sender), "it does not wait");
        session.sender = Some(sender.clone());
        assert!(session.is_idle(&sender));
        let (completion, index) = publish(&mut session);
        assert!(completion.outcome(index).is_none());
        assert!(!session.watch_ack_interest(Waker::noop()), "a task has asked");
        assert!(!session.is_idle(&sender), "it is to say so");
        assert_eq!(session.next_message(), confirm(false));
        assert!(matches!(session.next_message(), Some(Outgoing::Publish(_))));
        assert!(session.watch_ack_interest(Waker::noop()));
        for _ in 1..UNOBSERVED_MAX {
            assert_eq!(said_before_one(&mut session), None);
        }
        assert_eq!(said_before_one(&mut session), confirm(true));
        // To the next agent it says so anew.
        session.detached(Trouble::Detached(String::new()));
        assert!(session.watch_ack_interest(Waker::noop()), "no agent is attached");
        attach(&mut session);
        assert_eq!(session.next_message(), confirm(true));
    }

    #[test]
    fn acknowledgements_are_immediate_while_a_task_waits_or_room_is_short() {
        let mut session = Session::new(hello(), 1 << 18, 1 << 18);
        attach(&mut session);
        let ack_interest = Arc::clone(session.outbox.ack_interest());
        let waiting = ack_interest.wait();
        for _ in 0..2 * UNOBSERVED_MAX {
            assert_eq!(said_before_one(&mut session), None);
        }
        drop(waiting);
        session
            .handle(FromAgent::Confirmed { seq: u64::from(2 * UNOBSERVED_MAX), level: None })
            .unwrap();
        for _ in 1..UNOBSERVED_MAX {
            assert_eq!(said_before_one(&mut session), None);
        }
        assert_eq!(said_before_one(&mut session), confirm(true));
        let hurried = (0..1_000).find_map(|_| said_before_one(&mut session));
        assert_eq!(hurried, confirm(false), "a quarter of what may be in flight is");
    }

    #[test]
    fn leaving_hands_over_what_was_accepted_and_says_so() {
        let mut session = session();
        session.connected();
        session.next_message();
        session.handle(hello_ack()).unwrap();
        let (completion, index) = publish(&mut session);
        session.leave();
        assert!(matches!(session.next_message(), Some(Outgoing::Publish(_))));
        assert!(matches!(
            session.next_message(),
            Some(Outgoing::Message(FromClient::Close { .. }))
        ));
        assert!(session.has_left() && session.next_message().is_none());
        session.end();
        assert_eq!(completion.outcome(index), Some(Err(Unconfirmed::Closed)));
    }
}
