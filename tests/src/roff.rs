//! Text as roff, and Markdown as roff: paragraphs, tables, words in backquotes, links.

/// Text of a line: no character is a request or an escape.
pub fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '\'' => out.push_str("\\(aq"),
            '–' => out.push_str("\\(en"),
            '…' => out.push_str("..."),
            '^' => out.push_str("\\(ha"),
            '~' => out.push_str("\\(ti"),
            _ => out.push(c),
        }
    }
    if out.starts_with('.') { format!("\\&{out}") } else { out }
}

/// The text of a line that [`escape`] made.
pub fn unescape(line: &str) -> String {
    let line = line.strip_prefix("\\&").unwrap_or(line);
    let mut text = line.to_owned();
    for (code, c) in [("\\-", "-"), ("\\(aq", "'"), ("\\(ha", "^"), ("\\(ti", "~"), ("\\e", "\\")] {
        text = text.replace(code, c);
    }
    text
}

/// A running text: what stands in backquotes is bold, a link becomes its words.
pub fn running(text: &str) -> String {
    let mut out = String::new();
    for (index, part) in without_links(text).split('`').enumerate() {
        match index % 2 {
            1 => out += &format!("\\fB{}\\fR", escape(part).trim_start_matches("\\&")),
            _ => out.push_str(escape(part).trim_start_matches("\\&")),
        }
    }
    let out = out.replace("**", "").replace("\\|", "|");
    if out.starts_with('.') { format!("\\&{out}") } else { out }
}

/// `[words](target)` becomes `words`.
fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((words, target)) = rest.split_once("](") {
        let (before, words) = words.rsplit_once('[').unwrap_or((words, ""));
        let after = target.split_once(')').map_or("", |(_, after)| after);
        out.push_str(before);
        out.push_str(words);
        rest = after;
    }
    out + rest
}

/// The head of a page. `about` is its line in an index.
pub fn head(name: &str, section: u8, about: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!(
        ".TH {} {section} \"\" \"ftb {version}\"\n.SH NAME\n{} \\- {}\n",
        escape(name),
        escape(name),
        escape(about)
    )
}

/// The terms of an entry; its body follows.
pub fn terms(terms: &[String]) -> String {
    let mut text = String::new();
    for (index, term) in terms.iter().enumerate() {
        let request = if index == 0 { ".TP" } else { ".TQ" };
        text += &format!("{request}\n\\fB{}\\fR\n", escape(term));
    }
    text
}

/// An entry: a term, and what it means.
pub fn entry(term: &str, meaning: &str) -> String {
    let meaning = if meaning.is_empty() { "\\&".to_owned() } else { running(meaning) };
    format!("{}{meaning}\n", terms(&[term.to_owned()]))
}

/// The rows of the first table of a Markdown page behind a line that has that text.
pub fn table(page: &str, behind: &str) -> Vec<Vec<String>> {
    let lines = page.lines().skip_while(|line| !line.contains(behind)).skip(1);
    let rows = lines.skip_while(|line| !line.starts_with('|')).take_while(|l| l.starts_with('|'));
    rows.filter(|row| !row.starts_with("|---") && !row.contains("| ---"))
        .map(|row| {
            let row = row.trim().trim_matches('|').replace("\\|", "\u{1}");
            row.split('|').map(|cell| cell.trim().replace('\u{1}', "|")).collect()
        })
        .collect()
}

/// What stands below `heading` up to the next heading, as paragraphs of one line.
pub fn paragraphs(page: &str, heading: &str) -> Vec<String> {
    let lines = page.lines().skip_while(|line| *line != heading).skip(1);
    let text: Vec<&str> = lines.take_while(|line| !line.starts_with('#')).collect();
    let text = text.join("\n");
    let parts = text.split("\n\n").map(|part| part.replace('\n', " ").trim().to_owned());
    parts.filter(|part| !part.is_empty() && !part.starts_with(['|', '`'])).collect()
}
