//! Signatures with the keys of certificates, and the certificates that signatures carry.
//!
//! A signature names its scheme as TLS 1.3 does and carries the chain of its signer, so that it
//! verifies also when the signer is gone. Verified chains are remembered. Not responsible for: what
//! is signed, and what a host may say.

use parking_lot::Mutex;
use rustls::SignatureScheme;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::sign::SigningKey;
use sha2::{Digest as _, Sha256};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};
use webpki::EndEntityCert;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The accepted schemes, most wanted first.
const SCHEMES: [SignatureScheme; 4] = [
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ED25519,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::RSA_PSS_SHA256,
];
/// How they are verified.
static ALGORITHMS: LazyLock<WebPkiSupportedAlgorithms> =
    LazyLock::new(|| rustls::crypto::ring::default_provider().signature_verification_algorithms);
/// Most certificates of a signature, without the CA that agents know.
pub const CHAIN_MAX: usize = 4;
/// Most bytes of these certificates.
pub const CHAIN_BYTES_MAX: usize = 6 * 1024;
/// Verified chains that are remembered: beyond, all are forgotten and verified again.
const CHAINS_KEPT_MAX: usize = 65_536;
/// The same for signatures.
const SIGNATURES_KEPT_MAX: usize = 16_384;

/// A signature as it came.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// The scheme, as TLS 1.3 numbers it.
    pub scheme: u16,
    /// The certificates (DER), the signer's first.
    pub chain: &'a [&'a [u8]],
    /// What is signed.
    pub message: &'a [u8],
    /// The signature.
    pub signature: &'a [u8],
}

/// Why a signature does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// No certificate, or a scheme that is not accepted.
    #[error("its certificate or scheme is none that agents accept")]
    Form,
    /// The certificate does not verify.
    #[error("the certificate of its signer does not verify: {0}")]
    Chain(String),
    /// It is of another host.
    #[error("its signer is {theirs}")]
    Host {
        /// The hosts that the certificate names.
        theirs: String,
    },
    /// The key has not signed this.
    #[error("the key of its signer has not signed this")]
    Signature,
    /// This agent cannot sign.
    #[error("it cannot sign events: {0}")]
    Unfit(String),
}

impl Signed<'_> {
    /// Checks the signature only.
    fn verify(&self) -> Result<(), SignatureError> {
        let own = CertificateDer::from(*self.chain.first().ok_or(SignatureError::Form)?);
        let cert = EndEntityCert::try_from(&own).map_err(|_| SignatureError::Form)?;
        let scheme = SignatureScheme::from(self.scheme);
        if !SCHEMES.contains(&scheme) {
            return Err(SignatureError::Form);
        }
        let algorithm = ALGORITHMS.mapping.iter().find(|(named, _)| *named == scheme);
        let algorithm = algorithm.and_then(|(_, all)| all.first()).ok_or(SignatureError::Form)?;
        let verified = cert.verify_signature(*algorithm, self.message, self.signature);
        verified.map_err(|_| SignatureError::Signature)
    }
}

/// Signs with the key of this agent.
#[derive(Debug)]
pub struct Signer {
    signer: Box<dyn rustls::sign::Signer>,
    chain: Vec<CertificateDer<'static>>,
}

impl Signer {
    pub(super) fn new(
        key: &dyn SigningKey,
        chain: &[CertificateDer<'static>],
    ) -> Result<Self, SignatureError> {
        let unfit = |why: &str| SignatureError::Unfit(why.to_owned());
        let signer = key.choose_scheme(&SCHEMES).ok_or_else(|| {
            unfit("the key must be ECDSA (P-256, P-384), Ed25519 or RSA: make a new one")
        })?;
        // Verifiers have the CA.
        let is_root = |cert: &CertificateDer<'_>| match X509Certificate::from_der(cert) {
            Ok((_, cert)) => cert.subject().as_raw() == cert.issuer().as_raw(),
            Err(_) => false,
        };
        let mut all = chain.iter();
        let own = all.next().cloned();
        let above = all.filter(|cert| !is_root(cert)).cloned();
        let chain: Vec<CertificateDer<'static>> = own.into_iter().chain(above).collect();
        let bytes: usize = chain.iter().map(|cert| cert.len()).sum();
        if chain.len() > CHAIN_MAX || bytes > CHAIN_BYTES_MAX {
            return Err(unfit("its certificates have more than 6 KiB, or are more than 4"));
        }
        Ok(Self { signer, chain })
    }

    /// The scheme, as TLS 1.3 numbers it.
    pub fn scheme(&self) -> u16 {
        self.signer.scheme().into()
    }

    /// The certificates (DER), its own first.
    pub fn chain(&self) -> impl Iterator<Item = &[u8]> {
        self.chain.iter().map(|cert| &**cert)
    }

    /// Signs a message.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignatureError> {
        self.signer.sign(message).map_err(|error| SignatureError::Unfit(error.to_string()))
    }
}

/// A chain that has verified.
struct KnownSigner {
    hosts: Vec<String>,
    /// All its certificates are valid in these Unix seconds.
    valid_s: (u64, u64),
}

type Hash = [u8; 32];

/// What has verified since the certificates of this agent were read.
#[derive(Default)]
pub(super) struct Signers {
    chains: Mutex<HashMap<Hash, Arc<KnownSigner>>>,
    /// Signatures with chain and message.
    signatures: Mutex<HashSet<Hash>>,
}

impl Signers {
    /// Checks a signature; `verify` checks a chain at a time and gives the hosts that it names.
    pub(super) fn check(
        &self,
        signed: &Signed<'_>,
        host: &str,
        at: Option<UnixTime>,
        verify: impl Fn(&[CertificateDer<'_>], UnixTime) -> Result<Vec<String>, SignatureError>,
    ) -> Result<(), SignatureError> {
        let chain = hash(signed.chain);
        let known = self.known(chain, signed.chain, at, verify)?;
        if !known.hosts.iter().any(|name| name.eq_ignore_ascii_case(host)) {
            return Err(SignatureError::Host { theirs: super::names::in_words(&known.hosts) });
        }
        let all: [&[u8]; 4] =
            [&chain, &signed.scheme.to_be_bytes(), signed.message, signed.signature];
        let signature = hash(&all);
        if self.signatures.lock().contains(&signature) {
            return Ok(());
        }
        signed.verify()?;
        let mut kept = self.signatures.lock();
        if kept.len() >= SIGNATURES_KEPT_MAX {
            kept.clear();
        }
        kept.insert(signature);
        Ok(())
    }

    fn known(
        &self,
        key: Hash,
        chain: &[&[u8]],
        at: Option<UnixTime>,
        verify: impl Fn(&[CertificateDer<'_>], UnixTime) -> Result<Vec<String>, SignatureError>,
    ) -> Result<Arc<KnownSigner>, SignatureError> {
        if chain.is_empty() || chain.len() > CHAIN_MAX {
            return Err(SignatureError::Form);
        }
        let now = UnixTime::now();
        let wanted = |valid_s: (u64, u64)| match at {
            Some(at) if (valid_s.0..=valid_s.1).contains(&at.as_secs()) => at,
            _ => now,
        };
        let known = self.chains.lock().get(&key).cloned();
        if let Some(known) = known {
            let at_s = wanted(known.valid_s).as_secs();
            if (known.valid_s.0..=known.valid_s.1).contains(&at_s) {
                return Ok(known);
            }
        }
        let valid_s = validity(chain).ok_or(SignatureError::Form)?;
        let at = wanted(valid_s);
        let certs: Vec<CertificateDer<'_>> =
            chain.iter().map(|cert| CertificateDer::from(*cert)).collect();
        let hosts = verify(&certs, at)?;
        let known = Arc::new(KnownSigner { hosts, valid_s });
        let mut kept = self.chains.lock();
        if kept.len() >= CHAINS_KEPT_MAX {
            kept.clear();
        }
        kept.insert(key, Arc::clone(&known));
        Ok(known)
    }
}

/// A hash over parts and their lengths.
fn hash(parts: &[&[u8]]) -> Hash {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// When all certificates of a chain are valid, in Unix seconds.
fn validity(chain: &[&[u8]]) -> Option<(u64, u64)> {
    chain.iter().try_fold((0, u64::MAX), |(from, until), cert| {
        let (_, cert) = X509Certificate::from_der(cert).ok()?;
        let validity = cert.validity();
        let seconds = |time: i64| u64::try_from(time).unwrap_or(0);
        let (begins, ends) =
            (seconds(validity.not_before.timestamp()), seconds(validity.not_after.timestamp()));
        Some((from.max(begins), until.min(ends)))
    })
}
