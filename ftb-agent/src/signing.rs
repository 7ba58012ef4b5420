//! Signs events that move jobs with the key of this host, and verifies those of other hosts.
//!
//! Such events are those of protected event spaces, and all that state a condition. Rules: see
//! docs/protocol.md, "Signatures". Not responsible for: keys and certificates (`ftb-transport`),
//! the field in the envelope (`ftb-proto`), and what an event leads to.

pub mod tree;

use crate::access::Access;
use arc_swap::ArcSwap;
use bytes::Bytes;
use ftb_core::condition::Truth;
use ftb_core::frame::{Frame, UpItem};
use ftb_core::numbers::LogIndex;
use ftb_core::sealed::SealedRef;
use ftb_core::{Run, Sealed};
use ftb_proto::event::EventWireError;
use ftb_proto::event::signature::{
    PATH_MAX, signature_of, signed_parts, with_signature, without_condition,
};
use ftb_proto::v1::Signature;
use ftb_transport::peer_errors::PeerErrors;
use ftb_transport::tls::Tls;
use ftb_transport::tls::signature::{SignatureError, Signed};
use rustls::pki_types::UnixTime;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tree::{Hash, HashTree};

/// Most events that share a signature.
const TOGETHER_MAX: usize = 1 << PATH_MAX;
/// What a key of a certificate signs here, and nowhere else.
const PURPOSE: &[u8] = b"ftb event signature 1\0";

/// Signs and verifies for one agent. Without certificates it does neither.
pub struct Signing {
    tls: Option<Arc<Tls>>,
    cluster: String,
    access: Arc<ArcSwap<Access>>,
    errors: Arc<PeerErrors>,
    is_required: AtomicBool,
}

/// Why an event proves nothing.
#[derive(Debug, thiserror::Error)]
enum Unproven {
    /// It has no signature.
    #[error("it has no signature")]
    Missing,
    /// The signature is malformed.
    #[error(transparent)]
    Malformed(#[from] EventWireError),
    /// The signature does not verify.
    #[error(transparent)]
    Bad(#[from] SignatureError),
    /// It states a condition of another host, where only agents of protected spaces may.
    #[error("it states a condition of {0}")]
    OtherHost(String),
}

impl Unproven {
    /// Its counter.
    fn kind(&self) -> &'static str {
        match self {
            Self::Missing => "signatures_missing",
            Self::Malformed(_) | Self::Bad(_) => "signatures_bad",
            Self::OtherHost(_) => "conditions_foreign",
        }
    }
}

impl Signing {
    /// With the certificates and access rules of an agent.
    pub fn new(
        tls: Option<Arc<Tls>>,
        cluster: &str,
        access: Arc<ArcSwap<Access>>,
        errors: Arc<PeerErrors>,
        is_required: bool,
    ) -> Self {
        let is_required = AtomicBool::new(is_required);
        Self { tls, cluster: cluster.to_owned(), access, errors, is_required }
    }

    /// Whether an event without a valid signature moves no job.
    pub fn is_required(&self) -> bool {
        self.tls.is_some() && self.is_required.load(Ordering::Relaxed)
    }

    /// Follows a changed configuration.
    pub fn require(&self, is_required: bool) {
        self.is_required.store(is_required, Ordering::Relaxed);
    }

    /// Signs the events that move jobs, in groups. The largest events have no room for a signature.
    pub fn sign(&self, events: Run) -> Run {
        let Some(tls) = &self.tls else { return events };
        let access = self.access.load();
        let moves = |event: SealedRef<'_>| moves_jobs(&access, event);
        if !events.groups().any(|(_, event)| moves(event)) {
            return events;
        }
        let mut all: Vec<Sealed> = events.iter().map(SealedRef::to_sealed).collect();
        let mut wanted: Vec<&mut Sealed> =
            all.iter_mut().filter(|event| moves(event.as_ref())).collect();
        for group in wanted.chunks_mut(TOGETHER_MAX) {
            if let Err(error) = self.sign_group(tls, group) {
                self.errors.count("signing_failed", "this agent", &error.to_string());
            }
        }
        match <[Sealed; 1]>::try_from(all) {
            Ok([event]) => event.into(),
            Err(all) => Run::collect(all.iter().map(Sealed::as_ref)).unwrap_or(events),
        }
    }

    fn sign_group(&self, tls: &Tls, group: &mut [&mut Sealed]) -> Result<(), SignatureError> {
        let leaves = group.iter().map(|event| leaf_of(event.bytes()));
        let leaves: Result<Vec<Hash>, EventWireError> = leaves.collect();
        let tree =
            HashTree::over(leaves.map_err(|error| SignatureError::Unfit(error.to_string()))?);
        let signer = tls.signer();
        let signature = Signature {
            scheme: signer.scheme().into(),
            signature: signer.sign(&self.statement(&tree.root()))?.into(),
            chain: signer.chain().map(Bytes::copy_from_slice).collect(),
            ..Signature::default()
        };
        for (place, event) in group.iter_mut().enumerate() {
            let path = tree.path(place).iter().map(|hash| Bytes::copy_from_slice(hash)).collect();
            let signature = Signature { place: place as u32, path, ..signature.clone() };
            match with_signature(event.as_ref(), &signature) {
                Some(signed) => **event = signed,
                None => self.errors.count_quietly("unsigned_large"),
            }
        }
        Ok(())
    }

    /// What is signed: the root of a tree of events of this cluster.
    fn statement(&self, root: &Hash) -> Vec<u8> {
        let len = u32::try_from(self.cluster.len()).unwrap_or(u32::MAX).to_be_bytes();
        [PURPOSE, &len, self.cluster.as_bytes(), root].concat()
    }

    /// The places of events that move jobs and have a valid signature of their host, through all
    /// items.
    pub fn verified(&self, items: &[(LogIndex, Run)]) -> Vec<u32> {
        let (mut verified, mut before) = (Vec::new(), 0);
        let Some(tls) = &self.tls else { return verified };
        let access = self.access.load();
        for (_, run) in items {
            for (places, first) in run.groups() {
                if !moves_jobs(&access, first) || first.group().is_some() {
                    continue;
                }
                for place in places {
                    let Some(event) = run.get(place) else { continue };
                    let stated = UnixTime::since_unix_epoch(Duration::from_nanos(event.time_ns()));
                    match self.check(tls, event, Some(stated)) {
                        Ok(()) => verified.push(before + place as u32),
                        Err(unproven) => self.errors.count_quietly(unproven.kind()),
                    }
                }
            }
            before += run.count() as u32;
        }
        verified
    }

    /// Removes what no signature proves from a frame of another agent: conditions of events on
    /// their way up. The events stay.
    pub fn admit(&self, frame: Frame, peer: &str) -> Frame {
        let Frame::Up(mut batch) = frame else { return frame };
        for item in &mut batch.items {
            if let UpItem::Events(run) = item
                && let Some(rest) = self.without_unproven(run, peer)
            {
                *run = rest;
            }
        }
        Frame::Up(batch)
    }

    /// `None`: all conditions of these events are proven.
    fn without_unproven(&self, run: &Run, peer: &str) -> Option<Run> {
        let tls = self.tls.as_ref()?;
        run.groups().any(|(_, event)| event.condition().is_some()).then_some(())?;
        let access = self.access.load();
        let mut is_changed = false;
        let mut admit = |event: SealedRef<'_>| {
            let unproven = self.check_condition(tls, &access, event).err();
            let Some(unproven) = unproven else { return event.to_sealed() };
            is_changed = true;
            let (name, host) = (event.name(), event.host());
            let text = format!("the condition of {name} of {host} does not count: {unproven}");
            self.errors.count(unproven.kind(), peer, &text);
            // A checked event can be taken apart.
            without_condition(event).unwrap_or_else(|_| event.to_sealed())
        };
        let events: Vec<Sealed> = run.iter().map(&mut admit).collect();
        is_changed.then(|| Run::collect(events.iter().map(Sealed::as_ref)))?
    }

    /// Whether the condition of an event that arrives counts.
    fn check_condition(
        &self,
        tls: &Tls,
        access: &Access,
        event: SealedRef<'_>,
    ) -> Result<(), Unproven> {
        let Some(condition) = event.condition() else { return Ok(()) };
        match self.check(tls, event, None) {
            Err(Unproven::Missing) if !self.is_required() => return Ok(()),
            checked => checked?,
        }
        // Any agent may find that the publisher of a statement is lost.
        let is_own = condition.host().eq_ignore_ascii_case(event.host());
        let may_speak = is_own || condition.head().truth == Truth::Unknown;
        match may_speak || access.is_protected(event.space().as_bytes()) {
            true => Ok(()),
            false => Err(Unproven::OtherHost(condition.host().to_owned())),
        }
    }

    /// Whether the key of an event's host has signed it.
    fn check(&self, tls: &Tls, event: SealedRef<'_>, at: Option<UnixTime>) -> Result<(), Unproven> {
        let signature = signature_of(event.bytes())?.ok_or(Unproven::Missing)?;
        let hash = |hash: &Bytes| Hash::try_from(&hash[..]).unwrap_or_default();
        let path: Vec<Hash> = signature.path.iter().map(hash).collect();
        let root = tree::root_of(leaf_of(event.bytes())?, signature.place, path.iter());
        let chain: Vec<&[u8]> = signature.chain.iter().map(|cert| &cert[..]).collect();
        let signed = Signed {
            scheme: u16::try_from(signature.scheme).unwrap_or_default(),
            chain: &chain,
            message: &self.statement(&root),
            signature: &signature.signature,
        };
        Ok(tls.check_signature(&signed, event.host(), at)?)
    }
}

fn leaf_of(event: &[u8]) -> Result<Hash, EventWireError> {
    Ok(tree::leaf(&signed_parts(event)?))
}

fn moves_jobs(access: &Access, event: SealedRef<'_>) -> bool {
    event.condition().is_some() || access.is_protected(event.space().as_bytes())
}
