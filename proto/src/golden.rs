//! Golden files: the bytes of one message of each kind, in `tests/golden`.
//!
//! Every release since protocol 7 writes and reads them. A file changes only with a new version of
//! the protocol (docs/protocol.md, "Versions"); `FTB_BLESS=1` writes the files of new messages.

use bytes::Bytes;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Compares a message with its file. Gives the bytes of the file, to be decoded.
pub(crate) fn check(kind: &str, name: &str, bytes: &[u8]) -> Bytes {
    let path = folder().join(format!("{kind}.{name}.bin"));
    if std::env::var_os("FTB_BLESS").is_some() {
        std::fs::write(&path, bytes).expect("the folder of golden files can be written");
    }
    let golden = std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}: run with FTB_BLESS=1", path.display()));
    assert!(
        golden == bytes,
        "{kind}.{name} is encoded differently: an older release cannot read it"
    );
    golden.into()
}

/// The names of the fields of a `oneof` with this head, in the text of a `.proto` file.
pub(crate) fn fields<'a>(proto: &'a str, message: &str) -> BTreeSet<&'a str> {
    let message = proto.split(&format!("message {message} {{")).nth(1).expect("the message");
    let oneof = message.split("oneof ").nth(1).and_then(|rest| rest.split('}').next());
    let lines = oneof.expect("a oneof").lines().skip(1);
    lines.filter_map(|line| line.split_whitespace().nth(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1;
    use core::fmt::Debug;
    use prost::Message;

    fn check_admin<M: Message + Default + PartialEq + Debug>(name: &str, message: &M) {
        let golden = check("admin", name, &message.encode_to_vec());
        assert_eq!(M::decode(golden).as_ref(), Ok(message), "{name}");
    }

    fn status() -> v1::StatusReply {
        let peer = v1::Peer { host: "node2".into(), rank: 2, queued_bytes: 300, connected_ms: 4 };
        let client = v1::ClientStatus {
            name: "monitor".into(),
            job_id: "4711".into(),
            uid: 1000,
            pid: 17,
            published: 300,
            delivered: 5,
            shed: 6,
            queued_bytes: 7,
            filters: vec!["severity>=error".into()],
        };
        let journal = v1::JournalStatus {
            state: v1::JournalState::Degraded.into(),
            bytes: 1 << 20,
            oldest_ns: Some(9),
        };
        v1::StatusReply {
            cluster: "test".into(),
            host: "node1".into(),
            version: "1.2.3".into(),
            rank: Some(1),
            origin: 5,
            role: v1::AgentRole::Standby.into(),
            parent: Some("node0".into()),
            epoch: 3,
            epoch_root: 9,
            index: 40,
            uptime_ms: 1234,
            children: vec![peer],
            clients: vec![client],
            counters: [("stale".to_owned(), 2)].into(),
            journal: Some(journal),
        }
    }

    #[test]
    fn every_message_for_administrators_is_encoded_as_in_its_golden_file() {
        check_admin("status_request", &v1::StatusRequest {});
        check_admin("tree_request", &v1::TreeRequest { timeout_ms: Some(500) });
        let event = Some(v1::EventId { account: 1, token: 2, seq: 3 });
        let request = v1::EventTraceRequest { event, timeout_ms: Some(500) };
        check_admin("event_trace_request", &request);
        let trace = v1::EventTrace { answered: 2, since_ns: 9, ..v1::EventTrace::default() };
        check_admin("event_trace_reply", &v1::EventTraceReply { trace: Some(trace) });
        check_admin("reports_request", &v1::ReportsRequest { timeout_ms: Some(500) });
        let report = v1::AgentReport {
            host: "node1".into(),
            rank: Some(1),
            version: "1.2.3".into(),
            wall_ns: 17,
            certificates_end_ns: Some(18),
            secured: true,
            journal: Some(false),
            members_digest: 19,
            impossible: 20,
            trust: None,
        };
        let reports = v1::ReportsReply {
            reports: vec![report],
            omitted: 1,
            silent: vec!["node2".into()],
            silent_more: 2,
        };
        check_admin("reports_reply", &reports);
        check_admin("status_reply", &status());
        let node = v1::TreeNode {
            rank: 1,
            host: "node1".into(),
            state: v1::MemberState::Up.into(),
            parent: Some(0),
            role: Some(v1::AgentRole::Standby.into()),
            origin: Some(5),
            since_ns: Some(12),
        };
        check_admin("tree_reply", &v1::TreeReply { nodes: vec![node], complete: true });
    }
}
