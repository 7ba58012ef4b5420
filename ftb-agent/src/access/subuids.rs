//! Subordinate user ids: those that the host gives an account for its containers.
//!
//! The kernel shows each of them as a user. An account has 65,536, and would have as many budgets.
//! So all that `/etc/subuid` gives to one account use the budget of the first of them. Accounts in
//! other places (LDAP by way of `libsubid`) are not known here.
//!
//! Not responsible for: rights. Those of a subordinate user are its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;

const FILE: &str = "/etc/subuid";
/// Bytes of it that are read: some 100,000 accounts.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The ranges of all accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubUids {
    /// The first of each range, with the last, and the user whose budget they use.
    ranges: BTreeMap<u32, (u32, u32)>,
}

impl SubUids {
    /// Those of this host. Without the file there are none.
    pub fn of_host() -> Self {
        let mut bytes = Vec::new();
        let read =
            File::open(FILE).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
        match read {
            Ok(_) => Self::parse(&String::from_utf8_lossy(&bytes)),
            Err(_) => Self::default(),
        }
    }

    /// From lines of `NAME:FIRST:COUNT`. Others are ignored.
    fn parse(text: &str) -> Self {
        let mut payers = BTreeMap::new();
        let ranges = text.lines().filter_map(|line| {
            let mut fields = line.trim().split(':');
            let (name, first, count) = (fields.next()?, fields.next()?, fields.next()?);
            let (first, count) = (first.parse::<u32>().ok()?, count.parse::<u32>().ok()?);
            let last = first.checked_add(count.checked_sub(1)?)?;
            // No account owns root.
            (first > 0).then_some(())?;
            Some((first, (last, *payers.entry(name).or_insert(first))))
        });
        Self { ranges: ranges.collect() }
    }

    /// Whose budget a user uses.
    pub fn payer(&self, uid: u32) -> u32 {
        let range = self.ranges.range(..=uid).next_back();
        range.filter(|(_, (last, _))| uid <= *last).map_or(uid, |(_, (_, payer))| *payer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_subordinate_users_of_an_account_use_one_budget() {
        let text = "ann:100000:65536\n# no line\nbob:165536:65536\nann:400000:10\nx:0:5\ny:7:0\n\
                    z:4294967295:2\n1003:500000:2\n";
        let subuids = SubUids::parse(text);
        let paid = [
            (0, 0),
            (7, 7),
            (1_000, 1_000),
            (99_999, 99_999),
            (100_000, 100_000),
            (165_535, 100_000),
            (165_536, 165_536),
            (231_071, 165_536),
            (231_072, 231_072),
            (400_009, 100_000),
            (400_010, 400_010),
            (500_001, 500_000),
            (u32::MAX, u32::MAX),
        ];
        for (uid, payer) in paid {
            assert_eq!(subuids.payer(uid), payer, "user {uid}");
        }
        assert_eq!(SubUids::default().payer(100_001), 100_001);
    }
}
