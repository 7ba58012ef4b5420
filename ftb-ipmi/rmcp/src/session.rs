//! A BMC over UDP: the socket, resending, and the requests of the open session.

mod login;
mod state;

use crate::ipmb::{self, Answer, RequestId};
use crate::numbers::RequestNumbers;
use crate::packet::PACKET_BYTES_MAX;
use crate::{Destination, LanConfig, SessionError};
use ipmi_rs::connection::{Message, NetFn};
use state::Established;
use std::io;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::Instant;

/// How many times a BMC may confirm that it relays a request, before the controller behind it
/// counts as silent.
const RELAYS_MAX: u32 = 2;
const CLOSE_SESSION: u8 = 0x3C;

/// A BMC on the network, with a session that is opened again when it ends.
pub struct Session {
    config: LanConfig,
    socket: UdpSocket,
    established: Option<Established>,
    numbers: RequestNumbers,
    /// How many times the BMC confirmed that it relays the current request.
    relays: u32,
    tag: u8,
    buffer: Vec<u8>,
}

impl Session {
    /// Logs in to the BMC.
    ///
    /// # Errors
    /// [`SessionError`], after at most `timeout * (retries + 1)` for each message of the login.
    pub async fn open(config: LanConfig) -> Result<Self, SessionError> {
        let socket = connect_socket(&config).await?;
        let [tag] = random()?;
        let mut session = Self {
            config,
            socket,
            established: None,
            numbers: RequestNumbers::new(),
            relays: 0,
            tag,
            buffer: vec![0; PACKET_BYTES_MAX],
        };
        session.established = Some(session.login().await?);
        Ok(session)
    }

    /// Sends a request and returns completion code and data of its answer.
    ///
    /// If the BMC does not answer, the session is dropped and the next call logs in again. No other
    /// session can decrypt late answers to the dropped one.
    ///
    /// # Errors
    /// [`SessionError`]; a completion code other than 0 is none.
    pub async fn call(
        &mut self,
        message: &Message,
        to: Destination,
    ) -> Result<(u8, Vec<u8>), SessionError> {
        let number = match self.numbers.take() {
            Some(number) if self.established.is_some() => number,
            _ => {
                self.close().await;
                self.established = Some(self.login().await?);
                self.numbers = RequestNumbers::new();
                self.numbers.take().unwrap_or(0)
            }
        };
        let answer = match to.controller.is_bmc() {
            true => self.call_bmc(message, to.lun, number).await,
            false => self.call_behind_bmc(message, to, number).await,
        };
        if answer.as_ref().is_err_and(|error| !matches!(error, SessionError::Relay { .. })) {
            self.established = None;
        }
        answer.map(|answer| (answer.completion, answer.data))
    }

    /// Ends the session. Close Session is sent once, without waiting for an answer: a BMC that does
    /// not receive it lets the session expire.
    pub async fn close(&mut self) {
        let Some(established) = &self.established else { return };
        let id = established.id().to_le_bytes().to_vec();
        let message = Message::new_request(NetFn::App, CLOSE_SESSION, id);
        // Request number 0 may be in use: the keys that decrypt the answer are dropped here.
        if let Ok(bytes) = self.seal(&ipmb::encode_request(&message, 0, 0)) {
            let _ = self.socket.send(&bytes).await;
        }
        self.established = None;
    }

    /// The tag of a request outside the session. Tags start at a random number and count up, so
    /// that an answer to an earlier process does not match.
    fn next_tag(&mut self) -> u8 {
        self.tag = self.tag.wrapping_add(1);
        self.tag
    }

    async fn call_bmc(
        &mut self,
        message: &Message,
        lun: u8,
        number: u8,
    ) -> Result<Answer, SessionError> {
        let id = RequestId::of(message, Destination { lun, ..Destination::BMC }, number);
        let body = ipmb::encode_request(message, lun, number);
        self.exchange(
            |session| {
                session.numbers.on_sent(number);
                session.seal(&body)
            },
            |bytes, session| session.receive(bytes).filter(|answer| answer.id == id),
        )
        .await
    }

    /// Calls a controller behind the BMC. The BMC confirms that it relays the request, and later
    /// forwards the answer; or its own answer contains the other.
    async fn call_behind_bmc(
        &mut self,
        message: &Message,
        to: Destination,
        number: u8,
    ) -> Result<Answer, SessionError> {
        let outer = ipmb::relay(message, to, number);
        let relay_id = RequestId::of(&outer, Destination::BMC, number);
        let id = RequestId::of(message, to, number);
        let is_expected = |answer: RequestId| answer == id || answer == id.forwarded();
        let body = ipmb::encode_request(&outer, 0, number);
        self.relays = 0;
        let make = |session: &mut Self| {
            if session.relays >= RELAYS_MAX {
                return Err(SessionError::Relay { controller: to.controller });
            }
            // Two answers will come: from the BMC and from the controller.
            session.numbers.on_sent(number);
            session.numbers.on_sent(number);
            session.seal(&body)
        };
        let read = |bytes: &[u8], session: &mut Self| {
            let answer = session.receive(bytes)?;
            if is_expected(answer.id) {
                return Some(answer);
            }
            if answer.id != relay_id {
                return None;
            }
            if answer.completion == 0 && answer.data.is_empty() {
                session.relays += 1;
                return None;
            }
            // Refused, or answered at once: no second answer follows.
            session.numbers.on_answer(number);
            match answer.completion {
                0 => ipmb::decode_answer(&answer.data).filter(|inner| is_expected(inner.id)),
                _ => Some(answer),
            }
        };
        match self.exchange(make, read).await {
            Err(SessionError::Timeout { .. }) if self.relays > 0 => {
                Err(SessionError::Relay { controller: to.controller })
            }
            other => other,
        }
    }

    fn seal(&mut self, body: &[u8]) -> Result<Vec<u8>, SessionError> {
        let iv = random()?;
        Ok(self.established.as_mut().map_or_else(Vec::new, |session| session.seal(iv, body)))
    }

    /// The answer in a packet of this session; `None` for any other packet.
    fn receive(&mut self, bytes: &[u8]) -> Option<Answer> {
        let body = self.established.as_mut()?.open(bytes)?;
        let answer = ipmb::decode_answer(&body)?;
        self.numbers.on_answer(answer.id.number);
        Some(answer)
    }

    /// Sends the packet of `make` until `read` recognizes an answer, at most `retries` times more.
    /// Drops packets that `read` does not recognize.
    async fn exchange<T>(
        &mut self,
        mut make: impl FnMut(&mut Self) -> Result<Vec<u8>, SessionError>,
        mut read: impl FnMut(&[u8], &mut Self) -> Option<T>,
    ) -> Result<T, SessionError> {
        let started = Instant::now();
        for attempt in 0..=self.config.retries {
            let bytes = make(self)?;
            if attempt > 0 {
                tracing::debug!(bmc = self.config.name(), attempt, "request sent again");
            }
            // A failed send (no route, port closed) may succeed in the next attempt.
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
                    // The port is closed: wait, a BMC that restarts opens it soon.
                    Ok(Err(_)) => {}
                }
            };
            self.buffer = buffer;
            if let Some(found) = found {
                return Ok(found);
            }
        }
        let waited_ms = started.elapsed().as_millis();
        Err(SessionError::Timeout { target: self.config.name(), waited_ms })
    }
}

fn random<const N: usize>() -> Result<[u8; N], SessionError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| SessionError::Io {
        target: "random numbers".to_owned(),
        source: io::Error::other(error.to_string()),
    })?;
    Ok(bytes)
}

async fn connect_socket(config: &LanConfig) -> Result<UdpSocket, SessionError> {
    let failed = |reason: String| SessionError::Resolve { target: config.name(), reason };
    let limit: Duration = config.timeout * (config.retries + 1);
    let lookup = tokio::net::lookup_host((config.host.as_str(), config.port));
    let address = tokio::time::timeout(limit, lookup)
        .await
        .map_err(|_| failed("its name is not resolved in time".to_owned()))?
        .map_err(|error| failed(error.to_string()))?
        .next()
        .ok_or_else(|| failed("its name has no address".to_owned()))?;
    let local = if address.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let io_error = |source| SessionError::Io { target: config.name(), source };
    let socket = UdpSocket::bind(local).await.map_err(io_error)?;
    socket.connect(address).await.map_err(io_error)?;
    Ok(socket)
}
