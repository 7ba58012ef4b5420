//! Hostile answers of Slurm, and configurations (`ftb_fuzz` says how targets run).
#![allow(clippy::unwrap_used)]

use ftb_core::condition::Subject;
use ftb_fuzz::Target;
use ftb_slurm::config::Config;
use ftb_slurm::reason::reason_of;
use ftb_slurm::slurm::{nodes_of, nodes_of_text};

#[test]
fn what_slurm_says_of_its_nodes_is_read_or_refused() {
    let seeds = [
        r#"{"nodes":[{"name":"node01","state":["IDLE","DRAIN"],"reason":"new disk"}]}"#,
        r#"{"meta":{},"nodes":[{"name":"n1","state":"down","state_flags":["DRAIN"],
            "reason":"ftb:FANFAIL FAN 1","reason_set_by_user":"root"}]}"#,
        "NodeName=n1 A=b State=IDLE+DRAIN N=1 Reason=ftb:X [root@2026-11-29T17:21:11] C=d",
    ];
    Target::new("slurm_nodes").seeds(seeds).check(|bytes| {
        let text = nodes_of_text(&String::from_utf8_lossy(bytes));
        for node in nodes_of(bytes).unwrap_or_default().into_iter().chain(text) {
            // Its reason is compared with one of ours, which has one line.
            let ours = reason_of(&Subject::new(&node.name, &node.reason, &node.user));
            assert!(!ours.contains('\n') && ours.len() < 8_192, "{ours:?}");
        }
    });
}

#[test]
fn a_configuration_is_good_or_says_in_one_line_what_is_wrong() {
    let target = Target::new("slurm_config").files("deploy/config", "toml").rounds(1_500);
    target.check(|bytes| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        if let Err(error) = Config::parse(text) {
            assert!(!error.is_empty() && !error.contains('\n'), "{error:?}");
        }
    });
}
