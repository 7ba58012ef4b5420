//! Members that moved elsewhere lately: each new parent hears of them again. The report of a move
//! is lost if the way up is cut just then, and agents above would know the member as below this one
//! for ever.
//!
//! Not responsible for who has moved ([`super::members`]).

use crate::frame::MemberReport;
use crate::ident::Rank;
use crate::node::config::ns;
use crate::node::cx::Cx;
use std::collections::BTreeMap;

/// A move is reported to each new parent for that many times `detection_ms`: by then each agent on
/// the way has noticed that its way up was cut, and has another one.
const DETECTIONS: u64 = 10;

/// The reports of recent moves, and when each was noticed.
#[derive(Default)]
pub(super) struct RecentMoves(BTreeMap<Rank, (u64, MemberReport)>);

impl RecentMoves {
    /// A member has moved. Beyond the bound of all members its report goes up once only.
    pub(super) fn note(&mut self, cx: &Cx, report: MemberReport) {
        let rank = report.rank;
        if self.0.len() < cx.members_max() || self.0.contains_key(&rank) {
            self.0.insert(rank, (cx.now.mono_ns, report));
        }
    }

    pub(super) fn forget(&mut self, rank: Rank) {
        self.0.remove(&rank);
    }

    pub(super) fn retain(&mut self, stays: impl Fn(Rank, &MemberReport) -> bool) {
        self.0.retain(|rank, (_, report)| stays(*rank, report));
    }

    /// This agent was stopped for a while, and its reports with it.
    pub(super) fn forgive(&mut self, now_ns: u64) {
        self.0.values_mut().for_each(|(since_ns, _)| *since_ns = now_ns);
    }

    /// What a new parent must hear. Those that are old are forgotten.
    pub(super) fn recent(&mut self, cx: &Cx) -> impl Iterator<Item = (Rank, MemberReport)> {
        let kept_ns = ns(cx.config.detection_ms).saturating_mul(DETECTIONS);
        let now_ns = cx.now.mono_ns;
        self.0.retain(|_, (since_ns, _)| since_ns.saturating_add(kept_ns) > now_ns);
        self.0.iter().map(|(rank, (_, report))| (*rank, report.clone()))
    }
}
