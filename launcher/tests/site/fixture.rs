//! Programs that the backends can save, each with its backend; MPI programs and CRIU, where this
//! machine has them.

use super::{PAUSE_US, STEPS, Site, text};
use anyhow::{Result, ensure};
use ftb_tests::cluster::library;
use ftb_tests::skip::skip;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder of `ftb_job.h`.
const HEADERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/job/capi/include");
/// The folder of `libftb.h` and `ftbx.h`.
const FTB_HEADERS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ftb-client/capi/include");
/// The package `ftb` of Python.
const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ftb-client/python/python/ftb");

/// A backend with a program that it can save: ranks that print `result ...` lines, and stay in
/// their middle until the site's gate is there.
#[derive(Clone)]
pub struct Fixture {
    /// Name of the backend; also of the jobs.
    pub name: &'static str,
    /// The value of `--backend`.
    pub backend: String,
    pub program: Vec<String>,
    /// How many, on two nodes.
    pub ranks: u32,
    /// How the processes of the ranks are known: by this in their command lines.
    pub process: String,
}

impl Fixture {
    /// A program that links ftb-job.
    pub fn app(site: &Site) -> Self {
        let process = site.count.display().to_string();
        let gate = site.gate().display().to_string();
        let program = vec![process.clone(), STEPS.to_owned(), PAUSE_US.to_owned(), gate];
        Self { name: "app", backend: "app".to_owned(), program, ranks: 4, process }
    }

    /// A C program that calls `ftb_loop`.
    pub fn looping(site: &Site) -> Result<Option<Self>> {
        let source = include_str!("../looping.c");
        let Some(process) = with_libftbjob(site, "cc", "looping", source)? else {
            return Ok(None);
        };
        let gate = site.gate().display().to_string();
        let program = vec![process.clone(), "200".to_owned(), PAUSE_US.to_owned(), gate];
        Ok(Some(Self { name: "loop", backend: "loop".to_owned(), program, ranks: 4, process }))
    }

    /// An unmodified MPI program in pods, and CRIU. `None` (and a line) where one of them cannot be
    /// had.
    pub fn stencil(site: &Site) -> Result<Option<Self>> {
        let Some(program) = compiled(site, "stencil", include_str!("../stencil.c"))? else {
            return Ok(None);
        };
        let Some(backend) = criu_file(site, "")? else {
            return Ok(None);
        };
        let words = [program.clone(), "60".into(), "32".into(), "64".into()];
        let words = words.into_iter().chain([site.gate().display().to_string()]).collect();
        Ok(Some(Self { name: "criu", backend, program: words, ranks: 2, process: program }))
    }

    /// A launch of it.
    pub fn command(&self, site: &Site, arguments: &[&str]) -> Command {
        let ranks = self.ranks.to_string();
        let mut all = vec!["-n", &ranks, "--backend", &self.backend];
        all.extend(arguments);
        site.launch(&all, &self.words())
    }

    /// The program with its arguments.
    pub fn words(&self) -> Vec<&str> {
        self.program.iter().map(String::as_str).collect()
    }
}

/// A backend file for CRIU, with more lines; `None` (and a line) where there is no CRIU.
pub fn criu_file(site: &Site, more: &str) -> Result<Option<String>> {
    let Some(criu) = criu()? else {
        return Ok(None);
    };
    let file = site.cluster.dir().join("criu.toml");
    std::fs::write(&file, format!("[backend.criu]\nprogram = {criu:?}\n{more}"))?;
    Ok(Some(file.display().to_string()))
}

/// All lines with results, in the order of their text.
pub fn results(output: &Output) -> Result<Vec<String>> {
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    ensure!(output.status.success(), "{:?}\n{out}\n{err}", output.status);
    let mut lines: Vec<String> =
        out.lines().filter(|line| line.starts_with("result ")).map(str::to_owned).collect();
    lines.sort();
    ensure!(!lines.is_empty(), "no result\n{out}\n{err}");
    Ok(lines)
}

/// An MPI program of this folder, compiled; `None` (and a line) where there is no compiler for it.
pub fn compiled(site: &Site, name: &str, source: &str) -> Result<Option<String>> {
    compiled_with(site, "mpicc.mpich", name, source, &[])
}

/// A C program, compiled with these options.
pub fn compiled_with(
    site: &Site,
    compiler: &str,
    name: &str,
    source: &str,
    options: &[&str],
) -> Result<Option<String>> {
    if Command::new(compiler).arg("-v").output().is_err() {
        skip(&format!("{compiler} is not installed (apt-get install gcc libmpich-dev)"));
        return Ok(None);
    }
    let file = site.cluster.dir().join(format!("{name}.c"));
    let program = file.with_extension("");
    std::fs::write(&file, source)?;
    let mut command = Command::new(compiler);
    command.arg("-O2").arg(&file).arg("-o").arg(&program).args(options);
    let done = command.status()?;
    std::fs::remove_file(&file)?;
    ensure!(done.success(), "{compiler} failed");
    Ok(Some(program.display().to_string()))
}

/// The folder with `libftbjob.so.0`, as it is installed.
fn libraries(site: &Site) -> Result<PathBuf> {
    let (dir, built) = (site.cluster.dir().join("lib"), library("ftb-job-capi")?);
    if !dir.exists() {
        std::fs::create_dir(&dir)?;
        for name in ["libftbjob.so", "libftbjob.so.0"] {
            symlink(built.join("libftbjob.so"), dir.join(name))?;
        }
    }
    Ok(dir)
}

/// A C program of this folder with the `mpi.h` of libftbjob; `None` (and a line) without `cc`.
pub fn with_ftb_mpi(site: &Site, name: &str, source: &str) -> Result<Option<String>> {
    let libraries = libraries(site)?.display().to_string();
    let headers = format!("{HEADERS}/ftb");
    let options = ["-Wall", "-Wextra", "-Werror", "-I", &headers, "-L", &libraries, "-lftbjob"];
    let found = ["-lm", "-Wl,-rpath", &libraries];
    compiled_with(site, "cc", name, source, &[&options[..], &found].concat())
}

/// A C program of this folder with libftbjob; `None` (and a line) without that compiler.
pub fn with_libftbjob(
    site: &Site,
    compiler: &str,
    name: &str,
    source: &str,
) -> Result<Option<String>> {
    let libraries = libraries(site)?.display().to_string();
    let options = ["-Wall", "-Werror", "-I", HEADERS, "-L", &libraries, "-lftbjob", "-Wl,-rpath"];
    compiled_with(site, compiler, name, source, &[&options[..], &[&libraries]].concat())
}

/// A C program of this folder with libftb; `None` (and a line) without `cc`.
pub fn with_libftb(site: &Site, name: &str, source: &str) -> Result<Option<String>> {
    let (dir, built) = (site.cluster.dir().join("libftb"), library("ftb-capi")?);
    if !dir.exists() {
        std::fs::create_dir(&dir)?;
        // A copy, which other users may read.
        std::fs::copy(built.join("libftb.so"), dir.join("libftb.so.0"))?;
        symlink("libftb.so.0", dir.join("libftb.so"))?;
    }
    let libraries = dir.display().to_string();
    let options = ["-Wall", "-Werror", "-I", FTB_HEADERS, "-L", &libraries, "-lftb", "-pthread"];
    let found = ["-Wl,-rpath", &libraries];
    compiled_with(site, "cc", name, source, &[&options[..], &found].concat())
}

/// The folder for PYTHONPATH with the package `ftb`, as it is built.
pub fn python_package(site: &Site) -> Result<PathBuf> {
    let (dir, built) = (site.cluster.dir().join("python"), library("ftb-python")?);
    std::fs::create_dir_all(dir.join("ftb"))?;
    for file in std::fs::read_dir(PYTHON)?.filter_map(Result::ok) {
        if file.path().extension().is_some_and(|of| of == "py") {
            std::fs::copy(file.path(), dir.join("ftb").join(file.file_name()))?;
        }
    }
    symlink(built.join("lib_native.so"), dir.join("ftb/_native.abi3.so"))?;
    Ok(dir)
}

/// A CRIU that works on this kernel: as the user has named it, the system's, or one that the
/// project's script brings. `None` (and a line) where there is none.
pub fn criu() -> Result<Option<String>> {
    if let Ok(path) = std::env::var("FTB_CRIU") {
        return Ok(Some(path));
    }
    let check = Command::new("criu").arg("check").output();
    if check.is_ok_and(|output| output.status.success()) {
        return Ok(Some("criu".to_owned()));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let script = root.join("deploy/dev/install-criu.sh");
    let output = Command::new(script).arg(root.join(".cache/criu")).output()?;
    if output.status.code() == Some(77) {
        skip(text(&output.stderr).trim());
        return Ok(None);
    }
    ensure!(output.status.success(), "install-criu.sh: {}", text(&output.stderr));
    Ok(Some(text(&output.stdout).trim().to_owned()))
}
