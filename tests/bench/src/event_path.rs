//! Which functions of an agent an event that comes alone passes through, as a script for the linker.
//!
//! An agent is mostly at rest, and an event of a fault mostly comes alone: what handles it lies cold.
//! Where those functions lie side by side, far fewer pages of code have to be found again. Which
//! they are is what callgrind sees in an agent alone, and in a chain of them (root, standby and leaf), through
//! which events pass one by one. `ftb-agent/build.rs` gives the script to the linker.
//!
//! Responsible for: that script. Not responsible for: where events come in bulk, which is the same code
//! and always warm.

use crate::load::{Load, Mode};
use crate::process::{Ready, Server};
use crate::server::agents::{Configured, Layout, configure};
use crate::server::{AGENT, beside_this, installed};
use crate::wire::ftb::Ftb;
use crate::wire::{ANSWER_DEADLINE, Publish, Receive, System};
use anyhow::{Context as _, Result, ensure};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use tokio::runtime::Builder;

/// Events that pass before any is looked at: connections, credit and buffers are then what they stay.
const WARM_UP_EVENTS: usize = 20;
/// Events that are looked at.
const EVENTS: u64 = 100;
/// Bytes of one.
const EVENT_BYTES: usize = 200;
/// Fewest names that are believed to be the path of an event.
const NAMES_MIN: usize = 100;
/// Most names that are believed to be the path of an event.
const NAMES_MAX: usize = 2_000;
/// A library's function that is made for many types has one name for all of them but what the compiler
/// makes anew. Where they are more than so many...
const ALIKE_MAX: usize = 3;
/// ...and take more than so many bytes together, most of that is not the path.
const ALIKE_BYTES_MAX: u64 = 8 * 1024;

/// What the script says before its functions.
const HEAD: &str = "\
/* Functions that an event which comes alone passes through, most used first: they lie side by side in
   the agent, in few pages. Written by `make event-path`, given to the linker by build.rs. */
SECTIONS
{
  .text.event_path :
  {
";
/// What it says behind them.
const TAIL: &str = "  }\n}\nINSERT BEFORE .text;\n";

/// Runs agents under callgrind, and writes the script.
///
/// # Errors
/// Valgrind, `nm` or the agent is missing, the agents do not carry events, or the file cannot be written.
pub(crate) fn write(script: &Path) -> Result<()> {
    let agent = beside_this(AGENT)?;
    let sizes = sizes_of(&agent)?;
    let mut patterns = Vec::new();
    // What one agent alone does comes first: it is a part of what every other does.
    for layout in [Layout::ONE, Layout::chain(3).tls()] {
        println!("{EVENTS} events through {} under callgrind", layout.name().replace('*', ""));
        for pattern in patterns_of(&functions_in(layout, &agent)?, &sizes) {
            if !patterns.contains(&pattern) {
                patterns.push(pattern);
            }
        }
    }
    fs::write(script, script_of(&patterns)?)
        .with_context(|| format!("cannot write {}", script.display()))?;
    println!("{}: {} names of functions", script.display(), patterns.len());
    Ok(())
}

/// The functions of the agent that lone events pass through where agents stand so, with the instructions
/// that each took by itself.
fn functions_in(layout: Layout, agent: &Path) -> Result<BTreeMap<String, u64>> {
    let dir = tempfile::Builder::new().prefix("ftb-bench.").tempdir()?;
    let configured = configure(layout, &Load::new(Mode::PingPong, EVENT_BYTES), dir.path())?;
    let counts = |host: &str| dir.path().join(format!("{host}.counts"));
    let mut servers = Vec::new();
    for Configured { host, file, socket } in &configured {
        let mut command = Command::new(installed("valgrind")?);
        command.args(["--tool=callgrind", "--instr-atstart=no", "--demangle=no"]);
        command.arg(format!("--callgrind-out-file={}", counts(host).display()));
        command.arg(agent).arg("--config").arg(file);
        servers.push(Server::start(host, &command, dir.path(), &Ready::Socket(socket))?);
    }
    let of_all = |word| servers.iter().try_for_each(|server| control(server.pid(), word));
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let (publish_at, subscribe_at) = (layout.publish_at, layout.subscribe_at);
    runtime.block_on(pass(&configured[publish_at], &configured[subscribe_at], of_all))?;
    let mut functions = BTreeMap::new();
    for Configured { host, .. } in &configured {
        // Callgrind numbers what it writes on request.
        let file = counts(host).with_extension("counts.1");
        let text = fs::read_to_string(&file).context("callgrind has written nothing")?;
        for (name, instructions) in functions_of(&text, &agent.display().to_string()) {
            *functions.entry(name).or_insert(0) += instructions;
        }
    }
    Ok(functions)
}

/// Lets events pass one by one between two agents, in turn this way and that, first so many that nobody
/// looks at; `of_all` tells callgrind in all agents something.
async fn pass(
    one: &Configured,
    other: &Configured,
    of_all: impl Fn(&'static str) -> Result<()>,
) -> Result<()> {
    let way = |from: &Configured, to: &Configured| Ftb {
        publish: from.socket.clone(),
        subscribe: to.socket.clone(),
        receipts: false,
        typed: false,
        singly: true,
    };
    let (up, down) = (way(one, other), way(other, one));
    let mut publishers = [up.publisher(0).await?, down.publisher(1).await?];
    let mut subscribers = [up.subscriber(0).await?, down.subscriber(1).await?];
    let message = vec![b'.'; up.message_bytes(EVENT_BYTES)];
    for event in 0..WARM_UP_EVENTS + EVENTS as usize {
        if event == WARM_UP_EVENTS {
            of_all("--instr=on")?;
        }
        let publisher = &mut publishers[event % 2];
        publisher.put(&message).await?;
        publisher.flush().await?;
        for subscriber in &mut subscribers {
            let mut has_come = false;
            let seen = tokio::time::timeout(ANSWER_DEADLINE, async {
                while !has_come {
                    subscriber.receive(&mut |_| has_come = true).await?;
                }
                anyhow::Ok(())
            });
            seen.await.context("an event does not come")??;
        }
    }
    of_all("--dump")
}

/// Tells callgrind in a process something.
fn control(pid: u32, word: &str) -> Result<()> {
    let mut command = Command::new(installed("callgrind_control")?);
    let said = command.arg(word).arg(pid.to_string()).output()?;
    ensure!(said.status.success(), "callgrind_control: {}", String::from_utf8_lossy(&said.stderr));
    Ok(())
}

/// All functions that a pattern stands for.
#[derive(Clone, Copy, Debug, Default)]
struct Named {
    count: usize,
    bytes: u64,
}

/// The functions of a program, by the pattern that stands for their names.
fn sizes_of(program: &Path) -> Result<HashMap<String, Named>> {
    let mut command = Command::new(installed("nm")?);
    let said = command.args(["--defined-only", "--print-size"]).arg(program).output()?;
    ensure!(said.status.success(), "nm: {}", String::from_utf8_lossy(&said.stderr));
    let mut sizes: HashMap<String, Named> = HashMap::new();
    for line in String::from_utf8_lossy(&said.stdout).lines() {
        let parts: Vec<&str> = line.split(' ').collect();
        let [_, size, "t" | "T", name] = parts[..] else { continue };
        if let (Some(pattern), Ok(size)) = (pattern(name), u64::from_str_radix(size, 16)) {
            let named = sizes.entry(pattern).or_default();
            named.count += 1;
            named.bytes += size;
        }
    }
    Ok(sizes)
}

/// The functions of that program in what callgrind has written, with the instructions that each took
/// by itself.
fn functions_of(text: &str, program: &str) -> BTreeMap<String, u64> {
    let mut names: HashMap<(&str, &str), &str> = HashMap::new();
    // `fn=(12) name` the first time, `fn=(12)` from then on; calls name theirs with a `c` before.
    let mut named = |kind: &'static str, value| -> Option<String> {
        let (number, name) = match str::split_once(value, ") ") {
            Some((number, name)) => (number, Some(name)),
            None => (value.strip_suffix(')')?, None),
        };
        if let Some(name) = name {
            names.insert((kind, number), name);
        }
        names.get(&(kind, number)).map(|name| (*name).to_owned())
    };
    let mut functions = BTreeMap::new();
    let (mut ours, mut function, mut is_call) = (false, None, false);
    for line in text.lines() {
        match line.split_once('=') {
            Some(("ob", value)) => {
                ours = named("ob", value).is_some_and(|object| object == program)
            }
            Some(("cob", value)) => drop(named("ob", value)),
            Some(("fn", value)) => function = named("fn", value),
            Some(("cfn", value)) => drop(named("fn", value)),
            // The next line is what the called took, not this function.
            Some(("calls", _)) => is_call = true,
            _ if line
                .starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) =>
            {
                let own = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok());
                if let (true, false, Some(name), Some(own)) = (ours, is_call, &function, own) {
                    // Recursion is told apart by what stands behind a `'`.
                    let name = name.split('\'').next().unwrap_or(name);
                    *functions.entry(name.to_owned()).or_insert(0) += own;
                }
                is_call = false;
            }
            _ => {}
        }
    }
    functions
}

/// What stands for functions that take so many instructions, those that take most first; `sizes` says what
/// all functions take that a pattern stands for.
fn patterns_of(functions: &BTreeMap<String, u64>, sizes: &HashMap<String, Named>) -> Vec<String> {
    // What takes less than one instruction an event is what happens now and then.
    let used = functions.iter().filter(|(_, own)| **own >= EVENTS);
    let mut used: Vec<(&str, u64)> = used.map(|(name, own)| (name.as_str(), *own)).collect();
    used.sort_by_key(|(name, own)| (Reverse(*own), *name));
    let mut patterns: Vec<String> = Vec::new();
    for pattern in used.iter().filter_map(|(name, _)| pattern(name)) {
        let Named { count, bytes } = sizes.get(&pattern).copied().unwrap_or_default();
        let is_path = count <= ALIKE_MAX || bytes <= ALIKE_BYTES_MAX;
        if is_path && !patterns.contains(&pattern) {
            patterns.push(pattern);
        }
    }
    patterns
}

/// The script for these.
fn script_of(patterns: &[String]) -> Result<String> {
    ensure!(
        patterns.len() >= NAMES_MIN,
        "callgrind has seen {} functions of the agent: it must be built with FTB_EVENT_PATH=0, since valgrind \
         knows none by name that lie apart already",
        patterns.len()
    );
    ensure!(patterns.len() <= NAMES_MAX, "{} functions are no path", patterns.len());
    let mut text = HEAD.to_owned();
    for pattern in patterns {
        writeln!(text, "    *(.text.{pattern})")?;
    }
    Ok(text + TAIL)
}

/// The name of a function as the linker knows it, without what the compiler makes anew each time;
/// `None` of one that the linker could read as something else.
fn pattern(name: &str) -> Option<String> {
    if !name.starts_with("_ZN") && !name.starts_with("_R") {
        // Of another language: its name says all, or it lies in a section of many.
        return None;
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.$".contains(&byte)) {
        return None;
    }
    // `…17h0123456789abcdefE`, or `Cs0aB1_` before the name of each crate.
    if let Some((before, _)) = name.rsplit_once("17h") {
        return Some(format!("{before}17h*"));
    }
    let mut parts = name.split("Cs");
    let mut pattern = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let hashed = part
            .split_once('_')
            .filter(|(hash, _)| hash.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        match hashed {
            Some((_, rest)) => pattern.extend(["Cs*_", rest]),
            None => pattern.extend(["Cs", part]),
        }
    }
    Some(pattern)
}

/// Whether a line of the script names a function.
#[cfg(test)]
fn is_input(line: &str) -> bool {
    line.trim_start().starts_with("*(.text.")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const COUNTS: &str = "\
events: Ir

ob=(1) /agent
fl=(1) a.rs
fn=(1) _ZN3ftb3one17h0123456789abcdefE
10 700
cob=(2) /libc.so
cfn=(2) malloc
calls=1 0
11 9000
+1 100
fn=(3) _ZN3ftb3two17h0123456789abcdefE'2
* 50
ob=(2)
fn=(2)
1 9000
ob=(1)
fn=(1)
12 200
";

    #[test]
    fn functions_of_the_program_are_found_with_what_they_take_by_themselves() {
        let found = functions_of(COUNTS, "/agent");
        let found: Vec<_> = found.iter().map(|(name, own)| (name.as_str(), *own)).collect();
        let (one, two) = ("_ZN3ftb3one17h0123456789abcdefE", "_ZN3ftb3two17h0123456789abcdefE");
        assert_eq!(found, [(one, 1_000), (two, 50)]);
        assert!(functions_of(COUNTS, "/other").is_empty());
    }

    #[test]
    fn the_most_used_come_first_and_none_that_is_hardly_used_or_made_for_many_types() {
        let functions = [
            ("_ZN3ftb4some17h0123456789abcdefE", EVENTS),
            ("_ZN3ftb4most17h0123456789abcdefE", 5 * EVENTS),
            ("_ZN3ftb4rare17h0123456789abcdefE", EVENTS - 1),
            ("_ZN3std4many17h0123456789abcdefE", 9 * EVENTS),
            ("memcpy", 9 * EVENTS),
        ];
        let functions = functions.map(|(name, own)| (name.to_owned(), own)).into();
        let large = |count| Named { count, bytes: ALIKE_BYTES_MAX + 1 };
        let sizes = [("_ZN3std4many17h*", large(ALIKE_MAX + 1)), ("_ZN3ftb4some17h*", large(1))];
        let sizes = sizes.map(|(pattern, named)| (pattern.to_owned(), named)).into();
        let patterns = patterns_of(&functions, &sizes);
        assert_eq!(patterns, ["_ZN3ftb4most17h*", "_ZN3ftb4some17h*"]);
        assert!(script_of(&patterns).is_err(), "so few are no path");
        let many: Vec<String> = (0..NAMES_MIN).map(|name| format!("_ZN3ftb{name}17h*")).collect();
        let script = script_of(&many).unwrap();
        assert_eq!(script.lines().filter(|line| is_input(line)).count(), NAMES_MIN);
    }

    #[test]
    fn what_the_compiler_makes_anew_is_left_open() {
        let local = "_ZN3ftb4some17h0123456789abcdefE.llvm.123";
        assert_eq!(pattern(local).as_deref(), Some("_ZN3ftb4some17h*"));
        let v0 = "_RNvNtNtCsgEmfK2I1SDS_4core3str8converts9from_utf8";
        assert_eq!(pattern(v0).as_deref(), Some("_RNvNtNtCs*_4core3str8converts9from_utf8"));
        assert_eq!(pattern("_ZN3a b17h0E"), None);
        assert_eq!(pattern("malloc"), None);
    }

    #[test]
    fn the_script_of_the_agent_is_of_this_form() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ftb-agent/event-path.ld");
        let text = fs::read_to_string(file).unwrap();
        let inputs = text.strip_prefix(HEAD).unwrap().strip_suffix(TAIL).unwrap();
        assert!((NAMES_MIN..=NAMES_MAX).contains(&inputs.lines().count()));
        assert!(inputs.lines().all(is_input));
        // The agent's own, not only those of libraries.
        assert!(inputs.contains("9ftb_agent6driver6Driver"));
        assert!(inputs.contains("8ftb_core4node"));
    }
}
