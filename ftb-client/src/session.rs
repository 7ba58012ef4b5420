//! One client as seen from its agent: who says what when.
//!
//! Fed with what the agent says and what the program wants, asked for what is to be said next. It
//! decides, and has no socket, no clock and no task of its own: the same object lives through all
//! attachments.

use crate::error::{SubscribeError, Unconfirmed};
use crate::inbox::Inbox;
use crate::line::{Line, Place};
use crate::outbox::Outbox;
use crate::stream::Say;
use ftb_core::{PublisherId, limits};
use ftb_proto::client::{FromAgent, FromClient, Hello, RefusedPart, Welcome};
use std::task::Waker;

/// Where the present attachment stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Attachment {
    Detached,
    /// Connected; the hello is still to be said.
    Connected,
    /// The hello was said, the welcome is awaited.
    Greeting,
    Attached(Welcome),
    /// The goodbye was said: nothing follows.
    Left,
}

/// When so many messages with events went and nobody asked what became of them, nobody will soon.
const UNASKED_MAX: u32 = 64;

/// What the shell must do after an input.
#[derive(Default)]
pub(crate) struct Effects {
    /// Readers to wake.
    pub(crate) wakers: Vec<Waker>,
    /// There may be something to say.
    pub(crate) speak: bool,
    /// Somebody may wait for what has changed.
    pub(crate) changed: bool,
    /// The agent has turned the client away, or the client leaves or is over.
    pub(crate) refused: bool,
}

/// Why no agent is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The first attempt has not ended yet.
    Untried,
    /// No agent listens at the socket.
    NoAgent(String),
    /// The agent turned this client away.
    Refused { code: String, message: String },
    /// An agent is there, and the attachment ended or did not come about.
    Detached(String),
}

/// Why the stream must end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SessionError {
    #[error("the agent refused this client ({code}): {message}")]
    Refused { code: String, message: String },
    #[error("the agent spoke out of turn")]
    OutOfTurn,
    #[error("the agent says goodbye: {0}")]
    Goodbye(String),
}

pub(crate) struct Session {
    hello: Hello,
    attachment: Attachment,
    /// Counts attachments: what belongs to an earlier one is recognised.
    generation: u64,
    /// The agent's half of the publisher id; known from the first welcome on.
    account: u64,
    /// The program wants to end; the goodbye follows what is still to be said.
    leaving: bool,
    /// The client's task is over.
    ended: bool,
    welcomes: u64,
    /// The agent was told that confirmations may wait.
    lazily: bool,
    /// How many messages with events went since somebody was seen who waits for the agent.
    unasked: u32,
    pub(crate) outbox: Outbox,
    /// Who waits for room in it.
    pub(crate) line: Line,
    pub(crate) inbox: Inbox,
    /// The stream to the agent, while it waits for something to say.
    pub(crate) speaker: Option<Waker>,
    /// What the last attempt to attach met.
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
            welcomes: 0,
            lazily: false,
            unasked: 0,
            outbox: Outbox::new(buffer_bytes),
            line: Line::new(buffer_bytes),
            inbox: Inbox::new(queue_bytes),
            speaker: None,
            trouble: Trouble::Untried,
        }
    }

    /// The agent, while attached.
    pub(crate) fn welcome(&self) -> Option<&Welcome> {
        match &self.attachment {
            Attachment::Attached(welcome) => Some(welcome),
            _ => None,
        }
    }

    pub(crate) fn welcomes(&self) -> u64 {
        self.welcomes
    }

    fn publisher(&self) -> PublisherId {
        PublisherId { account: self.account, token: self.hello.token }
    }

    /// The largest payload that may be published now, in bytes.
    pub(crate) fn payload_bytes_max(&self) -> usize {
        self.welcome().map_or(limits::PAYLOAD_BYTES_DEFAULT, |welcome| welcome.payload_bytes_max)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether nothing more is accepted.
    pub(crate) fn is_closed(&self) -> bool {
        self.leaving
    }

    /// Whether what needs so much may go where there is room: see [`Line::lets`].
    pub(crate) fn lets_in(&mut self, place: Option<Place>, cost: usize) -> bool {
        self.line.lets(place, cost, self.outbox.held_bytes())
    }

    /// Whether what needs so much may go now, without having waited: there is room and others do not come first, or the
    /// client is closed. What may is taken to go.
    pub(crate) fn goes_now(&mut self, cost: usize) -> bool {
        let fits = self.outbox.has_room_for(cost) || self.outbox.is_empty();
        let goes = self.is_closed() || fits && self.lets_in(None, cost);
        if goes {
            // It had no place that others could have given way to.
            self.line.went(None, cost);
        }
        goes
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether the goodbye was said.
    pub(crate) fn has_left(&self) -> bool {
        self.attachment == Attachment::Left
    }

    /// A connection to an agent begins. Gives its generation.
    pub(crate) fn connected(&mut self) -> u64 {
        self.attachment = Attachment::Connected;
        self.lazily = false;
        self.speaker = None;
        self.generation += 1;
        self.outbox.attached();
        self.inbox.attached();
        self.generation
    }

    /// The connection is gone, or did not come to be.
    pub(crate) fn detached(&mut self, trouble: Trouble) -> Effects {
        self.attachment = Attachment::Detached;
        self.generation += 1;
        self.trouble = trouble;
        let refused = matches!(self.trouble, Trouble::Refused { .. });
        Effects { changed: true, refused, ..Effects::default() }
    }

    /// Accepts nothing more; says goodbye once what was accepted is handed over.
    pub(crate) fn leave(&mut self) -> Effects {
        self.leaving = true;
        let wakers = self.inbox.end_all(&SubscribeError::Closed);
        Effects { wakers, speak: true, changed: true, refused: true }
    }

    /// The end: whoever still waits is told.
    pub(crate) fn end(&mut self) -> Effects {
        let effects = self.leave();
        self.attachment = Attachment::Detached;
        self.outbox.abandon();
        self.ended = true;
        effects
    }

    /// What to say next; `None` when there is nothing now.
    pub(crate) fn speak(&mut self) -> Option<Say> {
        match &self.attachment {
            Attachment::Connected => {
                self.attachment = Attachment::Greeting;
                Some(Say::Message(FromClient::Hello(self.hello.clone())))
            }
            Attachment::Attached(_) => {
                if let Some(message) = self.inbox.take() {
                    return Some(Say::Message(message));
                }
                if let Some(message) = self.confirmations() {
                    return Some(Say::Message(message));
                }
                if let Some(batch) = self.outbox.take() {
                    self.unasked = self.unasked.saturating_add(1);
                    return Some(Say::Publish(batch));
                }
                // What the window holds back follows when confirmations come.
                if self.leaving && self.outbox.waiting_bytes() == 0 {
                    self.attachment = Attachment::Left;
                    let reason = "closed".to_owned();
                    return Some(Say::Message(FromClient::Goodbye { reason }));
                }
                None
            }
            Attachment::Detached | Attachment::Greeting | Attachment::Left => None,
        }
    }

    /// How the agent is to confirm from now on, where that changes: at once while anybody asks what
    /// becomes of events, or room may run short; else when it costs nothing.
    fn confirmations(&mut self) -> Option<FromClient> {
        if self.outbox.waiters().take_seen() || self.outbox.is_crowded() {
            self.unasked = 0;
        }
        let lazily = self.unasked >= UNASKED_MAX;
        (lazily != self.lazily).then(|| {
            self.lazily = lazily;
            FromClient::Confirmations { lazily }
        })
    }

    /// Has somebody woken as soon as the agent must be told to confirm at once. Gives false where it
    /// must be told now.
    pub(crate) fn watch_waiters(&self, watcher: &Waker) -> bool {
        !self.is_lazy() || self.outbox.waiters().watch(watcher)
    }

    /// Whether the agent was told that confirmations may wait.
    fn is_lazy(&self) -> bool {
        self.lazily && matches!(self.attachment, Attachment::Attached(_))
    }

    /// Whether the speaker has been told by [`Session::speak`] that there is nothing to say, waits with that waker, and
    /// nobody has woken it since.
    pub(crate) fn is_silent(&self, speaker: &Waker) -> bool {
        self.speaker.as_ref().is_some_and(|waiting| waiting.will_wake(speaker))
            && !(self.is_lazy() && self.outbox.waiters().are_seen())
    }

    /// Takes what the agent says.
    pub(crate) fn handle(&mut self, message: FromAgent) -> Result<Effects, SessionError> {
        match (&self.attachment, message) {
            (Attachment::Greeting, FromAgent::Welcome(welcome)) => {
                self.account = welcome.account;
                self.attachment = Attachment::Attached(welcome);
                self.trouble = Trouble::Untried;
                self.welcomes += 1;
                Ok(Effects { speak: true, changed: true, ..Effects::default() })
            }
            (_, FromAgent::Refused { part: RefusedPart::Attach, code, message }) => {
                Err(SessionError::Refused { code, message })
            }
            (_, FromAgent::Goodbye { reason }) => Err(SessionError::Goodbye(reason)),
            (Attachment::Attached(_) | Attachment::Left, message) => self.attached(message),
            _ => Err(SessionError::OutOfTurn),
        }
    }

    fn attached(&mut self, message: FromAgent) -> Result<Effects, SessionError> {
        let mut effects = Effects::default();
        match message {
            FromAgent::Confirmed { seq } => {
                self.outbox.confirm(seq, self.publisher());
                // Who has nothing to say is not woken for nothing: that may be another thread.
                effects.speak = self.outbox.has_waiting() || self.leaving;
                effects.changed = true;
            }
            FromAgent::Subscribed { subscription, active_after } => {
                self.inbox.subscribed(subscription, active_after);
                effects.changed = true;
            }
            FromAgent::Refused { part, code, message } => {
                match part {
                    RefusedPart::Subscription(id) => {
                        let why = SubscribeError::Refused { code, message };
                        effects.wakers.extend(self.inbox.refused(id, why));
                    }
                    RefusedPart::Publish(seq) => {
                        let why = Unconfirmed::Refused { code, message };
                        self.outbox.refuse(seq, seq, why, self.publisher());
                    }
                    RefusedPart::PublishRange { first, last } => {
                        let why = Unconfirmed::Refused { code, message };
                        self.outbox.refuse(first, last, why, self.publisher());
                    }
                    RefusedPart::Attach => return Err(SessionError::OutOfTurn),
                }
                (effects.speak, effects.changed) = (true, true);
            }
            FromAgent::Deliver { subscription, events } => {
                effects.wakers.extend(self.inbox.deliver(subscription, events));
                // A full queue takes its subscription back.
                effects.speak = self.inbox.takes_back();
            }
            FromAgent::Gap { subscription, gap } => {
                effects.wakers.extend(self.inbox.gap(subscription, gap));
                effects.speak = self.inbox.takes_back();
            }
            FromAgent::Covered { subscription, position, history_ended } => {
                effects.wakers.extend(self.inbox.covered(subscription, position, history_ended));
                effects.speak = self.inbox.takes_back();
            }
            FromAgent::Welcome(_) | FromAgent::Goodbye { .. } => {
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
    use crate::fate::Fate;
    use ftb_core::node::api::{Gap, GapReason, Start};
    use ftb_core::{Epoch, Event, EventRef, OriginId, Position, Spaces};
    use ftb_proto::client::put_published;
    use ftb_proto::event::event_len;
    use std::sync::Arc;
    use std::task::Wake;

    fn session() -> Session {
        let client_name = "test".to_owned();
        let hello = Hello { protocol: 3, client_name, job_id: String::new(), token: 2 };
        Session::new(hello, 1 << 20, 1 << 20)
    }

    fn welcome() -> FromAgent {
        FromAgent::Welcome(Welcome {
            cluster: "c".to_owned(),
            host: "node1".to_owned(),
            origin: OriginId(1),
            account: 7,
            payload_bytes_max: 100,
        })
    }

    fn publish(session: &mut Session) -> (Arc<Fate>, u32) {
        let event = Event::new("ftb.test".parse().unwrap(), "X".parse().unwrap());
        let event = EventRef::from(&event);
        let len = event_len(&event);
        let put = |bytes: &mut Vec<u8>| put_published(&event, len, bytes);
        session.outbox.push(event.severity, len, put).unwrap()
    }

    #[test]
    fn nothing_is_said_before_the_welcome_but_the_hello() {
        let mut session = session();
        session.inbox.add("x".to_owned(), Start::Now).unwrap();
        let (fate, place) = publish(&mut session);
        assert_eq!(session.speak(), None);
        session.connected();
        assert!(matches!(session.speak(), Some(Say::Message(FromClient::Hello(_)))));
        assert_eq!(session.speak(), None);
        assert!(session.handle(welcome()).unwrap().speak);
        assert!(matches!(session.speak(), Some(Say::Message(FromClient::Subscribe { .. }))));
        assert!(matches!(session.speak(), Some(Say::Publish(_))));
        assert_eq!(session.speak(), None);
        session.handle(FromAgent::Confirmed { seq: 1 }).unwrap();
        let id = fate.outcome(place).unwrap().unwrap();
        assert_eq!((id.publisher.account, id.publisher.token), (7, 2));
    }

    #[test]
    fn an_agent_that_speaks_out_of_turn_is_left() {
        let confirmed = || FromAgent::Confirmed { seq: 1 };
        let mut session = session();
        session.connected();
        assert!(session.handle(welcome()).is_err(), "before the hello");
        session.speak();
        assert!(session.handle(confirmed()).is_err(), "before the welcome");
        session.handle(welcome()).unwrap();
        assert!(session.handle(welcome()).is_err(), "a second welcome");
        assert!(session.handle(confirmed()).is_ok());
    }

    #[test]
    fn nobody_is_asked_to_speak_who_has_nothing_to_say() {
        let client_name = "test".to_owned();
        let hello = Hello { protocol: 3, client_name, job_id: String::new(), token: 2 };
        let mut session = Session::new(hello, 1000, 200);
        session.connected();
        session.speak();
        session.handle(welcome()).unwrap();
        session.inbox.add(String::new(), Start::Now).unwrap();
        let Some(Say::Message(FromClient::Subscribe { subscription, .. })) = session.speak() else {
            panic!("the subscription is not asked for");
        };
        let at = |index| Position { epoch: Epoch { number: 1, root: OriginId(1) }, index };
        let gap = |index| {
            let (after, until) = (at(index), at(index + 1));
            let (reason, count, spaces) = (GapReason::Retention, 1, Spaces::of("ftb.test"));
            let gap = Gap { after, until, reason, count, severity_max: None, spaces };
            FromAgent::Gap { subscription, gap }
        };
        assert!(!session.handle(gap(1)).unwrap().speak);
        assert!(session.handle(gap(2)).unwrap().speak, "its queue is full");
        let unsubscribe = FromClient::Unsubscribe(subscription);
        assert_eq!(session.speak(), Some(Say::Message(unsubscribe)));

        let confirmed = |seq| FromAgent::Confirmed { seq };
        let _ = publish(&mut session);
        assert!(matches!(session.speak(), Some(Say::Publish(_))));
        assert!(!session.handle(confirmed(1)).unwrap().speak);
        while !session.outbox.has_waiting() {
            let _ = publish(&mut session);
            session.speak();
        }
        assert!(session.handle(confirmed(2)).unwrap().speak, "there is room for what waits");
        assert!(matches!(session.speak(), Some(Say::Publish(_))));
    }

    fn attach(session: &mut Session) {
        session.connected();
        session.speak();
        session.handle(welcome()).unwrap();
    }

    /// Publishes an event, which goes: what is said before it.
    fn said_before_one(session: &mut Session) -> Option<Say> {
        let _ = publish(session);
        let said = session.speak();
        match said {
            Some(Say::Publish(_)) => None,
            other => {
                assert!(matches!(session.speak(), Some(Say::Publish(_))));
                other
            }
        }
    }

    fn confirm(lazily: bool) -> Option<Say> {
        Some(Say::Message(FromClient::Confirmations { lazily }))
    }

    struct Nobody;

    impl Wake for Nobody {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn the_agent_need_not_hurry_while_nobody_asks() {
        let mut session = session();
        attach(&mut session);
        for _ in 0..UNASKED_MAX {
            assert_eq!(said_before_one(&mut session), None);
        }
        assert_eq!(said_before_one(&mut session), confirm(true));
        assert_eq!(said_before_one(&mut session), None);

        assert!(session.watch_waiters(Waker::noop()));
        let speaker = Waker::from(Arc::new(Nobody));
        assert!(!session.is_silent(&speaker), "it does not wait");
        session.speaker = Some(speaker.clone());
        assert!(session.is_silent(&speaker));
        let (fate, place) = publish(&mut session);
        assert!(fate.outcome(place).is_none());
        assert!(!session.watch_waiters(Waker::noop()), "somebody has asked");
        assert!(!session.is_silent(&speaker), "it is to say so");
        assert_eq!(session.speak(), confirm(false));
        assert!(matches!(session.speak(), Some(Say::Publish(_))));
        assert!(session.watch_waiters(Waker::noop()));
        for _ in 1..UNASKED_MAX {
            assert_eq!(said_before_one(&mut session), None);
        }
        assert_eq!(said_before_one(&mut session), confirm(true));
        // To the next agent it says so anew.
        session.detached(Trouble::Detached(String::new()));
        assert!(session.watch_waiters(Waker::noop()), "there is nobody to tell");
        attach(&mut session);
        assert_eq!(session.speak(), confirm(true));
    }

    #[test]
    fn the_agent_must_hurry_while_somebody_waits_or_room_runs_short() {
        let client_name = "test".to_owned();
        let hello = Hello { protocol: 3, client_name, job_id: String::new(), token: 2 };
        let mut session = Session::new(hello, 1 << 18, 1 << 18);
        attach(&mut session);
        let waiters = Arc::clone(session.outbox.waiters());
        let waiting = waiters.wait();
        for _ in 0..2 * UNASKED_MAX {
            assert_eq!(said_before_one(&mut session), None);
        }
        drop(waiting);
        session.handle(FromAgent::Confirmed { seq: u64::from(2 * UNASKED_MAX) }).unwrap();
        for _ in 1..UNASKED_MAX {
            assert_eq!(said_before_one(&mut session), None);
        }
        assert_eq!(said_before_one(&mut session), confirm(true));
        let hurried = (0..1_000).find_map(|_| said_before_one(&mut session));
        assert_eq!(hurried, confirm(false), "a quarter of what may be in flight is");
    }

    #[test]
    fn leaving_hands_over_what_was_accepted_and_says_goodbye() {
        let mut session = session();
        session.connected();
        session.speak();
        session.handle(welcome()).unwrap();
        let (fate, place) = publish(&mut session);
        session.leave();
        assert!(matches!(session.speak(), Some(Say::Publish(_))));
        assert!(matches!(session.speak(), Some(Say::Message(FromClient::Goodbye { .. }))));
        assert!(session.has_left() && session.speak().is_none());
        session.end();
        assert_eq!(fate.outcome(place), Some(Err(Unconfirmed::Closed)));
    }
}
