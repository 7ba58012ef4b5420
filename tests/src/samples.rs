//! The sample configurations of `deploy/config`. They have one style: a comment is `# text`; a key
//! behind a `#` without a space shows its default or an example.

/// A sample in which every key counts, those behind a `#` too.
pub fn with_all_keys(sample: &str) -> String {
    let lines = sample.lines().map(|line| format!("{}\n", key_of(line).unwrap_or(line)));
    lines.collect()
}

/// The key, or the head of a table, that a line shows behind a `#`.
pub fn key_of(line: &str) -> Option<&str> {
    line.strip_prefix('#').filter(|key| key.starts_with(|c: char| !c.is_whitespace() && c != '#'))
}

#[cfg(test)]
mod tests {
    #[test]
    fn keys_count_and_comments_stay() {
        let sample = "# Text.\nset = 1\n#key = 2\n#[[table]]\n#   indented\n";
        let all = "# Text.\nset = 1\nkey = 2\n[[table]]\n#   indented\n";
        assert_eq!(super::with_all_keys(sample), all);
    }
}
