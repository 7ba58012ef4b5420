//! A BMC over UDP: the socket, sending again, and the open session.

use super::ipmb::{self, Answer, Expected};
use super::numbers::{RequestNumbers, Window};
use super::packet::{self, Auth15, PACKET_BYTES_MAX, Packet, Payload};
use super::suite::{CipherSuite, Keys};
use super::{BmcError, Destination};
use ipmi_rs::connection::{Message, NetFn};
use std::io;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::Instant;

/// How often a BMC may say that it relays a request before the controller behind it counts as
/// silent.
const RELAYS_MAX: u32 = 2;

/// Which protocol to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Ask the BMC: RMCP+ where it has it, suite 17 before suite 3; else IPMI 1.5.
    Auto,
    /// RMCP+ with these suites, in this order.
    RmcpPlus([Option<CipherSuite>; 2]),
    /// IPMI 1.5, for boards that have nothing else.
    Ipmi15,
}

/// A BMC on the network.
#[derive(Clone, PartialEq, Eq)]
pub struct LanConfig {
    /// Name or address.
    pub host: String,
    /// UDP port, 623 by the standard.
    pub port: u16,
    /// User name.
    pub user: String,
    /// Its password.
    pub password: String,
    /// The BMC's own key, where it has one.
    pub group_key: Option<Vec<u8>>,
    /// Privilege level to ask for: 2 user, 3 operator, 4 administrator. User is enough.
    pub privilege: u8,
    /// Which protocol.
    pub protocol: Protocol,
    /// How long to wait before a request is sent again.
    pub timeout: Duration,
    /// How often it is sent again.
    pub retries: u32,
}

impl std::fmt::Debug for LanConfig {
    /// Without the secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LanConfig")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("user", &self.user)
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

impl LanConfig {
    /// What people call it.
    pub fn name(&self) -> String {
        match self.port {
            623 => self.host.clone(),
            port => format!("{}:{port}", self.host),
        }
    }
}

/// An open session.
pub(super) enum Session {
    Plus(Session20),
    Old(Session15),
}

pub(super) struct Session20 {
    pub(super) keys: Keys,
    pub(super) bmc_session: u32,
    pub(super) console_session: u32,
    /// Number of the last packet sent; 0 means none, and is never sent.
    pub(super) sent: u32,
    pub(super) window: Window,
}

impl Session20 {
    fn seal(&mut self, iv: [u8; 16], body: &[u8]) -> Vec<u8> {
        self.sent = self.sent.wrapping_add(1).max(1);
        packet::encode_20_sealed(&self.keys, self.bmc_session, self.sent, iv, body)
    }

    fn open(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let Packet::V20(packet) = packet::decode(bytes)? else { return None };
        if packet.payload != Payload::Message || packet.session != self.console_session {
            return None;
        }
        let body = packet.open(&self.keys)?;
        self.window.accept(packet.sequence).then_some(body)
    }
}

pub(super) struct Session15 {
    pub(super) auth: Auth15,
    pub(super) password: [u8; 16],
    pub(super) session: u32,
    /// Number of the next packet to send; 0 until the session is active.
    pub(super) sent: u32,
    pub(super) is_active: bool,
    pub(super) without_packet_auth: bool,
    pub(super) window: Window,
}

impl Session15 {
    pub(super) fn seal(&mut self, body: &[u8]) -> Vec<u8> {
        let sequence = self.sent;
        if self.is_active {
            self.sent = self.sent.wrapping_add(1).max(1);
        }
        let auth = match self.is_active && self.without_packet_auth {
            true => Auth15::None,
            false => self.auth,
        };
        packet::encode_15(auth, &self.password, self.session, sequence, body)
    }

    pub(super) fn open(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let Packet::V15(packet) = packet::decode(bytes)? else { return None };
        let is_genuine = packet.is_genuine(self.auth, &self.password)
            || (self.without_packet_auth && packet.is_unsigned());
        if packet.session != self.session || !is_genuine {
            return None;
        }
        // Before activation every packet has number 0.
        (!self.is_active || self.window.accept(packet.sequence)).then(|| packet.body.to_vec())
    }
}

/// A BMC with its session.
pub(super) struct Lan {
    config: LanConfig,
    socket: UdpSocket,
    session: Option<Session>,
    numbers: RequestNumbers,
    /// How often the BMC said that it relays the request that is under way.
    relays: u32,
    tag: u8,
    buffer: Vec<u8>,
}

impl Lan {
    pub(super) async fn open(config: LanConfig) -> Result<Self, BmcError> {
        let socket = connect_socket(&config).await?;
        let buffer = vec![0; PACKET_BYTES_MAX];
        let numbers = RequestNumbers::new();
        let mut lan = Self { config, socket, session: None, numbers, relays: 0, tag: 0, buffer };
        let mut start = [0; 1];
        lan.fill_random(&mut start)?;
        lan.tag = start[0];
        lan.session = Some(lan.login().await?);
        Ok(lan)
    }

    pub(super) fn config(&self) -> &LanConfig {
        &self.config
    }

    /// A number for a request outside the session. Starts anywhere and counts up, so that an
    /// answer to an earlier life of this process is not taken for a new one.
    pub(super) fn next_tag(&mut self) -> u8 {
        self.tag = self.tag.wrapping_add(1);
        self.tag
    }

    fn fill_random(&self, bytes: &mut [u8]) -> Result<(), BmcError> {
        getrandom::fill(bytes).map_err(|error| BmcError::Io {
            target: "random numbers".to_owned(),
            source: io::Error::other(error.to_string()),
        })
    }

    pub(super) fn random<const N: usize>(&self) -> Result<[u8; N], BmcError> {
        let mut bytes = [0; N];
        self.fill_random(&mut bytes)?;
        Ok(bytes)
    }

    /// A command inside the session; its completion code and data. The session is dropped when the
    /// BMC does not answer: answers to it that come later cannot be opened by any other session's
    /// keys.
    pub(super) async fn call(
        &mut self,
        message: &Message,
        to: Destination,
    ) -> Result<(u8, Vec<u8>), BmcError> {
        let number = match self.numbers.take() {
            Some(number) if self.session.is_some() => number,
            _ => {
                self.leave().await;
                self.session = Some(self.login().await?);
                self.numbers = RequestNumbers::new();
                self.numbers.take().unwrap_or(0)
            }
        };
        let answer = match to.controller.is_bmc() {
            true => self.ask(message, to.lun, number).await,
            false => self.ask_behind(message, to, number).await,
        };
        if matches!(&answer, Err(error) if error.is_lost()) {
            self.session = None;
        }
        answer.map(|answer| (answer.completion, answer.data))
    }

    async fn ask(&mut self, message: &Message, lun: u8, number: u8) -> Result<Answer, BmcError> {
        let expected = Expected::of(message, Destination { lun, ..Destination::BMC }, number);
        let body = ipmb::encode_request(message, lun, number);
        self.exchange(
            |lan| {
                lan.numbers.sent(number);
                lan.seal(&body)
            },
            |bytes, lan| lan.hear(bytes).filter(|answer| answer.to == expected),
        )
        .await
    }

    /// Asks a controller behind the BMC. The BMC answers that it relays the request, and then hands
    /// the answer on; or its own answer holds the other.
    async fn ask_behind(
        &mut self,
        message: &Message,
        to: Destination,
        number: u8,
    ) -> Result<Answer, BmcError> {
        let outer = ipmb::relay(message, to, number);
        let relayed = Expected::of(&outer, Destination::BMC, number);
        let expected = Expected::of(message, to, number);
        let is_expected = |to: Expected| to == expected || to == expected.handed_on();
        let body = ipmb::encode_request(&outer, 0, number);
        self.relays = 0;
        let answer = self
            .exchange(
                |lan| {
                    if lan.relays >= RELAYS_MAX {
                        return Err(BmcError::Relay { controller: to.controller });
                    }
                    // Two answers are owed: the BMC's and the controller's.
                    lan.numbers.sent(number);
                    lan.numbers.sent(number);
                    lan.seal(&body)
                },
                |bytes, lan| {
                    let answer = lan.hear(bytes)?;
                    if is_expected(answer.to) {
                        return Some(answer);
                    }
                    if answer.to != relayed {
                        return None;
                    }
                    if answer.completion == 0 && answer.data.is_empty() {
                        lan.relays += 1;
                        return None;
                    }
                    // Refused, or answered at once: no second answer follows.
                    lan.numbers.answered(number);
                    match answer.completion {
                        0 => {
                            ipmb::decode_answer(&answer.data).filter(|inner| is_expected(inner.to))
                        }
                        _ => Some(answer),
                    }
                },
            )
            .await;
        match answer {
            Err(BmcError::Timeout { .. }) if self.relays > 0 => {
                Err(BmcError::Relay { controller: to.controller })
            }
            other => other,
        }
    }

    fn seal(&mut self, body: &[u8]) -> Result<Vec<u8>, BmcError> {
        let iv = self.random()?;
        Ok(match &mut self.session {
            Some(Session::Plus(session)) => session.seal(iv, body),
            Some(Session::Old(session)) => session.seal(body),
            None => Vec::new(),
        })
    }

    /// The answer in a packet of this session; `None` for anything else.
    fn hear(&mut self, bytes: &[u8]) -> Option<Answer> {
        let body = match self.session.as_mut()? {
            Session::Plus(session) => session.open(bytes)?,
            Session::Old(session) => session.open(bytes)?,
        };
        let answer = ipmb::decode_answer(&body)?;
        self.numbers.answered(answer.to.number);
        Some(answer)
    }

    /// Sends what `make` makes until `read` recognizes an answer, at most `retries` times more.
    /// Packets that `read` does not recognize are dropped.
    pub(super) async fn exchange<T>(
        &mut self,
        mut make: impl FnMut(&mut Self) -> Result<Vec<u8>, BmcError>,
        mut read: impl FnMut(&[u8], &mut Self) -> Option<T>,
    ) -> Result<T, BmcError> {
        let started = Instant::now();
        for attempt in 0..=self.config.retries {
            let bytes = make(self)?;
            if attempt > 0 {
                tracing::debug!(bmc = self.config.name(), attempt, "sending again");
            }
            // What cannot be sent now (no route, nobody listens) may be sent next time.
            let _ = self.socket.send(&bytes).await;
            let deadline = Instant::now() + self.config.timeout;
            let mut buffer = std::mem::take(&mut self.buffer);
            let found = loop {
                match tokio::time::timeout_at(deadline, self.socket.recv(&mut buffer)).await {
                    Err(_) => break None,
                    Ok(Ok(length)) => {
                        if let Some(found) = read(&buffer[..length], self) {
                            break Some(found);
                        }
                    }
                    // Nobody listens there: wait, since a BMC that restarts is back in a moment.
                    Ok(Err(_)) => {}
                }
            };
            self.buffer = buffer;
            if let Some(found) = found {
                return Ok(found);
            }
        }
        Err(BmcError::Timeout {
            target: self.config.name(),
            waited_ms: started.elapsed().as_millis(),
            advice: "check that it is up, its address, and that it has IPMI over LAN enabled",
        })
    }

    /// Ends the session; see [`Lan::leave`].
    pub(super) async fn close(mut self) {
        self.leave().await;
    }

    /// Close Session, sent once and not waited for: a BMC that does not hear it lets the session
    /// expire.
    async fn leave(&mut self) {
        let id = match &self.session {
            Some(Session::Plus(session)) => session.bmc_session,
            Some(Session::Old(session)) => session.session,
            None => return,
        };
        let message = Message::new_request(NetFn::App, 0x3C, id.to_le_bytes().to_vec());
        // Nobody takes the answer for another's: it comes under keys that are gone.
        if let Ok(bytes) = self.seal(&ipmb::encode_request(&message, 0, 0)) {
            let _ = self.socket.send(&bytes).await;
        }
        self.session = None;
    }
}

async fn connect_socket(config: &LanConfig) -> Result<UdpSocket, BmcError> {
    let failed = |reason: String| BmcError::Resolve { target: config.name(), reason };
    let limit = config.timeout * (config.retries + 1);
    let lookup = tokio::net::lookup_host((config.host.as_str(), config.port));
    let address = tokio::time::timeout(limit, lookup)
        .await
        .map_err(|_| failed("its name is not resolved in time".to_owned()))?
        .map_err(|error| failed(error.to_string()))?
        .next()
        .ok_or_else(|| failed("its name has no address".to_owned()))?;
    let local = if address.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let io_error = |source| BmcError::Io { target: config.name(), source };
    let socket = UdpSocket::bind(local).await.map_err(io_error)?;
    socket.connect(address).await.map_err(io_error)?;
    Ok(socket)
}
