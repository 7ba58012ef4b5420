//! Reads the sensors of a BMC: records in pieces, and current thresholds.

use crate::bmc::command::{
    GetRepositoryInfo, GetSdr, GetThresholds, Repository, RepositoryInfo, ReserveSdr, SdrPiece,
};
use crate::bmc::{Bmc, BmcError};
use crate::monitor::Watched;
use crate::rules::{Policy, Rule};
use crate::sdr::{Association, RECORD_BYTES_MAX, RawThresholds, Record, Sensor, SensorClass};
use ftb_rmcp::Controller;
use ipmi_rs::app::{DeviceId, GetDeviceId};
use std::collections::BTreeSet;

/// Most records of one BMC.
const RECORDS_MAX: usize = 4096;
/// Most watched sensors of one BMC. Further ones are ignored, with a warning.
const SENSORS_MAX: usize = 1024;
/// Bytes of one request. Every BMC returns this many; few return a whole record.
const PIECE_BYTES: u8 = 16;
/// Smallest request before a record is given up.
const PIECE_BYTES_MIN: u8 = 4;
/// How many times reading a record starts again after a cancelled reservation.
const RESTARTS_MAX: u32 = 8;
/// Size of a record's header.
const HEADER_BYTES: u8 = 5;
/// Record id of "no more records".
const LAST: u16 = 0xFFFF;

/// The sensors of a BMC.
#[derive(Debug)]
pub struct Inventory {
    /// Sensors to watch.
    pub watched: Vec<Watched>,
    /// Indices of rules that match no sensor and are not optional.
    pub unmatched: Vec<usize>,
}

/// The parsed records of a BMC, and the state of the repository when they were read.
#[derive(Clone, Debug)]
pub struct Records {
    stamp: Option<Stamp>,
    sensors: Vec<Sensor>,
    associations: Vec<Association>,
}

/// Firmware and state of the repository: unchanged as long as the records are.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    device: [u32; 5],
    repository: RepositoryInfo,
}

/// Reads the records of a BMC and applies the rules. `known` are the records of an earlier call.
/// They are read again, and replaced, only if they may have changed.
///
/// # Errors
/// [`BmcError`] if the BMC is lost, or refuses to return records.
pub async fn read(
    bmc: &mut Bmc,
    rules: &[Rule],
    known: &mut Option<Records>,
) -> Result<Inventory, BmcError> {
    let Records { sensors, associations, .. } = current_records(bmc, known).await?;
    let unmatched = rules
        .iter()
        .enumerate()
        .filter(|(_, rule)| !rule.optional && !sensors.iter().any(|sensor| rule.matches(sensor)))
        .map(|(index, _)| index)
        .collect();
    let mut watched = Vec::with_capacity(sensors.len());
    let mut silent = BTreeSet::new();
    for sensor in sensors {
        let policy = Policy::of(&sensor, rules);
        if policy.is_ignored {
            continue;
        }
        let thresholds = thresholds(bmc, &sensor, &mut silent).await?;
        let mut entry = Watched::new(sensor, policy, thresholds);
        if entry.policy.class == SensorClass::Fan && entry.cools.is_none() {
            entry.cools = cooled_by(&entry.sensor, &associations);
        }
        watched.push(entry);
    }
    Ok(Inventory { watched, unmatched })
}

/// The container of the fan's entity, if the records have one.
fn cooled_by(fan: &Sensor, associations: &[Association]) -> Option<String> {
    let container = associations.iter().find(|list| list.has(fan.entity))?.container;
    Some(format!("{} {}", container.name(), container.instance))
}

/// The current thresholds. A silent controller behind the BMC is asked once.
async fn thresholds(
    bmc: &mut Bmc,
    sensor: &Sensor,
    silent: &mut BTreeSet<Controller>,
) -> Result<RawThresholds, BmcError> {
    let owner = sensor.key.owner;
    let is_askable = !sensor.event_only && !owner.is_software() && !silent.contains(&owner);
    if !sensor.thresholds_readable || !is_askable {
        return Ok(sensor.thresholds);
    }
    match bmc.run(GetThresholds(sensor.key)).await {
        Ok([mask, values @ ..]) => Ok(RawThresholds::from_mask(mask, values)),
        Err(error) if error.is_lost() => Err(error),
        // The thresholds of the record are valid then.
        Err(error) => {
            tracing::debug!(sensor = sensor.name, %error, "thresholds are not readable");
            if error.is_unreached(owner) {
                silent.insert(owner);
            }
            Ok(sensor.thresholds)
        }
    }
}

async fn current_records(bmc: &mut Bmc, known: &mut Option<Records>) -> Result<Records, BmcError> {
    let device = bmc.run(GetDeviceId).await?;
    let repository = match device.sdr_repository_support || !device.provides_device_sdrs {
        true => Repository::Central,
        false => Repository::Device,
    };
    let stamp = match repository {
        Repository::Central => stamp(bmc, &device).await?,
        Repository::Device => None,
    };
    match known {
        Some(records) if stamp.is_some() && records.stamp == stamp => Ok(records.clone()),
        _ => {
            let (sensors, associations) = read_records(bmc, repository).await?;
            let records = Records { stamp, sensors, associations };
            Ok(known.insert(records).clone())
        }
    }
}

/// `None` if the BMC does not report changes of its records.
async fn stamp(bmc: &mut Bmc, device: &DeviceId) -> Result<Option<Stamp>, BmcError> {
    match bmc.run(GetRepositoryInfo).await {
        Ok(info) if info.added_s == 0 || info.added_s == u32::MAX => Ok(None),
        Ok(repository) => {
            let device = [
                u32::from(device.device_id),
                u32::from(device.major_fw_revision),
                u32::from(device.minor_fw_revision),
                device.manufacturer_id,
                u32::from(device.product_id),
            ];
            Ok(Some(Stamp { device, repository }))
        }
        Err(error) if error.is_lost() => Err(error),
        Err(_) => Ok(None),
    }
}

async fn read_records(
    bmc: &mut Bmc,
    repository: Repository,
) -> Result<(Vec<Sensor>, Vec<Association>), BmcError> {
    let mut reader = RecordReader { repository, reservation: [0, 0], piece: PIECE_BYTES };
    reader.reserve(bmc).await?;
    let (mut sensors, mut associations) = (Vec::new(), Vec::new());
    let mut id = 0;
    for _ in 0..RECORDS_MAX {
        let (next, bytes) = reader.record(bmc, id).await?;
        match Record::parse(&bytes) {
            Ok(Record::Sensors(list)) => sensors.extend(list),
            Ok(Record::Association(list)) => associations.push(list),
            Ok(Record::Other(_)) => {}
            Err(error) => tracing::warn!(%error, "malformed sensor record ignored"),
        }
        if sensors.len() > SENSORS_MAX {
            tracing::warn!(limit = SENSORS_MAX, "too many sensors: ignoring the rest");
            sensors.truncate(SENSORS_MAX);
            break;
        }
        if next == LAST || next == id {
            break;
        }
        id = next;
    }
    Ok((sensors, associations))
}

struct RecordReader {
    repository: Repository,
    reservation: [u8; 2],
    piece: u8,
}

impl RecordReader {
    async fn reserve(&mut self, bmc: &mut Bmc) -> Result<(), BmcError> {
        match bmc.run(ReserveSdr(self.repository)).await {
            Ok(reservation) => self.reservation = reservation,
            Err(error) if error.is_lost() => return Err(error),
            // Some BMCs have no reservations and accept 0.
            Err(_) => self.reservation = [0, 0],
        }
        Ok(())
    }

    /// A whole record and the id of the next. Starts again if the BMC cancels the reservation,
    /// because the record may have changed.
    async fn record(&mut self, bmc: &mut Bmc, id: u16) -> Result<(u16, Vec<u8>), BmcError> {
        let mut restarts = 0;
        loop {
            match self.try_record(bmc, id).await {
                Err(error) if error.code() == Some(0xC5) && restarts < RESTARTS_MAX => {
                    restarts += 1;
                    self.reserve(bmc).await?;
                }
                other => return other,
            }
        }
    }

    async fn try_record(&mut self, bmc: &mut Bmc, id: u16) -> Result<(u16, Vec<u8>), BmcError> {
        let SdrPiece { next, bytes: mut record } = self.get(bmc, id, 0, HEADER_BYTES).await?;
        let Some(length) = record.get(4) else {
            return Err(BmcError::Short { command: 0x23 });
        };
        let total = (usize::from(HEADER_BYTES) + usize::from(*length)).min(RECORD_BYTES_MAX);
        record.truncate(usize::from(HEADER_BYTES));
        while record.len() < total {
            let left = u8::try_from(total - record.len()).unwrap_or(u8::MAX);
            // Offsets have one byte: the rest of the record is unreadable.
            let Ok(offset) = u8::try_from(record.len()) else { break };
            let count = left.min(self.piece);
            match self.get(bmc, id, offset, count).await {
                Ok(piece) if piece.bytes.is_empty() => break,
                Ok(piece) => {
                    record.extend_from_slice(&piece.bytes[..piece.bytes.len().min(count.into())]);
                }
                Err(error) if is_too_much(&error) && self.piece > PIECE_BYTES_MIN => {
                    self.piece /= 2
                }
                Err(error) => return Err(error),
            }
        }
        Ok((next, record))
    }

    async fn get(
        &self,
        bmc: &mut Bmc,
        record: u16,
        offset: u8,
        count: u8,
    ) -> Result<SdrPiece, BmcError> {
        let (repository, reservation) = (self.repository, self.reservation);
        bmc.run(GetSdr { repository, reservation, record, offset, count }).await
    }
}

/// "Cannot return that many bytes", and the codes of some BMCs for the same.
fn is_too_much(error: &BmcError) -> bool {
    matches!(error.code(), Some(0xCA | 0xC8 | 0xC7 | 0xFF))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sdr::Entity;

    #[test]
    fn a_fan_cools_the_container_of_its_entity() {
        let fan = crate::sdr::tests::fan();
        let socket = Entity { id: 3, instance: 2 };
        let parts = |instance| {
            let part = Entity { id: fan.entity.id, instance };
            vec![(part, part)]
        };
        let list = |instance| Association { container: socket, parts: parts(instance) };
        assert_eq!(cooled_by(&fan, &[list(7), list(1)]).as_deref(), Some("processor 2"));
        assert_eq!(cooled_by(&fan, &[list(7)]), None);
    }
}
