//! What two agents should have in common and do not: another cluster, version, rank or member list,
//! clocks far apart.
//!
//! Responsible for: saying so, once in a while, in events that name both sides. Not responsible
//! for: who is turned away for it ([`crate::node::tree::children`]).

use crate::catalog::names;
use crate::frame::{Hello, HelloNack, NackCode};
use crate::ident::{OriginId, Rank};
use crate::node::config::ns;
use crate::node::cx::Cx;
use crate::node::tree::Tree;
use crate::severity::Severity;
use std::collections::BTreeMap;

/// Clocks further apart than this are announced: ages of events mean little then.
const CLOCKS_APART_MS_MAX: u64 = 60_000;
/// The shortest time between two announcements about the same thing and host.
const REPEAT_MS: u64 = 600_000;
/// Most announcements that are remembered; one more is only counted.
const REPORTED_MAX: usize = 256;

/// Name of an event and host, and until when its announcement is not repeated.
pub(super) type Reported = BTreeMap<(&'static str, String), u64>;

impl Tree {
    /// An agent was refused.
    pub(crate) fn report_refused(&mut self, cx: &mut Cx, hello: &Hello, hello_nack: &HelloNack) {
        if !matches!(hello_nack.code, NackCode::Busy | NackCode::Full) {
            self.report_mismatch(
                cx,
                names::FTB_AGENT_REFUSED,
                &hello.host,
                hello_nack.message.clone(),
            );
        }
    }

    /// What does not keep two agents apart.
    pub(crate) fn warn_of_mismatches(&mut self, cx: &mut Cx, hello: &Hello) {
        let own = cx.config.host.clone();
        if hello.members_digest != cx.config.members.digest() {
            cx.counters.members_differ += 1;
            let why =
                format!("the member lists of {} and {own} differ: give both the same", hello.host);
            self.report_mismatch(cx, names::FTB_MEMBERS_DIFFER, &hello.host, why);
        }
        let apart_ns = hello.wall_ns.abs_diff(cx.now.wall_ns);
        if apart_ns > ns(CLOCKS_APART_MS_MAX) {
            cx.counters.clocks_differ += 1;
            let apart_s = apart_ns / 1_000_000_000;
            let why = format!("the clocks of {} and {own} are {apart_s} s apart", hello.host);
            self.report_mismatch(cx, names::FTB_CLOCKS_DIFFER, &hello.host, why);
        }
    }

    fn report_mismatch(&mut self, cx: &mut Cx, name: &'static str, host: &str, why: String) {
        let now_ns = cx.now.mono_ns;
        let reported = &mut self.reported;
        reported.retain(|_, until| *until > now_ns);
        if reported.len() >= REPORTED_MAX || reported.contains_key(&(name, host.to_owned())) {
            return;
        }
        reported.insert((name, host.to_owned()), now_ns.saturating_add(ns(REPEAT_MS)));
        let tags = vec![("host", host.to_owned()), ("by", cx.config.host.clone())];
        cx.announce(name, Severity::Warning, tags, why);
    }

    /// Another incarnation takes the place of one below us: a restart, unless the first comes back.
    pub(crate) fn replaced(&mut self, rank: Rank, origin: OriginId) {
        self.replaced.insert(rank, origin);
    }

    /// An incarnation comes back whose place another one has taken, which is here: both live.
    pub(super) fn check_duplicate(&self, rank: Rank, hello: &Hello) -> Result<(), HelloNack> {
        let duplicate = self.children.values().find(|child| child.rank == rank);
        let Some(duplicate) = duplicate.filter(|duplicate| duplicate.origin != hello.origin) else {
            return Ok(());
        };
        if self.replaced.get(&rank) != Some(&hello.origin) {
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
