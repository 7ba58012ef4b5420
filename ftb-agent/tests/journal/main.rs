//! The journal: what is confirmed is there after kill -9; damage is reported and never served;
//! a full disk costs the journal and not the agent.
//!
//! `lives`: agents that end, and the log that their next life goes on with; `store`: files, their
//! damage and their bounds; `crash`: what a crash leaves of a new beginning; `faults`: files that
//! cannot be read or synced; `lost`: what is gone as a whole; `repair`: damage is cut off, and the
//! peer brings the rest; `unclean`: what a power failure may have taken; `idle`: a life that writes
//! nothing; `levels`: confirmations on disk; `reserve`: what is retained of segments that go;
//! `disk`: disks that are full or fail under a running agent; `forward`: stores that wrap others.
#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
mod crash;
mod disk;
mod faults;
mod forward;
mod idle;
mod levels;
mod lives;
mod lost;
mod repair;
mod reserve;
mod store;
mod unclean;

use common::process::{Process, agent};
use common::{TestClient, payloads_of};
use ftb_proto::v1::{self, to_agent, to_client};
use std::path::{Path, PathBuf};

/// A lone agent as a process, its journal there.
fn start(dir: &Path, journal: &Path, extra: &str) -> Process {
    Process::start(dir, &mut agent(&write_config(dir, "test", journal, extra)))
}

fn write_config(dir: &Path, cluster: &str, journal: &Path, extra: &str) -> PathBuf {
    let table = format!("threads = 1\n[journal]\npath = \"{}\"\n{extra}", journal.display());
    common::process::write_config(dir, cluster, "node01", &table)
}

/// A publisher that behaves as the client library does: it keeps what is not confirmed.
struct Publisher {
    published: u64,
    confirmed: u64,
}

impl Publisher {
    fn payloads(first: u64, last: u64) -> Vec<bytes::Bytes> {
        (first..=last).map(|seq| common::event("site.load", &format!("event {seq}"))).collect()
    }

    /// Publishes again what an earlier agent has not confirmed.
    async fn again(&self, client: &mut TestClient) {
        if self.confirmed < self.published {
            let events = Self::payloads(self.confirmed + 1, self.published);
            let first_seq = self.confirmed + 1;
            let publish = v1::Publish { first_seq, events, again: true, confirm: 0 };
            client.say(to_agent::Message::Publish(publish)).await;
        }
    }

    async fn publish(&mut self, client: &mut TestClient, count: u64) {
        let events = Self::payloads(self.published + 1, self.published + count);
        let first_seq = self.published + 1;
        let publish = v1::Publish { first_seq, events, again: false, confirm: 0 };
        self.published += count;
        client.say(to_agent::Message::Publish(publish)).await;
    }

    /// Waits until more than that is confirmed.
    async fn beyond(&mut self, client: &mut TestClient, seq: u64) {
        while self.confirmed <= seq {
            match client.hear().await {
                Some(to_client::Message::Confirmed(confirmed)) => self.confirmed = confirmed.seq,
                Some(_) => {}
                None => panic!("the stream ended"),
            }
        }
    }
}

/// Reads the whole log of an agent up to an event; gives the numbers of all, in order.
async fn read_log(process: &Process, until: u64) -> Vec<u64> {
    let mut client = process.client().await;
    client.subscribe_from_the_beginning(1, "event_space=site.load").await;
    numbers(&mut client, until).await.0
}

/// The numbers of all events that come up to one, in order, and the position of the last.
async fn numbers(client: &mut TestClient, until: u64) -> (Vec<u64>, Option<v1::Position>) {
    let mut seqs: Vec<u64> = Vec::new();
    let mut position = None;
    while seqs.last() != Some(&until) {
        match client.hear().await {
            Some(to_client::Message::Deliver(deliver)) => {
                let (epoch, epoch_root) = (deliver.epoch, deliver.epoch_root);
                position = deliver.items.last().map(|last| {
                    let index = last.index + last.sealed.len() as u64 - 1;
                    v1::Position { epoch, epoch_root, index }
                });
                let numbers = deliver.items.into_iter().flat_map(payloads_of);
                seqs.extend(numbers.map(|text| text["event ".len()..].parse::<u64>().unwrap()));
            }
            Some(to_client::Message::Gap(gap)) => panic!("{gap:?}"),
            Some(_) => {}
            None => panic!("the stream ended"),
        }
    }
    (seqs, position)
}
