//! `ftbctl status`.

use crate::cli::Common;
use crate::failure::Failure;
use crate::output::{BAD, FAINT, Output, PLAIN, STRONG, styled};
use crate::text;
use core::time::Duration;
use ftb_client::admin::Admin;
use ftb_proto::v1::{ClientStatus, JournalStatus, Peer, StatusReply};
use serde::Serialize;
use std::collections::BTreeMap;

/// Shows the status of the agent.
pub(crate) async fn run(common: &Common, mut output: Output) -> Result<(), Failure> {
    let mut admin = Admin::connect(&common.socket(), common.timeout()).await?;
    let status = admin.status().await?;
    if output.is_json() {
        output.json(&Status::from(&status))?;
    } else {
        people(&mut output, &status)?;
    }
    output.flush()
}

fn people(output: &mut Output, status: &StatusReply) -> Result<(), Failure> {
    let uptime = text::duration(Duration::from_millis(status.uptime_ms));
    let role = match status.role.as_str() {
        "orphan" => styled(BAD, "orphan"),
        role => text::printable(role),
    };
    let host = styled(STRONG, &text::printable(&status.host));
    let cluster = text::printable(&status.cluster);
    output.line(&format!("{host}  {role} of cluster {cluster}, rank {}", status.rank))?;
    let parent = match status.parent.as_str() {
        "" => "none".to_owned(),
        parent => text::printable(parent),
    };
    let facts = [
        ["parent", &parent],
        ["log", &format!("epoch {}, confirmed up to {}", status.epoch, status.index)],
        ["up", &uptime],
        ["version", &text::printable(&status.version)],
    ];
    for [name, value] in facts {
        output.line(&format!("  {name:<9}{value}"))?;
    }
    if let Some(journal) = &status.journal {
        let state = match journal.state.as_str() {
            "degraded" => styled(BAD, "degraded: the log is in memory only"),
            state => text::printable(state),
        };
        let oldest = match journal.oldest_ns {
            0 => String::new(),
            oldest_ns => format!(" since {}", text::time(oldest_ns, output.utc)),
        };
        let bytes = text::bytes(journal.bytes);
        output.line(&format!("  {:<9}{state}, {bytes}{oldest}", "journal"))?;
    }
    let counters: BTreeMap<_, _> = status.counters.iter().filter(|(_, n)| **n > 0).collect();
    section(output, "children", status.children.iter().map(child_row).collect(), CHILD_HEAD)?;
    section(output, "clients", status.clients.iter().map(client_row).collect(), CLIENT_HEAD)?;
    let rows = counters.into_iter().map(|(name, n)| vec![text::printable(name), n.to_string()]);
    section(output, "counters", rows.collect(), &[])
}

const CHILD_HEAD: &[&str] = &["HOST", "RANK", "QUEUED", "CONNECTED"];
const CLIENT_HEAD: &[&str] =
    &["NAME", "JOB", "UID", "PID", "PUBLISHED", "DELIVERED", "SHED", "QUEUED", "FILTERS"];

/// A table under its title; nothing when it is empty.
fn section(
    output: &mut Output,
    title: &str,
    rows: Vec<Vec<String>>,
    head: &[&str],
) -> Result<(), Failure> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut all = Vec::with_capacity(rows.len() + 1);
    if !head.is_empty() {
        all.push(head.iter().map(|word| (*word).to_owned()).collect());
    }
    all.extend(rows);
    let title = styled(STRONG, title);
    output.line(&format!("\n{title}"))?;
    for (number, line) in text::table(all).iter().enumerate() {
        let style = if number == 0 && !head.is_empty() { FAINT } else { PLAIN };
        output.line(&format!("  {}", styled(style, line)))?;
    }
    Ok(())
}

fn child_row(peer: &Peer) -> Vec<String> {
    vec![
        text::printable(&peer.host),
        peer.rank.to_string(),
        text::bytes(peer.queued_bytes),
        text::duration(Duration::from_millis(peer.connected_ms)),
    ]
}

fn client_row(client: &ClientStatus) -> Vec<String> {
    vec![
        text::printable(&client.name),
        text::printable(&client.job_id),
        client.uid.to_string(),
        client.pid.to_string(),
        client.published.to_string(),
        client.delivered.to_string(),
        client.shed.to_string(),
        text::bytes(client.queued_bytes),
        text::printable(&client.filters.join(" ; ")),
    ]
}

/// The same as JSON. The names are documented in `docs/ftbctl.md` and stay.
#[derive(Serialize)]
struct Status<'a> {
    r#type: &'static str,
    cluster: &'a str,
    host: &'a str,
    version: &'a str,
    rank: u32,
    origin: String,
    role: &'a str,
    parent: Option<&'a str>,
    epoch: u64,
    epoch_root: String,
    index: u64,
    uptime_ms: u64,
    children: Vec<Child<'a>>,
    clients: Vec<Client<'a>>,
    journal: Option<Journal<'a>>,
    counters: BTreeMap<&'a str, u64>,
}

/// `null` without a journal.
#[derive(Serialize)]
struct Journal<'a> {
    state: &'a str,
    bytes: u64,
    oldest_ns: u64,
}

#[derive(Serialize)]
struct Child<'a> {
    host: &'a str,
    rank: u32,
    queued_bytes: u64,
    connected_ms: u64,
}

#[derive(Serialize)]
struct Client<'a> {
    name: &'a str,
    job_id: &'a str,
    uid: u32,
    pid: u32,
    published: u64,
    delivered: u64,
    shed: u64,
    queued_bytes: u64,
    filters: &'a [String],
}

impl<'a> From<&'a StatusReply> for Status<'a> {
    fn from(status: &'a StatusReply) -> Self {
        Self {
            r#type: "status",
            cluster: &status.cluster,
            host: &status.host,
            version: &status.version,
            rank: status.rank,
            origin: format!("{:016x}", status.origin),
            role: &status.role,
            parent: (!status.parent.is_empty()).then_some(status.parent.as_str()),
            epoch: status.epoch,
            epoch_root: format!("{:016x}", status.epoch_root),
            index: status.index,
            uptime_ms: status.uptime_ms,
            children: status.children.iter().map(Child::from).collect(),
            clients: status.clients.iter().map(Client::from).collect(),
            journal: status.journal.as_ref().map(Journal::from),
            counters: status.counters.iter().map(|(name, n)| (name.as_str(), *n)).collect(),
        }
    }
}

impl<'a> From<&'a JournalStatus> for Journal<'a> {
    fn from(journal: &'a JournalStatus) -> Self {
        let JournalStatus { state, bytes, oldest_ns } = journal;
        Self { state, bytes: *bytes, oldest_ns: *oldest_ns }
    }
}

impl<'a> From<&'a Peer> for Child<'a> {
    fn from(peer: &'a Peer) -> Self {
        Self {
            host: &peer.host,
            rank: peer.rank,
            queued_bytes: peer.queued_bytes,
            connected_ms: peer.connected_ms,
        }
    }
}

impl<'a> From<&'a ClientStatus> for Client<'a> {
    fn from(client: &'a ClientStatus) -> Self {
        Self {
            name: &client.name,
            job_id: &client.job_id,
            uid: client.uid,
            pid: client.pid,
            published: client.published,
            delivered: client.delivered,
            shed: client.shed,
            queued_bytes: client.queued_bytes,
            filters: &client.filters,
        }
    }
}
