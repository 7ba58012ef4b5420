//! Checks which files `make install` installs, what `make uninstall` leaves, and that the daemons
//! run in the sandboxes of their units (`sandbox`).
#![allow(clippy::unwrap_used)]

mod sandbox;

use ftb_agent::config::Config;
use ftb_tests::cluster::outside_cargo;
use ftb_tests::pages::broken_links;
use ftb_tests::repository::{files, root};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

/// A checkout that was built: the files of this one, and in the place of the products something of
/// their names.
fn built(tree: &Path) {
    let root = root();
    let pages = ["README.md", "LICENSE", "NOTICE", "SECURITY.md", "CHANGELOG.md"];
    let pages = pages.into_iter().chain(["SPECIFICATION.md", "CONTRIBUTING.md"]);
    let folders = ["deploy", "docs", "launcher", "proto"];
    let crates = ["ftb-act", "ftb-agent", "ftb-bridge", "ftb-client", "ftb-slurm"];
    let folders = folders.into_iter().chain(crates);
    for entry in folders.chain(["Makefile", "Cargo.toml"]).chain(pages) {
        symlink(root.join(entry), tree.join(entry)).unwrap();
    }
    let release = tree.join("target/release");
    fs::create_dir_all(release.join("examples")).unwrap();
    let program = |name: &str, text: &str| {
        let path = release.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let daemons = ["ftb-act", "ftb-bridge", "ftb-ib", "ftb-ipmi", "ftb-slurm"];
    let tools = daemons.into_iter().chain(["ftbctl", "ftb-launch", "ftb-nla"]);
    for name in tools.chain(["ftb-demo", "examples/poisson"]) {
        program(name, "#!/bin/sh\n");
    }
    // Two with debug information, as Cargo builds them.
    let code = release.join("code.c");
    fs::write(&code, "int ftb_example(void) { return 0; }\nint main(void) { return 0; }\n")
        .unwrap();
    let path = |name: &str| release.join(name).to_str().unwrap().to_owned();
    run("cc", &["-g", &path("code.c"), "-o", &path("ftb-agent")]);
    run("cc", &["-g", "-shared", "-fPIC", &path("code.c"), "-o", &path("libftb.so")]);
    run("cc", &["-g", "-shared", "-fPIC", &path("code.c"), "-o", &path("libftbjob.so")]);
    run("cc", &["-g", "-c", &path("code.c"), "-o", &path("code.o")]);
    run("ar", &["rcs", &path("libftb.a"), &path("code.o")]);
}

/// Runs a program, which must succeed: what it prints.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn has_debug_information(file: &Path) -> bool {
    run("objdump", &["-h", file.to_str().unwrap()]).contains(".debug_info")
}

#[test]
fn debug_information_is_installed_in_files_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    built(&tree);
    let destination = dir.path().join("installed");
    make(&tree, "install", &destination, "/usr");
    let usr = destination.join("usr");
    for (file, debug) in [
        ("bin/ftb-agent", "lib/debug/usr/bin/ftb-agent.debug"),
        ("lib/libftb.so.0.5.0", "lib/debug/usr/lib/libftb.so.0.5.0.debug"),
        ("lib/libftbjob.so.0.1.0", "lib/debug/usr/lib/libftbjob.so.0.1.0.debug"),
    ] {
        let (file, debug) = (usr.join(file), usr.join(debug));
        assert!(!has_debug_information(&file), "{}", file.display());
        assert!(has_debug_information(&debug), "{}", debug.display());
        let sections = run("objdump", &["-h", file.to_str().unwrap()]);
        assert!(sections.contains(".gnu_debuglink"), "{sections}");
    }
    let archive = usr.join("lib/libftb.a");
    assert!(!has_debug_information(&archive));
    // A stripped library keeps what programs link to.
    for (option, file) in [("-T", usr.join("lib/libftb.so.0.5.0")), ("-t", archive)] {
        assert!(run("objdump", &[option, file.to_str().unwrap()]).contains("ftb_example"));
    }
}

/// Runs a target of make, which must succeed.
fn make(tree: &Path, target: &str, destination: &Path, prefix: &str) {
    let mut command = Command::new("make");
    command.current_dir(tree).arg(target).arg(format!("DESTDIR={}", destination.display()));
    command.arg(format!("PREFIX={prefix}")).env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    command.env("CARGO_TARGET_DIR", tree.join("target"));
    let output = outside_cargo(&mut command).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "make {target}: {errors}");
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
        for name in ["agent", "ipmi", "ib", "slurm", "act"] {
            let unit = &format!("ftb-{name}.service");
            let text = fs::read_to_string(units.join(unit)).unwrap();
            assert!(!text.contains("@BIN") && !text.contains("@SYS"), "{unit}: {text}");
            let starts = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
            let mut words = starts.split_whitespace();
            assert!(installed(words.next().unwrap()).is_file(), "{unit}: {starts}");
            let file = words.skip_while(|word| *word != "--config").nth(1).unwrap();
            assert!(file.starts_with(config), "{unit}: {starts}");
            assert!(installed(&format!("{file}.sample")).is_file(), "{unit}: {starts}");
        }
        let drill = fs::read_to_string(units.join("ftb-drill.service")).unwrap();
        assert!(drill.contains(&format!("ExecStart={prefix}/bin/ftbctl ")), "{drill}");
        assert!(units.join("ftb-drill.timer").is_file(), "it runs the drill");
        let sample = installed(&format!("{config}/agent.toml.sample"));
        Config::read(&sample).unwrap();
        for page in ["1/ftbctl.1", "5/ftb-agent.toml.5", "7/ftb.7", "8/ftb-agent.8"] {
            assert!(installed(&format!("{prefix}/share/man/man{page}")).is_file(), "{page}");
        }
        for header in ["ftb_job.h", "fmi.h", "ftb/mpi.h"] {
            assert!(installed(&format!("{prefix}/include/{header}")).is_file(), "{header}");
        }
        let share = format!("{prefix}/share");
        let monitoring = |name: &str| {
            let file = installed(&format!("{share}/ftb/monitoring/{name}"));
            fs::read_to_string(file).unwrap()
        };
        // Of the files that these name, each is where they say.
        for (text, mark) in [
            (monitoring("prometheus.yml"), "  - /"),
            (monitoring("alerts.yml"), "runbook_url: file:///"),
        ] {
            let named = text.lines().filter_map(|line| line.split_once(mark)).map(|(_, rest)| rest);
            let files: Vec<&str> = named.map(|rest| rest.split('#').next().unwrap()).collect();
            assert!(!files.is_empty(), "{text}");
            assert!(files.iter().all(|file| installed(file).is_file()), "{files:?}");
        }
        assert!(monitoring("node.yml").contains("remote_write"));
        assert!(monitoring("dashboard.json").starts_with('{'));
        let pages = installed(&format!("{share}/doc/ftb"));
        assert_eq!(broken_links(&pages).unwrap(), [""; 0]);
        for (file, word) in [
            ("bash-completion/completions/ftbctl", "subscribe"),
            ("zsh/vendor-completions/_ftb-launch", "checkpoint"),
            ("fish/vendor_completions.d/ftb-agent.fish", "check-config"),
        ] {
            let completion = installed(&format!("{prefix}/share/{file}"));
            assert!(fs::read_to_string(completion).unwrap().contains(word), "{file}");
        }
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
