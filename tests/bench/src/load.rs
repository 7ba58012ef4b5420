//! What one run asks of a load process, and what it answers. Both travel as JSON between the bench
//! and the processes that it starts from its own binary.

use crate::check::Faults;
use crate::process::Usage;
use crate::wire::nats::Storage;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How messages are published.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Mode {
    /// As fast as the slowest subscriber takes them, within the window.
    Full,
    /// This number per second, all publishers together.
    Paced(u32),
    /// One in flight: the next goes when the last has come.
    PingPong,
    /// As fast as the server says that it holds them, within the window; there are no subscribers.
    Acknowledged,
    /// Nothing is published: connections stay open.
    Idle,
    /// Nothing is published: one client takes a subscription until it is active, gives it up, and
    /// takes the next.
    Resubscribe,
}

/// What is done to a system in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Load {
    /// How messages are published.
    pub(crate) mode: Mode,
    /// Publishing clients.
    pub(crate) publishers: usize,
    /// Subscribing clients; each gets everything.
    pub(crate) subscribers: usize,
    /// Bytes of one event as the publisher sends it.
    pub(crate) size: usize,
    /// Clients whose subscriptions match nothing.
    pub(crate) bystanders: usize,
    /// Such subscriptions, all those clients together.
    pub(crate) bystander_subscriptions: usize,
    /// Whether messages are events that are encoded from fields and decoded into the same.
    pub(crate) typed: bool,
    /// Whether our own publisher publishes every event with a call of its own.
    pub(crate) singly: bool,
    /// Whether the servers' memory is that of some time after the load, all clients still there.
    pub(crate) rests: bool,
}

impl Load {
    /// One publisher, one subscriber.
    pub(crate) fn new(mode: Mode, size: usize) -> Self {
        Self {
            mode,
            publishers: 1,
            subscribers: usize::from(!matches!(mode, Mode::Acknowledged | Mode::Resubscribe)),
            size,
            bystanders: 0,
            bystander_subscriptions: 0,
            typed: false,
            singly: false,
            rests: false,
        }
    }

    /// With the same typed event for all systems.
    #[must_use]
    pub(crate) fn typed(self) -> Self {
        Self { typed: true, ..self }
    }

    /// With a call of our client for every event.
    #[must_use]
    pub(crate) fn singly(self) -> Self {
        Self { singly: true, ..self }
    }

    /// With memory as it is when all is over.
    #[must_use]
    pub(crate) fn rests(self) -> Self {
        Self { rests: true, ..self }
    }

    /// With this number of publishers.
    #[must_use]
    pub(crate) fn publishers(self, publishers: usize) -> Self {
        Self { publishers, ..self }
    }

    /// With this number of subscribers.
    #[must_use]
    pub(crate) fn subscribers(self, subscribers: usize) -> Self {
        Self { subscribers, ..self }
    }

    /// With these numbers of clients and subscriptions; the subscriptions match nothing.
    #[must_use]
    pub(crate) fn bystanders(self, bystanders: usize, bystander_subscriptions: usize) -> Self {
        Self { bystanders, bystander_subscriptions, ..self }
    }
}

/// Where the servers of a run are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Endpoint {
    /// Agents: the socket that publishers attach to, and that of subscribers and bystanders.
    Ftb {
        /// Of the agent where events enter.
        publish: PathBuf,
        /// Of the agent where they are delivered.
        subscribe: PathBuf,
    },
    /// A NATS server; with a stream when `stream` says where to keep it.
    Nats {
        /// On loopback.
        port: u16,
        /// For JetStream.
        stream: Option<Storage>,
    },
    /// An MQTT broker.
    Mqtt {
        /// On loopback.
        port: u16,
        /// 0 or 1.
        qos: u8,
    },
    /// The plain relay.
    Plain {
        /// On loopback.
        port: u16,
    },
    /// A router of Zenoh.
    Zenoh {
        /// On loopback.
        port: u16,
        /// The library that speaks to it.
        library: PathBuf,
    },
}

/// All that a load process must know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Where.
    pub(crate) endpoint: Endpoint,
    /// What.
    pub(crate) load: Load,
    /// Messages in flight: published and not yet seen by the slowest subscriber, or not
    /// acknowledged.
    pub(crate) window: u64,
    /// Before measuring, in milliseconds.
    pub(crate) warm_up_ms: u64,
    /// Measured, in milliseconds.
    pub(crate) measure_ms: u64,
    /// Processes whose use of the machine is measured.
    pub(crate) servers: Vec<u32>,
}

/// What a load process saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// How long was measured, in nanoseconds.
    pub(crate) measured_ns: u64,
    /// Deliveries in that time, all subscribers together; acknowledgements without subscribers.
    pub(crate) delivered: u64,
    /// Messages published in the whole run.
    pub(crate) published: u64,
    /// What was wrong in the whole run.
    pub(crate) faults: Faults,
    /// Latencies in the measured time.
    pub(crate) latency: Latency,
    /// What the servers used in the measured time; memory as it was at its end.
    pub(crate) servers: Usage,
    /// What this load process used in the measured time.
    pub(crate) own: Usage,
    /// How long processors worked in the measured time for neither, in nanoseconds.
    pub(crate) other_ns: u64,
}

/// Latencies in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// How many.
    pub(crate) count: u64,
    /// Median.
    pub(crate) p50_ns: u64,
    /// 95 of 100 are not slower.
    pub(crate) p95_ns: u64,
    /// 99 of 100 are not slower.
    pub(crate) p99_ns: u64,
    /// 999 of 1000 are not slower.
    pub(crate) p999_ns: u64,
    /// The slowest.
    pub(crate) max_ns: u64,
}

impl Outcome {
    fn seconds(&self) -> f64 {
        self.measured_ns as f64 / 1e9
    }

    /// Deliveries a second, all subscribers together.
    pub(crate) fn deliveries_per_s(&self) -> f64 {
        self.delivered as f64 / self.seconds()
    }

    /// Processor time of the servers for one delivery, in microseconds.
    pub(crate) fn server_us_per_delivery(&self) -> f64 {
        self.servers.cpu_ns as f64 / 1e3 / self.delivered.max(1) as f64
    }

    /// Processor time of the load process, both ends of every connection, for one delivery, in
    /// microseconds.
    pub(crate) fn own_us_per_delivery(&self) -> f64 {
        self.own.cpu_ns as f64 / 1e3 / self.delivered.max(1) as f64
    }

    /// Cores that the servers kept busy.
    pub(crate) fn server_cores(&self) -> f64 {
        self.servers.cpu_ns as f64 / self.measured_ns.max(1) as f64
    }

    /// Cores that were busy with something else.
    pub(crate) fn other_cores(&self) -> f64 {
        self.other_ns as f64 / self.measured_ns.max(1) as f64
    }

    /// Times a second that a thread of the servers went to sleep.
    pub(crate) fn server_sleeps_per_s(&self) -> f64 {
        self.servers.sleeps as f64 / self.seconds()
    }
}
