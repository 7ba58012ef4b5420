//! Checkpoint backends: how the ranks of a node are saved, moved and brought back.
//!
//! A [`Backend`] only describes: who writes the images, how ranks move, and which commands a node agent runs at
//! which moment. It runs nothing itself; [`crate::saver`] does. [`Choice`] is what the user wrote.
//! `docs/checkpoint.md` is the user's page.

mod app;
pub mod auto;
mod command;
mod criu;
#[cfg(test)]
mod tests;

pub use app::App;
pub use command::Command;
pub use criu::Criu;

use core::time::Duration;
use ftb_launcher_core::manner::{Manner, Moves, Saver};
use ftb_launcher_core::names::{JobId, NodeName, SetId};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// How long a command of a backend may take where nothing else is said.
pub const STEP_DEADLINE: Duration = Duration::from_secs(60);

/// The moments at which a node agent may have something to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Ranks that are about to leave still work: what can be sent of them before they are stopped.
    Precopy,
    /// Before any rank of the job is saved. When all nodes have done it, no rank sends anything any more.
    Prepare,
    /// The image is written, after the node is cut off from the others where that is needed. `leave`: the ranks are
    /// gone when it is complete; else they go on.
    Save {
        /// See above.
        leave: bool,
    },
    /// All nodes have saved, or it is called off: what [`Moment::Prepare`] and [`Moment::Save`] did is undone.
    Release,
    /// The image is looked at: after it was written and before anything is started from it.
    Verify,
    /// The image is here, and so is the pod that ranks are to come to life in: what can be done before they must.
    Unpack,
    /// Ranks come to life from their image.
    Restore,
}

/// What is saved into one image: a rank, or the pod with all ranks of a node.
#[derive(Clone, Debug)]
pub struct Unit<'a> {
    /// The job.
    pub job: &'a JobId,
    /// The node.
    pub node: &'a NodeName,
    /// The set that the image belongs to.
    pub set: &'a SetId,
    /// How many ranks the job has.
    pub size: u32,
    /// The rank; of a pod its lowest.
    pub rank: u32,
    /// Process id of the rank, of a pod that of its tender inside the pod; 0 where there is none (yet).
    pub pid: u32,
    /// The directory that is the image. The agent has made it.
    pub image: &'a Path,
    /// Where the pod is.
    pub pod: Option<PodPlace<'a>>,
}

/// The folder of an image with what was sent of it before the ranks were stopped. (CRIU looks for it under this name.)
pub const PARENT: &str = "parent";

/// Where commands of a backend leave what is not part of the image: logs, statistics.
pub fn work_dir(image: &Path) -> PathBuf {
    image.with_extension("work")
}

/// A pod as its backend must know it.
#[derive(Clone, Debug)]
pub struct PodPlace<'a> {
    /// Process id of the process that holds the pod's namespaces.
    pub holder: u32,
    /// The end of its network link that is outside.
    pub link: &'a str,
    /// The bridge that it is a port of while the pod may talk.
    pub bridge: &'a str,
    /// Inode numbers of the pipes to and from the tender of the image.
    pub pipes: (u64, u64),
}

/// One command that a node agent runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// For messages: what it does.
    pub name: &'static str,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// It is killed after so long, and counts as failed.
    pub deadline: Duration,
    /// Standard input and output are the pipes of the tender that is being restored.
    pub piped: bool,
}

/// A program that every node must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// A name that is looked for in `PATH`, or a path.
    pub program: PathBuf,
    /// What to do where it is not there.
    pub way_out: &'static str,
}

/// See the module.
pub trait Backend {
    /// Its name, as in `--backend NAME`.
    fn name(&self) -> &'static str;

    /// What the state machines must know.
    fn manner(&self) -> Manner;

    /// What must be there before anything starts.
    fn needs(&self) -> Vec<Need>;

    /// What to run at a moment, in this order; all of it must succeed. Nothing to run is fine.
    fn steps(&self, moment: Moment, unit: &Unit<'_>) -> Vec<Step>;

    /// What a rank is started as from its image, where that is not its own command line.
    fn restart(&self, unit: &Unit<'_>) -> Option<Vec<String>>;
}

/// The backend that a user has chosen: a name, or a TOML file with one table `[backend.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// See [`App`].
    #[default]
    App,
    /// See [`Command`].
    Command(Command),
    /// See [`Criu`].
    Criu(Criu),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    backend: Choice,
}

impl Choice {
    /// The backend itself.
    pub fn get(&self) -> &dyn Backend {
        match self {
            Self::App => &App,
            Self::Command(command) => command,
            Self::Criu(criu) => criu,
        }
    }

    /// Whether the ranks of a node run in a pod.
    pub fn pods(&self) -> Option<&Criu> {
        match self {
            Self::Criu(criu) => Some(criu),
            Self::App | Self::Command(_) => None,
        }
    }

    /// Reads what the user wrote: `app`, `criu`, or the name of a file. What `auto` means is
    /// [`auto::decide`]'s.
    ///
    /// # Errors
    /// One line: the file, the line in it, what is wrong.
    pub fn read(text: &str) -> Result<Self, String> {
        match text {
            "app" => return Ok(Self::App),
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
                "--backend {text}: neither auto nor app nor criu, and no file to be read: {error}"
            )
        })?;
        Self::parse(&file).map_err(|error| format!("backend file {text} {error}"))
    }

    /// Reads the text of a backend file.
    ///
    /// # Errors
    /// One line: where and what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            format!("line {line}: {}", error.message().replace('\n', " "))
        })?;
        match &file.backend {
            Self::App => {}
            Self::Command(command) => command.check()?,
            Self::Criu(criu) => criu.check()?,
        }
        Ok(file.backend)
    }
}
