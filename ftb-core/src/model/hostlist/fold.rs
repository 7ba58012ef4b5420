//! Writing hosts as ranges.

use super::slot::DIGITS_MAX;

/// Folds hosts into ranges: `node001, node002, node007` gives `node[001-002,007]`. Neighbours in
/// the given order are folded, so that the order survives.
pub fn fold<'a, I: IntoIterator<Item = &'a str>>(hosts: I) -> String {
    let mut out = String::new();
    let mut group: Option<FoldedHosts<'a>> = None;
    for host in hosts {
        let numbered = Numbered::of(host);
        if let Some(group) = &mut group
            && group.take(numbered)
        {
            continue;
        }
        if let Some(done) =
            group.replace(FoldedHosts { first: numbered, ranges: vec![numbered.range()] })
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
            Ok(number) if digits.len() <= DIGITS_MAX => Self {
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

struct FoldedHosts<'a> {
    first: Numbered<'a>,
    ranges: Vec<(u64, u64, usize)>,
}

impl<'a> FoldedHosts<'a> {
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
