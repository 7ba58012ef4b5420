//! Requests about images in memory ([`crate::memory`]). The shell moves the bytes; here requests
//! are admitted once, and repeated ones are answered.

use super::{Nla, NlaOutput};
use crate::memory::GroupTask;
use crate::message::FromNla;
use crate::names::Episode;

impl Nla {
    /// The JL wants parity or copies for a share of this node.
    pub(super) fn on_protect(&mut self, task: GroupTask, out: &mut Vec<NlaOutput>) {
        if let Some((episode, set, answer)) = &self.answers.protect
            && (*episode, set) == (task.episode, &task.set)
        {
            out.extend(answer.clone().map(NlaOutput::Publish));
            return;
        }
        if self.admit(task.episode) {
            self.answers.protect = Some((task.episode, task.set.clone(), None));
            out.push(NlaOutput::Protect(task));
        }
    }

    pub(super) fn on_protect_ended(
        &mut self,
        episode: Episode,
        result: Result<u64, String>,
        out: &mut Vec<NlaOutput>,
    ) {
        let open =
            self.answers.protect.take_if(|(of, _, answer)| *of == episode && answer.is_none());
        let Some((_, set, _)) = open else {
            return;
        };
        let answer = match result {
            Ok(bytes) => FromNla::Protected { episode, set: set.clone(), bytes },
            Err(reason) => FromNla::ProtectFailed { episode, set: set.clone(), reason },
        };
        self.answers.protect = Some((episode, set, Some(answer.clone())));
        out.push(NlaOutput::Publish(answer));
    }

    /// This node takes the place of a lost member of a group.
    pub(super) fn on_gather(&mut self, task: GroupTask, out: &mut Vec<NlaOutput>) {
        let Some(ranks) = task.who().map(crate::memory::Member::ranks) else {
            return;
        };
        if self.begins_copy(task.episode, &task.set, &ranks, out) {
            out.push(NlaOutput::Gather(task));
        }
    }
}
