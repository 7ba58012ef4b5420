//! Host lists in the configuration: one, or several.

use ftb_core::frame::members_digest;
use ftb_core::hostlist::Hostlist;
use serde::Deserialize;

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
    /// A number that differs where the lists differ, never 0.
    pub fn digest(&self) -> u64 {
        let text = self.0.as_ref().map(Hostlist::to_string).unwrap_or_default();
        members_digest([text.as_str()].into_iter()).max(1)
    }

    /// Whether a host is one of them.
    pub fn contains(&self, host: &str) -> bool {
        self.0.as_ref().is_some_and(|hosts| hosts.contains(host))
    }
}
