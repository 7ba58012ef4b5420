//! `ftbctl demo`: finds ftb-demo and becomes it. ftb-demo is a program of its own because it links
//! test helpers.

use crate::failure::Failure;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

const NAME: &str = "ftb-demo";

/// Its folder after `make install`, from the folder of the tools.
const INSTALLED: &str = "../libexec/ftb";

/// Becomes `ftb-demo`: the one beside this program, else the installed one, else the one on the
/// PATH. Returns only when there is none.
pub(crate) fn become_it(arguments: &[OsString]) -> Failure {
    let tools = std::env::current_exe().ok().and_then(|ours| ours.parent().map(Path::to_owned));
    let found = tools.as_ref().and_then(|tools| {
        [tools.join(NAME), tools.join(INSTALLED).join(NAME)].into_iter().find(|path| path.is_file())
    });
    let mut command = Command::new(found.as_deref().unwrap_or(Path::new(NAME)));
    // The demonstration starts the daemons that belong to this tool, not others it may find.
    if let (Some(tools), None) = (tools, std::env::var_os("FTB_BIN_DIR")) {
        command.env("FTB_BIN_DIR", tools);
    }
    let error = command.args(arguments).exec();
    let shown = command.get_program().to_string_lossy();
    Failure::failed(format!(
        "cannot start {shown}: {error}; make demo in a checkout builds and runs it"
    ))
}
