//! Jobs in simulation: what the tests with them share.

#![allow(dead_code)]

pub mod agent;
pub mod happens;
pub mod memory;
pub mod parked;
pub mod proc;
pub mod world;

use core::ops::Range;
use core::panic::RefUnwindSafe;
use core::time::Duration;
use ftb_launcher_core::jl::{Deadlines, Interval, JlConfig, MTBF, OnDeath, OnHang, Request};
use ftb_launcher_core::manner::{Manner, Moves, Saver};
use ftb_launcher_core::message::Placement;
use ftb_launcher_core::names::{JobId, Ranks};
use ftb_launcher_core::progress::HangTimes;
use happens::Happens;
use world::{World, node};

pub const HOUR_MS: u64 = 3_600_000;

/// The seeds of a test: one with `FTB_SEED`, else `FTB_RUNS` or `default` of them.
pub fn range(default: u64) -> Range<u64> {
    let number = |key: &str| std::env::var(key).ok().and_then(|value| value.parse().ok());
    match number("FTB_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("FTB_RUNS").unwrap_or(default),
    }
}

/// Runs `scenario` for many seeds; a failure names its seed.
pub fn seeds(name: &str, default: u64, scenario: impl Fn(u64) + RefUnwindSafe) {
    for seed in range(default) {
        let run = std::panic::catch_unwind(|| scenario(seed));
        assert!(run.is_ok(), "{name}: failed with FTB_SEED={seed}");
    }
}

pub fn config(nodes: u32, per_node: u32, spares: u32) -> JlConfig {
    let placement: Placement = (0..nodes)
        .map(|n| {
            let ranks: Ranks = (n * per_node..(n + 1) * per_node).collect();
            (node(&format!("node{n:02}")), ranks)
        })
        .collect();
    JlConfig {
        job: JobId::new("job").unwrap(),
        size: nodes * per_node,
        placement,
        spares: (0..spares).map(|n| node(&format!("spare{n:02}"))).collect(),
        restore: None,
        deadlines: Deadlines::default(),
        on_death: OnDeath::Rollback,
        restarts_max: 5,
        interval: Interval::Never,
        disk_interval: Interval::Never,
        mtbf: MTBF,
        wait_for_nodes: Duration::ZERO,
        sets_max: 2,
        manner: Manner::default(),
        on_hang: OnHang::Report,
        hang_times: HangTimes::default(),
        memory: None,
    }
}

pub fn migrate(name: &str) -> Happens {
    let reason = "its fan failed".to_owned();
    Happens::Request(Request::Migrate { node: node(name), reason, fails_ns: None })
}

pub fn checkpoint() -> Happens {
    Happens::Request(Request::Checkpoint { reason: "asked for".to_owned() })
}

pub fn usable(name: &str) -> Happens {
    Happens::Request(Request::Usable { node: node(name) })
}

pub fn moved(world: &World) -> usize {
    let moved = ("migration".to_owned(), true);
    world.closed.iter().filter(|closed| **closed == moved).count()
}

pub const CRIU: Manner = Manner { saver: Saver::Agent, moves: Moves::Alone };
pub const COMMAND: Manner = Manner { saver: Saver::Agent, moves: Moves::Anew };

pub fn with(manner: Manner, config: JlConfig) -> JlConfig {
    JlConfig { manner, ..config }
}
