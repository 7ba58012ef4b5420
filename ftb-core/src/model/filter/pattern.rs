//! Texts with `*` in them: matching, and whether one pattern covers another.

use core::fmt;

/// A text in which `*` stands for any run of characters, compared without case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(Box<str>);

impl Pattern {
    /// Keeps the text in lower case; `all` is how CIFTS writes `*`.
    pub(super) fn new(text: &str) -> Self {
        let lower = text.to_ascii_lowercase();
        Self(if lower == "all" { "*".into() } else { lower.into() })
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        glob(self.0.as_bytes(), text.as_bytes())
    }

    /// Sure only where their pattern has no `*`, or ours is `start*` (or `*`) and theirs begins so.
    fn covers(&self, theirs: &Self) -> bool {
        if self == theirs || !theirs.0.contains('*') {
            return self.matches(&theirs.0);
        }
        match self.0.strip_suffix('*') {
            Some(start) if !start.contains('*') => {
                theirs.0.split('*').next().is_some_and(|begin| begin.starts_with(start))
            }
            _ => false,
        }
    }

    /// Whether it surely wants every text that begins so. The beginning is in lower case.
    pub(super) fn covers_beginning(&self, beginning: &str) -> bool {
        let start = self.0.strip_suffix('*');
        start.is_some_and(|start| !start.contains('*') && beginning.starts_with(start))
    }

    /// What it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.0.len()
    }

    /// Whether it wants every text.
    pub(super) fn is_everything(&self) -> bool {
        &*self.0 == "*"
    }

    fn is_literal(&self) -> bool {
        !self.0.contains('*')
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether each of theirs is covered by one of ours.
pub(super) fn all_covered(ours: &[Pattern], theirs: &[Pattern]) -> bool {
    theirs.iter().all(|theirs| ours.iter().any(|ours| ours.covers(theirs)))
}

/// An event space, part by part: `*` (or `all`) as a whole part is any one part, as the last part
/// any number of further parts, none included: `ftb.ipmi.*` wants `ftb.ipmi` too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpacePattern {
    parts: Box<[Pattern]>,
    /// Whether it ended in `.*` or was `*`: that part is not among `parts`.
    open: bool,
    /// The parts as one text, if none has a wildcard: nearly every filter is matched by it alone.
    literal: Option<Box<str>>,
}

impl SpacePattern {
    pub(super) fn new(text: &str) -> Self {
        let mut parts: Vec<Pattern> = text.split('.').map(Pattern::new).collect();
        let open = parts.last().is_some_and(|last| &*last.0 == "*");
        if open {
            parts.pop();
        }
        let literal = parts.iter().all(Pattern::is_literal).then(|| joined(&parts).into());
        Self { parts: parts.into(), open, literal }
    }

    pub(super) fn matches(&self, space: &str) -> bool {
        if let Some(literal) = &self.literal
            && !self.parts.is_empty()
        {
            let (space, literal) = (space.as_bytes(), literal.as_bytes());
            let begins =
                space.get(..literal.len()).is_some_and(|b| b.eq_ignore_ascii_case(literal));
            return begins
                && space.get(literal.len()).is_none_or(|next| *next == b'.' && self.open);
        }
        let mut theirs = space.split('.');
        self.parts.iter().all(|part| theirs.next().is_some_and(|theirs| part.matches(theirs)))
            && (self.open || theirs.next().is_none())
    }

    pub(super) fn covers(&self, theirs: &Self) -> bool {
        let lengths = match (self.open, theirs.open) {
            (true, _) => self.parts.len() <= theirs.parts.len(),
            (false, true) => false,
            (false, false) => self.parts.len() == theirs.parts.len(),
        };
        lengths && self.parts.iter().zip(&theirs.parts).all(|(ours, theirs)| ours.covers(theirs))
    }

    /// What it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        let parts: usize = self.parts.iter().map(Pattern::bytes).sum();
        size_of::<Self>() + parts + self.literal.as_ref().map_or(0, |literal| literal.len())
    }

    /// The one space that it wants, if it has no wildcard.
    pub(super) fn literal(&self) -> Option<String> {
        (!self.open && self.parts.iter().all(Pattern::is_literal)).then(|| self.to_string())
    }
}

impl fmt::Display for SpacePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&joined(&self.parts))?;
        match (self.parts.is_empty(), self.open) {
            (true, true) => f.write_str("*"),
            (false, true) => f.write_str(".*"),
            (_, false) => Ok(()),
        }
    }
}

fn joined(parts: &[Pattern]) -> String {
    let parts: Vec<&str> = parts.iter().map(|part| &*part.0).collect();
    parts.join(".")
}

/// `*` in a lower-case pattern against a text of any case. Linear in practice, never exponential:
/// on a mismatch only the last `*` is tried further.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            retry = Some((p + 1, t));
            p += 1;
        } else if p < pattern.len() && pattern[p] == text[t].to_ascii_lowercase() {
            p += 1;
            t += 1;
        } else if let Some((after_star, from)) = retry {
            retry = Some((after_star, from + 1));
            p = after_star;
            t = from + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

#[cfg(test)]
mod tests {
    use super::SpacePattern;

    #[test]
    fn a_space_is_wanted_up_to_a_dot_and_without_case() {
        let wanted = [
            ("ftb.ipmi", "FTB.ipmi"),
            ("ftb.ipmi.*", "ftb.ipmi"),
            ("ftb.ipmi.*", "ftb.IPMI.fan"),
            ("ftb.*.fan", "ftb.ipmi.fan"),
            ("*", "x.y"),
        ];
        let unwanted = [
            ("ftb.ipmi", "ftb.ipmi.fan"),
            ("ftb.ipmi", "ftb.ipm"),
            ("ftb.ipmi.*", "ftb.ipmix"),
            ("ftb.ipmi.*", "ftb"),
            ("ftb.*.fan", "ftb.ipmi"),
        ];
        for (pattern, space) in wanted {
            assert!(SpacePattern::new(pattern).matches(space), "{pattern} wants {space}");
            assert_eq!(SpacePattern::new(pattern).to_string(), pattern);
        }
        for (pattern, space) in unwanted {
            assert!(!SpacePattern::new(pattern).matches(space), "{pattern} does not want {space}");
        }
    }
}
