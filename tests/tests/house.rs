//! The house stays in order: dependencies point down only, every promise has its test, every
//! dependency its reason, and links of pages lead somewhere.
#![allow(clippy::unwrap_used)]

use ftb_tests::repository::{read, root, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn manifest(path: &str) -> toml::Table {
    read(path).parse().unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn members() -> Vec<String> {
    let workspace = manifest("Cargo.toml");
    let members = workspace["workspace"]["members"].as_array().unwrap();
    members.iter().map(|member| member.as_str().unwrap().to_owned()).collect()
}

/// Crates of ours that each crate may link (dev-dependencies are free: tests cross crates).
fn allowed() -> BTreeMap<&'static str, &'static [&'static str]> {
    BTreeMap::from([
        ("ftb-core", &[] as &[_]),
        ("ftb-cli", &[]),
        ("ftb-log", &[]),
        ("ftb-proto", &["ftb-core"]),
        ("ftb-transport", &[]),
        ("ftb-client", &["ftb-cli", "ftb-core", "ftb-log", "ftb-proto", "ftb-transport"]),
        ("ftb-capi", &["ftb-core", "ftb-client"]),
        ("ftb-python", &["ftb-core", "ftb-client", "ftb-job"]),
        ("ftb-agent", &["ftb-cli", "ftb-core", "ftb-log", "ftb-proto", "ftb-transport"]),
        (
            "ftbctl",
            &[
                "ftb-cli",
                "ftb-core",
                "ftb-proto",
                "ftb-transport",
                "ftb-client",
                "ftb-launcher-core",
                "ftb-act",
                "ftb-slurm",
            ],
        ),
        ("ftb-bridge", &["ftb-cli", "ftb-core", "ftb-client", "ftb-transport"]),
        ("ftb-ib", &["ftb-cli", "ftb-core", "ftb-client"]),
        ("ftb-rmcp", &[]),
        ("ftb-ipmi", &["ftb-cli", "ftb-core", "ftb-client", "ftb-rmcp"]),
        ("ftb-slurm", &["ftb-cli", "ftb-core", "ftb-client"]),
        ("ftb-act", &["ftb-cli", "ftb-core", "ftb-client", "ftb-transport"]),
        ("ftb-job", &["ftb-cli", "ftb-core", "ftb-client", "ftb-launcher-core"]),
        ("ftb-job-capi", &["ftb-job"]),
        ("ftb-launcher-core", &["ftb-cli", "ftb-core"]),
        ("ftb-launcher-pods", &["ftb-core", "ftb-launcher-core"]),
        (
            "ftb-launcher",
            &[
                "ftb-cli",
                "ftb-core",
                "ftb-client",
                "ftb-job",
                "ftb-launcher-core",
                "ftb-launcher-pods",
            ],
        ),
    ])
}

/// Crates that exist for tests, benches and the demonstration: they may link anything.
const FREE: [&str; 4] = ["ftb-tests", "ftb-bench", "ftb-demo", "ftb-fuzz"];

#[test]
fn dependencies_point_down_only() {
    let allowed = allowed();
    for member in members() {
        let manifest = manifest(&format!("{member}/Cargo.toml"));
        let name = manifest["package"]["name"].as_str().unwrap();
        if FREE.contains(&name) {
            continue;
        }
        let may =
            allowed.get(name).unwrap_or_else(|| panic!("crate {name} has no place in the house"));
        let links = manifest.get("dependencies").and_then(toml::Value::as_table);
        for dependency in links.into_iter().flat_map(toml::Table::keys) {
            let ours = dependency.starts_with("ftb");
            assert!(
                !ours || may.contains(&dependency.as_str()),
                "{name} must not link {dependency}"
            );
        }
    }
}

#[test]
fn the_core_has_no_clock_no_sockets_and_no_tasks() {
    let banned =
        ["std::net", "std::fs", "std::thread", "Instant::now", "SystemTime", "tokio", "rand::"];
    for file in sources(&root().join("ftb-core/src"), &["rs"]) {
        let text = read(Path::new("ftb-core/src").join(&file));
        // A test at the end of a file may write the page that it checks.
        let code = text.lines().take_while(|line| *line != "mod tests {");
        for (number, line) in code.enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for word in banned {
                assert!(!code.contains(word), "{}:{}: {word}", file.display(), number + 1);
            }
        }
    }
}

#[test]
fn every_direct_dependency_has_its_reason() {
    let reasons = read("docs/dependencies.md");
    let mut used = BTreeSet::new();
    for member in members() {
        let manifest = manifest(&format!("{member}/Cargo.toml"));
        for table in ["dependencies", "build-dependencies", "dev-dependencies"] {
            let names = manifest.get(table).and_then(toml::Value::as_table);
            used.extend(names.into_iter().flat_map(toml::Table::keys).cloned());
        }
    }
    let missing: Vec<_> = used
        .iter()
        .filter(|name| !name.starts_with("ftb") && !reasons.contains(&format!("`{name}`")))
        .collect();
    assert!(missing.is_empty(), "docs/dependencies.md gives no reason for {missing:?}");
    let rows: Vec<&str> = reasons.lines().filter(|line| line.starts_with("| `")).collect();
    assert!(rows.is_sorted(), "docs/dependencies.md is not in order");
    let named = rows.iter().filter_map(|row| row.split('|').nth(1));
    let named = named.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let gone: Vec<&str> = named.filter(|name| !used.contains(*name)).collect();
    assert!(gone.is_empty(), "docs/dependencies.md has reasons for {gone:?}, which no crate uses");
}

/// The one table of exit codes has exactly the codes of `ftb-cli`, and systemd starts no daemon
/// again whose configuration is wrong. For systemd, only the main process has exit codes that
/// prevent a restart: a check in `ExecStartPre=` would be repeated for ever.
#[test]
fn each_exit_code_has_one_meaning() {
    let page = read("docs/ftbctl.md");
    let table = page.split("| exit code |").nth(1).expect("docs/ftbctl.md has no exit codes");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| row.split('|').nth(1)).flat_map(|cell| cell.split(';'));
    let mut codes: Vec<u8> = cells.filter_map(|code| code.trim().parse().ok()).collect();
    codes.sort_unstable();
    assert_eq!(codes, ftb_cli::CODES);
    let wanted = format!("RestartPreventExitStatus={}", ftb_cli::USAGE);
    for entry in std::fs::read_dir(root().join("deploy/systemd")).unwrap() {
        let path = entry.unwrap().path();
        let unit = std::fs::read_to_string(&path).unwrap();
        if !unit.contains("\nRestart=") {
            continue;
        }
        let said = unit.lines().find(|line| line.starts_with("RestartPrevent"));
        // 217: the unit names a user that its package does not make.
        let code = said.map(|said| said.strip_suffix(" 217").unwrap_or(said));
        assert_eq!(code, Some(&wanted[..]), "{}", path.display());
        assert!(!unit.contains("\nExecStartPre="), "{}: ExecStartPre", path.display());
    }
}

/// Each promise of SPECIFICATION.md (a heading `## P…`) lists at least one test as
/// `path::to/file.rs::name`, and that test exists.
#[test]
fn every_promise_has_a_test_that_exists() {
    let specification = read("SPECIFICATION.md");
    let promises: Vec<&str> = specification.split("\n## P").skip(1).collect();
    assert!(promises.len() >= 7, "SPECIFICATION.md has only {} promises", promises.len());
    for promise in promises {
        let title = promise.lines().next().unwrap_or_default();
        let tests: Vec<&str> = promise.split('`').filter(|word| word.contains(".rs::")).collect();
        assert!(!tests.is_empty(), "no test defends P{title}");
        for test in tests {
            let (file, name) = test.split_once("::").unwrap();
            let text = read(file);
            assert!(text.contains(&format!("fn {name}(")), "P{title}: {file} has no test {name}");
        }
    }
}

/// Each promise of the threat model (`T1`…) has its section in SPECIFICATION.md.
#[test]
fn the_threat_model_promises_what_the_specification_tests() {
    let ids = |text: String, start: &str| -> Vec<u32> {
        let rows = text.lines().filter_map(|line| line.strip_prefix(start));
        let number = |row: &str| row.split_once(' ')?.0.parse().ok();
        rows.filter_map(number).collect()
    };
    let promised = ids(read("docs/security.md"), "| T");
    assert!(promised.is_sorted() && !promised.is_empty(), "{promised:?}");
    assert_eq!(promised, ids(read("SPECIFICATION.md"), "### T"));
}

#[test]
fn links_of_pages_lead_to_files_and_headings() {
    assert_eq!(ftb_tests::pages::broken_links(&root()).unwrap(), [""; 0]);
}

#[test]
fn files_that_pages_name_exist() {
    assert_eq!(ftb_tests::pages::missing_files(&root()).unwrap(), [""; 0]);
}

/// `make crates` packs what has no `publish = false`, in an order in which it can be published, and
/// each has what crates.io asks for.
#[test]
fn crates_are_ready_to_be_published() {
    let makefile = read("Makefile");
    let (_, list) = makefile.split_once("\nCRATES = ").unwrap();
    let (list, _) = list.split_once("\nVERIFY").unwrap();
    let order: Vec<&str> = list.split_whitespace().filter(|word| *word != "\\").collect();
    let mut published = BTreeSet::new();
    for member in members() {
        let manifest = manifest(&format!("{member}/Cargo.toml"));
        let package = manifest["package"].as_table().unwrap();
        let name = package["name"].as_str().unwrap().to_owned();
        if package.contains_key("publish") {
            continue;
        }
        for key in ["description", "license", "readme", "keywords", "categories"] {
            assert!(package.contains_key(key), "{member}/Cargo.toml has no {key}");
        }
        let place = |wanted: &str| order.iter().position(|known| *known == wanted);
        let links = manifest.get("dependencies").and_then(toml::Value::as_table);
        for below in links.into_iter().flat_map(toml::Table::keys).filter(|n| n.starts_with("ftb"))
        {
            assert!(place(below) < place(&name), "CRATES has {below} behind {name}, or lacks it");
        }
        published.insert(name);
    }
    assert_eq!(order.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>(), published);
}
