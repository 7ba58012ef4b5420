//! A Linux kernel in QEMU with real drivers, for tests of what meets hardware: the Rust side of
//! `tests/hardware/guest` (whose README says what a guest has and how it talks to its host).

use crate::skip::skip;
use anyhow::{Context as _, Result, bail};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Exit status of the scripts where there is no QEMU and none can be installed.
const SKIPPED: i32 = 77;

/// The folder `tests/hardware`.
pub fn hardware() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("hardware")
}

/// Runs a script of `tests/hardware/guest`; `None` where it says that it cannot run here.
fn run(script: &str, arguments: &[OsString]) -> Result<Option<String>> {
    let mut command = Command::new(hardware().join("guest").join(script));
    let output =
        command.args(arguments).output().with_context(|| format!("cannot run {script}"))?;
    let errors = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.code() {
        Some(0) => Ok(Some(String::from_utf8(output.stdout)?.trim().to_owned())),
        Some(SKIPPED) => {
            skip(&errors);
            Ok(None)
        }
        code => bail!("{script} ended with {code:?}: {errors}"),
    }
}

/// What a guest is made of, and the folder that it shares with its host.
pub struct Guest {
    folder: tempfile::TempDir,
    parts: Vec<OsString>,
    qemu: Vec<OsString>,
    has_instruction_clock: bool,
}

impl Guest {
    /// A guest that runs this test script.
    ///
    /// # Errors
    /// No temporary folder can be made.
    pub fn new(test: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::create_dir(folder.path().join("share"))?;
        let guest =
            Self { folder, parts: Vec::new(), qemu: Vec::new(), has_instruction_clock: false };
        Ok(guest.part("--script", test))
    }

    fn part(mut self, option: &str, value: impl AsRef<OsStr>) -> Self {
        self.parts.extend([option.into(), value.as_ref().to_owned()]);
        self
    }

    /// Loads modules of the kernel, and all that they depend on, before the test.
    pub fn modules(self, names: &[&str]) -> Self {
        names.iter().fold(self, |guest, name| guest.part("--module", name))
    }

    /// Builds a module from that folder and puts it into `/mod`. `None` where it cannot be built.
    ///
    /// # Errors
    /// The build fails.
    pub fn built_module(self, source: &Path) -> Result<Option<Self>> {
        let built = run("module.sh", &[source.into()])?;
        Ok(built.map(|module| self.part("--ko", module)))
    }

    /// Puts a program (a path, or a name that the shell finds) and its libraries into `/bin`.
    pub fn program(self, program: impl AsRef<OsStr>) -> Self {
        self.part("--program", program)
    }

    /// Puts a file or folder to that path.
    pub fn file(self, source: &Path, target: &str) -> Self {
        let mut pair = source.as_os_str().to_owned();
        pair.push(":");
        pair.push(target);
        self.part("--file", pair)
    }

    /// Leaves the initramfs for a tmpfs before the test: what CRIU needs.
    pub fn switch_root(mut self) -> Self {
        self.parts.push("--switch-root".into());
        self
    }

    /// More arguments of QEMU: devices, for example.
    pub fn qemu(mut self, arguments: &[&str]) -> Self {
        self.qemu.extend(arguments.iter().map(Into::into));
        self
    }

    /// Each instruction takes the guest a nanosecond of its time: what it measures does not depend
    /// on how busy this machine is, and can be compared with a limit. It runs slower.
    pub fn instruction_clock(mut self) -> Self {
        self.has_instruction_clock = true;
        self
    }

    /// The folder that host and guest share: `/share` in the guest.
    pub fn share(&self) -> PathBuf {
        self.folder.path().join("share")
    }

    /// Builds the guest, boots it, and waits for the end of its test; what it wrote is in the
    /// share then. Blocks: what the host does meanwhile is for another thread. `None` where there
    /// can be no guest: a line on standard error has said why.
    ///
    /// # Errors
    /// A part is missing, or the test failed or did not end in time: with all texts of the share.
    pub fn run(&self, deadline_s: u32) -> Result<Option<()>> {
        let image: OsString = self.folder.path().join("initramfs.gz").into();
        let mut build = self.parts.clone();
        build.extend(["--out".into(), image.clone()]);
        if run("initramfs.sh", &build)?.is_none() {
            return Ok(None);
        }
        let mut boot = vec!["--initramfs".into(), image, "--share".into(), self.share().into()];
        boot.extend(["--deadline-s".into(), deadline_s.to_string().into()]);
        boot.extend(self.has_instruction_clock.then(|| "--instruction-clock".into()));
        boot.push("--".into());
        boot.extend(self.qemu.iter().cloned());
        match run("run.sh", &boot) {
            Ok(done) => Ok(done.map(drop)),
            Err(error) => bail!("{error}\n{}", self.texts()),
        }
    }

    /// Every text that stands in the share, by name.
    fn texts(&self) -> String {
        let Ok(entries) = fs::read_dir(self.share()) else {
            return String::new();
        };
        let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        files.sort();
        let text = |path: &PathBuf| {
            let text = fs::read_to_string(path).ok().filter(|text| !text.is_empty())?;
            Some(format!("--- {}\n{text}\n", path.file_name()?.display()))
        };
        files.iter().filter_map(text).collect()
    }
}
