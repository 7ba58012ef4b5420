//! The rank file: which rank runs on which node, line by line.
//!
//! ```text
//! # rank, or first-last, = host, as Open MPI's rank files say it
//! rank 0=node01
//! rank 1-3=node02
//! ```
//!
//! Binding to cores (`slot=`) is not offered, and refused so that no one relies on it.

use ftb_launcher_core::message::Placement;
use ftb_launcher_core::names::{NodeName, RANKS_MAX};
use std::collections::BTreeMap;
use std::path::Path;

/// Largest rank file in bytes.
pub const RANK_FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// A parsed rank file: the node of each rank with its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankFile {
    name: String,
    ranks: BTreeMap<u32, (NodeName, usize)>,
}

impl RankFile {
    /// Reads a file.
    ///
    /// # Errors
    /// The file, the line, and the problem.
    pub fn read(path: &Path) -> Result<Self, String> {
        use std::io::Read as _;
        let fail = |error| format!("cannot read the rank file {}: {error}", path.display());
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(fail)?;
        file.take(RANK_FILE_BYTES_MAX).read_to_string(&mut text).map_err(fail)?;
        Self::parse(&path.display().to_string(), &text)
    }

    /// Parses a text; `name` is the file's name for messages.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let mut ranks: BTreeMap<u32, (NodeName, usize)> = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let at = |problem: String| format!("rank file {name} line {number}: {problem}");
            let (first, last, node) = parse_line(line).map_err(at)?;
            for rank in first..=last {
                if let Some((_, before)) = ranks.insert(rank, (node.clone(), number)) {
                    return Err(at(format!("rank {rank} has a node already, in line {before}")));
                }
            }
        }
        Ok(Self { name: name.to_owned(), ranks })
    }

    /// Places `size` ranks on the nodes of the file.
    ///
    /// # Errors
    /// With its line: an unknown node, a spare, or a rank too many; or a rank without a node.
    pub fn place(
        &self,
        primaries: &[NodeName],
        spares: &[NodeName],
        size: u32,
    ) -> Result<Placement, String> {
        let mut placement = Placement::new();
        for (rank, (node, line)) in &self.ranks {
            let at = |problem: &str| {
                Err(format!("rank file {} line {line}: host {node} {problem}", self.name))
            };
            if spares.contains(node) {
                return at("is a spare: a spare has no ranks");
            }
            if !primaries.contains(node) {
                return at("is not among the hosts of the job");
            }
            if *rank >= size {
                return Err(format!(
                    "rank file {} line {line}: rank {rank} is too much for {size} ranks",
                    self.name
                ));
            }
            placement.entry(node.clone()).or_default().0.insert(*rank);
        }
        match (0..size).find(|rank| !self.ranks.contains_key(rank)) {
            Some(rank) => Err(format!("rank file {}: rank {rank} has no node", self.name)),
            None => Ok(placement),
        }
    }
}

/// `rank N=HOST` or `rank N-M=HOST`.
fn parse_line(line: &str) -> Result<(u32, u32, NodeName), String> {
    let expected = || format!("{line:.60?} is not rank N=HOST or rank N-M=HOST");
    let rest = line.strip_prefix("rank").filter(|rest| rest.starts_with([' ', '\t']));
    let (ranks, host) = rest.and_then(|rest| rest.split_once('=')).ok_or_else(expected)?;
    let mut words = host.split_ascii_whitespace();
    let host = words.next().ok_or_else(expected)?;
    if let Some(more) = words.next() {
        return Err(format!("{more:.40?} is not understood: ranks are not bound to cores here"));
    }
    let (first, last) = ranks.split_once('-').unwrap_or((ranks, ranks));
    let number = |text: &str| match text.trim().parse() {
        Ok(rank) if rank < RANKS_MAX => Ok(rank),
        _ => Err(format!("{:.20?} is no rank from 0 to {}", text.trim(), RANKS_MAX - 1)),
    };
    let (first, last) = (number(first)?, number(last)?);
    if last < first {
        return Err(format!("ranks {first}-{last}: the last is before the first"));
    }
    Ok((first, last, NodeName::new(host).map_err(|error| error.to_string())?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use ftb_launcher_core::names::Ranks;

    fn node(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    #[test]
    fn each_rank_gets_the_node_of_its_line() {
        let text = "# cyclic\nrank 0 = node02\n\nrank 2-3=node01  # the rest\nrank 1=NODE02\n";
        let file = RankFile::parse("ranks", text).unwrap();
        let placed = file.place(&[node("node01"), node("node02")], &[], 4).unwrap();
        assert_eq!(placed[&node("node02")], Ranks::from_iter([0, 1]));
        assert_eq!(placed[&node("node01")], Ranks::from_iter([2, 3]));
    }

    #[test]
    fn an_error_is_reported_with_its_line() {
        let why = |text: &str| {
            let file = RankFile::parse("ranks", text);
            file.and_then(|f| f.place(&[node("a")], &[node("s")], 2)).unwrap_err()
        };
        assert_eq!(
            why("rank 0=a\nrank 0=a"),
            "rank file ranks line 2: rank 0 has a node already, in line 1"
        );
        assert!(why("rank 0=a\nrank 1=b").contains("line 2: host b is not among"));
        assert!(why("rank 0-1=s").contains("line 1: host s is a spare"));
        assert!(why("rank 0-2=a").contains("line 1: rank 2 is too much for 2 ranks"));
        assert!(why("rank 0=a").contains("rank 1 has no node"));
        assert!(why("rank 1-0=a").contains("before the first"));
        assert!(why("rank 0=a slot=1").contains("not bound"));
        assert!(why("rank x=a").contains("line 1: \"x\" is no rank"));
        assert!(why("rank 0=../a").contains("line 1"));
        for bad in ["0=a", "rank 0", "rank 0=", "ranks 0=a"] {
            assert!(why(bad).contains("line 1"), "{bad}");
        }
    }
}
