//! Asking sensors for their readings.

use crate::bmc::command::{GetFactors, GetPower, GetReading, RawReading};
use crate::bmc::{Bmc, BmcError};
use crate::monitor::{Reading, Watched};
use crate::sdr::{BMC_ADDRESS, Factors, Linearization};
use std::collections::HashMap;

/// "Requested sensor, data, or record not present": the part is gone.
const NOT_PRESENT: u8 = 0xCB;

/// Busy, timed out, initializing, updating: another time the BMC would answer.
const FOR_NOW: [u8; 6] = [0xC0, 0xC3, 0xCE, 0xD0, 0xD1, 0xD2];

/// What reading some sensors gave.
pub(crate) struct Pass {
    /// Readings, by index.
    pub(crate) samples: Vec<(usize, Reading)>,
    /// Whether every sensor that has readings at all was read.
    pub(crate) is_complete: bool,
}

/// Reads the sensors of one BMC.
pub(crate) struct Poller {
    polled: Vec<usize>,
    /// Factors of sensors whose factors depend on the reading, by index and raw reading.
    factors: HashMap<(usize, u8), Factors>,
}

impl Poller {
    pub(crate) fn new(watched: &[Watched]) -> Self {
        let is_polled = |watched: &Watched| {
            // Sensors of other controllers would have to be asked through a bridge.
            !watched.sensor.event_only && watched.sensor.key.owner == BMC_ADDRESS
        };
        let polled =
            (0..watched.len()).filter(|index| watched.get(*index).is_some_and(is_polled)).collect();
        Self { polled, factors: HashMap::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.polled.len()
    }

    pub(crate) fn all(&self) -> Vec<usize> {
        self.polled.clone()
    }

    /// Reads these sensors, one after the other. A sensor whose reading the BMC refuses is left out;
    /// a pass in which it refused one for now, or all of them, is not complete.
    pub(crate) async fn read(
        &mut self,
        bmc: &mut Bmc,
        watched: &[Watched],
        indices: &[usize],
    ) -> Result<Pass, BmcError> {
        let mut is_complete = true;
        let mut samples = Vec::with_capacity(indices.len());
        for index in indices {
            let Some(sensor) = watched.get(*index) else { continue };
            match bmc.run(GetReading(sensor.sensor.key)).await {
                Ok(raw) => {
                    let factors = self.factors_for(bmc, *index, sensor, raw).await?;
                    samples.push((*index, sensor.reading(raw, factors.as_ref())));
                }
                Err(error) if error.is_lost() => return Err(error),
                Err(error) if error.code() == Some(NOT_PRESENT) => {
                    let gone = RawReading { value: None, states: 0 };
                    samples.push((*index, sensor.reading(gone, None)));
                }
                Err(error) => {
                    is_complete &= !error.code().is_some_and(|code| FOR_NOW.contains(&code));
                    tracing::debug!(sensor = sensor.sensor.name, %error, "no reading");
                }
            }
        }
        is_complete &= !samples.is_empty();
        Ok(Pass { samples, is_complete })
    }

    async fn factors_for(
        &mut self,
        bmc: &mut Bmc,
        index: usize,
        watched: &Watched,
        raw: RawReading,
    ) -> Result<Option<Factors>, BmcError> {
        let (Some(record), Some(raw)) = (watched.sensor.factors, raw.value) else {
            return Ok(None);
        };
        if record.linearization != Linearization::PerReading {
            return Ok(None);
        }
        if let Some(known) = self.factors.get(&(index, raw)) {
            return Ok(Some(*known));
        }
        match bmc.run(GetFactors { key: watched.sensor.key, raw }).await {
            Ok([_next, bytes @ ..]) => {
                let factors = record.with_reading_factors(bytes);
                self.factors.insert((index, raw), factors);
                Ok(Some(factors))
            }
            Err(error) if error.is_lost() => Err(error),
            Err(_) => Ok(None),
        }
    }
}

/// Whether the machine is on; a BMC that does not tell is taken at its readings.
pub(crate) async fn is_powered(bmc: &mut Bmc) -> Result<bool, BmcError> {
    match bmc.run(GetPower).await {
        Ok(is_on) => Ok(is_on),
        Err(error) if error.is_lost() => Err(error),
        Err(_) => Ok(true),
    }
}

/// Reads every sensor once: each with its reading, or `None` where the BMC gives none.
///
/// # Errors
/// [`BmcError`] when the BMC is lost.
pub async fn read_once(
    bmc: &mut Bmc,
    watched: Vec<Watched>,
) -> Result<Vec<(Watched, Option<Reading>)>, BmcError> {
    let mut poller = Poller::new(&watched);
    let all = poller.all();
    let pass = poller.read(bmc, &watched, &all).await?;
    let samples: HashMap<_, _> = pass.samples.into_iter().collect();
    let row = |(index, watched)| (watched, samples.get(&index).copied());
    Ok(watched.into_iter().enumerate().map(row).collect())
}
