//! Texts within bounds, and places in a text, for errors about configuration files.

/// The longest prefix with at most `bytes_max` bytes that ends between two characters.
pub fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The line of a byte, from 1; the first line for a place outside the text.
pub fn line(text: &str, at: usize) -> usize {
    text.get(..at).map_or(1, |before| before.matches('\n').count() + 1)
}

/// Line and column of a byte, from 1; the column counts characters.
pub fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (line(text, at), before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_ends_between_characters() {
        assert_eq!((cut("größe", 4), cut("größe", 5), cut("a", 9)), ("grö", "grö", "a"));
        assert_eq!((cut("ü", 1), cut("", 0)), ("", ""));
    }

    #[test]
    fn lines_and_columns_count_from_one_and_columns_are_characters() {
        assert_eq!((place("a", 0), place("a\nüb", 4), line("a\nb", 99)), ((1, 1), (2, 2), 1));
    }
}
