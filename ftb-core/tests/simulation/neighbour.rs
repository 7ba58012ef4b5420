//! A neighbour of one bare agent, played by hand.

use ftb_core::epochs::EpochHistory;
use ftb_core::frame::{Hello, Interest};
use ftb_core::ident::{OriginId, Rank};
use ftb_core::node::{Member, Node, NodeConfig};
use ftb_core::protocol::{FEATURES, PROTOCOL};
use ftb_core::time::Now;

/// When it all begins.
pub const START: Now = Now { mono_ns: 1, wall_ns: 1_700_000_000_000_000_000 };

/// Agent `a` of cluster `c`, the first of two that are listed.
pub fn agent_a() -> Node {
    let members = ["a", "b"].map(|host| Member { host: host.into(), address: host.into() });
    Node::new(START, NodeConfig::new("c", "a", OriginId(1), members.to_vec()), 1)
}

/// What the other says first, agent `b`, which has just started.
pub fn hello_of_b() -> Hello {
    Hello {
        versions: PROTOCOL,
        features: FEATURES,
        cluster: "c".into(),
        host: "b".into(),
        rank: Some(Rank(1)),
        address: String::new(),
        origin: OriginId(2),
        members_digest: 0,
        epochs: EpochHistory::new(),
        commit_index: 0.into(),
        log_range: None,
        epoch_seen: 0,
        interest: Interest::default(),
        wall_ns: START.wall_ns,
        attempt: 1,
    }
}
