//! Gives a target to libFuzzer, in a process of its own: libFuzzer ends its process.
//!
//! Found inputs go to `target/fuzz/found/NAME`, failing ones to `target/fuzz/failed`. With
//! `FTB_BLESS=1` the kept inputs are written again: those that reach different code.
#![allow(unsafe_code, reason = "libFuzzer is a C++ library")]

use crate::corpus::{self, KEPT_BYTES_MAX, KEPT_INPUT_BYTES_MAX};
use std::collections::BTreeSet;
use std::ffi::{CString, c_char, c_int};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Seconds for each target.
const SECONDS_ENV: &str = "FTB_FUZZ_SECONDS";
/// Set for the process of a target.
const CHILD_ENV: &str = "FTB_FUZZ_CHILD";
/// Longest time for one input, in seconds.
const INPUT_SECONDS_MAX: u32 = 10;
/// Most memory of a target, in MiB.
const MIB_MAX: u32 = 2_048;

type Check = Box<dyn Fn(&[u8]) + Send + Sync>;
static CHECK: OnceLock<Check> = OnceLock::new();

unsafe extern "C" {
    fn LLVMFuzzerRunDriver(
        argc: *mut c_int,
        argv: *mut *mut *mut c_char,
        callback: extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;
}

/// libfuzzer-sys refers to this function, which its macro would define.
#[unsafe(no_mangle)]
fn rust_fuzzer_test_input(input: &[u8]) -> i32 {
    CHECK.get().map_or(-1, |check| {
        check(input);
        0
    })
}

extern "C" fn test_one(data: *const u8, size: usize) -> c_int {
    // SAFETY: libFuzzer passes a buffer of `size` bytes, which lives until this returns.
    unsafe { libfuzzer_sys::test_input_wrap(data, size) }
}

/// Runs a target: here in its own process, else in a new one.
pub(crate) fn run(
    name: &'static str,
    inputs: Vec<Vec<u8>>,
    check: impl Fn(&[u8]) + Send + Sync + 'static,
) {
    if std::env::var(CHILD_ENV).is_ok_and(|target| target == name) {
        return drive(check);
    }
    let folders = Folders::new(name, &inputs);
    let seconds = std::env::var(SECONDS_ENV).unwrap_or_else(|_| "60".to_owned());
    libfuzzer(name, &folders, &seconds);
    if crate::kept::is_blessing() {
        keep(name, &folders.found);
    }
}

/// Where libFuzzer reads and writes.
struct Folders {
    found: PathBuf,
    kept: PathBuf,
    failed: PathBuf,
}

impl Folders {
    fn new(name: &str, inputs: &[Vec<u8>]) -> Self {
        let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/fuzz");
        let folder = |kind: &str, name: &str| {
            let folder = base.join(kind).join(name);
            std::fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}"));
            folder
        };
        let _ = std::fs::remove_dir_all(base.join("kept").join(name));
        let kept = folder("kept", name);
        for (number, input) in inputs.iter().enumerate() {
            let path = kept.join(number.to_string());
            std::fs::write(&path, input).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        }
        Self { found: folder("found", name), kept, failed: folder("failed", "") }
    }
}

/// Runs this test again, with libFuzzer.
fn libfuzzer(name: &str, folders: &Folders, seconds: &str) {
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main");
    let Some(test) = test else { panic!("not with --test-threads=1") };
    let Ok(program) = std::env::current_exe() else { panic!("no path of this program") };
    let words = [
        format!("-max_total_time={seconds}"),
        format!("-max_len={}", crate::INPUT_BYTES_MAX),
        format!("-timeout={INPUT_SECONDS_MAX}"),
        format!("-rss_limit_mb={MIB_MAX}"),
        format!("-artifact_prefix={}/{name}-", folders.failed.display()),
        "-print_final_stats=1".to_owned(),
        folders.found.display().to_string(),
        folders.kept.display().to_string(),
    ];
    let ended = Command::new(program)
        .args([test, "--exact", "--nocapture"])
        .env(CHILD_ENV, name)
        .env("FTB_FUZZ_WORDS", words.join("\n"))
        .status();
    match ended {
        Ok(status) if status.success() => {}
        ended => panic!("{name}: {ended:?}; its input is in {}", folders.failed.display()),
    }
}

/// Never returns: libFuzzer ends the process.
fn drive(check: impl Fn(&[u8]) + Send + Sync + 'static) {
    let _ = CHECK.set(Box::new(check));
    libfuzzer_sys::initialize(std::ptr::null(), std::ptr::null());
    let words = std::env::var("FTB_FUZZ_WORDS").unwrap_or_default();
    let program = std::env::args().next().unwrap_or_default();
    let words = std::iter::once(program.as_str()).chain(words.lines());
    let words: Vec<CString> = words.filter_map(|word| CString::new(word).ok()).collect();
    let mut pointers: Vec<*mut c_char> =
        words.iter().map(|word| word.as_ptr().cast_mut()).collect();
    let mut count = pointers.len() as c_int;
    pointers.push(std::ptr::null_mut());
    let mut first = pointers.as_mut_ptr();
    // SAFETY: the pointers are to texts that end with 0, and live until the process ends; libFuzzer
    // changes the array only.
    let code = unsafe { LLVMFuzzerRunDriver(&raw mut count, &raw mut first, test_one) };
    std::process::exit(code);
}

/// Writes the kept inputs again: comments and what follows them stay, then those that libFuzzer has
/// found, the shortest first, while they are few.
fn keep(name: &str, found: &Path) {
    let path = corpus::path(name);
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let mut lines: Vec<String> = Vec::new();
    let mut is_regression = false;
    for line in text.lines() {
        if line.starts_with('#') || is_regression {
            lines.push(line.to_owned());
        }
        is_regression = line.starts_with('#');
    }
    let entries = std::fs::read_dir(found).into_iter().flatten().flatten();
    let inputs: BTreeSet<Vec<u8>> =
        entries.filter_map(|entry| std::fs::read(entry.path()).ok()).collect();
    let mut inputs: Vec<Vec<u8>> = inputs.into_iter().collect();
    inputs.retain(|input| input.len() <= KEPT_INPUT_BYTES_MAX);
    inputs.sort_by_key(Vec::len);
    let mut bytes = 0;
    for input in inputs {
        bytes += input.len();
        let line = corpus::line(&input);
        if bytes <= KEPT_BYTES_MAX && !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.push(String::new());
    std::fs::write(&path, lines.join("\n")).unwrap_or_else(|error| panic!("{path:?}: {error}"));
}
