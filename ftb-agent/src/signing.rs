//! Signs events that move jobs with the key of this host, and verifies those of other hosts.
//!
//! Such events are those of protected event spaces, and all that state a condition. Rules: see
//! docs/protocol.md, "Signatures". Not responsible for: keys and certificates (`ftb-transport`),
//! the field in the envelope (`ftb-proto`), and what an event leads to.

pub mod tree;

use crate::access::Access;
use crate::host_lists::Monitors;
use arc_swap::ArcSwap;
use bytes::Bytes;
use ftb_core::condition::pairs::ConditionPairs;
use ftb_core::condition::{
    AGENT_SPACE, EVENT_NAME, PUBLISHER_HOST, PUBLISHER_UID, Provenance, Truth,
};
use ftb_core::frame::{Content, Frame, UpItem};
use ftb_core::numbers::LogIndex;
use ftb_core::sealed::{ConditionRef, SealedRef};
use ftb_core::space::lies_in;
use ftb_core::trace::TrustReport;
use ftb_core::{EventId, Position, PublisherId, Run, Sealed};
use ftb_proto::event::signature::{
    PATH_MAX, signature_of, signed_parts, with_signature, without_condition,
};
use ftb_proto::event::{EventWireError, unseal};
use ftb_proto::v1::Signature;
use ftb_transport::peer_errors::PeerErrors;
use ftb_transport::tls::Tls;
use ftb_transport::tls::signature::{SignatureError, Signed};
use rustls::pki_types::UnixTime;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tree::{Hash, HashTree};

/// Most events that share a signature.
const TOGETHER_MAX: usize = 1 << PATH_MAX;
/// What a key of a certificate signs here, and nowhere else.
const PURPOSE: &[u8] = b"ftb event signature 1\0";

/// What the configuration demands of events that move jobs.
#[derive(Clone, Debug, Default)]
pub struct Demands {
    /// An event without a valid signature moves no job.
    pub is_required: bool,
    /// The hosts whose programs may state conditions of other hosts in protected event spaces;
    /// `None`: those of any host.
    pub monitors: Option<Monitors>,
}

impl Demands {
    fn report(&self) -> TrustReport {
        let monitors_digest = self.monitors.as_ref().map_or(0, Monitors::digest);
        TrustReport { monitors_digest, ..TrustReport::default() }
    }
}

/// Signs and verifies for one agent. Without certificates it does neither.
pub struct Signing {
    tls: Option<Arc<Tls>>,
    cluster: String,
    access: Arc<ArcSwap<Access>>,
    errors: Arc<PeerErrors>,
    demands: ArcSwap<Demands>,
    /// The keys of the conditions that agents state of each other.
    verdicts: Vec<String>,
    /// What the reports of this agent say of it.
    report: watch::Sender<TrustReport>,
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
    /// It states a condition of another host, and its host may not.
    #[error("it states a condition of {0}, and its host is not in `monitors` of agent.toml")]
    OtherHost(String),
    /// It repeats or replaces a statement as no agent does.
    #[error("it repeats a statement that no publisher of its host has made")]
    OtherPublisher,
}

impl Unproven {
    /// Its counter.
    fn kind(&self) -> &'static str {
        match self {
            Self::Missing => "signatures_missing",
            Self::Malformed(_) | Self::Bad(_) => "signatures_bad",
            Self::OtherHost(_) | Self::OtherPublisher => "conditions_foreign",
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
        demands: Demands,
    ) -> Self {
        let pairs = ConditionPairs::built_in();
        let of_agents = pairs.all().iter().filter(|pair| pair.space.as_str() == AGENT_SPACE);
        let verdicts = of_agents.map(|pair| pair.key.as_str().to_owned()).collect();
        let report = watch::Sender::new(demands.report());
        let demands = ArcSwap::from_pointee(demands);
        Self { tls, cluster: cluster.to_owned(), access, errors, demands, verdicts, report }
    }

    /// What it demands and has found, as it changes; `None` without certificates.
    pub fn reports(&self) -> Option<watch::Receiver<TrustReport>> {
        self.tls.as_ref().map(|_| self.report.subscribe())
    }

    /// What it demands now.
    pub fn demands(&self) -> Arc<Demands> {
        self.demands.load_full()
    }

    /// Whether an event without a valid signature moves no job.
    pub fn is_required(&self) -> bool {
        self.requires_signatures(&self.demands.load())
    }

    /// The same by these demands.
    pub fn requires_signatures(&self, demands: &Demands) -> bool {
        self.tls.is_some() && demands.is_required
    }

    /// Whether programs of a host may state conditions of that host alone: `monitors` does not name
    /// it.
    pub fn is_own_host_only(&self, host: &str) -> bool {
        let demands = self.demands.load();
        let is_left_out = |monitors: &Monitors| !monitors.contains(host);
        self.tls.is_some() && demands.monitors.as_ref().is_some_and(is_left_out)
    }

    /// Follows a changed configuration.
    pub fn demand(&self, demands: Demands) {
        let monitors_digest = demands.report().monitors_digest;
        self.demands.store(Arc::new(demands));
        self.report.send_modify(|report| report.monitors_digest = monitors_digest);
    }

    /// A condition is not delivered.
    fn note_unproven(&self, event: SealedRef<'_>) {
        self.report.send_modify(|report| {
            report.unproven += 1;
            event.host().clone_into(&mut report.unproven_host);
        });
    }

    /// The events of programs of this host, without conditions of which these may not speak. Other
    /// agents remove them too; but the log of an acting root and the copy of its standby also hold
    /// what their own programs publish, and must be alike.
    pub fn of_own_programs(&self, events: Run) -> Run {
        if self.tls.is_none() {
            return events;
        }
        let (access, demands) = (self.access.load(), self.demands.load());
        let foreign = |event: SealedRef<'_>| {
            let condition = event.condition()?;
            if self.may_speak(&access, &demands, event, condition) {
                return None;
            }
            Some(condition.host().to_owned())
        };
        if !events.groups().any(|(_, event)| foreign(event).is_some()) {
            return events;
        }
        let own = |event: SealedRef<'_>| {
            let Some(host) = foreign(event) else { return event.to_sealed() };
            let unproven = Unproven::OtherHost(host);
            let text = format!("the condition of {} does not count: {unproven}", event.name());
            self.errors.count(unproven.kind(), "this agent", &text);
            stripped(event)
        };
        let all: Vec<Sealed> = events.iter().map(own).collect();
        Run::collect(all.iter().map(Sealed::as_ref)).unwrap_or(events)
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
                None => {
                    self.errors.count_quietly("unsigned_large");
                    let is_unsigned = matches!(signature_of(event.bytes()), Ok(None));
                    if is_unsigned && self.is_required() {
                        **event = stripped(event.as_ref());
                    }
                }
            }
        }
        Ok(())
    }

    /// What is signed: the root of a tree of events of this cluster.
    fn statement(&self, root: &Hash) -> Vec<u8> {
        let len = u32::try_from(self.cluster.len()).unwrap_or(u32::MAX).to_be_bytes();
        [PURPOSE, &len, self.cluster.as_bytes(), root].concat()
    }

    /// What a client gets of its deliveries, and the places, through all items, of events that move
    /// jobs and have a valid signature of their host. A condition that no signature proves is
    /// removed; the event stays. Agents between may have invented or changed it.
    pub fn prove(
        &self,
        demands: &Demands,
        items: Vec<(LogIndex, Run)>,
    ) -> (Vec<(LogIndex, Run)>, Vec<u32>) {
        let (mut verified, mut before) = (Vec::new(), 0);
        let Some(tls) = &self.tls else { return (items, verified) };
        let access = self.access.load();
        let proven = items.into_iter().map(|(first, run)| {
            let (places, unproven) = self.prove_run(tls, (&access, demands), &run);
            verified.extend(places.into_iter().map(|place| before + place as u32));
            before += run.count() as u32;
            match unproven.is_empty() {
                true => (first, run),
                false => (first, without_conditions(run, &unproven)),
            }
        });
        (proven.collect(), verified)
    }

    /// The places of verified events, and of those whose condition does not count.
    fn prove_run(
        &self,
        tls: &Tls,
        (access, demands): (&Access, &Demands),
        run: &Run,
    ) -> (Vec<usize>, Vec<usize>) {
        let (mut verified, mut unproven) = (Vec::new(), Vec::new());
        for (places, first) in run.groups() {
            let states = first.condition().is_some();
            // No host signs the fold of a group.
            if !moves_jobs(access, first) || first.group().is_some() && !states {
                continue;
            }
            for place in places {
                let Some(event) = run.get(place) else { continue };
                let checked = self.check(tls, event, Some(time_of(event)));
                let is_signed = checked.is_ok();
                if let Err(why) = &checked {
                    self.errors.count_quietly(why.kind());
                }
                match self.weigh_condition(access, demands, event, checked) {
                    Ok(()) if is_signed => verified.push(place),
                    Ok(()) => {}
                    Err(why) => {
                        let text = format!("no subscriber gets the condition of {}", event.name());
                        let text = format!("{text}: {why}");
                        self.errors.count("conditions_unproven", event.host(), &text);
                        self.note_unproven(event);
                        unproven.push(place);
                    }
                }
            }
        }
        (verified, unproven)
    }

    /// Removes what no signature proves from a frame of another agent: conditions of events on
    /// their way up, and of a log, or a part of one, that a child brings. The events stay. Those of
    /// a log were new when it took them: a certificate that has expired since counts, as for who
    /// reads the log.
    pub fn admit(&self, mut frame: Frame, peer: &str, from: Neighbour) -> Frame {
        let is_logged = matches!(frame, Frame::Replicate(_) | Frame::HistoryReply(_));
        for run in brought(&mut frame, from) {
            if let Some(rest) = self.without_unproven(run, peer, is_logged) {
                *run = rest;
            }
        }
        frame
    }

    /// `None`: all conditions of these events are proven.
    fn without_unproven(&self, run: &Run, peer: &str, is_logged: bool) -> Option<Run> {
        let tls = self.tls.as_ref()?;
        run.groups().any(|(_, event)| event.condition().is_some()).then_some(())?;
        let (access, demands) = (self.access.load(), self.demands.load());
        let mut is_changed = false;
        let mut admit = |event: SealedRef<'_>| {
            let at = is_logged.then(|| time_of(event));
            let unproven = self.check_condition(tls, (&access, &demands), event, at).err();
            let Some(unproven) = unproven else { return event.to_sealed() };
            is_changed = true;
            let (name, host) = (event.name(), event.host());
            let text = format!("the condition of {name} of {host} does not count: {unproven}");
            self.errors.count(unproven.kind(), peer, &text);
            stripped(event)
        };
        let events: Vec<Sealed> = run.iter().map(&mut admit).collect();
        is_changed.then(|| Run::collect(events.iter().map(Sealed::as_ref)))?
    }

    /// Whether the condition of an event that arrives counts.
    fn check_condition(
        &self,
        tls: &Tls,
        (access, demands): (&Access, &Demands),
        event: SealedRef<'_>,
        at: Option<UnixTime>,
    ) -> Result<(), Unproven> {
        if event.condition().is_none() {
            return Ok(());
        }
        self.weigh_condition(access, demands, event, self.check(tls, event, at))
    }

    /// The same, with what is known of the signature.
    fn weigh_condition(
        &self,
        access: &Access,
        demands: &Demands,
        event: SealedRef<'_>,
        signature: Result<(), Unproven>,
    ) -> Result<(), Unproven> {
        let Some(condition) = event.condition() else { return Ok(()) };
        check_provenance(event, condition)?;
        match signature {
            // What the host of an event may state does not depend on its signature.
            Err(Unproven::Missing) if !self.requires_signatures(demands) => {}
            checked => checked?,
        }
        match self.may_speak(access, demands, event, condition) {
            true => Ok(()),
            false => Err(Unproven::OtherHost(condition.host().to_owned())),
        }
    }

    /// Whether programs of the host of an event may state its condition.
    fn may_speak(
        &self,
        access: &Access,
        demands: &Demands,
        event: SealedRef<'_>,
        condition: ConditionRef<'_>,
    ) -> bool {
        let space = event.space().as_bytes();
        // Any agent may be acting root, which finds that the publisher of a statement is lost.
        let is_loss = condition.head().provenance.replaces.is_some();
        if is_loss || condition.host().eq_ignore_ascii_case(event.host()) {
            return true;
        }
        // Agents judge each other.
        if lies_in(space, AGENT_SPACE) {
            return self.verdicts.iter().any(|key| key.eq_ignore_ascii_case(condition.key()));
        }
        let is_monitor = |monitors: &Monitors| monitors.contains(event.host());
        access.is_protected(space) && demands.monitors.as_ref().is_none_or(is_monitor)
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

/// The agent at the other end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// It was accepted here: it is a child, or becomes one.
    Below,
    /// It was dialed.
    Above,
}

/// The events that a frame brings from other agents: on their way up, or in a log that a child
/// offers, or in its answer to a request for older events.
pub fn brought(frame: &mut Frame, from: Neighbour) -> impl Iterator<Item = &mut Run> {
    let (up, log) = match frame {
        Frame::Up(batch) => (&mut batch.items[..], &mut [][..]),
        Frame::Replicate(batch) if from == Neighbour::Below => (&mut [][..], &mut batch.items[..]),
        Frame::HistoryReply(part) if from == Neighbour::Below => (&mut [][..], &mut part.items[..]),
        _ => (&mut [][..], &mut [][..]),
    };
    let up = up.iter_mut().filter_map(|item| match item {
        UpItem::Events(run) => Some(run),
        UpItem::Gap(_) | UpItem::Loss(_) | UpItem::Fork { .. } => None,
    });
    up.chain(log.iter_mut().filter_map(|item| match &mut item.content {
        Content::Events(run) => Some(run),
        Content::Gap(_) => None,
    }))
}

/// Whether a statement stands for another one as agents do it. They repeat what publishers of their
/// own host have stated: else a key could make the later statements of any publisher old. And they
/// find that a publisher is lost.
fn check_provenance(event: SealedRef<'_>, condition: ConditionRef<'_>) -> Result<(), Unproven> {
    let Provenance { source, replaces, .. } = condition.head().provenance;
    let is_known = event.name().eq_ignore_ascii_case(EVENT_NAME);
    let is_good = match (source, replaces) {
        (None, None) => true,
        (Some(_), Some(_)) => is_known && condition.head().truth == Truth::Unknown,
        (None, Some(_)) => false,
        (Some(source), None) => is_known && is_of_host(event, source)?,
    };
    if is_good { Ok(()) } else { Err(Unproven::OtherPublisher) }
}

/// Whether a publisher of the host of an event has made the statement that the event repeats.
fn is_of_host(event: SealedRef<'_>, source: EventId) -> Result<bool, Unproven> {
    let repeated = unseal(Position::ZERO, &event.to_sealed())?.event;
    let uid: Option<u32> = repeated.tag(PUBLISHER_UID).and_then(|uid| uid.parse().ok());
    let is_here = |host: &str| host.eq_ignore_ascii_case(event.host());
    let account = uid.map(|uid| PublisherId::account_of(event.host(), uid));
    Ok(account == Some(source.publisher.account)
        && repeated.tag(PUBLISHER_HOST).is_some_and(is_here))
}

/// An event without its condition.
fn stripped(event: SealedRef<'_>) -> Sealed {
    // A checked event can be taken apart.
    without_condition(event).unwrap_or_else(|_| event.to_sealed())
}

/// The same events; those at these places, which rise, without their conditions.
fn without_conditions(run: Run, places: &[usize]) -> Run {
    let events = run.iter().enumerate().map(|(place, event)| match places.binary_search(&place) {
        Ok(_) => stripped(event),
        Err(_) => event.to_sealed(),
    });
    let events: Vec<Sealed> = events.collect();
    Run::collect(events.iter().map(Sealed::as_ref)).unwrap_or(run)
}

/// When an event was published, as it says.
fn time_of(event: SealedRef<'_>) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_nanos(event.time_ns()))
}

fn leaf_of(event: &[u8]) -> Result<Hash, EventWireError> {
    Ok(tree::leaf(&signed_parts(event)?))
}

fn moves_jobs(access: &Access, event: SealedRef<'_>) -> bool {
    event.condition().is_some() || access.is_protected(event.space().as_bytes())
}
