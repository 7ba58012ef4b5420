//! The PMI server of one node: answers to lines of ranks, and whether all ranks have arrived at the
//! barrier. The first line of a rank selects PMI-1 or PMI-2. Pure: lines in, encoded answers out.
//! The JL joins the nodes.

mod two;
pub mod wire;

use super::limits::{KEY_BYTES_MAX, KVS_BYTES_MAX, VALUE_BYTES_MAX};
use crate::message::Protocol;
use std::collections::{BTreeMap, BTreeSet};

/// Most requests for node attributes that wait.
const WAITING_MAX: usize = 1024;

/// The effect of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PmiResult {
    Reply(String),
    /// The rank waits for an attribute of the node; see [`PmiServer::served`].
    Waits,
    /// The rank waits in the barrier. Its answer comes when the barrier completes.
    Entered,
    /// The job is to end with this code.
    Abort(i32),
    /// A protocol error; the connection is unusable.
    Nonsense(String),
}

/// The key-value space on one node, and its part of the open barrier.
#[derive(Clone, Debug, Default)]
pub struct PmiServer {
    name: String,
    size: u32,
    space: BTreeMap<String, String>,
    space_bytes: usize,
    pending: BTreeMap<String, String>,
    arrived: BTreeSet<u32>,
    /// Ranks that were released before the barrier completed.
    released_early: BTreeSet<u32>,
    /// Ranks that speak PMI-2, and the thread of each that waits in the barrier.
    two: BTreeMap<u32, Option<String>>,
    attributes: BTreeMap<String, String>,
    waiting: Vec<AttributeWait>,
    served: Vec<(u32, String)>,
}

/// A rank that waits for an attribute of its node.
#[derive(Clone, Debug)]
struct AttributeWait {
    rank: u32,
    key: String,
    thrid: Option<String>,
}

/// First word of exported puts that other nodes do not have yet. No key contains a space.
const PUT: &str = "put ";

/// The answer that releases a rank from the barrier.
const BARRIER_OUT: &str = "cmd=barrier_out rc=0";

impl PmiServer {
    /// An empty space for a job of `size` ranks; `mapping` becomes the key `PMI_process_mapping`.
    pub fn new(name: &str, size: u32, mapping: String) -> Self {
        let mut server = Self { name: name.to_owned(), size, ..Self::default() };
        server.keep("PMI_process_mapping".to_owned(), mapping);
        server
    }

    fn keep(&mut self, key: String, value: String) {
        let bytes = key.len() + value.len();
        let old = self.space.insert(key.clone(), value);
        let freed = old.map_or(0, |value| key.len() + value.len());
        self.space_bytes = self.space_bytes + bytes - freed;
    }

    /// Answers one line, or message, of `rank`.
    pub fn line(&mut self, rank: u32, line: &str) -> PmiResult {
        if self.two.contains_key(&rank) {
            return match two::answer(self, rank, line) {
                PmiResult::Reply(text) => PmiResult::Reply(wire::message(&text)),
                other => other,
            };
        }
        let asked = self.line_one(rank, line);
        if wire::speaks_two(line) {
            self.two.insert(rank, None);
        }
        match asked {
            PmiResult::Reply(text) => PmiResult::Reply(text + "\n"),
            other => other,
        }
    }

    fn line_one(&mut self, rank: u32, line: &str) -> PmiResult {
        let words = PmiWords::read(line);
        let reply = |text: &str| PmiResult::Reply(text.to_owned());
        match words.get("cmd") {
            Some("init") if wire::speaks_two(line) => {
                reply("cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0")
            }
            Some("init") => reply("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"),
            Some("get_maxes") => PmiResult::Reply(format!(
                "cmd=maxes kvsname_max=256 keylen_max={KEY_BYTES_MAX} vallen_max={VALUE_BYTES_MAX}"
            )),
            Some("get_appnum") => reply("cmd=appnum appnum=0"),
            Some("get_my_kvsname") => {
                PmiResult::Reply(format!("cmd=my_kvsname kvsname={}", self.name))
            }
            Some("get_universe_size") => {
                PmiResult::Reply(format!("cmd=universe_size size={}", self.size))
            }
            Some("put") => PmiResult::Reply(match self.put_words(&words) {
                Ok(()) => "cmd=put_result rc=0 msg=success".to_owned(),
                Err(why) => format!("cmd=put_result rc=-1 msg={why}"),
            }),
            Some("get") => {
                let value = words.get("key").and_then(|key| self.get(key));
                PmiResult::Reply(match value {
                    Some(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                    None => "cmd=get_result rc=-1 msg=key_not_found value=unknown".to_owned(),
                })
            }
            Some("barrier_in") if self.released_early.contains(&rank) => PmiResult::Nonsense(
                "it enters another barrier after the one that counted as its last".to_owned(),
            ),
            Some("barrier_in") => {
                self.enter(rank, None);
                PmiResult::Entered
            }
            Some("finalize") => reply("cmd=finalize_ack rc=0"),
            Some("abort") => {
                let code = words.get("exitcode").and_then(|code| code.parse().ok());
                PmiResult::Abort(code.unwrap_or(1))
            }
            Some(other) => PmiResult::Nonsense(format!("unknown PMI command {other:.32}")),
            None => PmiResult::Nonsense("a PMI line without cmd=".to_owned()),
        }
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.space.get(key).map(String::as_str)
    }

    fn put_words(&mut self, words: &PmiWords<'_>) -> Result<(), &'static str> {
        match (words.get("key"), words.get("value")) {
            (Some(key), Some(value)) => self.put(key, value),
            _ => Err("a_put_needs_key_and_value"),
        }
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), &'static str> {
        check_put(key, value)?;
        let pending: usize = self.pending.iter().map(|(k, v)| k.len() + v.len()).sum();
        if self.space_bytes + pending + key.len() + value.len() > KVS_BYTES_MAX {
            return Err("key_value_space_is_full");
        }
        self.pending.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    fn enter(&mut self, rank: u32, thrid: Option<String>) {
        self.arrived.insert(rank);
        if let Some(waits) = self.two.get_mut(&rank) {
            *waits = thrid;
        }
    }

    fn attribute(&self, key: &str) -> Option<&str> {
        self.attributes.get(key).map(String::as_str)
    }

    /// Stores an attribute of the node and answers the ranks that wait for it.
    fn put_attribute(&mut self, key: &str, value: &str) -> Result<(), &'static str> {
        check_put(key, value)?;
        let bytes: usize = self.attributes.iter().map(|(k, v)| k.len() + v.len()).sum();
        if bytes + key.len() + value.len() > KVS_BYTES_MAX {
            return Err("the_attributes_of_the_node_are_full");
        }
        self.attributes.insert(key.to_owned(), value.to_owned());
        let waiting = core::mem::take(&mut self.waiting);
        let (served, still): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|w| w.key == key);
        self.waiting = still;
        let answer = |w: AttributeWait| {
            (w.rank, wire::message(&two::attribute_put(w.thrid.as_deref(), value)))
        };
        self.served.extend(served.into_iter().map(answer));
        Ok(())
    }

    /// Queues a request for a node attribute; the oldest is dropped beyond [`WAITING_MAX`].
    fn wait_attribute(&mut self, rank: u32, key: &str, thrid: Option<&str>) {
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.remove(0);
        }
        let (key, thrid) = (key.to_owned(), thrid.map(ToOwned::to_owned));
        self.waiting.push(AttributeWait { rank, key, thrid });
    }

    /// Answers for waiting ranks since the last call.
    pub fn served(&mut self) -> Vec<(u32, String)> {
        core::mem::take(&mut self.served)
    }

    /// Ranks that wait in the barrier.
    pub fn arrived(&self) -> &BTreeSet<u32> {
        &self.arrived
    }

    /// Ranks in a barrier that may be their last: they speak PMI-1, no rank of the node has put
    /// anything since the barrier before, and the job had an earlier barrier with puts.
    pub fn at_the_end(&self) -> Vec<u32> {
        if !self.pending.is_empty() || self.space.len() <= 1 {
            return Vec::new();
        }
        let waits =
            |rank: &&u32| !self.released_early.contains(rank) && !self.two.contains_key(rank);
        self.arrived.iter().filter(waits).copied().collect()
    }

    /// Whether a rank was released early from the open barrier.
    pub fn some_released_early(&self) -> bool {
        !self.released_early.is_empty()
    }

    /// Releases the ranks of [`PmiServer::at_the_end`]; returns their answers.
    pub fn released_early(&mut self) -> Vec<(u32, String)> {
        let ranks = self.at_the_end();
        self.released_early.extend(&ranks);
        ranks.into_iter().map(|rank| (rank, format!("{BARRIER_OUT}\n"))).collect()
    }

    /// A rank has ended and waits no longer. It cannot be reached at the address that it has put.
    pub fn gone(&mut self, rank: u32) {
        self.pending.retain(|key, _| address_of(key) != Some(rank));
        self.arrived.remove(&rank);
        self.released_early.remove(&rank);
        self.two.remove(&rank);
        self.waiting.retain(|waiting| waiting.rank != rank);
    }

    /// The puts of this node since the last barrier, as `key=value` lines in parts of at most
    /// `bytes_max`; at least one part.
    pub fn parts(&self, bytes_max: usize) -> Vec<String> {
        split_lines(&self.pending, bytes_max)
    }

    /// The barrier completes with these lines of all nodes. Returns released ranks with their
    /// answers. Invalid lines are skipped.
    pub fn complete<'a>(&mut self, lines: impl Iterator<Item = &'a str>) -> Vec<(u32, String)> {
        for line in lines {
            let Some((key, value)) = line.split_once('=') else {
                continue;
            };
            if self.space_bytes + key.len() + value.len() <= KVS_BYTES_MAX {
                self.keep(key.to_owned(), value.to_owned());
            }
        }
        self.pending.clear();
        let out = |rank: u32| match self.two.get_mut(&rank) {
            Some(thrid) => (rank, wire::message(&two::barrier_out(thrid.take().as_deref()))),
            None => (rank, format!("{BARRIER_OUT}\n")),
        };
        let already = core::mem::take(&mut self.released_early);
        let arrived = core::mem::take(&mut self.arrived).into_iter();
        arrived.filter(|rank| !already.contains(rank)).map(out).collect()
    }

    /// The space as `key=value` lines, puts for the next barrier as `put key=value`, then the ranks
    /// that speak PMI-2.
    pub fn export(&self) -> String {
        let known = self.space.iter().map(|(key, value)| format!("{key}={value}\n"));
        let puts = self.pending.iter().map(|(key, value)| format!("{PUT}{key}={value}\n"));
        let two = self.two.keys().map(|rank| format!("two {rank}\n"));
        known.chain(puts).chain(two).collect()
    }

    /// Imports an exported space. Invalid lines are skipped.
    pub fn import(&mut self, lines: &str) {
        for line in lines.lines() {
            if let Some(rank) = line.strip_prefix("two ").and_then(|rank| rank.parse().ok()) {
                self.two.insert(rank, None);
                continue;
            }
            let (line, is_pending) = match line.strip_prefix(PUT) {
                Some(put) => (put, true),
                None => (line, false),
            };
            let Some((key, value)) = line.split_once('=') else { continue };
            if self.space_bytes + key.len() + value.len() > KVS_BYTES_MAX {
                continue;
            }
            if is_pending {
                self.pending.insert(key.to_owned(), value.to_owned());
            } else {
                self.keep(key.to_owned(), value.to_owned());
            }
        }
    }

    /// All ranks were killed: the open barrier is void. Results of earlier barriers stay.
    pub fn reset(&mut self) {
        self.pending.clear();
        self.arrived.clear();
        self.released_early.clear();
        self.attributes.clear();
        self.waiting.clear();
    }
}

/// The rank of ftb-job whose address has this key: `ftb-addr-RANK`. No MPI program has such a key.
pub fn address_of(key: &str) -> Option<u32> {
    key.strip_prefix("ftb-addr-")?.parse().ok()
}

/// The protocol of a rank that sends this line. A rank of ftb-job puts its address before its first
/// barrier; earlier libraries put it as `addr-EPISODE-RANK`.
pub fn protocol_of(rank: u32, line: &str) -> Protocol {
    let words = PmiWords::read(line);
    let is_older = |key: &str| {
        let number = key.strip_prefix("addr-").and_then(|rest| rest.split_once('-'));
        number.is_some_and(|(episode, of)| episode.parse::<u64>().is_ok() && of.parse() == Ok(rank))
    };
    let is_address = |key: &str| address_of(key) == Some(rank) || is_older(key);
    match words.get("cmd") {
        Some("put") if words.get("key").is_some_and(is_address) => Protocol::FtbJob,
        _ => Protocol::Pmi,
    }
}

/// Checks that a put fits a `key=value` line.
fn check_put(key: &str, value: &str) -> Result<(), &'static str> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err("key_too_long_or_empty");
    }
    if key.contains(['=', '\n', '\r']) || value.contains(['\n', '\r']) {
        return Err("a_key_has_no_=_and_nothing_has_a_line_end");
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err("value_too_long");
    }
    Ok(())
}

/// `key=value` lines of `puts`, cut into parts of at most `bytes_max` between lines.
pub fn split_lines(puts: &BTreeMap<String, String>, bytes_max: usize) -> Vec<String> {
    let mut parts = vec![String::new()];
    for (key, value) in puts {
        let line = format!("{key}={value}\n");
        let last = parts.last_mut().expect("there is always a part");
        if !last.is_empty() && last.len() + line.len() > bytes_max {
            parts.push(line);
        } else {
            last.push_str(&line);
        }
    }
    parts
}

/// The `key=value` words of a line. The value of `value=` extends to the end of the line.
struct PmiWords<'a>(Vec<(&'a str, &'a str)>);

impl<'a> PmiWords<'a> {
    fn read(line: &'a str) -> Self {
        let mut words = Vec::new();
        let mut rest = line.trim();
        while let Some((key, after)) = rest.split_once('=') {
            let key = key.trim_start();
            if key == "value" {
                words.push((key, after));
                break;
            }
            let (value, tail) = after.split_once(' ').unwrap_or((after, ""));
            words.push((key, value));
            rest = tail;
        }
        Self(words)
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        let found = self.0.iter().find(|(name, _)| *name == key);
        found.map(|(_, value)| *value)
    }
}

/// The mapping of ranks to nodes as MPICH wants it: `(vector,(node,nodes,ranks),...)`, one block
/// for each run of ranks on one node.
pub fn process_mapping(nodes_of_ranks: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for node in nodes_of_ranks {
        match runs.last_mut() {
            Some((last, count)) if last == node => *count += 1,
            _ => runs.push((*node, 1)),
        }
    }
    let blocks: Vec<String> =
        runs.iter().map(|(node, ranks)| format!("({node},1,{ranks})")).collect();
    let text = format!("(vector,{})", blocks.join(","));
    if text.len() > VALUE_BYTES_MAX {
        // MPICH then detects shared hosts itself; the start is slower.
        return String::new();
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn reply(asked: PmiResult) -> String {
        match asked {
            PmiResult::Reply(text) => text.trim_end().to_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_put_is_seen_after_the_barrier_and_not_before() {
        let mut server = PmiServer::new("kvs", 2, String::new());
        let put = server.line(0, "cmd=put kvsname=kvs key=addr value=a=b c");
        assert_eq!(reply(put), "cmd=put_result rc=0 msg=success");
        let get = "cmd=get kvsname=kvs key=addr";
        assert!(reply(server.line(0, get)).contains("rc=-1"));
        assert_eq!(server.line(0, "cmd=barrier_in"), PmiResult::Entered);
        let lines = server.parts(1000).concat() + "other=1\n";
        let released = server.complete(lines.lines());
        assert_eq!(released, [(0, "cmd=barrier_out rc=0\n".to_owned())]);
        assert!(reply(server.line(0, get)).ends_with("value=a=b c"));
        assert!(reply(server.line(1, "cmd=get key=other")).ends_with("value=1"));
    }

    /// An image may be written between a put and its barrier. Other nodes still get the put.
    #[test]
    fn a_put_before_an_image_reaches_other_nodes_with_the_next_barrier() {
        let mut before = PmiServer::new("kvs", 2, String::new());
        before.complete(["known=1"].into_iter());
        before.line(0, "cmd=put kvsname=kvs key=addr value=a=b c");
        let mut after = PmiServer::new("kvs", 2, String::new());
        after.import(&before.export());
        assert_eq!(after.parts(1000), ["addr=a=b c\n"]);
        assert!(reply(after.line(0, "cmd=get kvsname=kvs key=addr")).contains("rc=-1"));
        assert!(reply(after.line(0, "cmd=get kvsname=kvs key=known")).ends_with("value=1"));
    }

    #[test]
    fn a_rank_that_ends_before_the_barrier_leaves_no_address() {
        let mut server = PmiServer::new("kvs", 3, String::new());
        for put in ["ftb-addr-1 value=x", "ftb-addr-2 value=y", "k value=z"] {
            server.line(1, &format!("cmd=put kvsname=kvs key={put}"));
        }
        server.gone(1);
        assert_eq!(server.parts(1000), ["ftb-addr-2=y\nk=z\n"]);
    }

    #[test]
    fn a_rank_has_joined_ftb_job_when_it_puts_its_own_address() {
        for key in ["ftb-addr-3", "addr-12-3"] {
            let line = format!("cmd=put kvsname=j key={key} value=x");
            assert_eq!(protocol_of(3, &line), Protocol::FtbJob, "{line}");
        }
        for line in [
            "cmd=put kvsname=j key=ftb-addr-4 value=x",
            "cmd=get kvsname=j key=ftb-addr-3",
            "cmd=init pmi_version=1 pmi_subversion=1",
            "cmd=put kvsname=j key=addr-12-4 value=x",
            "cmd=put kvsname=j key=P3-businesscard value=key=addr-12-3",
            "cmd=get kvsname=j key=addr-12-3",
            "cmd=barrier_in",
            "cmd=kvs-put;key=addr;value=1;",
        ] {
            assert_eq!(protocol_of(3, line), Protocol::Pmi, "{line}");
        }
    }

    #[test]
    fn parts_are_cut_between_lines_and_lose_nothing() {
        let puts: BTreeMap<String, String> =
            (0..50).map(|n| (format!("k{n}"), "v".repeat(n))).collect();
        let parts = split_lines(&puts, 100);
        assert!(parts.len() > 5 && parts.iter().all(|part| part.len() <= 100));
        assert_eq!(parts.concat().lines().count(), 50);
    }

    #[test]
    fn the_space_is_bounded() {
        let mut server = PmiServer::new("kvs", 1, String::new());
        let value = "x".repeat(VALUE_BYTES_MAX);
        let mut refused = false;
        for n in 0..=KVS_BYTES_MAX / VALUE_BYTES_MAX {
            let line = format!("cmd=put key=k{n} value={value}");
            refused |= reply(server.line(0, &line)).contains("full");
            server.complete(
                server
                    .parts(usize::MAX)
                    .concat()
                    .lines()
                    .map(|l| l.to_owned())
                    .collect::<Vec<_>>()
                    .iter()
                    .map(String::as_str),
            );
        }
        assert!(refused);
    }

    #[test]
    fn the_mapping_names_runs_of_ranks() {
        assert_eq!(process_mapping(&[0, 0, 1, 1]), "(vector,(0,1,2),(1,1,2))");
        assert_eq!(process_mapping(&[0, 1, 0]), "(vector,(0,1,1),(1,1,1),(0,1,1))");
    }

    proptest! {
        #[test]
        fn no_line_panics(line in ".{0,200}") {
            let mut server = PmiServer::new("kvs", 2, String::new());
            server.line(0, &line);
            server.line(1, &format!("cmd={line}"));
        }
    }
}
