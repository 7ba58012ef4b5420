//! What messages of links and of clients have in common.

use crate::v1;
use ftb_core::limits::GAP_SPACES_MAX;
use ftb_core::node::api::{Gap, GapReason};
use ftb_core::protocol::Versions;
use ftb_core::{ConfirmLevel, Epoch, OriginId, Position, Severity, Spaces};

/// A position for the wire.
pub(crate) fn wire_position(position: Position) -> v1::Position {
    v1::Position {
        epoch: position.epoch.number,
        epoch_root: position.epoch.root.0,
        index: position.index.get(),
    }
}

/// A position from the wire.
pub(crate) fn core_position(position: v1::Position) -> Position {
    Position {
        epoch: Epoch { number: position.epoch, root: OriginId(position.epoch_root) },
        index: position.index.into(),
    }
}

/// A level for the wire; `None`: unspecified.
pub(crate) fn wire_confirm(level: Option<ConfirmLevel>) -> i32 {
    let level = match level {
        None => v1::ConfirmLevel::Unspecified,
        Some(ConfirmLevel::Memory) => v1::ConfirmLevel::Memory,
        Some(ConfirmLevel::OneDisk) => v1::ConfirmLevel::OneDisk,
        Some(ConfirmLevel::Disk) => v1::ConfirmLevel::Disk,
    };
    level.into()
}

/// A level from the wire; `None`: unspecified, or of a later release.
pub(crate) fn core_confirm_level(level: i32) -> Option<ConfirmLevel> {
    match v1::ConfirmLevel::try_from(level).unwrap_or_default() {
        v1::ConfirmLevel::Unspecified => None,
        v1::ConfirmLevel::Memory => Some(ConfirmLevel::Memory),
        v1::ConfirmLevel::OneDisk => Some(ConfirmLevel::OneDisk),
        v1::ConfirmLevel::Disk => Some(ConfirmLevel::Disk),
    }
}

/// The versions that a hello names.
pub(crate) fn versions(max: u32, min: Option<u32>) -> Versions {
    Versions { min: min.unwrap_or(max), max }
}

/// A number of which 0 means in the core that it is not known, or not wanted.
pub(crate) fn known(number: u64) -> Option<u64> {
    (number != 0).then_some(number)
}

/// A gap for the wire.
pub(crate) fn wire_gap(gap: &Gap) -> v1::Gap {
    let reason = match gap.reason {
        GapReason::Shed => v1::GapReason::Shed,
        GapReason::Retention => v1::GapReason::Retention,
        GapReason::LogLost => v1::GapReason::LogLost,
        GapReason::Late => v1::GapReason::Late,
    };
    let names = gap.spaces.names().unwrap_or_default();
    v1::Gap {
        after: Some(wire_position(gap.after)),
        until: Some(wire_position(gap.until)),
        reason: reason.into(),
        count: gap.count,
        severity_max: gap.severity_max.map_or(0, Severity::to_wire),
        spaces: names.iter().map(|space| space.as_str().to_owned()).collect(),
    }
}

/// A gap from the wire; or which part of it is malformed.
pub(crate) fn core_gap(gap: v1::Gap) -> Result<Gap, &'static str> {
    let reason = match v1::GapReason::try_from(gap.reason).unwrap_or_default() {
        v1::GapReason::Shed => GapReason::Shed,
        v1::GapReason::Retention => GapReason::Retention,
        v1::GapReason::LogLost => GapReason::LogLost,
        v1::GapReason::Late => GapReason::Late,
        v1::GapReason::Unspecified => return Err("the reason of a gap"),
    };
    if gap.spaces.len() > GAP_SPACES_MAX {
        return Err("the number of spaces of a gap");
    }
    let spaces = Spaces::named(gap.spaces.iter().map(String::as_str));
    Ok(Gap {
        spaces: spaces.map_err(|_| "a space of a gap")?,
        after: core_position(gap.after.ok_or("the beginning of a gap")?),
        until: core_position(gap.until.ok_or("the end of a gap")?),
        reason,
        count: gap.count,
        severity_max: Severity::from_wire(gap.severity_max),
    })
}
