//! Entries of the system event log (IPMI 2.0, chapter 32) and where reading it stands. No I/O.

use crate::sdr::{READING_TYPE_SENSOR_SPECIFIC, READING_TYPE_THRESHOLD, SensorKey};
use ftb_rmcp::Controller;

/// Record type of an event of a sensor.
const RECORD_SYSTEM_EVENT: u8 = 0x02;

/// One event, from the log or as the BMC pushed it: both are the same sixteen bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SensorEvent {
    /// The entry's number in the log (0 for pushed ones on some boards).
    pub record: u16,
    /// When, in seconds on the BMC's clock.
    pub time_s: u32,
    /// Whose; `None` where software (firmware, BIOS) made the entry, which numbers on its own.
    pub sensor: Option<SensorKey>,
    /// Number that the entry gives, whoever made it.
    pub number: u8,
    /// Sensor type code.
    pub sensor_type: u8,
    /// Event/reading type code.
    pub reading_type: u8,
    /// Whether the condition began (as against ended).
    pub is_asserted: bool,
    /// Which state, or which threshold was crossed in which direction.
    pub offset: u8,
}

impl SensorEvent {
    /// From an entry; `None` for entries of other kinds.
    pub fn parse(record: &[u8; 16]) -> Option<Self> {
        if record[2] != RECORD_SYSTEM_EVENT {
            return None;
        }
        let is_software = record[7] & 0x01 != 0;
        let number = record[11];
        Some(Self {
            record: u16::from_le_bytes([record[0], record[1]]),
            time_s: u32::from_le_bytes([record[3], record[4], record[5], record[6]]),
            sensor: (!is_software).then_some(SensorKey {
                owner: Controller { channel: record[8] >> 4, slave: record[7] },
                lun: record[8] & 0b11,
                number,
            }),
            number,
            sensor_type: record[10],
            reading_type: record[12] & 0x7F,
            is_asserted: record[12] & 0x80 == 0,
            offset: record[13] & 0x0F,
        })
    }

    /// Whether it tells of a threshold.
    pub fn is_threshold(&self) -> bool {
        self.reading_type == READING_TYPE_THRESHOLD
    }

    /// Whether its offset means what its sensor type says.
    pub fn is_sensor_specific(&self) -> bool {
        self.reading_type == READING_TYPE_SENSOR_SPECIFIC
    }
}

/// Whether the log takes another entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogState {
    /// It does, or the BMC does not say.
    #[default]
    HasRoom,
    /// No room is left.
    Full,
    /// Events were dropped since no room was left.
    Overflowed,
}

/// How far the log has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bookmark {
    /// The last entry that was read.
    pub record: u16,
    /// Its time: together with the number it is that entry and no later one of the same number.
    pub time_s: u32,
}

impl Bookmark {
    /// From the two numbers of a state file.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let bookmark =
            Self { record: words.next()?.parse().ok()?, time_s: words.next()?.parse().ok()? };
        words.next().is_none().then_some(bookmark)
    }

    /// For a state file.
    pub fn to_text(self) -> String {
        format!("{} {}\n", self.record, self.time_s)
    }

    /// Of an entry.
    pub fn of(record: &[u8; 16]) -> Self {
        // Only events and OEM entries below E0h have a time; for others the bytes serve as well.
        let time = [record[3], record[4], record[5], record[6]];
        Self {
            record: u16::from_le_bytes([record[0], record[1]]),
            time_s: u32::from_le_bytes(time),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAN_LOW: [u8; 16] =
        [4, 0, 2, 0x10, 0x20, 0x30, 0x40, 0x20, 0, 4, 4, 0x30, 0x01, 0x52, 15, 16];

    #[test]
    fn an_entry_names_its_sensor_and_what_began_or_ended() {
        let event = SensorEvent::parse(&FAN_LOW).expect("an event");
        assert_eq!(event.sensor, Some(SensorKey::bmc(0x30)));
        assert!(event.is_asserted && event.is_threshold());
        assert_eq!((event.offset, event.record, event.time_s), (2, 4, 0x4030_2010));
        let mut ended = FAN_LOW;
        ended[12] |= 0x80;
        assert!(!SensorEvent::parse(&ended).expect("an event").is_asserted);
        let mut by_firmware = FAN_LOW;
        by_firmware[7] = 0x21;
        assert_eq!(SensorEvent::parse(&by_firmware).expect("an event").sensor, None);
        let mut oem = FAN_LOW;
        oem[2] = 0xC0;
        assert_eq!(SensorEvent::parse(&oem), None);
    }

    #[test]
    fn a_bookmark_survives_a_file_and_rubbish_is_none() {
        let bookmark = Bookmark::of(&FAN_LOW);
        assert_eq!(Bookmark::parse(&bookmark.to_text()), Some(bookmark));
        for rubbish in ["", "4", "4 x", "4 5 6", "70000 1"] {
            assert_eq!(Bookmark::parse(rubbish), None, "{rubbish}");
        }
    }
}
