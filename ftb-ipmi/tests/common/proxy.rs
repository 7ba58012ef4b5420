//! A proxy between the daemon and a BMC: counts logins, changes answers of unencrypted sessions,
//! hides RMCP+.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Offset of the message in an unsigned packet of IPMI 1.5, after RMCP and session header.
const MESSAGE_AT: usize = 14;
/// Network function of answers about the event log, and the command Get SEL Info.
const GET_SEL_INFO: (u8, u8) = (0x0B, 0x40);
/// Commands outside a session of IPMI 1.5: Get Channel Authentication Capabilities, Get Session
/// Challenge.
const GET_CAPABILITIES: u8 = 0x38;
const GET_CHALLENGE: u8 = 0x39;
/// Network function of a request of group "application"; answers have the next number.
const APPLICATION: u8 = 0x06;
/// Payload type of the request that opens a session of RMCP+.
const OPEN_SESSION: u8 = 0x10;
/// How often the proxy checks whether it must end.
const TICK: Duration = Duration::from_millis(50);

/// What the proxy does with answers to Get SEL Info.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// Forwards them unchanged.
    Pass,
    /// Replaces them by a refusal with this completion code.
    Refuse(u8),
    /// Removes all data but the first byte.
    Shorten,
}

struct Shared {
    treatment: Mutex<Treatment>,
    treated: AtomicUsize,
    logins: AtomicUsize,
    challenges: AtomicUsize,
    hides_rmcp_plus: AtomicBool,
    is_over: AtomicBool,
}

/// A running proxy; ends when dropped.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Starts a proxy for the BMC on this port.
    pub fn start(bmc_port: u16) -> Self {
        let outside = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let inside = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        inside.connect(("127.0.0.1", bmc_port)).expect("an address");
        let address = outside.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            treatment: Mutex::new(Treatment::Pass),
            treated: AtomicUsize::new(0),
            logins: AtomicUsize::new(0),
            challenges: AtomicUsize::new(0),
            hides_rmcp_plus: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        for socket in [&outside, &inside] {
            socket.set_read_timeout(Some(TICK)).expect("a time that is not zero");
        }
        let client = Arc::new(Mutex::new(None));
        let (to_client, bmc) = (outside.try_clone().expect("a socket"), inside.try_clone());
        let (sender, bmc) = (Arc::clone(&client), bmc.expect("a socket"));
        forward(Arc::clone(&shared), outside, move |shared, packet, from| {
            *sender.lock().expect("no panic") = Some(from);
            if packet.get(4..6) == Some(&[0x06, OPEN_SESSION]) {
                shared.logins.fetch_add(1, Ordering::Relaxed);
                if shared.hides_rmcp_plus.load(Ordering::Relaxed) {
                    return;
                }
            }
            if is_message(packet, APPLICATION, GET_CHALLENGE) {
                shared.challenges.fetch_add(1, Ordering::Relaxed);
            }
            // A BMC that is down receives nothing.
            let _ = bmc.send(packet);
        });
        forward(Arc::clone(&shared), inside, move |shared, packet, _| {
            let answer = shared.treat(packet);
            if let Some(client) = *client.lock().expect("no panic") {
                let _ = to_client.send_to(&answer, client);
            }
        });
        Self { address, shared }
    }

    /// Address of the proxy.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Sets the treatment of answers, and returns after `count` answers were treated.
    pub fn treat(&self, treatment: Treatment, count: usize) {
        // Before the treatment: an answer that it treats at once counts.
        let start = self.shared.treated.load(Ordering::Relaxed);
        *self.shared.treatment.lock().expect("no panic") = treatment;
        super::until_some("an answer to Get SEL Info", || {
            let treated = self.shared.treated.load(Ordering::Relaxed) - start;
            (treated >= count).then_some(())
        });
    }

    /// Drops requests to open a session of RMCP+, and removes RMCP+ from what the BMC offers.
    pub fn hide_rmcp_plus(&self) {
        self.shared.hides_rmcp_plus.store(true, Ordering::Relaxed);
    }

    /// Number of requests to log in with IPMI 1.5.
    pub fn challenges(&self) -> usize {
        self.shared.challenges.load(Ordering::Relaxed)
    }

    /// Number of requests to open a session of RMCP+.
    pub fn logins(&self) -> usize {
        self.shared.logins.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }
}

fn forward(
    shared: Arc<Shared>,
    socket: UdpSocket,
    on_packet: impl Fn(&Shared, &[u8], SocketAddr) + Send + 'static,
) {
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while !shared.is_over.load(Ordering::Relaxed) {
            if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                on_packet(&shared, &buffer[..length], from);
            }
        }
    });
}

impl Shared {
    fn treat(&self, packet: &[u8]) -> Vec<u8> {
        let mut answer = packet.to_vec();
        let treatment = *self.treatment.lock().expect("no panic");
        if self.hides_rmcp_plus.load(Ordering::Relaxed)
            && is_message(packet, APPLICATION + 1, GET_CAPABILITIES)
        {
            // Completion code, channel, authentication types, status, extended capabilities.
            answer[MESSAGE_AT + 10] &= !0x02;
            set_checksum(&mut answer);
            return answer;
        }
        if !is_message(packet, GET_SEL_INFO.0, GET_SEL_INFO.1) {
            return answer;
        }
        self.treated.fetch_add(1, Ordering::Relaxed);
        if treatment == Treatment::Pass {
            return answer;
        }
        let completion = MESSAGE_AT + 6;
        match treatment {
            Treatment::Refuse(code) => {
                answer[completion] = code;
                answer.truncate(completion + 1);
            }
            _ => answer.truncate(completion + 2),
        }
        answer.push(0);
        set_checksum(&mut answer);
        answer[MESSAGE_AT - 1] = u8::try_from(answer.len() - MESSAGE_AT).expect("it is shorter");
        answer
    }
}

/// Whether a packet without authentication carries a message of this function and command.
fn is_message(packet: &[u8], netfn: u8, command: u8) -> bool {
    packet.get(4) == Some(&0)
        && packet.get(MESSAGE_AT + 1).map(|byte| byte >> 2) == Some(netfn)
        && packet.get(MESSAGE_AT + 5) == Some(&command)
}

/// Sets the last byte, the checksum of the data.
fn set_checksum(packet: &mut [u8]) {
    let Some((last, before)) = packet.split_last_mut() else { return };
    let sum = before[MESSAGE_AT + 3..].iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    *last = sum.wrapping_neg();
}
