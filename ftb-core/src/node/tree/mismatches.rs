//! What two agents should have in common and do not: another cluster, version, rank or member list,
//! clocks far apart.
//!
//! Responsible for: saying so, once in a while, in events that name both sides. Not responsible
//! for: who is turned away for it ([`crate::node::tree::children`]).

use crate::frame::{Hello, HelloNack, NackCode};
use crate::ident::{OriginId, Rank};
use crate::node::Node;
use crate::node::config::ns;
use crate::severity::Severity;
use std::collections::BTreeMap;

/// Clocks further apart than this are announced: ages of events mean little then.
const CLOCKS_APART_MS_MAX: u64 = 60_000;
/// The shortest time between two announcements about the same thing and host.
const REPEAT_MS: u64 = 600_000;
/// Most announcements that are remembered; one more is only counted.
const REPORTED_MAX: usize = 256;

/// The announcements, and the incarnations that were replaced.
#[derive(Default)]
pub(in crate::node) struct Mismatches {
    /// Name of the event and host, and until when the announcement is not repeated.
    reported: BTreeMap<(&'static str, String), u64>,
    /// Incarnations whose place below us another one has taken.
    replaced: BTreeMap<Rank, OriginId>,
}

impl Node {
    /// An agent was refused.
    pub(in crate::node) fn report_refused(&mut self, hello: &Hello, hello_nack: &HelloNack) {
        if !matches!(hello_nack.code, NackCode::Busy | NackCode::Full) {
            self.report_mismatch("FTB_AGENT_REFUSED", &hello.host, hello_nack.message.clone());
        }
    }

    /// What does not keep two agents apart.
    pub(in crate::node) fn warn_of_mismatches(&mut self, hello: &Hello) {
        let own = self.cx.config.host.clone();
        if hello.members_digest != self.cx.config.members.digest() {
            self.cx.counters.members_differ += 1;
            let why =
                format!("the member lists of {} and {own} differ: give both the same", hello.host);
            self.report_mismatch("FTB_MEMBERS_DIFFER", &hello.host, why);
        }
        let apart_ns = hello.wall_ns.abs_diff(self.cx.now.wall_ns);
        if apart_ns > ns(CLOCKS_APART_MS_MAX) {
            self.cx.counters.clocks_differ += 1;
            let apart_s = apart_ns / 1_000_000_000;
            let why = format!("the clocks of {} and {own} are {apart_s} s apart", hello.host);
            self.report_mismatch("FTB_CLOCKS_DIFFER", &hello.host, why);
        }
    }

    fn report_mismatch(&mut self, name: &'static str, host: &str, why: String) {
        let now_ns = self.cx.now.mono_ns;
        let reported = &mut self.mismatches.reported;
        reported.retain(|_, until| *until > now_ns);
        if reported.len() >= REPORTED_MAX || reported.contains_key(&(name, host.to_owned())) {
            return;
        }
        reported.insert((name, host.to_owned()), now_ns.saturating_add(ns(REPEAT_MS)));
        let tags = vec![("host", host.to_owned()), ("by", self.cx.config.host.clone())];
        self.cx.announce(name, Severity::Warning, tags, why);
    }

    /// Another incarnation takes the place of one below us: a restart, unless the first comes back.
    pub(in crate::node) fn replaced(&mut self, rank: Rank, origin: OriginId) {
        self.mismatches.replaced.insert(rank, origin);
    }

    /// The place is free again.
    pub(in crate::node) fn vacated(&mut self, rank: Rank) {
        self.mismatches.replaced.remove(&rank);
    }

    /// An incarnation comes back whose place another one has taken, which is here: both live.
    pub(in crate::node) fn check_duplicate(
        &self,
        rank: Rank,
        hello: &Hello,
    ) -> Result<(), HelloNack> {
        let duplicate = self.children.values().find(|child| child.rank == rank);
        let Some(duplicate) = duplicate.filter(|duplicate| duplicate.origin != hello.origin) else {
            return Ok(());
        };
        if self.mismatches.replaced.get(&rank) != Some(&hello.origin) {
            return Ok(());
        }
        let message = format!(
            "two agents of host {} and rank {rank} run at the same time, incarnations {} and {}: \
             stop one of them",
            hello.host, hello.origin, duplicate.origin
        );
        Err(HelloNack { code: NackCode::Duplicate, message, redirect: Vec::new() })
    }
}
