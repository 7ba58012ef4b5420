//! The floors of the crate: `model` and the event types below `log`, `log` below `frame`, `frame`
//! below `node`. No module imports from a floor above its own.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else {
            files.push(path);
        }
    }
    files
}

#[test]
fn no_module_imports_from_a_floor_above_its_own() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let log = ["crate::log", "crate::epochs", "crate::position", "crate::ranges"];
    let above_log = ["crate::frame", "crate::node"];
    let mut found = Vec::new();
    for file in rust_files(&source) {
        let name = file.strip_prefix(&source).unwrap().to_string_lossy().into_owned();
        let above: Vec<&str> = match name.split('/').next().unwrap() {
            "log" => above_log.to_vec(),
            "frame.rs" => vec!["crate::node"],
            "node" | "lib.rs" => Vec::new(),
            _ => log.iter().chain(&above_log).copied().collect(),
        };
        let text = std::fs::read_to_string(&file).unwrap();
        // Tests may use the events of `node::testing`.
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in lines.filter(|_| !name.ends_with("tests.rs")) {
            found.extend(
                above
                    .iter()
                    .filter(|path| line.contains(*path))
                    .map(|_| format!("{name}: {}", line.trim())),
            );
        }
    }
    assert!(found.is_empty(), "imports that point upward:\n{}", found.join("\n"));
}
