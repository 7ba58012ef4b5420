//! Programs of this workspace, built now if they are not up to date.

use anyhow::{Context as _, Result, ensure};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;

/// The path of a binary of this workspace, built now if it is not up to date, in the profile of the
/// running test. `FTB_BIN_DIR` names a folder with finished binaries instead; a program that is no
/// test takes the binaries beside it.
///
/// # Errors
/// It cannot be built.
pub fn binary(package: &str, name: &str) -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("FTB_BIN_DIR") {
        return Ok(PathBuf::from(dir).join(name));
    }
    let beside = std::env::current_exe()?.with_file_name(name);
    if beside.is_file() {
        return Ok(beside);
    }
    Ok(build(package, &["--bin", name])?.join(name))
}

/// The same command, ended by a signal when the thread that starts it ends, however that is: a
/// measurement that is killed leaves nothing running. (Needs util-linux.)
pub fn tied(command: &Command) -> Command {
    let mut tied = Command::new("setpriv");
    tied.args(["--pdeathsig", "TERM", "--"]).arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => tied.env(key, value),
            None => tied.env_remove(key),
        };
    }
    tied
}

/// The path of an example program, built now if it is not up to date; in the directory `examples`
/// of `FTB_BIN_DIR` where that is set.
///
/// # Errors
/// It cannot be built.
pub fn example(package: &str, name: &str) -> Result<PathBuf> {
    let profile = match std::env::var_os("FTB_BIN_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => build(package, &["--example", name])?,
    };
    Ok(profile.join("examples").join(name))
}

/// The folder with the libraries of a package, built now if they are not up to date; `FTB_BIN_DIR`
/// where that is set.
///
/// # Errors
/// They cannot be built.
pub fn library(package: &str) -> Result<PathBuf> {
    match std::env::var_os("FTB_BIN_DIR") {
        Some(dir) => Ok(PathBuf::from(dir)),
        None => build(package, &["--lib"]),
    }
}

/// Builds in the profile of the running test; its folder.
fn build(package: &str, what: &[&str]) -> Result<PathBuf> {
    static BUILDING: Mutex<()> = Mutex::new(());
    let test = std::env::current_exe()?;
    // .../target/PROFILE/deps/TEST
    let profile = test.ancestors().nth(2).context("the test runs outside a target folder")?;
    let _one = BUILDING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "-p", package]).args(what);
    if profile.ends_with("release") {
        command.arg("--release");
    }
    let built = outside_cargo(&mut command).current_dir(env!("CARGO_MANIFEST_DIR")).status()?;
    ensure!(built.success(), "cannot build {package} {what:?}");
    Ok(profile.to_owned())
}

/// Keeps from a command what cargo tells a test about its crate. Build scripts look at these
/// variables: a build out of a test and the next one from outside would each compile again what
/// depends on them.
pub fn outside_cargo(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        let about = ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|word| name.starts_with(word));
        if about || name == "OUT_DIR" {
            command.env_remove(&*name);
        }
    }
    command
}
