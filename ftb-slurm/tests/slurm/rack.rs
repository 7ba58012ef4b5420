//! ftb-act and ftb-slurm together beside a real slurmctld: one decision about what is drained.

use super::Site;
use anyhow::Result;
use ftb_client::{Condition, Severity, Start, Truth, event};
use ftb_tests::cluster::{Cluster, binary};
use ftb_tests::slurm::{self, Slurm};
use std::fs;
use std::process::{Child, Command, Stdio};

struct Act(Child);

impl Drop for Act {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing to do then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_act(site: &Site) -> Result<Act> {
    let dir = site.cluster.dir();
    let config = format!(
        "agent_socket = {:?}\nstate = {:?}\n[breaker]\nhosts = 8\npercent = 100\n\
         [[profile]]\nhosts = \"n[01-32]\"\nmode = \"drain\"\n\
         [[rule]]\nname = \"page\"\nconditions = [\"CHASSIS_OFF\"]\nthen = \"publish\"\n\
         event = \"site.act PAGE\"\ngroup_by = \"cluster\"\nwithin = \"1ms\"\n\
         [[rule]]\nname = \"off\"\nconditions = [\"CHASSIS_OFF\"]\nthen = \"drain\"\n\
         within = \"1ms\"\n",
        site.cluster.socket(0),
        dir.join("act-state"),
    );
    fs::write(dir.join("act.toml"), config)?;
    let log = fs::File::create(dir.join("act.log"))?;
    let mut command = Command::new(binary("ftb-act", "ftb-act")?);
    command.arg("run").arg("--config").arg(dir.join("act.toml")).stdin(Stdio::null());
    Ok(Act(command.stdout(Stdio::null()).stderr(log).spawn()?))
}

async fn state(site: &Site, host: &str, key: &str, truth: Truth) -> Result<()> {
    let condition =
        Condition { host: host.to_owned(), is_kept: true, ..Condition::new(key, truth) };
    let event = event("ftb.ipmi", "FTB_TEST")?.severity(Severity::Error);
    site.client.publish(event.condition(condition))?.confirmed().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_that_loses_power_is_one_page_and_no_drained_node_of_slurm() -> Result<()> {
    if !slurm::can_run() {
        return Ok(());
    }
    let cluster = Cluster::start(2, 2).await?;
    let slurm = Slurm::start_large(&cluster.dir().join("slurm"), "n[01-32]", 32).await?;
    let mut site = Site::of(cluster, slurm)?;
    site.configure("conditions = [\"OUT_OF_SERVICE\"]\n")?;
    site.start_bridge().await?;
    let mut pages = site.client.subscribe("event_space=site.act", Start::Now).await?;
    for number in 17..=32 {
        state(&site, &format!("n{number}"), "CHASSIS_OFF", Truth::True).await?;
    }
    let _act = start_act(&site)?;
    let page = super::next(&mut pages, "PAGE").await?;
    assert!(page[0].contains("\"hosts\":\"n[17-32]\""), "{page:?}");
    let log = || fs::read_to_string(site.cluster.dir().join("act.log")).unwrap_or_default();
    site.wait("the breaker", async || Ok(log().contains("breaker").then_some(()))).await?;
    // What a person takes out of service comes after all of that, and is drained alone.
    state(&site, "n01", "FANFAIL", Truth::True).await?;
    state(&site, "n02", "OUT_OF_SERVICE", Truth::True).await?;
    site.wait_node("n02", "drained~", "ftb:OUT_OF_SERVICE").await?;
    let drained = site.slurm.ask("sinfo", &["-h", "-t", "drain", "-o", "%N"])?;
    assert_eq!(drained, "n02");
    Ok(())
}
