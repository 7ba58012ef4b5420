//! A cluster whose acting root spreads a statement that no host has signed, as the holder of its
//! key can.
//!
//! The statement is in the journal of the root from a time without certificates, and the root alone
//! demands no signatures. Not responsible for: what becomes of the statement elsewhere.

use crate::cluster::{Cluster, Plan, binary};
use anyhow::{Result, ensure};
use std::process::Command;

/// Two agents with certificates. The journal of the first one holds that a condition with this key
/// is true on a host: an ERROR of `ftb.ipmi`.
///
/// # Errors
/// The agents do not start, or the statement is refused.
pub async fn start(plan: Plan, host: &str, component: &str, key: &str) -> Result<Cluster> {
    let mut cluster = plan.certified().prepare()?;
    let config = cluster.config(0).to_owned();
    let journal = cluster.dir().join("root.journal").display().to_string();
    let strict = std::fs::read_to_string(&config)? + &format!("\n[journal]\npath = {journal:?}\n");
    let tls = strict.split("\n[tls]\n").nth(1).and_then(|rest| rest.split("\n[").next());
    let open = strict
        .replace(&format!("\n[tls]\n{}", tls.unwrap_or_default()), "\n")
        .replace("insecure = false", "insecure = true");
    std::fs::write(&config, open)?;
    cluster.run(0)?;
    cluster.wait_whole().await?;
    let mut ftbctl = Command::new(binary("ftbctl", "ftbctl")?);
    ftbctl.arg("--agent").arg(cluster.socket(0)).args(["publish", "ftb.ipmi", "FTB_TEST"]);
    ftbctl.args(["-s", "error", "--host", host, "--component", component, "--condition", key]);
    let output = ftbctl.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    cluster.stop(0).await?;
    let lenient = "insecure = false\nrequire_signatures = false";
    std::fs::write(&config, strict.replace("insecure = false", lenient))?;
    for rank in 0..cluster.len() {
        cluster.run(rank)?;
    }
    cluster.wait_whole().await?;
    Ok(cluster)
}
