//! Findings and their events: the payload of the thesis' Appendix A to the letter, and the same
//! facts as tags.

use crate::facts::{AdapterFacts, PortFacts};
use crate::kind::Kind;
use bytes::Bytes;
use ftb_core::condition::{Condition, Truth};
use ftb_core::text::cut;
use ftb_core::{Event, EventName, EventSpace, Severity, Tag, limits};
use std::collections::BTreeMap;

/// The event space of this publisher.
pub const SPACE: &str = "ftb.ib";

/// A finding of the monitor; it becomes one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The event.
    pub kind: Kind,
    /// The payload.
    pub payload: String,
    /// Keys and values, in the order of the event.
    pub tags: Vec<(&'static str, String)>,
}

impl Finding {
    /// A finding about no single adapter.
    pub fn new(kind: Kind, payload: String) -> Self {
        Self { kind, payload, tags: Vec::new() }
    }

    /// A finding about an adapter, with the payload `ADAPTER:<i>` and `more`.
    pub(crate) fn of_adapter(kind: Kind, index: usize, facts: &AdapterFacts, more: &str) -> Self {
        Self::new(kind, format!("ADAPTER:{index}{more}"))
            .tag("adapter", &facts.name)
            .tag("adapter_index", index)
            .tag("guid", &facts.guid)
    }

    /// A finding about a port, with the payload `ADAPTER:<i>::PORT:<j>` and `more`.
    pub(crate) fn of_port(
        kind: Kind,
        index: usize,
        adapter: &AdapterFacts,
        number: u8,
        more: &str,
    ) -> Self {
        let finding = Self::of_adapter(kind, index, adapter, &format!("::PORT:{number}{more}"))
            .tag("port", number);
        match adapter.ports.iter().find(|port| port.number == number) {
            Some(port) => finding.port_tags(port),
            None => finding,
        }
    }

    fn port_tags(self, port: &PortFacts) -> Self {
        let reading = &port.reading;
        self.tag("state", reading.state.word())
            .tag("lid", reading.lid)
            .tag("sm_lid", reading.sm_lid)
            .tag("link_layer", &reading.link_layer)
            .tag("speed", &reading.speed)
            .tag("netdev", port.netdev.as_deref().unwrap_or(""))
            .tag("neighbour", port.neighbour.as_deref().unwrap_or(""))
    }

    /// Adds a tag, unless the value is empty.
    pub(crate) fn tag(mut self, key: &'static str, value: impl ToString) -> Self {
        let value = value.to_string();
        if !value.is_empty() {
            self.tags.push((key, value));
        }
        self
    }

    /// The event, with the configured or the default severity.
    pub fn to_event(&self, severities: &BTreeMap<Kind, Severity>, time_ns: u64) -> Event {
        let space = EventSpace::new(SPACE).expect("the constant is a valid event space");
        let name = EventName::new(self.kind.name()).expect("a test checks every name");
        let mut event = Event::new(space, name);
        event.severity =
            severities.get(&self.kind).copied().unwrap_or_else(|| self.kind.severity());
        event.time_ns = time_ns;
        // Other lasting findings are pairs that every agent knows.
        event.condition = match self.kind {
            Kind::AdapterAvailable => Some(Condition::watch("", SPACE)),
            // Nothing is watched here.
            Kind::AdapterUnavailable => {
                Some(Condition { truth: Truth::False, ..Condition::watch("", SPACE) })
            }
            _ => None,
        };
        event.tags = self
            .tags
            .iter()
            .take(limits::TAGS_MAX)
            .map(|(key, value)| Tag {
                key: (*key).to_owned(),
                value: cut(value, limits::TAG_VALUE_BYTES_MAX).to_owned(),
            })
            .collect();
        event.payload = Bytes::from(self.payload.clone());
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{PortReading, PortState};
    use ftb_core::catalog;
    use ftb_core::condition::pairs::ConditionPairs;
    use std::collections::BTreeSet;

    /// The tags by which some events clear a condition.
    const STATES: [(&str, &str); 4] =
        [("was", "removed"), ("was", "degraded"), ("was", "congested"), ("state", "ACTIVE")];

    fn adapter() -> AdapterFacts {
        AdapterFacts {
            name: "mlx5_0".into(),
            guid: "0002:c903:00a1:b2c3".into(),
            ports: vec![PortFacts {
                number: 1,
                reading: PortReading {
                    state: PortState::Active,
                    lid: 7,
                    sm_lid: 1,
                    link_layer: "InfiniBand".into(),
                    speed: "100 Gb/sec (4X EDR)".into(),
                },
                netdev: None,
                neighbour: Some("leaf07".into()),
            }],
        }
    }

    #[test]
    fn a_port_event_has_the_payload_of_the_thesis_and_its_facts_as_tags() {
        let event = Finding::of_port(Kind::PortErr, 0, &adapter(), 1, "")
            .to_event(&BTreeMap::new(), 5_000_000_000);
        assert_eq!(event.name.as_str(), "FTB_IB_PORT_ERR");
        assert_eq!(event.space.as_str(), "ftb.ib");
        assert_eq!(event.severity, Severity::Error);
        assert_eq!(event.payload, "ADAPTER:0::PORT:1");
        assert_eq!(event.time_ns, 5_000_000_000);
        let tags: Vec<_> =
            event.tags.iter().map(|tag| format!("{}={}", tag.key, tag.value)).collect();
        assert_eq!(
            tags,
            [
                "adapter=mlx5_0",
                "adapter_index=0",
                "guid=0002:c903:00a1:b2c3",
                "port=1",
                "state=ACTIVE",
                "lid=7",
                "sm_lid=1",
                "link_layer=InfiniBand",
                "speed=100 Gb/sec (4X EDR)",
                "neighbour=leaf07",
            ]
        );
    }

    #[test]
    fn a_configured_severity_replaces_the_default() {
        let severities = BTreeMap::from([(Kind::DeviceFatal, Severity::Info)]);
        let finding = Finding::of_adapter(Kind::DeviceFatal, 2, &adapter(), "");
        assert_eq!(finding.to_event(&severities, 0).severity, Severity::Info);
        assert_eq!(finding.to_event(&BTreeMap::new(), 0).severity, Severity::Fatal);
        assert_eq!(finding.payload, "ADAPTER:2");
    }

    #[test]
    fn a_node_without_adapters_is_not_watched() {
        let truth = |kind| {
            let event = Finding::new(kind, String::new()).to_event(&BTreeMap::new(), 0);
            event.condition.map(|condition| condition.truth)
        };
        assert_eq!(truth(Kind::AdapterAvailable), Some(Truth::True));
        assert_eq!(truth(Kind::AdapterUnavailable), Some(Truth::False));
        assert_eq!(truth(Kind::AdapterInfo), None);
    }

    /// By itself, or by a pair that every agent knows.
    #[test]
    fn each_event_states_the_conditions_of_its_entry_in_the_catalogue() {
        let pairs = ConditionPairs::built_in();
        for kind in Kind::ALL {
            let event = |(key, value)| {
                Finding::new(*kind, String::new()).tag(key, value).to_event(&BTreeMap::new(), 0)
            };
            let stated = STATES.into_iter().filter_map(|state| pairs.stated_by(&event(state)));
            let stated: BTreeSet<(String, bool)> =
                stated.map(|of| (of.key, of.truth == Truth::True)).collect();
            let entry = catalog::event(kind.name()).expect("an entry");
            let sets = entry.sets().map(|condition| (condition.key.to_owned(), true));
            let clears = entry.clears().map(|condition| (condition.key.to_owned(), false));
            assert_eq!(stated, sets.chain(clears).collect(), "{}", entry.name);
        }
    }

    #[test]
    fn a_long_value_is_truncated_to_the_limit_of_a_tag() {
        let mut adapter = adapter();
        adapter.name = "é".repeat(1000);
        let event =
            Finding::of_adapter(Kind::AdapterInfo, 0, &adapter, "").to_event(&BTreeMap::new(), 0);
        event.check(limits::PAYLOAD_BYTES_DEFAULT).expect("within every bound");
    }
}
