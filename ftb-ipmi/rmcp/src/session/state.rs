//! State of an open session: keys, ids, packet numbers. No I/O.

use crate::numbers::ReplayWindow;
use crate::packet::{self, Auth15, Packet, Payload};
use crate::suite::Keys;

/// An open session of either protocol.
pub(super) enum Established {
    V20(Session20),
    V15(Session15),
}

impl Established {
    /// The number by which the BMC knows the session.
    pub(super) fn id(&self) -> u32 {
        match self {
            Self::V20(session) => session.bmc_session,
            Self::V15(session) => session.id,
        }
    }

    /// A packet with this message. RMCP+ encrypts under `iv`, which must be random.
    pub(super) fn seal(&mut self, iv: [u8; 16], message: &[u8]) -> Vec<u8> {
        match self {
            Self::V20(session) => session.seal(iv, message),
            Self::V15(session) => session.seal(message),
        }
    }

    /// The message in a packet of this session; `None` for any other packet.
    pub(super) fn open(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::V20(session) => session.open(bytes),
            Self::V15(session) => session.open(bytes),
        }
    }
}

/// A session of RMCP+.
pub(super) struct Session20 {
    keys: Keys,
    bmc_session: u32,
    console_session: u32,
    /// Number of the last packet sent. 0 means none; no packet has number 0.
    sent: u32,
    window: ReplayWindow,
}

impl Session20 {
    pub(super) fn new(keys: Keys, bmc_session: u32, console_session: u32) -> Self {
        Self { keys, bmc_session, console_session, sent: 0, window: ReplayWindow::new() }
    }

    fn seal(&mut self, iv: [u8; 16], message: &[u8]) -> Vec<u8> {
        self.sent = self.sent.wrapping_add(1).max(1);
        packet::encode_20_sealed(&self.keys, self.bmc_session, self.sent, iv, message)
    }

    fn open(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let Packet::V20(packet) = packet::decode(bytes)? else { return None };
        if packet.payload != Payload::Message || packet.session != self.console_session {
            return None;
        }
        let message = packet.open(&self.keys)?;
        self.window.accept(packet.sequence).then_some(message)
    }
}

/// A session of IPMI 1.5, also before its activation.
pub(super) struct Session15 {
    auth: Auth15,
    password: [u8; 16],
    id: u32,
    /// Number of the next packet; 0 until the session is active.
    next: u32,
    is_active: bool,
    /// Packets of an active session need no proof.
    without_packet_auth: bool,
    window: ReplayWindow,
}

impl Session15 {
    /// Packets outside any session: session 0, unsigned.
    pub(super) fn none() -> Self {
        Self::inactive(Auth15::None, [0; 16], 0, false)
    }

    /// A session that the BMC has numbered and not yet activated.
    pub(super) fn inactive(
        auth: Auth15,
        password: [u8; 16],
        id: u32,
        without_packet_auth: bool,
    ) -> Self {
        let window = ReplayWindow::new();
        Self { auth, password, id, next: 0, is_active: false, without_packet_auth, window }
    }

    /// The same session after activation: its new number, and the number of the first packet.
    pub(super) fn activate(self, id: u32, next: u32) -> Self {
        Self { id, next, is_active: true, ..self }
    }

    pub(super) fn seal(&mut self, message: &[u8]) -> Vec<u8> {
        let sequence = self.next;
        if self.is_active {
            self.next = self.next.wrapping_add(1).max(1);
        }
        let is_unsigned = self.is_active && self.without_packet_auth;
        let auth = if is_unsigned { Auth15::None } else { self.auth };
        packet::encode_15(auth, &self.password, self.id, sequence, message)
    }

    pub(super) fn open(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let Packet::V15(packet) = packet::decode(bytes)? else { return None };
        let is_genuine = packet.is_genuine(self.auth, &self.password)
            || (self.without_packet_auth && packet.is_unsigned());
        if packet.session != self.id || !is_genuine {
            return None;
        }
        // Before activation, every packet has number 0.
        (!self.is_active || self.window.accept(packet.sequence)).then(|| packet.body.to_vec())
    }
}
