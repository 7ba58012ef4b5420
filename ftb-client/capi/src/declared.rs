//! The events that a client has declared: only these can be published.

use crate::abi::{Code, MAX_EVENT_NAME, MAX_SEVERITY};
use crate::subscription::severity;
use crate::text::{field, is_word_byte};
use ftb_client::Severity;
use std::collections::HashMap;

/// Most declared events of one client.
pub(crate) const EVENTS_MAX: usize = 100;

/// What was declared of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Declaration {
    pub(crate) severity: Severity,
    /// Spelled as the program did: so it is delivered.
    pub(crate) spelling: [u8; MAX_SEVERITY],
}

/// What became of one declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    New,
    /// In any case of letters. The earlier declaration stands.
    Already,
}

/// By name in lower case.
#[derive(Debug, Default)]
pub(crate) struct Declared(HashMap<Vec<u8>, Declaration>);

impl Declared {
    /// Declares one event.
    pub(crate) fn add(&mut self, name: &[u8], severity_word: &[u8]) -> Result<Added, Code> {
        if self.is_full() {
            return Err(Code::General);
        }
        if name.len() >= MAX_EVENT_NAME || !name.iter().copied().all(is_word_byte) {
            return Err(Code::InvalidField);
        }
        let severity = severity(severity_word).ok_or(Code::InvalidField)?;
        let key = name.to_ascii_lowercase();
        if self.0.contains_key(&key) {
            return Ok(Added::Already);
        }
        self.0.insert(key, Declaration { severity, spelling: field(severity_word) });
        Ok(Added::New)
    }

    /// Whether nothing more can be declared.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= EVENTS_MAX
    }

    /// What was declared under that name, in any case of letters.
    pub(crate) fn get(&self, name: &[u8]) -> Option<Declaration> {
        let mut key = [0; MAX_EVENT_NAME];
        let key = key.get_mut(..name.len())?;
        key.copy_from_slice(name);
        key.make_ascii_lowercase();
        self.0.get(&*key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_severities_and_the_limit() {
        let mut declared = Declared::default();
        assert_eq!(declared.add(b"Fan_Fail", b"ERROR"), Ok(Added::New));
        assert_eq!(declared.add(b"FAN_FAIL", b"info"), Ok(Added::Already));
        assert_eq!(declared.add(b"", b"info"), Ok(Added::New));
        let found = declared.get(b"fan_fail").expect("declared");
        assert_eq!((found.severity, &found.spelling[..6]), (Severity::Error, &b"ERROR\0"[..]));
        assert_eq!(declared.get(b"FAN"), None);
        assert_eq!(declared.get(&[b'x'; 500]), None);
        for (name, severity) in
            [(&b"a-b"[..], &b"info"[..]), (b"a b", b"info"), (b"a", b"all"), (b"a", b"")]
        {
            assert_eq!(declared.add(name, severity), Err(Code::InvalidField));
        }
        assert_eq!(declared.add(&[b'x'; 32], b"info"), Err(Code::InvalidField));
        assert_eq!(declared.add(&[b'x'; 31], b"info"), Ok(Added::New));
        for i in 3..EVENTS_MAX {
            assert_eq!(declared.add(format!("E{i}").as_bytes(), b"info"), Ok(Added::New));
        }
        assert_eq!(declared.add(b"ONE_MORE", b"info"), Err(Code::General));
        assert_eq!(declared.add(b"E3", b"info"), Err(Code::General), "as the original: full first");
    }
}
