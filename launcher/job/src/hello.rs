//! The introduction of two ranks on a new link.
//!
//! 1. The listener sends a challenge: [`CHALLENGE_BYTES`] random bytes.
//! 2. The dialer sends its hello.
//! 3. The listener answers with the same hello, from its own side.
//!
//! Each hello ends with HMAC-SHA256 of its side, the challenge and its fields, under the token in
//! the listener's address. The address reaches only ranks of the job, and the token never travels
//! over a link. The challenge is new for each link and the dialer's nonce for each dial, so a
//! recorded hello or answer proves nothing.

use crate::frame::{array, invalid};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use std::io;

/// Size of the secret in an address.
pub(crate) const TOKEN_BYTES: usize = 16;
/// Size of the listener's random bytes.
pub(crate) const CHALLENGE_BYTES: usize = 16;
const NONCE_BYTES: usize = 16;
const FIELDS_BYTES: usize = 56;
const MAC_BYTES: usize = 32;
/// Size of a hello in bytes.
pub(crate) const HELLO_BYTES: usize = FIELDS_BYTES + MAC_BYTES;
/// The last two bytes are the version.
const MAGIC: [u8; 6] = *b"FTBJ\x00\x05";

/// One side of the introduction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The rank that sends it.
    pub(crate) from: u32,
    /// The rank that it is for.
    pub(crate) to: u32,
    /// The last barrier that all ranks met in: a dial of another one is refused.
    pub(crate) fence: u64,
    /// Random bytes of the dialer; the answer repeats them.
    pub(crate) nonce: [u8; NONCE_BYTES],
    /// Messages sent to the other rank in the job's life.
    pub(crate) sent: u64,
    /// Messages received from the other rank.
    pub(crate) received: u64,
}

/// What the proofs of one link depend on.
#[derive(Clone)]
pub(crate) struct Introduction {
    /// The secret in the listener's address.
    pub(crate) token: [u8; TOKEN_BYTES],
    pub(crate) challenge: [u8; CHALLENGE_BYTES],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Dialer,
    Listener,
}

impl Introduction {
    fn mac(&self, side: Side, fields: &[u8]) -> Hmac<Sha256> {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = <Hmac<Sha256> as hmac::Mac>::new_from_slice(&self.token)
            .expect("HMAC takes keys of any length");
        let label: &[u8] = match side {
            Side::Dialer => b"dialer",
            Side::Listener => b"listener",
        };
        for part in [label, b" ", &self.challenge, fields] {
            mac.update(part);
        }
        mac
    }

    /// The hello with its proof.
    pub(crate) fn seal(&self, side: Side, hello: &Hello) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..6].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&hello.from.to_le_bytes());
        bytes[12..16].copy_from_slice(&hello.to.to_le_bytes());
        bytes[16..24].copy_from_slice(&hello.fence.to_le_bytes());
        bytes[24..40].copy_from_slice(&hello.nonce);
        bytes[40..48].copy_from_slice(&hello.sent.to_le_bytes());
        bytes[48..56].copy_from_slice(&hello.received.to_le_bytes());
        let proof = self.mac(side, &bytes[..FIELDS_BYTES]).finalize().into_bytes();
        bytes[FIELDS_BYTES..].copy_from_slice(&proof);
        bytes
    }

    /// The hello of the other side.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`]: another version, or the peer does not know the token.
    pub(crate) fn open(&self, side: Side, bytes: &[u8; HELLO_BYTES]) -> io::Result<Hello> {
        let (fields, proof) = bytes.split_at(FIELDS_BYTES);
        if fields[..6] != MAGIC || fields[6..8] != [0, 0] {
            return Err(invalid("no hello of this version of ftb-job"));
        }
        self.mac(side, fields)
            .verify_slice(proof)
            .map_err(|_| invalid("the peer does not know the secret of this rank"))?;
        Ok(Hello {
            from: u32::from_le_bytes(array(&fields[8..12])),
            to: u32::from_le_bytes(array(&fields[12..16])),
            fence: u64::from_le_bytes(array(&fields[16..24])),
            nonce: array(&fields[24..40]),
            sent: u64::from_le_bytes(array(&fields[40..48])),
            received: u64::from_le_bytes(array(&fields[48..56])),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const HELLO: Hello = Hello { from: 1, to: 2, fence: 3, nonce: [7; 16], sent: 4, received: 5 };

    fn introduction() -> Introduction {
        Introduction { token: [1; TOKEN_BYTES], challenge: [2; CHALLENGE_BYTES] }
    }

    #[test]
    fn a_hello_survives_and_another_version_is_refused() {
        let mut bytes = introduction().seal(Side::Dialer, &HELLO);
        assert_eq!(introduction().open(Side::Dialer, &bytes).unwrap(), HELLO);
        bytes[5] = 2;
        assert!(introduction().open(Side::Dialer, &bytes).is_err());
    }

    #[test]
    fn a_hello_proves_itself_for_one_token_one_challenge_one_side_and_unchanged() {
        let bytes = introduction().seal(Side::Dialer, &HELLO);
        let stranger = Introduction { token: [0; TOKEN_BYTES], ..introduction() };
        let replayed = Introduction { challenge: [3; CHALLENGE_BYTES], ..introduction() };
        assert!(stranger.open(Side::Dialer, &bytes).is_err());
        assert!(replayed.open(Side::Dialer, &bytes).is_err());
        assert!(introduction().open(Side::Listener, &bytes).is_err());
        for at in 0..HELLO_BYTES {
            let mut changed = bytes;
            changed[at] ^= 1;
            assert!(introduction().open(Side::Dialer, &changed).is_err(), "byte {at}");
        }
    }
}
