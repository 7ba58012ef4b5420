//! `criu`: unmodified programs. The ranks of a node live in a pod with its own namespaces and
//! address ([`crate::pod`]). CRIU writes all of them into one image, and the address moves with it.
//!
//! The network is cut by taking the pod's link off its bridge, not by CRIU. Nothing reaches the pod
//! during the dump, and no host answers for its address with a reset until its sockets exist again.
//! TCP repeats what was lost.
//!
//! TCP never repeats a reset. So a checkpoint cuts pods only while all ranks of the job are
//! stopped: [`Moment::Prepare`] leaves the network alone, [`Moment::Save`] cuts it. After the cut
//! each pod probes its connections.

use super::{
    Backend, Manner, Moment, Moves, Need, PARENT, PodPlace, STEP_DEADLINE, Saver, Step, Unit,
    nsenter_words, work_dir,
};
use core::net::Ipv4Addr;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Path of the CRIU that `install-criu.sh` installs.
pub(super) const OWN_CRIU: &str = "/usr/local/lib/ftb/criu/criu";
/// Environment variable that names the CRIU to use.
pub(super) const CRIU_ENV: &str = "FTB_CRIU";
/// The files of the pod's /dev/shm, in the image.
const SHM: &str = "shm.tar";
/// The script that CRIU calls, in the directory of its logs.
const ON_DUMP: &str = "on-dump";
/// Longest name of a network link (the kernel's limit).
const LINK_BYTES_MAX: usize = 15;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Criu {
    /// Default: [`CRIU_ENV`], then [`OWN_CRIU`] if it exists, then `criu`.
    program: PathBuf,
    /// A bridge on each node, all of them joined. Default: the job's own, for nodes on one host.
    bridge: Option<String>,
    /// First address of the pods' network.
    network: Ipv4Addr,
    prefix: u8,
    /// If the kernel tracks memory changes, moving ranks with at least this much memory are copied
    /// while they run, in MiB.
    precopy_from_mib: u64,
    /// Of one dump or restore.
    #[serde(with = "humantime_serde")]
    deadline: Duration,
    /// Default environment of the ranks. UCX must use TCP: it would find the shared memory of other
    /// pods on the host, which cannot move. It must not give up a peer after 16 s of silence.
    env: BTreeMap<String, String>,
}

impl Default for Criu {
    fn default() -> Self {
        Self {
            program: default_program(),
            bridge: None,
            network: Ipv4Addr::new(10, 198, 0, 0),
            prefix: 16,
            precopy_from_mib: 32,
            deadline: STEP_DEADLINE,
            env: [("UCX_TLS", "tcp,self"), ("UCX_TCP_KEEPIDLE", "inf")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        }
    }
}

fn default_program() -> PathBuf {
    let named = std::env::var_os(CRIU_ENV).filter(|value| !value.is_empty());
    let own = || Some(OWN_CRIU).filter(|path| Path::new(path).exists());
    named.or_else(|| own().map(Into::into)).unwrap_or_else(|| "criu".into()).into()
}

impl Criu {
    /// Rejects settings that can never work.
    pub(super) fn check(&self) -> Result<(), String> {
        if !(8..=30).contains(&self.prefix) {
            return Err(format!("prefix: {} is not between 8 and 30", self.prefix));
        }
        if self.deadline.is_zero() {
            return Err("deadline: every dump would fail at once".to_owned());
        }
        let hosts = (1_u32 << (32 - self.prefix)) - 1;
        if u32::from(self.network) & hosts != 0 {
            return Err(format!(
                "network: {} is no first address of a /{}",
                self.network, self.prefix
            ));
        }
        let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        match &self.bridge {
            Some(name)
                if name.is_empty() || name.len() > LINK_BYTES_MAX || !name.chars().all(good) =>
            {
                Err(format!("bridge: {name:?} is no name of a network link"))
            }
            _ => Ok(()),
        }
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The bridge that the user has named.
    pub fn bridge(&self) -> Option<&str> {
        self.bridge.as_deref()
    }

    /// The addresses of the pods on this many nodes, in the order of the nodes. On a shared bridge
    /// `mark` selects a block of the network; on its own bridge a job has the first block.
    ///
    /// # Errors
    /// The network is too small.
    pub fn addresses(&self, nodes: usize, mark: u32) -> Result<Vec<Ipv4Addr>, String> {
        // The first and the last address of a network are reserved.
        let usable = (1_u32 << (32 - self.prefix)) - 2;
        let nodes =
            u32::try_from(nodes).ok().filter(|nodes| *nodes <= usable).ok_or_else(|| {
                let (network, prefix) = (self.network, self.prefix);
                format!(
                    "network {network}/{prefix} has addresses for {usable} nodes, not for {nodes}"
                )
            })?;
        let blocks = usable / nodes.max(1);
        let block = if self.bridge.is_some() { mark % blocks } else { 0 };
        let first = u32::from(self.network) + 1 + block * nodes;
        Ok((first..first + nodes).map(Ipv4Addr::from).collect())
    }

    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Least memory in bytes for a copy beforehand.
    pub fn precopy_from_bytes(&self) -> u64 {
        self.precopy_from_mib.saturating_mul(1 << 20)
    }

    /// Default environment of the ranks.
    pub fn env(&self) -> Vec<(String, String)> {
        self.env.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    fn step(&self, name: &'static str, argv: Vec<String>) -> Step {
        Step { name, argv, deadline: self.deadline, piped: false }
    }

    /// CRIU does not write files of a /dev/shm outside the image's namespaces. A script that CRIU
    /// calls saves them while all processes are frozen.
    fn dump(&self, pod: &PodPlace<'_>, unit: &Unit<'_>, leave: bool) -> Vec<Step> {
        let script = work_dir(unit.image).join(ON_DUMP).display().to_string();
        let text = format!(
            "#!/bin/sh\n[ \"$CRTOOLS_SCRIPT_ACTION\" = post-dump ] || exit 0\n\
             for file in /dev/shm/* /dev/shm/.[!.]* /dev/shm/..?*; do\n\
             if [ -e \"$file\" ] || [ -L \"$file\" ]; then\n\
             exec tar -C /dev/shm -cf '{}' .; fi\ndone",
            unit.image.join(SHM).display()
        );
        let write = "printf '%s\\n' \"$2\" >\"$1\" && chmod 700 \"$1\"";
        let written = work_dir(unit.here).join(ON_DUMP).display().to_string();
        let prepare = owned(&["sh", "-c", write, "sh", &written, &text]);
        let mut argv = self.inside(pod, "dump");
        argv.extend(["--tree".to_owned(), unit.pid.to_string()]);
        argv.extend(common(unit, unit.image, "dump.log"));
        argv.extend(["--action-script".to_owned(), script]);
        if !leave {
            argv.push("--leave-running".to_owned());
        }
        if unit.here.join(PARENT).exists() {
            argv.extend(owned(&["--track-mem", "--prev-images-dir", PARENT]));
        }
        vec![
            self.step("cut the pod's network", link(unit, false)),
            self.step("prepare the dump", prepare),
            self.step("dump the pod", argv),
        ]
    }

    /// Copies the memory of the running pod; the kernel tracks later changes.
    fn precopy(&self, pod: &PodPlace<'_>, unit: &Unit<'_>) -> Step {
        let mut argv = self.inside(pod, "pre-dump");
        argv.extend(["--tree".to_owned(), unit.pid.to_string(), "--track-mem".to_owned()]);
        argv.extend(common(unit, &unit.image.join(PARENT), "pre-dump.log"));
        self.step("copy memory beforehand", argv)
    }

    /// The supervisor's pipes arrive as standard input and output; CRIU needs other numbers.
    fn revive(&self, pod: &PodPlace<'_>, unit: &Unit<'_>) -> Vec<String> {
        let mut argv = owned(&["sh", "-c", "exec \"$@\" 5<&0 6>&1 </dev/null >&2", "sh"]);
        argv.extend(self.inside(pod, "restore"));
        argv.push("--restore-detached".to_owned());
        argv.extend(common(unit, unit.image, "restore.log"));
        let (to, from) = pod.pipes;
        for (number, inode) in [(5, to), (6, from)] {
            argv.extend(["--inherit-fd".to_owned(), format!("fd[{number}]:pipe:[{inode}]")]);
        }
        argv
    }

    /// Runs CRIU inside the pod's mounts, network and processes, but not in its IPC namespace,
    /// which belongs to the image.
    fn inside(&self, pod: &PodPlace<'_>, action: &str) -> Vec<String> {
        let mut argv = vec!["nsenter".to_owned()];
        argv.extend(nsenter_words(pod.holder, pod.pause));
        argv.push(self.program.display().to_string());
        argv.push(action.to_owned());
        argv.extend(pod.holder.map(|_| "--unprivileged".to_owned()));
        argv
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Options of dump and restore: the image, established TCP connections, unlinked files and locks.
/// CRIU insists on a network lock although the pod is cut off.
fn common(unit: &Unit<'_>, images: &Path, log: &str) -> Vec<String> {
    let image = images.display().to_string();
    let work = work_dir(unit.image).display().to_string();
    let words = [
        "--images-dir",
        &image,
        "--work-dir",
        &work,
        "--log-file",
        log,
        "-v2",
        "--tcp-established",
        "--network-lock",
        "nftables",
        "--file-locks",
        "--ghost-limit",
        "1G",
        "--manage-cgroups=ignore",
    ];
    owned(&words)
}

/// Takes the pod's link off its bridge, or joins it. The carrier stays, so that programs still find
/// their network.
fn link(unit: &Unit<'_>, talks: bool) -> Vec<String> {
    let (link, bridge) = unit.pod.as_ref().map_or(("", ""), |pod| (pod.link, pod.bridge));
    let end: &[&str] = if talks { &["master", bridge] } else { &["nomaster"] };
    let words = ["ip", "link", "set", "dev", link];
    words.iter().chain(end).map(|&word| word.to_owned()).collect()
}

impl Backend for Criu {
    fn name(&self) -> &'static str {
        "criu"
    }

    fn manner(&self) -> Manner {
        Manner { saver: Saver::Agent, moves: Moves::Alone }
    }

    fn needs(&self) -> Vec<Need> {
        let need = |program: &str, way_out| Need { program: program.into(), way_out };
        let criu = Need {
            program: self.program.clone(),
            way_out: "run deploy/dev/install-criu.sh, or name one with FTB_CRIU or `program`",
        };
        vec![
            criu,
            need("ip", "install iproute2"),
            need("nft", "install nftables"),
            need("nsenter", "install util-linux"),
            need("tar", "install tar"),
        ]
    }

    fn steps(&self, moment: Moment, unit: &Unit<'_>) -> Vec<Step> {
        let Some(pod) = &unit.pod else {
            return Vec::new();
        };
        match moment {
            Moment::Precopy => vec![self.precopy(pod, unit)],
            Moment::Release => vec![self.step("join the pod's network", link(unit, true))],
            Moment::Prepare | Moment::Verify => Vec::new(),
            Moment::Save { leave } => self.dump(pod, unit, leave),
            Moment::Unpack if !unit.here.join(SHM).exists() => Vec::new(),
            Moment::Unpack => {
                let (pause, shm) = (pod.pause.to_string(), unit.image.join(SHM));
                let shm = shm.display().to_string();
                let words = [
                    "nsenter", "--target", &pause, "--mount", "--", "tar", "-C", "/dev/shm", "-xf",
                    &shm,
                ];
                vec![self.step("bring /dev/shm back", owned(&words))]
            }
            Moment::Restore => {
                let mut step = self.step("restore the pod", self.revive(pod, unit));
                step.piped = true;
                vec![step]
            }
        }
    }
}
