//! Handshake and frames of one connection. Both sides prove that they know the job's secret, which
//! never travels. Frames are encrypted and authenticated with keys of this connection only.
//!
//! 1. Each side sends its hello: `MAGIC` and a fresh nonce of 32 bytes.
//! 2. Each side sends its proof: HMAC-SHA256 of its side and both nonces under the secret.
//! 3. Frames follow: 4 bytes length (big endian), then ChaCha20-Poly1305 of the body. The nonce is
//!    the number of the frame, the associated data its length. Each direction has a key of its own.

use super::LinkError;
use chacha20poly1305::aead::AeadInPlace as _;
use chacha20poly1305::{ChaCha20Poly1305, KeyInit as _, Nonce, Tag};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// Begin of a connection; its last byte is the version.
pub const MAGIC: [u8; 8] = *b"FTB-job4";
pub const NONCE_BYTES: usize = 32;
pub const HELLO_BYTES: usize = MAGIC.len() + NONCE_BYTES;
pub const PROOF_BYTES: usize = 32;
/// Bytes before each frame.
pub const HEAD_BYTES: usize = 4;
/// Largest body of a frame.
pub const BODY_BYTES_MAX: usize = 256 * 1024;
const TAG_BYTES: usize = 16;

/// The secret of a job. It never travels over a connection.
#[derive(Clone)]
pub struct Secret(String);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It has opened the connection.
    Dialer,
    Listener,
}

impl Side {
    fn peer(self) -> Self {
        match self {
            Self::Dialer => Self::Listener,
            Self::Listener => Self::Dialer,
        }
    }

    fn label(self) -> &'static [u8] {
        match self {
            Self::Dialer => b"dialer",
            Self::Listener => b"listener",
        }
    }
}

impl Secret {
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The code that authenticates a manifest of the job's sets, in hex.
    pub fn seal_manifest(&self, manifest: &[u8]) -> String {
        let code = self.manifest_mac(manifest).finalize().into_bytes();
        code.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether that is the code of this manifest. Takes the same time for all wrong codes.
    pub fn has_sealed(&self, manifest: &[u8], code: &str) -> bool {
        let pairs = code.as_bytes().chunks(2).map(|pair| core::str::from_utf8(pair).ok());
        let byte = |pair: Option<&str>| u8::from_str_radix(pair?, 16).ok();
        let code: Option<Vec<u8>> = pairs.map(byte).collect();
        code.is_some_and(|code| self.manifest_mac(manifest).verify_slice(&code).is_ok())
    }

    fn manifest_mac(&self, manifest: &[u8]) -> Hmac<Sha256> {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = <Hmac<Sha256> as hmac::Mac>::new_from_slice(self.0.as_bytes())
            .expect("HMAC takes keys of any length");
        mac.update(b"manifest ");
        mac.update(manifest);
        mac
    }

    fn mac(&self, purpose: &[u8], side: Side, nonces: &[u8]) -> Hmac<Sha256> {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = <Hmac<Sha256> as hmac::Mac>::new_from_slice(self.0.as_bytes())
            .expect("HMAC takes keys of any length");
        for part in [purpose, b" ", side.label(), b" ", nonces] {
            mac.update(part);
        }
        mac
    }
}

/// One side of a handshake, before the peer's hello.
pub struct Handshake {
    secret: Secret,
    side: Side,
    nonce: [u8; NONCE_BYTES],
}

/// One side of a handshake, before the peer's proof.
pub struct Proving {
    secret: Secret,
    side: Side,
    /// The dialer's, then the listener's.
    nonces: [u8; 2 * NONCE_BYTES],
}

impl Handshake {
    /// `nonce`: fresh random bytes.
    pub fn new(secret: Secret, side: Side, nonce: [u8; NONCE_BYTES]) -> Self {
        Self { secret, side, nonce }
    }

    pub fn hello(&self) -> [u8; HELLO_BYTES] {
        let mut hello = [0; HELLO_BYTES];
        hello[..MAGIC.len()].copy_from_slice(&MAGIC);
        hello[MAGIC.len()..].copy_from_slice(&self.nonce);
        hello
    }

    /// # Errors
    /// [`LinkError::Protocol`].
    pub fn on_hello(self, peer: &[u8; HELLO_BYTES]) -> Result<Proving, LinkError> {
        let theirs = peer.strip_prefix(&MAGIC).ok_or(LinkError::Protocol)?;
        let (dialer, listener) = match self.side {
            Side::Dialer => (&self.nonce[..], theirs),
            Side::Listener => (theirs, &self.nonce[..]),
        };
        let mut nonces = [0; 2 * NONCE_BYTES];
        nonces[..NONCE_BYTES].copy_from_slice(dialer);
        nonces[NONCE_BYTES..].copy_from_slice(listener);
        Ok(Proving { secret: self.secret, side: self.side, nonces })
    }
}

impl Proving {
    pub fn proof(&self) -> [u8; PROOF_BYTES] {
        self.secret.mac(b"proof", self.side, &self.nonces).finalize().into_bytes().into()
    }

    /// # Errors
    /// [`LinkError::Key`].
    pub fn on_proof(self, peer: &[u8; PROOF_BYTES]) -> Result<(Sealer, Opener), LinkError> {
        let theirs = self.secret.mac(b"proof", self.side.peer(), &self.nonces);
        theirs.verify_slice(peer).map_err(|_| LinkError::Key)?;
        let direction = |from| {
            let key = self.secret.mac(b"frames", from, &self.nonces).finalize().into_bytes();
            Direction { cipher: ChaCha20Poly1305::new(&key), frames: 0 }
        };
        Ok((Sealer(direction(self.side)), Opener(direction(self.side.peer()))))
    }
}

/// One direction of a connection.
struct Direction {
    cipher: ChaCha20Poly1305,
    /// Frames so far.
    frames: u64,
}

impl Direction {
    fn nonce(&mut self) -> Nonce {
        let mut nonce = [0; 12];
        nonce[4..].copy_from_slice(&self.frames.to_be_bytes());
        self.frames += 1;
        nonce.into()
    }
}

/// Encrypts the frames of one direction.
pub struct Sealer(Direction);

impl Sealer {
    /// Appends a frame with this body to `out`.
    ///
    /// # Errors
    /// [`LinkError::Length`].
    pub fn seal(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), LinkError> {
        let length = u32::try_from(body.len() + TAG_BYTES).map_err(|_| LinkError::Length)?;
        if body.len() > BODY_BYTES_MAX {
            return Err(LinkError::Length);
        }
        let head = length.to_be_bytes();
        out.extend_from_slice(&head);
        let begin = out.len();
        out.extend_from_slice(body);
        let nonce = self.0.nonce();
        let tag = self.0.cipher.encrypt_in_place_detached(&nonce, &head, &mut out[begin..]);
        out.extend_from_slice(&tag.map_err(|_| LinkError::Length)?);
        Ok(())
    }
}

/// Decrypts the frames of one direction.
pub struct Opener(Direction);

impl Opener {
    /// How many bytes follow a head.
    ///
    /// # Errors
    /// [`LinkError::Length`].
    pub fn length(head: [u8; HEAD_BYTES]) -> Result<usize, LinkError> {
        let length = u32::from_be_bytes(head) as usize;
        let good = (TAG_BYTES..=BODY_BYTES_MAX + TAG_BYTES).contains(&length);
        if good { Ok(length) } else { Err(LinkError::Length) }
    }

    /// Turns the bytes after a head into the body.
    ///
    /// # Errors
    /// [`LinkError::Forged`].
    pub fn open(&mut self, frame: &mut Vec<u8>) -> Result<(), LinkError> {
        let body = frame.len().checked_sub(TAG_BYTES).ok_or(LinkError::Length)?;
        let head = u32::try_from(frame.len()).map_err(|_| LinkError::Length)?.to_be_bytes();
        let tag = Tag::clone_from_slice(&frame[body..]);
        frame.truncate(body);
        let nonce = self.0.nonce();
        let opened = self.0.cipher.decrypt_in_place_detached(&nonce, &head, frame, &tag);
        opened.map_err(|_| LinkError::Forged)
    }
}
