//! The code stays readable: import directions without circles, placement of `impl`, type names,
//! line and function lengths, words.
//!
//! Responsible for: rules that a program can check, over all Rust files and pages of the workspace.
//! `tests/tidy-allow.txt` lists what existing files may still violate. A new violation fails. The
//! list only shrinks: `FTB_TIDY_WRITE=1 cargo test -p ftb-tests --test tidy` rewrites it, and
//! refuses when the total of a rule grows.
#![allow(clippy::unwrap_used)]

use ftb_tests::repository::{read, root, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

/// Most columns of a line.
const COLUMNS_MAX: usize = 100;
/// Most lines of a function, from its name to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Set: write the list of what is allowed anew.
const WRITE_ENV: &str = "FTB_TIDY_WRITE";
const ALLOWED: &str = "tests/tidy-allow.txt";

/// Words that a reader would have to learn. `docs/glossary.md` has those to use instead.
const BANNED: [&str; 31] = [
    "told",
    "untold",
    "nobody",
    "everybody",
    "somebody",
    "anybody",
    "whoever",
    "whomever",
    "reign",
    "reigns",
    "lineage",
    "lineages",
    "heir",
    "heirs",
    "roster",
    "enrolment",
    "crew",
    "farewell",
    "parcel",
    "fallen",
    "sought",
    "speech",
    "seat",
    "seats",
    "egress",
    "guarded",
    "pen",
    "keeper",
    "tender",
    "lazily",
    "unasked",
];
/// Banned sequences of words.
const BANNED_PHRASES: [[&str; 2]; 5] =
    [["in", "vain"], ["so", "many"], ["so", "long"], ["so", "often"], ["cannot", "say"]];
/// A comment that begins so has no subject: `/// The client.`, not `/// Who.`
const NO_SUBJECT: [&str; 2] = ["/// Who", "//! Who"];

/// What a part of `node` may import: what lies below it, and no other part.
const BELOW_PARTS: [&str; 11] = [
    "model",
    "log",
    "frame",
    "node/api",
    "node/config",
    "node/timers",
    "node/links",
    "node/counters",
    "node/around",
    "node/cx",
    "node/trace_ring",
];

/// Which areas of `ftb-core` may import from which others. An area is a folder or a file of
/// `ftb-core/src`. The areas of one row may import from each other: the parts of `node` have a row
/// each. The role machine is `Node` itself: role and dispatch may import all parts. No part may
/// import them.
const CORE_AREAS: [(&[&str], &[&[&str]]); 12] = [
    (&["model"], &[]),
    (&["log"], &[&["model"]]),
    (&["frame"], &[&["model", "log"]]),
    (&BELOW_PARTS, &[]),
    (&["node/journal"], &[&BELOW_PARTS]),
    (&["node/membership"], &[&BELOW_PARTS]),
    (&["node/publishing"], &[&BELOW_PARTS]),
    (&["node/questions"], &[&BELOW_PARTS]),
    (&["node/conditions"], &[&BELOW_PARTS]),
    (&["node/delivery"], &[&BELOW_PARTS, &["node/journal"]]),
    (&["node/tree"], &[&BELOW_PARTS]),
    (&["node", "node/dispatch", "node/role", "node/status", "lib"], &[&["model", "log", "frame"]]),
];

/// A violation: rule, line, what.
struct Found(&'static str, usize, String);

/// All files with one of these extensions, as paths from the root, in order.
fn files(extensions: &[&str]) -> Vec<String> {
    let found = sources(&root(), extensions).into_iter();
    found.map(|path| path.to_string_lossy().into_owned()).collect()
}

/// Rules for all texts.
fn check_text(path: &str, text: &str, found: &mut Vec<Found>) {
    for (index, line) in text.lines().enumerate() {
        // A row of a table, an address and a list item of one word cannot be broken.
        let one_word = !line.trim_start_matches([' ', '-']).contains(' ');
        let row = path.ends_with(".md") && line.starts_with('|');
        let may_be_long = row || one_word || line.contains("://");
        if line.chars().count() > COLUMNS_MAX && !may_be_long {
            found.push(Found("columns", index + 1, line.trim().to_owned()));
        }
    }
    if path == "tests/tests/tidy.rs" || path == "docs/glossary.md" {
        return;
    }
    let mut before = String::new();
    for (index, line) in text.lines().enumerate() {
        let comment = NO_SUBJECT.iter().find_map(|start| line.trim_start().strip_prefix(start));
        if comment.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric)) {
            found.push(Found("words", index + 1, line.trim().to_owned()));
        }
        for word in line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
            let word = word.to_lowercase();
            if BANNED.contains(&&*word) {
                found.push(Found("words", index + 1, word.clone()));
            } else if BANNED_PHRASES.iter().any(|phrase| *phrase == [&*before, &*word]) {
                found.push(Found("words", index + 1, format!("{before} {word}")));
            }
            before = word;
        }
    }
}

/// A file of a crate.
struct Source {
    path: String,
    /// Folder of the crate.
    package: String,
    /// Its module within the crate.
    module: Vec<String>,
    is_test: bool,
    text: String,
}

impl Source {
    fn new(path: &str, text: String, packages: &[String]) -> Self {
        let owner = packages.iter().filter(|package| path.starts_with(&format!("{package}/")));
        let package = owner.max_by_key(|package| package.len()).cloned().unwrap_or_default();
        let within = &path[package.len() + 1..];
        let module = within.strip_suffix(".rs").unwrap();
        let module = module.strip_prefix("src/").unwrap_or(module);
        let mut module: Vec<String> = module.split('/').map(str::to_owned).collect();
        if module.last().is_some_and(|last| ["mod", "lib", "main"].contains(&&**last)) {
            module.pop();
        }
        let is_test = !within.starts_with("src/")
            || module.iter().any(|part| part == "tests" || part.ends_with("_tests"));
        Self { path: path.to_owned(), package, module, is_test, text }
    }
}

/// A name in a module: module, name, line.
type Item = (Vec<String>, String, usize);

/// What one file contains, outside tests. The text is as rustfmt leaves it: an item that begins at
/// some indentation ends with a `}` at the same one.
#[derive(Default)]
struct Items {
    types: Vec<Item>,
    /// Inherent implementations: the name is that of the type.
    impls: Vec<Item>,
    /// Modules of the crate that are named, with the last segment, and the line.
    uses: Vec<(Vec<String>, usize)>,
    /// Functions and their lines.
    functions: Vec<(String, usize, usize)>,
}

/// The rest of a line behind its visibility.
fn without_visibility(line: &str) -> &str {
    match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ").map_or(rest, |(_, rest)| rest),
        Some(rest) => rest.trim_start(),
        None => line,
    }
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The type of an inherent implementation, from the text between `impl` and `{`.
fn implemented(header: &str) -> Option<String> {
    let (mut depth, mut plain) = (0, String::new());
    let mut before = ' ';
    for c in header.chars() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            c if depth == 0 => plain.push(c),
            _ => {}
        }
        before = c;
    }
    let words: Vec<&str> = plain.split_whitespace().take_while(|word| *word != "where").collect();
    let [name] = words[..] else { return None };
    Some(name.rsplit("::").next().unwrap().to_owned())
}

/// The paths of a `use`, from the text between `use` and `;`.
fn expand(prefix: &str, tree: &str, found: &mut Vec<String>) {
    let (mut depth, mut start) = (0, 0);
    for (at, c) in tree.char_indices().chain([(tree.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = tree[start..at].trim();
                start = at + 1;
                match part.split_once('{') {
                    Some((before, inner)) => {
                        let inner = inner.strip_suffix('}').unwrap_or(inner);
                        expand(&format!("{prefix}{before}"), inner, found);
                    }
                    None if part.is_empty() => {}
                    None => {
                        let name = part.split(" as ").next().unwrap();
                        found.push(format!("{prefix}{name}"));
                    }
                }
            }
            _ => {}
        }
    }
}

/// A path as it is written in a module, from the crate's root; `None` when it leads elsewhere.
fn resolved(module: &[String], path: &str) -> Option<Vec<String>> {
    let mut segments = path.split("::").filter(|segment| !segment.is_empty()).peekable();
    let mut found = match *segments.peek()? {
        "crate" => Vec::new(),
        "self" | "super" => module.to_vec(),
        _ => return None,
    };
    for segment in segments {
        match segment {
            "crate" | "self" | "*" => {}
            "super" => drop(found.pop()),
            name => found.push(name.to_owned()),
        }
    }
    Some(found)
}

/// The line that closes what begins in this one, at the same indentation; this one if none does.
fn closing(lines: &[&str], index: usize) -> usize {
    let indent = lines[index].len() - lines[index].trim_start().len();
    let closes = |line: &&str| line.len() == indent + 1 && line.ends_with('}');
    lines[index..].iter().position(closes).map_or(index, |ahead| index + ahead)
}

impl Items {
    fn of(source: &Source) -> Self {
        let mut items = Self::default();
        let lines: Vec<&str> = source.text.lines().collect();
        // Modules within the file, and where each ends.
        let mut inner: Vec<(String, usize)> = Vec::new();
        let (mut tests_end, mut function_end) = (0, 0);
        for (index, line) in lines.iter().enumerate() {
            let trimmed = line.trim_start();
            let code = without_visibility(trimmed);
            if is_function(code) {
                items.add_function(&lines, index, code);
            }
            inner.retain(|(_, end)| *end > index);
            let is_module_level = line.len() - trimmed.len() == 4 * inner.len();
            if is_module_level && trimmed.starts_with("#[cfg(") && trimmed.contains("test") {
                let item = lines[index..].iter().position(|line| line.ends_with(['{', ';']));
                tests_end = closing(&lines, index + item.unwrap_or(0));
            }
            if index < tests_end {
                continue;
            }
            let names = inner.iter().map(|(name, _)| name.clone());
            let module: Vec<String> = source.module.iter().cloned().chain(names).collect();
            if is_module_level && index >= function_end {
                if let Some(name) = code.strip_prefix("mod ").filter(|_| code.ends_with(" {")) {
                    inner.push((identifier(name), closing(&lines, index)));
                }
                items.add_item(&module, code, &lines, index);
            }
            if is_function(code) {
                function_end = function_end.max(closing(&lines, index));
            }
            items.add_uses(&module, code, &lines, index);
        }
        items
    }

    fn add_function(&mut self, lines: &[&str], index: usize, code: &str) {
        let ends = lines[index..].iter().position(|line| line.ends_with(['{', ';', '}']));
        if ends.is_some_and(|ahead| lines[index + ahead].ends_with('{')) {
            let name = identifier(code.split("fn ").nth(1).unwrap_or_default());
            self.functions.push((name, index + 1, closing(lines, index) + 1 - index));
        }
    }

    fn add_item(&mut self, module: &[String], code: &str, lines: &[&str], index: usize) {
        for keyword in ["struct ", "enum ", "union ", "trait ", "type ", "unsafe trait "] {
            if let Some(name) = code.strip_prefix(keyword) {
                self.types.push((module.to_vec(), identifier(name), index + 1));
            }
        }
        if code.starts_with("impl ") || code.starts_with("impl<") {
            let header: Vec<&str> = lines[index..]
                .iter()
                .scan(false, |ended, line| {
                    (!std::mem::replace(ended, line.contains('{'))).then_some(*line)
                })
                .collect();
            let header = header.join(" ");
            let header = header.split('{').next().unwrap();
            if let Some(name) = implemented(header.trim_start().trim_start_matches("impl")) {
                self.impls.push((module.to_vec(), name, index + 1));
            }
        }
    }

    fn add_uses(&mut self, module: &[String], code: &str, lines: &[&str], index: usize) {
        let mut paths = Vec::new();
        if let Some(first) = code.strip_prefix("use ") {
            let rest = lines[index + 1..].iter().map(|line| line.trim());
            let text: String = core::iter::once(first).chain(rest).collect();
            expand("", text.split(';').next().unwrap(), &mut paths);
        } else if !code.starts_with("//") {
            for start in ["crate::", "super::"] {
                for (at, _) in code.match_indices(start) {
                    let is_start = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == ':');
                    let path: String = code[at..]
                        .chars()
                        .take_while(|c| c.is_alphanumeric() || *c == '_' || *c == ':')
                        .collect();
                    // What is in braces behind it belongs to a `use`, which was read as a whole.
                    if is_start && !path.ends_with("::") {
                        paths.push(path);
                    }
                }
            }
        }
        let paths = paths.iter().filter_map(|path| resolved(module, path));
        self.uses.extend(paths.map(|path| (path, index + 1)));
    }
}

fn is_function(code: &str) -> bool {
    let words = code.split("fn ").next().unwrap_or_default();
    code.contains("fn ")
        && words.split_whitespace().all(|word| {
            ["const", "async", "unsafe", "extern", "default"].contains(&word)
                || word.starts_with('"')
        })
}

/// The area of a module of `ftb-core`; `None` for one that the table does not know.
fn area(module: &[String]) -> Option<&'static str> {
    let known = CORE_AREAS.iter().flat_map(|(areas, _)| areas.iter().copied());
    match module {
        [] => Some("lib"),
        [first] | [first, ..] if first != "node" => known.into_iter().find(|area| area == first),
        [_] => Some("node"),
        // A type of the module itself.
        [_, item] if item.starts_with(char::is_uppercase) => Some("node"),
        [_, second, ..] => known
            .into_iter()
            .find(|area| area.strip_prefix("node/").is_some_and(|part| part == second)),
    }
}

fn may_import(from: &str, to: &str) -> bool {
    let row = CORE_AREAS.iter().find(|(areas, _)| areas.contains(&from)).unwrap();
    row.0.contains(&to)
        || row.1.iter().any(|below| below.contains(&to))
        || (row.0.contains(&"node") && to.starts_with("node/"))
}

/// What the root of a crate re-exports: name to path.
fn re_exports(source: &Source) -> BTreeMap<String, Vec<String>> {
    let mut paths = Vec::new();
    for statement in source.text.split("\npub use ").skip(1) {
        let text: String = statement.split(';').next().unwrap().lines().map(str::trim).collect();
        expand("", &text, &mut paths);
    }
    let segments = |path: &String| path.split("::").map(str::to_owned).collect::<Vec<_>>();
    let paths = paths.iter().map(segments);
    paths.map(|path| (path.last().unwrap().clone(), path)).collect()
}

/// Rules for the modules of `ftb-core`: each file is in an area, and imports point down.
fn check_imports(
    source: &Source,
    uses: &[(Vec<String>, usize)],
    re_exports: &BTreeMap<String, Vec<String>>,
    found: &mut Vec<Found>,
) {
    let Some(from) = area(&source.module) else {
        let module = source.module.join("::");
        return found.push(Found("areas", 1, format!("{module} is in no area of the table")));
    };
    for (to, line) in uses {
        let mut to = to.clone();
        while let Some(path) = to.first().and_then(|first| re_exports.get(first)) {
            to.splice(..1, path.iter().cloned());
        }
        if let Some(area) = area(&to)
            && !may_import(from, area)
            && area != "lib"
        {
            let text = format!("{from} must not import {}", to.join("::"));
            found.push(Found("imports", *line, text));
        }
    }
}

/// All violations of all files.
fn check() -> BTreeMap<String, Vec<Found>> {
    let manifests = files(&["toml"]).into_iter();
    let packages: Vec<String> =
        manifests.filter_map(|path| path.strip_suffix("/Cargo.toml").map(str::to_owned)).collect();
    let mut all: BTreeMap<String, Vec<Found>> = BTreeMap::new();
    let mut sources = Vec::new();
    for path in files(&["rs", "md", "proto"]) {
        let text = read(&path);
        check_text(&path, &text, all.entry(path.clone()).or_default());
        if path.ends_with(".rs") {
            sources.push(Source::new(&path, text, &packages));
        }
    }
    let core = sources.iter().find(|source| source.path == "ftb-core/src/lib.rs").unwrap();
    let re_exports = re_exports(core);
    let (mut types, mut impls) = (Vec::new(), Vec::new());
    let mut imports = Vec::new();
    for source in &sources {
        let found = all.entry(source.path.clone()).or_default();
        let items = Items::of(source);
        for (name, line, lines) in items.functions {
            if lines > FUNCTION_LINES_MAX {
                found.push(Found("functions", line, format!("{name} has {lines} lines")));
            }
        }
        if source.is_test {
            continue;
        }
        types.extend(items.types.into_iter().map(|found| (source, found)));
        impls.extend(items.impls.into_iter().map(|found| (source, found)));
        if source.package == "ftb-core" {
            check_imports(source, &items.uses, &re_exports, found);
        }
        imports.push((source, items.uses));
    }
    check_types(&types, &impls, &mut all);
    check_circles(&imports, &mut all);
    all
}

type Named<'a> = (&'a Source, Item);

/// Type names are unique in a crate, and `impl T` lies in the module tree of T.
fn check_types(types: &[Named<'_>], impls: &[Named<'_>], all: &mut BTreeMap<String, Vec<Found>>) {
    let mut homes: BTreeMap<(&str, &str), Vec<&[String]>> = BTreeMap::new();
    for (source, (module, name, _)) in types {
        homes.entry((&source.package, name)).or_default().push(module);
    }
    for (source, (_, name, line)) in types {
        let count = homes[&(&*source.package, &**name)].len();
        if count > 1 {
            let found = Found("type-names", *line, format!("{count} types are named {name}"));
            all.entry(source.path.clone()).or_default().push(found);
        }
    }
    for (source, (module, name, line)) in impls {
        let Some(homes) = homes.get(&(&*source.package, &**name)) else { continue };
        if !homes.iter().any(|home| module.starts_with(home)) {
            let found = Found("impl-placement", *line, format!("impl {name}"));
            all.entry(source.path.clone()).or_default().push(found);
        }
    }
}

/// Each file of a crate with what it imports.
type Imports<'a> = [(&'a Source, Vec<(Vec<String>, usize)>)];
type Modules<'a> = BTreeMap<&'a [String], BTreeSet<&'a [String]>>;

/// The files of a crate and which others each imports. A module may use what its ancestors define.
fn imported<'a>(uses: &'a Imports<'a>, package: &str) -> Modules<'a> {
    let of_package = || uses.iter().filter(|(source, _)| source.package == package);
    let files: BTreeSet<&[String]> = of_package().map(|(source, _)| &*source.module).collect();
    let file_of = |path: &'a [String]| {
        (1..=path.len()).rev().map(|length| &path[..length]).find(|path| files.contains(path))
    };
    let of_file = |(source, uses): &'a (&Source, Vec<(Vec<String>, usize)>)| {
        let targets = uses.iter().filter_map(|(path, _)| file_of(path));
        let others = targets.filter(|to| !source.module.starts_with(to));
        (&*source.module, others.collect())
    };
    let all: Vec<(&[String], BTreeSet<&[String]>)> = of_package().map(of_file).collect();
    all.into_iter().collect()
}

/// Whether a file imports itself through others.
fn is_in_circle(modules: &Modules<'_>, module: &[String]) -> bool {
    let mut seen = BTreeSet::new();
    let mut waiting: Vec<&[String]> = modules[module].iter().copied().collect();
    while let Some(next) = waiting.pop() {
        if next == module {
            return true;
        }
        if seen.insert(next) {
            waiting.extend(modules.get(next).into_iter().flatten());
        }
    }
    false
}

/// No two files of a crate import each other, not through others either.
fn check_circles(uses: &Imports<'_>, all: &mut BTreeMap<String, Vec<Found>>) {
    let packages: BTreeSet<&str> = uses.iter().map(|(source, _)| &*source.package).collect();
    for package in packages {
        let modules = imported(uses, package);
        for (source, _) in uses.iter().filter(|(source, _)| source.package == package) {
            if is_in_circle(&modules, &source.module) {
                let text = format!("{} imports itself through others", source.module.join("::"));
                all.entry(source.path.clone()).or_default().push(Found("circles", 1, text));
            }
        }
    }
}

/// Rule and file to the number of violations.
type Counts = BTreeMap<(String, String), usize>;

fn allowed() -> Counts {
    let text = fs::read_to_string(root().join(ALLOWED)).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let parse = |line: &str| {
        let [rule, file, count] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{ALLOWED}: {line:?} is not: RULE FILE COUNT")
        };
        ((rule.to_owned(), file.to_owned()), count.parse().unwrap())
    };
    lines.map(parse).collect()
}

fn totals(counts: &Counts) -> BTreeMap<&str, usize> {
    let mut totals = BTreeMap::new();
    for ((rule, _), count) in counts {
        *totals.entry(&**rule).or_default() += count;
    }
    totals
}

#[test]
fn no_file_violates_a_rule_more_often_than_the_list_allows() {
    let all = check();
    let mut counts = Counts::new();
    for (path, found) in &all {
        for Found(rule, ..) in found {
            *counts.entry(((*rule).to_owned(), path.clone())).or_default() += 1;
        }
    }
    let allowed = allowed();
    if std::env::var_os(WRITE_ENV).is_some() {
        let (before, now) = (totals(&allowed), totals(&counts));
        for (rule, total) in &now {
            let before = before.get(rule).copied().unwrap_or(0);
            assert!(*total <= before || allowed.is_empty(), "{rule}: {total} after {before}");
        }
        let mut text = String::from("# RULE FILE COUNT: violations that remain. See tidy.rs.\n");
        for ((rule, file), count) in &counts {
            writeln!(text, "{rule} {file} {count}").unwrap();
        }
        return fs::write(root().join(ALLOWED), text).unwrap();
    }
    let mut grown = String::new();
    for (key @ (rule, path), count) in &counts {
        let may = allowed.get(key).copied().unwrap_or(0);
        if *count > may {
            writeln!(grown, "{path}: {count} violations of {rule}, {may} are allowed").unwrap();
            for Found(_, line, what) in all[path].iter().filter(|Found(of, ..)| of == rule) {
                writeln!(grown, "  {path}:{line}: {what}").unwrap();
            }
        }
    }
    assert!(grown.is_empty(), "\n{grown}");
}

/// A list that no longer fits hides the next violation.
#[test]
fn the_list_names_existing_files_and_known_rules() {
    let rules = [
        "areas",
        "circles",
        "columns",
        "functions",
        "impl-placement",
        "imports",
        "type-names",
        "words",
    ];
    let rules = BTreeSet::from(rules);
    for (rule, file) in allowed().keys() {
        assert!(rules.contains(&**rule), "{ALLOWED}: unknown rule {rule}");
        assert!(root().join(file).is_file(), "{ALLOWED}: {file} is gone: {WRITE_ENV}=1");
    }
}

#[test]
fn the_scanner_finds_items_paths_and_lengths() {
    let text = "\
pub(crate) struct A<'a>(&'a str);
impl<'a> A<'a> {
    fn long(
        self,
    ) -> u8 {
        use super::deep::{self, B as C};
        struct Local;
        crate::log::f(self)
    }
}
impl Clone for A<'_> {}
mod inner {
    enum D {}
    impl super::Other {}
}
#[cfg(test)]
mod tests {
    use crate::node::Node;
    struct A;
}
type E = A<'static>;
";
    let packages = ["ftb-core".to_owned()];
    let source = Source::new("ftb-core/src/model/event.rs", text.to_owned(), &packages);
    let items = Items::of(&source);
    let names = |found: &[Item]| {
        let names = found.iter().map(|(module, name, _)| format!("{}::{name}", module.join("::")));
        names.collect::<Vec<_>>()
    };
    let types = ["model::event::A", "model::event::inner::D", "model::event::E"];
    assert_eq!(names(&items.types), types);
    assert_eq!(names(&items.impls), ["model::event::A", "model::event::inner::Other"]);
    assert_eq!(items.functions, [("long".to_owned(), 3, 7)]);
    let uses: Vec<String> = items.uses.iter().map(|(path, _)| path.join("::")).collect();
    assert_eq!(uses, ["model::deep", "model::deep::B", "log::f", "model::event::Other"]);
    let mut found = Vec::new();
    check_imports(&source, &items.uses, &BTreeMap::new(), &mut found);
    assert!(matches!(&found[..], [Found("imports", 8, _)]));
}

#[test]
fn banned_words_are_found_over_lines_and_comments_without_a_subject_at_their_beginning() {
    let mut found = Vec::new();
    check_text("a.rs", "/// Who.\n/// Whole.\n//! Who cannot\n//! say, Who\n", &mut found);
    let found: Vec<(usize, &str)> = found.iter().map(|found| (found.1, &*found.2)).collect();
    assert_eq!(found, [(1, "/// Who."), (3, "//! Who cannot"), (4, "cannot say")]);
}

#[test]
fn files_that_import_each_other_are_found_through_others_too() {
    let packages = ["ftb-core".to_owned()];
    let source = |path: &str, text: &str| {
        Source::new(&format!("ftb-core/src/{path}.rs"), text.to_owned(), &packages)
    };
    let sources = [
        source("a", "use crate::b::B;\n"),
        source("b", "use crate::c::{C, D};\n"),
        source("c", "use crate::a::A;\n"),
        source("d", "use crate::a::A;\nmod child;\nuse child::Child;\n"),
        source("d/child", "use super::D;\nuse crate::d::E;\n"),
    ];
    let uses: Vec<_> = sources.iter().map(|source| (source, Items::of(source).uses)).collect();
    let mut all = BTreeMap::new();
    check_circles(&uses, &mut all);
    let found: Vec<&String> = all.keys().collect();
    assert_eq!(found, ["ftb-core/src/a.rs", "ftb-core/src/b.rs", "ftb-core/src/c.rs"]);
}
