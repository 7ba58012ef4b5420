//! What two agents should have in common and do not: another cluster, version, rank or member list,
//! clocks far apart.
//!
//! Responsible for: saying so, once in a while, in events that name both sides, and when it is
//! over. The events state a condition of the one host, with the other as its component. Not
//! responsible for: who is turned away for it ([`crate::node::tree::children`]).

use crate::catalog::names;
use crate::frame::{Heartbeat, Hello, HelloNack, NackCode};
use crate::ident::{OriginId, Rank};
use crate::node::api::LinkId;
use crate::node::config::ns;
use crate::node::cx::Cx;
use crate::node::tree::Tree;
use crate::severity::Severity;
use std::collections::BTreeMap;

/// Clocks further apart than this are announced: ages of events mean little then.
const CLOCKS_APART_MS_MAX: u64 = 60_000;
/// The shortest time between two announcements about the same thing and host.
const REPEAT_MS: u64 = 600_000;
/// Clocks that differed agree again when they did for this time.
const CLOCKS_AGREE_MS: u64 = 30_000;
/// An agent is not refused any more if it was not for this time: it stopped asking here.
const NOT_REFUSED_MS: u64 = 2 * REPEAT_MS;
/// What was found about a child is over when it has been away for this time: its new parent finds
/// it too.
const AWAY_MS: u64 = 60_000;
/// Most refused agents that are remembered; one more is only counted. Other findings are about
/// children: there are as many as members, and none is left out for names that a stranger invents.
const REFUSED_MAX: usize = 256;

/// By event and host.
pub(super) type Findings = BTreeMap<(&'static str, String), Finding>;

/// What was announced and is not over.
pub(super) struct Finding {
    /// Until when its announcement is not repeated.
    repeat_ns: u64,
    /// When it is over, unless it is found again.
    ends_ns: Option<u64>,
}

/// The event that ends a finding, and why it is over; `None`: the finding is no lasting state.
fn ended_by(name: &str) -> Option<(&'static str, &'static str)> {
    match name {
        names::FTB_MEMBERS_DIFFER => {
            Some((names::FTB_MEMBERS_AGREE, "has the same member list, or is not below it now"))
        }
        names::FTB_CLOCKS_DIFFER => {
            Some((names::FTB_CLOCKS_AGREE, "has the same time, or is not below it now"))
        }
        names::FTB_AGENT_REFUSED => {
            Some((names::FTB_AGENT_ACCEPTED, "is accepted, or has not asked for long"))
        }
        _ => None,
    }
}

impl Tree {
    /// An agent was refused. If its certificate is for another host, that other one is named: the
    /// name in its hello is not proven.
    pub(crate) fn report_refused(
        &mut self,
        cx: &mut Cx,
        link: LinkId,
        hello: &Hello,
        hello_nack: &HelloNack,
    ) {
        let certified = match hello_nack.code {
            NackCode::Busy | NackCode::Full => return,
            NackCode::Host => cx.links.certified_hosts(link).and_then(<[String]>::first).cloned(),
            _ => None,
        };
        let (name, why) = (names::FTB_AGENT_REFUSED, hello_nack.message.clone());
        let host = certified.unwrap_or_else(|| hello.host.clone());
        let ends_ns = Some(cx.after_ms(NOT_REFUSED_MS));
        self.found(cx, (name, &host), Vec::new(), ends_ns, why);
    }

    /// What does not keep two agents apart. An agent that is here now is not refused.
    pub(crate) fn warn_of_mismatches(&mut self, cx: &mut Cx, hello: &Hello) {
        let (own, now_ns) = (cx.config.host.clone(), cx.now.mono_ns);
        self.ends(names::FTB_AGENT_REFUSED, &hello.host, now_ns);
        if hello.members_digest == cx.config.members.digest() {
            self.ends(names::FTB_MEMBERS_DIFFER, &hello.host, now_ns);
        } else {
            cx.counters.members_differ += 1;
            let why =
                format!("the member lists of {} and {own} differ: give both the same", hello.host);
            self.found(cx, (names::FTB_MEMBERS_DIFFER, &hello.host), Vec::new(), None, why);
        }
        let apart_ns = hello.wall_ns.abs_diff(cx.now.wall_ns);
        if apart_ns > ns(CLOCKS_APART_MS_MAX) {
            cx.counters.clocks_differ += 1;
            let apart_s = apart_ns / 1_000_000_000;
            let why = format!("the clocks of {} and {own} are {apart_s} s apart", hello.host);
            self.found(cx, (names::FTB_CLOCKS_DIFFER, &hello.host), Vec::new(), None, why);
        } else {
            self.ends(names::FTB_CLOCKS_DIFFER, &hello.host, cx.after_ms(CLOCKS_AGREE_MS));
        }
    }

    /// A child says its clock and its member list again. What differs is found by hellos only: what
    /// waited in the socket of an agent that was stopped says an old time.
    pub(crate) fn compare_again(&mut self, cx: &Cx, link: LinkId, heartbeat: &Heartbeat) {
        if self.findings.is_empty() {
            return;
        }
        let Some(host) = self.children.get(&link).map(|child| child.host.clone()) else { return };
        // Both lists were loaded again.
        if heartbeat.members_digest != 0 && heartbeat.members_digest == cx.config.members.digest() {
            self.ends(names::FTB_MEMBERS_DIFFER, &host, cx.now.mono_ns);
        }
        let wall_ns = heartbeat.wall_ns;
        if wall_ns == 0 {
            return;
        }
        let key = (names::FTB_CLOCKS_DIFFER, host);
        let Some(finding) = self.findings.get_mut(&key) else { return };
        finding.ends_ns = match wall_ns.abs_diff(cx.now.wall_ns) > ns(CLOCKS_APART_MS_MAX) {
            true => None,
            false => finding.ends_ns.or(Some(cx.after_ms(CLOCKS_AGREE_MS))),
        };
    }

    /// A child is gone: its next parent compares.
    pub(crate) fn compares_no_more(&mut self, cx: &Cx, host: &str) {
        for name in [names::FTB_MEMBERS_DIFFER, names::FTB_CLOCKS_DIFFER] {
            self.ends(name, host, cx.after_ms(AWAY_MS));
        }
    }

    /// A child spoke about an agent that is not below it.
    pub(crate) fn report_claim(&mut self, cx: &mut Cx, host: &str, about: &str, why: &str) {
        let why = format!("{host} is refused: {why}");
        let about = vec![("about", about.to_owned())];
        let ends_ns = Some(cx.after_ms(REPEAT_MS));
        self.found(cx, (names::FTB_CLAIM_REFUSED, host), about, ends_ns, why);
    }

    /// Announces a finding that is new, or was announced long ago.
    fn found(
        &mut self,
        cx: &mut Cx,
        (name, host): (&'static str, &str),
        more: Vec<(&'static str, String)>,
        ends_ns: Option<u64>,
        why: String,
    ) {
        let key = (name, host.to_owned());
        let repeat_ns = cx.after_ms(REPEAT_MS);
        let refused = self.findings.keys().filter(|(of, _)| *of == names::FTB_AGENT_REFUSED);
        let is_full = name == names::FTB_AGENT_REFUSED && refused.count() >= REFUSED_MAX;
        match self.findings.get_mut(&key) {
            Some(finding) => {
                finding.ends_ns = ends_ns;
                if finding.repeat_ns > cx.now.mono_ns {
                    return;
                }
                finding.repeat_ns = repeat_ns;
            }
            None if is_full => return,
            None => drop(self.findings.insert(key, Finding { repeat_ns, ends_ns })),
        }
        let mut tags = vec![("host", host.to_owned()), ("by", cx.config.host.clone())];
        tags.extend(more);
        cx.announce(name, Severity::Warning, tags, why);
    }

    /// A finding is over at that time at the latest, unless it is found again.
    fn ends(&mut self, name: &'static str, host: &str, at_ns: u64) {
        if let Some(finding) = self.findings.get_mut(&(name, host.to_owned())) {
            finding.ends_ns = Some(finding.ends_ns.map_or(at_ns, |ends_ns| ends_ns.min(at_ns)));
        }
    }

    /// When the next finding is over.
    pub(super) fn finding_ends_ns(&self) -> Option<u64> {
        self.findings.values().filter_map(|finding| finding.ends_ns).min()
    }

    /// Announces what is over.
    pub(crate) fn end_findings(&mut self, cx: &mut Cx) {
        let now_ns = cx.now.mono_ns;
        let is_over = |finding: &Finding| finding.ends_ns.is_some_and(|at_ns| at_ns <= now_ns);
        let over = self.findings.iter().filter(|(_, finding)| is_over(finding));
        for (name, host) in over.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            let own = cx.config.host.clone();
            if let Some((event, why)) = ended_by(name) {
                let why = format!("{host} {why} (found by {own})");
                let tags = vec![("host", host.clone()), ("by", own)];
                cx.announce(event, Severity::Info, tags, why);
            }
            self.findings.remove(&(name, host));
        }
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
