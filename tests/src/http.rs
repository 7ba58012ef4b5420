//! HTTP/1.1 for tests: a request, and its answer up to the end of the connection.

use anyhow::{Context as _, Result, ensure};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// How long a read may take before a test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its header lines, names in lower case.
    pub headers: Vec<(String, String)>,
    /// What follows.
    pub body: String,
}

impl Answer {
    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..])
    }
}

/// Asks with GET and no further headers.
///
/// # Errors
/// As [`ask`].
pub fn get(address: &str, path: &str) -> Result<Answer> {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n"))
}

/// Sends a text, and reads the answer to its end.
///
/// # Errors
/// The connection fails, or what comes is no answer.
pub fn ask(address: &str, request: &str) -> Result<Answer> {
    let (status, headers, reader) = begin(address, request)?;
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut reader = match length {
        Some((_, length)) => reader.take(length.parse()?),
        None => reader.take(u64::MAX),
    };
    let mut body = Vec::new();
    // A server that rejects a request may close the connection before it was read.
    let read = reader.read_to_end(&mut body);
    ensure!(read.is_ok() || !body.is_empty(), "no body: {read:?}");
    Ok(Answer { status, headers, body: String::from_utf8_lossy(&body).into_owned() })
}

/// The lines of an answer that does not end.
pub struct Lines(BufReader<TcpStream>);

impl Lines {
    /// Asks for a resource; `headers` are further lines.
    ///
    /// # Errors
    /// As [`ask`]; or the status is not 200.
    pub fn open(address: &str, path: &str, headers: &str) -> Result<Self> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n");
        let (status, _, reader) = begin(address, &request)?;
        ensure!(status == 200, "status {status}");
        Ok(Self(reader))
    }

    /// The next line; those that only frame chunks are among them.
    ///
    /// # Errors
    /// The stream has ended, or nothing comes.
    pub fn next_line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.0.read_line(&mut line).context("no further line")? > 0, "the stream ended");
        Ok(line.trim_end().to_owned())
    }
}

type Begun = (u16, Vec<(String, String)>, BufReader<TcpStream>);

fn begin(address: &str, request: &str) -> Result<Begun> {
    let mut stream = TcpStream::connect(address).with_context(|| address.to_owned())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.split(' ').nth(1).with_context(|| format!("no answer: {line:?}"))?;
    let status = status.parse()?;
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) => {
                headers.push((name.to_lowercase(), value.trim_start().to_owned()));
            }
            None => return Ok((status, headers, reader)),
        }
    }
}
