//! Examples of the man pages of sections 1 and 8, by the name of the page.
//!
//! `tests/tests/book` checks that the programs accept them.

/// The commands that a page shows.
pub const EXAMPLES: [(&str, &[&str]); 61] = [
    ("ftb-act", &["ftb-act check", "ftb-act run --dry-run --since 7d"]),
    ("ftb-act-check", &["ftb-act check --config /etc/ftb/act.toml"]),
    ("ftb-act-resume", &["ftb-act resume"]),
    ("ftb-act-run", &["ftb-act run --dry-run --since 7d"]),
    ("ftb-act-status", &["ftb-act status --json"]),
    ("ftb-agent", &["ftb-agent --check-config --config /etc/ftb/agent.toml"]),
    ("ftb-bridge", &["ftb-bridge check", "ftb-bridge status"]),
    ("ftb-bridge-check", &["ftb-bridge check --config /etc/ftb/bridge.toml"]),
    ("ftb-bridge-run", &["ftb-bridge run --config /etc/ftb/bridge.toml"]),
    ("ftb-bridge-status", &["ftb-bridge status --json"]),
    ("ftb-ib", &["ftb-ib --check-config --config /etc/ftb/ib.toml", "ftb-ib --print"]),
    (
        "ftb-ipmi",
        &[
            "ftb-ipmi --once --bmc 127.0.0.1:9001 --node node001 --user ftb",
            "ftb-ipmi --check-config --config /etc/ftb/ipmi.toml",
        ],
    ),
    ("ftb-launch", &["ftb-launch run -n 2 -- hostname", "ftb-launch ps"]),
    ("ftb-launch-attach", &["ftb-launch attach job-1"]),
    ("ftb-launch-checkpoint", &["ftb-launch checkpoint job-1"]),
    ("ftb-launch-drain", &["ftb-launch drain node03", "ftb-launch drain job-1 node03"]),
    ("ftb-launch-kill", &["ftb-launch kill job-1"]),
    ("ftb-launch-migrate", &["ftb-launch migrate job-1 node03"]),
    ("ftb-launch-policy", &["ftb-launch policy check policy.toml"]),
    ("ftb-launch-policy-check", &["ftb-launch policy check policy.toml"]),
    ("ftb-launch-policy-reset", &["ftb-launch policy reset job-1"]),
    (
        "ftb-launch-policy-test",
        &[
            "ftbctl events 'severity>=error' --json > events.json",
            "ftb-launch policy test events.json --policy policy.toml",
        ],
    ),
    ("ftb-launch-ps", &["ftb-launch ps"]),
    (
        "ftb-launch-restart",
        &["ftb-launch restart ~/.local/state/ftb/jobs/job-1/sets/set-3 --hosts node[01-16]"],
    ),
    (
        "ftb-launch-run",
        &[
            "ftb-launch run -n 2 -- hostname",
            "ftb-launch run -n 256 --hosts node[01-16] --spares node[17-18] -- ./solver",
            "salloc -N 18 ftb-launch run -n 256 --spares node[17-18] -- ./solver",
        ],
    ),
    ("ftb-launch-status", &["ftb-launch status job-1 --json"]),
    ("ftb-launch-usable", &["ftb-launch usable job-1 node03"]),
    ("ftb-slurm", &["ftb-slurm --check-config --config /etc/ftb/slurm.toml"]),
    ("ftb-slurm-advice", &["ftb-slurm advice 4711"]),
    ("ftb-slurm-health", &["ftb-slurm health --strict"]),
    ("ftbctl", &["ftbctl tree", "ftbctl tail 'severity>=warning'", "ftbctl doctor"]),
    ("ftbctl-ca", &["ftbctl ca init my-cluster", "ftbctl ca issue 'node[01-16]'"]),
    ("ftbctl-ca-init", &["ftbctl ca init my-cluster"]),
    ("ftbctl-ca-issue", &["ftbctl ca issue 'login1,node[01-16]'"]),
    ("ftbctl-ca-revoke", &["ftbctl ca revoke node07"]),
    ("ftbctl-ca-show", &["ftbctl ca show"]),
    (
        "ftbctl-conditions",
        &["ftbctl conditions node[001-032]", "ftbctl conditions node07 --wait-clear --timeout 1h"],
    ),
    ("ftbctl-demo", &["ftbctl demo"]),
    ("ftbctl-doctor", &["ftbctl doctor"]),
    ("ftbctl-drill", &["ftbctl drill --node node07", "ftbctl drill --job job-1"]),
    ("ftbctl-events", &["ftbctl events 'event_space=ftb.agent, severity>=error' --since 2h"]),
    (
        "ftbctl-explain",
        &["ftbctl explain FTB_IPMI_FANFAIL", "ftbctl explain FANFAIL --policy policy.toml"],
    ),
    ("ftbctl-health", &["ftbctl health node07 --watched-by ftb.agent,ftb.ipmi"]),
    (
        "ftbctl-hosts",
        &["ftbctl hosts fold node1 node2 node3", "ftbctl hosts diff node[1-9] node[3-4]"],
    ),
    ("ftbctl-hosts-count", &["ftbctl hosts count node[001-032]"]),
    ("ftbctl-hosts-diff", &["ftbctl hosts diff node[1-9] node[3-4]"]),
    ("ftbctl-hosts-expand", &["ftbctl hosts expand node[001-032]"]),
    ("ftbctl-hosts-fold", &["squeue -h -t R -o %N | ftbctl hosts fold"]),
    ("ftbctl-hosts-intersect", &["ftbctl hosts intersect node[1-9] node[3-12]"]),
    ("ftbctl-init", &["ftbctl init my-cluster 'login1,node[01-16]'"]),
    ("ftbctl-node", &["ftbctl node node07"]),
    (
        "ftbctl-publish",
        &[
            "ftbctl publish my.health.check DISK_FULL '/scratch is full' --severity error",
            "ftbctl publish site.disk DISK_BAD -s error --condition DISK_BAD --component sda",
        ],
    ),
    ("ftbctl-silence", &["ftbctl silence list"]),
    (
        "ftbctl-silence-add",
        &["ftbctl silence add node[01-16] --for 2h --reason 'new fans' --key FANFAIL"],
    ),
    ("ftbctl-silence-list", &["ftbctl silence list --json"]),
    ("ftbctl-silence-remove", &["ftbctl silence remove 139af0937b29092e250242bf247ca784.1"]),
    ("ftbctl-status", &["ftbctl status", "ftbctl status --json"]),
    (
        "ftbctl-subscribe",
        &[
            "ftbctl subscribe 'severity>=warning, hostname=node[001-064]'",
            "ftbctl tail 'event_name=FTB_NODE_DEAD' --count 1 --timeout 10m",
        ],
    ),
    ("ftbctl-top", &["ftbctl top", "ftbctl top --once 'severity>=warning'"]),
    ("ftbctl-trace", &["ftbctl trace 139af0937b29092e250242bf247ca784.1"]),
    ("ftbctl-tree", &["ftbctl tree --wait=full --timeout 1m", "ftbctl tree --down"]),
];
