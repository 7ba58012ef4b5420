//! A BMC behind a network that loses, repeats, delays, damages and truncates packets: a reading is
//! right, or an error.
#![allow(clippy::unwrap_used)]

use ftb_ipmi::bmc::{Bmc, CipherSuite, LanConfig, Protocol, Target};
use ftb_ipmi::inventory;
use ftb_ipmi::watch::{Row, read_once};
use ftb_tests::bmc::{PASSWORD, SimulatedBmc, USER};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// A generator with a seed, so that a failing run can be repeated.
struct Random(u64);

impl Random {
    fn next(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Forwards packets between its own port and the BMC. Mistreats one in eight, in both directions.
async fn bad_network(bmc_port: u16, seed: u64) -> (u16, JoinHandle<()>) {
    let outside = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    let inside = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
    inside.connect(("127.0.0.1", bmc_port)).await.unwrap();
    let port = outside.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        let mut random = Random(seed);
        let (mut client, mut out, mut back) = (None, [0; 2048], [0; 2048]);
        loop {
            let (packet, is_out) = tokio::select! {
                Ok((length, from)) = outside.recv_from(&mut out) => {
                    client = Some(from);
                    (out[..length].to_vec(), true)
                }
                Ok(length) = inside.recv(&mut back) => (back[..length].to_vec(), false),
            };
            let (outside, inside) = (Arc::clone(&outside), Arc::clone(&inside));
            let forward = async move |packet: &[u8]| {
                let _ = match (is_out, client) {
                    (true, _) => inside.send(packet).await,
                    (false, Some(client)) => outside.send_to(packet, client).await,
                    (false, None) => Ok(0),
                };
            };
            match random.next(40) {
                0 => {}
                1 => {
                    forward(&packet).await;
                    forward(&packet).await;
                }
                2 => {
                    let delay = Duration::from_millis(20 + random.next(100));
                    tokio::spawn(async move {
                        tokio::time::sleep(delay).await;
                        forward(&packet).await;
                    });
                }
                3 => {
                    let at = usize::try_from(random.next(packet.len() as u64)).unwrap();
                    let mut damaged = packet.clone();
                    damaged[at] ^= 1 << random.next(8);
                    forward(&damaged).await;
                }
                4 => {
                    let end = usize::try_from(random.next(packet.len() as u64)).unwrap();
                    forward(&packet[..end]).await;
                }
                _ => forward(&packet).await,
            }
        }
    });
    (port, task)
}

/// Repeats a call that loses the BMC: a damaged packet may end the session in the simulator.
macro_rules! until_ok {
    ($attempt:expr) => {
        loop {
            match $attempt {
                Ok(value) => break value,
                Err(error) => assert!(error.is_lost(), "{error}"),
            }
        }
    };
}

async fn assert_readings_are_right(protocol: Protocol, seed: u64) {
    let simulated = SimulatedBmc::start().unwrap();
    let (port, network) = bad_network(simulated.port(), seed).await;
    let target = Target::Lan(LanConfig {
        host: "127.0.0.1".to_owned(),
        port,
        user: USER.to_owned(),
        password: PASSWORD.to_owned(),
        group_key: None,
        privilege: 2,
        protocol,
        timeout: Duration::from_millis(40),
        retries: 20,
    });
    // Damage in two key exchanges in a row is a refusal.
    let mut bmc = until_ok!(Bmc::connect(&target).await);
    let inventory = until_ok!(inventory::read(&mut bmc, &[], &mut None).await);
    let first = until_ok!(read_once(&mut bmc, inventory.watched.clone()).await);
    let values = |rows: &[Row]| -> Vec<_> {
        rows.iter().map(|(_, reading)| reading.as_ref().unwrap().raw).collect()
    };
    let distinct: std::collections::HashSet<_> = values(&first).into_iter().collect();
    assert!(distinct.len() > 12, "a mix-up of sensors would show: {distinct:?}");
    for round in 0..20 {
        let again = until_ok!(read_once(&mut bmc, inventory.watched.clone()).await);
        assert_eq!(values(&again), values(&first), "seed {seed}, round {round}");
    }
    network.abort();
}

#[tokio::test]
async fn readings_over_a_bad_network_are_right_with_rmcp_plus() {
    for seed in 1..=3 {
        let suite = Protocol::RmcpPlus([Some(CipherSuite::Three), None]);
        assert_readings_are_right(suite, seed).await;
    }
}

#[tokio::test]
async fn readings_over_a_bad_network_are_right_with_ipmi_1_5() {
    assert_readings_are_right(Protocol::Ipmi15, 7).await;
}

#[tokio::test]
async fn late_answers_of_a_hung_bmc_give_no_wrong_reading() {
    let simulated = SimulatedBmc::start().unwrap();
    let target = Target::Lan(LanConfig {
        host: "127.0.0.1".to_owned(),
        port: simulated.port(),
        user: USER.to_owned(),
        password: PASSWORD.to_owned(),
        group_key: None,
        privilege: 2,
        protocol: Protocol::RmcpPlus([Some(CipherSuite::Three), None]),
        timeout: Duration::from_millis(30),
        retries: 2,
    });
    // On a busy machine the simulator may be slower than the timeout.
    let mut bmc = until_ok!(Bmc::connect(&target).await);
    let inventory = until_ok!(inventory::read(&mut bmc, &[], &mut None).await);
    let first = until_ok!(read_once(&mut bmc, inventory.watched.clone()).await);
    for _ in 0..5 {
        simulated.pause().unwrap();
        let error = read_once(&mut bmc, inventory.watched.clone()).await.unwrap_err();
        assert!(error.is_lost(), "{error}");
        simulated.resume().unwrap();
        // Answers to requests during the hang arrive among the new ones.
        let again = until_ok!(read_once(&mut bmc, inventory.watched.clone()).await);
        for ((watched, before), (_, after)) in first.iter().zip(&again) {
            assert_eq!(before, after, "{}", watched.sensor.name);
        }
    }
}
