//! Conditions of hung ranks: who may state them, and those that dead launch agents of this node
//! have left.

use crate::clock::Clock;
use core::time::Duration;
use ftb_client::{Client, Conditions, SubscribeError};
use ftb_core::condition::Truth;
use ftb_launcher_core::nla::{HUNG, NlaInput, StatedHang};
use tokio::sync::mpsc;

/// Only root may state conditions.
pub(crate) fn are_stated() -> bool {
    nix::unistd::Uid::effective().is_root()
}

/// Reads them in the background.
pub(crate) fn read_left(client: &Client, clock: Clock, inputs: &mpsc::Sender<NlaInput>) {
    if !are_stated() {
        return;
    }
    let (client, inputs) = (client.clone(), inputs.clone());
    tokio::spawn(async move {
        match left(&client, clock).await {
            Ok(stated) if stated.is_empty() => {}
            Ok(stated) => drop(inputs.send(NlaInput::Stated(stated)).await),
            Err(error) => tracing::warn!(%error, "conditions of dead launch agents may remain"),
        }
    });
}

async fn left(client: &Client, clock: Clock) -> Result<Vec<StatedHang>, SubscribeError> {
    let (Some(own), Some(agent)) = (client.publisher(), client.agent()) else {
        return Ok(Vec::new());
    };
    let filter = format!("subject={}, condition={HUNG}", agent.host);
    let mut conditions = Conditions::open(client, &filter).await?;
    conditions.load().await?;
    let now_ns = clock.now().wall_ns;
    let of_former = conditions.states().filter(|state| {
        let former = state.source.publisher;
        former.account == own.account && former != own && state.truth != Truth::False
    });
    let stated = of_former.map(|state| StatedHang {
        component: state.subject.component().to_owned(),
        unknown_for: (state.truth == Truth::Unknown)
            .then(|| Duration::from_nanos(now_ns.saturating_sub(state.changed_ns))),
    });
    Ok(stated.collect())
}
