//! The .deb and .rpm packages: complete, without a complaint of lintian, and well-behaved in a
//! booted Debian (`tests/packages/scenario.sh`).
//!
//! They have the programs of this build, unoptimised: only what is in them and what their scripts
//! do is tested here.
#![allow(clippy::unwrap_used)]

use anyhow::{Context as _, Result, ensure};
use ftb_tests::cluster::{Plan, outside_cargo, wait_for};
use ftb_tests::pages::{first_hour, shell_lines};
use ftb_tests::repository::root;
use ftb_tests::skip::skip;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Format of rpm for what is in a package: paths and modes.
const RPM_FILES: &str = "[%{FILENAMES}\t%{FILEMODES:perms}\n]";
/// Exit status of `boot.sh` where nothing can be booted; its line says why.
const SKIPPED: i32 = 77;
const PACKAGES: [&str; 10] = [
    "ftb-act",
    "ftb-agent",
    "ftb-bridge",
    "ftb-doc",
    "ftb-launcher",
    "ftb-publishers",
    "ftb-slurm",
    "libftb-dev",
    "libftb0",
    "python3-ftb",
];

/// Where what was built is; `None`, and a line, if something is missing.
fn built() -> Option<PathBuf> {
    let test = std::env::current_exe().unwrap();
    let profile = test.ancestors().nth(2).unwrap().to_owned();
    let folder = std::env::var_os("FTB_BIN_DIR").map_or(profile, PathBuf::from);
    let parts = [
        "ftb-agent",
        "ftb-slurm",
        "ftb-bridge",
        "ftb-demo",
        "examples/poisson",
        "libftb.a",
        "libftbjob.so",
        "lib_native.so",
    ];
    let missing = parts.iter().find(|part| !folder.join(part).exists());
    let tools = ["dpkg-shlibdeps", "rpmbuild"].into_iter().find(|tool| {
        !Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
    });
    match (missing, tools) {
        (Some(part), _) => {
            skip(&format!("{part} is not built (cargo build --workspace --lib --bins --examples)"));
        }
        (_, Some(tool)) => skip(&format!("{tool} is missing (apt-get install dpkg-dev rpm)")),
        (None, None) => return Some(folder),
    }
    None
}

/// Runs a command, which must succeed: what it prints.
fn run(command: &mut Command) -> Result<String> {
    let output = outside_cargo(command).output().with_context(|| format!("{command:?}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {text}{errors}");
    Ok(text)
}

/// A target of make for packages in a folder.
fn make(target: &str, from: &Path, folder: &Path) -> Command {
    let mut make = Command::new("make");
    make.current_dir(root()).arg(target).env("FAST", "1");
    make.arg(format!("BUILD_DIR={}", from.display()));
    make.arg(format!("PACKAGES={}", folder.display()));
    make.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
    make
}

/// The packages of one kind in a folder, by name.
fn packages(folder: &Path, kind: &str) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == kind) {
            let query = match kind {
                "deb" => run(Command::new("dpkg-deb").args(["-f"]).arg(&path).arg("Package"))?,
                _ => run(Command::new("rpm").args(["-qp", "--qf", "%{NAME}"]).arg(&path))?,
            };
            found.insert(query.trim().to_owned(), path);
        }
    }
    Ok(found)
}

/// The files of a package, at the places where the other kind of package has them. What only Debian
/// has is left out.
fn files(kind: &str, package: &str, path: &Path) -> Result<BTreeSet<String>> {
    let text = match kind {
        "deb" => {
            let command = "dpkg-deb --fsys-tarfile \"$0\" | tar -t | sed 's|^\\.||'";
            run(Command::new("sh").args(["-c", command]).arg(path))?
        }
        _ => run(Command::new("rpm").args(["-qp", "--qf", RPM_FILES]).arg(path))?,
    };
    let debian = [format!("/usr/share/doc/{package}/"), "/usr/share/lintian/".to_owned()];
    let files = text.lines().filter_map(|line| match kind {
        "deb" => (!line.ends_with('/')).then_some(line),
        _ => {
            let (path, mode) = line.split_once('\t')?;
            (!mode.starts_with('d')).then_some(path)
        }
    });
    let files = files.filter(|line| debian.iter().all(|folder| !line.starts_with(folder)));
    let places = |line: &str| {
        let line =
            line.replace("/usr/lib/x86_64-linux-gnu/", "LIB/").replace("/usr/lib64/", "LIB/");
        let line = line.replace("/usr/lib/python3/dist-packages/", "PYTHON/");
        line.replace("LIB/python3.9/site-packages/", "PYTHON/")
    };
    // Debian has it in a package of its own, for all.
    Ok(files.map(places).filter(|line| line != "/usr/share/doc/ftb/LICENSE").collect())
}

/// An RPM database of its own, in an empty root. No RPM distribution is at hand. Scriptlets and
/// dnf run in a booted system (`rpm.sh`).
fn check_rpms(folder: &Path, all: &BTreeMap<String, PathBuf>) -> Result<()> {
    for (name, path) in all {
        let requires = run(Command::new("rpm").args(["-qp", "--requires"]).arg(path))?;
        let is_program = ["ftb-agent", "libftb0"].contains(&name.as_str());
        ensure!(!is_program || requires.contains("libc.so.6"), "{name}: {requires}");
    }
    let root = folder.join("root");
    fs::create_dir(&root)?;
    let rpm = |arguments: &[&str]| {
        let mut command = Command::new("rpm");
        command.arg("--root").arg(&root).args(arguments);
        command
    };
    run(&mut rpm(&["--initdb"]))?;
    run(rpm(&["-i", "--nodeps", "--noscripts"]).args(all.values()))?;
    ensure!(root.join("usr/bin/ftb-agent").is_file());
    run(rpm(&["-V", "--nodeps", "--noscripts"]).args(all.keys()))?;
    run(rpm(&["-e", "--nodeps", "--noscripts"]).args(all.keys()))?;
    ensure!(!root.join("usr/bin/ftb-agent").exists() && !root.join("etc/ftb").exists());
    Ok(())
}

/// Lintian has no complaint about these packages.
fn check_with_lintian<'a>(debs: impl Iterator<Item = &'a PathBuf>) -> Result<()> {
    if Command::new("lintian").arg("--version").output().is_err() {
        skip("lintian is missing (apt-get install lintian)");
        return Ok(());
    }
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--no-cfg", "--fail-on", "error,warning"]);
    run(lintian.args(debs)).map(drop)
}

/// What dpkg-shlibdeps reads when it makes the dependencies of a program that is linked with them.
fn check_shared_libraries(libftb0: &Path) -> Result<()> {
    let command = "dpkg-deb --ctrl-tarfile \"$0\" | tar -xO ./shlibs";
    let said = run(Command::new("sh").args(["-c", command]).arg(libftb0))?;
    let version = run(Command::new("dpkg-deb").arg("-f").arg(libftb0).arg("Version"))?;
    let line = |library: &str| format!("{library} 0 libftb0 (>= {})\n", version.trim());
    assert_eq!(said, line("libftb") + &line("libftbjob"));
    Ok(())
}

#[test]
fn the_bill_of_materials_names_what_is_linked_and_no_crate_of_tests_alone() -> Result<()> {
    if Command::new("jq").arg("--version").output().is_err() {
        skip("jq is missing (apt-get install jq)");
        return Ok(());
    }
    let text = run(&mut Command::new(root().join("deploy/packages/sbom.sh")))?;
    let bill: serde_json::Value = serde_json::from_str(&text)?;
    let parts = bill["components"].as_array().context("components")?;
    let names: BTreeSet<&str> = parts.iter().filter_map(|part| part["name"].as_str()).collect();
    for name in ["ftb-agent", "ftb-act", "tokio", "rustls"] {
        assert!(names.contains(name), "{name} is missing");
    }
    for name in ["ftb-bench", "libfuzzer-sys", "divan"] {
        assert!(!names.contains(name), "{name} is in no package");
    }
    Ok(())
}

#[test]
fn both_kinds_have_the_same_files_and_lintian_and_rpm_are_content() -> Result<()> {
    let Some(from) = built() else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    run(&mut make("package-files", &from, folder.path()))?;
    let (debs, rpms) = (packages(folder.path(), "deb")?, packages(folder.path(), "rpm")?);
    assert_eq!(debs.keys().collect::<Vec<_>>(), PACKAGES);
    assert_eq!(rpms.keys().collect::<Vec<_>>(), PACKAGES);
    for name in PACKAGES {
        let (deb, rpm) = (files("deb", name, &debs[name])?, files("rpm", name, &rpms[name])?);
        assert_eq!(deb, rpm, "{name}");
        assert!(!deb.is_empty(), "{name} is empty");
    }
    check_shared_libraries(&debs["libftb0"])?;
    check_rpms(folder.path(), &rpms)?;
    check_with_lintian(debs.values())
}

/// Bytes of `libftb.a`, also in a development build.
const ARCHIVE_BYTES_MAX: u64 = 20_000_000;

/// A program that is linked with the archive as it is installed. That has a tenth of what Cargo
/// puts into it, and must lack nothing.
#[tokio::test]
async fn a_c_program_works_with_the_installed_archive() -> Result<()> {
    let Some(from) = built() else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let own = |name: &str| folder.path().join(name);
    let script = root().join("deploy/install-stripped.sh");
    let places = [from.join("libftb.a"), own("libftb.a"), own("debug")];
    run(Command::new(script).args(places))?;
    let bytes = fs::metadata(own("libftb.a"))?.len();
    ensure!(bytes < ARCHIVE_BYTES_MAX, "libftb.a has {bytes} bytes");
    let mut cc = Command::new("cc");
    cc.arg("-o").arg(own("program")).arg(root().join("tests/tests/upgrade/program.c"));
    cc.arg("-I").arg(root().join("ftb-client/capi/include")).arg(own("libftb.a"));
    run(cc.args(["-lpthread", "-lgcc_s", "-lutil", "-lrt", "-lm", "-ldl"]))?;
    let cluster = Plan::new(1, 1).start().await?;
    let mut program = Command::new(own("program"));
    program.arg(own("stop")).env("FTB_AGENT_SOCKET", cluster.socket(0)).stdout(Stdio::piped());
    let mut program = program.spawn()?;
    let mut said = BufReader::new(program.stdout.take().context("an output")?);
    let mut line = String::new();
    said.read_line(&mut line)?;
    let published = wait_for("some events", async || {
        Ok((cluster.status(0).await?.counters["delivered"] >= 100).then_some(()))
    });
    let published = published.await;
    fs::write(own("stop"), "")?;
    said.read_to_string(&mut line)?;
    ensure!(program.wait()?.success() && line.contains("doubled 0, lost 0"), "{line}");
    published
}

/// Where Debian's judges and systems are kept between runs.
fn cache() -> Result<PathBuf> {
    Ok(std::env::current_exe()?.ancestors().nth(3).context("a target folder")?.join("debian"))
}

/// Runs a script that may say that it cannot: whether it could. What it printed follows a failure.
fn run_if_it_can(script: &mut Command, more: impl FnOnce() -> String) -> Result<bool> {
    let output = outside_cargo(script).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    if output.status.code() == Some(SKIPPED) {
        skip(said.trim());
        return Ok(false);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}{said}{errors}\n{}", output.status, more());
    Ok(true)
}

#[test]
#[ignore = "minutes of dpkg: make test-long"]
fn piuparts_and_lintian_have_no_complaint_about_all_packages() -> Result<()> {
    let Some(from) = built() else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    run(&mut make("debs", &from, folder.path()))?;
    let debs = packages(folder.path(), "deb")?;
    check_with_lintian(debs.values())?;
    let mut piuparts = Command::new(root().join("tests/packages/piuparts.sh"));
    run_if_it_can(piuparts.arg(cache()?).args(debs.values()), String::new).map(drop)
}

#[test]
#[ignore = "downloads a Debian: make test-long"]
fn a_booted_debian_installs_upgrades_downgrades_and_keeps_nothing() -> Result<()> {
    let Some(from) = built() else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let share = folder.path().join("share");
    two_versions("deb", &from, &share)?;
    let guide = fs::read_to_string(root().join("deploy/book/upgrade.md"))?;
    for (heading, file) in
        [("One host after the other", "upgrade"), ("Downgrade of one host", "downgrade")]
    {
        let lines = shell_lines(&guide, heading);
        ensure!(!lines.is_empty(), "{heading}: no commands");
        fs::write(share.join(file), lines.join("\n") + "\n")?;
    }
    let scripts = root().join("tests/packages");
    for name in ["scenario.sh", "load.py"] {
        fs::copy(scripts.join(name), share.join(name))?;
    }
    boot(&share, None)
}

#[test]
#[ignore = "downloads a Debian: make test-long"]
fn rpm_installs_upgrades_downgrades_and_removes_under_a_booted_systemd() -> Result<()> {
    let Some(from) = built() else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let share = folder.path().join("share");
    two_versions("rpm", &from, &share)?;
    provide_the_rest(&share)?;
    fs::copy(root().join("tests/packages/rpm.sh"), share.join("scenario.sh"))?;
    boot(&share, Some("rpm,dnf"))
}

/// Makes a package that provides what those of `one` need of a distribution.
fn provide_the_rest(share: &Path) -> Result<()> {
    let all = packages(&share.join("one"), "rpm")?;
    let ask = |what: &str| run(Command::new("rpm").args(["-qp", what]).args(all.values()));
    let (needs, own) = (ask("--requires")?, all.keys().map(String::as_str));
    let own: BTreeSet<&str> = own.collect();
    let rest: BTreeSet<&str> = needs
        .lines()
        .map(|line| line.split(' ').next().unwrap_or_default())
        .filter(|need| !need.starts_with("rpmlib(") && !own.contains(need))
        .collect();
    let provides = rest.iter().map(|need| match need.contains('(') || need.contains('/') {
        true => format!("Provides: {need}\n"),
        false => format!("Provides: {need} = 999\n"),
    });
    let spec = format!(
        "Name: system\nVersion: 1\nRelease: 1\nSummary: What others need\nLicense: None\n\
         BuildArch: noarch\n{}%description\nNothing.\n%files\n",
        provides.collect::<String>()
    );
    let folder = share.join("system");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("system.spec"), spec)?;
    let mut build = Command::new("rpmbuild");
    build.args(["--quiet", "-bb", "--define"]).arg(format!("_topdir {}", folder.display()));
    build.arg("--define").arg(format!("_rpmdir {}", folder.display()));
    build.args(["--define", "_rpmfilename %%{NAME}.rpm"]).arg(folder.join("system.spec"));
    run(&mut build).map(drop)
}

/// Makes the packages of two versions, in the folders `one` and `two` of another one.
fn two_versions(kind: &str, from: &Path, share: &Path) -> Result<()> {
    let made = tempfile::tempdir()?;
    for (name, version) in [("one", "0.1.0"), ("two", "0.1.1")] {
        run(make(&format!("{kind}s"), from, made.path()).env("VERSION", version))?;
        fs::create_dir_all(share.join(name))?;
        for path in packages(made.path(), kind)?.into_values() {
            let file = path.file_name().context("a name")?;
            fs::copy(&path, share.join(name).join(file))?;
        }
        fs::write(share.join(name).join("version"), version)?;
    }
    Ok(())
}

/// What a newcomer needs: the packages, README, and at most ten minutes.
const NEWCOMER_S_MAX: f64 = 600.0;

#[test]
#[ignore = "downloads a Debian: make test-long"]
fn a_newcomer_in_a_bare_debian_reaches_a_job_with_the_readme_alone() -> Result<()> {
    let Some(from) = built() else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let (share, debs) = (folder.path().join("share"), folder.path().join("share/debs"));
    fs::create_dir_all(&debs)?;
    run(&mut make("debs", &from, &debs))?;
    let lines = first_hour(&fs::read_to_string(root().join("README.md"))?);
    ensure!(lines.len() >= 8, "README's first hour: {lines:?}");
    // The host of the container is in no list; README says how to leave it out.
    let alone = |line: String| match line.split_once("ftbctl init my-cluster ") {
        Some((sudo, _)) => format!("{sudo}ftbctl init my-cluster"),
        None => line,
    };
    let lines: Vec<String> = lines.into_iter().map(alone).collect();
    fs::write(share.join("first-hour"), lines.join("\n") + "\n")?;
    fs::copy(root().join("tests/packages/newcomer.sh"), share.join("scenario.sh"))?;
    boot(&share, None)?;
    if let Ok(seconds) = fs::read_to_string(share.join("seconds")) {
        ensure!(seconds.trim().parse::<f64>()? < NEWCOMER_S_MAX, "{seconds}");
    }
    Ok(())
}

/// Boots a Debian, with more of its packages, that runs `scenario.sh` of this folder, and
/// prints what that said.
fn boot(share: &Path, more: Option<&str>) -> Result<()> {
    let scripts = root().join("tests/packages");
    fs::copy(scripts.join("steps.sh"), share.join("steps.sh"))?;
    let mut boot = Command::new(scripts.join("boot.sh"));
    let log = || fs::read_to_string(share.join("scenario.log")).unwrap_or_default();
    if run_if_it_can(boot.arg(cache()?).arg(share).args(more), log)? {
        println!("{}", log());
    }
    Ok(())
}
