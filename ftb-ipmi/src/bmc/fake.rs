//! The BMC's end of RMCP+, for tests: suite 17 (which the simulator of Debian lacks), and
//! misbehaviour inside a session, where no proxy can reach.
#![allow(clippy::unwrap_used)]

use super::ipmb::{self, Answer, Expected};
use super::packet::{self, Packet, Payload};
use super::suite::{CipherSuite, Keys};
use super::{LanConfig, Protocol, Target};
use crate::sdr::BMC_ADDRESS;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

const SESSION: u32 = 0x0102_0304;
const RANDOM: [u8; 16] = [0x5A; 16];
const GUID: [u8; 16] = [0xC3; 16];
pub(crate) const USER: &str = "ftb";
pub(crate) const PASSWORD: &str = "a password of 20 b.";

/// The channel on which controllers are.
pub(crate) const CHANNEL: u8 = 6;
/// Controllers: the answer comes behind the BMC's, as most boards do.
pub(crate) const SEPARATE: u8 = 0x2C;
/// It comes with the BMC's address.
pub(crate) const REWRITTEN: u8 = 0x2E;
/// It comes inside the BMC's own.
pub(crate) const EMBEDDED: u8 = 0x30;
/// It does not come.
pub(crate) const SILENT: u8 = 0x40;
/// The BMC says that nobody is there.
pub(crate) const ABSENT: u8 = 0x42;
/// Sensors of controllers read as their own numbers with this bit turned.
pub(crate) const OF_CONTROLLER: u8 = 0x80;

/// Most bytes of its record that it returns at once.
const PIECE_BYTES_MAX: usize = 7;
/// The read of its record, counted from 1, before which it cancels the reservation.
const RESERVATION_LOST_AT: u32 = 5;

/// Entries of its log: memory errors that firmware told, numbered from 1.
const LOG_ENTRIES: u16 = 3;

/// Get SEL Info: version, entries, free bytes, when it was added to and erased, support.
fn log_information() -> Vec<u8> {
    let [low, high] = LOG_ENTRIES.to_le_bytes();
    vec![0x51, low, high, 0xFF, 0xFF, 1, 0, 0, 0, 1, 0, 0, 0, 0]
}

/// Get SEL Entry, the whole entry.
fn log_entry(asked: u16) -> (u8, Vec<u8>) {
    const NOT_PRESENT: u8 = 0xCB;
    let number = match asked {
        0 => 1,
        0xFFFF => LOG_ENTRIES,
        number => number,
    };
    if number > LOG_ENTRIES {
        return (NOT_PRESENT, Vec::new());
    }
    let next = if number == LOG_ENTRIES { 0xFFFF } else { number + 1 };
    let mut data = [next, number].map(u16::to_le_bytes).concat();
    data.extend_from_slice(&[2, 0, 0, 0, 0, 0x21, 0, 4, 0x0C, 0x87, 0x6F, 0, 0, 0xFF]);
    (0, data)
}

/// What the BMC does with the answer of the nth command, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Answer,
    /// Says nothing.
    Lose,
    /// Keeps the answer, and sends it after the next command's.
    Late,
    /// Keeps the answer, and sends it before the next command's.
    Early,
    /// Sends it twice, each in a packet of its own.
    Twice,
    /// Sends the same packet twice.
    Replay,
    /// Leaves out the end of the message, properly signed.
    Truncate,
    /// Leaves out all but the first byte of the data.
    Short,
    /// Refuses with this completion code.
    Refuse(u8),
    /// Answers with a wrong check.
    Forge,
    /// Forgets the session.
    Forget,
}

/// A BMC whose sensors read as their own numbers.
pub(crate) struct FakeBmc {
    suite: CipherSuite,
    manners: Box<dyn Fn(usize) -> Manner + Send>,
    commands: usize,
    console_session: u32,
    console_random: [u8; 16],
    role_and_name: Vec<u8>,
    keys: Option<Keys>,
    sent: u32,
    kept: Vec<Vec<u8>>,
    /// Under which the one record can be read.
    reservation: u8,
    record_reads: u32,
}

/// For tests that count commands: an answer that is only slow, on a busy machine, is not asked for
/// twice.
pub(crate) fn patient(target: Target) -> Target {
    match target {
        Target::Lan(config) => {
            Target::Lan(LanConfig { timeout: Duration::from_secs(5), retries: 0, ..config })
        }
        device @ Target::Device(_) => device,
    }
}

impl FakeBmc {
    /// Starts it; where it is, and its task.
    pub(crate) async fn start(
        suite: CipherSuite,
        manners: impl Fn(usize) -> Manner + Send + 'static,
    ) -> (Target, JoinHandle<()>) {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let target = Target::Lan(LanConfig {
            host: "127.0.0.1".to_owned(),
            port: socket.local_addr().unwrap().port(),
            user: USER.to_owned(),
            password: PASSWORD.to_owned(),
            group_key: None,
            privilege: 2,
            protocol: Protocol::RmcpPlus([Some(suite), None]),
            timeout: Duration::from_millis(50),
            retries: 5,
        });
        let mut bmc = Self {
            suite,
            manners: Box::new(manners),
            commands: 0,
            console_session: 0,
            console_random: [0; 16],
            role_and_name: Vec::new(),
            keys: None,
            sent: 0,
            kept: Vec::new(),
            reservation: 0,
            record_reads: 0,
        };
        let task = tokio::spawn(async move {
            let mut buffer = [0; 1024];
            while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
                for answer in bmc.take(&buffer[..length]) {
                    let _ = socket.send_to(&answer, from).await;
                }
            }
        });
        (target, task)
    }

    fn take(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let Some(Packet::V20(packet)) = packet::decode(bytes) else { return Vec::new() };
        match packet.payload {
            Payload::OpenRequest => vec![self.open(packet.body)],
            Payload::Rakp1 => vec![self.rakp2(packet.body)],
            Payload::Rakp3 => vec![self.rakp4(packet.body)],
            Payload::Message => {
                let body = self.keys.as_ref().and_then(|keys| packet.open(keys));
                body.map(|body| self.command(&body)).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    fn open(&mut self, body: &[u8]) -> Vec<u8> {
        self.console_session = u32::from_le_bytes(body[4..8].try_into().unwrap());
        let asked = [body[12], body[20], body[28]];
        let status = if asked == self.suite.algorithms() { 0 } else { 0x11 };
        let mut answer = vec![body[0], status, 2, 0];
        answer.extend_from_slice(&body[4..8]);
        answer.extend_from_slice(&SESSION.to_le_bytes());
        answer.extend_from_slice(&body[8..32]);
        packet::encode_20_plain(Payload::OpenAnswer, &answer)
    }

    fn rakp2(&mut self, body: &[u8]) -> Vec<u8> {
        self.console_random = body[8..24].try_into().unwrap();
        self.role_and_name = [&body[24..25], &body[27..]].concat();
        let console = self.console_session.to_le_bytes();
        let code = self.suite.mac(
            PASSWORD.as_bytes(),
            &[
                &console,
                &SESSION.to_le_bytes(),
                &self.console_random,
                &RANDOM,
                &GUID,
                &self.role_and_name,
            ],
        );
        let mut answer = vec![body[0], 0, 0, 0];
        answer.extend_from_slice(&console);
        answer.extend_from_slice(&RANDOM);
        answer.extend_from_slice(&GUID);
        answer.extend_from_slice(&code);
        packet::encode_20_plain(Payload::Rakp2, &answer)
    }

    fn rakp4(&mut self, body: &[u8]) -> Vec<u8> {
        let console = self.console_session.to_le_bytes();
        let parts: [&[u8]; 3] = [&RANDOM, &console, &self.role_and_name];
        let proof = self.suite.mac(PASSWORD.as_bytes(), &parts);
        assert_eq!(body[8..], proof, "the console proves that it has the password");
        let session_key = self
            .suite
            .mac(PASSWORD.as_bytes(), &[&self.console_random, &RANDOM, &self.role_and_name]);
        let mut code =
            self.suite.mac(&session_key, &[&self.console_random, &SESSION.to_le_bytes(), &GUID]);
        code.truncate(self.suite.check_bytes());
        self.keys = Some(Keys::derive(self.suite, &session_key));
        (self.sent, self.kept) = (0, Vec::new());
        let mut answer = vec![body[0], 0, 0, 0];
        answer.extend_from_slice(&console);
        answer.extend_from_slice(&code);
        packet::encode_20_plain(Payload::Rakp4, &answer)
    }

    fn seal(&mut self, message: &[u8]) -> Vec<u8> {
        self.sent += 1;
        let keys = self.keys.as_ref().unwrap();
        packet::encode_20_sealed(keys, self.console_session, self.sent, [7; 16], message)
    }

    fn command(&mut self, body: &[u8]) -> Vec<Vec<u8>> {
        let to = Expected {
            from: BMC_ADDRESS,
            netfn: (body[1] >> 2) | 1,
            lun: body[1] & 0b11,
            command: body[5],
            number: body[4] >> 2,
        };
        if (to.netfn, to.command) == (0x07, 0x34) {
            return self.relay(to, &body[6..body.len() - 1]);
        }
        let (completion, data) = match (to.netfn, to.command) {
            (0x05, 0x2D) => (0, vec![body[6], 0xC0, 0]),
            (0x07, 0x01) => (0, vec![0x20, 0x80, 1, 0, 2, 0x8F, 0, 0, 0, 0, 0]),
            (0x0B, 0x22) => {
                self.reservation += 1;
                (0, vec![self.reservation, 0])
            }
            (0x0B, 0x23) => self.read_record(&body[6..body.len() - 1]),
            (0x0B, 0x40) => (0, log_information()),
            (0x0B, 0x43) => log_entry(u16::from_le_bytes([body[8], body[9]])),
            _ => (0, Vec::new()),
        };
        let message = ipmb::encode_answer(&Answer { to, completion, data });
        self.say(to, &message)
    }

    /// Get SDR: one record, in small pieces, and once the reservation is cancelled in between.
    fn read_record(&mut self, data: &[u8]) -> (u8, Vec<u8>) {
        const CANNOT_RETURN_SO_MUCH: u8 = 0xCA;
        const RESERVATION_CANCELLED: u8 = 0xC5;
        self.record_reads += 1;
        if self.record_reads == RESERVATION_LOST_AT {
            self.reservation += 1;
        }
        let record = crate::sdr::tests::fan_record();
        let (start, count) = (usize::from(data[4]), usize::from(data[5]));
        if data[0] != self.reservation {
            return (RESERVATION_CANCELLED, Vec::new());
        }
        if count > PIECE_BYTES_MAX {
            return (CANNOT_RETURN_SO_MUCH, Vec::new());
        }
        let piece = record.get(start..(start + count).min(record.len())).unwrap_or_default();
        (0, [&[0xFF, 0xFF], piece].concat())
    }

    /// Send Message: what becomes of the request inside depends on the controller's address.
    fn relay(&mut self, to: Expected, data: &[u8]) -> Vec<Vec<u8>> {
        let inner = &data[1..];
        assert_eq!(data[0], 0x40 | CHANNEL, "tracked, on the controller's channel");
        let slave = inner[0];
        let own = |completion, data| ipmb::encode_answer(&Answer { to, completion, data });
        let relayed = Expected {
            from: if slave == REWRITTEN { BMC_ADDRESS } else { slave },
            netfn: (inner[1] >> 2) | 1,
            lun: inner[1] & 0b11,
            command: inner[5],
            number: inner[4] >> 2,
        };
        let data = vec![inner[6] ^ OF_CONTROLLER, 0xC0, 0];
        let handed_on = ipmb::encode_answer(&Answer { to: relayed, completion: 0, data });
        match slave {
            ABSENT => vec![self.seal(&own(0x83, Vec::new()))],
            SILENT => vec![self.seal(&own(0, Vec::new()))],
            EMBEDDED => self.say(to, &own(0, handed_on)),
            _ => {
                let mut packets = vec![self.seal(&own(0, Vec::new()))];
                packets.append(&mut self.say(relayed, &handed_on));
                packets
            }
        }
    }

    /// Says it in the manner whose turn it is.
    fn say(&mut self, to: Expected, message: &[u8]) -> Vec<Vec<u8>> {
        let manner = (self.manners)(self.commands);
        self.commands += 1;
        let kept = std::mem::take(&mut self.kept);
        let mut early: Vec<_> = Vec::new();
        let mut late: Vec<_> = Vec::new();
        for message in kept {
            match message.split_first() {
                Some((0, message)) => early.push(self.seal(message)),
                Some((_, message)) => late.push(message.to_vec()),
                None => {}
            }
        }
        let mut now = match manner {
            Manner::Answer => vec![self.seal(message)],
            Manner::Lose => Vec::new(),
            Manner::Early | Manner::Late => {
                let mark = u8::from(manner == Manner::Late);
                self.kept.push([&[mark], message].concat());
                Vec::new()
            }
            Manner::Twice => vec![self.seal(message), self.seal(message)],
            Manner::Replay => vec![self.seal(message); 2],
            Manner::Truncate => vec![self.seal(&message[..message.len() - 3])],
            Manner::Short => {
                let short = Answer { to, completion: 0, data: vec![1] };
                vec![self.seal(&ipmb::encode_answer(&short))]
            }
            Manner::Refuse(code) => {
                let refused = Answer { to, completion: code, data: Vec::new() };
                vec![self.seal(&ipmb::encode_answer(&refused))]
            }
            Manner::Forge => {
                let mut packet = self.seal(message);
                *packet.last_mut().unwrap() ^= 1;
                vec![packet]
            }
            Manner::Forget => {
                self.keys = None;
                Vec::new()
            }
        };
        early.append(&mut now);
        if self.keys.is_some() {
            for message in late {
                let packet = self.seal(&message);
                early.push(packet);
            }
        }
        early
    }
}
