//! Sessions with a BMC that misbehaves: every reading is the asked sensor's own, or none.
#![allow(clippy::unwrap_used)]

use super::command::{GetReading, RawReading};
use super::fake::{
    ABSENT, CHANNEL, EMBEDDED, FakeBmc, Manner, OF_CONTROLLER, PASSWORD, REWRITTEN, SEPARATE,
    SILENT, patient,
};
use super::*;
use crate::sdr::{Controller, SensorKey};
use ipmi_rs::app::GetDeviceId;
use proptest::prelude::*;

async fn read(bmc: &mut Bmc, number: u8) -> Result<RawReading, BmcError> {
    bmc.run(GetReading(SensorKey::bmc(number))).await
}

/// Reads sensors in turn; every one must give its own number.
async fn assert_own_readings(bmc: &mut Bmc, count: u8) {
    for number in 1..=count {
        let reading = read(bmc, number).await.unwrap();
        assert_eq!(reading.value, Some(number), "sensor {number} gave another's reading");
    }
}

#[tokio::test]
async fn both_suites_log_in_and_read() {
    for suite in [CipherSuite::Three, CipherSuite::Seventeen] {
        let (target, task) = FakeBmc::start(suite, |_| Manner::Answer).await;
        let mut bmc = Bmc::connect(&target).await.unwrap();
        assert_own_readings(&mut bmc, 200).await;
        assert_eq!(bmc.run(GetDeviceId).await.unwrap().device_id, 0x20);
        bmc.close().await;
        task.abort();
    }
}

#[tokio::test]
async fn a_wrong_password_is_found_by_the_bmcs_own_proof() {
    let (target, task) = FakeBmc::start(CipherSuite::Seventeen, |_| Manner::Answer).await;
    let Target::Lan(mut config) = target else { unreachable!() };
    config.password = PASSWORD.to_uppercase();
    let error = Bmc::connect(&Target::Lan(config)).await.err().unwrap();
    assert!(error.is_permanent() && error.to_string().contains("password"), "{error}");
    task.abort();
}

#[tokio::test]
async fn a_bmc_with_another_suite_is_told_apart_and_the_next_suite_tried() {
    let (target, task) = FakeBmc::start(CipherSuite::Three, |_| Manner::Answer).await;
    let Target::Lan(config) = target else { unreachable!() };
    let with =
        |suites| Target::Lan(LanConfig { protocol: Protocol::RmcpPlus(suites), ..config.clone() });
    let only = [Some(CipherSuite::Seventeen), None];
    let error = Bmc::connect(&with(only)).await.err().unwrap();
    assert!(error.to_string().contains("cipher suite"), "{error}");
    let both = [Some(CipherSuite::Seventeen), Some(CipherSuite::Three)];
    assert_own_readings(&mut Bmc::connect(&with(both)).await.unwrap(), 3).await;
    task.abort();
}

/// Each defect of the transports that this module replaces, one at a time and often enough that
/// request numbers come round.
#[tokio::test]
async fn late_lost_repeated_and_forged_answers_are_nobody_elses() {
    for manner in [
        Manner::Lose,
        Manner::Late,
        Manner::Early,
        Manner::Twice,
        Manner::Replay,
        Manner::Truncate,
        Manner::Forge,
        Manner::Refuse(0xC0),
    ] {
        let each_seventh = move |n| if n % 7 == 3 { manner } else { Manner::Answer };
        let (target, task) = FakeBmc::start(CipherSuite::Three, each_seventh).await;
        let mut bmc = Bmc::connect(&target).await.unwrap();
        assert_own_readings(&mut bmc, 150).await;
        task.abort();
    }
}

/// Answers that were lost leave few numbers; a BMC that answers more than once, since the network has
/// doubled what it was asked, must not meet a number that is in use again.
#[tokio::test]
async fn answers_that_nobody_counts_are_nobody_elses() {
    const LOSSES: usize = 63;
    let manners = |n| match n {
        n if n >= 2 * LOSSES => Manner::Twice,
        n if n % 2 == 0 => Manner::Lose,
        _ => Manner::Answer,
    };
    let (target, task) = FakeBmc::start(CipherSuite::Three, manners).await;
    let mut bmc = Bmc::connect(&target).await.unwrap();
    assert_own_readings(&mut bmc, 200).await;
    task.abort();
}

#[tokio::test]
async fn a_session_that_the_bmc_forgot_fails_once_and_a_new_one_works() {
    let (target, task) =
        FakeBmc::start(
            CipherSuite::Three,
            |n| if n == 5 { Manner::Forget } else { Manner::Answer },
        )
        .await;
    let mut bmc = Bmc::connect(&patient(target)).await.unwrap();
    assert_own_readings(&mut bmc, 5).await;
    let error = read(&mut bmc, 6).await.unwrap_err();
    assert!(error.is_lost() && error.to_string().contains("no answer"), "{error}");
    assert_own_readings(&mut bmc, 5).await;
    task.abort();
}

#[tokio::test]
async fn a_refusal_is_an_error_of_that_command_only() {
    let (target, task) = FakeBmc::start(CipherSuite::Three, |n| match n {
        2 => Manner::Refuse(0xCB),
        _ => Manner::Answer,
    })
    .await;
    let mut bmc = Bmc::connect(&patient(target)).await.unwrap();
    assert_own_readings(&mut bmc, 2).await;
    let error = read(&mut bmc, 3).await.unwrap_err();
    assert_eq!((error.code(), error.is_lost()), (Some(0xCB), false), "{error}");
    assert_own_readings(&mut bmc, 3).await;
    task.abort();
}

#[test]
fn a_device_that_does_not_open_is_one_line_with_what_to_do() {
    for (kind, advice) in [
        (io::ErrorKind::PermissionDenied, "give the service's group the device"),
        (io::ErrorKind::NotFound, "load the module ipmi_devintf"),
    ] {
        let error = BmcError::Open { path: "/dev/ipmi0".into(), source: kind.into() };
        let line = error.to_string();
        assert!(error.is_permanent() && line.starts_with("/dev/ipmi0: "), "{line}");
        assert!(line.contains(advice) && !line.contains('\n'), "{line}");
    }
}

#[tokio::test]
async fn a_record_is_read_in_pieces_as_small_as_the_bmc_wants_and_again_without_a_reservation() {
    let (target, task) = FakeBmc::start(CipherSuite::Three, |_| Manner::Answer).await;
    let mut bmc = Bmc::connect(&patient(target)).await.unwrap();
    let inventory = crate::inventory::read(&mut bmc, &[], &mut None).await.unwrap();
    let sensors: Vec<_> = inventory.watched.into_iter().map(|watched| watched.sensor).collect();
    assert_eq!(sensors, [crate::sdr::tests::fan()]);
    task.abort();
}

fn behind(slave: u8, number: u8) -> GetReading {
    let owner = Controller { channel: CHANNEL, slave };
    GetReading(SensorKey { owner, lun: 1, number })
}

#[tokio::test]
async fn sensors_of_controllers_behind_the_bmc_are_read_whichever_way_it_hands_answers_on() {
    let (target, task) = FakeBmc::start(CipherSuite::Three, |_| Manner::Answer).await;
    let mut bmc = Bmc::connect(&target).await.unwrap();
    for number in 1..=100 {
        for slave in [SEPARATE, REWRITTEN, EMBEDDED] {
            let reading = bmc.run(behind(slave, number)).await.unwrap();
            assert_eq!(reading.value, Some(number ^ OF_CONTROLLER), "controller {slave:#x}");
        }
        assert_eq!(read(&mut bmc, number).await.unwrap().value, Some(number));
    }
    task.abort();
}

#[tokio::test]
async fn a_silent_controller_is_not_a_lost_bmc() {
    let (target, task) = FakeBmc::start(CipherSuite::Three, |_| Manner::Answer).await;
    let Target::Lan(config) = target else { unreachable!() };
    let config = LanConfig { timeout: Duration::from_millis(10), ..config };
    let mut bmc = Bmc::connect(&Target::Lan(config)).await.unwrap();
    // More often than there are request numbers that can stay unanswered.
    for _ in 0..40 {
        let error = bmc.run(behind(SILENT, 7)).await.unwrap_err();
        assert!(!error.is_lost(), "{error}");
        assert_eq!(
            error.to_string(),
            "the controller 0x40 on channel 6 behind the BMC does not answer"
        );
        let error = bmc.run(behind(ABSENT, 7)).await.unwrap_err();
        assert_eq!((error.code(), error.is_lost()), (Some(0x83), false), "{error}");
        assert_own_readings(&mut bmc, 3).await;
    }
    task.abort();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn whatever_the_bmc_does_no_reading_is_anothers(
        choices in proptest::collection::vec(0_u8..12, 40),
        seventeen in any::<bool>(),
    ) {
        let suite = if seventeen { CipherSuite::Seventeen } else { CipherSuite::Three };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let manners = move |n: usize| match choices[n % choices.len()] {
                0 => Manner::Lose,
                1 => Manner::Late,
                2 => Manner::Early,
                3 => Manner::Twice,
                4 => Manner::Truncate,
                5 => Manner::Forge,
                6 => Manner::Replay,
                _ => Manner::Answer,
            };
            let (target, task) = FakeBmc::start(suite, manners).await;
            let Target::Lan(config) = target else { unreachable!() };
            let target =
                Target::Lan(LanConfig { timeout: Duration::from_millis(5), retries: 3, ..config });
            // A slow machine may need more than that for a key exchange.
            let mut bmc = loop {
                match Bmc::connect(&target).await {
                    Ok(bmc) => break bmc,
                    Err(error) => assert!(error.is_lost(), "{error}"),
                }
            };
            for number in 1..=80_u8 {
                // No answer is an honest result; another sensor's reading is not.
                let controllers = [SEPARATE, REWRITTEN, EMBEDDED];
                let (result, own) = match number % 3 {
                    0 => (read(&mut bmc, number).await, number),
                    _ => {
                        let slave = controllers[usize::from(number / 3) % controllers.len()];
                        (bmc.run(behind(slave, number)).await, number ^ OF_CONTROLLER)
                    }
                };
                if let Ok(reading) = result {
                    assert_eq!(reading.value, Some(own));
                }
            }
            task.abort();
        });
    }
}
