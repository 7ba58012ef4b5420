//! The user namespace for the pods of an ordinary user's job. In it the user has all rights over
//! namespaces of its own, and no right outside. So pods, network and CRIU need no root, and an
//! image can do no more than its user could.
//!
//! A *holder* process keeps the namespace, with a network namespace for the job's bridge. It ends
//! when no process has its standard input open: the JL, and each launch agent ([`keep`]). Commands
//! enter it through [`enter`]. The user keeps its number in it; rights pass to commands as ambient
//! capabilities, and the supervisor of a pod gives them up ([`drop_rights`]).

use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    configure_capability_in_ambient_set, set_capabilities, set_no_new_privs,
};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};

/// The subcommand of the launch agent for [`hold`].
pub const HOLD: &str = "hold-user";
/// The subcommand of the launch agent for [`enter`].
pub const ENTER: &str = "enter-user";

/// A new holder. The namespaces end with it, unless a launch agent keeps them.
#[derive(Debug)]
pub struct Holder {
    process: Child,
    stdin: Option<ChildStdin>,
}

impl Holder {
    /// Starts a holder; `agent` is the launch agent's program on this host.
    ///
    /// # Errors
    /// One line: ordinary users may not make user namespaces here.
    pub fn start(agent: &std::path::Path) -> Result<Self, String> {
        let fail = |error: io::Error| format!("cannot make a user namespace for pods: {error}");
        let mut command = Command::new(agent);
        command.arg(HOLD).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut process = command.spawn().map_err(fail)?;
        let stdin = process.stdin.take();
        let mut ready = String::new();
        if let Some(mut stdout) = process.stdout.take() {
            stdout.read_to_string(&mut ready).map_err(fail)?;
        }
        let holder = Self { process, stdin };
        if ready != "ready\n" {
            return Err("ordinary users may not make user namespaces on this host \
                        (user.max_user_namespaces, or a security module): run as root"
                .to_owned());
        }
        Ok(holder)
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // It ends at once unless a launch agent lives; then the system collects it.
        let _ = self.process.try_wait();
    }
}

/// The holder process: makes the namespaces and waits for the end of its standard input.
///
/// # Errors
/// The system's.
pub fn hold() -> io::Result<()> {
    let (uid, gid) = (Uid::effective(), Gid::effective());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    let mut stdout = io::stdout();
    stdout.write_all(b"ready\n")?;
    stdout.flush()?;
    // The starter reads to the end, and others may read what it reports to its end.
    let null = File::options().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&null)?;
    io::copy(&mut io::stdin().lock(), &mut io::sink()).map(drop)
}

/// Keeps a holder until the file is dropped.
///
/// # Errors
/// The holder is gone.
pub fn keep(holder: u32) -> io::Result<File> {
    let file = File::options().write(true).open(format!("/proc/{holder}/fd/0"))?;
    if !file.metadata()?.file_type().is_fifo() {
        return Err(io::Error::other("the process is no holder of namespaces"));
    }
    Ok(file)
}

/// The words before a command of this program's that is to run for pods. Empty for root.
pub fn words(holder: Option<u32>) -> Vec<String> {
    let all = |holder: u32| ["/proc/self/exe", ENTER, &holder.to_string(), "--"].map(str::to_owned);
    holder.map_or_else(Vec::new, |holder| all(holder).into())
}

/// A command that runs for pods.
pub fn command(holder: Option<u32>, program: &str) -> Command {
    let mut words = words(holder);
    words.push(program.to_owned());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command
}

/// Enters the namespaces of a holder and becomes the command. Returns only after a failure.
pub fn enter(holder: u32, argv: &[String]) -> io::Error {
    let entered = || {
        let open = |kind| File::open(format!("/proc/{holder}/ns/{kind}"));
        let (user, net) = (open("user")?, open("net")?);
        setns(user, CloneFlags::CLONE_NEWUSER)?;
        setns(net, CloneFlags::CLONE_NEWNET)?;
        pass_rights_on()
    };
    match (entered(), argv.split_first()) {
        (Ok(()), Some((program, arguments))) => Command::new(program).args(arguments).exec(),
        (Err(error), _) => error,
        (Ok(()), None) => io::ErrorKind::InvalidInput.into(),
    }
}

/// Makes the rights in the namespace ambient, so that commands have them. Without the rights to
/// change users: only one user exists here, and CRIU would become user 0.
fn pass_rights_on() -> io::Result<()> {
    let last = fs::read_to_string("/proc/sys/kernel/cap_last_cap")?;
    let last: u32 = last.trim().parse().map_err(io::Error::other)?;
    let known = (0..=last.min(63)).map(|number| CapabilitySet::from_bits_retain(1 << number));
    let users = CapabilitySet::SETUID | CapabilitySet::SETGID;
    let rights: Vec<_> = known.filter(|right| !users.contains(*right)).collect();
    let all = rights.iter().fold(CapabilitySet::empty(), |all, right| all | *right);
    set_capabilities(None, CapabilitySets { effective: all, permitted: all, inheritable: all })?;
    for right in rights {
        configure_capability_in_ambient_set(right, true)?;
    }
    Ok(())
}

/// Gives up all rights for this process and its children; for a process that [`enter`] started.
///
/// # Errors
/// The system's.
pub fn drop_rights() -> io::Result<()> {
    let none = CapabilitySet::empty();
    clear_ambient_capability_set()?;
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(set_no_new_privs(true)?)
}
