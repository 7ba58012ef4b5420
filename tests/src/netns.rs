//! Hosts as network namespaces on one bridge, whose ways to each other can be cut.
//!
//! Responsible for: namespaces, addresses, cuts. Not responsible for: what runs in them. Nothing
//! has a name outside: each namespace is held by a process that ends with this one, so nothing is
//! left behind even by a test that is killed, and tests that run at the same time do not meet. Cuts
//! are silent, as those of a real network: packets vanish without an error.

use anyhow::{Context as _, Result, ensure};
use nix::unistd::Uid;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Most hosts of one network.
pub const HOSTS_MAX: usize = 250;

/// In which direction a host is cut off from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It neither receives nor sends.
    Both,
    /// It does not receive.
    In,
    /// It does not send.
    Out,
}

/// Why there can be no network namespaces here; `None` when there can.
pub fn impossible() -> Option<String> {
    if !Uid::effective().is_root() {
        return Some("network namespaces need root".to_owned());
    }
    let found = |tool: &&&str| {
        let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
        folders.iter().any(|folder| Path::new(folder).join(tool).exists())
    };
    let missing: Vec<&&str> =
        ["ip", "nft", "nsenter", "unshare"].iter().filter(|tool| !found(tool)).collect();
    (!missing.is_empty()).then(|| format!("not installed: {missing:?}"))
}

/// Hosts on one bridge.
#[derive(Debug)]
pub struct Net {
    switch: Namespace,
    hosts: Vec<Namespace>,
    /// The second host of each pair does not hear the first.
    cuts: BTreeSet<(usize, usize)>,
}

impl Net {
    /// This number of hosts that reach each other.
    ///
    /// # Errors
    /// There can be no namespaces here: see [`impossible`].
    pub fn new(hosts: usize) -> Result<Self> {
        ensure!(hosts <= HOSTS_MAX, "at most {HOSTS_MAX} hosts");
        let switch = Namespace::new()?;
        switch.run("ip", "link add br0 type bridge\nlink set br0 up\n")?;
        let mut net = Self { switch, hosts: Vec::new(), cuts: BTreeSet::new() };
        for number in 0..hosts {
            let host = Namespace::new()?;
            let batch = format!(
                "link add name h{number} type veth peer name eth0 netns {}\n\
                 link set h{number} master br0\nlink set h{number} up\n",
                host.holder.id()
            );
            net.switch.run("ip", &batch)?;
            let batch = format!(
                "link set lo up\nlink set eth0 up\naddr add {}/24 dev eth0\n",
                net.address(number)
            );
            host.run("ip", &batch)?;
            net.hosts.push(host);
        }
        Ok(net)
    }

    /// The address of a host.
    pub fn address(&self, host: usize) -> String {
        format!("10.88.0.{}", host + 1)
    }

    /// What a command line begins with that is to run on that host; the process keeps its id.
    pub fn enter(&self, host: usize) -> Vec<String> {
        self.hosts[host].enter()
    }

    /// Host `to` hears no more of host `from`.
    ///
    /// # Errors
    /// The rules cannot be set.
    pub fn cut(&mut self, from: usize, to: usize) -> Result<()> {
        self.cuts.insert((from, to));
        self.apply(to)
    }

    /// Cuts a host off from all others.
    ///
    /// # Errors
    /// The rules cannot be set.
    pub fn isolate(&mut self, host: usize, way: Way) -> Result<()> {
        let others: Vec<usize> = (0..self.hosts.len()).filter(|other| *other != host).collect();
        if way != Way::Out {
            self.cuts.extend(others.iter().map(|other| (*other, host)));
            self.apply(host)?;
        }
        if way != Way::In {
            for other in others {
                self.cut(host, other)?;
            }
        }
        Ok(())
    }

    /// Cuts the network in two: these hosts, and all others.
    ///
    /// # Errors
    /// The rules cannot be set.
    pub fn split(&mut self, these: &[usize]) -> Result<()> {
        let all = 0..self.hosts.len();
        for (one, other) in all.clone().flat_map(|one| all.clone().map(move |other| (one, other))) {
            if these.contains(&one) != these.contains(&other) {
                self.cuts.insert((one, other));
            }
        }
        all.into_iter().try_for_each(|host| self.apply(host))
    }

    /// All hosts reach each other again.
    ///
    /// # Errors
    /// The rules cannot be set.
    pub fn heal(&mut self) -> Result<()> {
        self.cuts.clear();
        (0..self.hosts.len()).try_for_each(|host| self.apply(host))
    }

    /// Makes a host deaf for those that it shall not hear, at once for all of them.
    fn apply(&self, host: usize) -> Result<()> {
        let mut rules = "table ip cut\ndelete table ip cut\n".to_owned();
        let silenced = self.cuts.iter().filter(|(_, to)| *to == host);
        let silenced: Vec<String> = silenced.map(|(from, _)| self.address(*from)).collect();
        if !silenced.is_empty() {
            writeln!(
                rules,
                "table ip cut {{\nchain heard {{\ntype filter hook input priority 0;\n\
                 ip saddr {{ {} }} drop\n}}\n}}",
                silenced.join(", ")
            )?;
        }
        self.hosts[host].run("nft", &rules)
    }
}

/// A network namespace, and the process that holds it.
#[derive(Debug)]
struct Namespace {
    /// Reads its standard input until that ends: with this process at the latest.
    holder: Child,
}

impl Namespace {
    fn new() -> Result<Self> {
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start unshare")?;
        let stdout = holder.stdout.take();
        let namespace = Self { holder };
        let mut line = String::new();
        BufReader::new(stdout.context("it has an output")?).read_line(&mut line)?;
        ensure!(line == "\n", "unshare --net failed");
        Ok(namespace)
    }

    fn enter(&self) -> Vec<String> {
        let file = format!("--net=/proc/{}/ns/net", self.holder.id());
        vec!["nsenter".to_owned(), file, "--".to_owned()]
    }

    /// Runs `ip` or `nft` inside, with these commands.
    fn run(&self, tool: &str, commands: &str) -> Result<()> {
        let enter = self.enter();
        let batch: &[&str] = if tool == "ip" { &["-batch", "-"] } else { &["-f", "-"] };
        let mut child = Command::new(&enter[0])
            .args(&enter[1..])
            .arg(tool)
            .args(batch)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("it has an input")?.write_all(commands.as_bytes())?;
        let output = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{tool} failed: {said}for: {commands}");
        Ok(())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing to do then.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
