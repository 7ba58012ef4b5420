//! The stage: real agents as a tree, a simulated BMC and an `ftb-ipmi` for every node.

use anyhow::{Context as _, Result};
use ftb_tests::bmc::{self, SimulatedBmc};
use ftb_tests::cluster::{Cluster, Plan, binary};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Everything that runs besides the job. Ends with the value.
pub(crate) struct Stage {
    /// The agents.
    pub(crate) cluster: Cluster,
    bmcs: Vec<SimulatedBmc>,
    publishers: Vec<Child>,
}

/// How often `ftb-ipmi` asks its BMC, and so the largest part of the time to notice.
pub(crate) const POLL: &str = "250ms";

impl Stage {
    /// Starts it and waits until the agents are one tree.
    pub(crate) async fn start(nodes: usize) -> Result<Self> {
        let cluster = Plan::new(nodes, 2).start().await?;
        let mut stage = Self { cluster, bmcs: Vec::new(), publishers: Vec::new() };
        for rank in 0..nodes {
            stage.bmcs.push(SimulatedBmc::start().context(
                "cannot start ipmi_sim (Debian's package openipmi has it): make demo installs it",
            )?);
            let publisher = stage.watch(rank)?;
            stage.publishers.push(publisher);
        }
        Ok(stage)
    }

    fn watch(&self, rank: usize) -> Result<Child> {
        let host = self.cluster.host(rank);
        let config: PathBuf = self.cluster.dir().join(format!("{host}-ipmi.toml"));
        let text = format!(
            "interval = \"{POLL}\"\n[agent]\nsocket = \"{}\"\n[[target]]\nbmc = \"{}\"\n\
             node = \"{host}\"\nuser = \"{}\"\npassword = \"{}\"\n",
            self.cluster.socket(rank).display(),
            self.bmcs[rank].address(),
            bmc::USER,
            bmc::PASSWORD,
        );
        bmc::write_private(&config, &text)?;
        let log = File::create(config.with_extension("log"))?;
        Command::new(binary("ftb-ipmi", "ftb-ipmi")?)
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("cannot start ftb-ipmi")
    }

    /// Stops a fan in the simulated BMC of a node.
    pub(crate) fn stop_fan(&self, rank: usize) -> Result<()> {
        self.bmcs[rank].set("cpu1_fan", 0).context("cannot stop the fan")
    }

    /// Kills what a person names to see that nothing hangs: an agent, a publisher, or the launch
    /// agent with that process id.
    pub(crate) fn kill(
        &mut self,
        what: &str,
        rank: usize,
        launch_agent: Option<u32>,
    ) -> Result<()> {
        match what {
            "agent" => self.cluster.crash(rank),
            "nla" => {
                let pid = launch_agent.context("that node has no launch agent")?;
                kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGKILL)?;
                Ok(())
            }
            _ => {
                self.publishers[rank].kill()?;
                self.publishers[rank].wait()?;
                Ok(())
            }
        }
    }

    /// Starts a killed service again, as systemd would; launch agents are no services.
    pub(crate) fn start_again(&mut self, what: &str, rank: usize) -> Result<()> {
        match what {
            "agent" => self.cluster.run(rank),
            "nla" => Ok(()),
            _ => {
                self.publishers[rank] = self.watch(rank)?;
                Ok(())
            }
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for child in &mut self.publishers {
            // It may have ended by itself; there is nothing to do then.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
