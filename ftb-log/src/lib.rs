//! The log of a daemon in the systemd journal, with fields that `journalctl` can select by.
//!
//! | field | meaning |
//! |---|---|
//! | `MESSAGE`, `PRIORITY` | the line; error 3, warning 4, info 6, all below 7 |
//! | `MESSAGE_ID` | [`EVENT_ID`], [`TRANSITION_ID`]; none for other lines |
//! | `FTB_NODE` | the node of the process; also the node that the line is about, if it names one |
//! | `FTB_EVENT`, `FTB_CONDITION` | name of a published event, key of the condition it states |
//! | `FTB_…` | every other field of the line |
//! | `SYSLOG_IDENTIFIER`, `TARGET`, `CODE_FILE`, `CODE_LINE` | program and place in it |
//!
//! Responsible for: whether standard error is the journal, the names of fields. Not responsible
//! for: levels, and the log as text or JSON.
#![forbid(unsafe_code)]

use nix::sys::stat::fstat;
use std::ffi::OsStr;
use std::os::fd::AsFd;
use tracing::{Metadata, Subscriber};
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

/// Environment variable of systemd: device and inode of the journal's stream.
pub const JOURNAL_STREAM_ENV: &str = "JOURNAL_STREAM";
/// Log target of state transitions.
pub const TRANSITION: &str = "ftb::transition";
/// `MESSAGE_ID` of a line about an event that is published (`journalctl MESSAGE_ID=…`).
pub const EVENT_ID: &str = "8d3c6b0f5e4a4f5f9a7c1e2b6d904711";
/// `MESSAGE_ID` of a line about a state transition.
pub const TRANSITION_ID: &str = "3f0a9d7c2b6e4c8e8b15d0f7a46c4712";
/// The prefix of fields.
const PREFIX: &str = "FTB";

/// Layers that write lines into the journal.
pub type JournalLayers<S> = Vec<Box<dyn Layer<S> + Send + Sync>>;

/// Whether standard error goes into the systemd journal: a process inherits the variable also where
/// its standard error is another file.
pub fn is_journal() -> bool {
    let stream = std::env::var_os(JOURNAL_STREAM_ENV);
    stream.is_some_and(|stream| is_stream(&stream, std::io::stderr()))
}

/// Whether the descriptor is the file that `DEVICE:INODE` names.
fn is_stream(stream: &OsStr, file: impl AsFd) -> bool {
    let numbers = stream.to_str().and_then(|text| text.split_once(':'));
    let Some((device, inode)) = numbers else { return false };
    fstat(file)
        .is_ok_and(|stat| device.parse() == Ok(stat.st_dev) && inode.parse() == Ok(stat.st_ino))
}

/// What a line is about, as its `MESSAGE_ID` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineKind {
    Event,
    Transition,
    Other,
}

impl LineKind {
    const ALL: [Self; 3] = [Self::Event, Self::Transition, Self::Other];

    fn of(metadata: &Metadata<'_>) -> Self {
        match metadata.fields().field("event") {
            Some(_) => Self::Event,
            None if metadata.target() == TRANSITION => Self::Transition,
            None => Self::Other,
        }
    }

    fn message_id(self) -> Option<&'static str> {
        match self {
            Self::Event => Some(EVENT_ID),
            Self::Transition => Some(TRANSITION_ID),
            Self::Other => None,
        }
    }
}

/// Layers for a process of this node, if standard error is the journal and it can be reached. A
/// write waits while the journal's queue is full, as one to standard error does.
pub fn journal_layers<S>(node: &str) -> Option<JournalLayers<S>>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    if !is_journal() {
        return None;
    }
    let layer = |kind: LineKind| {
        let fields = [("FTB_NODE", node)].into_iter();
        let fields = fields.chain(kind.message_id().map(|id| ("MESSAGE_ID", id)));
        let layer = tracing_journald::layer()?
            .with_field_prefix(Some(PREFIX.to_owned()))
            .with_priority_mappings(priorities())
            .with_custom_fields(fields);
        let layer = layer.with_filter(filter_fn(move |metadata| LineKind::of(metadata) == kind));
        Ok(Box::new(layer) as Box<dyn Layer<S> + Send + Sync>)
    };
    let layers: std::io::Result<_> = LineKind::ALL.into_iter().map(layer).collect();
    layers.ok()
}

fn priorities() -> PriorityMappings {
    PriorityMappings {
        info: Priority::Informational,
        debug: Priority::Debug,
        ..PriorityMappings::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn only_the_very_file_is_the_journal() -> std::io::Result<()> {
        let file = std::fs::File::open("/dev/null")?;
        let meta = file.metadata()?;
        let is = |device, inode| is_stream(OsStr::new(&format!("{device}:{inode}")), &file);
        assert!(is(meta.dev(), meta.ino()));
        assert!(!is(meta.dev(), meta.ino() + 1) && !is(meta.dev() + 1, meta.ino()));
        assert!(!is_stream(OsStr::new("7"), &file) && !is_stream(OsStr::new(":"), &file));
        Ok(())
    }

    #[test]
    fn the_ids_are_those_that_journalctl_takes() {
        let is_id = |id: &str| id.len() == 32 && id.bytes().all(|c| c.is_ascii_hexdigit());
        assert!(is_id(EVENT_ID) && is_id(TRANSITION_ID) && EVENT_ID != TRANSITION_ID);
    }
}
