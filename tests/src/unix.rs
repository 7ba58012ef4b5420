//! Connections to Unix sockets.

use std::io::{ErrorKind, Result};
use std::path::Path;
use std::time::Duration;
use tokio::net::UnixStream;

/// Pause while the queue of the listener is full.
const QUEUE_FULL_PAUSE: Duration = Duration::from_millis(1);

/// Connects once the listener's queue has room. tokio's call alone fails then, which a program that
/// opens many connections at once meets.
///
/// # Errors
/// No process listens there.
pub async fn connect(socket: &Path) -> Result<UnixStream> {
    loop {
        match UnixStream::connect(socket).await {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                tokio::time::sleep(QUEUE_FULL_PAUSE).await;
            }
            connected => return connected,
        }
    }
}
