//! What the bridge states of itself: that it watches, that it cannot read Slurm, that Slurm refuses
//! it.
//!
//! A state machine without I/O and clock. Who watches the bridge: its agent states the watch as
//! unknown 10 s after the bridge has gone.

use std::collections::BTreeSet;

/// The component of its conditions.
pub const COMPONENT: &str = "ftb-slurm";
/// The condition that Slurm cannot be read.
pub const UNREACHABLE: &str = "SLURM_UNREACHABLE";
/// The condition that Slurm refuses orders.
pub const REFUSES: &str = "SLURM_REFUSES";
/// How many readings in a row fail before that is stated: a controller may be restarted.
const FAILURES_MAX: u32 = 2;

/// What is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceNotice {
    /// It watches Slurm.
    Watching,
    /// It cannot read Slurm any more: why.
    Unreachable(String),
    /// It can again.
    Reachable,
    /// Slurm refuses orders for these hosts.
    Refused(Refusals),
    /// Slurm refuses none any more.
    Obeyed,
}

/// What Slurm has refused in a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// The hosts.
    pub hosts: BTreeSet<String>,
    /// `drain`, `undrain`, or both.
    pub orders: BTreeSet<&'static str>,
    /// The first answer.
    pub problem: String,
}

impl Refusals {
    /// One more.
    pub fn add(&mut self, host: &str, order: &'static str, problem: &str) {
        self.hosts.insert(host.to_owned());
        self.orders.insert(order);
        if self.problem.is_empty() {
            problem.clone_into(&mut self.problem);
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Service {
    is_watching: bool,
    failures: u32,
    /// [`UNREACHABLE`] is stated, by this bridge or its former life.
    is_unreachable: bool,
    /// The same of [`REFUSES`].
    is_refused: bool,
    /// Hosts of the last [`ServiceNotice::Refused`].
    refused: BTreeSet<String>,
}

impl Service {
    /// `holds` says whether a condition of this bridge is stated by its former life.
    pub fn new(holds: impl Fn(&str) -> bool) -> Self {
        Self {
            is_watching: false,
            failures: 0,
            is_unreachable: holds(UNREACHABLE),
            is_refused: holds(REFUSES),
            refused: BTreeSet::new(),
        }
    }

    /// The nodes were read.
    pub fn on_read(&mut self) -> Vec<ServiceNotice> {
        self.failures = 0;
        let watching = !std::mem::replace(&mut self.is_watching, true);
        let reachable = std::mem::take(&mut self.is_unreachable);
        let notices = [
            watching.then_some(ServiceNotice::Watching),
            reachable.then_some(ServiceNotice::Reachable),
        ];
        notices.into_iter().flatten().collect()
    }

    /// The nodes could not be read.
    pub fn on_failure(&mut self, problem: &str) -> Option<ServiceNotice> {
        self.failures = self.failures.saturating_add(1);
        // Once, also if its former life has stated it: the reason may be another one.
        (self.failures == FAILURES_MAX).then(|| {
            self.is_unreachable = true;
            ServiceNotice::Unreachable(problem.to_owned())
        })
    }

    /// A pass is over: what Slurm has refused in it.
    pub fn on_pass(&mut self, refusals: Refusals) -> Option<ServiceNotice> {
        if refusals.hosts.is_empty() {
            self.refused.clear();
            return std::mem::take(&mut self.is_refused).then_some(ServiceNotice::Obeyed);
        }
        let is_known = self.is_refused && self.refused == refusals.hosts;
        self.is_refused = true;
        self.refused.clone_from(&refusals.hosts);
        (!is_known).then_some(ServiceNotice::Refused(refusals))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(host: &str) -> Refusals {
        let hosts = BTreeSet::from([host.to_owned()]);
        Refusals { hosts, ..Refusals::default() }
    }

    #[test]
    fn each_change_is_stated_once_and_one_failure_is_none() {
        let mut service = Service::new(|_| false);
        assert_eq!(service.on_failure("down"), None);
        assert_eq!(service.on_read(), [ServiceNotice::Watching]);
        assert_eq!(service.on_failure("down"), None, "the failures are not in a row");
        let unreachable = ServiceNotice::Unreachable("down".to_owned());
        assert_eq!(service.on_failure("down"), Some(unreachable));
        assert_eq!(service.on_failure("down"), None);
        assert_eq!(service.on_read(), [ServiceNotice::Reachable]);
        assert_eq!(service.on_read(), []);
        assert_eq!(service.on_pass(Refusals::default()), None);
        for host in ["node01", "node02"] {
            let notice = ServiceNotice::Refused(refused(host));
            assert_eq!(service.on_pass(refused(host)), Some(notice));
            assert_eq!(service.on_pass(refused(host)), None);
        }
        assert_eq!(service.on_pass(Refusals::default()), Some(ServiceNotice::Obeyed));
        assert_eq!(service.on_pass(Refusals::default()), None);
    }

    #[test]
    fn what_its_former_life_has_stated_is_cleared() {
        let mut service = Service::new(|_| true);
        assert_eq!(service.on_read(), [ServiceNotice::Watching, ServiceNotice::Reachable]);
        assert_eq!(service.on_pass(Refusals::default()), Some(ServiceNotice::Obeyed));
    }
}
