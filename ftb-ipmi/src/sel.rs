//! Entries of the system event log (IPMI 2.0, chapter 32) and bookmarks in it. No I/O.

use crate::sdr::{READING_TYPE_SENSOR_SPECIFIC, READING_TYPE_THRESHOLD, SensorKey};
use ftb_rmcp::Controller;

/// Record type of an event of a sensor.
const RECORD_SYSTEM_EVENT: u8 = 0x02;
/// First record type of entries without a time.
const RECORD_WITHOUT_TIME: u8 = 0xE0;
/// Times below this one count from the start of the BMC, whose clock is not set.
const REAL_TIME_MIN_S: u32 = 0x2000_0000;
/// The time of an entry whose time is unknown.
const UNKNOWN_TIME_S: u32 = u32::MAX;

/// One event, from the log or pushed by the BMC: both have the same sixteen bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SensorEvent {
    /// Number of the entry in the log (0 for pushed events on some boards).
    pub record: u16,
    /// Time in seconds on the clock of the BMC.
    pub time_s: u32,
    /// The sensor; `None` for entries of software (firmware, BIOS), which has its own numbers.
    pub sensor: Option<SensorKey>,
    /// Sensor number in the entry.
    pub number: u8,
    /// Sensor type code.
    pub sensor_type: u8,
    /// Event/reading type code.
    pub reading_type: u8,
    /// Whether the condition began; otherwise it ended.
    pub is_asserted: bool,
    /// Number of the state, or of the threshold and its direction.
    pub offset: u8,
}

impl SensorEvent {
    /// Parses an entry; `None` for other kinds of entries.
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

    /// Whether the event is about a threshold.
    pub fn is_threshold(&self) -> bool {
        self.reading_type == READING_TYPE_THRESHOLD
    }

    /// Whether the sensor type defines the meaning of the offset.
    pub fn is_sensor_specific(&self) -> bool {
        self.reading_type == READING_TYPE_SENSOR_SPECIFIC
    }
}

/// Whether the log accepts another entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogState {
    /// It does, or the BMC does not report it.
    #[default]
    HasRoom,
    /// It is full.
    Full,
    /// It is full and the BMC dropped events.
    Overflowed,
}

/// How far the log has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bookmark {
    /// Number of the last entry read.
    pub record: u16,
    /// Time of the entry: distinguishes it from later entries with the same number.
    pub time_s: u32,
}

impl Bookmark {
    /// Parses the text of a state file.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let bookmark =
            Self { record: words.next()?.parse().ok()?, time_s: words.next()?.parse().ok()? };
        words.next().is_none().then_some(bookmark)
    }

    /// The text of a state file.
    pub fn to_text(self) -> String {
        format!("{} {}\n", self.record, self.time_s)
    }

    /// The bookmark of an entry.
    pub fn of(record: &[u8; 16]) -> Self {
        let time_s = u32::from_le_bytes([record[3], record[4], record[5], record[6]]);
        // Only events and OEM entries below E0h have a time. For others any bytes suffice that do
        // not look like a time.
        let has_time = record[2] < RECORD_WITHOUT_TIME;
        Self {
            record: u16::from_le_bytes([record[0], record[1]]),
            time_s: if has_time { time_s } else { time_s % REAL_TIME_MIN_S },
        }
    }

    /// The time, unless the BMC does not know it.
    pub fn real_time_s(self) -> Option<u32> {
        (REAL_TIME_MIN_S..UNKNOWN_TIME_S).contains(&self.time_s).then_some(self.time_s)
    }

    /// Whether the entry is not later than this time.
    pub fn is_until(self, until_s: u32) -> bool {
        self.real_time_s().is_some_and(|time_s| time_s <= until_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAN_LOW: [u8; 16] =
        [4, 0, 2, 0x10, 0x20, 0x30, 0x40, 0x20, 0, 4, 4, 0x30, 0x01, 0x52, 15, 16];

    #[test]
    fn an_event_has_sensor_state_and_direction() {
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
    fn a_bookmark_is_read_from_its_text_and_other_text_is_rejected() {
        let bookmark = Bookmark::of(&FAN_LOW);
        assert_eq!(Bookmark::parse(&bookmark.to_text()), Some(bookmark));
        for text in ["", "4", "4 x", "4 5 6", "70000 1"] {
            assert_eq!(Bookmark::parse(text), None, "{text}");
        }
    }

    #[test]
    fn only_entries_with_a_real_time_are_compared_by_time() {
        let bookmark = Bookmark::of(&FAN_LOW);
        assert_eq!(bookmark.real_time_s(), Some(0x4030_2010));
        assert!(bookmark.is_until(0x4030_2010) && !bookmark.is_until(0x4030_200F));
        let mut without_time = FAN_LOW;
        without_time[2] = 0xE0;
        let mut unset = FAN_LOW;
        unset[6] = 0x1F;
        let mut unknown = FAN_LOW;
        unknown[3..7].fill(0xFF);
        for entry in [without_time, unset, unknown] {
            assert!(!Bookmark::of(&entry).is_until(u32::MAX), "{entry:?}");
        }
    }
}
