//! Single values of the configuration. They are checked when parsed, so that an error names the
//! line.
//!
//! Not responsible for: combinations of values ([`Config::parse`](super::Config::parse)).

use super::PORT;
use crate::host_lists::HostLists;
use ftb_core::hostlist::{Hostlist, fold};
use ftb_core::ident::check_cluster;
use ftb_core::limits;
use serde::Deserialize;

/// Rewords parser errors in terms of the file.
pub(super) fn in_words(message: &str) -> String {
    const WORDS: [(&str, &str); 8] = [
        ("unknown field", "unknown key"),
        ("missing field", "missing key"),
        ("expected a nonzero u32", "expected a whole number from 1 up"),
        ("expected a nonzero usize", "expected a whole number from 1 up"),
        ("expected u16", "expected a whole number up to 65535"),
        ("expected usize", "expected a whole number"),
        ("expected a duration", "expected a time with its unit, for example \"2s\" or \"500ms\""),
        ("invalid socket address syntax", "expected ADDRESS:PORT, for example \"0.0.0.0:14451\""),
    ];
    let text = message.replace('\n', " ");
    WORDS.iter().fold(text, |text, (from, to)| text.replace(from, to))
}

/// The name of a cluster: short printable text without blanks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ClusterName(pub String);

impl TryFrom<String> for ClusterName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        check_cluster(&text).map(|()| Self(text))
    }
}

/// Racks whose first host stands at the beginning of the member list.
const RACKS_FIRST: usize = 8;

/// The member list in rank order, read from its folded form, or from one such list for each rack.
///
/// With racks the first ranks are the first hosts of the first eight racks, so that
/// acting root, standby and their successors are in different racks.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "HostLists")]
pub struct Members(pub Hostlist);

impl TryFrom<HostLists> for Members {
    type Error = String;

    fn try_from(text: HostLists) -> Result<Self, String> {
        match text {
            HostLists::One(hosts) => {
                Hostlist::parse(&hosts).map(Self).map_err(|error| error.to_string())
            }
            HostLists::Several(racks) => by_racks(&racks),
        }
    }
}

/// The list of all racks.
fn by_racks(racks: &[String]) -> Result<Members, String> {
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for (rack, text) in (1..).zip(racks) {
        let hosts = Hostlist::parse(text).map_err(|error| format!("rack {rack}: {error}"))?;
        let mut hosts = hosts.iter();
        if first.len() < RACKS_FIRST {
            first.extend(hosts.next());
        }
        let hosts: Vec<String> = hosts.collect();
        rest.push(fold(hosts.iter().map(String::as_str)));
    }
    rest.retain(|hosts| !hosts.is_empty());
    first.extend(rest);
    let all = Hostlist::parse(&first.join(","));
    all.map(Members).map_err(|error| format!("the racks together: {}", error.reason))
}

/// `HOST:PORT`, the host a name or an IP address.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Address(pub String);

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(Self(text)),
            _ => Err(format!(
                "{text:?} is no address: expected HOST:PORT, for example 10.0.0.1:{PORT}"
            )),
        }
    }
}

/// The address template of members, with `{host}` and `{port}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct AddressPattern(String);

impl Default for AddressPattern {
    fn default() -> Self {
        Self("{host}:{port}".to_owned())
    }
}

impl TryFrom<String> for AddressPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let pattern = Self(text);
        match pattern.0.contains("{host}") && Address::try_from(pattern.of("h", PORT)).is_ok() {
            true => Ok(pattern),
            false => Err(format!(
                "{:?} is no pattern of addresses: expected something like \
                 \"{{host}}.cluster:{{port}}\"",
                pattern.0
            )),
        }
    }
}

impl AddressPattern {
    /// The address of a host.
    pub(super) fn of(&self, host: &str, port: u16) -> String {
        self.0.replace("{host}", host).replace("{port}", &port.to_string())
    }
}

/// A bound on payloads that the protocol can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "usize")]
pub struct PayloadBytes(pub usize);

impl TryFrom<usize> for PayloadBytes {
    type Error = String;

    fn try_from(bytes: usize) -> Result<Self, String> {
        match bytes <= limits::PAYLOAD_BYTES_MAX {
            true => Ok(Self(bytes)),
            false => Err(format!("a payload has at most {} bytes", limits::PAYLOAD_BYTES_MAX)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn members(racks: &[&str]) -> Result<Vec<String>, String> {
        let racks = racks.iter().map(|rack| (*rack).to_owned()).collect();
        Members::try_from(HostLists::Several(racks)).map(|members| members.0.iter().collect())
    }

    #[test]
    fn the_first_ranks_are_in_different_racks() {
        let ranks = members(&["a[1-3]", "b[1-2]", "c"]).unwrap();
        assert_eq!(ranks, ["a1", "b1", "c", "a2", "a3", "b2"]);
        let racks: Vec<String> = (1..=10).map(|rack| format!("r{rack:02}n[1-2]")).collect();
        let racks: Vec<&str> = racks.iter().map(String::as_str).collect();
        let mut ranks = members(&racks).unwrap();
        assert_eq!(ranks[..9].join(" "), "r01n1 r02n1 r03n1 r04n1 r05n1 r06n1 r07n1 r08n1 r01n2");
        assert_eq!((ranks.len(), &*ranks[16]), (20, "r09n1"), "a further rack moves no rank");
        ranks.sort();
        ranks.dedup();
        assert_eq!(ranks.len(), 20);
    }

    #[test]
    fn a_host_in_two_racks_and_a_bad_rack_are_named() {
        let twice = members(&["a[1-3]", "b,a2"]).unwrap_err();
        assert_eq!(twice, "the racks together: host \"a2\" stands in the list twice");
        let bad = members(&["a", "b[2-1]"]).unwrap_err();
        assert!(bad.starts_with("rack 2: "), "{bad}");
    }
}
