//! Questions to this node's agent: its status, and the tree.
//!
//! The replies are the wire's own messages: they are shown to people or written as JSON, nothing
//! is decided on them.

use crate::connection::{self, Ended};
use core::time::Duration;
use ftb_core::{EventId, limits};
use ftb_proto::event::wire_id;
use ftb_proto::v1;
use ftb_proto::v1::admin_client::AdminClient;
use std::path::Path;
use tokio::time::timeout;
use tonic::transport::Channel;

/// An agent that cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    /// No agent listens.
    #[error("no agent at {socket}: {why}")]
    NoAgent {
        /// Where.
        socket: String,
        /// What the attempt said.
        why: String,
    },
    /// It did not answer in time.
    #[error("the agent did not answer within {}", humantime(*.0))]
    Timeout(Duration),
    /// It answered with an error.
    #[error("the agent says: {0}")]
    Refused(String),
}

fn humantime(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

/// A connection for questions.
#[derive(Clone, Debug)]
pub struct Admin {
    client: AdminClient<Channel>,
    deadline: Duration,
}

impl Admin {
    /// Connects to the agent at that socket; every question has `deadline` for its answer.
    ///
    /// # Errors
    /// [`AdminError::NoAgent`], [`AdminError::Timeout`].
    pub async fn connect(socket: &Path, deadline: Duration) -> Result<Self, AdminError> {
        let no_agent = |why: Ended| match why {
            Ended::Silent => AdminError::Timeout(connection::CONNECT_MAX),
            why => {
                AdminError::NoAgent { socket: socket.display().to_string(), why: why.to_string() }
            }
        };
        let channel = connection::connect(socket).await.map_err(no_agent)?;
        let client = AdminClient::new(channel).max_decoding_message_size(limits::FRAME_BYTES_MAX);
        Ok(Self { client, deadline })
    }

    /// How the agent is.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn status(&mut self) -> Result<v1::StatusReply, AdminError> {
        let answer = self.client.status(v1::StatusRequest {});
        answered(self.deadline, answer).await
    }

    /// The whole tree; what the acting root knows, or (not complete) what this agent does.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn tree(&mut self) -> Result<v1::TreeReply, AdminError> {
        let timeout_ms = Some(self.patience_ms());
        answered(self.deadline, self.client.tree(v1::TreeRequest { timeout_ms })).await
    }

    /// The path of an event, as the agents remember it.
    ///
    /// # Errors
    /// [`AdminError`]; also when the user may not read the event.
    pub async fn trace(&mut self, event: EventId) -> Result<v1::EventTrace, AdminError> {
        let timeout_ms = Some(self.patience_ms());
        let request = v1::EventTraceRequest { event: Some(wire_id(event)), timeout_ms };
        let reply = answered(self.deadline, self.client.trace(request)).await?;
        Ok(reply.trace.unwrap_or_default())
    }

    /// The reports of all agents.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn reports(&mut self) -> Result<v1::ReportsReply, AdminError> {
        let timeout_ms = Some(self.patience_ms());
        answered(self.deadline, self.client.reports(v1::ReportsRequest { timeout_ms })).await
    }

    /// The agent has most of the time to ask others; some is left for its own answer.
    fn patience_ms(&self) -> u32 {
        u32::try_from(self.deadline.mul_f64(0.8).as_millis()).unwrap_or(u32::MAX)
    }
}

async fn answered<T>(
    deadline: Duration,
    answer: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, AdminError> {
    match timeout(deadline, answer).await {
        Err(_) => Err(AdminError::Timeout(deadline)),
        Ok(Err(status)) => Err(AdminError::Refused(status.message().to_owned())),
        Ok(Ok(reply)) => Ok(reply.into_inner()),
    }
}
