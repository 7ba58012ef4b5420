//! What `make install` puts where, what `make uninstall` leaves, what the units make of it (`sandbox`), and how
//! the agent that is installed is compiled (`profiled`).
#![allow(clippy::unwrap_used)]

mod profiled;
mod sandbox;

use ftb_agent::config::Config;
use ftb_tests::cluster::{binary, outside_cargo};
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// A checkout that was built: the files of this one, and in the place of the products something of their
/// names.
fn built(tree: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for entry in ["Makefile", "deploy", "ftb-client", "README.md", "LICENSE", "CHANGELOG.md"] {
        symlink(root.join(entry), tree.join(entry)).unwrap();
    }
    let release = tree.join("target/release");
    fs::create_dir_all(release.join("examples")).unwrap();
    let program = |name: &str, text: &str| {
        let path = release.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    // Run by the installation: it writes its own completion.
    let ftbctl = binary("ftbctl", "ftbctl").unwrap();
    program("ftbctl", &format!("#!/bin/sh\nexec '{}' \"$@\"\n", ftbctl.display()));
    for name in ["ftb-agent", "ftb-ipmi", "ftb-ib", "ftb-launch", "ftb-nla", "ftb-demo"] {
        program(name, "#!/bin/sh\n");
    }
    for name in ["examples/poisson", "libftb.so", "libftb.a"] {
        program(name, "");
    }
}

/// Calls make, which must do it.
fn make(tree: &Path, target: &str, destination: &Path, prefix: &str) {
    let output = try_to_make(tree, target, destination, prefix);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "make {target}: {told}");
}

fn try_to_make(tree: &Path, target: &str, destination: &Path, prefix: &str) -> Output {
    let mut command = Command::new("make");
    command.current_dir(tree).arg(target).arg(format!("DESTDIR={}", destination.display()));
    command.arg(format!("PREFIX={prefix}")).env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    command.env("CARGO_TARGET_DIR", tree.join("target"));
    outside_cargo(&mut command).output().unwrap()
}

/// All files below a folder, with their paths in it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(within) = folders.pop() {
        for entry in fs::read_dir(&within).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => files.push(path.strip_prefix(folder).unwrap().to_owned()),
            }
        }
    }
    files.sort();
    files
}

#[test]
fn units_find_their_programs_and_samples_are_right_wherever_it_is_installed() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    built(&tree);
    for (prefix, config) in [("/usr", "/etc/ftb"), ("/opt/ftb", "/opt/ftb/etc/ftb")] {
        let destination = dir.path().join(prefix.replace('/', "-"));
        make(&tree, "install", &destination, prefix);
        let installed = |path: &str| destination.join(path.trim_start_matches('/'));
        let units = installed(&format!("{prefix}/lib/systemd/system"));
        for unit in ["ftb-agent.service", "ftb-ipmi.service", "ftb-ib.service"] {
            let text = fs::read_to_string(units.join(unit)).unwrap();
            assert!(!text.contains("@BIN") && !text.contains("@SYS"), "{unit}: {text}");
            let starts = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
            let mut words = starts.split_whitespace();
            assert!(installed(words.next().unwrap()).is_file(), "{unit}: {starts}");
            let file = words.skip_while(|word| *word != "--config").nth(1).unwrap();
            assert!(file.starts_with(config), "{unit}: {starts}");
            assert!(installed(&format!("{file}.sample")).is_file(), "{unit}: {starts}");
        }
        let sample = installed(&format!("{config}/agent.toml.sample"));
        Config::read(&sample).unwrap();
        let page = installed(&format!("{prefix}/share/man/man8/ftb-agent.8"));
        let completion = installed(&format!("{prefix}/share/bash-completion/completions/ftbctl"));
        assert!(page.is_file() && fs::read_to_string(completion).unwrap().contains("subscribe"));
        // What an administrator has made of it stays.
        fs::copy(&sample, installed(&format!("{config}/agent.toml"))).unwrap();
        make(&tree, "uninstall", &destination, prefix);
        let left = files(&destination);
        let config = Path::new(config.trim_start_matches('/'));
        assert!(left.contains(&config.join("agent.toml")), "{left:?}");
        assert!(left.iter().all(|path| path.starts_with(config)), "{left:?}");
        assert!(left.iter().all(|path| path.extension().is_some_and(|e| e == "toml")), "{left:?}");
    }
}

#[test]
fn the_agent_that_make_has_built_is_installed_unless_its_sources_are_newer() {
    let dir = tempfile::tempdir().unwrap();
    let (tree, destination) = (dir.path().join("tree"), dir.path().join("to"));
    fs::create_dir(&tree).unwrap();
    built(&tree);
    let installed = || fs::read_to_string(destination.join("usr/bin/ftb-agent")).unwrap();
    make(&tree, "install", &destination, "/usr");
    assert_eq!(installed(), "#!/bin/sh\n", "there is no other than cargo's");
    let profiled = tree.join("target/profiled");
    fs::create_dir_all(&profiled).unwrap();
    let agent = profiled.join("ftb-agent");
    fs::write(&agent, "#!/bin/sh\n# profiled\n").unwrap();
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    make(&tree, "install", &destination, "/usr");
    assert!(installed().contains("profiled"));
    let source = tree.join("ftb-core/src/node.rs");
    fs::create_dir_all(source.parent().unwrap()).unwrap();
    fs::write(&source, "").unwrap();
    let checked = File::create(profiled.join("checked")).unwrap();
    let later = checked.metadata().unwrap().modified().unwrap() + Duration::from_secs(1);
    File::options().write(true).open(&source).unwrap().set_modified(later).unwrap();
    let refused = try_to_make(&tree, "install", &destination, "/usr");
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && told.contains("node.rs: run make first"), "{told}");
    checked.set_modified(later).unwrap();
    make(&tree, "install", &destination, "/usr");
}
