//! The state machine of all adapters of a node, without clock or I/O.
//!
//! Its inputs are inventories, counters, and asynchronous events of verbs with the port state read
//! after each. Its outputs are findings; each becomes one event.

use crate::config::{Meaning, Rule, width_of};
use crate::counter::{Basis, CounterWatch, Verdict};
use crate::facts::{ADAPTERS_MAX, AdapterFacts, PortReading, PortState, natural_order};
use crate::finding::Finding;
use crate::kind::Kind;
use crate::port::{Edge, PortReport, PortWatch};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// An input of the state machine.
#[derive(Clone, Debug)]
pub enum Input {
    /// All adapters, each with a reading of its ports.
    Inventory {
        /// When the reading began. Later events are newer and remain valid.
        began_ns: u64,
        /// The adapters, in any order.
        adapters: Vec<AdapterFacts>,
    },
    /// The adapter of this name is gone. It may be back before the next inventory.
    Removed(String),
    /// An asynchronous event of verbs.
    Async {
        /// Name of the adapter.
        adapter: String,
        /// `enum ibv_event_type` as a number; it may be unknown.
        number: u32,
        /// Number of the port, for events of ports.
        port: Option<u8>,
        /// The port, read after the event; `None` if that failed.
        reading: Option<PortReading>,
    },
    /// Counters of one port.
    Counters {
        /// Name of the adapter.
        adapter: String,
        /// Number of the port.
        port: u8,
        /// Names and values; names without a rule are ignored.
        values: Vec<(String, u64)>,
    },
    /// A deadline is reached.
    Tick,
}

/// Repeats of one kind of event within the debounce time.
#[derive(Debug, Default)]
struct RepeatCount {
    /// End of the debounce time.
    until_ns: u64,
    unreported: u32,
    /// Verbs' number of the last event: unknown events differ by it.
    number: u32,
}

#[derive(Debug)]
struct Port {
    state: PortWatch,
    counters: BTreeMap<String, CounterWatch>,
}

impl Port {
    fn new(state: PortState, debounce_ns: u64) -> Self {
        Self { state: PortWatch::new(state, debounce_ns), counters: BTreeMap::new() }
    }
}

#[derive(Debug)]
struct Adapter {
    index: usize,
    facts: AdapterFacts,
    ports: BTreeMap<u8, Port>,
    /// Time of the last event.
    event_ns: Option<u64>,
    /// By kind and port (0: the adapter); bounded by the number of kinds and ports.
    repeats: BTreeMap<(Kind, u8), RepeatCount>,
}

/// All adapters of this node.
#[derive(Debug)]
pub struct Monitor {
    debounce_ns: u64,
    rules: Vec<Rule>,
    adapters: BTreeMap<String, Adapter>,
    /// Whether the absence of adapters is reported.
    reported_empty: bool,
    /// Adapters that went away and are not back.
    removed: BTreeSet<String>,
}

impl Monitor {
    /// A monitor without adapters.
    pub fn new(debounce: Duration, rules: Vec<Rule>) -> Self {
        Self {
            debounce_ns: u64::try_from(debounce.as_nanos()).unwrap_or(u64::MAX),
            rules,
            adapters: BTreeMap::new(),
            reported_empty: false,
            removed: BTreeSet::new(),
        }
    }

    /// Handles one input and appends the findings. `now_ns` must not decrease.
    pub fn handle(&mut self, now_ns: u64, input: Input, findings: &mut Vec<Finding>) {
        match input {
            Input::Inventory { began_ns, adapters } => {
                self.on_inventory(now_ns, began_ns, adapters, findings);
            }
            Input::Removed(name) => {
                self.remove(&name, findings);
                self.report_if_empty(findings);
            }
            Input::Async { adapter, number, port, reading } => {
                if let Some(adapter) = self.adapters.get_mut(&adapter) {
                    adapter.on_event(now_ns, self.debounce_ns, number, port, reading, findings);
                }
            }
            Input::Counters { adapter, port, values } => {
                if let Some(adapter) = self.adapters.get_mut(&adapter) {
                    adapter.on_counters(now_ns, &self.rules, port, values, findings);
                }
            }
            Input::Tick => {}
        }
        for adapter in self.adapters.values_mut() {
            adapter.expire(now_ns, self.debounce_ns, findings);
        }
    }

    /// When an [`Input::Tick`] is due, in nanoseconds of the same clock.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.adapters.values().filter_map(Adapter::deadline_ns).min()
    }

    fn on_inventory(
        &mut self,
        now_ns: u64,
        began_ns: u64,
        mut seen: Vec<AdapterFacts>,
        findings: &mut Vec<Finding>,
    ) {
        seen.sort_by(|a, b| natural_order(&a.name, &b.name));
        seen.truncate(ADAPTERS_MAX);
        // An adapter of the same name with another GUID is another adapter.
        let gone: Vec<_> = self
            .adapters
            .iter()
            .filter(|(name, known)| {
                !seen.iter().any(|facts| facts.name == **name && facts.guid == known.facts.guid)
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in &gone {
            self.remove(name, findings);
        }
        let (known, new): (Vec<_>, Vec<_>) =
            seen.into_iter().partition(|facts| self.adapters.contains_key(&facts.name));
        for facts in known {
            let adapter = self.adapters.get_mut(&facts.name);
            // A reading that began before the last event may be older than the event. The next
            // reading decides.
            if let Some(adapter) = adapter.filter(|adapter| adapter.event_ns < Some(began_ns)) {
                adapter.on_reading(now_ns, self.debounce_ns, facts, findings);
            }
        }
        let count = self.adapters.len() + new.len();
        if !new.is_empty() {
            let payload = format!("NUM_ADAPTERS:{count}");
            findings.push(Finding::new(Kind::AdapterAvailable, payload).tag("adapters", count));
        }
        for facts in new {
            self.add(facts, findings);
        }
        self.report_if_empty(findings);
    }

    fn remove(&mut self, name: &str, findings: &mut Vec<Finding>) {
        if let Some(adapter) = self.adapters.remove(name) {
            let more = format!("::NAME:{name}");
            let (kind, index) = (Kind::AdapterRemoved, adapter.index);
            findings.push(Finding::of_adapter(kind, index, &adapter.facts, &more));
            if self.removed.len() >= ADAPTERS_MAX {
                self.removed.pop_first();
            }
            self.removed.insert(name.to_owned());
        }
    }

    /// Reports the absence of adapters once.
    fn report_if_empty(&mut self, findings: &mut Vec<Finding>) {
        let empty = self.adapters.is_empty();
        if empty && !self.reported_empty {
            findings.push(Finding::new(Kind::AdapterUnavailable, String::new()));
        }
        self.reported_empty = empty;
    }

    /// A new adapter gets the lowest free index, so one that comes back gets its old index.
    fn add(&mut self, facts: AdapterFacts, out: &mut Vec<Finding>) {
        let index = (0..)
            .find(|index| self.adapters.values().all(|other| other.index != *index))
            .expect("there are fewer adapters than numbers");
        let more = format!("::NAME:{}::PORTS:{}", facts.name, facts.ports.len());
        let info = Finding::of_adapter(Kind::AdapterInfo, index, &facts, &more);
        // What failed is over when the adapter was away and is back.
        let was = if self.removed.remove(&facts.name) { "removed" } else { "" };
        out.push(info.tag("ports", facts.ports.len()).tag("was", was));
        let mut ports = BTreeMap::new();
        for port in &facts.ports {
            out.push(port_info(index, &facts, port.number));
            ports.insert(port.number, Port::new(port.reading.state, self.debounce_ns));
        }
        let adapter = Adapter { index, facts, ports, event_ns: None, repeats: BTreeMap::new() };
        self.adapters.insert(adapter.facts.name.clone(), adapter);
    }
}

impl Adapter {
    fn deadline_ns(&self) -> Option<u64> {
        let ports = self.ports.values().filter_map(|port| port.state.deadline_ns());
        let repeats = self.repeats.values().map(|repeats| repeats.until_ns);
        ports.chain(repeats).min()
    }

    fn expire(&mut self, now_ns: u64, debounce_ns: u64, out: &mut Vec<Finding>) {
        let mut reports = Vec::new();
        for (number, port) in &mut self.ports {
            reports.extend(port.state.expire(now_ns).into_iter().map(|report| (*number, report)));
        }
        out.extend(reports.into_iter().map(|(number, report)| self.port_finding(number, report)));
        let mut again = Vec::new();
        self.repeats.retain(|key, repeats| {
            if repeats.until_ns > now_ns {
                return true;
            }
            let count = std::mem::take(&mut repeats.unreported);
            if count > 0 {
                again.push((*key, repeats.number, count));
                repeats.until_ns = now_ns.saturating_add(debounce_ns);
            }
            count > 0
        });
        for ((kind, port), number, count) in again {
            out.push(self.verbs_finding(kind, port, number).tag("repeats", count));
        }
    }

    /// A new reading of a known adapter. It may show a state that no event reported.
    fn on_reading(
        &mut self,
        now_ns: u64,
        debounce_ns: u64,
        facts: AdapterFacts,
        out: &mut Vec<Finding>,
    ) {
        self.facts = facts;
        let mut reports = Vec::new();
        for port in &self.facts.ports {
            let state = port.reading.state;
            match self.ports.entry(port.number) {
                Entry::Occupied(known) => {
                    let new = known.into_mut().state.observe(now_ns, None, state);
                    reports.extend(new.into_iter().map(|report| (port.number, report)));
                }
                Entry::Vacant(new) => {
                    new.insert(Port::new(state, debounce_ns));
                    reports.push((port.number, PortReport::Info));
                }
            }
        }
        let facts = &self.facts;
        self.ports.retain(|number, _| facts.ports.iter().any(|port| port.number == *number));
        out.extend(reports.into_iter().map(|(number, report)| self.port_finding(number, report)));
    }

    fn on_event(
        &mut self,
        now_ns: u64,
        debounce_ns: u64,
        number: u32,
        port: Option<u8>,
        reading: Option<PortReading>,
        out: &mut Vec<Finding>,
    ) {
        self.event_ns = Some(now_ns);
        let kind = Kind::from_verbs(number);
        let known = port.and_then(|port| self.ports.get_mut(&port).map(|watch| (port, watch)));
        if let Some((port, watch)) = known {
            let edge = match kind {
                Kind::PortErr => Some(Edge::Down),
                Kind::PortActive => Some(Edge::Up),
                _ => None,
            };
            let fact = self.facts.ports.iter_mut().find(|fact| fact.number == port);
            if let Some(fact) = fact {
                match (reading, edge) {
                    (Some(reading), _) => fact.reading.update(reading),
                    // Without a reading, the event gives the state.
                    (None, Some(Edge::Down)) => fact.reading.state = PortState::Down,
                    (None, Some(Edge::Up)) => fact.reading.state = PortState::Active,
                    (None, None) => {}
                }
                let state = fact.reading.state;
                for report in watch.state.observe(now_ns, edge, state) {
                    out.push(self.port_finding(port, report));
                }
            }
            if edge.is_some() {
                return;
            }
        }
        let key = (kind, port.unwrap_or(0));
        match self.repeats.get_mut(&key) {
            Some(repeats) => {
                repeats.unreported = repeats.unreported.saturating_add(1);
                repeats.number = number;
            }
            None => {
                if debounce_ns > 0 {
                    let until_ns = now_ns.saturating_add(debounce_ns);
                    self.repeats.insert(key, RepeatCount { until_ns, unreported: 0, number });
                }
                out.push(self.verbs_finding(kind, key.1, number));
            }
        }
    }

    /// An event of verbs about the adapter (port 0) or one of its ports.
    fn verbs_finding(&self, kind: Kind, port: u8, number: u32) -> Finding {
        let finding = match port {
            0 => Finding::of_adapter(kind, self.index, &self.facts, ""),
            port => Finding::of_port(kind, self.index, &self.facts, port, ""),
        };
        match kind {
            Kind::Unknown => {
                let payload = format!("{}::EVENT:{number}", finding.payload);
                Finding { payload, ..finding }.tag("number", number)
            }
            _ => finding,
        }
    }

    fn port_finding(&self, port: u8, report: PortReport) -> Finding {
        let of = |kind, more: &str| Finding::of_port(kind, self.index, &self.facts, port, more);
        let (finding, flaps) = match report {
            PortReport::Info => return port_info(self.index, &self.facts, port),
            PortReport::Flapping { changes } => {
                let more = format!("::FLAPS:{changes}");
                return of(Kind::PortFlapping, &more).tag("flaps", changes);
            }
            PortReport::Steady => return of(Kind::PortSteady, ""),
            PortReport::Err { flaps } => (of(Kind::PortErr, ""), flaps),
            PortReport::Active { flaps } => (of(Kind::PortActive, ""), flaps),
        };
        match flaps {
            0 => finding,
            flaps => finding.tag("flaps", flaps),
        }
    }

    fn on_counters(
        &mut self,
        now_ns: u64,
        rules: &[Rule],
        port: u8,
        values: Vec<(String, u64)>,
        out: &mut Vec<Finding>,
    ) {
        let Some(watches) = self.ports.get_mut(&port).map(|port| &mut port.counters) else {
            return;
        };
        for (name, value) in values {
            let Some(rule) = rules.iter().find(|rule| rule.counter == name) else {
                continue;
            };
            let verdict = watches
                .entry(name)
                .or_insert_with(|| CounterWatch::new(rule.limit.clone(), width_of(&rule.counter)))
                .observe(now_ns, value);
            if let Some(verdict) = verdict {
                out.push(counter_finding(self.index, &self.facts, port, rule, &verdict));
            }
        }
    }
}

fn port_info(index: usize, facts: &AdapterFacts, number: u8) -> Finding {
    let state = facts.ports.iter().find(|port| port.number == number);
    let word = state.map_or_else(String::new, |port| port.reading.state.word());
    Finding::of_port(Kind::PortInfo, index, facts, number, &format!("::STATE:{word}"))
}

fn counter_finding(
    index: usize,
    facts: &AdapterFacts,
    port: u8,
    rule: &Rule,
    verdict: &Verdict,
) -> Finding {
    let alarm = match rule.means {
        Meaning::Degraded => Kind::PortDegraded,
        Meaning::Congested => Kind::PortCongested,
    };
    let per_minute = |count: f64| count * 60.0 / rule.limit.window.as_secs_f64();
    let counter = &rule.counter;
    let (kind, increase, limit) = match verdict {
        Verdict::TooFast { increase, limit, .. } => (alarm, *increase, *limit),
        Verdict::Calm { increase, limit } => (Kind::PortRecovered, *increase, *limit),
        Verdict::Stuck { value } => {
            let more = format!("::COUNTER:{counter}::STUCK:{value}");
            return Finding::of_port(alarm, index, facts, port, &more)
                .tag("counter", counter)
                .tag("stuck", value);
        }
    };
    let (rate, limit) = (per_minute(increase as f64), per_minute(limit));
    let more = format!("::COUNTER:{counter}::RATE:{rate:.3}::LIMIT:{limit:.3}");
    let finding = Finding::of_port(kind, index, facts, port, &more)
        .tag("counter", counter)
        .tag("increase", increase)
        .tag("window_s", rule.limit.window.as_secs())
        .tag("rate_per_minute", format!("{rate:.3}"))
        .tag("limit_per_minute", format!("{limit:.3}"));
    match verdict {
        Verdict::TooFast { basis: Basis::Past(average), .. } => finding
            .tag("basis", "past")
            .tag("past_per_minute", format!("{:.3}", per_minute(*average))),
        Verdict::TooFast { .. } => finding.tag("basis", "limit"),
        _ => finding.tag(
            "was",
            match rule.means {
                Meaning::Degraded => "degraded",
                Meaning::Congested => "congested",
            },
        ),
    }
}

#[cfg(test)]
mod tests;
