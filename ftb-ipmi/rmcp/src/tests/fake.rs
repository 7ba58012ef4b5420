//! A BMC for tests: suite 17, which the packaged simulator lacks, and misbehaviour inside a
//! session, which no proxy can produce.
#![allow(clippy::unwrap_used)]

use crate::ipmb::{self, Answer, RequestId};
use crate::packet::{self, Packet, Payload};
use crate::suite::Keys;
use crate::{BMC_ADDRESS, CipherSuite, LanConfig, Protocol};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

const SESSION: u32 = 0x0102_0304;
const RANDOM: [u8; 16] = [0x5A; 16];
const GUID: [u8; 16] = [0xC3; 16];
/// The password of its user, of the greatest length.
pub const PASSWORD: &str = "a password of 20 b.";

/// The channel of the controllers behind the BMC.
pub const CHANNEL: u8 = 6;
/// A controller whose answer follows the answer of the BMC, as on most boards.
pub const SEPARATE: u8 = 0x2C;
/// A controller whose answer carries the address of the BMC.
pub const REWRITTEN: u8 = 0x2E;
/// A controller whose answer is inside the answer of the BMC.
pub const EMBEDDED: u8 = 0x30;
/// A controller that does not answer.
pub const SILENT: u8 = 0x40;
/// A controller that the BMC reports as absent.
pub const ABSENT: u8 = 0x42;
/// Sensors of controllers read as their number with this bit flipped.
pub const OF_CONTROLLER: u8 = 0x80;

/// What the BMC does with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behavior {
    /// Sends it.
    Answer,
    /// Drops it.
    Lose,
    /// Sends it after the answer to the next command.
    Late,
    /// Sends it before the answer to the next command.
    Early,
    /// Sends it twice, in two packets.
    Twice,
    /// Sends the same packet twice.
    Replay,
    /// Removes the end of the message and signs the rest.
    Truncate,
    /// Removes all but the first byte of the data.
    Short,
    /// Sends this completion code instead.
    Refuse(u8),
    /// Sends it with a wrong integrity code.
    Forge,
    /// Forgets the session.
    Forget,
}

/// A request as the BMC receives it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Network function.
    pub netfn: u8,
    /// Command number.
    pub command: u8,
    /// Data after the command.
    pub data: &'a [u8],
}

type Respond = dyn FnMut(Request<'_>) -> (u8, Vec<u8>) + Send;

/// Completion code and data from a BMC whose sensors read as their own number.
pub fn own_numbers(request: Request<'_>) -> (u8, Vec<u8>) {
    match (request.netfn, request.command) {
        (0x04, 0x2D) => (0, vec![request.data[0], 0xC0, 0]),
        (0x06, 0x01) => (0, vec![0x20, 0x80, 1, 0, 2, 0x8F, 0, 0, 0, 0, 0]),
        _ => (0, Vec::new()),
    }
}

/// How to log in to a fake BMC on this port.
pub(crate) fn config(port: u16) -> LanConfig {
    LanConfig {
        host: "127.0.0.1".to_owned(),
        port,
        user: "ftb".to_owned(),
        password: PASSWORD.to_owned(),
        group_key: None,
        privilege: 2,
        protocol: Protocol::RMCP_PLUS,
        timeout: Duration::from_millis(50),
        retries: 5,
    }
}

/// For tests that count commands: a slow answer on a busy machine causes no second request.
pub fn patient(config: LanConfig) -> LanConfig {
    LanConfig { timeout: Duration::from_secs(5), retries: 0, ..config }
}

/// Starts a BMC. Returns how to log in, and its task.
///
/// `behavior` decides what happens to the answer of the nth command, counted from 0. `respond`
/// gives completion code and data of an answer.
///
/// # Panics
/// If it cannot bind a port on the loopback device.
pub async fn start(
    suite: CipherSuite,
    behavior: impl Fn(usize) -> Behavior + Send + 'static,
    respond: impl FnMut(Request<'_>) -> (u8, Vec<u8>) + Send + 'static,
) -> (LanConfig, JoinHandle<()>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let protocol = Protocol::RmcpPlus([Some(suite), None]);
    let config = LanConfig { protocol, ..config(socket.local_addr().unwrap().port()) };
    let mut bmc = FakeBmc {
        suite,
        behavior: Box::new(behavior),
        respond: Box::new(respond),
        commands: 0,
        console_session: 0,
        console_random: [0; 16],
        role_and_name: Vec::new(),
        keys: None,
        sent: 0,
        kept: Vec::new(),
    };
    let task = tokio::spawn(async move {
        let mut buffer = [0; 1024];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            for answer in bmc.on_packet(&buffer[..length]) {
                let _ = socket.send_to(&answer, from).await;
            }
        }
    });
    (config, task)
}

struct FakeBmc {
    suite: CipherSuite,
    behavior: Box<dyn Fn(usize) -> Behavior + Send>,
    respond: Box<Respond>,
    commands: usize,
    console_session: u32,
    console_random: [u8; 16],
    role_and_name: Vec<u8>,
    keys: Option<Keys>,
    sent: u32,
    /// Answers for after the next command, and how they are late.
    kept: Vec<(Behavior, Vec<u8>)>,
}

impl FakeBmc {
    fn on_packet(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let Some(Packet::V20(packet)) = packet::decode(bytes) else { return Vec::new() };
        match packet.payload {
            Payload::OpenRequest => vec![self.on_open_request(packet.body)],
            Payload::Rakp1 => vec![self.on_rakp1(packet.body)],
            Payload::Rakp3 => vec![self.on_rakp3(packet.body)],
            Payload::Message => {
                let body = self.keys.as_ref().and_then(|keys| packet.open(keys));
                body.map(|body| self.on_message(&body)).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    fn on_open_request(&mut self, body: &[u8]) -> Vec<u8> {
        self.console_session = u32::from_le_bytes(body[4..8].try_into().unwrap());
        let requested = [body[12], body[20], body[28]];
        let status = if requested == self.suite.algorithms() { 0 } else { 0x11 };
        let mut answer = vec![body[0], status, 2, 0];
        answer.extend_from_slice(&body[4..8]);
        answer.extend_from_slice(&SESSION.to_le_bytes());
        answer.extend_from_slice(&body[8..32]);
        packet::encode_20_plain(Payload::OpenResponse, &answer)
    }

    fn mac(&self, parts: &[&[u8]]) -> Vec<u8> {
        self.suite.mac(PASSWORD.as_bytes(), parts)
    }

    fn on_rakp1(&mut self, body: &[u8]) -> Vec<u8> {
        self.console_random = body[8..24].try_into().unwrap();
        self.role_and_name = [&body[24..25], &body[27..]].concat();
        let (console, own) = (self.console_session.to_le_bytes(), SESSION.to_le_bytes());
        let code =
            self.mac(&[&console, &own, &self.console_random, &RANDOM, &GUID, &self.role_and_name]);
        let head: [u8; 4] = [body[0], 0, 0, 0];
        let answer = [&head[..], &console, &RANDOM, &GUID, &code].concat();
        packet::encode_20_plain(Payload::Rakp2, &answer)
    }

    fn on_rakp3(&mut self, body: &[u8]) -> Vec<u8> {
        let console = self.console_session.to_le_bytes();
        let proof = self.mac(&[&RANDOM, &console, &self.role_and_name]);
        assert_eq!(body[8..], proof, "the console proves that it has the password");
        let session_key = self.mac(&[&self.console_random, &RANDOM, &self.role_and_name]);
        let signed: [&[u8]; 3] = [&self.console_random, &SESSION.to_le_bytes(), &GUID];
        let mut code = self.suite.mac(&session_key, &signed);
        code.truncate(self.suite.integrity_bytes());
        self.keys = Some(Keys::derive(self.suite, &session_key));
        (self.sent, self.kept) = (0, Vec::new());
        let answer = [&[body[0], 0, 0, 0], &console[..], &code].concat();
        packet::encode_20_plain(Payload::Rakp4, &answer)
    }

    fn on_message(&mut self, body: &[u8]) -> Vec<Vec<u8>> {
        let id = request_id(body, BMC_ADDRESS);
        let data = &body[6..body.len() - 1];
        let netfn = body[1] >> 2;
        if (netfn, id.command) == (0x06, 0x34) {
            return self.on_send_message(id, data);
        }
        let (completion, data) = (self.respond)(Request { netfn, command: id.command, data });
        self.send(&Answer { id, completion, data })
    }

    /// Relays: the address of the controller decides what happens to the request.
    fn on_send_message(&mut self, id: RequestId, data: &[u8]) -> Vec<Vec<u8>> {
        let inner = &data[1..];
        assert_eq!(data[0], 0x40 | CHANNEL, "tracked, on the controller's channel");
        let slave = inner[0];
        let responder = if slave == REWRITTEN { BMC_ADDRESS } else { slave };
        let forwarded = Answer {
            id: request_id(inner, responder),
            completion: 0,
            data: vec![inner[6] ^ OF_CONTROLLER, 0xC0, 0],
        };
        let own = |completion, data| Answer { id, completion, data };
        match slave {
            ABSENT => vec![self.seal(&ipmb::encode_answer(&own(0x83, Vec::new())))],
            SILENT => vec![self.seal(&ipmb::encode_answer(&own(0, Vec::new())))],
            EMBEDDED => self.send(&own(0, ipmb::encode_answer(&forwarded))),
            _ => {
                let mut packets = vec![self.seal(&ipmb::encode_answer(&own(0, Vec::new())))];
                packets.append(&mut self.send(&forwarded));
                packets
            }
        }
    }

    fn seal(&mut self, message: &[u8]) -> Vec<u8> {
        self.sent += 1;
        let keys = self.keys.as_ref().unwrap();
        packet::encode_20_sealed(keys, self.console_session, self.sent, [7; 16], message)
    }

    /// The packets of this answer and of kept ones.
    fn send(&mut self, answer: &Answer) -> Vec<Vec<u8>> {
        let message = &ipmb::encode_answer(answer);
        let behavior = (self.behavior)(self.commands);
        self.commands += 1;
        let (early, late): (Vec<_>, Vec<_>) = std::mem::take(&mut self.kept)
            .into_iter()
            .partition(|(behavior, _)| *behavior == Behavior::Early);
        let mut packets: Vec<_> = early.iter().map(|(_, message)| self.seal(message)).collect();
        let changed =
            |completion, data| ipmb::encode_answer(&Answer { id: answer.id, completion, data });
        match behavior {
            Behavior::Answer => packets.push(self.seal(message)),
            Behavior::Lose => {}
            Behavior::Early | Behavior::Late => self.kept.push((behavior, message.clone())),
            Behavior::Twice => packets.extend([self.seal(message), self.seal(message)]),
            Behavior::Replay => packets.extend(vec![self.seal(message); 2]),
            Behavior::Truncate => packets.push(self.seal(&message[..message.len() - 3])),
            Behavior::Short => packets.push(self.seal(&changed(0, vec![1]))),
            Behavior::Refuse(code) => packets.push(self.seal(&changed(code, Vec::new()))),
            Behavior::Forge => {
                let mut packet = self.seal(message);
                *packet.last_mut().unwrap() ^= 1;
                packets.push(packet);
            }
            Behavior::Forget => {
                self.keys = None;
                return packets;
            }
        }
        packets.extend(late.iter().map(|(_, message)| self.seal(message)));
        packets
    }
}

/// What the answer of `responder` to a request must repeat.
fn request_id(request: &[u8], responder: u8) -> RequestId {
    RequestId {
        responder,
        netfn: (request[1] >> 2) | 1,
        lun: request[1] & 0b11,
        command: request[5],
        number: request[4] >> 2,
    }
}
