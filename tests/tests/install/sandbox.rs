//! The units: systemd reads them without a complaint, and the daemons work inside what they forbid.
//!
//! There need be no systemd running: a mount namespace of its own and a seccomp filter stand in for
//! it (`tests/src/sandbox`), made from the directives of the unit as it is installed. Taken from
//! the unit: the command lines, folders, system calls, address families. The same for all of them:
//! unprivileged users without capabilities, a system that cannot be written, no home, no devices,
//! no other user's processes, no memory that can be written and executed, no new namespaces. Not
//! imitated: paths that cannot be reached, limits of realtime, of set-user-id files and of the
//! kernel's tunables.

use crate::{built, make};
use ftb_agent::journal::record::decode_checkpoint;
use ftb_client::{Client, Delivery, Start};
use ftb_tests::bmc::{self, SimulatedBmc};
use ftb_tests::cluster::{PATIENCE, binary};
use ftb_tests::skip::skip;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where everything is installed in the sandbox.
const PREFIX: &str = "/opt/ftb";
/// User and group ids of the daemons in there, by their names in the units.
const USERS: [(&str, u32); 3] = [("ftb", 65_534), ("ftb-ipmi", 65_533), ("ftb-ib", 65_532)];
/// The worst that `systemd-analyze security` may say of a unit, in tenths: 0 is no exposure, 100
/// all of it.
const EXPOSURE_MAX: &str = "20";
/// The first systemd that can say that of a unit that is not loaded.
const OFFLINE_SINCE: u32 = 250;
const UNITS: [&str; 3] = ["ftb-agent.service", "ftb-ipmi.service", "ftb-ib.service"];
/// Units whose programs are not started here.
const OTHERS: [&str; 5] = [
    "ftb-act.service",
    "ftb-bridge.service",
    "ftb-drill.service",
    "ftb-drill.timer",
    "ftb-slurm.service",
];

/// The release of systemd whose tools are here; `None`, and a line, where there are none.
fn systemd() -> Option<u32> {
    let output = Command::new("systemd-analyze").arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let release = text.ok().and_then(|text| text.split_whitespace().nth(1)?.parse().ok());
    if release.is_none() {
        skip("systemd-analyze is not installed (apt-get install systemd)");
    }
    release
}

#[test]
fn systemd_reads_the_units_without_a_complaint() {
    let Some(release) = systemd() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (tree, prefix) = (dir.path().join("tree"), dir.path().join("prefix"));
    fs::create_dir(&tree).unwrap();
    built(&tree);
    make(&tree, "install", Path::new(""), prefix.to_str().unwrap());
    let all = UNITS.iter().chain(&OTHERS);
    let units: Vec<_> = all.map(|unit| prefix.join("lib/systemd/system").join(unit)).collect();
    let output =
        Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&units).output().unwrap();
    let reported = String::from_utf8_lossy(&output.stderr);
    let ours: Vec<&str> = reported.lines().filter(|line| line.contains("ftb-")).collect();
    assert!(output.status.success() && ours.is_empty(), "{reported}");
    if release < OFFLINE_SINCE {
        println!("exposure is not looked at: systemd {release} cannot rate a file");
        return;
    }
    for unit in units.into_iter().filter(|unit| unit.extension().is_some_and(|e| e == "service")) {
        let mut command = Command::new("systemd-analyze");
        command.args(["security", "--no-pager", "--offline=true", "--threshold", EXPOSURE_MAX]);
        let output = command.arg(&unit).output().unwrap();
        let reported = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}: {reported}", unit.display());
    }
}

#[test]
fn each_daemon_gets_a_user_of_its_own() {
    if systemd().is_none() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("etc")).unwrap();
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd");
    let users = ["ftb-agent.sysusers", "ftb-publishers.sysusers", "ftb-act.sysusers"]
        .map(|name| fs::canonicalize(units.join(name)).unwrap());
    let mut command = Command::new("systemd-sysusers");
    let output = command.arg("--root").arg(root.path()).args(users).output().unwrap();
    let reported = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !reported.contains("not a valid"), "{reported}");
    let made = fs::read_to_string(root.path().join("etc/passwd")).unwrap();
    for name in USERS.map(|(name, _)| name).into_iter().chain(["ftb-act"]) {
        assert!(made.lines().any(|line| line.starts_with(&format!("{name}:"))), "{made}");
    }
}

/// A unit as it is installed.
struct Unit(String);

impl Unit {
    fn lines<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.lines().filter_map(move |line| line.strip_prefix(key)?.strip_prefix('='))
    }

    fn words<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.lines(key).flat_map(str::split_whitespace)
    }

    /// The user that it starts its daemon as.
    fn user(&self) -> u32 {
        let name = self.words("User").next().unwrap();
        assert_eq!(self.words("Group").next(), Some(name));
        USERS.iter().find(|(known, _)| *known == name).unwrap().1
    }

    /// The system calls that `SystemCallFilter=` leaves, line by line as systemd reads it.
    fn system_calls(&self) -> BTreeSet<String> {
        // What every unit may: to start, to end, to sleep.
        let mut allowed = BTreeSet::from_iter(calls_of("@default"));
        for line in self.lines("SystemCallFilter") {
            let (denied, names) = match line.strip_prefix('~') {
                Some(names) => (true, names),
                None => (false, line),
            };
            for call in names.split_whitespace().flat_map(calls_of) {
                match denied {
                    true => allowed.remove(&call),
                    false => allowed.insert(call),
                };
            }
        }
        // RestrictNamespaces=yes.
        allowed.retain(|call| !["unshare", "setns"].contains(&call.as_str()));
        allowed
    }

    /// What the seccomp filter is compiled from.
    fn header(&self) -> String {
        let mut text = String::from("static const int families[] = {");
        self.words("RestrictAddressFamilies")
            .for_each(|family| write!(text, " {family},").unwrap());
        text.push_str(" };\nstatic const int allowed[] = {\n");
        for call in self.system_calls() {
            write!(text, "#ifdef __NR_{call}\n__NR_{call},\n#endif\n").unwrap();
        }
        text.push_str("};\n");
        text
    }
}

/// systemd gives up a service that was started five times in ten seconds, unless the unit says
/// otherwise.
#[test]
fn a_daemon_that_dies_again_and_again_is_always_started_again() {
    for unit in UNITS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd").join(unit);
        let text = fs::read_to_string(path).unwrap();
        let (general, service) = text.split_once("[Service]").unwrap();
        assert!(general.contains("\nStartLimitIntervalSec=0\n"), "{unit}");
        assert!(service.contains("\nRestart=on-failure\n"), "{unit}");
        let bounded = service.lines().any(|line| line.starts_with("MemoryMax="));
        assert_eq!(bounded, unit == "ftb-agent.service", "{unit}");
    }
}

/// A system call, or all of a group.
fn calls_of(name: &str) -> Vec<String> {
    if !name.starts_with('@') {
        return vec![name.to_owned()];
    }
    let output = Command::new("systemd-analyze").args(["syscall-filter", name]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let names: Vec<&str> =
        text.lines().skip(1).map(str::trim).filter(|name| !name.starts_with('#')).collect();
    assert!(!names.is_empty(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    names.into_iter().filter(|name| !name.is_empty()).flat_map(calls_of).collect()
}

/// A root directory with everything installed in it.
struct Sandbox {
    dir: tempfile::TempDir,
    notify: UnixDatagram,
}

impl Sandbox {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (tree, root) = (dir.path().join("tree"), dir.path().join("root"));
        fs::create_dir(&tree).unwrap();
        built(&tree);
        make(&tree, "install", &root, PREFIX);
        fs::create_dir_all(root.join("run")).unwrap();
        let account = |(name, uid): &(&str, u32)| format!("{name}:x:{uid}:{uid}::/:/bin/false\n");
        let passwd: String = USERS.iter().map(account).collect();
        fs::write(root.join("passwd"), format!("root:x:0:0::/root:/bin/sh\n{passwd}")).unwrap();
        let notify = UnixDatagram::bind(root.join("run/notify")).unwrap();
        fs::set_permissions(root.join("run/notify"), fs::Permissions::from_mode(0o777)).unwrap();
        Self { dir, notify }
    }

    /// What a path in the sandbox is outside.
    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join("root").join(path.trim_start_matches('/'))
    }

    fn unit(&self, name: &str) -> Unit {
        let path = format!("{PREFIX}/lib/systemd/system/{name}");
        Unit(fs::read_to_string(self.at(&path)).unwrap())
    }

    /// A command line as that unit would run it. `program`: what stands for the installed one,
    /// which is none.
    fn command(&self, unit: &Unit, program: &Path, line: &[&str]) -> Command {
        let confine = self.dir.path().join("confine");
        fs::write(confine.with_file_name("unit.h"), unit.header()).unwrap();
        fs::write(confine.with_extension("c"), include_str!("../../src/sandbox/confine.c"))
            .unwrap();
        let inside = format!("{PREFIX}/libexec/confine");
        let built = Command::new("cc")
            .args(["-Wall", "-Werror", "-o"])
            .args([self.at(&inside), confine.with_extension("c")])
            .status();
        assert!(built.expect("a C compiler, as for the build").success());
        let script = self.dir.path().join("root.sh");
        fs::write(&script, include_str!("../../src/sandbox/root.sh")).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh"]).arg(&script).arg(unit.user().to_string());
        command.args([&self.at("/"), program]).arg(line[0]);
        command.arg(inside).args(line).env_clear();
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("NOTIFY_SOCKET", "/run/notify");
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        for setting in unit.words("Environment") {
            let (variable, value) = setting.split_once('=').unwrap();
            command.env(variable, value.replace("%b", &boot.trim().replace('-', "")));
        }
        for (key, variable, parent) in [
            ("RuntimeDirectory", "RUNTIME_DIRECTORY", "/run"),
            ("StateDirectory", "STATE_DIRECTORY", "/var/lib"),
        ] {
            for name in unit.words(key) {
                let path = format!("{parent}/{name}");
                fs::create_dir_all(self.at(&path)).unwrap();
                chown(self.at(&path), Some(unit.user()), Some(unit.user())).unwrap();
                command.env(variable, path);
            }
        }
        command
    }

    /// Starts a daemon as its unit says, and returns when it has said that it is ready.
    fn start(&self, package: &str, name: &str, config: &str) -> Daemon {
        let unit = self.unit(name);
        let program = binary(package, package).unwrap();
        let path = self.at(&format!("{PREFIX}/etc/ftb/{}", config_of(&unit)));
        fs::write(&path, config).unwrap();
        // It may hold a password: only the user of the service reads it.
        chown(&path, Some(unit.user()), Some(unit.user())).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let line = |key| unit.words(key).collect::<Vec<_>>();
        let log = self.dir.path().join(package);
        let child = self
            .command(&unit, &program, &line("ExecStart"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut daemon = Daemon { child, log };
        let start = Instant::now();
        self.notify.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut said = [0; 512];
        loop {
            let length = self.notify.recv(&mut said).unwrap_or(0);
            if String::from_utf8_lossy(&said[..length]).contains("READY=1") {
                return daemon;
            }
            let ended = daemon.child.try_wait().unwrap();
            assert!(ended.is_none(), "{name}: {ended:?}: {}", daemon.log());
            assert!(start.elapsed() < PATIENCE, "{name} is not ready: {}", daemon.log());
        }
    }
}

/// The name of the file behind `--config`.
fn config_of(unit: &Unit) -> String {
    let file = unit.words("ExecStart").skip_while(|word| *word != "--config").nth(1).unwrap();
    Path::new(file).file_name().unwrap().to_str().unwrap().to_owned()
}

struct Daemon {
    child: Child,
    log: PathBuf,
}

impl Daemon {
    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends it as systemd would.
    fn stop(mut self) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.log());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing to do then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The sandbox forbids what it should: else nothing is shown by what runs in it.
fn assert_closed(sandbox: &Sandbox) {
    const PROBE: &str = "for path in /x /usr/x /etc/x /opt/ftb/x /var/x /run/x /sys/x; do \
        if touch $path; then echo $path can be written; fi; done; \
        [ $(id -u) = 65534 ] || echo a privileged user; \
        if [ -e /root ] || [ -e /home ]; then echo homes; fi; \
        if [ -e /proc/1 ] || [ -e /proc/sys ]; then echo other processes; fi; \
        if ip link; then echo AF_NETLINK; fi; \
        if unshare --user true; then echo namespaces; fi; \
        [ $(nice -n 1 nice) = $(nice) ] || echo priorities; \
        if mount -t tmpfs none /tmp; then echo mounts; fi; \
        touch /run/ftb/x /var/lib/ftb/x /tmp/x && echo done";
    let unit = sandbox.unit("ftb-agent.service");
    let shell = Path::new("/bin/sh");
    let program = format!("{PREFIX}/bin/ftb-agent");
    let output = sandbox.command(&unit, shell, &[&program, "-c", PROBE]).output().unwrap();
    let (said, reported) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(said, "done\n", "{reported}");
}

/// The key of the agent, as docs/agent.md installs it: its daemon reads it, the publishers do not.
fn assert_key_is_the_agents(sandbox: &Sandbox) {
    let key = format!("{PREFIX}/etc/ftb/tls/agent.key");
    fs::create_dir_all(sandbox.at(&key).parent().unwrap()).unwrap();
    fs::write(sandbox.at(&key), "secret").unwrap();
    let agent = sandbox.unit("ftb-agent.service").user();
    chown(sandbox.at(&key), Some(0), Some(agent)).unwrap();
    fs::set_permissions(sandbox.at(&key), fs::Permissions::from_mode(0o640)).unwrap();
    let mut users = BTreeSet::new();
    for name in UNITS {
        let unit = sandbox.unit(name);
        let program = unit.words("ExecStart").next().unwrap();
        let line = [program, "-c", &format!("cat {key} || test $? = 1")];
        let output = sandbox.command(&unit, Path::new("/bin/sh"), &line).output().unwrap();
        let is_agent = name == "ftb-agent.service";
        let expected = if is_agent { "secret" } else { "" };
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{name}: {output:?}");
        let closed = format!("-{PREFIX}/etc/ftb/tls");
        assert_eq!(unit.words("InaccessiblePaths").any(|path| path == closed), !is_agent, "{name}");
        assert!(users.insert(unit.user()), "{name}: its user is also another daemon's");
    }
}

/// Agent and publishers in their sandboxes on one node, and a subscriber outside, who hears both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_daemons_work_in_the_sandboxes_of_their_units() {
    if systemd().is_none() {
        return;
    }
    let namespace = Command::new("unshare").args(["--mount", "true"]).output();
    if !Uid::effective().is_root() || !namespace.is_ok_and(|output| output.status.success()) {
        skip("only root can make mount namespaces, which stand in for systemd");
        return;
    }
    let sandbox = Sandbox::new();
    assert_closed(&sandbox);
    assert_key_is_the_agents(&sandbox);
    let agent = "cluster = \"test\"\nmembers = \"node01\"\nhost = \"node01\"\ninsecure = true\n\
                 listen = \"127.0.0.1:0\"\n";
    let agent = sandbox.start("ftb-agent", "ftb-agent.service", agent);
    let client = Client::builder("test").agent(sandbox.at("/run/ftb/agent.sock")).build().unwrap();
    let subscribed =
        tokio::time::timeout(PATIENCE, client.subscribe("event_space=ftb.*", Start::Now));
    let mut subscription = subscribed.await.unwrap().unwrap();
    let bmc = SimulatedBmc::start().unwrap();
    let ipmi = format!(
        "state_dir = \"/var/lib/ftb-ipmi\"\n[[target]]\nbmc = \"{}\"\nnode = \"node01\"\n\
         user = \"{}\"\npassword = \"{}\"\ntimeout = \"5s\"\nretries = 20\n",
        bmc.address(),
        bmc::USER,
        bmc::PASSWORD
    );
    let ipmi = sandbox.start("ftb-ipmi", "ftb-ipmi.service", &ipmi);
    let ib = sandbox.start("ftb-ib", "ftb-ib.service", "");
    let mut missing = BTreeSet::from(["ftb.ipmi", "ftb.ib"]);
    while !missing.is_empty() {
        let next = tokio::time::timeout(PATIENCE, subscription.next()).await;
        let logs = || format!("{}{}{}", agent.log(), ipmi.log(), ib.log());
        let Ok(Some(Delivery::Event(received))) = next else {
            panic!("{next:?}, nothing from {missing:?}: {}", logs())
        };
        let space = received.event.space.as_str();
        if missing.remove(space) {
            // By the built-in access rules.
            let unit = sandbox.unit(&format!("{}.service", space.replace('.', "-")));
            assert_eq!(received.uid, unit.user(), "{received:?}");
        }
    }
    client.close(PATIENCE).await.unwrap();
    for daemon in [ib, ipmi, agent] {
        daemon.stop();
    }
    let mark = fs::read(sandbox.at("/var/lib/ftb/journal/acknowledged"));
    let mark =
        decode_checkpoint(mark.expect("the log of a root is kept where the unit says")).unwrap();
    assert!(mark.boot.is_some(), "it knows when the machine has ended: {mark:?}");
}
