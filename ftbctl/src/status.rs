//! `ftbctl status`.

use crate::common::Common;
use crate::failure::Failure;
use crate::output::{BAD, FAINT, Output, PLAIN, STRONG, styled};
use crate::text;
use core::time::Duration;
use ftb_client::admin::Admin;
use ftb_client::json::role_word;
use ftb_proto::v1::{AgentRole, ClientStatus, JournalState, JournalStatus, Peer, StatusReply};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Shows the status of the agent.
pub(crate) async fn run(common: &Common, mut output: Output) -> Result<(), Failure> {
    let mut admin = Admin::connect(&common.socket(), common.timeout()).await?;
    let status = admin.status().await?;
    if output.is_json() {
        output.json(&as_json(&status))?;
    } else {
        people(&mut output, &status)?;
    }
    output.flush()
}

fn people(output: &mut Output, status: &StatusReply) -> Result<(), Failure> {
    let uptime = text::duration(Duration::from_millis(status.uptime_ms));
    let role = match status.role() {
        AgentRole::Searching => styled(BAD, "searching"),
        role => role_word(role).to_owned(),
    };
    let rank = status.rank.map_or("no rank".to_owned(), |rank| format!("rank {rank}"));
    let host = styled(STRONG, &text::printable(&status.host));
    let cluster = text::printable(&status.cluster);
    output.line(&format!("{host}  {role} of cluster {cluster}, {rank}"))?;
    let parent = status.parent.as_deref().map_or("none".to_owned(), text::printable);
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
        let state = match journal.state() {
            JournalState::Degraded => styled(BAD, "degraded: the log is in memory only"),
            state => journal_state(state).to_owned(),
        };
        let since = |oldest_ns| format!(" since {}", text::time(oldest_ns, output.utc));
        let oldest = journal.oldest_ns.map(since).unwrap_or_default();
        let bytes = text::bytes(journal.bytes);
        output.line(&format!("  {:<9}{state}, {bytes}{oldest}", "journal"))?;
    }
    let counters: BTreeMap<_, _> = status.counters.iter().filter(|(_, n)| **n > 0).collect();
    section(output, "children", status.children.iter().map(child_row).collect(), CHILD_HEAD)?;
    section(output, "clients", status.clients.iter().map(client_row).collect(), CLIENT_HEAD)?;
    let rows = counters.into_iter().map(|(name, n)| vec![text::printable(name), n.to_string()]);
    section(output, "counters", rows.collect(), &[])
}

fn journal_state(state: JournalState) -> &'static str {
    match state {
        JournalState::Ok => "ok",
        JournalState::Degraded => "degraded",
        JournalState::Unspecified => "unknown",
    }
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

/// The same as JSON. The names are documented in `proto/json.md` and stay.
fn as_json(status: &StatusReply) -> Value {
    let child = |child: &Peer| {
        json!({
            "host": child.host,
            "rank": child.rank,
            "queued_bytes": child.queued_bytes,
            "connected_ms": child.connected_ms,
        })
    };
    let client = |client: &ClientStatus| {
        json!({
            "name": client.name,
            "job_id": client.job_id,
            "uid": client.uid,
            "pid": client.pid,
            "published": client.published,
            "delivered": client.delivered,
            "shed": client.shed,
            "queued_bytes": client.queued_bytes,
            "filters": client.filters,
        })
    };
    let journal = |journal: &JournalStatus| {
        json!({
            "state": journal_state(journal.state()),
            "bytes": journal.bytes,
            "oldest_ns": journal.oldest_ns,
        })
    };
    json!({
        "type": "status",
        "cluster": status.cluster,
        "host": status.host,
        "version": status.version,
        "rank": status.rank,
        "origin": format!("{:016x}", status.origin),
        "role": role_word(status.role()),
        "parent": status.parent,
        "epoch": status.epoch,
        "epoch_root": format!("{:016x}", status.epoch_root),
        "index": status.index,
        "uptime_ms": status.uptime_ms,
        "children": status.children.iter().map(child).collect::<Value>(),
        "clients": status.clients.iter().map(client).collect::<Value>(),
        "journal": status.journal.as_ref().map(journal),
        "counters": status.counters,
    })
}
