//! The client's side of the PMI-1 wire protocol: lines of `cmd=name key=value ...`, answered in
//! order.
//!
//! Responsible for speaking it to the node launch agent (or any other PMI-1 server). Not
//! responsible for what keys mean.

use crate::error::{Error, Result};
use crate::limits;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;

/// Characters shown of a line that is too long.
const LINE_SHOWN_CHARS: usize = 64;

/// A connection to a PMI-1 server.
pub(crate) struct Pmi {
    stream: BufReader<UnixStream>,
    kvs_name: String,
}

impl Pmi {
    /// Introduces this process.
    pub(crate) fn init(stream: UnixStream) -> Result<Self> {
        let mut pmi = Self { stream: BufReader::new(stream), kvs_name: String::new() };
        let command = "init";
        pmi.ask(command, "pmi_version=1 pmi_subversion=1", "response_to_init")?.ok(command)?;
        let answer = pmi.ask("get_my_kvsname", "", "my_kvsname")?;
        pmi.kvs_name = answer.value("get_my_kvsname", "kvsname")?.to_owned();
        Ok(pmi)
    }

    /// Puts a value; visible to all ranks after the next barrier.
    pub(crate) fn put(&mut self, key: &str, value: &str) -> Result<()> {
        let fields = format!("kvsname={} key={key} value={value}", self.kvs_name);
        self.ask("put", &fields, "put_result")?.ok("put")
    }

    /// A value that a rank has put.
    pub(crate) fn get(&mut self, key: &str) -> Result<String> {
        let fields = format!("kvsname={} key={key}", self.kvs_name);
        let answer = self.ask("get", &fields, "get_result")?;
        answer.ok("get")?;
        Ok(answer.value("get", "value")?.to_owned())
    }

    /// The same; `None` if there is none.
    pub(crate) fn find(&mut self, key: &str) -> Result<Option<String>> {
        let fields = format!("kvsname={} key={key}", self.kvs_name);
        let answer = self.ask("get", &fields, "get_result")?;
        match answer.ok("get") {
            Ok(()) => Ok(Some(answer.value("get", "value")?.to_owned())),
            Err(_) => Ok(None),
        }
    }

    /// Waits until all ranks have arrived.
    pub(crate) fn barrier(&mut self) -> Result<()> {
        self.ask("barrier_in", "", "barrier_out")?.ok("barrier_in")
    }

    /// Announces that this process will end with success.
    pub(crate) fn finalize(&mut self) -> Result<()> {
        self.ask("finalize", "", "finalize_ack")?.ok("finalize")
    }

    /// Ends the whole job. There is no answer.
    pub(crate) fn abort(&mut self, exit_code: u8) -> Result<()> {
        self.tell("abort", &format!("exitcode={exit_code}"))
    }

    fn tell(&mut self, command: &'static str, fields: &str) -> Result<()> {
        let separator = if fields.is_empty() { "" } else { " " };
        let line = format!("cmd={command}{separator}{fields}\n");
        if line.len() > limits::PMI_LINE_BYTES_MAX {
            return Err(failed(command, "the line would be over its bound".to_owned()));
        }
        let sent = self.stream.get_mut().write_all(line.as_bytes());
        sent.map_err(|error| lost(command, format!("the agent does not listen: {error}")))
    }

    fn ask(&mut self, command: &'static str, fields: &str, answer: &str) -> Result<Answer> {
        self.tell(command, fields)?;
        let mut line = Vec::new();
        let mut bounded = self.stream.by_ref().take(limits::PMI_ANSWER_BYTES_MAX as u64);
        let read = bounded.read_until(b'\n', &mut line);
        read.map_err(|error| lost(command, format!("no answer: {error}")))?;
        // The last line of a broken connection may end within a character.
        let Some(line) = line.strip_suffix(b"\n") else {
            return Err(unended(command, &String::from_utf8_lossy(&line), line.len()));
        };
        let Ok(line) = str::from_utf8(line) else {
            return Err(failed(command, "the answer is no text".to_owned()));
        };
        let found = Answer(line.to_owned());
        if found.field("cmd") != Some(answer) {
            return Err(failed(command, format!("{line:?} is no {answer}")));
        }
        Ok(found)
    }
}

/// One line.
struct Answer(String);

impl Answer {
    fn field(&self, key: &str) -> Option<&str> {
        let fields = self.0.split_ascii_whitespace();
        let mut pairs = fields.filter_map(|field| field.split_once('='));
        Some(pairs.find(|(name, _)| *name == key)?.1)
    }

    fn value(&self, command: &'static str, key: &str) -> Result<&str> {
        let missing = || failed(command, format!("{:?} has no {key}", self.0));
        self.field(key).ok_or_else(missing)
    }

    /// An answer without `rc` is a success.
    fn ok(&self, command: &'static str) -> Result<()> {
        match self.field("rc") {
            None | Some("0") => Ok(()),
            Some(_) => Err(failed(command, format!("refused: {:?}", self.0))),
        }
    }
}

fn failed(command: &'static str, problem: String) -> Error {
    Error::Pmi { command, problem }
}

/// The answer has no end: it is too long, or the connection broke.
fn unended(command: &'static str, line: &str, len: usize) -> Error {
    let max = limits::PMI_ANSWER_BYTES_MAX;
    if len < max {
        return lost(command, format!("the agent has closed the connection after {line:?}"));
    }
    let begin: String = line.chars().take(LINE_SHOWN_CHARS).collect();
    failed(command, format!("the answer that begins with {begin:?} is longer than {max} bytes"))
}

fn lost(command: &'static str, problem: String) -> Error {
    Error::LaunchAgentLost { command, problem }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A server that answers everything with these lines.
    fn pmi_answered_by(lines: impl AsRef<[u8]>) -> (Result<Pmi>, UnixStream) {
        let (own, mut other) = UnixStream::pair().unwrap();
        other.write_all(lines.as_ref()).unwrap();
        other.shutdown(std::net::Shutdown::Write).unwrap();
        let pmi = Pmi::init(own);
        let mut asked = String::new();
        BufReader::new(&other).read_line(&mut asked).unwrap();
        assert_eq!(asked, "cmd=init pmi_version=1 pmi_subversion=1\n");
        (pmi, other)
    }

    const GREETING: &str = "cmd=response_to_init rc=0\ncmd=my_kvsname kvsname=k\n";

    #[test]
    fn values_may_contain_an_equals_sign() {
        let answers = format!("{GREETING}cmd=get_result rc=0 msg=success value=a=1;b=2\n");
        let (pmi, _server) = pmi_answered_by(&answers);
        let mut pmi = pmi.unwrap();
        assert_eq!(pmi.get("x").unwrap(), "a=1;b=2");
    }

    #[test]
    fn refusals_and_nonsense_are_errors_with_the_line() {
        for answer in [
            "cmd=get_result rc=-1 msg=key_not_found\n",
            "cmd=get_result rc=0\n",
            "cmd=put_result rc=0 value=1\n",
            "hello\n",
            "cmd=get_result rc=0 value=1",
            "",
        ] {
            let (pmi, _server) = pmi_answered_by(format!("{GREETING}{answer}"));
            let mut pmi = pmi.unwrap();
            let error = pmi.get("x").unwrap_err().to_string();
            assert!(error.contains(answer.trim_end()), "{error}");
        }
    }

    /// The agent is there but breaks the protocol; only this rank sees it.
    #[test]
    fn a_line_that_is_too_long_or_no_text_is_no_sign_of_a_lost_agent() {
        let max = limits::PMI_ANSWER_BYTES_MAX;
        for line in [b"x".repeat(3 * max), b"x".repeat(max), b"cmd=\xff\n".to_vec()] {
            let (pmi, _server) = pmi_answered_by(line);
            let Err(Error::Pmi { problem, .. }) = pmi else { panic!("{:?}", pmi.err()) };
            assert!(problem.len() < 200, "{problem}");
        }
    }

    #[test]
    fn a_line_that_breaks_off_within_its_bound_is_one() {
        let x = |count| b"x".repeat(count);
        let within_a_character = b"cmd=\xc3".to_vec();
        for line in [x(0), x(1), x(limits::PMI_ANSWER_BYTES_MAX - 1), within_a_character] {
            let (pmi, _server) = pmi_answered_by(line);
            assert!(matches!(pmi, Err(Error::LaunchAgentLost { .. })), "{:?}", pmi.err());
        }
    }

    /// The most words are pairs: one node of three is lost, and ranks were dealt out in turns.
    #[test]
    fn the_longest_list_of_ranks_that_are_left_fits_one_line() {
        let size = limits::RANKS_MAX;
        let ranks = |first: u32, count: u32| match count {
            1 => first.to_string(),
            _ => format!("{first}-{}", first + count - 1),
        };
        let lists = (1..8).map(|count| {
            let firsts = (0..=size - count).step_by(count as usize + 1);
            firsts.map(|first| ranks(first, count)).collect::<Vec<_>>().join(",")
        });
        let longest = lists.max_by_key(String::len).unwrap();
        assert!(longest.len() > limits::PMI_LINE_BYTES_MAX, "{}", longest.len());
        let answer = format!("cmd=get_result rc=0 msg=success value={longest}\n");
        let (pmi, _server) = pmi_answered_by(format!("{GREETING}{answer}"));
        let found = pmi.unwrap().find("ftb-members").unwrap();
        assert_eq!(found.as_ref(), Some(&longest));
    }
}
