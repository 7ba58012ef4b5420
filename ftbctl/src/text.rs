//! Texts for a terminal: escaped payloads, times, sizes, tables.
//!
//! Other users publish any bytes. Control characters are escaped, so that no event can send
//! commands to the terminal.

use comfy_table::{Table, presets};
use core::time::Duration;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp, ZonedDateTime, civil};

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

/// Unix nanoseconds as a time with milliseconds, in local time or in UTC.
pub(crate) fn time(time_ns: u64, utc: bool) -> String {
    // Any 64-bit number of nanoseconds is before the year 2555, which is representable.
    let time = Timestamp::from_nanosecond(time_ns.into()).unwrap_or(Timestamp::MAX);
    let format = if utc { "%Y-%m-%dT%H:%M:%S%.3fZ" } else { "%Y-%m-%dT%H:%M:%S%.3f%:z" };
    time.to_zoned_datetime(zone(utc)).strftime(format).to_string()
}

/// Unix nanoseconds as a date, in local time or in UTC.
pub(crate) fn date(time_ns: u64, utc: bool) -> String {
    let time = Timestamp::from_nanosecond(time_ns.into()).unwrap_or(Timestamp::MAX);
    time.to_zoned_datetime(zone(utc)).strftime("%Y-%m-%d").to_string()
}

fn zone(utc: bool) -> TimeZone {
    if utc { TimeZone::UTC } else { TimeZone::system() }
}

/// A time that a user gave.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Moment {
    /// A duration: `10m`, `1 hour ago`.
    Span(Span),
    /// With a zone: `2026-11-21T13:00:00Z`.
    Exact(Timestamp),
    /// Without one: `2026-11-21 13:00`.
    Civil(civil::DateTime),
}

impl core::str::FromStr for Moment {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ago = || text.parse::<Span>().ok().map(Self::Span);
        let exact = || text.parse().ok().map(Self::Exact);
        let civil = || text.parse().ok().map(Self::Civil);
        ago().or_else(exact).or_else(civil).ok_or(
            "expected a duration (10m, 1 hour ago) or a time (2026-11-21T13:00:00Z, \
             2026-11-21 13:00)",
        )
    }
}

impl Moment {
    /// In Unix nanoseconds. A duration counts back from now. A time without a zone is in UTC or in
    /// local time.
    pub(crate) fn as_ns(self, utc: bool) -> u64 {
        match self {
            Self::Span(span) => Self::Span(-span.abs()).ahead_ns(utc),
            _ => self.ahead_ns(utc),
        }
    }

    /// The same, but a duration counts from now on.
    pub(crate) fn ahead_ns(self, utc: bool) -> u64 {
        let now = || ZonedDateTime::now().with_time_zone(zone(utc));
        let time = match self {
            Self::Span(span) => match now().checked_add(span) {
                Err(_) if span.is_positive() => return u64::MAX,
                time => time.map(|time| time.timestamp()),
            },
            Self::Exact(time) => Ok(time),
            Self::Civil(time) => time.to_zoned_datetime(zone(utc)).map(|time| time.timestamp()),
        };
        // Before the first time that is representable.
        u64::try_from(time.unwrap_or(Timestamp::UNIX_EPOCH).as_nanosecond()).unwrap_or(0)
    }
}

/// A duration as the user gave it: `500ms`, `1m`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration: SignedDuration = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    Duration::try_from(duration).map_err(|_| "a duration is not negative".to_owned())
}

/// The same for messages.
pub(crate) fn exact(duration: Duration) -> String {
    let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    format!("{duration:#}")
}

/// A duration in its two largest units: `3h 12m`.
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

/// From that time to now; empty when it is unknown.
pub(crate) fn since(since_ns: u64) -> String {
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

/// Lines with aligned columns, without spaces at their ends.
pub(crate) fn table(rows: Vec<Vec<String>>) -> Vec<String> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_events_are_escaped() {
        assert_eq!(printable("red \u{1b}[31m"), "red \\u{1b}[31m");
        assert_eq!(printable("Käse\u{202e}"), "Käse\\u{202e}");
        assert_eq!(payload(b"two\r\n lines\x07"), "two lines\\u{7}");
        assert_eq!(payload(&[0xff, 0xfe]), "(2 bytes, no text)");
        assert_eq!(payload(&[b'x'; 300]).chars().count(), PAYLOAD_CHARS_MAX + 1);
    }

    #[test]
    fn times_and_sizes_are_for_people() {
        assert_eq!(time(1_500_000_000_123_456_789, true), "2017-07-14T02:40:00.123Z");
        assert!(time(1_500_000_000_123_456_789, false).contains(".123"));
        assert!(time(u64::MAX, true).starts_with("2554-"));
        assert_eq!(date(1_500_000_000_123_456_789, true), "2017-07-14");
        assert_eq!(duration(Duration::from_millis(12)), "12ms");
        assert_eq!(duration(Duration::from_secs(59)), "59s");
        assert_eq!(duration(Duration::from_secs(11_520)), "3h 12m");
        assert_eq!(duration(Duration::from_secs(90_000)), "1d 1h");
        assert_eq!(bytes(10_240), "10 KiB");
    }

    #[test]
    fn columns_are_aligned() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let lines = table(vec![row(["a", "b"]), row(["longer", ""])]);
        assert_eq!(lines, ["a       b", "longer"]);
    }

    #[test]
    fn a_moment_is_a_duration_ago_or_a_time() {
        let ns = |text: &str| text.parse().map(|moment: Moment| moment.as_ns(true));
        for time in ["1970-01-01T00:00:02Z", "1970-01-01 01:00:02+01:00", "1970-01-01 00:00:02"] {
            assert_eq!(ns(time), Ok(2_000_000_000), "{time}");
        }
        for ago in ["1h", "1 hour ago", "60m"] {
            let since = ns(ago).unwrap_or_default();
            let expected = ftb_client::now_ns() - 3_600_000_000_000;
            assert!(since <= expected && expected - since < 60_000_000_000, "{ago}");
        }
        assert_eq!(ns("9999 years"), Ok(0));
        let ahead = "1h".parse().map(|moment: Moment| moment.ahead_ns(true)).unwrap_or_default();
        assert!(ahead > ftb_client::now_ns() + 3_500_000_000_000, "{ahead}");
        assert!(ns("yesterday").is_err() && ns("5").is_err());
    }
}
