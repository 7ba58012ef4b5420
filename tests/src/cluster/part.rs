//! Loopback addresses that no other process on this machine has.

use anyhow::{Result, bail};
use std::hash::{BuildHasher as _, RandomState};
use std::net::TcpListener;

/// Most agents of one cluster.
pub const AGENTS_MAX: usize = 1_000;
/// Addresses of hosts in one /24.
const HOSTS_MAX: usize = 250;
/// Random /24s of 127.0.0.0/8 that are tried until one is free.
const SUBNETS_TRIED_MAX: u32 = 100;

/// As many /24s of 127.0.0.0/8 as are needed, which no other process on this machine claims as long
/// as this lives: neither another test, nor what a test that was killed has left running.
#[derive(Debug)]
pub struct Part {
    subnets: Vec<Subnet>,
}

#[derive(Debug)]
struct Subnet {
    prefix: String,
    _claim: TcpListener,
}

impl Part {
    /// One in which this number of addresses, from the first, are free at that port.
    ///
    /// # Errors
    /// There is none among many: there are no loopback addresses here but 127.0.0.1.
    pub fn claim(port: u16, addresses: usize) -> Result<Self> {
        let firsts = (0..addresses.max(1)).step_by(HOSTS_MAX);
        let subnets = firsts.map(|first| Subnet::claim(port, HOSTS_MAX.min(addresses - first)));
        Ok(Self { subnets: subnets.collect::<Result<_>>()? })
    }

    /// The address of a host, counted from 0.
    ///
    /// # Panics
    /// The part was claimed for fewer hosts.
    pub fn address(&self, host: usize) -> String {
        format!("{}.{}", self.subnets[host / HOSTS_MAX].prefix, host % HOSTS_MAX + 1)
    }
}

impl Subnet {
    fn claim(port: u16, addresses: usize) -> Result<Self> {
        let random = RandomState::new();
        for attempt in 0..SUBNETS_TRIED_MAX {
            let number = random.hash_one(attempt);
            let prefix = format!("127.{}.{}", 1 + number % 254, (number >> 32) % 256);
            let listen = |host: usize| TcpListener::bind((format!("{prefix}.{host}"), port));
            let Ok(claim) = listen(HOSTS_MAX + 1) else { continue };
            // Who was left behind by a test that was killed has no claim, but its address.
            if (1..=addresses).all(|host| listen(host).is_ok()) {
                return Ok(Self { prefix, _claim: claim });
            }
        }
        bail!("no part of 127.0.0.0/8 is free at port {port}: tried {SUBNETS_TRIED_MAX}")
    }
}
