//! Checkpoint backends: how the ranks of a node are saved, moved and restored.
//!
//! A [`Backend`] describes who writes the images, how ranks move, and which commands a node agent
//! runs at which moment. It runs nothing itself; [`crate::rank_hooks`] does. [`Choice`] is the
//! user's selection. `docs/checkpoint.md` is the user's page.

mod app;
pub mod auto;
mod command;
mod criu;
mod looping;
#[cfg(test)]
mod tests;

pub use app::App;
pub use command::Command;
pub use criu::Criu;
pub use looping::Loop;

use core::time::Duration;
use ftb_launcher_core::manner::{Manner, Moves, Saver};
use ftb_launcher_core::names::{JobId, NodeName, SetId};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Default deadline of a backend's command.
pub const STEP_DEADLINE: Duration = Duration::from_secs(60);

/// The moments at which a node agent may run commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Ranks that are about to leave still run: copies what can be copied before they stop.
    Precopy,
    /// Before any rank of the job is saved. When all nodes are done, no rank sends.
    Prepare,
    /// Writes the image, and cuts the node's network first where necessary.
    Save { leave: bool },
    /// All nodes have saved, or the checkpoint is cancelled: undoes [`Moment::Prepare`] and
    /// [`Moment::Save`].
    Release,
    /// Checks the image, after it was written and before anything starts from it.
    Verify,
    /// The image and the pod exist: does what is possible before the restore.
    Unpack,
    /// Restores ranks from their image.
    Restore,
}

/// The content of one image: a rank, or the pod with all ranks of a node.
#[derive(Clone, Debug)]
pub struct Unit<'a> {
    pub job: &'a JobId,
    pub node: &'a NodeName,
    /// The set that the image belongs to.
    pub set: &'a SetId,
    pub size: u32,
    /// The rank; of a pod the lowest.
    pub rank: u32,
    /// Process id of the rank, or of the pod's supervisor inside the pod; 0 if there is none yet.
    pub pid: u32,
    /// The directory of the image, as commands in a pod see it; it exists.
    pub image: &'a Path,
    /// The same directory, as this process sees it.
    pub here: &'a Path,
    pub pod: Option<PodPlace<'a>>,
}

/// The folder of an image with the memory that was copied beforehand. CRIU requires this name.
pub const PARENT: &str = "parent";

/// The directory for logs and statistics of a backend's commands.
pub fn work_dir(image: &Path) -> PathBuf {
    image.with_extension("work")
}

/// What a backend must know of a pod.
#[derive(Clone, Debug)]
pub struct PodPlace<'a> {
    /// Process id of the pause process.
    pub pause: u32,
    /// The outer end of its network link.
    pub link: &'a str,
    /// The bridge that the link joins.
    pub bridge: &'a str,
    /// Inode numbers of the pipes to and from the supervisor in the image.
    pub pipes: (u64, u64),
    /// The holder of the pod's user namespace; `None`: the pod is root's.
    pub holder: Option<u32>,
}

/// The words after `nsenter` for the namespaces of a pod. The pods of an ordinary user share their
/// IPC namespace with the processes that enter: only root can restore one.
pub(crate) fn nsenter_words(holder: Option<u32>, pause: u32) -> Vec<String> {
    let mut words = vec!["--target".to_owned(), pause.to_string()];
    words.extend(["--mount", "--net", "--pid"].map(str::to_owned));
    words.extend(holder.map(|_| "--ipc".to_owned()));
    words.push("--".to_owned());
    words
}

/// A command of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it does, for messages.
    pub name: &'static str,
    pub argv: Vec<String>,
    /// The command is killed after this time and counts as failed.
    pub deadline: Duration,
    /// Standard input and output are the pipes of the restored supervisor.
    pub piped: bool,
}

/// A program that every node must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// A name to find in `PATH`, or a path.
    pub program: PathBuf,
    /// What to do if it is missing.
    pub way_out: &'static str,
}

pub trait Backend {
    /// Its name, as in `--backend NAME`.
    fn name(&self) -> &'static str;

    fn manner(&self) -> Manner;

    /// Programs that must exist before anything starts.
    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }

    /// Commands of a moment, in order. All of them must succeed.
    fn steps(&self, _moment: Moment, _unit: &Unit<'_>) -> Vec<Step> {
        Vec::new()
    }

    /// The command line of a rank that starts from its image, if not the program's own.
    fn restart(&self, _unit: &Unit<'_>) -> Option<Vec<String>> {
        None
    }
}

/// The selected backend: a name, or a TOML file with one table `[backend.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    #[default]
    App,
    Loop,
    Command(Command),
    Criu(Criu),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    backend: Choice,
}

impl Choice {
    pub fn get(&self) -> &dyn Backend {
        match self {
            Self::App => &App,
            Self::Loop => &Loop,
            Self::Command(command) => command,
            Self::Criu(criu) => criu,
        }
    }

    /// Whether a hook of the user checks images.
    pub fn has_verify_hook(&self) -> bool {
        matches!(self, Self::Command(command) if command.has_verify())
    }

    /// The settings of pods, if the ranks run in one.
    pub fn pods(&self) -> Option<&Criu> {
        match self {
            Self::Criu(criu) => Some(criu),
            Self::App | Self::Loop | Self::Command(_) => None,
        }
    }

    /// Reads the user's selection: `app`, `loop`, `criu`, or a file. [`auto::decide`] handles
    /// `auto`.
    ///
    /// # Errors
    /// The file, the line, and the problem.
    pub fn read(text: &str) -> Result<Self, String> {
        match text {
            "app" => return Ok(Self::App),
            "loop" => return Ok(Self::Loop),
            "criu" => return Ok(Self::Criu(Criu::default())),
            "command" => {
                return Err("--backend command: its hooks are in a file: --backend FILE \
                            with a table [backend.command]"
                    .to_owned());
            }
            _ => {}
        }
        let read = std::fs::read_to_string(text);
        let file = read.map_err(|error| {
            format!(
                "--backend {text}: none of auto, app, loop, criu, and no file to be read: {error}"
            )
        })?;
        Self::parse(&file).map_err(|error| format!("backend file {text} {error}"))
    }

    /// Reads the text of a backend file.
    ///
    /// # Errors
    /// The line and the problem.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| {
            let line = ftb_core::text::line(text, error.span().map_or(0, |span| span.start));
            format!("line {line}: {}", error.message().replace('\n', " "))
        })?;
        match &file.backend {
            Self::App | Self::Loop => {}
            Self::Command(command) => command.check()?,
            Self::Criu(criu) => criu.check()?,
        }
        Ok(file.backend)
    }
}
