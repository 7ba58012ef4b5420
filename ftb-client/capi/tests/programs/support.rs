//! Compiling C programs against the headers and the built library, and running them.

use anyhow::{Context as _, Result, ensure};
use ftb_tests::cluster::library;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use tempfile::TempDir;

/// How long a program may run, in seconds: only bounds a test that fails.
const PROGRAM_S: &str = "1800";
/// How long a program waits for its agent and its answers. The library's own bounds are for
/// programs that must go on; on a slow machine, or under a tool, a healthy agent takes longer than
/// those.
const AGENT_WAIT: &str = "10m";

/// How a program gets the library.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    Shared,
    Static,
    /// With `dlopen`, by itself.
    None,
}

/// A folder with the library under its names, and with programs.
pub(crate) struct Workshop {
    dir: TempDir,
    libraries: PathBuf,
}

/// The folder of this crate.
pub(crate) fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

impl Workshop {
    pub(crate) fn new() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("ftb-capi-").tempdir()?;
        let libraries = library("ftb-capi")?;
        for name in ["libftb.so", "libftb.so.0"] {
            std::os::unix::fs::symlink(libraries.join("libftb.so"), dir.path().join(name))?;
        }
        Ok(Self { dir, libraries })
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where cargo has put both libraries.
    pub(crate) fn libraries(&self) -> &Path {
        &self.libraries
    }

    pub(crate) fn shared_library(&self) -> PathBuf {
        self.dir().join("libftb.so")
    }

    pub(crate) fn static_library(&self) -> PathBuf {
        self.libraries.join("libftb.a")
    }

    /// Compiles `tests/c/NAME.c`.
    pub(crate) fn compile(&self, name: &str, link: Link) -> Result<PathBuf> {
        self.compile_with(name, link, &["-Wall", "-Wextra", "-Werror"])
    }

    pub(crate) fn compile_with(&self, name: &str, link: Link, flags: &[&str]) -> Result<PathBuf> {
        let program = self.dir().join(name);
        let mut command = Command::new("cc");
        command.args(["-std=gnu11", "-g", "-O1"]).args(flags);
        command.arg("-I").arg(here().join("include"));
        command.arg(here().join("tests/c").join(format!("{name}.c"))).arg("-o").arg(&program);
        match link {
            Link::Shared => {
                command.arg("-L").arg(self.dir()).arg("-lftb").arg("-Wl,-rpath").arg(self.dir());
            }
            Link::Static => {
                let system = ["-lgcc_s", "-lutil", "-lrt", "-lm", "-ldl"];
                command.arg(self.static_library()).args(system);
            }
            Link::None => {
                command.arg("-ldl");
            }
        }
        let compiled = command.arg("-lpthread").output().context("cannot run cc")?;
        let said = String::from_utf8_lossy(&compiled.stderr);
        ensure!(compiled.status.success() && said.is_empty(), "{name}.c does not compile: {said}");
        Ok(program)
    }

    /// A command that runs a compiled program with the agent at that socket, which is there.
    pub(crate) fn command(&self, program: &Path, socket: &Path) -> Command {
        self.command_under(&[], program, socket)
    }

    /// The same under a tool.
    pub(crate) fn command_under(&self, tool: &[&str], program: &Path, socket: &Path) -> Command {
        let mut command = self.plain(tool, program, socket);
        command.env("FTB_CONNECT_WAIT", AGENT_WAIT);
        command
    }

    /// A command for a program that demands no agent: what the library does then is to be seen.
    pub(crate) fn command_alone(&self, program: &Path, socket: &Path) -> Command {
        self.plain(&[], program, socket)
    }

    fn plain(&self, tool: &[&str], program: &Path, socket: &Path) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "10", PROGRAM_S]).args(tool).arg(program);
        for variable in ["FTB_CONFIG_FILE", "FTB_CONNECT_WAIT", "FTB_MATCHING", "FTB_QUIET"] {
            command.env_remove(variable);
        }
        command.env("FTB_AGENT_SOCKET", socket).current_dir(self.dir());
        command
    }
}

/// Runs to the end; the program must succeed and say nothing on standard error.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(said.is_empty(), "{command:?} said: {said}\n{}", text(&output));
    finished(command, &output)
}

/// Runs to the end; the program must succeed.
pub(crate) fn run_loud(command: &mut Command) -> Result<(String, String)> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((finished(command, &output).with_context(|| said.clone())?, said))
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn finished(command: &Command, output: &Output) -> Result<String> {
    ensure!(output.status.success(), "{command:?}: {}\n{}", output.status, text(output));
    Ok(text(output))
}

/// Compares with `tests/golden/NAME.txt`; with `FTB_BLESS=1` writes it.
#[track_caller]
pub(crate) fn assert_golden(name: &str, found: &str) {
    let path = here().join("tests/golden").join(format!("{name}.txt"));
    ftb_tests::man::assert_file_is_current(path, found);
}

/// A program that is talked with line by line.
pub(crate) struct Talk {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// All that it has said.
    pub(crate) said: String,
}

impl Talk {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("no input")?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self { child, input, output, said: String::new() })
    }

    /// Reads on until it says that line.
    pub(crate) fn read_to(&mut self, line: &str) -> Result<()> {
        loop {
            let before = self.said.len();
            ensure!(
                self.output.read_line(&mut self.said)? > 0,
                "it ended without {line:?}: {}",
                self.said
            );
            if self.said[before..].trim_end() == line {
                return Ok(());
            }
        }
    }

    pub(crate) fn go_on(&mut self) -> Result<()> {
        self.input.write_all(b"go on\n")?;
        Ok(())
    }

    /// Waits for its end, which must be success.
    pub(crate) fn finish(mut self) -> Result<String> {
        while self.output.read_line(&mut self.said)? > 0 {}
        let status = self.child.wait()?;
        ensure!(status.success(), "{status}: {}", self.said);
        Ok(std::mem::take(&mut self.said))
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        // Not killed: `timeout` hands this on to the program, which would outlive it otherwise.
        // That it has just ended by itself is no error.
        if matches!(self.child.try_wait(), Ok(None)) {
            let timeout = Pid::from_raw(self.child.id().cast_signed());
            let _ = kill(timeout, Signal::SIGTERM);
            let _ = self.child.wait();
        }
    }
}
