//! Reads sensors.

use super::relays::Relays;
use crate::bmc::command::{GetFactors, GetPower, GetReading, RawReading};
use crate::bmc::{Bmc, BmcError};
use crate::monitor::{Reading, Watched};
use crate::sdr::{Factors, Linearization, SensorKey};
use ftb_rmcp::Controller;
use std::collections::{BTreeMap, HashMap};

/// "Requested sensor, data, or record not present": the part is removed.
const NOT_PRESENT: u8 = 0xCB;

/// Busy, timed out, initializing, updating: a later attempt may succeed.
const TEMPORARY: [u8; 6] = [0xC0, 0xC3, 0xCE, 0xD0, 0xD1, 0xD2];

/// Result of reading some sensors.
#[derive(Default)]
pub(crate) struct Pass {
    /// Readings, by index of the sensor.
    pub(crate) samples: Vec<(usize, Reading)>,
    /// Sensors without a reading, and the reasons.
    pub(crate) unread: Vec<(usize, String)>,
    /// Whether every readable sensor was read. Controllers that never answered do not count.
    pub(crate) is_complete: bool,
    /// Controllers behind the BMC that are newly lost, with the reason, or back.
    pub(crate) controllers: Vec<(Controller, Option<String>)>,
}

/// Reads the sensors of one BMC.
#[derive(Default)]
pub(crate) struct Poller {
    polled: Vec<usize>,
    /// Factors that depend on the reading, by index of the sensor and raw reading.
    factors: HashMap<(usize, u8), Factors>,
    /// State of controllers behind the BMC, over all sessions.
    relays: Relays,
    /// Changes for the next [`Pass::controllers`]. A pass that ends with a lost BMC returns none.
    changes: BTreeMap<Controller, Option<String>>,
}

impl Poller {
    /// Selects the sensors to read: those that have events, and with `is_for_show` all.
    pub(crate) fn select(&mut self, watched: &[Watched], is_for_show: bool) {
        let is_shown = |watched: &Watched| {
            is_for_show && !watched.sensor.event_only && !watched.sensor.key.owner.is_software()
        };
        let is_polled = |watched: &Watched| watched.is_polled() || is_shown(watched);
        self.polled =
            (0..watched.len()).filter(|index| watched.get(*index).is_some_and(is_polled)).collect();
        self.factors.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.polled.len()
    }

    /// Reads every selected sensor.
    pub(crate) async fn read_all(
        &mut self,
        bmc: &mut Bmc,
        watched: &[Watched],
    ) -> Result<Pass, BmcError> {
        self.relays.begin_pass();
        let all = self.polled.clone();
        self.read(bmc, watched, &all).await
    }

    /// Reads these sensors, one after the other, without those that refuse. The pass is incomplete
    /// if one refuses temporarily, or all of them refuse.
    pub(crate) async fn read(
        &mut self,
        bmc: &mut Bmc,
        watched: &[Watched],
        indices: &[usize],
    ) -> Result<Pass, BmcError> {
        let mut pass = Pass { is_complete: true, ..Pass::default() };
        for index in indices {
            let Some(sensor) = watched.get(*index) else { continue };
            let key = sensor.sensor.key;
            if self.relays.is_resting(key.owner) {
                pass.is_complete &= !self.relays.has_answered(key.owner);
                let error = BmcError::Relay { controller: key.owner };
                pass.unread.push((*index, error.to_string()));
                continue;
            }
            let result = bmc.run(GetReading(key)).await;
            if matches!(&result, Err(error) if error.is_lost()) {
                return result.map(|_| pass);
            }
            let is_unreached = matches!(&result, Err(error) if error.is_unreached(key.owner));
            if !is_unreached && self.relays.on_answer(key.owner) {
                self.on_change(key.owner, None);
            }
            match result {
                Ok(raw) => {
                    let factors = self.factors_for(bmc, *index, sensor, raw).await?;
                    pass.samples.push((*index, sensor.reading(raw, factors.as_ref())));
                }
                Err(error) if is_unreached => self.on_unreached(*index, key, &error, &mut pass),
                Err(error) if error.code() == Some(NOT_PRESENT) => {
                    let gone = RawReading { value: None, states: 0 };
                    pass.samples.push((*index, sensor.reading(gone, None)));
                }
                Err(error) => {
                    pass.is_complete &= !error.code().is_some_and(|code| TEMPORARY.contains(&code));
                    tracing::debug!(sensor = sensor.sensor.name, %error, "no reading");
                    pass.unread.push((*index, error.to_string()));
                }
            }
        }
        pass.is_complete &= !pass.samples.is_empty();
        pass.controllers = std::mem::take(&mut self.changes).into_iter().collect();
        Ok(pass)
    }

    /// A controller is lost or back. A change cancels an unpublished opposite change.
    fn on_change(&mut self, controller: Controller, reason: Option<String>) {
        if self.changes.remove(&controller).is_none() {
            self.changes.insert(controller, reason);
        }
    }

    fn on_unreached(&mut self, index: usize, key: SensorKey, error: &BmcError, pass: &mut Pass) {
        let controller = key.owner;
        tracing::debug!(%controller, %error, "no answer from a controller behind the BMC");
        let reason = BmcError::Relay { controller }.to_string();
        if self.relays.on_failure(controller) {
            self.on_change(controller, Some(reason.clone()));
        }
        pass.is_complete &= !self.relays.has_answered(controller);
        pass.unread.push((index, reason));
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

/// Whether the machine is on; `true` if the BMC does not report it.
pub(crate) async fn is_powered(bmc: &mut Bmc) -> Result<bool, BmcError> {
    match bmc.run(GetPower).await {
        Ok(is_on) => Ok(is_on),
        Err(error) if error.is_lost() => Err(error),
        Err(_) => Ok(true),
    }
}

/// A sensor with its reading, or the reason why it has none.
pub type Row = (Watched, Result<Reading, String>);

/// Reads every sensor once.
///
/// # Errors
/// [`BmcError`] if the BMC is lost.
pub async fn read_once(bmc: &mut Bmc, watched: Vec<Watched>) -> Result<Vec<Row>, BmcError> {
    let mut poller = Poller::default();
    poller.select(&watched, true);
    let pass = poller.read_all(bmc, &watched).await?;
    let mut readings: HashMap<_, _> =
        pass.samples.into_iter().map(|(index, reading)| (index, Ok(reading))).collect();
    readings.extend(pass.unread.into_iter().map(|(index, why)| (index, Err(why))));
    let row = |(index, mut watched): (usize, Watched)| {
        let owner = watched.sensor.key.owner;
        let reading = readings.remove(&index).unwrap_or_else(|| {
            Err(match watched.sensor.event_only {
                true => "it has only events".to_owned(),
                false => format!("its owner {owner} is software"),
            })
        });
        let value = reading.as_ref().ok().and_then(|reading| reading.value);
        if value.is_some_and(|value| watched.reads_as_margin(value)) {
            watched.judge_as_margin();
        }
        (watched, reading)
    };
    Ok(watched.into_iter().enumerate().map(row).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::bmc::Target;
    use crate::bmc::tests::losable_bmc;
    use crate::rules::Policy;
    use crate::sdr::RawThresholds;
    use ftb_rmcp::fake::{CHANNEL, SEPARATE};
    use std::sync::atomic::Ordering;

    #[tokio::test]
    async fn a_controller_lost_just_before_its_bmc_is_reported_after_the_bmc_is_back() {
        let (config, task, is_silent) = losable_bmc().await;
        let mut bmc = Bmc::connect(&Target::Lan(config)).await.unwrap();
        let backplane = Controller { channel: CHANNEL, slave: SEPARATE };
        let watched = [backplane, Controller::BMC].map(|owner| {
            let mut fan = crate::sdr::tests::fan();
            fan.key.owner = owner;
            let policy = Policy::default_for(&fan);
            Watched::new(fan, policy, RawThresholds::default())
        });
        let mut poller = Poller::default();
        poller.select(&watched, false);
        assert_eq!(poller.read_all(&mut bmc, &watched).await.unwrap().samples.len(), 2);

        is_silent.store(true, Ordering::Relaxed);
        let pass = poller.read(&mut bmc, &watched, &[0]).await.unwrap();
        assert!(pass.controllers.is_empty(), "one lost answer does not mean a lost controller");
        let error = poller.read_all(&mut bmc, &watched).await.err().unwrap();
        assert!(error.is_lost(), "{error}");

        is_silent.store(false, Ordering::Relaxed);
        let pass = poller.read_all(&mut bmc, &watched).await.unwrap();
        let changes: Vec<_> =
            pass.controllers.iter().map(|(who, why)| (*who, why.is_some())).collect();
        assert_eq!(changes, [(backplane, true)]);
        task.abort();
    }
}
