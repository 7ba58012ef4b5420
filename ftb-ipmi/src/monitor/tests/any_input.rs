//! Any sequence of inputs.

use super::*;
use proptest::prelude::*;

proptest! {
    /// For all inputs: no fault opens or ends twice, NORMAL is published only without an open
    /// fault, and nothing panics.
    #[test]
    fn faults_open_and_end_alternately(
        steps in proptest::collection::vec(any::<(u8, u8, u8, bool)>(), 0..120),
    ) {
        let mut node = Node::new();
        let mut open = HashMap::new();
        for (kind, a, b, flag) in steps {
            match kind % 6 {
                0 => node.raw[0] = flag.then_some(a),
                1 => node.raw[1] = flag.then_some(a),
                2 => node.states = [u16::from_le_bytes([a, b]) & 0x7FFF, u16::from(b)],
                3 => {
                    let number = [FAN, TEMPERATURE, DIMM, PSU][usize::from(a % 4)];
                    let reading_type = if a % 2 == 0 { 1 } else { 0x6F };
                    node.event(number, reading_type, b & 0xF, flag, EventSource::Logged);
                }
                4 => node.give(if flag { Input::Lost(String::new()) } else { Input::Back }),
                _ => {}
            }
            node.poll_powered(flag || a > 10);
            for finding in node.take_findings() {
                let name = finding.sensor.as_ref().map(|watched| watched.sensor.name.clone());
                match finding.kind {
                    FindingKind::Normal => {
                        prop_assert!(open.values().all(|s| *s < Severity::Error), "{open:?}");
                    }
                    FindingKind::Cleared => prop_assert!(open.remove(&name.unwrap()).is_some()),
                    FindingKind::BmcBack | FindingKind::BmcLost => {}
                    _ if finding.is_momentary => {}
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
