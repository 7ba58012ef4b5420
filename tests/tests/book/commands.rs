//! The commands of pages: blocks of `sh`, lines behind a `$`, and words in backquotes.

use ftb_tests::pages::code;
use std::collections::BTreeMap;

/// Our programs, and the packages that build them.
pub(crate) const PROGRAMS: [(&str, &str); 9] = [
    ("ftbctl", "ftbctl"),
    ("ftb-agent", "ftb-agent"),
    ("ftb-launch", "ftb-launcher"),
    ("ftb-nla", "ftb-launcher"),
    ("ftb-ipmi", "ftb-ipmi"),
    ("ftb-ib", "ftb-ib"),
    ("ftb-slurm", "ftb-slurm"),
    ("ftb-act", "ftb-act"),
    ("ftb-bridge", "ftb-bridge"),
];

/// Words that stand for a value of the reader.
const PLACEHOLDERS: [(&str, &str); 9] = [
    ("EVENT_ID", "139af0937b29092e250242bf247ca784.1"),
    ("POSITION", "1-e5bdcfa018ddc0a2:70"),
    ("CLUSTER", "test"),
    ("HOSTLIST", "node[1-3]"),
    ("HOST", "node1"),
    ("NODE", "node1"),
    ("JOB", "job-1"),
    ("KEY", "FANFAIL"),
    ("NAME", "FTB_NODE_DEAD"),
];

/// A command of a page: its words, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) place: String,
    pub(crate) words: Vec<String>,
}

/// The commands of our programs in a page.
pub(crate) fn commands(page: &str, text: &str) -> Vec<Found> {
    let (blocks, prose) = code(text);
    let mut found = Vec::new();
    for block in &blocks {
        let shell = matches!(&*block.language, "sh" | "console" | "");
        let prompts = block.lines.iter().any(|line| line.starts_with("$ "));
        // A block without a language has commands where it has prompts, or begins with a program.
        let begins = block.lines.first().is_some_and(|line| is_ours(line.split(' ').next()));
        if !shell || (block.language != "sh" && !prompts && !begins) {
            continue;
        }
        for (index, line) in block.lines.iter().enumerate() {
            let command = if prompts { line.strip_prefix("$ ") } else { Some(&**line) };
            let place = format!("{page}:{}", block.first + index);
            found.extend(command.into_iter().flat_map(|line| of_line(&place, line)));
        }
    }
    let words = prose.split('`').enumerate().filter(|(index, _)| index % 2 == 1);
    for (_, words) in words {
        let words = words.replace('\n', " ").replace("\\|", "|");
        if is_ours(words.split(' ').next()) {
            found.extend(of_line(&format!("{page}: `{words}`"), &words));
        }
    }
    found
}

fn is_ours(word: Option<&str>) -> bool {
    PROGRAMS.iter().any(|(program, _)| word == Some(program))
}

/// The commands of our programs in a line of a shell.
fn of_line(place: &str, line: &str) -> Vec<Found> {
    let mut found = Vec::new();
    for words in split(line) {
        let begin = words.iter().position(|word| {
            let is_prefix = word == "sudo" || word == "(" || word.contains('=');
            !is_prefix
        });
        let words = &words[begin.unwrap_or(words.len())..];
        if is_ours(words.first().map(String::as_str)) {
            let words = words.iter().filter(|word| !matches!(&***word, "..." | "…"));
            let words = words.map(|word| filled(word)).collect();
            found.push(Found { place: place.to_owned(), words });
        }
    }
    found
}

/// A word with values in the place of placeholders.
fn filled(word: &str) -> String {
    let bare = word.trim_matches(['[', ']']);
    let is_optional = word.starts_with('[') && bare.chars().all(|c| c.is_ascii_uppercase());
    let bare = if is_optional { bare } else { word };
    let all: BTreeMap<&str, &str> = PLACEHOLDERS.into_iter().collect();
    let (before, value) =
        bare.rsplit_once('=').map_or(("", bare), |(key, value)| (&bare[..=key.len()], value));
    match all.get(value) {
        Some(value) => format!("{before}{value}"),
        None => bare.to_owned(),
    }
}

/// The simple commands of a line: words without quotes, redirections and comments.
fn split(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    for (index, c) in line.char_indices() {
        let rest = &line[index + c.len_utf8()..];
        match (quote, c) {
            (Some(end), _) if c == end => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, '$') if rest.starts_with('(') => {
                // What stands in there is a command of its own, and a word here.
                let (inner, after) = closed(&rest[1..]);
                word = Some(VALUE.to_owned());
                end_word(&mut commands, &mut word);
                join(&mut commands, split(after));
                commands.extend(split(inner));
                return commands;
            }
            (None, '>') => {
                word = word.filter(|word| word != "2");
                end_word(&mut commands, &mut word);
                let target = rest.trim_start();
                let after = target.find([' ', ';', '|', '&']).map_or("", |end| &target[end..]);
                join(&mut commands, split(after));
                return commands;
            }
            (None, ' ') => end_word(&mut commands, &mut word),
            (None, '|' | '&' | ';') => {
                end_word(&mut commands, &mut word);
                commands.push(Vec::new());
            }
            (None, _) => word.get_or_insert_default().push(c),
        }
    }
    end_word(&mut commands, &mut word);
    commands
}

fn end_word(commands: &mut [Vec<String>], word: &mut Option<String>) {
    commands.last_mut().unwrap().extend(word.take());
}

/// The rest of a line goes on with its last command.
fn join(commands: &mut Vec<Vec<String>>, mut rest: Vec<Vec<String>>) {
    commands.last_mut().unwrap().append(&mut rest.remove(0));
    commands.append(&mut rest);
}

/// What `$(...)` stands for: an id of an event.
const VALUE: &str = "EVENT_ID";

/// A text up to the `)` that closes it, and the rest.
fn closed(text: &str) -> (&str, &str) {
    let mut depth = 1;
    for (index, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return (&text[..index], &text[index + 1..]);
        }
    }
    (text, "")
}

#[test]
fn commands_are_found_wherever_they_stand() {
    let page = "Run `ftbctl health NODE`, or `make test`.\n```sh\nsudo ftbctl tree && ls # x\n\
                salloc -N 2 ftb-launch ps\n```\n```\n$ FTB_A=1 ftbctl trace $(ftbctl status) > x\n\
                ftbctl is no command here\n```\n";
    let found = commands("page", page);
    let words: Vec<String> = found.iter().map(|found| found.words.join(" ")).collect();
    let id = "139af0937b29092e250242bf247ca784.1";
    assert_eq!(
        words,
        ["ftbctl tree", &format!("ftbctl trace {id}"), "ftbctl status", "ftbctl health node1"]
    );
    assert_eq!(found[0].place, "page:3");
    let line = "ftbctl tail 'a, b=|c' | grep x > y; ftb-agent --config \"z\"";
    let words: Vec<_> = of_line("", line).into_iter().map(|found| found.words).collect();
    assert_eq!(words[0], ["ftbctl", "tail", "a, b=|c"]);
    assert_eq!(words[1], ["ftb-agent", "--config", "z"]);
}
