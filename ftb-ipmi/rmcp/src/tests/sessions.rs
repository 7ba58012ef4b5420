//! Sessions with a BMC that misbehaves: every reading belongs to the requested sensor.
#![allow(clippy::unwrap_used)]

use crate::fake::{
    self, ABSENT, Behavior, CHANNEL, EMBEDDED, OF_CONTROLLER, PASSWORD, REWRITTEN, SEPARATE,
    SILENT, own_numbers, patient,
};
use crate::*;
use ipmi_rs::connection::{Message, NetFn};
use proptest::prelude::*;
use std::time::Duration;
use tokio::task::JoinHandle;

const SUITES: [CipherSuite; 2] = [CipherSuite::Three, CipherSuite::Seventeen];

async fn start(
    suite: CipherSuite,
    behavior: impl Fn(usize) -> Behavior + Send + 'static,
) -> (LanConfig, JoinHandle<()>) {
    fake::start(suite, behavior, own_numbers).await
}

async fn read_from(
    session: &mut Session,
    to: Destination,
    number: u8,
) -> Result<(u8, Option<u8>), SessionError> {
    let message = Message::new_request(NetFn::SensorEvent, 0x2D, vec![number]);
    let (code, data) = session.call(&message, to).await?;
    Ok((code, data.first().copied()))
}

async fn read(session: &mut Session, number: u8) -> Result<(u8, Option<u8>), SessionError> {
    read_from(session, Destination::BMC, number).await
}

fn behind(slave: u8) -> Destination {
    Destination { controller: Controller { channel: CHANNEL, slave }, lun: 1 }
}

/// Reads sensors in turn; each must read as its own number.
async fn assert_own_readings(session: &mut Session, count: u8) {
    for number in 1..=count {
        let reading = read(session, number).await.unwrap();
        assert_eq!(reading, (0, Some(number)), "sensor {number} has the reading of another");
    }
}

#[tokio::test]
async fn both_suites_log_in_and_read() {
    for suite in SUITES {
        let (config, task) = start(suite, |_| Behavior::Answer).await;
        let mut session = Session::open(config).await.unwrap();
        assert_own_readings(&mut session, 200).await;
        session.close().await;
        task.abort();
    }
}

#[tokio::test]
async fn the_proof_of_the_bmc_reveals_a_wrong_password() {
    let (config, task) = start(CipherSuite::Seventeen, |_| Behavior::Answer).await;
    let config = LanConfig { password: PASSWORD.to_uppercase(), ..config };
    let error = Session::open(config).await.err().unwrap();
    assert!(error.is_permanent() && error.to_string().contains("password"), "{error}");
    task.abort();
}

#[tokio::test]
async fn the_next_suite_is_tried_when_the_bmc_lacks_one() {
    let (config, task) = start(CipherSuite::Three, |_| Behavior::Answer).await;
    let with = |suites| LanConfig { protocol: Protocol::RmcpPlus(suites), ..config.clone() };
    let only = [Some(CipherSuite::Seventeen), None];
    let error = Session::open(with(only)).await.err().unwrap();
    assert!(error.to_string().contains("cipher suite"), "{error}");
    let both = [Some(CipherSuite::Seventeen), Some(CipherSuite::Three)];
    assert_own_readings(&mut Session::open(with(both)).await.unwrap(), 3).await;
    task.abort();
}

/// Each defect of a transport alone, often enough that request numbers are reused.
#[tokio::test]
async fn late_lost_repeated_and_forged_answers_give_no_wrong_reading() {
    for behavior in [
        Behavior::Lose,
        Behavior::Late,
        Behavior::Early,
        Behavior::Twice,
        Behavior::Replay,
        Behavior::Truncate,
        Behavior::Forge,
        Behavior::Forget,
    ] {
        let each_seventh = move |n| if n % 7 == 3 { behavior } else { Behavior::Answer };
        let (config, task) = start(CipherSuite::Three, each_seventh).await;
        let timeout = Duration::from_millis(20);
        let mut session = Session::open(LanConfig { timeout, ..config }).await.unwrap();
        let mut lost = 0;
        for number in 1..=150 {
            match read(&mut session, number).await {
                Ok(reading) => assert_eq!(reading, (0, Some(number)), "{behavior:?}"),
                Err(error) => {
                    assert_eq!(behavior, Behavior::Forget, "{error}");
                    lost += 1;
                }
            }
        }
        assert_eq!(lost > 0, behavior == Behavior::Forget, "{behavior:?}");
        task.abort();
    }
}

/// Lost answers leave few free numbers. A duplicate answer, which is not counted, must not match a
/// reused number.
#[tokio::test]
async fn a_duplicate_answer_matches_no_later_request() {
    const LOSSES: usize = 63;
    let behavior = |n| match n {
        n if n >= 2 * LOSSES => Behavior::Twice,
        n if n % 2 == 0 => Behavior::Lose,
        _ => Behavior::Answer,
    };
    let (config, task) = start(CipherSuite::Three, behavior).await;
    let mut session = Session::open(config).await.unwrap();
    assert_own_readings(&mut session, 200).await;
    task.abort();
}

#[tokio::test]
async fn a_call_in_a_forgotten_session_fails_and_the_next_one_opens_another() {
    let behavior = |n| if n == 5 { Behavior::Forget } else { Behavior::Answer };
    let (config, task) = start(CipherSuite::Three, behavior).await;
    let mut session = Session::open(patient(config)).await.unwrap();
    assert_own_readings(&mut session, 5).await;
    let error = read(&mut session, 6).await.unwrap_err();
    assert!(matches!(error, SessionError::Timeout { .. }), "{error}");
    assert_own_readings(&mut session, 5).await;
    task.abort();
}

#[tokio::test]
async fn a_refusal_ends_only_its_command() {
    let behavior = |n| if n == 2 { Behavior::Refuse(0xCB) } else { Behavior::Answer };
    let (config, task) = start(CipherSuite::Three, behavior).await;
    let mut session = Session::open(patient(config)).await.unwrap();
    assert_own_readings(&mut session, 2).await;
    assert_eq!(read(&mut session, 3).await.unwrap(), (0xCB, None));
    assert_own_readings(&mut session, 3).await;
    task.abort();
}

#[tokio::test]
async fn controllers_behind_the_bmc_are_read_in_each_way_of_forwarding() {
    let (config, task) = start(CipherSuite::Three, |_| Behavior::Answer).await;
    let mut session = Session::open(config).await.unwrap();
    for number in 1..=100 {
        for slave in [SEPARATE, REWRITTEN, EMBEDDED] {
            let reading = read_from(&mut session, behind(slave), number).await.unwrap();
            assert_eq!(reading, (0, Some(number ^ OF_CONTROLLER)), "controller {slave:#x}");
        }
        assert_eq!(read(&mut session, number).await.unwrap(), (0, Some(number)));
    }
    task.abort();
}

#[tokio::test]
async fn a_silent_controller_does_not_end_the_session() {
    let (config, task) = start(CipherSuite::Three, |_| Behavior::Answer).await;
    let config = LanConfig { timeout: Duration::from_millis(10), ..config };
    let mut session = Session::open(config).await.unwrap();
    // More often than there are request numbers that may stay unanswered.
    for _ in 0..40 {
        let error = read_from(&mut session, behind(SILENT), 7).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "the controller 0x40 on channel 6 behind the BMC does not answer"
        );
        assert_eq!(read_from(&mut session, behind(ABSENT), 7).await.unwrap(), (0x83, None));
        assert_own_readings(&mut session, 3).await;
    }
    task.abort();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn no_misbehaviour_gives_the_reading_of_another_sensor(
        choices in proptest::collection::vec(0_u8..12, 40),
        seventeen in any::<bool>(),
    ) {
        let suite = SUITES[usize::from(seventeen)];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let behavior = move |n: usize| match choices[n % choices.len()] {
                0 => Behavior::Lose,
                1 => Behavior::Late,
                2 => Behavior::Early,
                3 => Behavior::Twice,
                4 => Behavior::Truncate,
                5 => Behavior::Forge,
                6 => Behavior::Replay,
                _ => Behavior::Answer,
            };
            let (config, task) = start(suite, behavior).await;
            let config = LanConfig { timeout: Duration::from_millis(5), retries: 3, ..config };
            // A slow machine may need more time for a key exchange.
            let mut session = loop {
                match Session::open(config.clone()).await {
                    Ok(session) => break session,
                    Err(error) => assert!(!error.is_permanent(), "{error}"),
                }
            };
            for number in 1..=80_u8 {
                let controllers = [SEPARATE, REWRITTEN, EMBEDDED];
                let slave = controllers[usize::from(number / 3) % controllers.len()];
                let (to, own) = match number % 3 {
                    0 => (Destination::BMC, number),
                    _ => (behind(slave), number ^ OF_CONTROLLER),
                };
                // An error is a correct result; the reading of another sensor is not. The checksum
                // of one truncated answer in 256 is right: it has no reading.
                if let Ok((code, reading)) = read_from(&mut session, to, number).await {
                    assert!(code == 0 && reading.is_none_or(|value| value == own), "{reading:?}");
                }
            }
            task.abort();
        });
    }
}
