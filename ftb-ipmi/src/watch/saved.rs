//! The small files of a watched node.

use std::io;
use std::path::PathBuf;

/// Replaces a file; after a power failure it is the old one or the new one.
pub(super) async fn replace(path: PathBuf, text: String) -> io::Result<()> {
    let replace = move || {
        let name = path.file_name().and_then(|name| name.to_str());
        let (Some(folder), Some(name)) = (path.parent(), name) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        ftb_cli::files::replace(folder, name, text.as_bytes()).map(drop)
    };
    tokio::task::spawn_blocking(replace).await.map_err(io::Error::other)?
}
