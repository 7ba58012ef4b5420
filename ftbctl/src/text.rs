//! Making foreign bytes fit for a terminal, and times for people.
//!
//! What was published by somebody else may hold anything: control characters are escaped, so that
//! no event can repaint or command the terminal of who reads it.

use core::time::Duration;
use std::time::UNIX_EPOCH;

/// Most characters of a payload that a table shows.
pub(crate) const PAYLOAD_CHARS_MAX: usize = 200;

/// The text with every control character escaped.
pub(crate) fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || is_invisible(character) {
            printable.extend(character.escape_default());
        } else {
            printable.push(character);
        }
    }
    printable
}

/// Characters that turn or hide the text around them.
fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
    )
}

/// A payload in a table: its text on one line, or its size.
pub(crate) fn payload(bytes: &[u8]) -> String {
    let Ok(text) = core::str::from_utf8(bytes) else {
        return format!("({} bytes, no text)", bytes.len());
    };
    let words: Vec<_> = text.split_whitespace().collect();
    let mut line = printable(&words.join(" "));
    if let Some((end, _)) = line.char_indices().nth(PAYLOAD_CHARS_MAX) {
        line.truncate(end);
        line.push('…');
    }
    line
}

/// The moment of Unix nanoseconds, in UTC with milliseconds.
pub(crate) fn moment_ms(time_ns: u64) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + clamped(time_ns)).to_string()
}

/// Any 64-bit count of nanoseconds lies before the year 2555, which can be formatted.
fn clamped(time_ns: u64) -> Duration {
    Duration::from_nanos(time_ns)
}

/// How long, in its two largest units: `3h 12m`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) if seconds == 0 => format!("{}ms", duration.as_millis()),
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m {}s", seconds % 60),
        (0, _, _) => format!("{hours}h {minutes}m"),
        _ => format!("{days}d {hours}h"),
    }
}

/// Since when until now; empty where it is not known.
pub(crate) fn since(since_ns: u64) -> String {
    if since_ns == 0 {
        return String::new();
    }
    duration(Duration::from_nanos(ftb_client::now_ns().saturating_sub(since_ns)))
}

/// A size for people.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{} KiB", bytes / 1024),
        _ => format!("{} MiB", bytes / (1024 * 1024)),
    }
}

/// Lines whose cells stand below each other, without spaces at the ends.
pub(crate) fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths);
        let cells: Vec<_> = cells.map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_was_published_reaches_the_terminal_as_a_command() {
        assert_eq!(printable("red \u{1b}[31m"), "red \\u{1b}[31m");
        assert_eq!(printable("Käse\u{202e}"), "Käse\\u{202e}");
        assert_eq!(payload(b"two\r\n lines\x07"), "two lines\\u{7}");
        assert_eq!(payload(&[0xff, 0xfe]), "(2 bytes, no text)");
        assert_eq!(payload(&[b'x'; 300]).chars().count(), PAYLOAD_CHARS_MAX + 1);
    }

    #[test]
    fn times_and_sizes_are_for_people() {
        assert_eq!(moment_ms(1_500_000_000_123_456_789), "2017-07-14T02:40:00.123Z");
        assert_eq!(moment_ms(u64::MAX).len(), "2017-07-14T02:40:00.123Z".len());
        assert_eq!(duration(Duration::from_millis(12)), "12ms");
        assert_eq!(duration(Duration::from_secs(59)), "59s");
        assert_eq!(duration(Duration::from_secs(11_520)), "3h 12m");
        assert_eq!(duration(Duration::from_secs(90_000)), "1d 1h");
        assert_eq!(bytes(10_240), "10 KiB");
    }

    #[test]
    fn columns_stand_below_each_other() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let lines = table(&[row(["a", "b"]), row(["longer", ""])]);
        assert_eq!(lines, ["a       b", "longer"]);
    }
}
