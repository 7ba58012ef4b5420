//! Commands as [`IpmiCommand`]s of `ipmi-rs`: those that it lacks, hides or parses without checks.
//! Get Device ID is its own.

use crate::sdr::SensorKey;
use crate::sel::LogState;
use ftb_rmcp::Destination;
use ipmi_rs::connection::{IpmiCommand, Message, NetFn, NotEnoughData};

impl From<SensorKey> for Destination {
    fn from(key: SensorKey) -> Self {
        Self { controller: key.owner, lun: key.lun }
    }
}

/// A command with a destination.
pub trait Command: IpmiCommand<Error = NotEnoughData> {
    /// The BMC, if the command has no other destination.
    fn to(&self) -> Destination {
        Destination::BMC
    }
}

impl Command for ipmi_rs::app::GetDeviceId {}

fn fixed<const N: usize>(data: &[u8]) -> Result<[u8; N], NotEnoughData> {
    data.get(..N).and_then(|slice| slice.try_into().ok()).ok_or(NotEnoughData)
}

macro_rules! command {
    ($name:ident, $output:ty, |$this:ident| $message:expr, |$data:ident| $parse:expr) => {
        impl From<$name> for Message {
            fn from($this: $name) -> Self {
                $message
            }
        }
        impl IpmiCommand for $name {
            type Output = $output;
            type Error = NotEnoughData;
            fn parse_success_response($data: &[u8]) -> Result<Self::Output, NotEnoughData> {
                $parse
            }
        }
    };
}

/// Get Sensor Reading.
pub(crate) struct GetReading(pub(crate) SensorKey);
command!(
    GetReading,
    RawReading,
    |this| Message::new_request(NetFn::SensorEvent, 0x2D, vec![this.0.number]),
    |data| RawReading::parse(data).ok_or(NotEnoughData)
);
impl Command for GetReading {
    fn to(&self) -> Destination {
        self.0.into()
    }
}

/// The answer of a sensor, undecoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawReading {
    /// The raw value; `None` if the BMC has none (scanning is off, or the first update is in
    /// progress).
    pub value: Option<u8>,
    /// Threshold sensors: the comparison by the BMC (bits 0 to 5). Discrete sensors: the current
    /// states (bits 0 to 14). 0 if the value is missing.
    pub states: u16,
}

impl RawReading {
    /// From the data of an answer; `None` if it is too short.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let [value, flags] = *data.first_chunk()?;
        let is_scanning = flags & 0x40 != 0;
        let is_unavailable = flags & 0x20 != 0;
        if !is_scanning || is_unavailable {
            return Some(Self { value: None, states: 0 });
        }
        let low = data.get(2).copied().unwrap_or(0);
        let high = data.get(3).copied().unwrap_or(0) & 0x7F;
        Some(Self { value: Some(value), states: u16::from_le_bytes([low, high]) })
    }
}

/// Get Sensor Thresholds: mask of readable ones, and the six values in the order of its bits.
pub(crate) struct GetThresholds(pub(crate) SensorKey);
command!(
    GetThresholds,
    [u8; 7],
    |this| Message::new_request(NetFn::SensorEvent, 0x27, vec![this.0.number]),
    |data| fixed(data)
);
impl Command for GetThresholds {
    fn to(&self) -> Destination {
        self.0.into()
    }
}

/// Get Sensor Reading Factors for one raw reading; next reading and six bytes of factors.
pub(crate) struct GetFactors {
    pub(crate) key: SensorKey,
    pub(crate) raw: u8,
}
command!(
    GetFactors,
    [u8; 7],
    |this| Message::new_request(NetFn::SensorEvent, 0x23, vec![this.key.number, this.raw]),
    |data| fixed(data)
);
impl Command for GetFactors {
    fn to(&self) -> Destination {
        self.key.into()
    }
}

/// The place of sensor records. Most BMCs have a repository; satellite controllers have only the
/// records of their own sensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repository {
    Central,
    Device,
}

impl Repository {
    fn message(self, central: u8, device: u8, data: Vec<u8>) -> Message {
        match self {
            Self::Central => Message::new_request(NetFn::Storage, central, data),
            Self::Device => Message::new_request(NetFn::SensorEvent, device, data),
        }
    }
}

/// Reserve SDR Repository, or Reserve Device SDR Repository.
pub(crate) struct ReserveSdr(pub(crate) Repository);
command!(ReserveSdr, [u8; 2], |this| this.0.message(0x22, 0x22, Vec::new()), |data| fixed(data));
impl Command for ReserveSdr {}

/// Get SDR, or Get Device SDR: a piece of one record.
pub(crate) struct GetSdr {
    pub(crate) repository: Repository,
    pub(crate) reservation: [u8; 2],
    pub(crate) record: u16,
    pub(crate) offset: u8,
    pub(crate) count: u8,
}
command!(
    GetSdr,
    SdrPiece,
    |this| {
        let [low, high] = this.record.to_le_bytes();
        let [res_low, res_high] = this.reservation;
        let data = vec![res_low, res_high, low, high, this.offset, this.count];
        this.repository.message(0x23, 0x21, data)
    },
    |data| {
        let next = u16::from_le_bytes(fixed(data)?);
        Ok(SdrPiece { next, bytes: data.get(2..).unwrap_or_default().to_vec() })
    }
);
impl Command for GetSdr {}

/// A piece of a record.
pub(crate) struct SdrPiece {
    /// Id of the next record; FFFFh at the end.
    pub(crate) next: u16,
    pub(crate) bytes: Vec<u8>,
}

/// Get SDR Repository Info.
pub(crate) struct GetRepositoryInfo;
command!(
    GetRepositoryInfo,
    RepositoryInfo,
    |_this| Message::new_request(NetFn::Storage, 0x20, Vec::new()),
    |data| {
        let data: [u8; 13] = fixed(data)?;
        Ok(RepositoryInfo {
            records: u16::from_le_bytes([data[1], data[2]]),
            added_s: u32::from_le_bytes([data[5], data[6], data[7], data[8]]),
            erased_s: u32::from_le_bytes([data[9], data[10], data[11], data[12]]),
        })
    }
);
impl Command for GetRepositoryInfo {}

/// State of the repository of sensor records. If it is unchanged, so are the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RepositoryInfo {
    pub(crate) records: u16,
    /// Time of the last addition on the BMC's clock.
    pub(crate) added_s: u32,
    /// Time of the last erasure on the BMC's clock.
    pub(crate) erased_s: u32,
}

/// Get SEL Info.
pub(crate) struct GetSelInfo;
command!(
    GetSelInfo,
    SelInfo,
    |_this| Message::new_request(NetFn::Storage, 0x40, Vec::new()),
    |data| {
        let has_overflowed = data.get(13).is_some_and(|support| support & 0x80 != 0);
        let data: [u8; 13] = fixed(data)?;
        Ok(SelInfo {
            entries: u16::from_le_bytes([data[1], data[2]]),
            added_s: u32::from_le_bytes([data[5], data[6], data[7], data[8]]),
            erased_s: u32::from_le_bytes([data[9], data[10], data[11], data[12]]),
            free_bytes: u16::from_le_bytes([data[3], data[4]]),
            has_overflowed,
        })
    }
);
impl Command for GetSelInfo {}

/// State of the event log. If it is unchanged, no entry was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SelInfo {
    pub(crate) entries: u16,
    /// Time of the last addition on the BMC's clock.
    pub(crate) added_s: u32,
    /// Time of the last erasure on the BMC's clock.
    pub(crate) erased_s: u32,
    /// Free space; FFFFh if it is greater or unknown.
    pub(crate) free_bytes: u16,
    /// The BMC dropped events because the log is full.
    pub(crate) has_overflowed: bool,
}

impl SelInfo {
    /// Whether the log accepts another entry.
    pub(crate) fn state(&self) -> LogState {
        const ENTRY_BYTES: u16 = 16;
        match self.entries > 0 && self.free_bytes < ENTRY_BYTES {
            _ if self.has_overflowed => LogState::Overflowed,
            true => LogState::Full,
            false => LogState::HasRoom,
        }
    }
}

/// Get SEL Entry: a whole entry, without a reservation.
pub(crate) struct GetSelEntry(pub(crate) u16);
command!(
    GetSelEntry,
    SelEntry,
    |this| {
        let [low, high] = this.0.to_le_bytes();
        Message::new_request(NetFn::Storage, 0x43, vec![0, 0, low, high, 0, 0xFF])
    },
    |data| {
        let next = u16::from_le_bytes(fixed(data)?);
        let record = fixed(data.get(2..).unwrap_or_default())?;
        Ok(SelEntry { next, record })
    }
);
impl Command for GetSelEntry {}

/// One entry of the event log.
pub(crate) struct SelEntry {
    /// Id of the next entry; FFFFh at the end.
    pub(crate) next: u16,
    pub(crate) record: [u8; 16],
}

/// Get Chassis Status: whether the machine is powered on.
pub(crate) struct GetPower;
command!(GetPower, bool, |_this| Message::new_request(NetFn::Chassis, 0x01, Vec::new()), |data| {
    fixed::<1>(data).map(|[state]| state & 0x01 != 0)
});
impl Command for GetPower {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_without_scanning_or_before_the_first_update_has_no_value() {
        let parse = |data: &[u8]| RawReading::parse(data);
        assert_eq!(parse(&[34, 0xC0, 0x02]), Some(RawReading { value: Some(34), states: 2 }));
        assert_eq!(parse(&[34, 0x80, 0x02]), Some(RawReading { value: None, states: 0 }));
        assert_eq!(parse(&[34, 0xE0, 0x02]), Some(RawReading { value: None, states: 0 }));
        assert_eq!(
            parse(&[0, 0xC0, 0x41, 0x80]),
            Some(RawReading { value: Some(0), states: 0x41 })
        );
        assert_eq!(parse(&[34, 0xC0]), Some(RawReading { value: Some(34), states: 0 }));
        assert_eq!(parse(&[34]), None);
    }
}
