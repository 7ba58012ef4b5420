//! Collective operations of the members of a communicator, made of messages between pairs along a
//! tree over their numbers: results have the same bits on all and in every run.

use super::values::{Combine, Primitive, combine};
use super::{Comm, Fmi, FmiError};
use crate::error::Error;
use crate::frame::Class;
use crate::job::collectives::Tree;
use crate::limits;

/// One operation under way.
struct Operation {
    class: Class,
    tag: u32,
    tree: Tree,
    members: Vec<u32>,
}

impl Operation {
    fn parent(&self) -> Option<u32> {
        self.tree.parent().and_then(|place| self.members.get(place as usize).copied())
    }

    fn children(&self) -> Vec<u32> {
        let children = self.tree.children();
        children.filter_map(|place| self.members.get(place as usize).copied()).collect()
    }
}

impl Fmi {
    /// Waits until all members are here.
    ///
    /// # Errors
    /// See [`FmiError`].
    pub fn barrier(&mut self, comm: Comm) -> Result<(), FmiError> {
        self.allreduce(comm, Combine::BitOr, Primitive::Byte, &mut [])
    }

    /// Gives `message` of the root to all members and replaces theirs, which has the same length.
    ///
    /// # Errors
    /// See [`FmiError`].
    pub fn broadcast(
        &mut self,
        comm: Comm,
        root: u32,
        message: &mut Vec<u8>,
    ) -> Result<(), FmiError> {
        let operation = self.begin(comm, root)?;
        if let Some(parent) = operation.parent() {
            *message = self.take_of(&operation, parent)?;
        }
        for child in operation.children() {
            self.give(child, operation.class, operation.tag, message)?;
        }
        Ok(())
    }

    /// Combines the values of all members, place by place, on the root; true there. Elsewhere
    /// `values` are changed.
    ///
    /// # Errors
    /// See [`FmiError`].
    pub fn reduce(
        &mut self,
        comm: Comm,
        root: u32,
        (how, of): (Combine, Primitive),
        values: &mut [u8],
    ) -> Result<bool, FmiError> {
        self.check()?;
        // Before any message: all ranks refuse alike.
        combine(how, of, &mut [0; 8], &[0; 8])?;
        let operation = self.begin(comm, root)?;
        for child in operation.children() {
            let others = self.take_sized(&operation, child, values.len())?;
            combine(how, of, values, &others)?;
        }
        match operation.parent() {
            None => Ok(true),
            Some(parent) => {
                self.give(parent, operation.class, operation.tag, values)?;
                Ok(false)
            }
        }
    }

    /// Combines the values of all members, place by place; all get the result.
    ///
    /// # Errors
    /// See [`FmiError`].
    pub fn allreduce(
        &mut self,
        comm: Comm,
        how: Combine,
        of: Primitive,
        values: &mut [u8],
    ) -> Result<(), FmiError> {
        self.reduce(comm, 0, (how, of), values)?;
        let operation = self.begin(comm, 0)?;
        if let Some(parent) = operation.parent() {
            values.copy_from_slice(&self.take_sized(&operation, parent, values.len())?);
        }
        for child in operation.children() {
            self.give(child, operation.class, operation.tag, values)?;
        }
        Ok(())
    }

    /// Brings the messages of all members to the root in their order; others get nothing.
    ///
    /// # Errors
    /// See [`FmiError`].
    pub fn gather(
        &mut self,
        comm: Comm,
        root: u32,
        message: &[u8],
    ) -> Result<Vec<Vec<u8>>, FmiError> {
        let operation = self.begin(comm, root)?;
        let (own, to) = (self.rank(comm)?, operation.members[root as usize]);
        if own != root {
            self.give(to, operation.class, operation.tag, message)?;
            return Ok(Vec::new());
        }
        let mut gathered = Vec::new();
        for (place, member) in (0..).zip(&operation.members) {
            gathered.push(match place == root {
                true => message.to_vec(),
                false => self.take_of(&operation, *member)?,
            });
        }
        Ok(gathered)
    }

    /// Brings the messages of all members, of one length, to all in their order.
    ///
    /// # Errors
    /// See [`FmiError`].
    pub fn allgather(&mut self, comm: Comm, message: &[u8]) -> Result<Vec<Vec<u8>>, FmiError> {
        let (size, len) = (self.size(comm)? as usize, message.len());
        self.check()?;
        let max = limits::MESSAGE_BYTES_MAX;
        if size.saturating_mul(len) > max {
            let problem = format!("{len} bytes of each of {size} ranks are more than {max}");
            return Err(FmiError::Full(problem));
        }
        let mut all = self.gather(comm, 0, message)?.concat();
        self.broadcast(comm, 0, &mut all)?;
        if all.len() != size * len {
            return Err(self.mismatch("allgather", 0, size * len, all.len()));
        }
        Ok((0..size).map(|place| all[place * len..(place + 1) * len].to_vec()).collect())
    }

    /// Gives each member its message of the root, in their order; returns this rank's. `messages`
    /// counts on the root only.
    ///
    /// # Errors
    /// See [`FmiError`]; [`FmiError::Invalid`]: the root has not one for each.
    pub fn scatter(
        &mut self,
        comm: Comm,
        root: u32,
        messages: &[Vec<u8>],
    ) -> Result<Vec<u8>, FmiError> {
        let (own, size) = (self.rank(comm)?, self.size(comm)? as usize);
        if own == root && messages.len() != size {
            let problem = format!("{} messages for {size} ranks", messages.len());
            return Err(FmiError::Invalid(problem));
        }
        let operation = self.begin(comm, root)?;
        if own != root {
            return self.take_of(&operation, operation.members[root as usize]);
        }
        for (member, message) in operation.members.iter().zip(messages) {
            if *member != operation.members[own as usize] {
                self.give(*member, operation.class, operation.tag, message)?;
            }
        }
        Ok(messages[own as usize].clone())
    }

    /// Gives each member its message, in their order; returns those of all for this rank.
    ///
    /// # Errors
    /// See [`FmiError`]; [`FmiError::Invalid`]: there is not one for each.
    pub fn alltoall(&mut self, comm: Comm, messages: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, FmiError> {
        let (own, size) = (self.rank(comm)? as usize, self.size(comm)? as usize);
        if messages.len() != size {
            let problem = format!("{} messages for {size} ranks", messages.len());
            return Err(FmiError::Invalid(problem));
        }
        let operation = self.begin(comm, 0)?;
        // Each begins with its neighbour, so that no rank gets all first messages.
        for at in (1..size).map(|step| (own + step) % size) {
            self.give(operation.members[at], operation.class, operation.tag, &messages[at])?;
        }
        let mut all = Vec::with_capacity(size);
        for (at, member) in operation.members.iter().enumerate() {
            all.push(match at == own {
                true => messages[at].clone(),
                false => self.take_of(&operation, *member)?,
            });
        }
        Ok(all)
    }

    fn begin(&mut self, comm: Comm, root: u32) -> Result<Operation, FmiError> {
        self.check()?;
        let found = self.loops.communicators.get(comm)?;
        found.rank_of(root)?;
        let tree = Tree::new(found.place, found.size(), root);
        let members = found.members.clone();
        self.job.check_living(&members, Class::CollectiveWithin(comm))?;
        let tag = self.loops.communicators.next_collective(comm)?;
        Ok(Operation { class: Class::CollectiveWithin(comm), tag, tree, members })
    }

    /// A message of a member; it fails if one of them is dead.
    fn take_of(&mut self, of: &Operation, from: u32) -> Result<Vec<u8>, FmiError> {
        let involved: &[u32] = if self.job.goes_on() { &of.members } else { &[] };
        self.take((from, involved), of.class, of.tag)
    }

    fn take_sized(
        &mut self,
        operation: &Operation,
        from: u32,
        expected: usize,
    ) -> Result<Vec<u8>, FmiError> {
        let bytes = self.take_of(operation, from)?;
        match bytes.len() == expected {
            true => Ok(bytes),
            false => Err(self.mismatch("reduction", from, expected, bytes.len())),
        }
    }

    fn mismatch(
        &self,
        operation: &'static str,
        rank: u32,
        expected: usize,
        found: usize,
    ) -> FmiError {
        Error::CollectiveMismatch { operation, rank, expected, found }.into()
    }
}
