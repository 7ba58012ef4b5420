//! The sample configuration that is installed with the agent is right.
#![allow(clippy::unwrap_used)]

use ftb_agent::config::Config;
use ftb_core::OriginId;

const SAMPLE: &str = include_str!("../../deploy/config/agent.toml");

/// The sample with every key that shows its default set to it.
fn uncommented() -> String {
    let is_key = |line: &str| {
        let key: String =
            line.chars().skip(1).take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
        !key.is_empty() && line.starts_with('#') && line[1 + key.len()..].starts_with(" = ")
    };
    let not_default = [
        "#members =",
        "#host =",
        "#insecure =",
        "#login1 =",
        "#enabled =",
        "#path =",
        "#space =",
        "#publish =",
        "#subscribe =",
        "#severity_max =",
        "#fold =",
        "#events_per_s =",
        "#burst =",
        "#group_by =",
        "#set =",
        "#clear =",
        "#key =",
        "#crl =",
        "#token =",
        "#racks =",
        "#host_in_payload =",
        "#component =",
        "#action =",
        "#kept =",
    ];
    let lines = SAMPLE.lines().map(|line| {
        match is_key(line) && !not_default.iter().any(|key| line.starts_with(key)) {
            true => &line[1..],
            false => line,
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn shown(config: &Config) -> String {
    let all = format!("{config:?}");
    all.split_once(", host: ").unwrap().1.to_owned()
}

#[test]
fn the_sample_shows_the_defaults() {
    let short = Config::parse("agent.toml", SAMPLE).unwrap();
    let text = uncommented();
    assert_ne!(text, SAMPLE);
    let mut long = Config::parse("agent.toml", &text).unwrap();
    let origin = OriginId(1);
    assert_eq!(short.node("node001", origin), long.node("node001", origin));
    assert_eq!(short.listen(), long.listen());
    // What is left to the core when it is not set.
    (long.listen, long.detection) = (short.listen, short.detection.clone());
    long.metrics = short.metrics.clone();
    long.limits.lag_bytes = None;
    (long.limits.user_bytes, long.limits.users_bytes) = (None, None);
    (long.limits.user_subscriptions, long.limits.user_filter_bytes) = (None, None);
    long.limits.user_events_per_s = None;
    long.limits.unconfirmed_bytes = None;
    long.limits.log_bytes = None;
    long.limits.ring_bytes = None;
    (long.limits.conditions, long.limits.condition_bytes) = (None, None);
    // The order in which a list's index is printed changes from run to run.
    assert_eq!(long.members, short.members);
    assert_eq!(shown(&short), shown(&long));
}
