//! Cipher suites 3 and 17 of RMCP+ (IPMI 2.0, sections 13.28 to 13.33): key derivation, integrity
//! and confidentiality. Both encrypt with AES-CBC-128; they differ in the hash. No I/O.

use aes::cipher::block_padding::NoPadding;
use aes::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit};
use hmac::{Hmac, Mac};
use sha1::Sha1;
use sha2::Sha256;

const AES_BLOCK_BYTES: usize = 16;

/// A set of algorithms, by its number in the standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CipherSuite {
    /// RAKP-HMAC-SHA1, HMAC-SHA1-96, AES-CBC-128.
    Three,
    /// RAKP-HMAC-SHA256, HMAC-SHA256-128, AES-CBC-128.
    Seventeen,
}

impl CipherSuite {
    /// Number in the standard.
    pub fn number(self) -> u8 {
        match self {
            Self::Three => 3,
            Self::Seventeen => 17,
        }
    }

    /// Numbers of the authentication, integrity and confidentiality algorithms.
    pub(crate) fn algorithms(self) -> [u8; 3] {
        match self {
            Self::Three => [1, 1, 1],
            Self::Seventeen => [3, 4, 1],
        }
    }

    /// The full authentication code, for the key exchange.
    pub(crate) fn mac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        match self {
            Self::Three => mac_of::<Hmac<Sha1>>(key, parts).finalize().into_bytes().to_vec(),
            Self::Seventeen => mac_of::<Hmac<Sha256>>(key, parts).finalize().into_bytes().to_vec(),
        }
    }

    /// Whether the authentication code starts with `code`, compared in constant time.
    pub(crate) fn verify(self, key: &[u8], parts: &[&[u8]], code: &[u8]) -> bool {
        match self {
            Self::Three => mac_of::<Hmac<Sha1>>(key, parts).verify_truncated_left(code).is_ok(),
            Self::Seventeen => {
                mac_of::<Hmac<Sha256>>(key, parts).verify_truncated_left(code).is_ok()
            }
        }
    }

    /// Bytes of the full authentication code.
    pub(crate) fn mac_bytes(self) -> usize {
        match self {
            Self::Three => 20,
            Self::Seventeen => 32,
        }
    }

    /// Bytes of the integrity code of packets, and of RAKP message 4.
    pub(crate) fn integrity_bytes(self) -> usize {
        match self {
            Self::Three => 12,
            Self::Seventeen => 16,
        }
    }
}

fn mac_of<M: Mac + hmac::digest::KeyInit>(key: &[u8], parts: &[&[u8]]) -> M {
    let mut mac = <M as Mac>::new_from_slice(key).expect("HMAC accepts keys of every length");
    for part in parts {
        mac.update(part);
    }
    mac
}

/// Keys of an open session.
#[derive(Clone)]
pub(crate) struct Keys {
    suite: CipherSuite,
    integrity: Vec<u8>,
    cipher: [u8; AES_BLOCK_BYTES],
}

impl Keys {
    /// From the session integrity key, with the two constants of the standard.
    pub(crate) fn derive(suite: CipherSuite, session_key: &[u8]) -> Self {
        let integrity = suite.mac(session_key, &[&[1; 20]]);
        let second = suite.mac(session_key, &[&[2; 20]]);
        let mut cipher = [0; AES_BLOCK_BYTES];
        cipher.copy_from_slice(&second[..AES_BLOCK_BYTES]);
        Self { suite, integrity, cipher }
    }

    /// Integrity code of a packet.
    pub(crate) fn integrity_code(&self, bytes: &[u8]) -> Vec<u8> {
        let mut code = self.suite.mac(&self.integrity, &[bytes]);
        code.truncate(self.suite.integrity_bytes());
        code
    }

    /// Whether `code` is the integrity code of `bytes`.
    pub(crate) fn is_genuine(&self, bytes: &[u8], code: &[u8]) -> bool {
        code.len() == self.suite.integrity_bytes()
            && self.suite.verify(&self.integrity, &[bytes], code)
    }

    /// Encrypts under `iv`, which must be new. The result starts with `iv`.
    pub(crate) fn encrypt(&self, iv: [u8; AES_BLOCK_BYTES], plain: &[u8]) -> Vec<u8> {
        let mut body = plain.to_vec();
        let pad = (AES_BLOCK_BYTES - (plain.len() + 1) % AES_BLOCK_BYTES) % AES_BLOCK_BYTES;
        body.extend((1..=pad).map(|n| u8::try_from(n).unwrap_or(0)));
        body.push(u8::try_from(pad).unwrap_or(0));
        let cipher = cbc::Encryptor::<aes::Aes128>::new(&self.cipher.into(), &iv.into());
        let mut out = iv.to_vec();
        out.extend(cipher.encrypt_padded_vec_mut::<NoPadding>(&body));
        out
    }

    /// Decrypts; `None` if the size or the padding is wrong.
    pub(crate) fn decrypt(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let (iv, body) = bytes.split_first_chunk::<AES_BLOCK_BYTES>()?;
        let cipher = cbc::Decryptor::<aes::Aes128>::new(&self.cipher.into(), iv.into());
        let mut plain = cipher.decrypt_padded_vec_mut::<NoPadding>(body).ok()?;
        let pad = usize::from(plain.pop()?);
        let end = plain.len().checked_sub(pad)?;
        let is_counted = plain[end..].iter().enumerate().all(|(i, b)| usize::from(*b) == i + 1);
        if pad >= AES_BLOCK_BYTES || !is_counted {
            return None;
        }
        plain.truncate(end);
        Some(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn codes_match_the_published_vectors() {
        // RFC 2202 case 2 and RFC 4231 case 2: key "Jefe".
        let text: &[u8] = b"what do ya want for nothing?";
        let sha1 = CipherSuite::Three.mac(b"Jefe", &[text]);
        assert_eq!(sha1[..4], [0xEF, 0xFC, 0xDF, 0x6A]);
        let sha256 = CipherSuite::Seventeen.mac(b"Jefe", &[&text[..5], &text[5..]]);
        assert_eq!(sha256[..4], [0x5B, 0xDC, 0xC1, 0x46]);
        assert!(CipherSuite::Seventeen.verify(b"Jefe", &[text], &sha256[..16]));
        assert!(!CipherSuite::Three.verify(b"Jefe", &[text], &sha256[..12]));
    }

    proptest! {
        #[test]
        fn decryption_reverses_encryption(
            plain in proptest::collection::vec(any::<u8>(), 0..80),
            iv in any::<[u8; 16]>(),
            seventeen in any::<bool>(),
        ) {
            let suite = if seventeen { CipherSuite::Seventeen } else { CipherSuite::Three };
            let keys = Keys::derive(suite, b"session key");
            let sealed = keys.encrypt(iv, &plain);
            prop_assert_eq!(sealed.len() % 16, 0);
            prop_assert_eq!(keys.decrypt(&sealed), Some(plain));
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let keys = Keys::derive(CipherSuite::Three, b"k");
            let _ = keys.decrypt(&bytes);
            prop_assert!(!keys.is_genuine(&bytes, &[]));
        }
    }
}
