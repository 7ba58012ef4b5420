//! Python programs of tests, with modules of the package index.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where tests keep what they download: the target folder.
pub fn target() -> PathBuf {
    let test = std::env::current_exe().unwrap_or_default();
    test.ancestors().nth(3).map_or_else(std::env::temp_dir, Path::to_owned)
}

/// Runs a program that must succeed.
///
/// # Errors
/// The hint, and what the program has printed.
pub fn run(command: &mut Command, hint: &str) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{hint}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    output.status.success().then_some(()).ok_or_else(|| format!("{hint}: {text}"))
}

/// `pip`, with a command and its quiet flags.
pub fn pip(python: &Path, command: &str) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", command, "--quiet", "--disable-pip-version-check"]);
    pip
}

/// A Python with modules of the package index, in a folder of that name in the target folder; why
/// there is none otherwise.
///
/// # Errors
/// It cannot be made: no `venv`, or no package index.
pub fn python_with(name: &str, modules: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let venv = target().join(name);
    let python = venv.join("bin/python");
    // Two tests at once would make the same folder. The lock ends with the file.
    let lock = File::create(target().join(format!("{name}.lock")));
    let locked = lock.and_then(|file| file.lock().map(|()| file));
    let _locked = locked.map_err(|error| format!("{}: {error}", venv.display()))?;
    let import = format!("import {modules}");
    let output = Command::new(&python).args(["-c", &import]).output();
    if output.is_ok_and(|output| output.status.success()) {
        return Ok(python);
    }
    let mut create = Command::new("python3");
    run(create.args(["-m", "venv", "--clear"]).arg(&venv), "install python3-venv")?;
    run(pip(&python, "install").args(packages), &format!("pip cannot install {packages:?}"))?;
    Ok(python)
}
