//! Seals the secrets in a job's events, which every user may read: only the launcher and the launch
//! agents have the key.
//!
//! The payload of a sealed event ([`SEALED`]) is a version byte, a random nonce of 24 bytes, and
//! the ciphertext of XChaCha20-Poly1305 with its tag of 16 bytes. Encrypted are the payload and the
//! tags of `SECRET_TAGS`: lines `KEY=VALUE`, an empty line, the payload. Associated data are
//! version, job, space, name and all other tags, so a sealed payload is valid in its own event
//! only. The key is HMAC-SHA256 of `LABEL` under the job's secret. Random nonces of 192 bits do not
//! repeat, even with a second launcher.

use super::secret::Secret;
use bytes::Bytes;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use ftb_core::{Event, Tag};

/// Sealed events: they contain tokens and addresses.
pub const SEALED: [&str; 5] =
    ["FTB_JL_ALIVE", "FTB_JL_COPY", "FTB_JL_PMI", "FTB_NLA_PMI", "FTB_NLA_READY"];
/// Tags that are encrypted with the payload.
const SECRET_TAGS: [&str; 2] = ["images", "streams"];
const VERSION: u8 = 1;
const NONCE_BYTES: usize = 24;
/// Purpose of the derived key.
const LABEL: &str = "ftb events of a job, version 1";

/// The payload was not sealed with the job's key, or for another event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the payload does not carry the key of the job")]
pub struct Unsealed;

/// Seals and opens the events of one job.
#[derive(Clone)]
pub struct Seal {
    job: String,
    cipher: XChaCha20Poly1305,
}

impl core::fmt::Debug for Seal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Seal(..)")
    }
}

fn is_sealed(event: &Event) -> bool {
    SEALED.iter().any(|name| event.name.as_str().eq_ignore_ascii_case(name))
}

impl Seal {
    pub fn new(job: &str, secret: &Secret) -> Self {
        let key = secret.derive(LABEL);
        Self { job: job.to_owned(), cipher: XChaCha20Poly1305::new(&key.into()) }
    }

    /// Seals an event if its name requires it.
    ///
    /// # Errors
    /// The system has no random numbers; the event must not be published.
    pub fn seal(&self, event: &mut Event) -> Result<(), String> {
        if !is_sealed(event) {
            return Ok(());
        }
        let mut nonce = [0_u8; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|error| format!("no randomness: {error}"))?;
        let (secret, open) = core::mem::take(&mut event.tags).into_iter().partition(is_secret);
        event.tags = open;
        let plain = joined(secret, &event.payload);
        let bound = self.bound(event);
        let payload = Payload { msg: &plain, aad: &bound };
        let sealed = self.cipher.encrypt(XNonce::from_slice(&nonce), payload);
        let sealed = sealed.map_err(|_| format!("{} is too long to be sealed", event.name))?;
        event.payload = [&[VERSION], &nonce[..], &sealed].concat().into();
        Ok(())
    }

    /// Opens a sealed event; other events stay unchanged.
    ///
    /// # Errors
    /// [`Unsealed`]; the event must be ignored.
    pub fn open(&self, event: &mut Event) -> Result<(), Unsealed> {
        if !is_sealed(event) {
            return Ok(());
        }
        let (version, rest) = event.payload.split_first().ok_or(Unsealed)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_BYTES).ok_or(Unsealed)?;
        if *version != VERSION || event.tags.iter().any(is_secret) {
            return Err(Unsealed);
        }
        let payload = Payload { msg: sealed, aad: &self.bound(event) };
        let plain = self.cipher.decrypt(XNonce::from_slice(nonce), payload);
        let (tags, payload) = parted(plain.map_err(|_| Unsealed)?).ok_or(Unsealed)?;
        event.tags.extend(tags);
        event.payload = payload;
        Ok(())
    }

    /// The associated data: each part after its length.
    fn bound(&self, event: &Event) -> Vec<u8> {
        let head = [self.job.as_str(), event.space.as_str(), event.name.as_str()];
        let tags = event.tags.iter().flat_map(|tag| [tag.key.as_str(), tag.value.as_str()]);
        let mut bound = vec![VERSION];
        for part in head.into_iter().chain(tags) {
            bound.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bound.extend_from_slice(part.to_ascii_lowercase().as_bytes());
        }
        bound
    }
}

fn is_secret(tag: &Tag) -> bool {
    SECRET_TAGS.contains(&tag.key.as_str())
}

/// Tags and payload as one text.
fn joined(tags: Vec<Tag>, payload: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(payload.len() + 64);
    for tag in tags {
        // A newline would end the tag early. Addresses have none.
        let value = tag.value.replace('\n', " ");
        plain.extend_from_slice(format!("{}={value}\n", tag.key).as_bytes());
    }
    plain.push(b'\n');
    plain.extend_from_slice(payload);
    plain
}

/// The inverse of [`joined`].
fn parted(plain: Vec<u8>) -> Option<(Vec<Tag>, Bytes)> {
    let mut rest = Bytes::from(plain);
    let mut tags = Vec::new();
    loop {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let line = rest.split_to(end);
        let _newline = rest.split_to(1);
        if line.is_empty() {
            return Some((tags, rest));
        }
        let (key, value) = core::str::from_utf8(&line).ok()?.split_once('=')?;
        tags.push(Tag { key: key.to_owned(), value: value.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ftb_launcher_core::message::{FromJl, FromNla, NlaSays, Part};
    use ftb_launcher_core::names::{Episode, NodeName, Ranks};
    use ftb_launcher_core::nla::MigrationState;
    use ftb_launcher_core::wire;

    const CARD: &str = "addr-1-0=node=node01;token=5ec2e7;tcp=10.0.0.7:4711\n";

    fn seal(job: &str, secret: &str) -> Seal {
        Seal::new(job, &Secret::new(secret))
    }

    fn pmi(barrier: u64, rank: u32) -> Event {
        let part = Part { barrier, part: 0, parts: 1, lines: CARD.to_owned() };
        let ranks = Ranks::from_iter([rank]);
        let joined = Ranks::default();
        let message = FromNla::Pmi { episode: Episode(1), ranks, joined, part };
        wire::to_nla(&NlaSays { node: NodeName::new("node01").unwrap(), message })
    }

    fn has(event: &Event, secret: &str) -> bool {
        let payload = String::from_utf8_lossy(&event.payload);
        payload.contains(secret) || event.tags.iter().any(|tag| tag.value.contains(secret))
    }

    #[test]
    fn a_sealed_event_shows_no_secret_and_opens_as_it_was() {
        let node = NodeName::new("node01").unwrap();
        let (images, ranks) = ("10.0.0.7:4712".to_owned(), Ranks::default());
        let (state, none) = (MigrationState::Ready, Ranks::default());
        let ready = FromNla::Ready { state, images, ranks, pmi: none.clone(), joined: none };
        let ready = wire::to_nla(&NlaSays { node, message: ready });
        let alive = wire::with_streams(wire::to_jl(&FromJl::Alive), "10.0.0.7:4713");
        for (event, secret) in [(pmi(1, 0), "5ec2e7"), (ready, "10.0.0.7"), (alive, "10.0.0.7")] {
            let mut sealed = event.clone();
            assert!(has(&sealed, secret));
            seal("job", "key").seal(&mut sealed).unwrap();
            assert!(!has(&sealed, secret), "{sealed:?}");
            let mut opened = sealed.clone();
            seal("job", "key").open(&mut opened).unwrap();
            assert_eq!(opened.payload, event.payload);
            for tag in &event.tags {
                assert_eq!(opened.tag(&tag.key), Some(tag.value.as_str()));
            }
            let mut again = event.clone();
            seal("job", "key").seal(&mut again).unwrap();
            assert!(again.payload != sealed.payload, "each nonce is new");
        }
    }

    #[test]
    fn a_sealed_payload_is_good_in_its_own_event_only() {
        let own = seal("job", "key");
        let mut sealed = pmi(1, 0);
        own.seal(&mut sealed).unwrap();
        for other in [pmi(2, 0), pmi(1, 1)] {
            let mut moved = Event { payload: sealed.payload.clone(), ..other };
            assert_eq!(own.open(&mut moved), Err(Unsealed));
        }
        for other in [seal("job", "other"), seal("other", "key")] {
            assert_eq!(other.open(&mut sealed.clone()), Err(Unsealed));
        }
        for at in [0, 1, 30, sealed.payload.len() - 1] {
            let mut bytes = sealed.payload.to_vec();
            bytes[at] ^= 1;
            let mut bad = Event { payload: bytes.into(), ..sealed.clone() };
            assert_eq!(own.open(&mut bad), Err(Unsealed), "byte {at}");
        }
        for length in [0, 1, 24, 25, 40] {
            let payload = sealed.payload.slice(..length);
            assert_eq!(own.open(&mut Event { payload, ..sealed.clone() }), Err(Unsealed));
        }
        assert_eq!(own.open(&mut pmi(1, 0)), Err(Unsealed), "in the clear");
        own.open(&mut sealed).unwrap();
    }

    #[test]
    fn events_without_secrets_stay_readable() {
        let event = wire::to_jl(&FromJl::Ask);
        let mut same = event.clone();
        seal("job", "key").seal(&mut same).unwrap();
        assert_eq!(same, event);
        seal("job", "key").open(&mut same).unwrap();
        assert_eq!(same, event);
    }
}
