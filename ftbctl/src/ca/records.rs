//! What a CA has issued and revoked. Pure: times come from outside.
//!
//! A certificate that has ended is forgotten, unless it is the last of its host, or revoked: agents
//! accept what the key of an ended one signed before, so the revocation list names it for as long
//! as there is the CA. Not responsible for: keys, files.

use ftb_core::hostlist::Hostlist;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Most certificates that are remembered.
pub(super) const RECORDS_MAX: usize = 1_000_000;
/// The records have this form; another one is refused.
pub(super) const VERSION: u32 = 1;
pub(super) const DAY_S: u64 = 86_400;
/// A certificate is renewed when less than this part of its time is left.
const RENEWED_PART: u64 = 3;

/// All records of a CA. Times are Unix seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Records {
    pub(super) version: u32,
    pub(super) cluster: String,
    /// The CA ends then.
    pub(super) until_s: u64,
    /// The number of the last revocation list, and its time.
    pub(super) crl_number: u64,
    pub(super) crl_days: u64,
    pub(super) crl_until_s: u64,
    /// In the order in which they were issued.
    pub(super) certificates: Vec<Issued>,
}

/// One certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Issued {
    pub(super) host: String,
    /// The serial number, in hexadecimal digits.
    pub(super) serial: String,
    pub(super) from_s: u64,
    pub(super) until_s: u64,
    pub(super) revoked_s: Option<u64>,
}

/// The state of a certificate at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Valid,
    /// `issue` would renew it.
    Due,
    /// There is a newer one of its host.
    Renewed,
    Revoked,
    Expired,
}

/// What `issue` does.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) issue: Vec<String>,
    /// Hosts whose certificate needs no renewal.
    pub(super) kept: usize,
}

impl Records {
    /// Of a CA that has issued nothing.
    pub(super) fn new(cluster: &str, until_s: u64, crl_days: u64) -> Self {
        Self {
            version: VERSION,
            cluster: cluster.to_owned(),
            until_s,
            crl_number: 0,
            crl_days,
            crl_until_s: 0,
            certificates: Vec::new(),
        }
    }

    /// The newest certificate of each host. Names of hosts have no case.
    fn newest(&self) -> BTreeMap<String, &Issued> {
        self.certificates.iter().map(|issued| (issued.host.to_lowercase(), issued)).collect()
    }

    /// Which of these hosts get a new certificate.
    pub(super) fn plan(&self, hosts: &Hostlist, now_s: u64, force: bool) -> Plan {
        let newest = self.newest();
        let mut plan = Plan::default();
        for host in hosts.iter() {
            let known = newest.get(&host.to_lowercase());
            let needs = known.is_none_or(|issued| issued.needs_renewal(now_s));
            match needs || force {
                true => plan.issue.push(host),
                false => plan.kept += 1,
            }
        }
        plan
    }

    /// Whether a certificate of a host was issued.
    pub(super) fn knows(&self) -> impl Fn(&str) -> bool + use<> {
        let hosts: BTreeSet<String> = self.newest().into_keys().collect();
        move |host| hosts.contains(&host.to_lowercase())
    }

    /// Revokes all certificates of these hosts; returns how many.
    ///
    /// # Errors
    /// The first host without one; nothing is revoked then.
    pub(super) fn revoke(&mut self, hosts: &Hostlist, now_s: u64) -> Result<usize, String> {
        let knows = self.knows();
        if let Some(host) = hosts.iter().find(|host| !knows(host)) {
            return Err(host);
        }
        let named: BTreeSet<String> = hosts.iter().map(|host| host.to_lowercase()).collect();
        let mut revoked = 0;
        for issued in &mut self.certificates {
            let is_meant = named.contains(&issued.host.to_lowercase());
            if is_meant && issued.revoked_s.is_none() {
                issued.revoked_s = Some(now_s);
                revoked += 1;
            }
        }
        Ok(revoked)
    }

    /// Forgets certificates that have ended, unless they are the last of a host, or revoked.
    pub(super) fn forget_ended(&mut self, now_s: u64) {
        let last: BTreeSet<String> =
            self.newest().into_values().map(|issued| issued.serial.clone()).collect();
        self.certificates.retain(|issued| {
            issued.until_s > now_s || issued.revoked_s.is_some() || last.contains(&issued.serial)
        });
    }

    /// A new revocation list is due: counts it.
    pub(super) fn next_crl(&mut self, now_s: u64) {
        self.crl_number += 1;
        self.crl_until_s = now_s.saturating_add(self.crl_days.saturating_mul(DAY_S));
    }

    /// The certificates with their states, by host, the oldest first.
    pub(super) fn states(&self, now_s: u64) -> Vec<(&Issued, State)> {
        let newest = self.newest();
        let state = |issued: &Issued| {
            let last = newest.get(&issued.host.to_lowercase());
            match issued {
                Issued { revoked_s: Some(_), .. } => State::Revoked,
                Issued { until_s, .. } if *until_s <= now_s => State::Expired,
                _ if last.is_some_and(|last| last.serial != issued.serial) => State::Renewed,
                _ if issued.needs_renewal(now_s) => State::Due,
                _ => State::Valid,
            }
        };
        let mut states: Vec<(&Issued, State)> =
            self.certificates.iter().map(|issued| (issued, state(issued))).collect();
        // The order of issue stays within a host.
        states.sort_by(|(a, _), (b, _)| a.host.cmp(&b.host));
        states
    }
}

impl Issued {
    fn needs_renewal(&self, now_s: u64) -> bool {
        let left_s = self.until_s.saturating_sub(now_s);
        let whole_s = self.until_s.saturating_sub(self.from_s);
        self.revoked_s.is_some() || left_s.saturating_mul(RENEWED_PART) < whole_s
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const NOW_S: u64 = 1_800_000_000;

    fn hosts(text: &str) -> Hostlist {
        Hostlist::parse(text).unwrap()
    }

    fn issued(host: &str, serial: &str, days: u64) -> Issued {
        let until_s = NOW_S + days * DAY_S;
        let (host, serial) = (host.to_owned(), serial.to_owned());
        Issued { host, serial, from_s: NOW_S, until_s, revoked_s: None }
    }

    fn records() -> Records {
        let mut records = Records::new("test", NOW_S + 3650 * DAY_S, 365);
        records.certificates = vec![issued("node1", "a", 90), issued("Node2", "b", 90)];
        records
    }

    #[test]
    fn a_host_gets_a_certificate_when_it_has_none_or_two_thirds_are_over_or_it_is_revoked() {
        let mut records = records();
        let plan = |records: &Records, day: u64, force| {
            let plan = records.plan(&hosts("node[1-3]"), NOW_S + day * DAY_S, force);
            (plan.issue.join(","), plan.kept)
        };
        assert_eq!(plan(&records, 0, false), ("node3".to_owned(), 2));
        assert_eq!(plan(&records, 0, true), ("node1,node2,node3".to_owned(), 0));
        assert_eq!(plan(&records, 60, false), ("node3".to_owned(), 2));
        assert_eq!(plan(&records, 61, false), ("node1,node2,node3".to_owned(), 0));
        assert_eq!(records.revoke(&hosts("node2"), NOW_S), Ok(1));
        assert_eq!(plan(&records, 0, false), ("node2,node3".to_owned(), 1));
        records.certificates.push(issued("node2", "c", 90));
        assert_eq!(plan(&records, 0, false), ("node3".to_owned(), 2));
    }

    #[test]
    fn all_certificates_of_a_host_are_revoked_and_an_unknown_host_changes_nothing() {
        let mut records = records();
        records.certificates.push(issued("node1", "c", 180));
        let before = records.clone();
        assert_eq!(records.revoke(&hosts("node1,node9"), NOW_S), Err("node9".to_owned()));
        assert_eq!(records, before);
        assert_eq!(records.revoke(&hosts("NODE1"), NOW_S), Ok(2));
        assert_eq!(records.revoke(&hosts("node1"), NOW_S + 1), Ok(0), "the first time counts");
        let states = |day: u64| {
            let states = records.states(NOW_S + day * DAY_S);
            states.iter().map(|(issued, state)| (&*issued.serial, *state)).collect::<Vec<_>>()
        };
        let (revoked, valid) = (State::Revoked, State::Valid);
        assert_eq!(states(0), [("b", valid), ("a", revoked), ("c", revoked)]);
        assert_eq!(states(61)[0], ("b", State::Due));
        assert_eq!(states(90)[0], ("b", State::Expired));
        records.certificates.insert(0, issued("node2", "d", 30));
        records.forget_ended(NOW_S + 90 * DAY_S);
        let left: Vec<&str> = records.certificates.iter().map(|i| &*i.serial).collect();
        assert_eq!(left, ["a", "b", "c"], "revoked ones, the last of a host, what has not ended");
        records.forget_ended(NOW_S + 10_000 * DAY_S);
        let revoked = records.certificates.iter().filter(|i| i.revoked_s.is_some()).count();
        assert_eq!(revoked, 2, "the revocation list names them for ever");
    }

    #[test]
    fn the_certificate_before_the_last_is_shown_as_renewed() {
        let mut records = records();
        records.certificates.push(issued("node1", "c", 180));
        let states: Vec<State> = records.states(NOW_S).iter().map(|(_, state)| *state).collect();
        assert_eq!(states, [State::Valid, State::Renewed, State::Valid]);
        records.next_crl(NOW_S);
        assert_eq!((records.crl_number, records.crl_until_s), (1, NOW_S + 365 * DAY_S));
    }
}
