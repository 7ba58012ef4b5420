//! Host lists in the configuration: one, or several.

use ftb_core::frame::members_digest;
use ftb_core::hostlist::{self, Hostlist};
use serde::Deserialize;

/// Longest list that is put in order for its digest.
const SORTED_MAX: usize = 4096;

/// One list, or an array of lists, such as one for each rack.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected a host list, or an array of host lists, such as one for each rack"
)]
pub(crate) enum HostLists {
    One(String),
    Several(Vec<String>),
}

/// Hosts that watch other hosts: a host list, or several. It is never expanded.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "HostLists")]
pub struct Monitors(Option<Hostlist>);

impl TryFrom<HostLists> for Monitors {
    type Error = String;

    fn try_from(text: HostLists) -> Result<Self, String> {
        let text = match text {
            HostLists::One(hosts) => hosts,
            HostLists::Several(lists) => lists.join(","),
        };
        if text.trim().is_empty() {
            return Ok(Self(None));
        }
        Hostlist::parse(&text).map(|list| Self(Some(list))).map_err(|error| error.to_string())
    }
}

impl Monitors {
    /// A number that differs where the hosts differ, in whatever order, never 0. Of long lists the
    /// order counts, too.
    pub fn digest(&self) -> u64 {
        let text = match &self.0 {
            None => String::new(),
            Some(hosts) if hosts.len() > SORTED_MAX => hosts.to_string(),
            Some(hosts) => {
                let mut names: Vec<String> =
                    hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
                // Numbers without zeros in front stay in their order.
                names.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
                hostlist::fold(names.iter().map(String::as_str))
            }
        };
        members_digest([text.as_str()].into_iter()).max(1)
    }

    /// Whether a host is one of them.
    pub fn contains(&self, host: &str) -> bool {
        self.0.as_ref().is_some_and(|hosts| hosts.contains(host))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_digest_of_monitors_does_not_depend_on_their_order() {
        let digest = |lists: &[&str]| {
            let lists = lists.iter().map(|&list| list.to_owned()).collect();
            Monitors::try_from(HostLists::Several(lists)).unwrap().digest()
        };
        let known = digest(&["mgmt[1-12]", "login1"]);
        for same in [["LOGIN1", "mgmt[1-12]"], ["mgmt[7-12],login1", "mgmt[1-6]"]] {
            assert_eq!(digest(&same), known, "{same:?}");
        }
        assert_ne!(digest(&["mgmt[1-12]"]), known);
        assert_eq!(
            Monitors::try_from(HostLists::One("mgmt[1-12]".to_owned())).unwrap().digest(),
            members_digest(["mgmt[1-12]"].into_iter()),
            "as agents of the release before calculate it"
        );
    }
}
