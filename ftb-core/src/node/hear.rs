//! What a frame means: by who is at the other end of its link, and by its kind.
//!
//! Responsible for: who may say what, and whose business it is. Not responsible for: that business.

use super::Node;
use super::api::LinkId;
use super::link::{Link, Role};
use super::standby::CopyAck;
use crate::frame::Frame;

impl Node {
    pub(super) fn accepted(&mut self, link: LinkId, certified_hosts: Option<Vec<String>>) {
        let strangers = self.links.values().filter(|link| link.role == Role::Stranger).count();
        let mut new = Link::new(Role::Stranger, self.now.mono_ns);
        new.certified_hosts = certified_hosts;
        self.links.insert(link, new);
        if strangers >= self.config.strangers_max {
            self.counters.refused += 1;
            self.close(link, None, "too many links have not said who they are");
        }
    }

    pub(super) fn frame(&mut self, link: LinkId, frame: Frame) {
        let Some(found) = self.links.get_mut(&link) else {
            self.counters.stale += 1;
            return;
        };
        found.heard_ns = self.now.mono_ns;
        let role = found.role;
        match role {
            Role::Parent => self.parent_heard(),
            _ => self.forget_early(link),
        }
        if self.refuse_implausible(link, &frame) {
            return;
        }
        self.answer_heartbeat(link, &frame);
        match role {
            Role::Stranger => match frame {
                Frame::Hello(hello) => self.greeted(link, *hello),
                _ => self.misbehaved(link, "something else than a hello"),
            },
            Role::Caller => match frame {
                Frame::Welcome(welcome) => self.welcomed(link, welcome),
                Frame::Reject(reject) => self.rejected(link, &reject),
                Frame::Lineage(standing) => self.caller_standing(link, *standing),
                Frame::Goodbye(_) => {
                    self.caller_lost(link);
                    self.close(link, None, "it said goodbye");
                }
                // What a parent says to a child that it already counts as its own.
                _ => {}
            },
            Role::Child => self.frame_from_child(link, frame),
            Role::Parent => self.frame_from_parent(link, frame),
            Role::Closing => {}
        }
    }

    fn frame_from_child(&mut self, link: LinkId, frame: Frame) {
        match frame {
            Frame::Heartbeat(beat) => {
                if beat.epoch_seen > self.epoch_seen {
                    self.epoch_seen = beat.epoch_seen;
                    self.raise_epoch();
                    if let Some(parent) = self.uplink.parent().map(|parent| parent.link) {
                        self.heartbeat(parent);
                    }
                }
            }
            Frame::Resume { epoch, after } => self.resumed(link, epoch, after),
            Frame::Subscribe(interest) => self.subscribed(link, interest),
            Frame::Up(batch) => self.up(link, batch),
            Frame::Fetch(fetch) => self.fetch(link, fetch),
            Frame::Fetched(fetched) => self.fetched_below(link, fetched),
            Frame::ReplicaStart(start) => self.adopt_start(link, start),
            Frame::Marks(marks) => self.adopt_marks(link, &marks),
            Frame::Replicate(batch) => self.adopt_entries(link, batch),
            Frame::ReplicaAck { epoch, index, copy, kept_from } => {
                self.replica_acked(link, epoch, CopyAck { index, copy, kept_from });
            }
            Frame::Members(reports) => self.members_told(reports),
            Frame::Roster(claims) => self.claimed(Some(link), claims),
            Frame::TreeQuery { origin, query } => self.tree_queried(link, origin, query),
            Frame::Probe(probe) => self.probe_asked(link, probe),
            Frame::ProbeAnswer(answer) => self.probe_answered(&answer),
            Frame::Goodbye(goodbye) => {
                self.child_left(link, goodbye.stopping, &goodbye.reason);
                self.close(link, None, "the child said goodbye");
            }
            _ => self.misbehaved(link, "a frame that no child sends"),
        }
    }

    fn frame_from_parent(&mut self, link: LinkId, frame: Frame) {
        match frame {
            Frame::Heartbeat(beat) => {
                if let Some(epoch) = beat.epoch {
                    self.came_down(epoch, Vec::new(), beat.covered);
                }
            }
            Frame::Lineage(standing) => self.stand(*standing),
            Frame::Down(down) => self.came_down(down.epoch, down.items, down.covered),
            Frame::FilterActive { version, index } => self.filter_active(version, index),
            Frame::Credit { bytes } => self.credited(bytes),
            Frame::Fetch(fetch) => self.fetch_from_above(fetch),
            Frame::Fetched(fetched) => self.fetched(fetched),
            Frame::Confirm(confirm) => self.confirm(confirm),
            Frame::Nak { origin, run } => self.naked(origin, run),
            Frame::Resend => self.way_up_changed(),
            Frame::Probe(probe) => self.probe_asked(link, probe),
            Frame::ProbeAnswer(answer) => self.probe_answered(&answer),
            Frame::ReplicaStart(start) => self.replica_start(start),
            Frame::Marks(marks) => self.replica_marks(&marks),
            Frame::Replicate(batch) => self.replicate(link, batch),
            Frame::Roster(entries) => self.roster_told(entries),
            Frame::Roll(roll) => self.roll_told(roll),
            Frame::TreeAnswer { origin, query, members, last } => {
                self.tree_answered(origin, query, members, last);
            }
            Frame::Goodbye(goodbye) => {
                self.close(link, None, "the parent said goodbye");
                if goodbye.stopping {
                    self.forget_roll();
                }
                self.parent_lost(true, &goodbye.reason);
            }
            _ => self.misbehaved(link, "a frame that no parent sends"),
        }
    }
}
