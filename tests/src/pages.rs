//! Pages in Markdown: which of their links lead nowhere, and their code.

use crate::repository::sources;
use std::fs;
use std::path::{Path, PathBuf};

/// The pages below a folder, without those of builds and hidden ones.
pub fn pages(folder: &Path) -> Vec<PathBuf> {
    sources(folder, &["md"]).into_iter().map(|path| folder.join(path)).collect()
}

/// The anchor of a heading, as forges make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn has_heading(page: &str, wanted: &str) -> bool {
    let headings = page.lines().filter_map(|line| line.strip_prefix('#'));
    headings.map(|heading| anchor(heading.trim_start_matches('#'))).any(|found| found == wanted)
}

/// The targets of the links of a page, without those to other sites.
pub fn links(text: &str) -> impl Iterator<Item = &str> {
    let links = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
    links.filter(|link| !link.contains("://"))
}

/// The files that pages name in code, from the top folder on, and that do not exist. The changelog
/// may name what is gone.
///
/// # Errors
/// A page cannot be read.
pub fn missing_files(top: &Path) -> std::io::Result<Vec<String>> {
    let mut missing = Vec::new();
    for page in pages(top).iter().filter(|page| !page.ends_with("CHANGELOG.md")) {
        let text = fs::read_to_string(page)?;
        let named = text.split('`').skip(1).step_by(2).filter(|name| is_source(name));
        // Other names are relative to a folder that the text names.
        let below_top = named.filter(|name| {
            let folder = name.split_once('/').map_or("", |(folder, _)| folder);
            !["", "target"].contains(&folder) && top.join(folder).is_dir()
        });
        let gone = below_top.filter(|name| !top.join(name).exists());
        missing.extend(gone.map(|name| format!("{}: {name}", page.display())));
    }
    Ok(missing)
}

fn is_source(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let kinds = [".rs", ".md", ".toml", ".proto", ".py", ".sh"];
    name.chars().all(plain) && kinds.iter().any(|kind| name.ends_with(kind))
}

/// A block of code between fences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// What stands behind the first fence; empty: nothing.
    pub language: String,
    /// Its lines, without the indentation of a list.
    pub lines: Vec<String>,
    /// The line of the page at which the first of them stands, from 1.
    pub first: usize,
}

/// The blocks of code of a page, and what stands outside of them.
pub fn code(text: &str) -> (Vec<Block>, String) {
    let (mut blocks, mut prose) = (Vec::new(), String::new());
    let mut open: Option<(Block, usize)> = None;
    for (index, line) in text.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (None, Some(language)) => {
                let language = language.trim().to_owned();
                open = Some((Block { language, lines: Vec::new(), first: index + 2 }, indent));
            }
            (None, None) => {
                prose.push_str(line);
                prose.push('\n');
            }
            (Some(_), Some(_)) => blocks.extend(open.take().map(|(block, _)| block)),
            (Some((block, of)), None) => {
                block.lines.push(line.get((*of).min(indent)..).unwrap_or_default().to_owned());
            }
        }
    }
    (blocks, prose)
}

/// The commands of README's first hour: the block that begins with the installation, without
/// comments.
pub fn first_hour(readme: &str) -> Vec<String> {
    let is_it = |block: &Block| block.lines.iter().any(|line| line.contains("ftbctl init"));
    let block = code(readme).0.into_iter().find(is_it);
    let lines = block.into_iter().flat_map(|block| block.lines);
    let command = |line: String| line.split(" # ").next().unwrap_or_default().trim_end().to_owned();
    lines.map(command).collect()
}

/// The lines for a shell (`sh`) in the section of a page that begins with this heading.
pub fn shell_lines(page: &str, heading: &str) -> Vec<String> {
    let section = page.split("\n## ").find(|section| section.lines().next() == Some(heading));
    let blocks = code(section.unwrap_or_default()).0.into_iter();
    blocks.filter(|block| block.language == "sh").flat_map(|block| block.lines).collect()
}

/// The links of all pages below a folder that lead to no file, or to no heading of their page: one
/// line for each. Links to other sites are left out.
pub fn broken_links(root: &Path) -> std::io::Result<Vec<String>> {
    let mut broken = Vec::new();
    for page in pages(root) {
        let text = fs::read_to_string(&page)?;
        for link in links(&text) {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap_or(root).join(file),
            };
            let is_good = match fs::read_to_string(&target) {
                Ok(text) => heading.is_empty() || has_heading(&text, heading),
                Err(_) => heading.is_empty() && target.is_dir(),
            };
            if !is_good {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    Ok(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_in_lists_and_apart_from_prose() {
        let text =
            "a\n1. b\n   ```sh\n   x\n     y\n   ```\n[c](d#e) [f](https://g)\n```\nz\n```\n";
        let (blocks, prose) = code(text);
        let block = |language: &str, lines: &[&str], first| Block {
            language: language.to_owned(),
            lines: lines.iter().map(|line| (*line).to_owned()).collect(),
            first,
        };
        assert_eq!(blocks, [block("sh", &["x", "  y"], 4), block("", &["z"], 9)]);
        assert_eq!(prose, "a\n1. b\n[c](d#e) [f](https://g)\n");
        assert_eq!(links(text).collect::<Vec<_>>(), ["d#e"]);
    }
}
