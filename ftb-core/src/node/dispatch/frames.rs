//! What a frame means: by who is at the other end of its link, and by its kind.
//!
//! Responsible for: who may say what, and whose business it is. Not responsible for: that business.

use crate::frame::{Frame, HelloNack, NackCode};
use crate::node::Node;
use crate::node::api::LinkId;
use crate::node::links::LinkRole;
use crate::node::role::standby::CopyAck;
use crate::node::tree::{Raise, implausible};
use crate::position::Position;

impl Node {
    pub(crate) fn on_accepted(&mut self, link: LinkId, certified_hosts: Option<Vec<String>>) {
        let handshaking = self.cx.links.count(LinkRole::Handshaking);
        let now_ns = self.cx.now.mono_ns;
        self.cx.links.open(link, LinkRole::Handshaking, certified_hosts, now_ns);
        if handshaking >= self.cx.config.handshaking_max {
            self.cx.counters.refused += 1;
            self.cx.close(link, None, "too many links have not said who they are");
        }
    }

    pub(crate) fn on_frame(&mut self, link: LinkId, frame: Frame) {
        let Some((role, was_quiet)) = self.cx.links.heard(link, self.cx.now.mono_ns) else {
            self.cx.counters.stale += 1;
            return;
        };
        if was_quiet {
            self.membership.on_quiet_link_heard(&mut self.cx, link);
        }
        if self.refuse_implausible(link, &frame) {
            return;
        }
        if let Frame::Heartbeat(_) = frame {
            let now_ns = self.cx.now.mono_ns;
            for link in self.cx.links.wave(link, &self.cx.config, now_ns) {
                self.cx.heartbeat(link);
            }
        }
        match role {
            LinkRole::Handshaking => match frame {
                Frame::Hello(hello) => self.on_hello(link, *hello),
                _ => self.misbehaved(link, "the first frame is not a hello"),
            },
            LinkRole::Dialing => match frame {
                Frame::HelloAck(hello_ack) => self.on_hello_ack(link, hello_ack),
                Frame::HelloNack(hello_nack) => self.on_hello_nack(link, &hello_nack),
                Frame::TreeState(tree_state) => self.on_early_tree_state(link, *tree_state),
                Frame::Close(_) => {
                    self.on_dialing_lost(link);
                    self.cx.close(link, None, "it said goodbye");
                }
                // What a parent says to a child that it already counts as its own.
                _ => {}
            },
            LinkRole::Child => self.frame_from_child(link, frame),
            LinkRole::Parent => self.frame_from_parent(link, frame),
            LinkRole::Closing => {}
        }
    }

    /// Refuses a frame with a number that no honest neighbour can have come to; says whether it
    /// did.
    fn refuse_implausible(&mut self, link: LinkId, frame: &Frame) -> bool {
        let Some(role) = self.cx.links.role(link) else { return false };
        let Some(what) = implausible(&self.cx, role, frame) else { return false };
        self.cx.counters.implausible += 1;
        let host = match frame {
            Frame::Hello(hello) => hello.host.clone(),
            Frame::HelloAck(hello_ack) => hello_ack.host.clone(),
            _ => self.host_of(link),
        };
        let (own, epoch) = (&self.cx.config.host, self.epoch_seen);
        let message = format!("{host} says {what}; {own}, at epoch {epoch}, refuses it");
        match frame {
            Frame::Hello(hello) if role == LinkRole::Handshaking => {
                let nack = HelloNack { code: NackCode::Epoch, message, redirect: Vec::new() };
                self.refuse(link, hello, nack);
            }
            _ => {
                self.cx.transition("link", &host, "open", "refused", &message);
                self.misbehaved(link, &message);
            }
        }
        true
    }

    fn frame_from_child(&mut self, link: LinkId, frame: Frame) {
        match frame {
            Frame::Heartbeat(heartbeat) => {
                self.tree.compare_again(&self.cx, link, &heartbeat);
                self.on_epoch_seen(link, heartbeat.epoch_seen);
            }
            Frame::Resume { epoch, after } => self.on_resume(link, epoch, after),
            Frame::Subscribe(interest) => {
                self.reading(|delivery, cx| delivery.on_interest(cx, link, interest))
            }
            Frame::Up(batch) => self.on_up(link, batch),
            Frame::HistoryRequest(fetch) => {
                self.reading(|delivery, cx| delivery.on_history_request(cx, link, fetch))
            }
            Frame::HistoryReply(fetched) => {
                let taken =
                    self.reading(|delivery, cx| delivery.on_reply_from_child(cx, link, fetched));
                if let Err(what) = taken {
                    self.membership.refuse_history(link, what);
                }
            }
            Frame::ReplicaStart(start) => self.on_offered_start(link, start),
            Frame::DedupRanges(dedup) => self.on_offered_dedup(link, &dedup),
            Frame::Replicate(batch) => self.on_offered_entries(link, batch),
            Frame::ReplicaAck { epoch, index, copy, kept_from, synced } => {
                self.on_replica_ack(link, epoch, CopyAck { index, copy, kept_from, synced });
            }
            Frame::Members(reports) => self.membership.on_reports(&mut self.cx, link, reports),
            Frame::DynamicMembers(joins) => {
                let joins = self.membership.admit_joins(&self.cx, link, joins);
                self.membership.on_join(&mut self.cx, Some(link), joins)
            }
            Frame::TreeQuery { origin, query } => self.on_tree_query(link, origin, query),
            Frame::Probe(probe) => self.membership.on_probe(&mut self.cx, link, probe),
            Frame::ProbeAnswer(answer) => self.membership.on_probe_answer(&mut self.cx, &answer),
            Frame::TraceRequest(request) => self.on_trace_request(link, request),
            Frame::TraceAnswer(answer) => self.on_trace_answer(link, *answer),
            Frame::Close(close) => {
                self.on_child_close(link, close.stopping, &close.reason);
                self.cx.close(link, None, "the child said goodbye");
            }
            _ => self.misbehaved(link, "a frame that no child sends"),
        }
    }

    /// A child knows an epoch.
    fn on_epoch_seen(&mut self, link: LinkId, epoch_seen: u64) {
        let Some(rank) = self.tree.child(link).map(|child| child.rank) else { return };
        if epoch_seen <= self.epoch_seen {
            return;
        }
        match self.tree.raise(&self.cx, rank, epoch_seen) {
            Raise::Waits => return,
            Raise::Refused => return self.membership.refuse_epoch(&self.cx, link),
            Raise::Counts => {}
        }
        self.epoch_seen = epoch_seen;
        self.raise_epoch();
        if let Some(parent) = self.role.parent().map(|parent| parent.link) {
            self.cx.heartbeat(parent);
        }
    }

    fn frame_from_parent(&mut self, link: LinkId, frame: Frame) {
        match frame {
            Frame::Heartbeat(heartbeat) => {
                if let Some(Position { epoch, index }) = heartbeat.covered {
                    self.on_down(epoch, Vec::new(), index);
                }
            }
            Frame::TreeState(tree_state) => self.on_tree_state(*tree_state),
            Frame::Down(down) => self.on_down(down.epoch, down.items, down.covered),
            Frame::FilterActive { version, index } => {
                self.reading(|delivery, cx| delivery.on_filter_active(cx, version, index))
            }
            Frame::Credit { bytes } => self.on_credit(bytes),
            Frame::HistoryRequest(fetch) => {
                self.reading(|delivery, cx| delivery.on_request_from_root(cx, fetch))
            }
            Frame::HistoryReply(fetched) => {
                self.reading(|delivery, cx| delivery.on_history_reply(cx, fetched))
            }
            Frame::Confirm(confirm) => self.publishing.on_confirm(&mut self.cx, confirm),
            Frame::Nak { origin, run } => self.on_nak(origin, run),
            Frame::Resend => self.on_uplink_change(),
            Frame::Probe(probe) => self.membership.on_probe(&mut self.cx, link, probe),
            Frame::ProbeAnswer(answer) => self.membership.on_probe_answer(&mut self.cx, &answer),
            Frame::TraceRequest(request) => self.on_trace_request(link, request),
            Frame::TraceAnswer(answer) => self.on_trace_answer(link, *answer),
            Frame::ReplicaStart(start) => self.on_replica_start(start),
            Frame::DedupRanges(dedup) => self.on_dedup_ranges(&dedup),
            Frame::Replicate(batch) => self.on_replicate(link, batch),
            Frame::DynamicMembers(entries) => {
                self.membership.on_dynamic_members(&mut self.cx, entries)
            }
            Frame::MembershipSnapshot(snapshot) => {
                self.membership.on_membership_snapshot(&mut self.cx, snapshot)
            }
            Frame::TreeAnswer { origin, query, members, last } => {
                self.on_tree_answer(origin, query, members, last);
            }
            Frame::Close(close) => {
                self.cx.close(link, None, "the parent said goodbye");
                if close.stopping {
                    self.membership.reset_snapshot(&mut self.cx);
                }
                self.on_parent_lost(true, &close.reason);
            }
            _ => self.misbehaved(link, "a frame that no parent sends"),
        }
    }
}
