//! Where a job runs: reads the options, the nodes file or the Slurm allocation into a plan and the
//! way to start launch agents. Refuses bad input.

use crate::cli::{Place, StartOption};
use crate::jobdir::JobDir;
use crate::nodedir;
use crate::plan::{self, NodeEntry, Plan, Spread};
use crate::rankfile::RankFile;
use crate::spec::{NodePart, StartMethod, Starting};
use ftb_client::daemon::Failure;
use ftb_launcher_core::names::{JobId, NodeName};
use ftb_launcher_core::tree::FANOUT_MAX;
use std::net::IpAddr;
use std::path::PathBuf;

/// Default address on this host alone.
const LOOPBACK: &str = "127.0.0.1";

/// The checked place of a job.
#[derive(Debug)]
pub(super) struct Where {
    pub(super) plan: Plan,
    pub(super) starting: Starting,
    /// How the nodes reach the launcher.
    pub(super) address: String,
    /// Socket of the launcher's own agent.
    pub(super) agent: PathBuf,
}

impl Where {
    /// Reads the options.
    ///
    /// # Errors
    /// Bad input, as one line.
    pub(super) fn of(place: &Place, size: u32) -> Result<Self, Failure> {
        Self::read(place, size).map_err(Failure::bad_input)
    }

    fn read(place: &Place, size: u32) -> Result<Self, String> {
        let (entries, means, primaries) = entries(place)?;
        let spread = match &place.rank_file {
            Some(path) => Spread::File(RankFile::read(path)?),
            None => Spread::Blocks(place.ppn),
        };
        let plan =
            plan::place(entries, size, &spread, primaries.as_deref(), place.spares.as_deref())?;
        if !(1..=FANOUT_MAX).contains(&place.fanout) {
            return Err(format!("--fanout {}: 1 to {FANOUT_MAX} are allowed", place.fanout));
        }
        let fanout = if means == StartMethod::Ssh { place.fanout } else { FANOUT_MAX };
        let starting = Starting {
            means,
            command: command(place, means, &plan)?,
            program: program(place, means)?,
            fanout,
            deadline: place.start_deadline,
        };
        let address = match &place.address {
            Some(address) => address.clone(),
            None if means == StartMethod::Local => LOOPBACK.to_owned(),
            None => host_name()?,
        };
        let first = plan.nodes.values().next().map(NodeEntry::agent);
        let near = if means == StartMethod::Local { first } else { None };
        let agent = own_socket(place).or(near).unwrap_or_else(ftb_client::default_socket);
        Ok(Self { plan, starting, address, agent })
    }

    /// The node's own part of the specification.
    pub(super) fn part(&self, entry: &NodeEntry, job: &JobId, dir: &JobDir) -> NodePart {
        let spare = self.plan.spares.contains(&entry.name);
        part(self.starting.means, spare, entry, job, dir)
    }

    /// The address of the node of rank 0.
    pub(super) fn master(&self, parts: &[NodePart]) -> String {
        let mut of_rank_0 = self.plan.placement.iter().filter(|(_, ranks)| ranks.has(0));
        let node = of_rank_0.next().map(|(name, _)| name);
        let part = parts.iter().find(|part| Some(&part.node) == node);
        part.map_or_else(|| LOOPBACK.to_owned(), |part| part.address.clone())
    }
}

/// A node's own part of the specification.
pub(crate) fn part(
    means: StartMethod,
    spare: bool,
    entry: &NodeEntry,
    job: &JobId,
    dir: &JobDir,
) -> NodePart {
    let local = means == StartMethod::Local;
    let named = entry.address.clone();
    let address = named.unwrap_or_else(|| match local {
        true => LOOPBACK.to_owned(),
        false => entry.name.to_string(),
    });
    // Nodes may share the directory.
    let own = format!("{job}.{}", entry.name);
    let images = match &entry.images {
        Some(images) => images.join(own),
        None if local => dir.images_of(&entry.name),
        None => nodedir::default_base().join(own),
    };
    NodePart {
        node: entry.name.clone(),
        spare,
        agent: entry.agent(),
        image_dir: images,
        listen: entry.listen.clone().unwrap_or_else(|| listen(&address)),
        address,
        pod: None,
    }
}

/// Any port of an address; all addresses for a name.
pub(super) fn listen(address: &str) -> String {
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => format!("{address}:0"),
        Ok(IpAddr::V6(address)) => format!("[{address}]:0"),
        Err(_) => "0.0.0.0:0".to_owned(),
    }
}

fn host_name() -> Result<String, String> {
    let name = nix::unistd::gethostname().map_err(|error| format!("no host name: {error}"))?;
    name.into_string().map_err(|_| "the host name is no text: say --address".to_owned())
}

/// The nodes, how to start on them, and the primary nodes as a host list unless they are all.
fn entries(place: &Place) -> Result<(Vec<NodeEntry>, StartMethod, Option<String>), String> {
    if let Some(list) = &place.local_nodes {
        if !matches!(place.start, None | Some(StartOption::Local)) {
            return Err("--local-nodes are on this host: leave --start out".to_owned());
        }
        return Ok((plan::parse_local(list)?, StartMethod::Local, place.hosts.clone()));
    }
    let listed = place.nodes.as_deref().map(plan::read_nodes).transpose()?;
    let allocated = slurm_nodes();
    let means = match place.start {
        Some(StartOption::Local) => StartMethod::Local,
        Some(StartOption::Ssh) => StartMethod::Ssh,
        Some(StartOption::Slurm) => StartMethod::Slurm,
        None if listed.is_some() => StartMethod::Local,
        None if allocated.is_some() => StartMethod::Slurm,
        None if names_no_host(place) => StartMethod::Local,
        None => StartMethod::Ssh,
    };
    match (means, listed) {
        (StartMethod::Slurm, listed) => {
            let allocated = allocated.ok_or(
                "--start slurm: there is no Slurm allocation here (run it in salloc or sbatch)",
            )?;
            in_allocation(place, &allocated, listed)
        }
        (means, Some(listed)) => Ok((listed, means, place.hosts.clone())),
        (StartMethod::Ssh, None) => {
            let hosts = place.hosts.as_deref().ok_or(
                "where is it to run? Say --hosts, --nodes or --local-nodes, or run it in a Slurm \
                 allocation",
            )?;
            let mut names = plan::hosts(hosts, "--hosts")?;
            if let Some(spares) = &place.spares {
                names.extend(plan::hosts(spares, "--spares")?);
            }
            names.sort();
            names.dedup();
            Ok((made_up(place, names), means, place.hosts.clone()))
        }
        (StartMethod::Local, None) if names_no_host(place) => {
            Ok((vec![this_host(place)?], means, None))
        }
        (StartMethod::Local, None) => Err(
            "--start local on more than this host: name the nodes' agents with --local-nodes or \
             --nodes"
                .to_owned(),
        ),
    }
}

fn names_no_host(place: &Place) -> bool {
    place.hosts.is_none() && place.spares.is_none()
}

/// This host alone, with its agent.
fn this_host(place: &Place) -> Result<NodeEntry, String> {
    let name = host_name()?;
    let name =
        NodeName::new(&name).map_err(|error| format!("{error}: say --local-nodes NAME=SOCKET"))?;
    let named = place.agent_socket.clone().or_else(|| own_socket(place));
    Ok(NodeEntry::new(name, named.unwrap_or_else(ftb_client::default_socket)))
}

/// The socket of the agent that the launcher asks, if one is named. A pattern names other nodes'.
fn own_socket(place: &Place) -> Option<PathBuf> {
    let named = place.agent_socket.as_ref().filter(|path| !path.to_string_lossy().contains("%n"));
    place.agent.as_ref().or(named).cloned()
}

/// The hosts of the Slurm allocation that this process runs in.
fn slurm_nodes() -> Option<String> {
    std::env::var_os("SLURM_JOB_ID")?;
    std::env::var("SLURM_JOB_NODELIST").ok().filter(|list| !list.is_empty())
}

/// Nodes of which only the names are known.
fn made_up(place: &Place, names: Vec<NodeName>) -> Vec<NodeEntry> {
    let socket = place.agent_socket.clone().unwrap_or_else(ftb_client::default_socket);
    names.into_iter().map(|name| NodeEntry::new(name, socket.clone())).collect()
}

fn in_allocation(
    place: &Place,
    allocated: &str,
    listed: Option<Vec<NodeEntry>>,
) -> Result<(Vec<NodeEntry>, StartMethod, Option<String>), String> {
    let names = plan::hosts(allocated, "SLURM_JOB_NODELIST")?;
    for (option, list) in [("--hosts", &place.hosts), ("--spares", &place.spares)] {
        let wanted = list.as_deref().map(|list| plan::hosts(list, option)).transpose()?;
        if let Some(other) = wanted.iter().flatten().find(|name| !names.contains(name)) {
            return Err(format!("{option}: host {other} is not in this allocation ({allocated})"));
        }
    }
    let entries = match listed {
        None => made_up(place, names),
        Some(mut listed) => {
            listed.retain(|entry| names.contains(&entry.name));
            let known = |name: &NodeName| listed.iter().any(|entry| entry.name == *name);
            if let Some(name) = names.iter().find(|name| !known(name)) {
                return Err(format!("host {name} of this allocation is not in the nodes file"));
            }
            listed
        }
    };
    Ok((entries, StartMethod::Slurm, place.hosts.clone()))
}

fn command(place: &Place, means: StartMethod, plan: &Plan) -> Result<Vec<String>, String> {
    let words = |text: &str| text.split_ascii_whitespace().map(ToOwned::to_owned).collect();
    match means {
        StartMethod::Local => Ok(Vec::new()),
        StartMethod::Ssh => {
            let words: Vec<String> = words(&place.ssh_command);
            if words.is_empty() {
                return Err("--ssh-command is empty".to_owned());
            }
            Ok(words)
        }
        StartMethod::Slurm => {
            let count = plan.nodes.len();
            let hosts = ftb_core::hostlist::fold(plan.nodes.keys().map(NodeName::as_str));
            let mut all = vec![
                "srun".to_owned(),
                format!("--nodes={count}"),
                format!("--ntasks={count}"),
                "--ntasks-per-node=1".to_owned(),
                format!("--nodelist={hosts}"),
            ];
            all.extend::<Vec<String>>(words(&place.srun_options));
            Ok(all)
        }
    }
}

/// The path of `ftb-nla` on the nodes; by default beside this program.
fn program(place: &Place, means: StartMethod) -> Result<PathBuf, String> {
    if let Some(path) = &place.nla {
        return Ok(path.clone());
    }
    let own = std::env::current_exe().map_err(|error| format!("where am I? {error}"))?;
    let path = own.with_file_name("ftb-nla");
    if means == StartMethod::Local && !path.is_file() {
        return Err(format!("{} is not there: say --nla", path.display()));
    }
    Ok(path)
}
