//! What a reader of the table of conditions knows of it.
//!
//! A reader gets the rows of the table, then the log from there. After a gap it reads the table
//! again. The log also delivers statements that the table has rejected, so a reader follows the
//! rules of [`Claim`] too, and has the same truths as the table:
//! 1. Of a subject that the reader does not know, each statement counts. Only that a publisher is
//!    lost must be a row: else the holder of a stolen key could invent a loss.
//! 2. The first statement about a subject in a new reading counts, whatever was known before: what
//!    made it count may be in the gap. In that reading a statement counts if the log has marked it:
//!    the table has changed while it was read.
//! 3. Otherwise the rules of [`Claim`] decide. They alone also decide between two subscriptions:
//!    rows of one may be older than what the other has delivered.
//!
//! Not responsible for: proofs of publishers, and what a program does about a condition.

use crate::condition::Subject;
use crate::log::conditions::Claim;
use std::collections::BTreeMap;

/// Where a reader got a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadPlace {
    /// From which subscription, as its reader numbers them. Each reads the table again after a gap.
    pub subscription: u32,
    /// In which reading of the table by it; these numbers rise.
    pub reading: u32,
    /// The reading has not ended: a row, or a statement that was made while the table was read.
    pub is_row: bool,
}

impl ReadPlace {
    /// The beginning of the next reading by the same subscription.
    #[must_use]
    pub fn next_reading(self) -> Self {
        Self { reading: self.reading.wrapping_add(1), is_row: true, ..self }
    }
}

#[derive(Clone, Copy, Debug)]
struct ViewedRow<R> {
    place: ReadPlace,
    row: R,
}

/// For each subject the statement that counts, as far as a reader knows. It grows with the table,
/// whose limits bound it, unless its owner bounds it.
#[derive(Clone, Debug)]
pub struct TableView<R> {
    rows: BTreeMap<Subject, ViewedRow<R>>,
}

impl<R> Default for TableView<R> {
    fn default() -> Self {
        Self { rows: BTreeMap::new() }
    }
}

impl<R: AsRef<Claim>> TableView<R> {
    /// Whether a statement counts.
    pub fn counts(&self, subject: &Subject, claim: &Claim, place: ReadPlace) -> bool {
        let Some(known) = self.rows.get(subject) else {
            return place.is_row || claim.replaces.is_none();
        };
        let is_own = place.is_row && known.place.subscription == place.subscription;
        let is_row_of_table = claim.is_counted || known.place.reading != place.reading;
        is_own && is_row_of_table || claim.counts_over(known.row.as_ref())
    }

    /// Takes a statement; returns whether it counts.
    pub fn take(&mut self, subject: Subject, place: ReadPlace, row: R) -> bool {
        let counts = self.counts(&subject, row.as_ref(), place);
        if counts {
            self.rows.insert(subject, ViewedRow { place, row });
        }
        counts
    }

    /// What a subscription had in an earlier reading and not in this one, which has ended: the
    /// table does not have it any more.
    pub fn stale(&self, place: ReadPlace) -> impl Iterator<Item = &Subject> {
        let is_stale = move |known: &ViewedRow<R>| {
            let is_own = known.place.subscription == place.subscription;
            is_own && known.place.reading != place.reading
        };
        self.rows.iter().filter(move |(_, known)| is_stale(known)).map(|(subject, _)| subject)
    }

    /// A reading has a row that its reader does not believe: what is known of it stays.
    pub fn keep(&mut self, subject: &Subject, place: ReadPlace) {
        let known = self.rows.get_mut(subject);
        if let Some(known) = known.filter(|of| of.place.subscription == place.subscription) {
            known.place = place;
        }
    }

    /// Forgets what is known of a subject.
    pub fn forget(&mut self, subject: &Subject) {
        self.rows.remove(subject);
    }

    /// Forgets all: the table is read again, and what it does not have is not known.
    pub fn clear(&mut self) {
        self.rows.clear();
    }

    /// What is known of a subject.
    pub fn get(&self, subject: &Subject) -> Option<&R> {
        self.rows.get(subject).map(|known| &known.row)
    }

    /// All that is known, by host, component and key.
    pub fn iter(&self) -> impl Iterator<Item = (&Subject, &R)> {
        self.rows.iter().map(|(subject, known)| (subject, &known.row))
    }

    /// What is known about a host, by component and key.
    pub fn of_host(&self, host: &str) -> impl Iterator<Item = (&Subject, &R)> {
        let first = Subject::new(host, "", "");
        let host = first.host().to_owned();
        let rows = self.rows.range(first..).take_while(move |(of, _)| of.host() == host);
        rows.map(|(subject, known)| (subject, &known.row))
    }

    /// The same, to change what its owner keeps beside the claims.
    pub fn of_host_mut(&mut self, host: &str) -> impl Iterator<Item = &mut R> {
        let first = Subject::new(host, "", "");
        let host = first.host().to_owned();
        let rows = self.rows.range_mut(first..).take_while(move |(of, _)| of.host() == host);
        rows.map(|(_, known)| &mut known.row)
    }

    /// The rows, by host, component and key.
    pub fn into_rows(self) -> impl Iterator<Item = R> {
        self.rows.into_values().map(|known| known.row)
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

#[cfg(test)]
mod tests;
