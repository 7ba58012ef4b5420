//! PMI framing: lines for PMI-1, length and message for PMI-2. Each connection begins with a line;
//! its `cmd=init` selects the protocol. Pure: bytes in, texts out.

use crate::nla::limits::{PMI_LINE_BYTES_MAX, PMI_MESSAGE_BYTES_MAX};

/// Digits of the length before a PMI-2 message.
pub const LENGTH_BYTES: usize = 6;

/// Splits the bytes of a rank into texts.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    messages: bool,
}

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete text. Invalid UTF-8 is replaced and refused later.
    ///
    /// # Errors
    /// A text is too long, or its length is not a number. The connection is unusable.
    pub fn next_text(&mut self) -> Result<Option<String>, String> {
        let cut = if self.messages { self.message()? } else { self.line()? };
        let Some((skip, end)) = cut else { return Ok(None) };
        let text = String::from_utf8_lossy(&self.bytes[skip..end]).trim_end().to_owned();
        self.bytes.drain(..end);
        if !self.messages && speaks_two(&text) {
            self.messages = true;
        }
        Ok(Some(text))
    }

    fn line(&self) -> Result<Option<(usize, usize)>, String> {
        match self.bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) if end < PMI_LINE_BYTES_MAX => Ok(Some((0, end + 1))),
            None if self.bytes.len() < PMI_LINE_BYTES_MAX => Ok(None),
            _ => Err(format!("a PMI line is longer than {PMI_LINE_BYTES_MAX} bytes")),
        }
    }

    fn message(&self) -> Result<Option<(usize, usize)>, String> {
        let Some(digits) = self.bytes.get(..LENGTH_BYTES) else { return Ok(None) };
        let length = core::str::from_utf8(digits).ok().and_then(|text| text.trim().parse().ok());
        let length: usize = length.ok_or("a PMI-2 message without its length")?;
        if length > PMI_MESSAGE_BYTES_MAX {
            return Err(format!("a PMI-2 message is longer than {PMI_MESSAGE_BYTES_MAX} bytes"));
        }
        let end = LENGTH_BYTES + length;
        Ok((self.bytes.len() >= end).then_some((LENGTH_BYTES, end)))
    }
}

/// Whether that first line selects PMI-2.
pub fn speaks_two(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    words.next() == Some("cmd=init") && words.any(|word| word == "pmi_version=2")
}

/// Adds the length to a PMI-2 message.
pub fn message(text: &str) -> String {
    format!("{:>width$}{text}", text.len(), width = LENGTH_BYTES)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn lines_until_init_asks_for_messages() {
        let mut decoder = Decoder::default();
        let init = "cmd=init pmi_version=2 pmi_subversion=0\n";
        let all = format!("{init}{}{}", message("cmd=fullinit;"), message("cmd=a;b=\n;"));
        let mut texts = Vec::new();
        for byte in all.as_bytes() {
            decoder.push(&[*byte]);
            texts.extend(decoder.next_text().unwrap());
        }
        assert_eq!(texts, [init.trim_end(), "cmd=fullinit;", "cmd=a;b=\n;"]);

        let mut decoder = Decoder::default();
        decoder.push(b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\ncmd=");
        assert!(decoder.next_text().unwrap().unwrap().contains("pmi_version=1"));
        assert_eq!(decoder.next_text().unwrap().as_deref(), Some("cmd=get_maxes"));
        assert_eq!(decoder.next_text(), Ok(None));
    }

    #[test]
    fn texts_without_end_or_length_are_refused() {
        let mut decoder = Decoder::default();
        decoder.push(&[b'x'; PMI_LINE_BYTES_MAX]);
        assert!(decoder.next_text().is_err());
        for bad in ["999999", "abcdef", "    -1"] {
            let mut decoder = Decoder { messages: true, ..Decoder::default() };
            decoder.push(bad.as_bytes());
            assert!(decoder.next_text().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            chunks in vec(vec(any::<u8>(), 0..40), 0..20),
            two in any::<bool>(),
        ) {
            let mut decoder = Decoder { messages: two, ..Decoder::default() };
            for chunk in chunks {
                decoder.push(&chunk);
                while let Ok(Some(_)) = decoder.next_text() {}
            }
        }
    }
}
