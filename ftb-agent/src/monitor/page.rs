//! The web page: its files, its token, the names of racks.
//!
//! Responsible for: `[page]` of the configuration, who may ask for what the page shows, and what
//! a browser may do with the page. Not responsible for: HTTP (`server`), the resources (`mod`).

use ftb_core::hostlist::Hostlist;
use ftb_core::racks;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::File;
use std::hint::black_box;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Characters of a token.
pub const TOKEN_LENGTH: std::ops::RangeInclusive<usize> = 32..=256;
/// Bytes of the file of the token.
const TOKEN_FILE_BYTES_MAX: u64 = 1024;
/// Bytes of the file of racks.
const RACKS_FILE_BYTES_MAX: u64 = 1024 * 1024;

/// What a browser may do with an answer: only our own scripts and styles, no text becomes markup
/// or a script, no other page frames it or sends a form.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// Headers of every answer.
const HEADERS: [(&str, &str); 5] = [
    ("content-security-policy", POLICY),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-frame-options", "DENY"),
];

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! files {
    ($($path:literal $file:literal $kind:ident;)*) => {
        /// The files of the page: path, type, text.
        pub const FILES: &[(&str, &str, &str)] =
            &[$(($path, $kind, include_str!(concat!("page/", $file)))),*];
    };
}

files! {
    "/page/" "index.html" HTML;
    "/page/app.css" "app.css" CSS;
    "/page/icon.svg" "icon.svg" SVG;
    "/page/app.js" "app.js" SCRIPT;
    "/page/dom.js" "dom.js" SCRIPT;
    "/page/events.js" "events.js" SCRIPT;
    "/page/grid.js" "grid.js" SCRIPT;
    "/page/jobs.js" "jobs.js" SCRIPT;
    "/page/model.js" "model.js" SCRIPT;
    "/page/source.js" "source.js" SCRIPT;
    "/page/tree.js" "tree.js" SCRIPT;
}

/// The table `[page]` of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PageConfig {
    /// The file of the token; `None`: there is no page.
    pub token: Option<PathBuf>,
    /// The file that names racks and their hosts; `None`: the page groups by host names.
    pub racks: Option<PathBuf>,
}

/// The page of an agent that serves one.
#[derive(Debug)]
pub struct Page {
    /// The token's hash: a comparison says nothing about its length.
    token: [u8; 32],
    racks: Vec<Rack>,
}

/// A rack and its hosts, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Rack {
    name: String,
    hosts: Vec<String>,
}

impl Page {
    /// Reads the files; `None` if no token is configured.
    ///
    /// # Errors
    /// One line: a file cannot be read, other users can read the token, or it is no token.
    pub fn read(config: &PageConfig) -> Result<Option<Self>, String> {
        let Some(path) = &config.token else { return Ok(None) };
        let text = read(path, TOKEN_FILE_BYTES_MAX, true)?;
        let token = text.trim_end();
        let is_fit = TOKEN_LENGTH.contains(&token.len());
        if !is_fit || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "{}: expected a token of {} to {} visible characters; this makes one: \
                 openssl rand -hex 32",
                path.display(),
                TOKEN_LENGTH.start(),
                TOKEN_LENGTH.end()
            ));
        }
        let racks = config.racks.as_deref().map(read_racks).transpose()?.unwrap_or_default();
        Ok(Some(Self { token: Sha256::digest(token).into(), racks }))
    }

    /// Whether a request has the token, as `Authorization: Bearer TOKEN`. The time of the
    /// comparison does not depend on where the tokens differ.
    pub(super) fn admits(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(("Bearer", given)) = given.and_then(|value| value.split_once(' ')) else {
            return false;
        };
        let given: [u8; 32] = Sha256::digest(given).into();
        let differ = self.token.iter().zip(given).fold(0, |differ, (a, b)| differ | (a ^ b));
        black_box(differ) == 0
    }

    pub(super) fn racks(&self) -> &[Rack] {
        &self.racks
    }
}

/// A file of the page: its type and its text.
pub(super) fn file(path: &str) -> Option<(&'static str, &'static str)> {
    let found = FILES.iter().find(|(known, ..)| *known == path);
    found.map(|(_, kind, text)| (*kind, *text))
}

/// Adds what keeps a browser from doing more with an answer than the page needs.
pub(super) fn protect(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// Reads a small file. A private one must be closed to other users, as the key of TLS.
fn read(path: &Path, bytes_max: u64, is_private: bool) -> Result<String, String> {
    let place = path.display();
    let failed = |error: &dyn Display| format!("{place}: {error}");
    // Checked before opening: a pipe without a writer would block the start.
    let about = std::fs::metadata(path).map_err(|error| failed(&error))?;
    if !about.is_file() {
        return Err(failed(&"it is no file"));
    }
    let mode = about.mode() & 0o777;
    // Its group may read it: the service's user must.
    if is_private && mode & 0o027 != 0 {
        return Err(format!(
            "{place}: other users can use this token (mode {mode:04o}): change its group to the \
             group of the agent (chgrp) and run: chmod 640 {place}"
        ));
    }
    let mut text = String::new();
    let opened = File::open(path).map_err(|error| failed(&error))?;
    opened.take(bytes_max + 1).read_to_string(&mut text).map_err(|error| failed(&error))?;
    match text.len() as u64 > bytes_max {
        true => Err(failed(&format!("it has more than {bytes_max} bytes"))),
        false => Ok(text),
    }
}

/// Reads lines such as `r07 = "node[097-112]"`, as ftb-bridge does.
fn read_racks(path: &Path) -> Result<Vec<Rack>, String> {
    let text = read(path, RACKS_FILE_BYTES_MAX, false)?;
    let place = path.display();
    let table: BTreeMap<String, String> =
        toml::from_str(&text).map_err(|error| format!("{place}: {}", error.message()))?;
    let racks = racks::check(&table).map_err(|error| format!("{place}: {error}"))?;
    let rack = |(name, hosts): (String, Hostlist)| Rack { name, hosts: hosts.iter().collect() };
    Ok(racks.into_iter().map(rack).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    const TOKEN: &str = "0123456789abcdef0123456789abcdef";

    fn config(token: &str, mode: u32) -> (tempfile::TempDir, PageConfig) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, token).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let config = PageConfig { token: Some(path), racks: None };
        (dir, config)
    }

    #[test]
    fn a_token_that_others_can_use_or_guess_is_refused() {
        for (text, mode, expected) in [
            (TOKEN, 0o644, "chmod 640"),
            (TOKEN, 0o660, "chmod 640"),
            ("short", 0o600, "openssl rand"),
            ("0123456789abcdef 123456789abcdef", 0o600, "openssl rand"),
            (&"x".repeat(2000), 0o600, "more than 1024 bytes"),
        ] {
            let (_dir, config) = config(text, mode);
            let error = Page::read(&config).unwrap_err();
            assert!(error.contains(expected), "{text:?} {mode:o}: {error}");
        }
        assert!(Page::read(&PageConfig::default()).unwrap().is_none());
        let missing = PageConfig { token: Some("/nowhere/token".into()), racks: None };
        assert!(Page::read(&missing).unwrap_err().contains("/nowhere/token"));
    }

    #[test]
    fn only_the_whole_token_is_admitted() {
        let (_dir, config) = config(&format!("{TOKEN}\n"), 0o640);
        let page = Page::read(&config).unwrap().unwrap();
        let admits = |value: &str| {
            let value = HeaderValue::from_str(value).unwrap();
            page.admits(&HeaderMap::from_iter([(AUTHORIZATION, value)]))
        };
        assert!(admits(&format!("Bearer {TOKEN}")));
        for wrong in [
            String::new(),
            TOKEN.to_owned(),
            "Bearer".to_owned(),
            "Bearer ".to_owned(),
            format!("Bearer {}", &TOKEN[1..]),
            format!("Bearer {TOKEN}0"),
            format!("Basic {TOKEN}"),
        ] {
            assert!(!admits(&wrong), "{wrong}");
        }
        assert!(!page.admits(&HeaderMap::new()));
    }

    #[test]
    fn racks_are_read_as_host_lists() {
        let (dir, mut config) = config(TOKEN, 0o600);
        let path = dir.path().join("racks.toml");
        fs::write(&path, "r2 = \"node[03-04]\"\nr1 = \"node[01-02]\"\n").unwrap();
        config.racks = Some(path.clone());
        let page = Page::read(&config).unwrap().unwrap();
        let names: Vec<_> = page.racks().iter().map(|rack| &rack.name[..]).collect();
        assert_eq!(names, ["r1", "r2"]);
        assert_eq!(page.racks()[1].hosts, ["node03", "node04"]);
        fs::write(&path, "r1 = \"node[\"\n").unwrap();
        let error = Page::read(&config).unwrap_err();
        assert!(error.contains("rack r1"), "{error}");
    }

    #[test]
    fn no_file_of_the_page_has_inline_code_or_asks_another_host() {
        for (path, _, text) in FILES {
            for forbidden in ["innerHTML", "outerHTML", "insertAdjacent", "eval(", "document.write"]
            {
                assert!(!text.contains(forbidden), "{path}: {forbidden}");
            }
            let foreign = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!foreign.contains("http://") && !foreign.contains("https://"), "{path}");
            let is_inline = |line: &str| line.contains(" style=\"") || line.contains(" onclick");
            assert!(!text.lines().any(is_inline), "{path}");
        }
    }
}
