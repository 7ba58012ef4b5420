//! Single values of the configuration. They are checked when parsed, so that an error names the
//! line.
//!
//! Not responsible for: combinations of values ([`Config::parse`](super::Config::parse)).

use super::PORT;
use ftb_core::hostlist::Hostlist;
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

/// The member list, read from its folded form.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Members(pub Hostlist);

impl TryFrom<String> for Members {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Hostlist::parse(&text).map(Self).map_err(|error| error.to_string())
    }
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
