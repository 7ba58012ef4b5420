//! What a linker and a compiler see: layouts, symbols, names.

use crate::support::{Link, Workshop, assert_golden, here, run, run_loud};
use anyhow::{Result, ensure};
use ftb_tests::skip::skip;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Those of the original.
const FUNCTIONS: [&str; 9] = [
    "FTB_Compare_event_handles",
    "FTB_Connect",
    "FTB_Declare_publishable_events",
    "FTB_Disconnect",
    "FTB_Get_event_handle",
    "FTB_Poll_event",
    "FTB_Publish",
    "FTB_Subscribe",
    "FTB_Unsubscribe",
];

/// What the original does not have: `ftbx.h`.
const EXTENSIONS: [&str; 2] = ["FTBX_Poll_gap", "ftb_progress"];

fn output(program: &str, arguments: &[&str], file: &Path) -> Result<String> {
    let output = Command::new(program).args(arguments).arg(file).output()?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn constants_sizes_and_offsets_are_the_documented_ones() -> Result<()> {
    let workshop = Workshop::new()?;
    let program = workshop.compile("layout", Link::Shared)?;
    // The golden file was written from the documentation of the original, not from this library.
    assert_golden("layout", &run(&mut workshop.command(&program, Path::new("/nonexistent")))?);
    Ok(())
}

#[test]
fn only_the_nine_functions_and_the_extensions_are_exported() -> Result<()> {
    let workshop = Workshop::new()?;
    let symbols = output("nm", &["-D", "--defined-only"], &workshop.shared_library())?;
    let names: BTreeSet<&str> =
        symbols.lines().filter_map(|line| line.split_whitespace().nth(2)).collect();
    assert_eq!(names, FUNCTIONS.into_iter().chain(EXTENSIONS).collect());
    Ok(())
}

#[test]
fn the_soname_is_that_of_this_abi_and_the_library_stays_loaded() -> Result<()> {
    let workshop = Workshop::new()?;
    let dynamic = output("readelf", &["-dW"], &workshop.shared_library())?;
    ensure!(dynamic.contains("Library soname: [libftb.so.0]"), "{dynamic}");
    ensure!(dynamic.contains("NODELETE"), "{dynamic}");
    Ok(())
}

#[test]
fn the_headers_are_good_c_and_cpp_under_every_name() -> Result<()> {
    for header in [
        "libftb.h",
        "ftb.h",
        "ftb_def.h",
        "ftb_client_lib_defs.h",
        "ftb_manager_lib.h",
        "ftb_config.h",
        "ftbx.h",
    ] {
        let strict = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only"];
        for (language, standard) in [("c", "-std=c99"), ("c", "-std=c17"), ("c++", "-std=c++11")] {
            let mut command = Command::new("cc");
            command.args(strict).args(["-x", language, standard]);
            let compiled = command.arg(here().join("include").join(header)).output()?;
            let said = String::from_utf8_lossy(&compiled.stderr);
            ensure!(compiled.status.success(), "{header} as {language} {standard}: {said}");
        }
    }
    Ok(())
}

/// `ftb-launch` counts the steps of any program that calls it.
#[test]
fn a_step_is_counted_without_a_client_and_an_agent() -> Result<()> {
    let workshop = Workshop::new()?;
    let program = workshop.compile("progress", Link::Shared)?;
    let mut command = workshop.command(&program, Path::new("/nonexistent"));
    let found = run(command.env_remove("FTB_PROGRESS_FD"))?;
    assert_eq!(found, "without -1\nwith 0\nwith 0\nwith 0\nsteps 3\n");
    Ok(())
}

/// A program that was linked against the original asks for `libftb.so`, without a number: the
/// original had no SONAME.
#[test]
fn a_program_linked_against_the_original_finds_the_library() -> Result<()> {
    let workshop = Workshop::new()?;
    let original = workshop.dir().join("original");
    std::fs::create_dir(&original)?;
    let source = original.join("original.c");
    let functions: String =
        FUNCTIONS.iter().map(|name| format!("int {name}() {{ return 99; }}\n")).collect();
    std::fs::write(&source, functions)?;
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(original.join("libftb.so")).arg(&source);
    ensure!(cc.status()?.success(), "cannot make a library without SONAME");
    let program = workshop.dir().join("old");
    let mut cc = Command::new("cc");
    cc.arg("-I").arg(here().join("include")).arg(here().join("tests/c/old.c"));
    cc.arg("-L").arg(&original).args(["-lftb", "-lpthread", "-o"]).arg(&program);
    ensure!(cc.status()?.success(), "cannot link an old program");
    let needed = output("readelf", &["-dW"], &program)?;
    ensure!(needed.contains("Shared library: [libftb.so]"), "{needed}");
    let nowhere = Path::new("/nonexistent/agent.sock");
    let mut command = workshop.command_alone(&program, nowhere);
    let (said, _) = run_loud(command.env("LD_LIBRARY_PATH", workshop.dir()))?;
    assert_eq!(said, "style -3, space -2, connected 0, again -5, disconnected 0\n");
    Ok(())
}

/// `make install-capi`, and a program that is compiled with what `pkg-config` says of it.
#[test]
fn what_is_installed_is_found_by_pkg_config() -> Result<()> {
    if Command::new("pkg-config").arg("--version").output().is_err() {
        skip("pkg-config is not installed (make deps installs it)");
        return Ok(());
    }
    let workshop = Workshop::new()?;
    let prefix = workshop.dir().join("usr");
    let mut make = Command::new("make");
    make.arg("-C").arg(here().join("../..")).arg("install-capi");
    let libraries = prefix.join("lib64");
    make.arg(format!("PREFIX={}", prefix.display())).arg("DESTDIR=");
    make.arg(format!("LIBDIR={}", libraries.display()));
    make.arg(format!("CAPI_DIR={}", workshop.libraries().display()));
    let installed = make.env_remove("MAKEFLAGS").output()?;
    ensure!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    let mut ask = Command::new("pkg-config");
    ask.env("PKG_CONFIG_PATH", libraries.join("pkgconfig"));
    let flags = ask.args(["--cflags", "--libs", "libftb"]).output()?;
    let flags = String::from_utf8(flags.stdout)?;
    let program = workshop.dir().join("installed");
    let mut cc = Command::new("cc");
    cc.arg(here().join("tests/c/old.c")).args(flags.split_whitespace());
    ensure!(cc.arg("-o").arg(&program).status()?.success(), "cannot compile with {flags:?}");
    let needed = output("readelf", &["-dW"], &program)?;
    ensure!(needed.contains("Shared library: [libftb.so.0]"), "{needed}");
    let mut command = workshop.command_alone(&program, Path::new("/nonexistent/agent.sock"));
    let (said, _) = run_loud(command.env("LD_LIBRARY_PATH", &libraries))?;
    assert_eq!(said, "style -3, space -2, connected 0, again -5, disconnected 0\n");
    Ok(())
}
