//! A bridge that joins the pods of all hosts, as an administrator would have made it.

use anyhow::{Result, ensure};
use std::path::Path;
use std::process::Command;

/// See the module. It goes away with it.
pub struct Bridge(String);

impl Bridge {
    /// `word`: what tells it from others of this test program.
    pub fn new(word: &str) -> Result<Self> {
        let name = format!("t{word}{}", std::process::id());
        for words in [
            ["link", "add", "name", &name, "type", "bridge"].as_slice(),
            &["link", "set", "dev", &name, "up"],
        ] {
            ensure!(Command::new("ip").args(words).status()?.success(), "ip {words:?}");
        }
        Ok(Self(name))
    }

    /// Lines of a backend file: pods hang on it, with addresses of that network.
    pub fn backend(&self, network: &str, prefix: u8) -> String {
        format!("bridge = {:?}\nnetwork = {network:?}\nprefix = {prefix}\n", self.0)
    }

    /// How many pods hang on it.
    pub fn ports(&self) -> Result<usize> {
        let ports = std::fs::read_dir(Path::new("/sys/class/net").join(&self.0).join("brif"))?;
        Ok(ports.count())
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        // Its ports go with the pods.
        let _ = Command::new("ip").args(["link", "del", "dev", &self.0]).status();
    }
}
