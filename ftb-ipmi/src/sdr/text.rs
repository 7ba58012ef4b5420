//! Names in sensor records (type/length byte, IPMI 2.0 section 43.15).

/// Longest name in bytes (the length has five bits).
const ID_BYTES_MAX: usize = 31;

/// Decodes a name: `kind` is the type/length byte, `bytes` are the bytes after it. Missing bytes
/// shorten the name. Control characters become spaces; spaces at both ends are removed.
pub fn decode_id(kind: u8, bytes: &[u8]) -> String {
    let announced = usize::from(kind & 0x1F).min(ID_BYTES_MAX);
    let bytes = &bytes[..announced.min(bytes.len())];
    let text = match kind >> 6 {
        0b00 => utf8_or_latin1(bytes),
        0b01 => bcd_plus(bytes),
        0b10 => six_bit(bytes),
        _ => latin1(bytes),
    };
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    clean.trim().to_owned()
}

fn latin1(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes[..end].iter().copied().map(char::from).collect()
}

/// The standard says "Unicode" without an encoding; boards use UTF-8.
fn utf8_or_latin1(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    match core::str::from_utf8(&bytes[..end]) {
        Ok(text) => text.to_owned(),
        // Truncated within the last character.
        Err(error) if error.error_len().is_none() => {
            String::from_utf8_lossy(&bytes[..error.valid_up_to()]).into_owned()
        }
        Err(_) => latin1(bytes),
    }
}

fn bcd_plus(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] =
        ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', ' ', '-', '.', ':', ',', '_'];
    bytes
        .iter()
        .flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0x0F)]])
        .collect()
}

/// Four characters in three bytes, the first in the lowest bits; 0 is a space.
fn six_bit(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 4 / 3);
    let (mut bits, mut held) = (0_u32, 0_u32);
    for byte in bytes {
        bits |= u32::from(*byte) << held;
        held += 8;
        while held >= 6 {
            let code = u8::try_from(bits & 0x3F).unwrap_or(0);
            text.push(char::from(code + 0x20));
            bits >>= 6;
            held -= 6;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_encoding_is_decoded_and_missing_bytes_shorten_the_name() {
        assert_eq!(decode_id(0xC0 | 9, b"CPU 1 FAN"), "CPU 1 FAN");
        assert_eq!(decode_id(0xC0 | 31, b"CPU"), "CPU");
        assert_eq!(decode_id(0xC0 | 5, b"AB\0\0\0"), "AB");
        assert_eq!(decode_id(0x04, "Tü°".as_bytes()), "Tü");
        assert_eq!(decode_id(0x40 | 3, &[0x12, 0xB3, 0xC4]), "12-3.4");
        // The example of the standard: "IPMI" packed is 29h DCh A6h.
        assert_eq!(decode_id(0x80 | 3, &[0x29, 0xDC, 0xA6]), "IPMI");
        assert_eq!(decode_id(0x80 | 2, &[0x29, 0xDC]), "IP");
        assert_eq!(decode_id(0xC0 | 3, b"a\x07b"), "a b");
        assert_eq!(decode_id(0, &[]), "");
    }
}
