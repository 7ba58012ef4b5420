//! Pages in Markdown: which of their links lead nowhere.

use std::fs;
use std::path::{Path, PathBuf};

/// The pages below a folder, without those of builds and hidden ones.
fn pages(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            found.extend(pages(&path)?);
        } else if name.ends_with(".md") {
            found.push(path);
        }
    }
    Ok(found)
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

/// The links of all pages below a folder that lead to no file, or to no heading of their page: one
/// line for each. Links to other sites are left out.
pub fn broken_links(root: &Path) -> std::io::Result<Vec<String>> {
    let mut broken = Vec::new();
    for page in pages(root)? {
        let text = fs::read_to_string(&page)?;
        let links = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        for link in links.filter(|link| !link.contains("://")) {
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
