//! The book: it has every page, its links hold, and what it tells a reader to type works.
//!
//! The options and arguments of each command of each page are accepted by its program. Commands
//! that only read, those of `console` blocks, and the first hour of README, run against real
//! agents. The last two must do what the page shows.
#![allow(clippy::unwrap_used, missing_docs)]

mod commands;
mod console;
mod reading;

use commands::{Found, PROGRAMS, commands};
use console::steps;
use ftb_core::catalog::{CONDITIONS, EVENTS};
use ftb_tests::cluster::{Cluster, Plan, admin, binary, wait_for};
use ftb_tests::man;
use ftb_tests::pages::{broken_links, code, first_hour, links, pages};
use ftb_tests::repository::{read, root};
use reading::{has_answered, readers};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Pages that are no part of the book: what they describe is for this repository's tests alone.
const OUTSIDE: [&str; 3] =
    ["tests/hardware/README.md", "deploy/book/SUMMARY.md", "ftb-client/python/README.md"];
/// The pages that stand beside the summary.
const OWN: [&str; 5] = ["install.md", "checklist.md", "symptoms.md", "failures.md", "upgrade.md"];
/// Its commands are those of their time.
const HISTORY: &str = "CHANGELOG.md";
/// Fewer commands than the pages have: a test that finds fewer has lost its eyes.
const COMMANDS_MIN: usize = 150;
/// The same for commands that only read.
const READERS_MIN: usize = 40;

/// All pages of the repository, as paths from its root.
fn all_pages() -> BTreeSet<String> {
    let root = fs::canonicalize(root()).unwrap();
    let all = pages(&root).into_iter();
    let all = all.map(|page| page.strip_prefix(&root).unwrap().display().to_string());
    all.filter(|page| !OUTSIDE.contains(&&**page)).collect()
}

#[test]
fn the_book_has_every_page_once_and_its_links_hold() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("book");
    let built = Command::new(root().join("deploy/book/build.sh")).arg(&out).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let src = out.join("src");
    let summary = fs::read_to_string(src.join("SUMMARY.md")).unwrap();
    let named: Vec<&str> = links(&summary).collect();
    let once: BTreeSet<String> = named.iter().map(|page| (*page).to_owned()).collect();
    assert_eq!(named.len(), once.len(), "{named:?}");
    assert_eq!(once, all_pages());
    assert_eq!(broken_links(&src).unwrap(), [""; 0]);
    let parts: Vec<&str> = summary.lines().filter_map(|line| line.strip_prefix("# ")).collect();
    let readers = ["Job owner", "Administrator", "Author of a daemon", "Maintainer"];
    assert_eq!(parts[1..], readers);
}

/// The anchors of a page, and what it links to.
fn html(page: &Path) -> (BTreeSet<String>, Vec<String>) {
    let text = fs::read_to_string(page).unwrap();
    let values = |key: &str| {
        let key = format!(" {key}=\"");
        let parts = text.split(&key).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0));
        parts.map(str::to_owned).collect::<Vec<_>>()
    };
    (values("id").into_iter().collect(), values("href"))
}

#[test]
#[ignore = "needs the book: make test-long"]
fn every_link_of_the_html_leads_somewhere() {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(3).unwrap().join("book/html");
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.clone()];
    while let Some(within) = folders.pop() {
        for entry in fs::read_dir(&within).unwrap_or_else(|e| panic!("make book: {e}")) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html") {
                all.insert(path.clone(), html(&path));
            }
        }
    }
    assert!(all.len() > all_pages().len(), "{} pages", all.len());
    let mut broken = Vec::new();
    for (page, (_, links)) in &all {
        for link in links.iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            let good = fs::canonicalize(&target).is_ok_and(|target| {
                anchor.is_empty() || all.get(&target).is_some_and(|(ids, _)| ids.contains(anchor))
            });
            if !good {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert_eq!(broken, [""; 0]);
}

/// An unknown option or a wrong value is an error before the help is shown.
#[test]
fn the_programs_accept_every_command_of_every_page() {
    let programs: BTreeMap<&str, PathBuf> =
        PROGRAMS.map(|(name, package)| (name, binary(package, name).unwrap())).into();
    let mut count = 0;
    let mut wrong = Vec::new();
    for found in every_command() {
        let end = found.words.iter().position(|word| word == "--");
        let own = &found.words[1..end.unwrap_or(found.words.len())];
        let mut command = Command::new(&programs[&*found.words[0]]);
        let output = command.args(own).arg("--help").stdin(Stdio::null()).output().unwrap();
        count += 1;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let line = said.lines().next().unwrap_or_default().to_owned();
            wrong.push(format!("{}: {:?}: {line}", found.place, found.words));
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert!(count >= COMMANDS_MIN, "only {count} commands");
    println!("{count} commands");
}

/// The commands of all pages of the book and of all man pages.
fn every_command() -> Vec<Found> {
    let pages = all_pages().into_iter().filter(|page| page != HISTORY);
    let examples = man::examples().into_iter().map(|(page, lines)| {
        (format!("man {page}"), format!("```sh\n{}\n```\n", lines.join("\n")))
    });
    let all = pages.map(|page| (page.clone(), read(&page))).chain(examples);
    all.flat_map(|(page, text)| commands(&page, &text)).collect()
}

/// A cluster as the pages have it, and who reads them on its last host.
async fn site() -> (Cluster, Reader) {
    let plan = Plan::new(3, 2).hosts(["node1", "node2", "node3"]).certified().without_monitors();
    let mut cluster = plan.start().await.unwrap();
    cluster.wait_wanted().await.unwrap();
    let mut reader = Reader::new(cluster.socket(2));
    let ca = cluster.dir().join("ca").display().to_string();
    reader.environment.insert("FTB_CA_DIR".to_owned(), ca);
    (cluster, reader)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_of_a_page_that_only_reads_gets_an_answer() {
    let (cluster, reader) = site().await;
    for name in ["act.toml", "policy.toml"] {
        fs::copy(root().join("deploy/config").join(name), reader.folder.path().join(name)).unwrap();
    }
    let all = readers(every_command());
    assert!(all.len() >= READERS_MIN, "only {} commands", all.len());
    let mut wrong = Vec::new();
    for words in &all {
        let mut command = reader.shell("exec ftbctl \"$@\"");
        let output = command.arg("ftbctl").args(words).output().unwrap();
        if !has_answered(words, &output) {
            wrong.push(format!("{words:?}: {output:?}"));
        }
    }
    assert_eq!(wrong, [""; 0], "{}", cluster.logs());
    println!("{} commands", all.len());
}

/// Names that no catalogue has are mistakes, or variables of the environment.
#[test]
fn the_pages_of_the_book_name_events_and_conditions_that_exist() {
    let known: BTreeSet<&str> = EVENTS.iter().map(|event| event.name).collect();
    let keys: BTreeSet<&str> = CONDITIONS.iter().map(|condition| condition.key).collect();
    let variables = ["FTB_AGENT_SOCKET"];
    for page in OWN {
        let text = read(Path::new("deploy/book").join(page));
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            if word.starts_with("FTB_") && !variables.contains(&word) {
                assert!(known.contains(word), "{page}: no event is named {word}");
            }
        }
        let prose = code(&text).1;
        for rest in prose.split("condition ").skip(1) {
            let word = rest.split(|c: char| !c.is_ascii_uppercase() && c != '_').next().unwrap();
            let is_key = word.len() > 3;
            assert!(!is_key || keys.contains(word), "{page}: no condition has the key {word}");
        }
    }
}

fn make_targets() -> BTreeSet<String> {
    let makefile = read("Makefile");
    let targets = makefile.lines().filter_map(|line| {
        let (name, _) = line.split_once(':').filter(|(_, rest)| !rest.starts_with('='))?;
        let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
        (is_name && !name.is_empty()).then(|| name.to_owned())
    });
    targets.collect()
}

#[test]
fn make_has_every_target_that_a_page_names() {
    let targets = make_targets();
    let mut count = 0;
    for page in all_pages() {
        let text = read(&page);
        let (blocks, prose) = code(&text);
        let inline = prose.split('`').skip(1).step_by(2).map(str::to_owned);
        let blocks = blocks.into_iter().filter(|block| block.language == "sh");
        for line in blocks.flat_map(|block| block.lines).chain(inline) {
            let mut words = line.split([' ', '\n']).skip_while(|word| *word == "sudo");
            if words.next() != Some("make") {
                continue;
            }
            let target = words.find(|word| !word.contains('='));
            count += usize::from(target.is_some());
            let is_known = target.is_none_or(|target| target == "&&" || targets.contains(target));
            assert!(is_known, "{page}: make has no target: {line}");
        }
    }
    assert!(count > 10, "only {count} targets");
}

/// The folder of a reader: the files that the pages name, and programs on the path.
struct Reader {
    folder: tempfile::TempDir,
    environment: BTreeMap<String, String>,
}

impl Reader {
    fn new(socket: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        fs::create_dir(&bin).unwrap();
        for (name, package) in PROGRAMS {
            let program = fs::canonicalize(binary(package, name).unwrap()).unwrap();
            std::os::unix::fs::symlink(program, bin.join(name)).unwrap();
        }
        fs::create_dir(folder.path().join("etc")).unwrap();
        let path = std::env::var("PATH").unwrap();
        let own = |name: &str| folder.path().join(name).display().to_string();
        let environment = BTreeMap::from(
            [
                ("PATH", format!("{}:{path}", bin.display())),
                ("FTB_AGENT_SOCKET", socket.display().to_string()),
                ("FTB_JOBS_DIR", own("jobs")),
                ("XDG_RUNTIME_DIR", own("run")),
                ("NO_COLOR", "1".to_owned()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        Self { folder, environment }
    }

    fn etc(&self) -> PathBuf {
        self.folder.path().join("etc")
    }

    fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", line]).current_dir(self.folder.path()).envs(&self.environment);
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.shell(line).output().unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_pages_show_on_a_console_is_what_happens() {
    let (cluster, reader) = site().await;
    let config = fs::read_to_string(cluster.config(2)).unwrap();
    fs::write(reader.etc().join("agent.toml"), &config).unwrap();
    let mistake = config.replacen("members", "membrs", 1);
    fs::write(reader.etc().join("mistake.toml"), mistake).unwrap();
    fs::copy(root().join("deploy/config/policy.toml"), reader.etc().join("policy.toml")).unwrap();
    // The pages say so: half a minute after the start of an agent.
    let watched = wait_for("all nodes to be watched", async || {
        let good = ["node1", "node2", "node3"]
            .iter()
            .all(|node| reader.run(&format!("ftbctl health {node}")).status.success());
        Ok(good.then_some(()))
    });
    cluster.must(watched.await).await;

    let etc = reader.etc().display().to_string();
    let places = BTreeMap::from([
        ("ftbctl doctor".to_owned(), format!("ftbctl doctor --config {etc}/agent.toml")),
        ("/etc/ftb".to_owned(), etc),
    ]);
    let mut count = 0;
    for page in OWN {
        for step in steps(&read(Path::new("deploy/book").join(page))) {
            count += 1;
            let wrong = step.run(reader.folder.path(), &places, &reader.environment);
            if let Some(wrong) = wrong {
                panic!("{page}: {wrong}\n{}", cluster.logs());
            }
        }
    }
    assert!(count >= 30, "only {count} commands were run");
}

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the agent where systemd would.
async fn start(reader: &Reader, socket: &Path) -> Running {
    let config = reader.etc().join("agent.toml");
    // The port of the default may be in use on this machine.
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replacen('\n', "\nlisten = \"127.0.0.1:0\"\n", 1)).unwrap();
    let log = fs::File::create(reader.folder.path().join("agent.log")).unwrap();
    let mut command = Command::new(binary("ftb-agent", "ftb-agent").unwrap());
    let agent = Running(command.arg("--config").arg(config).stderr(log).spawn().unwrap());
    let up = wait_for("the agent", async || Ok(admin(socket).await.ok().map(|_| ())));
    up.await.unwrap();
    agent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_hour_of_the_readme_works_as_it_stands_there() {
    let sockets = tempfile::tempdir().unwrap();
    let socket = sockets.path().join("agent.sock");
    let reader = Reader::new(&socket);
    let etc = reader.etc().display().to_string();
    let mut agent = None;
    let mut tail = None;
    let mut said = BTreeMap::new();
    for line in first_hour(&read("README.md")) {
        let line = line.trim_start_matches("sudo ").to_owned();
        let words: Vec<&str> = line.split(' ').collect();
        match &words[..] {
            ["make", "install", "PREFIX=/usr", "&&", "sudo", "systemd-sysusers"] => {
                // `tests/install` does it.
                assert!(make_targets().contains("install"));
            }
            ["ftbctl", "init", cluster, _] => {
                let folders =
                    format!("--dir {etc} --ca-dir ca --agent-socket {}", socket.display());
                let output = reader.run(&format!("ftbctl init {cluster} {folders}"));
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(output.status.success(), "{output:?}");
                assert!(text.contains("systemctl enable --now ftb-agent"), "{text}");
            }
            ["systemctl", "enable", "--now", "ftb-agent"] => {
                agent = Some(start(&reader, &socket).await);
            }
            ["ftbctl", "tail", .., "&"] => {
                let mut command = reader.shell(&format!("exec {}", line.trim_end_matches('&')));
                let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
                let output = child.stdout.take().unwrap();
                tail = Some((Running(child), output));
                let subscribed = wait_for("the subscription", async || {
                    let mut admin = admin(&socket).await?;
                    let status = admin.status(ftb_proto::v1::StatusRequest {}).await?.into_inner();
                    Ok(status.clients.iter().any(|c| !c.filters.is_empty()).then_some(()))
                });
                subscribed.await.unwrap();
            }
            ["ftb-launch", "run", ..] => {
                let output = reader.run(&line);
                assert!(output.status.success(), "{line}: {output:?}");
                said.insert("job".to_owned(), String::from_utf8(output.stdout).unwrap());
            }
            ["ftbctl", verb, ..] => {
                let doctor = format!("ftbctl doctor --config {etc}/agent.toml");
                let output = reader.run(&line.replace("ftbctl doctor", &doctor));
                assert!(output.status.success(), "{line}: {output:?}");
                said.insert((*verb).to_owned(), String::from_utf8(output.stdout).unwrap());
            }
            _ => panic!("what is to be done with {line:?}?"),
        }
    }
    assert!(agent.is_some());
    assert!(said["doctor"].starts_with("healthy: 1 agents reported"), "{said:?}");
    assert!(said["tree"].contains("root"), "{said:?}");
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let ranks = said["job"].lines().filter(|line| line.ends_with(host.trim()));
    assert_eq!(ranks.count(), 2, "{said:?}");
    let (_running, output) = tail.unwrap();
    let mut event = String::new();
    BufReader::new(output).read_line(&mut event).unwrap();
    assert!(event.contains("DISK_FULL") && event.contains("/scratch is full"), "{event}");
    assert!(said["publish"].trim().contains('.'), "{said:?}");
}
