//! Tells the core how this agent proves statements of conditions, for its reports.
//!
//! Not responsible for: proving them ([`crate::signing`]).

use crate::handle::Handle;
use crate::signing::Signing;
use ftb_core::node::api::Input;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Pause between two changes: unproven statements may come in a storm.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs until the agent stops. Without certificates there is nothing to report.
pub(crate) async fn report(signing: Arc<Signing>, handle: Handle, closing: CancellationToken) {
    let Some(mut changes) = signing.reports() else { return };
    let follow = async {
        loop {
            let report = Box::new(changes.borrow_and_update().clone());
            if handle.link_input(Input::Trust(report), 0).await.is_err() {
                return;
            }
            tokio::time::sleep(PAUSE).await;
            if changes.changed().await.is_err() {
                return;
            }
        }
    };
    closing.run_until_cancelled(follow).await;
}
