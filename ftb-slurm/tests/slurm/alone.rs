//! slurm-health and slurm-prolog, as slurmd runs them, without and with a bridge.

use super::{BRIDGE, REASON, Site};
use anyhow::{Context as _, Result};
use ftb_client::Truth;
use ftb_tests::cluster::Cluster;
use ftb_tests::slurm::{self, Slurm};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// A shipped script as it is installed, called with the environment of this test: Slurm gives its
/// programs none.
fn install(name: &str, cluster: &Cluster) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/slurm").join(name);
    let programs = Path::new(BRIDGE).parent().context("it is in a folder")?;
    let text = fs::read_to_string(source)?.replace("@BINDIR@", &programs.display().to_string());
    let wrapper = format!(
        "#!/bin/sh\nexport SLURM_CONF={}/slurm/slurm.conf FTB_AGENT_SOCKET={}\n\
         exec {}/shipped-{name}\n",
        cluster.dir().display(),
        cluster.socket(1).display(),
        cluster.dir().display(),
    );
    let path = cluster.dir().join(name);
    for (path, text) in
        [(cluster.dir().join(format!("shipped-{name}")), text), (path.clone(), wrapper)]
    {
        fs::write(&path, text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(path)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_slurmd_drains_without_a_bridge_is_resumed_by_it() -> Result<()> {
    if !slurm::can_run() {
        return Ok(());
    }
    let cluster = Cluster::start(2, 2).await?;
    // Several slurmd on one host cannot pass messages on to each other. Health checks in every
    // second leave slurmctld no time to ping a node that was resumed: it would stay `idle*`.
    let lines = format!(
        "TreeWidth=65533\nHealthCheckProgram={}\nHealthCheckInterval=3\nProlog={}\n",
        install("slurm-health", &cluster)?.display(),
        install("slurm-prolog", &cluster)?.display(),
    );
    let dir = cluster.dir().join("slurm");
    let slurm = Slurm::start_with(&dir, &["node01", "node02"], &lines).await?;
    let mut site = Site::of(cluster, slurm)?;
    // No bridge watches Slurm: HealthCheckProgram drains the node.
    site.state(&["node02"], Truth::True).await?;
    site.wait_node("node02", "drained", REASON).await?;
    site.start_bridge().await?;
    site.state(&["node02"], Truth::False).await?;
    site.wait_node("node02", "idle", "none").await?;
    // One watches, even if it only observes: slurmd logs why the node is unhealthy, and no more.
    site.kill_bridge();
    site.configure("observe = true\n")?;
    site.start_bridge().await?;
    let said = format!("health_check failed: rc:1 output:unhealthy: {REASON}");
    let times = || site.slurm.logs().matches(&said).count();
    let watched = async || Ok(site.log().contains("FTB_SLURM_WATCHING").then_some(()));
    site.wait("the watch", watched).await?;
    let before = times();
    site.state(&["node02"], Truth::True).await?;
    site.wait("the line of slurmd", async || Ok((times() > before).then_some(()))).await?;
    site.wait_node("node02", "idle", "none").await?;
    // The prolog lets no job begin, and leaves the reason by which the bridge resumes the node.
    let words = ["--parsable", "--output=/dev/null", "--nodelist=node02", "--wrap=true"];
    let job = site.slurm.ask("sbatch", &words)?;
    site.wait_node("node02", "drained", REASON).await?;
    site.kill_bridge();
    let config = site.cluster.dir().join("slurm.toml");
    fs::write(&config, fs::read_to_string(&config)?.replace("observe = true\n", ""))?;
    site.start_bridge().await?;
    site.state(&["node02"], Truth::False).await?;
    site.wait_node("node02", "idle", "none").await?;
    let is = async |word: &str| {
        let shown = async || site.slurm.ask("scontrol", &["-o", "show", "job", &job]);
        site.wait(word, async || Ok(shown().await?.contains(word).then_some(()))).await
    };
    is("Reason=launch_failed_requeued_held").await?;
    site.slurm.ask("scontrol", &["release", &job])?;
    // Slurm lets a requeued job wait for two minutes.
    site.slurm.ask("scontrol", &["update", &format!("jobid={job}"), "starttime=now"])?;
    is("JobState=COMPLETED").await
}
