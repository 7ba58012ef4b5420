//! `ftb-ipmi` for the simulated BMC of one node.

use super::Site;
use anyhow::Result;
use ftb_tests::bmc::{self, PASSWORD, SimulatedBmc, USER};
use ftb_tests::cluster::{binary, tied};
use std::process::{Child, Command};

/// It ends with the test.
pub struct Publisher(Child);

impl Publisher {
    /// `rank`: of the agent where it publishes. `rules`: further lines of its configuration.
    pub fn start(
        site: &Site,
        (rank, node): (usize, &str),
        bmc: &SimulatedBmc,
        rules: &str,
    ) -> Result<Self> {
        let (socket, address) = (site.cluster.socket(rank).display(), bmc.address());
        let text = format!(
            "interval = '250ms'\nagent_socket = '{socket}'\n\
             [[target]]\nbmc = '{address}'\nnode = '{node}'\nuser = '{USER}'\n\
             password = '{PASSWORD}'\ncipher_suite = 3\ntimeout = '1s'\n{rules}"
        );
        let path = site.cluster.dir().join(format!("ipmi-{node}.toml"));
        bmc::write_private(&path, &text)?;
        let mut command = Command::new(binary("ftb-ipmi", "ftb-ipmi")?);
        command.arg("--config").arg(path);
        Ok(Self(tied(&command).spawn()?))
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
