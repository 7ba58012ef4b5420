//! Hostile alarms of the facility, episodes of users, and configurations (`ftb_fuzz` says how
//! targets run).
#![allow(clippy::unwrap_used)]

use ftb_bridge::cloud_event::Encoder;
use ftb_bridge::config::Config;
use ftb_bridge::import::{Alarm, Import, Pattern, Verdict};
use ftb_bridge::otlp::{self, Closed, PHASES_MAX};
use ftb_client::{EventBuilder, Position, Received, event};
use ftb_core::limits;
use ftb_fuzz::{Parts, Target, piece};
use serde_json::Value;
use std::fs;

const RACKS: &str = "r07 = \"node[01-02]\"\n";
/// As the sample has them: without the racks they cannot be read.
const RULES: &str = "\
[import]
stream = \"FACILITY\"
subject = \"facility.>\"
racks = \"racks.toml\"
insecure = true
[[import.rule]]
subject = \"facility.{rack}.power.{component}.lost\"
event = \"FTB_FACILITY_POWER\"
severity = \"error\"
condition = \"FACILITY_POWER\"
[[import.rule]]
subject = \"facility.*.{rack}.>\"
event = \"FTB_FACILITY_LEAK\"
severity = \"warning\"
";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("racks.toml"), RACKS).unwrap();
    folder
}

#[test]
fn a_configuration_is_good_or_says_in_one_line_what_is_wrong() {
    let folder = folder();
    let target = Target::new("bridge_config").files("deploy/config", "toml").rounds(1_500);
    target.seeds([RULES, "[otlp]\nurl = \"http://[::1]:4318\"\n"]).check(move |bytes| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        match Config::parse(text, folder.path()) {
            Ok(config) => {
                let url = config.otlp.map(|otlp| otlp.url);
                assert!(url.is_none_or(|url| url.scheme_str() == Some("http")));
            }
            Err(error) => assert!(!error.is_empty() && !error.contains('\n'), "{error:?}"),
        }
    });
}

#[test]
fn an_alarm_becomes_events_that_can_be_published_or_is_counted() {
    let folder = folder();
    let import = Config::parse(RULES, folder.path()).unwrap().import.unwrap();
    let alarm = |subject: &str, payload: &str| {
        [piece(subject.as_bytes()), piece(payload.as_bytes())].concat()
    };
    let seeds = [
        alarm("facility.r07.power.B.lost", "{\"time\": \"2026-11-28T12:00:00Z\", \"watts\": 3}"),
        alarm("facility.hall.r07.leak", "water"),
        alarm("facility.r08.power.B.lost", ""),
    ];
    Target::new("alarm").seeds(seeds).check(move |bytes| {
        let mut parts = Parts(bytes);
        let (Some(subject), Some(payload)) = (parts.piece(), parts.piece()) else { return };
        let Ok(subject) = str::from_utf8(subject) else { return };
        let _ = Pattern::parse(subject);
        let mut core = Import::new(import.rules.clone(), import.racks.clone());
        let alarm = Alarm { id: "FACILITY.1.7", subject, payload, time_ns: 1 };
        match core.handle(0, alarm) {
            Verdict::Publish(events) => {
                assert_eq!(events.len(), 2, "the hosts of the rack");
                for event in events {
                    assert_eq!(event.check(limits::PAYLOAD_BYTES_MAX), Ok(()));
                }
            }
            Verdict::Terminate { log } => assert!(log.is_some() && core.counts.unreadable == 1),
        }
    });
}

fn received(event: EventBuilder, time_ns: u64) -> Received {
    let mut event = event.build();
    event.time_ns = time_ns;
    Received {
        position: Position::ZERO,
        id: "00000000000000010000000000000002.3".parse().unwrap(),
        host: "node01".to_owned(),
        uid: 1000,
        pid: 1,
        event,
        folded: None,
        stated: None,
        is_verified: false,
        is_counted: false,
    }
}

/// The tags and texts of episodes are those of any user.
#[test]
fn an_episode_becomes_a_trace_and_a_cloud_event_whatever_its_texts_are() {
    let episode = |pieces: [&str; 4]| pieces.map(|text| piece(text.as_bytes())).concat();
    let seeds = [
        episode(["leave=12 copy=30", "FTB_IPMI_FANFAIL of FAN 1 on node03", "done", "moved"]),
        episode(["a=18446744073709551615 b=1", "X on ", "failed", "\u{1f4a5}"]),
    ];
    Target::new("episode").seeds(seeds).check(|bytes| {
        let mut parts = Parts(bytes);
        let mut text = || {
            let text = parts.piece().map(|piece| String::from_utf8_lossy(piece).into_owned());
            text.unwrap_or_default()
        };
        let (phases, cause) = (text(), text());
        let episode = event("ftb.jl", "FTB_JL_EPISODE").unwrap().tag("phases", &phases);
        let episode = episode.tag("cause", cause).tag("outcome", text()).payload(text());
        let episode = received(episode, u64::from(bytes.first().copied().unwrap_or(0)) << 55);
        let closed = Closed::read(&episode).unwrap();
        let fault = closed.fault().and_then(|mut search| {
            let name = search.filter().split_once('=').unwrap().1.to_owned();
            search.look(&received(event("site", &name).unwrap(), search.since_ns()));
            search.found()
        });
        let request = otlp::TraceEncoder::new("test").request(&closed, fault.as_ref()).unwrap();
        let request: Value = serde_json::from_str(&request).unwrap();
        let spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
        assert!((1..=PHASES_MAX + 2).contains(&spans.len()));
        for span in spans {
            let time = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
            assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"), "{span}");
        }
        let message = Encoder::new("test", 1 << 20).event(&episode).unwrap();
        assert!(serde_json::from_slice::<Value>(&message.body).is_ok());
    });
}
