//! What all clients of a process have in common: its settings and its names.

use crate::settings::Settings;
use ftb_client::now_ns;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

/// Largest configuration file, in bytes.
const CONFIG_BYTES_MAX: u64 = 64 * 1024;

/// Made when the library is first used in a process.
pub(crate) struct Common {
    pub(crate) settings: Settings,
    pub(crate) pid: i32,
    /// When the library was first used, `SECONDS.NANOSECONDS` of Unix time: with the pid it names
    /// the process for ever.
    pub(crate) starttime: String,
    /// `PID@STARTTIME`.
    pub(crate) process: String,
    /// The system's own name.
    pub(crate) host: String,
}

pub(crate) type Shared = Arc<Common>;

impl Common {
    /// Reads the environment and the configuration file.
    pub(crate) fn of_process(pid: u32) -> Self {
        let now = now_ns();
        let starttime = format!("{}.{:09}", now / 1_000_000_000, now % 1_000_000_000);
        let host = nix::unistd::gethostname().unwrap_or_default();
        Self {
            settings: Settings::load(|key| std::env::var_os(key), read_config),
            pid: i32::try_from(pid).unwrap_or(0),
            process: format!("{pid}@{starttime}"),
            starttime,
            host: host.to_string_lossy().into_owned(),
        }
    }
}

fn read_config(path: &Path) -> Result<Vec<u8>, String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut options = std::fs::File::options();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no regular file"));
        }
        let mut bytes = Vec::new();
        file.take(CONFIG_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map_err(|error| error.to_string())
}
