//! Whether events prove who published them.
//!
//! Agents verify the signatures of events that move jobs and mark those that are valid. A program
//! that acts must not act on an event without that mark, where its agent demands signatures.
//!
//! Not responsible for: verifying a signature (the agent), and about whom a host may speak.

use crate::client::Client;
use ftb_proto::event::Received;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the local agent demands of events that move jobs, as it said last.
#[derive(Clone, Debug)]
pub struct Proofs {
    client: Client,
    are_required: Arc<AtomicBool>,
}

impl Proofs {
    /// Of the agent of this client.
    pub fn new(client: &Client) -> Self {
        let proofs = Self { client: client.clone(), are_required: Arc::default() };
        proofs.are_required();
        proofs
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Whether the agent demands signatures.
    pub fn are_required(&self) -> bool {
        if let Some(agent) = self.client.agent() {
            self.are_required.store(agent.requires_signatures, Ordering::Relaxed);
        }
        self.are_required.load(Ordering::Relaxed)
    }

    /// Whether an event that moves jobs must not be acted on: the agent demands a signature, and
    /// has found no valid one.
    pub fn is_missing(&self, received: &Received) -> bool {
        !received.is_verified && self.are_required()
    }

    /// Logs a warning if the agent demands no signatures: `what` the holder of the key of one agent
    /// can do then.
    pub fn warn_without(&self, what: &str) {
        if !self.are_required() {
            tracing::warn!(
                "the agent does not demand signatures: the holder of one agent can {what}"
            );
        }
    }
}
