//! What is done to a cluster: faults, load, repair.

use super::{FILTERS, Host, World};
use crate::clients::Violation;
use crate::disk::Disk;
use crate::ops::Op;
use ftb_core::frame::{Frame, Hello};
use ftb_core::ident::EventId;
use ftb_core::node::api::{Input, LinkId};
use ftb_core::severity::Severity;
use std::collections::BTreeSet;

impl World {
    /// A disk dies with what only it held: its agent's process is killed.
    fn damage(&mut self, agent: usize, how: impl FnOnce(&mut Disk)) {
        self.kill(agent, Host::Refuses);
        let disk = &mut self.agents[agent].disk;
        let before = disk.ids();
        how(disk);
        let lost = before.difference(&disk.ids()).copied().collect();
        self.note_lost_on_disk(&lost);
        self.disown();
    }

    /// A host loses power: its process dies, and its disk has what was synced.
    fn power_fails(&mut self, agent: usize) {
        self.kill(agent, Host::Refuses);
        self.agents[agent].disk.lose_power();
        self.disown();
    }

    /// A disk does not have these any more.
    pub(super) fn note_lost_on_disk(&mut self, lost: &BTreeSet<EventId>) {
        for id in lost {
            if let Some(published) = self.books.published.get_mut(id) {
                published.disks_lost += 1;
            }
        }
    }

    fn pick(&self, rank: u32) -> usize {
        rank as usize % self.agents.len()
    }

    pub fn operate(&mut self, op: Op) -> Result<(), Violation> {
        if self.trace {
            println!("{:>9.4} ==== {op}", self.seconds());
        }
        match op {
            Op::Kill(rank) => self.kill(self.pick(rank), Host::Refuses),
            Op::PowerLoss(rank) => self.power_fails(self.pick(rank)),
            Op::LoseDisk(rank) => self.damage(self.pick(rank), Disk::wipe),
            Op::TearDisk(rank, count) => {
                self.damage(self.pick(rank), |disk| disk.tear(count.into(), false));
            }
            Op::RotDisk(rank, count) => {
                self.damage(self.pick(rank), |disk| disk.tear(count.into(), true));
            }
            Op::FillDisk(rank) => {
                let agent = self.pick(rank);
                self.agents[agent].disk.full = true;
            }
            Op::FreeDisk(rank) => self.free_disk(self.pick(rank))?,
            Op::StallDisk(rank) => {
                let agent = self.pick(rank);
                self.agents[agent].disk.stalled = true;
            }
            Op::ResumeDisk(rank) => {
                let agent = self.pick(rank);
                self.agents[agent].disk.stalled = false;
                self.pump_journal(agent)?;
            }
            Op::HostDown(rank) => self.kill(self.pick(rank), Host::Down),
            Op::Start(rank) => self.start(self.pick(rank))?,
            Op::Pause(rank) => {
                let agent = self.pick(rank);
                self.agents[agent].paused = self.agents[agent].node.is_some();
            }
            Op::Continue(rank) => self.resume(self.pick(rank))?,
            Op::CutOneWay(from, to) => {
                self.cut_off(self.pick(from), self.pick(to));
            }
            Op::Split(below) => {
                let below = below as usize;
                for low in 0..self.agents.len().min(below) {
                    for high in below..self.agents.len() {
                        self.cut_off(low, high);
                        self.cut_off(high, low);
                    }
                }
            }
            Op::Heal => self.heal(),
            Op::ClockJump(rank, seconds) => {
                let agent = self.pick(rank);
                self.agents[agent].skew_ns = i64::from(seconds) * 1_000_000_000;
            }
            Op::Publish(count) => {
                for at in 0..self.publishers.len() {
                    if !self.publishers[at].paused {
                        let severity = Severity::ALL[at % 4];
                        self.publish(at, count, severity)?;
                    }
                }
            }
            Op::Storm(rank, count) => {
                let agent = self.pick(rank);
                let at = self.publishers.iter().position(|p| p.agent == agent && !p.paused);
                if let Some(at) = at {
                    self.publish(at, count, Severity::Info)?;
                }
            }
            Op::Subscribe(rank, kind) => {
                let filter = FILTERS[kind as usize % FILTERS.len()];
                self.add_subscriber(self.pick(rank), filter)?;
            }
            Op::State => self.state_conditions()?,
            Op::ClientDies(rank) => self.kill_stater(self.pick(rank))?,
            Op::ClientReturns(rank) => self.begin_stater(self.pick(rank))?,
            Op::Deaf(rank) => {
                let agent = self.pick(rank);
                self.agents[agent].deaf = true;
            }
            Op::Hear(rank) => self.hear(self.pick(rank))?,
            Op::Resubscribe(rank) => self.subscribe_again(self.pick(rank))?,
            Op::Stop(rank) => {
                let agent = self.pick(rank);
                self.feed(agent, Input::Stop)?;
                self.kill(agent, Host::Refuses);
            }
        }
        Ok(())
    }

    /// A process that is no agent of the cluster connects to one, sends these frames, and ends.
    pub fn stranger_says(&mut self, agent: usize, frames: Vec<Frame>) -> Result<(), Violation> {
        self.next_link += 2;
        let link = LinkId(self.next_link);
        self.feed(agent, Input::Accepted { link, certified_hosts: None })?;
        for frame in frames {
            self.feed(agent, Input::Frame { link, frame })?;
        }
        self.feed(agent, Input::LinkClosed { link, error: "closed".to_owned() })
    }

    /// Opens a link to an agent as another one, which follows its log. Its frames are not read.
    pub fn join_as(&mut self, agent: usize, hello: Hello) -> Result<LinkId, Violation> {
        self.next_link += 2;
        let link = LinkId(self.next_link);
        self.feed(agent, Input::Accepted { link, certified_hosts: None })?;
        self.say(agent, link, Frame::Hello(Box::new(hello)))?;
        let epoch = self.epoch(agent);
        self.say(agent, link, Frame::Resume { epoch, after: 0.into() })?;
        Ok(link)
    }

    /// Says something on such a link.
    pub fn say(&mut self, agent: usize, link: LinkId, frame: Frame) -> Result<(), Violation> {
        self.feed(agent, Input::Frame { link, frame })
    }

    fn free_disk(&mut self, agent: usize) -> Result<(), Violation> {
        let log_bytes = self.config(agent, 0).log_bytes;
        let state = &mut self.agents[agent];
        if !std::mem::take(&mut state.disk.full) {
            return Ok(());
        }
        let read = state.disk.read(log_bytes);
        let stored = read.stored.clone();
        let restored = std::mem::take(&mut state.disk.unread).then(|| Box::new(read));
        self.feed(agent, Input::JournalOpened { stored, restored, damage: None })
    }

    pub(super) fn hear(&mut self, agent: usize) -> Result<(), Violation> {
        self.agents[agent].deaf = false;
        for client in std::mem::take(&mut self.agents[agent].deaf_ready) {
            self.pump_client(agent, client)?;
        }
        Ok(())
    }

    fn resume(&mut self, agent: usize) -> Result<(), Violation> {
        if !std::mem::replace(&mut self.agents[agent].paused, false) {
            return Ok(());
        }
        let waiting = std::mem::take(&mut self.agents[agent].waiting);
        for input in waiting {
            self.feed(agent, input)?;
        }
        self.feed(agent, Input::Tick)
    }
}
