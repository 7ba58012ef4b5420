//! The example programs as real processes, started as the launcher starts them: PMI over an
//! inherited descriptor, everything else in the environment.

use super::pmi_server::PmiServer;
use ftb_tests::cluster::outside_cargo;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock};

/// Between making a descriptor inheritable and closing it no other test may start a process, which
/// would keep it open.
static SPAWNING: Mutex<()> = Mutex::new(());

/// The path of an example, built now if it is not up to date, in the profile of the running test;
/// `FTB_BIN_DIR` names a folder with finished ones in `examples` instead.
pub fn example(name: &str) -> PathBuf {
    static EXAMPLES: OnceLock<PathBuf> = OnceLock::new();
    let examples = EXAMPLES.get_or_init(|| {
        if let Some(dir) = std::env::var_os("FTB_BIN_DIR") {
            return PathBuf::from(dir).join("examples");
        }
        // .../target/PROFILE/deps/TEST
        let test = std::env::current_exe().unwrap();
        let profile = test.ancestors().nth(2).unwrap().to_owned();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "ftb-job", "--examples"]);
        build.arg("--target-dir").arg(profile.parent().unwrap());
        if profile.ends_with("release") {
            build.arg("--release");
        }
        let built = outside_cargo(&mut build).current_dir(env!("CARGO_MANIFEST_DIR")).status();
        let built = built.unwrap();
        assert!(built.success(), "the examples do not build");
        profile.join("examples")
    });
    examples.join(name)
}

/// Starts an example with these options and variables.
pub fn start(name: &str, options: &[&str], variables: &[(&str, String)]) -> Child {
    Command::new(example(name))
        .args(options)
        .envs(variables.iter().map(|(key, value)| (key, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Starts an example as one rank of a job, with more variables.
pub fn start_rank(
    pmi: &Arc<PmiServer>,
    rank: u32,
    program: (&str, &[&str]),
    node: &str,
    more: &[(&str, String)],
) -> Child {
    let _alone = SPAWNING.lock().unwrap();
    let socket = pmi.connect(rank);
    fcntl(&socket, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
    let mut variables = vec![
        ("FTB_JOB_ID", "job-1".to_owned()),
        ("FTB_RANK", rank.to_string()),
        ("FTB_SIZE", pmi.size().to_string()),
        ("FTB_NODE", node.to_owned()),
        ("PMI_FD", socket.as_raw_fd().to_string()),
    ];
    variables.extend_from_slice(more);
    start(program.0, program.1, &variables)
}

/// Runs an example on all ranks to its end.
pub fn run_job(size: u32, node: impl Fn(u32) -> String, program: (&str, &[&str])) -> Vec<Output> {
    example(program.0);
    let pmi = PmiServer::new(size);
    let start = |rank| start_rank(&pmi, rank, program, &node(rank), &[]);
    let ranks: Vec<Child> = (0..size).map(start).collect();
    ranks.into_iter().map(|rank| rank.wait_with_output().unwrap()).collect()
}

/// The line that starts with `result:`; all ranks must have ended well.
pub fn result(outputs: &[Output]) -> String {
    for output in outputs {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{:?}: {stderr}", output.status);
    }
    let stdout = String::from_utf8_lossy(&outputs[0].stdout);
    stdout.lines().find(|line| line.starts_with("result:")).unwrap().to_owned()
}
