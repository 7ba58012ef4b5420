//! Possible remains of a job on a host, each kind looked for by name: processes, namespaces,
//! network links, tables of the packet filter, mounts, control groups, shared memory, directories.

use super::{Site, text};
use anyhow::{Context as _, Result, ensure};
use ftb_tests::cluster::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Names of kinds that the host has as a whole, and others change too: only what is new and ours
/// counts.
type Names = BTreeSet<String>;

/// Facts about a running job.
pub struct Traces {
    jobs: PathBuf,
    images: Vec<PathBuf>,
    /// Its bridges, and what the names of its links begin with.
    links: Names,
    namespaces: Names,
    tables: Names,
    groups: Names,
    shared: Names,
}

/// The state of the host before a job.
pub struct Before {
    tables: Names,
    groups: Names,
    shared: Names,
}

impl Before {
    pub fn of_host() -> Result<Self> {
        Ok(Self { tables: tables()?, groups: groups(), shared: names_in("/dev/shm") })
    }

    /// The traces of a job that runs.
    pub fn traces(self, site: &Site, job: &str) -> Result<Traces> {
        let jobs = site.jobs.path().to_owned();
        let file = std::fs::read(jobs.join(job).join("job.json"))?;
        let file: serde_json::Value = serde_json::from_slice(&file)?;
        let specs = file["specs"].as_object().context("a job without nodes")?;
        let mut links = Names::new();
        let mut images = Vec::new();
        for spec in specs.values() {
            images.push(PathBuf::from(spec["image_dir"].as_str().context("no directory")?));
            links.extend(spec["pod"]["bridge"].as_str().map(str::to_owned));
        }
        for bridge in links.clone() {
            let ports = Path::new("/sys/class/net").join(bridge).join("brif");
            links.extend(names_in(&ports.display().to_string()));
        }
        let own = own_namespaces("self")?;
        let mut namespaces = Names::new();
        for pid in processes(&jobs) {
            // One that has just ended has none.
            namespaces.extend(own_namespaces(&pid.to_string()).unwrap_or_default());
        }
        let namespaces = namespaces.difference(&own).cloned().collect();
        let Self { tables, groups, shared } = self;
        Ok(Traces { jobs, images, links, namespaces, tables, groups, shared })
    }
}

impl Traces {
    /// Whether the job has what only pods have.
    pub fn has_pods(&self) -> bool {
        !self.links.is_empty() && !self.namespaces.is_empty()
    }

    /// The remains of the job, one a line; of directories, those of the nodes.
    fn left(&self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        let mut note = |kind: &str, what: &mut dyn Iterator<Item = String>| {
            left.extend(what.map(|what| format!("{kind} {what}")));
        };
        note("process", &mut processes(&self.jobs).into_iter().map(words_of));
        let all = all_namespaces();
        note("namespace", &mut self.namespaces.intersection(&all).cloned());
        let links = names_in("/sys/class/net");
        note("link", &mut self.links.intersection(&links).cloned());
        note("table", &mut tables()?.difference(&self.tables).filter(criu).cloned());
        note("control group", &mut groups().difference(&self.groups).filter(criu).cloned());
        let shared = names_in("/dev/shm");
        note("shared memory", &mut shared.difference(&self.shared).filter(criu).cloned());
        let mounts = std::fs::read_to_string("/proc/self/mounts")?;
        let dir = self.jobs.display().to_string();
        let ours = mounts.lines().filter(|line| line.contains(&dir)).map(str::to_owned);
        note("mount", &mut ours.into_iter());
        let dirs = self.images.iter().filter(|dir| dir.exists());
        note("directory", &mut dirs.map(|dir| dir.display().to_string()));
        Ok(left)
    }

    /// Waits until nothing of the job is left, but for its own directory with its sets.
    pub async fn gone(&self) -> Result<()> {
        let waited = wait_for("nothing of the job to be left", async || {
            Ok(self.left()?.is_empty().then_some(()))
        });
        waited.await.with_context(|| format!("left: {:#?}", self.left().unwrap_or_default()))
    }

    /// Kinds of which something is left.
    pub fn kinds_left(&self) -> Result<Names> {
        let kind = |line: String| line.split(' ').next().unwrap_or_default().to_owned();
        Ok(self.left()?.into_iter().map(kind).collect())
    }

    /// Kills every process of the job, with no word to any of them, until there is none.
    pub async fn kill_everything(&self) -> Result<()> {
        let processes = || processes(&self.jobs);
        ensure!(!processes().is_empty(), "there is nothing to kill");
        // Stopped first, so that none sees another one die.
        for signal in [Signal::SIGSTOP, Signal::SIGKILL] {
            for pid in processes() {
                let _ = kill(pid, signal);
            }
        }
        wait_for("everything to be dead", async || {
            let left = processes();
            for pid in &left {
                let _ = kill(*pid, Signal::SIGKILL);
            }
            Ok(left.is_empty().then_some(()))
        })
        .await
    }
}

/// How many processes of the site's jobs have a command line that begins so.
pub fn count(site: &Site, line: &str) -> usize {
    let is = |pid: &Pid| words_of(*pid).starts_with(line);
    processes(site.jobs.path()).iter().filter(|pid| is(pid)).count()
}

fn criu(name: &&String) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("criu") || name.contains("ftb")
}

/// All processes whose environment says that their job is in that directory: launcher, launch
/// agents, guards, pods, ranks.
fn processes(jobs: &Path) -> Vec<Pid> {
    let word = format!("FTB_JOBS_DIR={}\0", jobs.display());
    let entries = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let of = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let environ = std::fs::read(entry.path().join("environ")).ok()?;
        // A zombie has none: it is its parent's business.
        text(&environ).contains(&word).then_some(Pid::from_raw(pid))
    };
    entries.filter_map(of).collect()
}

fn words_of(pid: Pid) -> String {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    text(&words).replace('\0', " ")
}

fn own_namespaces(process: &str) -> Result<Names> {
    let link = |name: &str| std::fs::read_link(format!("/proc/{process}/ns/{name}"));
    let names = ["net", "pid", "mnt", "ipc"].map(link).into_iter();
    names.map(|link| Ok(link?.display().to_string())).collect()
}

/// Those that some process is in.
fn all_namespaces() -> Names {
    let of = |pid: String| own_namespaces(&pid).unwrap_or_default();
    names_in("/proc").into_iter().filter(|name| name.parse::<u32>().is_ok()).flat_map(of).collect()
}

fn names_in(dir: &str) -> Names {
    let entries = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Tables of the packet filter.
fn tables() -> Result<Names> {
    match Command::new("nft").args(["list", "tables"]).output() {
        Ok(output) => Ok(text(&output.stdout).lines().map(str::to_owned).collect()),
        Err(_) => Ok(Names::new()),
    }
}

/// Control groups, three levels deep: a job would make its own near the top.
fn groups() -> Names {
    let mut groups = Names::new();
    let mut folders = vec![("/sys/fs/cgroup".to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        for name in names_in(&folder) {
            let path = format!("{folder}/{name}");
            if depth < 3 && Path::new(&path).is_dir() {
                folders.push((path.clone(), depth + 1));
                groups.insert(path);
            }
        }
    }
    groups
}
