//! Checks that the requirements of a backend exist and work on this host. The JL checks before
//! anything starts; each NLA on another host checks before it reports that it is up.

use crate::backend::{Choice, Criu, Need};
use std::path::Path;
use std::process::Command;

/// Checks everything.
///
/// # Errors
/// What is missing or broken, and what to do.
pub fn check(choice: &Choice) -> Result<(), String> {
    if let Some(need) = missing(choice) {
        let (name, program) = (choice.get().name(), need.program.display());
        return Err(format!("backend {name} needs {program}: {}", need.way_out));
    }
    choice.pods().map_or(Ok(()), works)
}

/// Whether CRIU can track memory changes on this kernel.
pub fn tracks_memory(criu: &Criu) -> bool {
    let check = ["check", "--feature", "mem_dirty_track"];
    Command::new(criu.program()).args(check).output().is_ok_and(|output| output.status.success())
}

/// The first missing program.
pub fn missing(choice: &Choice) -> Option<Need> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = |program: &Path| {
        if program.components().count() > 1 {
            return program.is_file();
        }
        std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
    };
    choice.get().needs().into_iter().find(|need| !found(&need.program))
}

/// Whether CRIU works on this kernel for this user.
fn works(criu: &Criu) -> Result<(), String> {
    let program = criu.program().display();
    let mut command = Command::new(criu.program());
    if !nix::unistd::Uid::effective().is_root() {
        // CRIU's check needs the rights that it has in the user namespace of the pods.
        command = Command::new("unshare");
        command.args(["--user", "--map-current-user", "--keep-caps", "--net", "--"]);
        let up = "ip link set dev lo up && exec \"$0\" check --unprivileged";
        command.args(["sh", "-c", up]).arg(criu.program());
    }
    let output = command.arg("check").output();
    let said = match output {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            said.lines().next_back().unwrap_or("it says nothing").trim().to_owned()
        }
        Err(error) => error.to_string(),
    };
    Err(format!(
        "{program} does not work on this kernel ({said}): run deploy/dev/install-criu.sh for a \
         newer one, or name \
         one with FTB_CRIU"
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_the_solution() {
        let text = "[backend.criu]\nprogram = \"/no/such/criu\"\n";
        let error = check(&Choice::parse(text).unwrap()).unwrap_err();
        assert!(error.contains("/no/such/criu") && error.contains("install-criu.sh"), "{error}");
        let text = "[backend.command]\ncheckpoint = [\"no-such-hook-anywhere\"]\n";
        let error = check(&Choice::parse(text).unwrap()).unwrap_err();
        assert!(error.contains("backend command needs no-such-hook-anywhere"), "{error}");
        assert_eq!(check(&Choice::App), Ok(()));
    }
}
