//! Daemons whose standard error is the systemd journal: the fields that journald gets, on a real
//! datagram socket in the place of journald's.
#![allow(clippy::unwrap_used)]

use ftb_log::{EVENT_ID, TRANSITION_ID};
use ftb_tests::bmc::{PASSWORD, SimulatedBmc, USER, write_private};
use ftb_tests::cluster::{Cluster, PATIENCE, Plan, binary, outside_cargo};
use ftb_tests::skip::skip;
use nix::unistd::Uid;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Puts the socket of the first argument in the place of journald's, in a mount namespace; standard
/// error is the journal if the second argument is `yes`. Then becomes the program.
const SCRIPT: &str = "
mount -t tmpfs none /run
mkdir -p /run/systemd/journal
touch /run/systemd/journal/socket
mount --bind \"$1\" /run/systemd/journal/socket
JOURNAL_STREAM=7:7
[ $2 = no ] || JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2)
export JOURNAL_STREAM
shift 2
exec \"$@\"";

/// Longest entry.
const ENTRY_BYTES_MAX: usize = 64 * 1024;

/// The receiver of what daemons log.
struct Journald {
    socket: UnixDatagram,
    path: PathBuf,
    dir: tempfile::TempDir,
}

impl Journald {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let socket = UnixDatagram::bind(&path).unwrap();
        Self { socket, path, dir }
    }

    /// The beginning of a command line: what follows logs into this journal.
    fn around(&self, is_journal: bool) -> Vec<String> {
        let is_journal = if is_journal { "yes" } else { "no" };
        let path = self.path.to_str().unwrap();
        ["unshare", "--mount", "sh", "-ec", SCRIPT, "sh", path, is_journal]
            .map(str::to_owned)
            .into()
    }

    /// The next entry that has all these values, by field. A field has more values than one where
    /// it stands in an entry more than once.
    fn wait(&self, wanted: &[(&str, &str)]) -> BTreeMap<String, Vec<String>> {
        let deadline = Instant::now() + PATIENCE;
        let mut others = Vec::new();
        let mut buffer = vec![0; ENTRY_BYTES_MAX];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no {wanted:?} among {others:#?}");
            self.socket.set_read_timeout(Some(left)).unwrap();
            let Ok(bytes) = self.socket.recv(&mut buffer) else { continue };
            let entry = fields(&buffer[..bytes]);
            let has = |(name, value): &(&str, &str)| {
                entry.get(*name).is_some_and(|values| values.iter().any(|known| known == value))
            };
            if wanted.iter().all(has) {
                return entry;
            }
            others.push(entry);
        }
    }
}

/// Reads an entry in journald's native protocol: `NAME=value`, or `NAME`, the length, the value.
fn fields(mut bytes: &[u8]) -> BTreeMap<String, Vec<String>> {
    let mut fields: BTreeMap<String, Vec<String>> = BTreeMap::new();
    while !bytes.is_empty() {
        let end = bytes.iter().position(|c| *c == b'\n').unwrap();
        let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
        let (name, value) = match line.iter().position(|c| *c == b'=') {
            Some(at) => {
                bytes = rest;
                (&line[..at], &line[at + 1..])
            }
            None => {
                let (length, rest) = rest.split_first_chunk::<8>().unwrap();
                let length = usize::try_from(u64::from_le_bytes(*length)).unwrap();
                assert_eq!(rest[length], b'\n');
                bytes = &rest[length + 1..];
                (line, &rest[..length])
            }
        };
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        fields.entry(text(name)).or_default().push(text(value));
    }
    fields
}

fn can_run() -> bool {
    let is_root = Uid::effective().is_root();
    if !is_root {
        skip("a mount namespace needs root");
    }
    is_root
}

/// One agent that logs this way.
async fn agent(journald: &Journald, is_journal: bool) -> Cluster {
    let mut cluster = Plan::new(1, 1).prepare().unwrap();
    cluster.through(0, &journald.around(is_journal));
    cluster.run(0).unwrap();
    cluster.wait_whole().await.unwrap();
    cluster
}

#[tokio::test]
async fn an_agent_logs_into_the_journal_with_fields() {
    if !can_run() {
        return;
    }
    let journald = Journald::new();
    let mut cluster = agent(&journald, true).await;
    let host = cluster.host(0).to_owned();
    let entry = journald.wait(&[("TARGET", "ftb::transition"), ("FTB_TO", "acting root")]);
    let is = |name: &str, value: &str| assert_eq!(entry[name], [value], "{name} of {entry:?}");
    is("FTB_NODE", &host);
    is("MESSAGE", "transition");
    is("MESSAGE_ID", TRANSITION_ID);
    is("PRIORITY", "6");
    is("SYSLOG_IDENTIFIER", "ftb-agent");
    assert!(entry.contains_key("CODE_FILE") && entry.contains_key("FTB_WHY"), "{entry:?}");
    cluster.stop(0).await.unwrap();
    assert_eq!(cluster.log(0), "", "nothing is logged twice");
}

#[tokio::test]
async fn an_agent_whose_standard_error_is_not_the_journal_logs_text() {
    if !can_run() {
        return;
    }
    let journald = Journald::new();
    let cluster = agent(&journald, false).await;
    assert!(cluster.log(0).contains("acting root"), "{}", cluster.log(0));
    journald.socket.set_nonblocking(true).unwrap();
    assert!(journald.socket.recv(&mut [0]).is_err(), "the journal got an entry");
}

/// Ends with the test.
struct Publisher(Child);

impl Drop for Publisher {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing to do then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn publisher(journald: &Journald, config: &Path) -> Publisher {
    let around = journald.around(true);
    let mut command = Command::new(&around[0]);
    command.args(&around[1..]).arg(binary("ftb-ipmi", "ftb-ipmi").unwrap());
    command.arg("--print").arg("--config").arg(config).stdout(Stdio::null());
    let log = File::create(journald.dir.path().join("stderr")).unwrap();
    Publisher(outside_cargo(&mut command).stderr(log).spawn().unwrap())
}

#[test]
fn a_fault_in_the_journal_names_event_condition_and_node() {
    if !can_run() {
        return;
    }
    let bmc = SimulatedBmc::start().unwrap();
    let journald = Journald::new();
    let config = journald.dir.path().join("ipmi.toml");
    let target = format!(
        "interval = '200ms'\n[[target]]\nbmc = '{}'\nnode = 'node001'\nuser = '{USER}'\n\
         password = '{PASSWORD}'\ncipher_suite = 3\n",
        bmc.address()
    );
    write_private(&config, &target).unwrap();
    let _publisher = publisher(&journald, &config);
    journald.wait(&[("FTB_EVENT", "FTB_IPMI_NORMAL")]);
    bmc.set("cpu1_fan", 528).unwrap();
    let entry = journald.wait(&[("FTB_EVENT", "FTB_IPMI_FANFAIL"), ("FTB_NODE", "node001")]);
    let is = |name: &str, value: &str| assert_eq!(entry[name], [value], "{name} of {entry:?}");
    is("FTB_CONDITION", "FANFAIL");
    is("FTB_SENSOR", "CPU 1 FAN");
    is("MESSAGE_ID", EVENT_ID);
    is("SYSLOG_IDENTIFIER", "ftb-ipmi");
    let host = nix::unistd::gethostname().unwrap().into_string().unwrap();
    assert!(entry["FTB_NODE"].contains(&host), "the node of the process: {entry:?}");
}
