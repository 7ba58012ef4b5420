//! Refuses a second job of the same user and name, because the jobs would act on each other's
//! events. Within one directory of jobs the directory shows the other job; elsewhere FTB_JL_ALIVE
//! of its launcher does.

use super::{backplane, waiting};
use core::time::Duration;
use ftb_client::{Delivery, Received, Start};
use ftb_core::catalog::names;
use ftb_launcher_core::jl;
use ftb_launcher_core::names::JobId;
use ftb_launcher_core::wire;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// A launcher without a message for this long is gone.
const SILENCE: Duration = jl::ALIVE.saturating_mul(3);

/// Checks whether a launcher of this user runs a job of that name. Returns at once if no launcher
/// spoke within `SILENCE`; otherwise waits that long for its next message.
///
/// # Errors
/// Where the other job runs and what to do, or that there is no agent.
pub async fn check(agent: &Path, job: &JobId) -> Result<(), String> {
    let client = backplane::attach("ftb-launch-ask", agent, job.as_str()).await?;
    let filter = format!("event_space={}, jobid={job}", wire::SPACE_JL);
    let since = SystemTime::now().checked_sub(SILENCE).unwrap_or(UNIX_EPOCH);
    let since_ns = since.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let start = Start::SinceNs(u64::try_from(since_ns).unwrap_or(u64::MAX));
    let mut said = backplane::subscribe_own(&client, &filter, start).await?;
    let mut lives = false;
    let what = format!("the agent to look back for another launcher of job {job}");
    waiting::on(&what, async {
        while let Some(delivery) = said.next_of_past().await {
            if let Some(received) = own(delivery) {
                lives = word(&received).unwrap_or(lives);
            }
        }
    })
    .await;
    let again = async {
        while let Some(delivery) = said.next().await {
            let received = own(delivery);
            match received.as_deref().and_then(word) {
                Some(true) => return received.map(|received| received.host),
                Some(false) => return None,
                None => {}
            }
        }
        None
    };
    let what = format!("the next word of another launcher of job {job}");
    let again = waiting::on(&what, tokio::time::timeout(SILENCE, again));
    let host = if lives { again.await.ok().flatten() } else { None };
    backplane::close(client).await;
    match host {
        None => Ok(()),
        Some(host) => Err(format!(
            "a job {job} of yours runs already, its launcher on {host}: give this one another \
             name (--job)"
        )),
    }
}

/// An event of this user.
fn own(delivery: Delivery) -> Option<Box<Received>> {
    match delivery {
        Delivery::Event(received) => {
            Some(received).filter(|it| it.uid == nix::unistd::Uid::effective().as_raw())
        }
        Delivery::Gap(_) => None,
    }
}

/// Whether a launcher's message shows that it lives (`true`), or is its last (`false`).
fn word(received: &Received) -> Option<bool> {
    let event = &received.event;
    match event.name.as_str() {
        names::FTB_JL_ALIVE => Some(true),
        names::FTB_JL_EPISODE if event.tag("kind") == Some("end") => Some(false),
        _ => None,
    }
}
