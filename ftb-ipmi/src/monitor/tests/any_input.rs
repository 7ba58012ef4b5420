//! Any sequence of inputs.

use super::*;
use proptest::prelude::*;

const EVENT_ONLY: u8 = 0xF3;

/// A former condition, of a sensor or of none, or the same twice.
fn former(choice: u8, is_twice: bool) -> Vec<FormerCondition> {
    let (component, kind, key) = [
        ("CPU 1 FAN", FindingKind::FanFail, "FANFAIL"),
        ("Inlet Temp", FindingKind::Cleared, "OVERTEMP"),
        ("DIMM A1", FindingKind::MemErr, "MEMERR"),
        ("P2 Status", FindingKind::CpuFail, "CPUFAIL"),
        ("P2 Status", FindingKind::Cleared, "CPUFAIL"),
        ("CHASSIS FAN", FindingKind::FanFail, "FANFAIL"),
        ("bmc", FindingKind::LogFull, "SEL_FULL"),
    ][usize::from(choice % 7)];
    let (component, key) = (component.to_owned(), key.to_owned());
    let (severity, event_states) = (Severity::Error, choice.is_multiple_of(2).then_some(1 << 1));
    let row = FormerCondition { component, key, severity, onset_ns: 1, kind, event_states };
    vec![row; if is_twice { 2 } else { 1 }]
}

proptest! {
    /// For all inputs: no fault opens or ends twice, NORMAL is published only without an open
    /// fault, and nothing panics.
    #[test]
    fn faults_open_and_end_alternately(
        steps in proptest::collection::vec(any::<(u8, u8, u8, bool)>(), 0..120),
    ) {
        let mut node = Node::with(|sensors| {
            sensors.push(watched("P2 Status", EVENT_ONLY, 0x07, 0x6F));
            sensors[4].sensor.event_only = true;
        });
        let mut open = HashMap::new();
        for (kind, a, b, flag) in steps {
            match kind % 8 {
                0 => node.raw[0] = flag.then_some(a),
                1 => node.raw[1] = flag.then_some(a),
                2 => node.states = [u16::from_le_bytes([a, b]) & 0x7FFF, u16::from(b)],
                3 => {
                    let number = [FAN, TEMPERATURE, DIMM, PSU, EVENT_ONLY][usize::from(a % 5)];
                    let reading_type = if a % 5 < 4 && a % 2 == 0 { 1 } else { 0x6F };
                    node.event(number, reading_type, b & 0xF, flag, EventSource::Logged);
                }
                4 => node.give(if flag { Input::Lost(String::new()) } else { Input::Back }),
                5 => node.give(Input::Former(former(a, flag))),
                6 => {
                    let [row] = &former(a, false)[..] else { unreachable!() };
                    let (component, key) = (row.component.clone(), row.key.clone());
                    node.give(Input::ClearedByHand { component, key });
                }
                _ => {}
            }
            node.poll_powered(flag || a > 10);
            for finding in node.take_findings() {
                let name = finding.sensor.as_ref().map(|watched| watched.sensor.name.clone());
                match finding.kind {
                    FindingKind::Normal => {
                        prop_assert!(open.values().all(|s| *s < Severity::Error), "{open:?}");
                    }
                    FindingKind::Cleared if finding.former.is_some() => {
                        prop_assert!(name.is_none_or(|name| !open.contains_key(&name)));
                    }
                    FindingKind::Cleared => prop_assert!(open.remove(&name.unwrap()).is_some()),
                    FindingKind::BmcBack | FindingKind::BmcLost => {}
                    _ if finding.is_momentary => {}
                    _ if finding.is_repeat => prop_assert!(
                        open.insert(name.unwrap(), finding.severity) <= Some(finding.severity)
                    ),
                    // Published again only if it has become worse.
                    _ => prop_assert!(
                        open.insert(name.unwrap(), finding.severity) < Some(finding.severity)
                    ),
                }
                let event = crate::event::to_event("node001", "bmc", 1, &finding);
                prop_assert_eq!(event.check(0x1000), Ok(()));
                prop_assert_eq!(&event.payload[..], b"node001");
            }
        }
    }
}
