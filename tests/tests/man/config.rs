//! Section 5: each sample of `deploy/config` as a page. Its comments explain the keys behind them.

use ftb_tests::roff::{escape, head, running, terms};
use ftb_tests::samples::key_of;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// A sample: its name, the program that reads it, and how the file is checked.
const SAMPLES: [(&str, &str, &str); 9] = [
    ("agent", "ftb-agent(8)", "ftb-agent --check-config --config /etc/ftb/agent.toml"),
    ("act", "ftb-act(8)", "ftb-act run --dry-run --since 7d"),
    ("bridge", "ftb-bridge(8)", "ftb-bridge check --config /etc/ftb/bridge.toml"),
    ("ib", "ftb-ib(8)", "ftb-ib --check-config --config /etc/ftb/ib.toml"),
    ("ipmi", "ftb-ipmi(8)", "ftb-ipmi --check-config --config /etc/ftb/ipmi.toml"),
    ("slurm", "ftb-slurm(8)", "ftb-slurm --check-config --config /etc/ftb/slurm.toml"),
    ("policy", "ftb-launch(1)", "ftb-launch policy check policy.toml"),
    ("nodes", "ftb-launch(1)", "ftb-launch run -n 4 --nodes nodes.toml -- ./solver"),
    ("backend", "ftb-launch(1)", "ftb-launch run -n 4 --backend backend.toml -- ./solver"),
];

pub(crate) fn pages(root: &Path) -> Vec<(String, String)> {
    let page = |(name, program, example): (&str, &str, &str)| {
        let path = root.join(format!("deploy/config/{name}.toml"));
        let sample = fs::read_to_string(path).unwrap();
        (format!("ftb-{name}.toml.5"), page(name, program, example, &sample))
    };
    SAMPLES.into_iter().map(page).collect()
}

/// Whether a line is a head of a table, or a key with its value.
pub(crate) fn is_toml(line: &str) -> bool {
    line.starts_with('[') || line.parse::<toml::Table>().is_ok()
}

fn page(name: &str, program: &str, example: &str, sample: &str) -> String {
    let lines: Vec<&str> = sample.lines().collect();
    let begin = lines.iter().position(|line| line.is_empty()).unwrap();
    let header: Vec<&str> = lines[..begin].iter().map(|line| comment(line).unwrap()).collect();
    let header = header.join(" ");
    let (first, rest) = header.split_once(". ").unwrap();
    let mut text = head(&format!("ftb-{name}.toml"), 5, &first.replace('`', ""));
    writeln!(text, ".SH DESCRIPTION\n{}.\n{}", running(first), running(rest)).unwrap();
    writeln!(text, ".PP\nThe format is TOML. Unknown keys are errors.").unwrap();
    text += ".SH KEYS\n";
    text += &keys(&lines[begin..]);
    writeln!(text, ".SH EXAMPLES\n.nf\n{}\n.fi", escape(example)).unwrap();
    let shown = escape(&format!("/etc/ftb/{name}.toml.sample"));
    writeln!(text, ".SH FILES\n.TP\n\\fI{shown}\\fR\nA sample to copy.").unwrap();
    let (program, section) = program.trim_end_matches(')').split_once('(').unwrap();
    let program = escape(program);
    writeln!(text, ".SH SEE ALSO\n\\fB{program}\\fR({section}), \\fBftb\\fR(7)").unwrap();
    text
}

/// The text of a comment.
fn comment(line: &str) -> Option<&str> {
    line.strip_prefix("# ").or_else(|| (line == "#").then_some(""))
}

/// The keys with their comments, in the order of the sample.
fn keys(lines: &[&str]) -> String {
    let mut text = String::new();
    let mut comments: Vec<&str> = Vec::new();
    let mut index = 0;
    while let Some(line) = lines.get(index) {
        if let Some(words) = comment(line) {
            comments.push(words);
            index += 1;
        } else if line.is_empty() {
            if !comments.is_empty() {
                writeln!(text, ".PP\n{}", explained(&comments)).unwrap();
            }
            comments.clear();
            index += 1;
        } else {
            let mut run = Vec::new();
            while lines.get(index).is_some_and(|l| !l.is_empty() && comment(l).is_none()) {
                let (value, taken) = item(&lines[index..]);
                index += taken;
                run.push(value);
            }
            text += &block(&run, &comments);
            comments.clear();
        }
    }
    text
}

/// Keys without a line between them, and the comment before the first one: that of a table if they
/// begin with its head.
fn block(run: &[String], comments: &[&str]) -> String {
    let mut text = String::new();
    let mut comments = comments;
    let is_head = run[0].starts_with('[') && !run[0].contains(" = ");
    if is_head {
        writeln!(text, ".SS {}", escape(&run[0])).unwrap();
        if !comments.is_empty() {
            writeln!(text, "{}", explained(comments)).unwrap();
        }
        comments = &[];
    }
    let mut alone: Vec<String> = Vec::new();
    for value in &run[usize::from(is_head)..] {
        match value.split_once("  ").filter(|(_, rest)| rest.trim_start().starts_with("# ")) {
            Some((key, own)) => {
                let own = own.trim_start().trim_start_matches("# ");
                text += &terms(&[key.to_owned()]);
                writeln!(text, "{}", running(own)).unwrap();
            }
            None => alone.push(value.clone()),
        }
    }
    if !alone.is_empty() {
        text += &terms(&alone);
        let body = explained(comments);
        writeln!(text, "{}", if body.is_empty() { "\\&" } else { &body }).unwrap();
    }
    text
}

/// A key as it stands in the sample, with its `#`, or the head of a table without one, in as many
/// lines as its value has.
fn item(lines: &[&str]) -> (String, usize) {
    let shown = |line: &str| key_of(line).unwrap_or(line).to_owned();
    let mut value = shown(lines[0]);
    let mut taken = 1;
    while !is_toml(&value) && taken < lines.len() {
        value = format!("{value} {}", shown(lines[taken]).trim());
        taken += 1;
    }
    let is_shown = key_of(lines[0]).is_some() && !value.starts_with('[');
    (if is_shown { format!("#{value}") } else { value }, taken)
}

/// Comments as running text; lines that begin with spaces stay lines.
fn explained(comments: &[&str]) -> String {
    let mut text = String::new();
    let mut is_table = false;
    for line in comments {
        let table_row = line.starts_with("  ");
        if table_row != is_table {
            text += if table_row { "\n.nf\n" } else { "\n.fi\n" };
            is_table = table_row;
        } else if !text.is_empty() {
            text.push('\n');
        }
        text += &if table_row { escape(line) } else { running(line) };
    }
    text + if is_table { "\n.fi" } else { "" }
}
