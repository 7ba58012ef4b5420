//! The demonstration is a program of its own (it links test helpers that no tool should carry);
//! here it is only found and started in our place.

use crate::failure::Failure;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

const NAME: &str = "ftb-demo";

/// Becomes `ftb-demo`: the one beside this program, else the one on the PATH. Comes back only when
/// there is none.
pub(crate) fn become_it(arguments: &[OsString]) -> Failure {
    let beside = std::env::current_exe().ok().map(|ours| ours.with_file_name(NAME));
    let program = match beside {
        Some(beside) if beside.is_file() => beside,
        _ => NAME.into(),
    };
    let error = Command::new(&program).args(arguments).exec();
    let shown = program.display();
    Failure::failed(format!(
        "cannot start {shown}: {error}; make demo in a checkout builds and runs it"
    ))
}
