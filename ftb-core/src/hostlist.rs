//! Host lists in Slurm's syntax: `login[1-2],node[001-512]`, `rack[1-3]n[01-32]`.
//!
//! Order matters: the index of a host in a member list is its rank, so a host may stand in a list
//! only once. Names compare without case.

use crate::limits;
use core::fmt;
use std::collections::HashMap;

/// Why a text is no host list, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("host list, column {column}: {reason}")]
pub struct HostlistError {
    /// Where, counted in characters from 1.
    pub column: usize,
    /// What is wrong there.
    pub reason: String,
}

/// An ordered list of distinct hosts.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Hostlist {
    hosts: Vec<Box<str>>,
    /// Lower-case name to index.
    index: HashMap<Box<str>, u32>,
}

impl Hostlist {
    /// Reads a list. Blanks around names are allowed.
    ///
    /// # Errors
    /// [`HostlistError`] with the column: an empty name, a bad character, an unclosed bracket, a
    /// range that runs backwards, a host that stands there twice, or more than
    /// [`limits::HOSTLIST_HOSTS_MAX`] hosts.
    pub fn parse(text: &str) -> Result<Self, HostlistError> {
        let mut list = Self::default();
        for (column, word) in split_words(text)? {
            let mut names = vec![String::new()];
            for piece in pieces(column, word)? {
                names = piece.append_to(names)?;
            }
            for name in names {
                list.push_at(name, column)?;
            }
        }
        Ok(list)
    }

    /// Makes a list of single names (no brackets in them).
    ///
    /// # Errors
    /// As [`Hostlist::parse`]; the column is the number of the name.
    pub fn from_names<I: IntoIterator<Item = String>>(names: I) -> Result<Self, HostlistError> {
        let mut list = Self::default();
        for (index, name) in names.into_iter().enumerate() {
            check_name(&name, index + 1)?;
            list.push_at(name, index + 1)?;
        }
        Ok(list)
    }

    fn push_at(&mut self, name: String, column: usize) -> Result<(), HostlistError> {
        let fail = |reason| Err(HostlistError { column, reason });
        if name.len() > limits::HOST_BYTES_MAX {
            return fail(format!("a host name has {} bytes", name.len()));
        }
        if self.hosts.len() >= limits::HOSTLIST_HOSTS_MAX {
            return fail(format!("more than {} hosts", limits::HOSTLIST_HOSTS_MAX));
        }
        // The bound above keeps every index far below u32.
        let index = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        if self.index.insert(name.to_ascii_lowercase().into(), index).is_some() {
            return fail(format!("host {name:?} stands in the list twice"));
        }
        self.hosts.push(name.into());
        Ok(())
    }

    /// How many hosts.
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    /// The host at that index.
    pub fn get(&self, index: usize) -> Option<&str> {
        self.hosts.get(index).map(AsRef::as_ref)
    }

    /// The index of a host.
    pub fn position(&self, host: &str) -> Option<usize> {
        let found = if host.bytes().any(|b| b.is_ascii_uppercase()) {
            self.index.get(host.to_ascii_lowercase().as_str())
        } else {
            self.index.get(host)
        };
        found.map(|index| *index as usize)
    }

    /// Whether a host is in the list.
    pub fn contains(&self, host: &str) -> bool {
        self.position(host).is_some()
    }

    /// All hosts in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        self.hosts.iter().map(AsRef::as_ref)
    }
}

impl fmt::Display for Hostlist {
    /// The folded form, which parses to the same list.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&fold(self.iter()))
    }
}

/// Folds hosts into ranges: `node001, node002, node007` gives `node[001-002,007]`. Neighbours in
/// the given order are folded, so that the order survives.
pub fn fold<'a, I: IntoIterator<Item = &'a str>>(hosts: I) -> String {
    let mut out = String::new();
    let mut group: Option<Group<'a>> = None;
    for host in hosts {
        let numbered = Numbered::of(host);
        if let Some(group) = &mut group
            && group.take(numbered)
        {
            continue;
        }
        if let Some(done) = group.replace(Group { first: numbered, ranges: vec![numbered.range()] })
        {
            done.write(&mut out);
        }
    }
    if let Some(done) = group {
        done.write(&mut out);
    }
    out
}

/// A host name around its last run of digits.
#[derive(Clone, Copy)]
struct Numbered<'a> {
    prefix: &'a str,
    /// Number and width of the digits; `None` without digits, or with too many to count.
    number: Option<(u64, usize)>,
    suffix: &'a str,
}

impl<'a> Numbered<'a> {
    fn of(host: &'a str) -> Self {
        let plain = Self { prefix: host, number: None, suffix: "" };
        let Some(last) = host.rfind(|c: char| c.is_ascii_digit()) else {
            return plain;
        };
        let start = host[..last]
            .rfind(|c: char| !c.is_ascii_digit())
            .map_or(0, |at| at + host[at..].chars().next().map_or(1, char::len_utf8));
        let digits = &host[start..=last];
        match digits.parse() {
            Ok(number) if digits.len() <= WIDTH_MAX => Self {
                prefix: &host[..start],
                number: Some((number, digits.len())),
                suffix: &host[last + 1..],
            },
            _ => plain,
        }
    }

    fn range(self) -> (u64, u64, usize) {
        self.number.map_or((0, 0, 0), |(number, width)| (number, number, width))
    }
}

struct Group<'a> {
    first: Numbered<'a>,
    ranges: Vec<(u64, u64, usize)>,
}

impl<'a> Group<'a> {
    fn take(&mut self, next: Numbered<'a>) -> bool {
        let Some((number, width)) = next.number else {
            return false;
        };
        if self.first.number.is_none()
            || next.prefix != self.first.prefix
            || next.suffix != self.first.suffix
        {
            return false;
        }
        match self.ranges.last_mut() {
            // The width of a range is that of its first number: 9-10 and 09-10 both read back.
            Some((_, end, start_width))
                if number == *end + 1 && written(number, *start_width).len() == width =>
            {
                *end = number;
            }
            _ => self.ranges.push((number, number, width)),
        }
        true
    }

    fn write(&self, out: &mut String) {
        if !out.is_empty() {
            out.push(',');
        }
        out.push_str(self.first.prefix);
        if self.first.number.is_some() {
            let ranges: Vec<String> = self
                .ranges
                .iter()
                .map(|(start, end, width)| match start == end {
                    true => written(*start, *width),
                    false => format!("{}-{}", written(*start, *width), written(*end, *width)),
                })
                .collect();
            match self.ranges.as_slice() {
                [(start, end, _)] if start == end => out.push_str(&ranges[0]),
                _ => {
                    out.push('[');
                    out.push_str(&ranges.join(","));
                    out.push(']');
                }
            }
        }
        out.push_str(self.first.suffix);
    }
}

fn written(number: u64, width: usize) -> String {
    format!("{number:0width$}")
}

/// Most digits of a number in a host name; more than Slurm takes, and safely inside `u64`.
const WIDTH_MAX: usize = 18;

enum Piece<'a> {
    Text(&'a str),
    Ranges { column: usize, names: Vec<String> },
}

impl Piece<'_> {
    fn append_to(self, starts: Vec<String>) -> Result<Vec<String>, HostlistError> {
        match self {
            Piece::Text(text) => Ok(starts.into_iter().map(|start| start + text).collect()),
            Piece::Ranges { column, names } => {
                if starts.len().saturating_mul(names.len()) > limits::HOSTLIST_HOSTS_MAX {
                    let reason = format!("more than {} hosts", limits::HOSTLIST_HOSTS_MAX);
                    return Err(HostlistError { column, reason });
                }
                let all = starts.iter().flat_map(|s| names.iter().map(move |n| format!("{s}{n}")));
                Ok(all.collect())
            }
        }
    }
}

/// Cuts at commas outside brackets; gives each word with its column.
fn split_words(text: &str) -> Result<Vec<(usize, &str)>, HostlistError> {
    fn fail<T>(column: usize, reason: &str) -> Result<T, HostlistError> {
        Err(HostlistError { column, reason: reason.to_owned() })
    }
    if text.trim().is_empty() {
        return fail(1, "empty: expected something like node[001-032]");
    }
    let mut words = Vec::new();
    let (mut start, mut start_column, mut open) = (0, 1, None);
    for (column, (at, c)) in text.char_indices().enumerate().map(|(i, pair)| (i + 1, pair)) {
        match c {
            '[' if open.is_some() => return fail(column, "a bracket inside a bracket"),
            '[' => open = Some(column),
            ']' if open.take().is_none() => return fail(column, "']' without '['"),
            ',' if open.is_none() => {
                words.push((start_column, &text[start..at]));
                (start, start_column) = (at + 1, column + 1);
            }
            _ => {}
        }
    }
    if let Some(column) = open {
        return fail(column, "'[' is never closed");
    }
    words.push((start_column, &text[start..]));
    words
        .into_iter()
        .map(|(column, word)| {
            let blanks = word.chars().take_while(|c| c.is_whitespace()).count();
            match word.trim() {
                "" => fail(column, "a host name is missing"),
                trimmed => Ok((column + blanks, trimmed)),
            }
        })
        .collect()
}

/// Cuts one word into plain text and brackets.
fn pieces(column: usize, word: &str) -> Result<Vec<Piece<'_>>, HostlistError> {
    let mut pieces = Vec::new();
    let mut rest = word;
    let mut at = column;
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            // `split_words` has paired the brackets.
            let end = inside.find(']').unwrap_or(inside.len());
            pieces.push(Piece::Ranges { column: at, names: ranges(at + 1, &inside[..end])? });
            at += inside[..end].chars().count() + 2;
            rest = inside.get(end + 1..).unwrap_or_default();
        } else {
            let end = rest.find('[').unwrap_or(rest.len());
            check_name(&rest[..end], at)?;
            pieces.push(Piece::Text(&rest[..end]));
            at += rest[..end].chars().count();
            rest = &rest[end..];
        }
    }
    Ok(pieces)
}

fn check_name(name: &str, column: usize) -> Result<(), HostlistError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    match name.chars().enumerate().find(|(_, c)| !allowed(*c)) {
        None if name.is_empty() => {
            Err(HostlistError { column, reason: "a host name is missing".to_owned() })
        }
        None => Ok(()),
        Some((index, c)) => {
            let reason = format!("{c:?} cannot be in a host name");
            Err(HostlistError { column: column + index, reason })
        }
    }
}

/// The numbers inside one bracket, as text.
fn ranges(column: usize, inside: &str) -> Result<Vec<String>, HostlistError> {
    let mut names = Vec::new();
    let mut at = column;
    for part in inside.split(',') {
        let fail = |reason: String| HostlistError { column: at, reason };
        let number = |digits: &str| -> Result<u64, HostlistError> {
            let good = !digits.is_empty() && digits.len() <= WIDTH_MAX;
            match digits.parse() {
                Ok(number) if good && digits.bytes().all(|b| b.is_ascii_digit()) => Ok(number),
                _ => Err(fail(format!("{digits:?} is no number of at most {WIDTH_MAX} digits"))),
            }
        };
        match part.split_once('-') {
            None => {
                number(part)?;
                names.push(part.to_owned());
            }
            Some((first, last)) => {
                let (start, end) = (number(first)?, number(last)?);
                if start > end {
                    return Err(fail(format!("the range {part:?} runs backwards")));
                }
                let count = usize::try_from(end - start).unwrap_or(usize::MAX);
                if count.saturating_add(names.len()) >= limits::HOSTLIST_HOSTS_MAX {
                    return Err(fail(format!("more than {} hosts", limits::HOSTLIST_HOSTS_MAX)));
                }
                names.extend((start..=end).map(|n| written(n, first.len())));
            }
        }
        at += part.chars().count() + 1;
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn expand(text: &str) -> Vec<String> {
        Hostlist::parse(text).unwrap().iter().map(str::to_owned).collect()
    }

    #[test]
    fn lists_expand_in_order_and_keep_leading_zeros() {
        assert_eq!(
            expand("login[1-2], node[008-010]"),
            ["login1", "login2", "node008", "node009", "node010"]
        );
        assert_eq!(expand("r[1-2]n[1,3]x"), ["r1n1x", "r1n3x", "r2n1x", "r2n3x"]);
        assert_eq!(expand("a,10.0.0.1:99"), ["a", "10.0.0.1:99"]);
        assert_eq!(expand("n[9-11]"), ["n9", "n10", "n11"]);
    }

    #[test]
    fn the_index_of_a_host_is_its_place() {
        let list = Hostlist::parse("login,node[001-512]").unwrap();
        assert_eq!(list.len(), 513);
        assert_eq!(list.position("NODE512"), Some(512));
        assert_eq!(list.get(1), Some("node001"));
        assert!(!list.contains("node513"));
    }

    #[test]
    fn errors_point_at_the_column() {
        let column = |text: &str| Hostlist::parse(text).unwrap_err().column;
        assert_eq!(column(""), 1);
        assert_eq!(column("a,,b"), 3);
        assert_eq!(column("node[1-"), 5);
        assert_eq!(column("node1]"), 6);
        assert_eq!(column("ok,node[1,9-3]"), 11);
        assert_eq!(column("ok,node[1,x]"), 11);
        assert_eq!(column("ok, no de"), 7);
        assert_eq!(column("a,b,a"), 5);
        assert_eq!(column("n[1-99999999]"), 3);
        assert_eq!(column("n[1-9999][1-9999]"), 10);
    }

    #[test]
    fn folding_reads_back_as_the_same_list() {
        for text in [
            "node[001-032]",
            "node[1-12,14]",
            "login[1-2],node[08-12],node[100-101]",
            "a,b,c",
            "r[1-2]n[01-03]",
            "node[9-11],x1y",
            "n0,n00,n000",
        ] {
            let list = Hostlist::parse(text).unwrap();
            let folded = list.to_string();
            assert_eq!(Hostlist::parse(&folded).unwrap(), list, "{text} -> {folded}");
        }
        assert_eq!(
            Hostlist::parse("node001,node002,node007").unwrap().to_string(),
            "node[001-002,007]"
        );
    }
}
