//! The way up, through publishing, role and tree.

use crate::frame::{Frame, Heartbeat, UpBatch, UpItem};
use crate::ident::OriginId;
use crate::limits::LINK_BYTES_TARGET;
use crate::node::Node;
use crate::node::api::LinkId;
use crate::node::publishing::WayUp;
use crate::node::role::Role;
use crate::trace::TraceStep;

/// Most windows of batches that a standby keeps until the acting root refers to them.
pub(crate) const KEPT_WINDOWS: u64 = 2;

impl Node {
    fn way_up(&self) -> WayUp {
        match self.role.parent() {
            Some(parent) => WayUp::Parent(parent.link),
            None if self.role.is_root() => WayUp::Log,
            None => WayUp::None,
        }
    }

    /// Events have come up from a child.
    pub(super) fn on_up(&mut self, link: LinkId, mut batch: UpBatch) {
        let attached = self.tree.is_attached(link);
        let is_admitted = attached && self.membership.admit_events(&mut self.cx, link, &batch);
        let rank = self.cx.around.child(link).map_or(0, |child| child.sighting.rank.0);
        self.note_batch(&batch, TraceStep::FromBelow, rank);
        if !is_admitted {
            return self.publishing.drop_batch(&mut self.cx, link, &batch, attached);
        }
        self.membership.admit_forks(&self.cx, link, &mut batch);
        let way = self.way_up();
        let batch = match self.publishing.on_up(&mut self.cx, link, batch, way) {
            Ok(Some(batch)) => batch,
            Ok(None) => return,
            Err(what) => return self.misbehaved(link, what),
        };
        if self.is_kept_by_follower(link) {
            let mut places = Vec::new();
            self.root_accept(batch, Some(&mut places));
            self.note_entry_refs(link, places);
        } else {
            self.root_accept(batch, None);
        }
    }

    fn note_batch(&mut self, batch: &UpBatch, step: TraceStep, rank: u32) {
        for item in &batch.items {
            if let UpItem::Events(run) = item {
                self.cx.trace.note_run(self.cx.now.wall_ns, run, step, rank.into());
            }
        }
    }

    /// Own events have been added: they go to the log, or up.
    pub(crate) fn flush_outbox(&mut self) {
        match self.way_up() {
            WayUp::Log => {
                while let Some(batch) = self.publishing.next_own(&self.cx, usize::MAX) {
                    self.root_accept(batch, None);
                }
            }
            WayUp::Parent(link) if self.publishing.has_unsent() => self.cx.wake(link),
            WayUp::Parent(_) | WayUp::None => {}
        }
        self.publishing.await_confirmation(&mut self.cx);
    }

    /// What was sent and never confirmed is sent again.
    pub(crate) fn on_resend_timer(&mut self) {
        let has_parent = self.role.parent().is_some();
        self.publishing.on_resend_timer(&mut self.cx, has_parent);
        self.flush_outbox();
    }

    /// The way up is another one.
    pub(crate) fn on_uplink_change(&mut self) {
        self.publishing.on_uplink_change(&mut self.cx);
        self.flush_outbox();
    }

    /// A run of an origin has a hole.
    pub(crate) fn on_nak(&mut self, origin: OriginId, run: u64) {
        if self.publishing.on_nak(&mut self.cx, origin, run) {
            self.flush_outbox();
        }
    }

    /// The parent has room for more.
    pub(super) fn on_credit(&mut self, bytes: u64) {
        let Some(parent) = self.role.parent_mut() else {
            return self.cx.impossible("FrameFromParent");
        };
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        parent.credit = parent.credit.saturating_add(bytes);
        let link = parent.link;
        self.cx.wake(link);
    }

    /// The next frame for the parent; control frames have gone already.
    pub(crate) fn poll_parent(&mut self, bytes_max: usize) -> Option<Frame> {
        if let Some(frame) = self.membership.next_members() {
            return Some(frame);
        }
        let parent = self.role.parent_mut()?;
        if let Some(interest) = self.delivery.take_interest() {
            let features = self.cx.links.features(parent.link);
            return Some(Frame::Subscribe(interest.for_any(features)));
        }
        let ack_due = std::mem::take(&mut parent.ack_due);
        let may_send = parent.credit > 0 && parent.resumed.is_some();
        if let Some(ack) = self.replica_ack().filter(|_| ack_due) {
            return Some(ack);
        }
        if matches!(self.role, Role::Offering(..)) {
            return self.poll_offer(bytes_max);
        }
        let kept = self.role.replica().map_or(0, |replica| replica.kept.bytes());
        if !may_send || kept >= KEPT_WINDOWS * self.cx.config.window_bytes {
            return None;
        }
        let batch = self.publishing.next_batch(&mut self.cx, bytes_max.min(LINK_BYTES_TARGET))?;
        let rank = self.cx.around.parent.as_ref().map_or(0, |parent| parent.sighting.rank.0);
        self.note_batch(&batch, TraceStep::SentUp, rank);
        let parent = self.role.parent_mut()?;
        parent.credit -= i64::try_from(batch.bytes()).unwrap_or(i64::MAX);
        parent.batches += 1;
        if let Some(replica) = self.role.replica_mut() {
            replica.kept.push(&batch);
        }
        Some(Frame::Up(batch))
    }

    /// What a heartbeat to the parent says.
    pub(crate) fn parent_heartbeat(&self) -> Heartbeat {
        Heartbeat {
            covered: None,
            epoch_seen: self.epoch_seen,
            wall_ns: self.cx.now.wall_ns,
            members_digest: self.cx.config.members.digest(),
        }
    }
}
