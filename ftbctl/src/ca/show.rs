//! `ftbctl ca show`.

use super::SECOND_NS;
use super::records::{Issued, Records, State};
use crate::failure::Failure;
use crate::output::{BAD, FAINT, GOOD, Output, STRONG, WARN, styled};
use crate::text;
use ftb_core::hostlist::Hostlist;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Shows the CA and its certificates, or those of some hosts.
pub(super) fn run(
    records: &Records,
    hosts: Option<&Hostlist>,
    now_s: u64,
    output: &mut Output,
) -> Result<(), Failure> {
    let named = hosts.map(|hosts| hosts.iter().map(|host| host.to_lowercase()));
    let named = named.map(Iterator::collect::<BTreeSet<String>>);
    let mut states = records.states(now_s);
    let is_meant = |host: &str| named.as_ref().is_none_or(|n| n.contains(&host.to_lowercase()));
    states.retain(|(issued, _)| is_meant(&issued.host));
    if output.is_json() {
        output.json(&ca_object(records))?;
        let mut objects = states.iter().map(|(issued, state)| certificate_object(issued, *state));
        return objects.try_for_each(|object| output.json(&object));
    }
    let date = |unix_s: u64| text::date(unix_s.saturating_mul(SECOND_NS), output.utc);
    let cluster = styled(STRONG, &text::printable(&records.cluster));
    let (ca, list) = (date(records.until_s), date(records.crl_until_s));
    let number = records.crl_number;
    let mut rows = vec![["HOST", "SERIAL NUMBER", "UNTIL", "STATE"].map(str::to_owned).to_vec()];
    rows.extend(states.iter().map(|(issued, state)| {
        let Issued { host, serial, until_s, revoked_s, .. } = issued;
        let revoked = revoked_s.map(|s| format!("{} {}", word(*state), date(s)));
        let shown = revoked.unwrap_or_else(|| word(*state).to_owned());
        let shown = styled(style(*state), &shown);
        vec![text::printable(host), text::printable(serial), date(*until_s), shown]
    }));
    output.line(&format!(
        "CA of cluster {cluster} until {ca}; revocation list {number} until {list}"
    ))?;
    text::table(rows).iter().try_for_each(|line| output.line(line))
}

fn word(state: State) -> &'static str {
    match state {
        State::Valid => "valid",
        State::Due => "due for renewal",
        State::Renewed => "renewed",
        State::Revoked => "revoked",
        State::Expired => "expired",
    }
}

fn style(state: State) -> anstyle::Style {
    match state {
        State::Valid => GOOD,
        State::Due => WARN,
        State::Renewed => FAINT,
        State::Revoked | State::Expired => BAD,
    }
}

/// The CA for programs.
pub(super) fn ca_object(records: &Records) -> Value {
    json!({
        "type": "ca",
        "cluster": records.cluster,
        "until_ns": records.until_s.saturating_mul(SECOND_NS),
        "crl_number": records.crl_number,
        "crl_until_ns": records.crl_until_s.saturating_mul(SECOND_NS),
    })
}

/// A certificate for programs.
pub(super) fn certificate_object(issued: &Issued, state: State) -> Value {
    json!({
        "type": "certificate",
        "host": issued.host,
        "serial": issued.serial,
        "from_ns": issued.from_s.saturating_mul(SECOND_NS),
        "until_ns": issued.until_s.saturating_mul(SECOND_NS),
        "revoked_ns": issued.revoked_s.map(|s| s.saturating_mul(SECOND_NS)),
        "state": word(state),
    })
}
