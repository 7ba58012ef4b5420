//! Sensor data records (IPMI 2.0, chapter 43): parses the bytes of one record.
//!
//! Responsible for: full (01h), compact (02h) and event-only (03h) sensor records and entity
//! associations (08h, 09h). Not for: reading records from BMCs, or judging readings. Every byte is
//! hostile: a record that is too short for its type is an error, never a panic.

mod factors;
mod names;
mod text;

pub use factors::{AnalogFormat, Factors, Linearization};
pub use names::{Entity, SensorClass, sensor_type_name, unit_name};
pub use text::decode_id;

use ftb_rmcp::Controller;

/// Largest record: five bytes of header, and a length of one byte.
pub const RECORD_BYTES_MAX: usize = 5 + 255;
/// Most sensors of one compact record (the count has four bits).
pub const SHARED_SENSORS_MAX: u8 = 15;

/// Event/reading type code of sensors with thresholds.
pub const READING_TYPE_THRESHOLD: u8 = 0x01;
/// Event/reading type code of sensors with the states of their sensor type.
pub const READING_TYPE_SENSOR_SPECIFIC: u8 = 0x6F;

/// Why a record is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SdrError {
    /// The record ends before a field of its type.
    #[error("record {id:#06x} of type {kind:#04x} ends after {bytes} bytes, before its {field}")]
    Short {
        /// Record id; 0 if it is missing.
        id: u16,
        /// Record type.
        kind: u8,
        /// Length in bytes.
        bytes: usize,
        /// The first field that is missing.
        field: &'static str,
    },
}

/// A parsed record.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// One sensor, or several that share a compact or event-only record.
    Sensors(Vec<Sensor>),
    /// An entity and its parts.
    Association(Association),
    /// A type that this program does not use.
    Other(u8),
}

/// Address of a sensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SensorKey {
    /// The controller of the sensor.
    pub owner: Controller,
    /// Logical unit of the controller, 0 to 3.
    pub lun: u8,
    /// Number of the sensor.
    pub number: u8,
}

impl SensorKey {
    /// A sensor of the BMC, logical unit 0.
    pub fn bmc(number: u8) -> Self {
        Self { owner: Controller::BMC, lun: 0, number }
    }
}

/// The six thresholds as raw bytes; `None` for missing ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RawThresholds {
    /// Lower non-critical, lower critical, lower non-recoverable, upper non-critical, upper
    /// critical, upper non-recoverable: the order of bits in masks of the standard.
    pub values: [Option<u8>; 6],
}

impl RawThresholds {
    /// From a mask of readable thresholds, and the six values in the order of its bits.
    pub fn from_mask(mask: u8, values: [u8; 6]) -> Self {
        let mut out = Self::default();
        for (bit, value) in values.into_iter().enumerate() {
            if mask & (1 << bit) != 0 {
                out.values[bit] = Some(value);
            }
        }
        out
    }
}

/// A sensor as its record describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sensor {
    /// Id of the record.
    pub record_id: u16,
    /// Address of the sensor.
    pub key: SensorKey,
    /// The part that it belongs to.
    pub entity: Entity,
    /// Sensor type code (table 42-3).
    pub sensor_type: u8,
    /// Event/reading type code (table 42-1).
    pub reading_type: u8,
    /// Name; never empty: without a name it contains the number.
    pub name: String,
    /// The sensor has no reading, only entries in the event log.
    pub event_only: bool,
    /// Conversion from raw readings to values; `None` for discrete sensors.
    pub factors: Option<Factors>,
    /// Unit of the value; empty for discrete sensors.
    pub unit: String,
    /// Thresholds in the record.
    pub thresholds: RawThresholds,
    /// Whether the BMC returns current thresholds.
    pub thresholds_readable: bool,
    /// Raw hysteresis above a threshold that a falling reading must undercut.
    pub hysteresis_up: u8,
    /// Raw hysteresis below a threshold that a rising reading must exceed.
    pub hysteresis_down: u8,
    /// Possible states of a discrete sensor, one bit each.
    pub states_mask: u16,
}

impl Sensor {
    /// Whether it has thresholds and values; otherwise it has states.
    pub fn is_threshold(&self) -> bool {
        self.reading_type == READING_TYPE_THRESHOLD
    }

    /// The class of its sensor type.
    pub fn class(&self) -> SensorClass {
        SensorClass::of(self.sensor_type)
    }
}

/// A container entity and its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Association {
    /// The container.
    pub container: Entity,
    /// The parts, as inclusive ranges of instances of one entity id.
    pub parts: Vec<(Entity, Entity)>,
}

impl Association {
    /// Whether an entity is one of the parts.
    pub fn has(&self, entity: Entity) -> bool {
        self.parts.iter().any(|(first, last)| {
            first.id == entity.id && (first.instance..=last.instance).contains(&entity.instance)
        })
    }
}

/// The bytes of a record; errors name the missing field.
struct Fields<'a> {
    bytes: &'a [u8],
}

impl Fields<'_> {
    fn short(&self, field: &'static str) -> SdrError {
        let id = match self.bytes {
            [low, high, ..] => u16::from_le_bytes([*low, *high]),
            _ => 0,
        };
        SdrError::Short {
            id,
            kind: self.bytes.get(3).copied().unwrap_or(0),
            bytes: self.bytes.len(),
            field,
        }
    }

    fn at(&self, index: usize, field: &'static str) -> Result<u8, SdrError> {
        self.bytes.get(index).copied().ok_or_else(|| self.short(field))
    }

    fn array<const N: usize>(
        &self,
        start: usize,
        field: &'static str,
    ) -> Result<[u8; N], SdrError> {
        self.bytes
            .get(start..start + N)
            .and_then(|slice| slice.try_into().ok())
            .ok_or_else(|| self.short(field))
    }
}

impl Record {
    /// Parses a whole record with its header. Ignores bytes after its end.
    ///
    /// # Errors
    /// [`SdrError`] if it ends before a field of its type.
    pub fn parse(bytes: &[u8]) -> Result<Self, SdrError> {
        let all = Fields { bytes };
        let announced = 5 + usize::from(all.at(4, "length")?);
        let fields = Fields { bytes: &bytes[..announced.min(bytes.len())] };
        match fields.at(3, "type")? {
            0x01 => Ok(Self::Sensors(vec![full(&fields)?])),
            0x02 => compact(&fields).map(Self::Sensors),
            0x03 => event_only(&fields).map(Self::Sensors),
            0x08 => association(&fields, 8, 2).map(Self::Association),
            0x09 => association(&fields, 10, 4).map(Self::Association),
            kind => Ok(Self::Other(kind)),
        }
    }
}

fn key(fields: &Fields<'_>, number: u8) -> Result<SensorKey, SdrError> {
    let place = fields.at(6, "owner's channel and logical unit")?;
    let owner = Controller { channel: place >> 4, slave: fields.at(5, "owner")? };
    Ok(SensorKey { owner, lun: place & 0b11, number })
}

/// The fields of every kind of record. The offsets of the two types differ.
fn head(fields: &Fields<'_>, type_at: usize, reading_type_at: usize) -> Result<Sensor, SdrError> {
    let number = fields.at(7, "sensor number")?;
    Ok(Sensor {
        record_id: u16::from_le_bytes(fields.array(0, "record id")?),
        key: key(fields, number)?,
        entity: Entity {
            id: fields.at(8, "entity")?,
            instance: fields.at(9, "entity instance")? & 0x7F,
        },
        sensor_type: fields.at(type_at, "sensor type")?,
        reading_type: fields.at(reading_type_at, "reading type")?,
        name: format!("sensor {number:02X}h"),
        event_only: false,
        factors: None,
        unit: String::new(),
        thresholds: RawThresholds::default(),
        thresholds_readable: false,
        hysteresis_up: 0,
        hysteresis_down: 0,
        states_mask: 0,
    })
}

/// The common fields of full and compact records, bytes 5 to 22.
fn common(fields: &Fields<'_>) -> Result<Sensor, SdrError> {
    let mut sensor = head(fields, 12, 13)?;
    let capabilities = fields.at(11, "capabilities")?;
    let [_, _, mask] = fields.array::<3>(16, "readable thresholds")?;
    let states = u16::from_le_bytes(fields.array(18, "states")?);
    let [units, base, modifier] = fields.array(20, "units")?;
    if sensor.is_threshold() {
        sensor.unit = unit_name(units, base, modifier);
        sensor.thresholds = RawThresholds::from_mask(mask & 0x3F, [0; 6]);
        sensor.thresholds_readable = matches!((capabilities >> 2) & 0b11, 1 | 2);
    } else {
        sensor.states_mask = states & 0x7FFF;
    }
    Ok(sensor)
}

fn full(fields: &Fields<'_>) -> Result<Sensor, SdrError> {
    let mut sensor = common(fields)?;
    if sensor.is_threshold() {
        let format = AnalogFormat::from_bits(fields.at(20, "units")? >> 6);
        let conversion = fields.array(23, "conversion factors")?;
        sensor.factors = format.map(|format| Factors::from_record(format, conversion));
        // The record lists them from the highest; the masks count from the lowest.
        let [unr, uc, unc, lnr, lc, lnc] = fields.array(36, "thresholds")?;
        let present = sensor.thresholds;
        for (slot, value) in [lnc, lc, lnr, unc, uc, unr].into_iter().enumerate() {
            sensor.thresholds.values[slot] = present.values[slot].map(|_| value);
        }
    }
    [sensor.hysteresis_up, sensor.hysteresis_down] = fields.array(42, "hysteresis")?;
    if let Some(name) = name_at(fields, 47)? {
        sensor.name = name;
    }
    Ok(sensor)
}

fn compact(fields: &Fields<'_>) -> Result<Vec<Sensor>, SdrError> {
    let mut sensor = common(fields)?;
    // A compact record has no threshold values: only the BMC returns them.
    sensor.thresholds = RawThresholds::default();
    [sensor.hysteresis_up, sensor.hysteresis_down] = fields.array(25, "hysteresis")?;
    if let Some(name) = name_at(fields, 31)? {
        sensor.name = name;
    }
    Ok(shared(&sensor, fields.array(23, "record sharing")?))
}

fn event_only(fields: &Fields<'_>) -> Result<Vec<Sensor>, SdrError> {
    let mut sensor = Sensor { event_only: true, ..head(fields, 10, 11)? };
    if let Some(name) = name_at(fields, 16)? {
        sensor.name = name;
    }
    Ok(shared(&sensor, fields.array(12, "record sharing")?))
}

/// The sensors of one record, with consecutive numbers. Each has its own name and, if the record
/// says so, its own entity instance.
fn shared(first: &Sensor, [count, modifier]: [u8; 2]) -> Vec<Sensor> {
    let total = (count & 0x0F).max(1);
    if total == 1 {
        return vec![first.clone()];
    }
    let alphabetic = (count >> 4) & 0b11 == 1;
    let offset = modifier & 0x7F;
    (0..total)
        .map_while(|index| {
            let mut sensor = first.clone();
            sensor.key.number = first.key.number.checked_add(index)?;
            if modifier & 0x80 != 0 {
                sensor.entity.instance = first.entity.instance.saturating_add(index) & 0x7F;
            }
            let ordinal = u16::from(offset) + u16::from(index);
            sensor.name.push_str(&match alphabetic {
                true => letters(ordinal),
                false => ordinal.to_string(),
            });
            Some(sensor)
        })
        .collect()
}

/// 0 is A, 25 is Z, 26 is AA.
fn letters(ordinal: u16) -> String {
    let letter = |n: u16| char::from(b'A' + u8::try_from(n % 26).unwrap_or(0));
    match ordinal / 26 {
        0 => letter(ordinal).to_string(),
        upper => format!("{}{}", letter(upper - 1), letter(ordinal)),
    }
}

fn name_at(fields: &Fields<'_>, index: usize) -> Result<Option<String>, SdrError> {
    let kind = fields.at(index, "name")?;
    let bytes = fields.bytes.get(index + 1..).unwrap_or_default();
    let name = decode_id(kind, bytes);
    Ok((!name.is_empty()).then_some(name))
}

/// `stride` is the size of one part; its last two bytes are entity id and instance.
fn association(fields: &Fields<'_>, start: usize, stride: usize) -> Result<Association, SdrError> {
    let container = Entity { id: fields.at(5, "container")?, instance: fields.at(6, "container")? };
    let flags = fields.at(start - 1, "flags")?;
    let mut entities = [Entity { id: 0, instance: 0 }; 4];
    for (index, entity) in entities.iter_mut().enumerate() {
        let [id, instance] =
            fields.array(start + index * stride + stride - 2, "contained entity")?;
        *entity = Entity { id, instance };
    }
    let is_range = flags & 0x80 != 0;
    let parts = match is_range {
        true => vec![(entities[0], entities[1]), (entities[2], entities[3])],
        false => entities.into_iter().map(|entity| (entity, entity)).collect(),
    };
    let parts = parts.into_iter().filter(|(first, _)| first.id != 0).collect();
    Ok(Association { container, parts })
}

#[cfg(test)]
pub(crate) mod tests;
