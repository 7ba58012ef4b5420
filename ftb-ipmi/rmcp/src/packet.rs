//! Packets of RMCP: the header of the Alert Standard Forum, and the session headers of IPMI 1.5 and
//! 2.0 (sections 13.1 to 13.6). No state, no I/O.

use crate::suite::Keys;
use md2::Md2;
use md5::digest::consts::U16;
use md5::{Digest, Md5};

/// Largest received packet in bytes. Answers are far shorter.
pub(crate) const PACKET_BYTES_MAX: usize = 1024;

const RMCP_HEADER: [u8; 4] = [0x06, 0x00, 0xFF, 0x07];
const AUTH_RMCP_PLUS: u8 = 0x06;

/// Content of a packet of RMCP+.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    Message,
    OpenRequest,
    OpenResponse,
    Rakp1,
    Rakp2,
    Rakp3,
    Rakp4,
}

impl Payload {
    fn code(self) -> u8 {
        match self {
            Self::Message => 0x00,
            Self::OpenRequest => 0x10,
            Self::OpenResponse => 0x11,
            Self::Rakp1 => 0x12,
            Self::Rakp2 => 0x13,
            Self::Rakp3 => 0x14,
            Self::Rakp4 => 0x15,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [
            Self::Message,
            Self::OpenRequest,
            Self::OpenResponse,
            Self::Rakp1,
            Self::Rakp2,
            Self::Rakp3,
            Self::Rakp4,
        ]
        .into_iter()
        .find(|payload| payload.code() == code)
    }
}

/// Authentication of packets in IPMI 1.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Auth15 {
    None,
    Md2,
    Md5,
    Straight,
}

impl Auth15 {
    /// Sending the password in clear text is the last choice with a proof.
    pub(crate) const BEST_FIRST: [Self; 4] = [Self::Md5, Self::Md2, Self::Straight, Self::None];

    pub(crate) fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Md2 => 1,
            Self::Md5 => 2,
            Self::Straight => 4,
        }
    }

    fn sign(self, password: &[u8; 16], session: u32, sequence: u32, body: &[u8]) -> [u8; 16] {
        match self {
            Self::None => [0; 16],
            Self::Straight => *password,
            Self::Md2 => Self::hash::<Md2>(password, session, sequence, body),
            Self::Md5 => Self::hash::<Md5>(password, session, sequence, body),
        }
    }

    fn hash<D: Digest<OutputSize = U16>>(
        password: &[u8; 16],
        session: u32,
        sequence: u32,
        body: &[u8],
    ) -> [u8; 16] {
        D::new()
            .chain_update(password)
            .chain_update(session.to_le_bytes())
            .chain_update(body)
            .chain_update(sequence.to_le_bytes())
            .chain_update(password)
            .finalize()
            .into()
    }
}

/// A received packet of IPMI 1.5, not yet authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet15<'a> {
    auth_code: Option<(u8, [u8; 16])>,
    pub(crate) sequence: u32,
    pub(crate) session: u32,
    pub(crate) body: &'a [u8],
}

impl Packet15<'_> {
    /// Whether the authentication code is correct.
    pub(crate) fn is_genuine(&self, auth: Auth15, password: &[u8; 16]) -> bool {
        match self.auth_code {
            None => auth == Auth15::None,
            Some((kind, code)) => {
                let expected = auth.sign(password, self.session, self.sequence, self.body);
                // No early exit: the duration must not reveal the correct part of a forged code.
                let difference = code.iter().zip(expected).fold(0, |sum, (a, b)| sum | (a ^ b));
                kind == auth.code() && difference == 0
            }
        }
    }

    /// Whether the packet has no authentication code.
    pub(crate) fn is_unsigned(&self) -> bool {
        self.auth_code.is_none()
    }
}

/// A received packet of RMCP+, not yet authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet20<'a> {
    pub(crate) payload: Payload,
    is_encrypted: bool,
    is_authenticated: bool,
    pub(crate) session: u32,
    pub(crate) sequence: u32,
    pub(crate) body: &'a [u8],
    /// The bytes under the integrity code: authentication type to "next header".
    covered: &'a [u8],
    integrity_code: &'a [u8],
}

/// A received packet of either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    V15(Packet15<'a>),
    V20(Packet20<'a>),
}

/// A packet of IPMI 1.5 with a message.
pub(crate) fn encode_15(
    auth: Auth15,
    password: &[u8; 16],
    session: u32,
    sequence: u32,
    body: &[u8],
) -> Vec<u8> {
    let mut bytes = RMCP_HEADER.to_vec();
    bytes.push(auth.code());
    bytes.extend_from_slice(&sequence.to_le_bytes());
    bytes.extend_from_slice(&session.to_le_bytes());
    if auth != Auth15::None {
        bytes.extend_from_slice(&auth.sign(password, session, sequence, body));
    }
    // The messages of this program have fewer than 256 bytes.
    bytes.push(u8::try_from(body.len()).unwrap_or(u8::MAX));
    bytes.extend_from_slice(body);
    bytes
}

/// A packet of the key exchange: outside a session, neither encrypted nor signed.
pub(crate) fn encode_20_plain(payload: Payload, body: &[u8]) -> Vec<u8> {
    let mut bytes = RMCP_HEADER.to_vec();
    bytes.extend_from_slice(&[AUTH_RMCP_PLUS, payload.code()]);
    bytes.extend_from_slice(&[0; 8]);
    bytes.extend_from_slice(&u16::try_from(body.len()).unwrap_or(u16::MAX).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// An encrypted and signed packet of a session.
pub(crate) fn encode_20_sealed(
    keys: &Keys,
    session: u32,
    sequence: u32,
    iv: [u8; 16],
    message: &[u8],
) -> Vec<u8> {
    let body = keys.encrypt(iv, message);
    let mut bytes = RMCP_HEADER.to_vec();
    bytes.extend_from_slice(&[AUTH_RMCP_PLUS, 0xC0 | Payload::Message.code()]);
    bytes.extend_from_slice(&session.to_le_bytes());
    bytes.extend_from_slice(&sequence.to_le_bytes());
    bytes.extend_from_slice(&u16::try_from(body.len()).unwrap_or(u16::MAX).to_le_bytes());
    bytes.extend_from_slice(&body);
    // The signed bytes, with the two bytes after the padding, are a multiple of four.
    let covered = bytes.len() - RMCP_HEADER.len() + 2;
    let pad = (4 - covered % 4) % 4;
    bytes.extend(core::iter::repeat_n(0xFF, pad));
    bytes.extend_from_slice(&[u8::try_from(pad).unwrap_or(0), 0x07]);
    let code = keys.integrity_code(&bytes[RMCP_HEADER.len()..]);
    bytes.extend_from_slice(&code);
    bytes
}

/// Reads a packet; `None` if it is malformed.
pub(crate) fn decode(bytes: &[u8]) -> Option<Packet<'_>> {
    let (header, session) = bytes.split_first_chunk::<4>()?;
    // The reserved byte and the sequence number may have any value.
    if header[0] != RMCP_HEADER[0] || header[3] & 0x1F != RMCP_HEADER[3] || header[3] & 0x80 != 0 {
        return None;
    }
    match *session.first()? {
        AUTH_RMCP_PLUS => decode_20(session).map(Packet::V20),
        auth => decode_15(auth, session).map(Packet::V15),
    }
}

fn decode_15(auth: u8, session: &[u8]) -> Option<Packet15<'_>> {
    let (sequence, rest) = session.get(1..)?.split_first_chunk::<4>()?;
    let (id, rest) = rest.split_first_chunk::<4>()?;
    let (auth_code, rest) = match auth {
        0 => (None, rest),
        kind => {
            let (code, rest) = rest.split_first_chunk::<16>()?;
            (Some((kind, *code)), rest)
        }
    };
    let (length, rest) = rest.split_first()?;
    Some(Packet15 {
        auth_code,
        sequence: u32::from_le_bytes(*sequence),
        session: u32::from_le_bytes(*id),
        body: rest.get(..usize::from(*length))?,
    })
}

fn decode_20(session: &[u8]) -> Option<Packet20<'_>> {
    let kind = *session.get(1)?;
    let payload = Payload::from_code(kind & 0x3F)?;
    let (id, rest) = session.get(2..)?.split_first_chunk::<4>()?;
    let (sequence, rest) = rest.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    let length = usize::from(u16::from_le_bytes(*length));
    let (body, trailer) = rest.split_at_checked(length)?;
    let is_authenticated = kind & 0x40 != 0;
    let (covered, integrity_code) = match is_authenticated {
        false => (&session[..0], &trailer[..0]),
        true => {
            let pad = trailer.iter().take_while(|byte| **byte == 0xFF).count();
            let pad = pad.min(3);
            if usize::from(*trailer.get(pad)?) != pad || *trailer.get(pad + 1)? != 0x07 {
                return None;
            }
            let end = session.len() - trailer.len() + pad + 2;
            session.split_at_checked(end)?
        }
    };
    Some(Packet20 {
        payload,
        is_encrypted: kind & 0x80 != 0,
        is_authenticated,
        session: u32::from_le_bytes(*id),
        sequence: u32::from_le_bytes(*sequence),
        body,
        covered,
        integrity_code,
    })
}

impl Packet20<'_> {
    /// The message, if these keys have signed and encrypted it.
    pub(crate) fn open(&self, keys: &Keys) -> Option<Vec<u8>> {
        let is_sealed = self.is_authenticated && self.is_encrypted;
        if !is_sealed || !keys.is_genuine(self.covered, self.integrity_code) {
            return None;
        }
        keys.decrypt(self.body)
    }

    /// Whether the packet is outside a session, as the key exchange must be.
    pub(crate) fn is_plain(&self) -> bool {
        !self.is_authenticated && !self.is_encrypted && self.session == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CipherSuite;
    use proptest::prelude::*;

    fn v20(bytes: &[u8]) -> Packet20<'_> {
        match decode(bytes) {
            Some(Packet::V20(packet)) => packet,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_the_right_password_accepts_a_signed_packet_of_ipmi_1_5() {
        let password = *b"secret\0\0\0\0\0\0\0\0\0\0";
        for auth in [Auth15::Md2, Auth15::Md5, Auth15::Straight] {
            let bytes = encode_15(auth, &password, 7, 9, b"hello");
            let Some(Packet::V15(packet)) = decode(&bytes) else { panic!() };
            assert_eq!((packet.session, packet.sequence, packet.body), (7, 9, &b"hello"[..]));
            assert!(packet.is_genuine(auth, &password));
            assert!(!packet.is_genuine(auth, b"another password"));
            assert!(!packet.is_genuine(Auth15::None, &password));
        }
    }

    proptest! {
        #[test]
        fn a_sealed_packet_opens_and_a_damaged_one_does_not(
            message in proptest::collection::vec(any::<u8>(), 7..60),
            iv in any::<[u8; 16]>(),
            at in 4_usize..110,
            flip in 1_u8..,
            seventeen in any::<bool>(),
        ) {
            let suite = if seventeen { CipherSuite::Seventeen } else { CipherSuite::Three };
            let keys = Keys::derive(suite, b"k");
            let mut bytes = encode_20_sealed(&keys, 5, 6, iv, &message);
            let packet = v20(&bytes);
            prop_assert_eq!(packet.open(&keys), Some(message));
            prop_assert_eq!((packet.session, packet.sequence), (5, 6));
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= flip;
                if let Some(Packet::V20(packet)) = decode(&bytes) {
                    prop_assert_eq!(packet.open(&keys), None);
                }
            }
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&bytes);
            let mut framed = RMCP_HEADER.to_vec();
            framed.extend_from_slice(&bytes);
            if let Some(Packet::V20(packet)) = decode(&framed) {
                let _ = packet.open(&Keys::derive(CipherSuite::Three, b"k"));
            }
        }
    }
}
