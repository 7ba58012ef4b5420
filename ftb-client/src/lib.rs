//! The client library of ftb: publish fault events, subscribe to those of the whole cluster.
//!
//! A [`Client`] attaches to the agent of its own node over a Unix socket. Publishing never waits
//! and never fails because no agent is there: events are kept in a bounded buffer until they are
//! confirmed at the requested level, and sent again to a restarted agent. A [`Subscription`]
//! is active in the whole tree when it is returned, gives each matching event once, in one order,
//! and tells a gap where something is missing.
//!
//! - [`Client`], [`ClientConfig`], [`Subscription`]: for tokio programs;
//! - [`blocking`]: the same for all others;
//! - [`event()`]: makes events;
//! - [`conditions`]: what is true now; [`silences`]: where no program acts on it;
//! - [`proofs`]: on which events a program may act;
//! - [`json`]: events, gaps, conditions and agents as JSON objects;
//! - [`admin`]: requests the status of an agent and of the tree;
//! - [`daemon`]: logs, signals, systemd and exit codes for the `main` of a daemon.
//!
//! Responsible for: one attachment to one agent. Not responsible for: the tree, delivery between
//! nodes; the keys of configuration files ([`daemon`] only loads them).
#![forbid(unsafe_code)]

mod ack_interest;
pub mod admin;
pub mod batch;
pub mod blocking;
mod chunk;
pub mod client;
mod completion;
pub mod conditions;
pub mod config;
mod connection;
pub mod daemon;
pub mod error;
pub mod event;
mod fair_queue;
mod inbox;
mod outbox;
pub mod proofs;
mod receipt;
mod recent;
mod session;
mod shared;
pub mod silences;
mod socket_watch;
mod statements;
mod stream;
pub mod subscription;

pub use batch::Batch;
pub use client::{Agent, Client, ClientBuilder, Stats};
pub use conditions::{ConditionState, ConditionUpdate, Conditions, Health, Watchers, clear_former};
pub use config::{ClientConfig, default_socket};
pub use error::{ConfigError, PublishError, SubscribeError, Unconfirmed, WaitError};
pub use event::{EventBuilder, event, now_ns};
pub use proofs::Proofs;
pub use receipt::{Receipt, Receipts};
pub use silences::{Silence, SilenceError};
pub use subscription::{Deliveries, Delivery, Subscription};

pub use ftb_core::condition::{
    Condition, ConditionError, RecommendedAction, SILENCED, Subject, Truth, WATCHED,
};
pub use ftb_core::event::EventError;
pub use ftb_core::filter::{Filter, FilterError};
pub use ftb_core::node::api::{Gap, GapReason, Start};
pub use ftb_core::space::NameError;
pub use ftb_core::spaces::Spaces;
pub use ftb_core::{
    ConfirmLevel, Event, EventId, EventKind, EventName, EventRef, EventSpace, Position,
    PublisherId, Severity, Tag, limits,
};
pub use ftb_proto::event::{EventBatch, EventView, Received, Stated, Tags};
pub use ftb_proto::json;
