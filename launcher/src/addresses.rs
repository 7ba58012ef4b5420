//! Where the nodes of a job listen, as the JL announces it.

use core::time::Duration;
use ftb_launcher_core::names::NodeName;
use std::collections::BTreeMap;
use tokio::sync::watch;

/// Where nodes of a job listen.
pub type Addresses = BTreeMap<NodeName, String>;
/// How long the address of a source may come after the request to copy from it.
const ADDRESS_WAIT: Duration = Duration::from_secs(5);

/// Waits for the address of a node.
///
/// # Errors
/// It does not come within `ADDRESS_WAIT`.
pub async fn address_of(
    node: &NodeName,
    mut known: watch::Receiver<Addresses>,
) -> Result<String, String> {
    let wait = known.wait_for(|known| known.contains_key(node));
    let known = tokio::time::timeout(ADDRESS_WAIT, wait).await.ok().and_then(Result::ok);
    let address = known.and_then(|known| known.get(node).cloned());
    address.ok_or_else(|| format!("node {node} has no connection"))
}
