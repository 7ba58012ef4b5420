//! NATS, client side, as much as the bench needs: its text protocol of core publishing and
//! subscribing, and JetStream's publishing with acknowledgements.
//! Source: the NATS client protocol, <https://docs.nats.io/reference/reference-protocols>.

use super::{ANSWER_DEADLINE, Line, Publish, Receive, System, answer};
use anyhow::{Context as _, Result, anyhow, bail};
use bytes::{Buf as _, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use std::io::Write as _;

/// What the load publishes to.
const SUBJECT: &str = "bench.load";
/// The stream that keeps it under JetStream.
const STREAM: &str = "BENCH";
/// Where acknowledgements come to, a subject for each publisher.
const INBOX: &str = "_INBOX.bench";

/// Where JetStream keeps what it acknowledges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Storage {
    /// In memory.
    Memory,
    /// In files; written before the acknowledgement, synced every two minutes (its default).
    File,
}

/// A server at a port.
#[derive(Debug)]
pub(crate) struct Nats {
    /// On loopback.
    pub(crate) port: u16,
    /// Publish into a stream and wait for acknowledgements.
    pub(crate) stream: Option<Storage>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct NatsLine {
    line: Line,
    /// What each message begins with: everything of a PUB line before the size.
    publish: Vec<u8>,
    acks: Acks,
}

/// How it is known that the server has a message.
#[derive(Debug)]
enum Acks {
    /// A PONG says that everything before the PING was read.
    Pongs,
    /// JetStream answers each message.
    Counted(u64),
}

/// One thing that a server says.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Message(Bytes),
    Ping,
    Pong,
    Other,
}

impl Nats {
    async fn connect(&self) -> Result<NatsLine> {
        let mut line = Line::connect(self.port).await?;
        let options = r#"{"verbose":false,"pedantic":false,"lang":"rust","version":"1"}"#;
        write!(line.output, "CONNECT {options}\r\n")?;
        let publish = format!("PUB {SUBJECT} ").into_bytes();
        let mut connected = NatsLine { line, publish, acks: Acks::Pongs };
        connected.round_trip().await?;
        Ok(connected)
    }

    /// Creates the stream; the same request again does nothing.
    async fn create_stream(&self, storage: Storage) -> Result<()> {
        let mut connected = self.connect().await?;
        let storage = match storage {
            Storage::Memory => "memory",
            Storage::File => "file",
        };
        let request = format!(
            r#"{{"name":"{STREAM}","subjects":["{SUBJECT}"],"storage":"{storage}","retention":"limits","num_replicas":1}}"#
        );
        let inbox = format!("{INBOX}.create");
        write!(
            connected.line.output,
            "SUB {inbox} 1\r\nPUB $JS.API.STREAM.CREATE.{STREAM} {inbox} {}\r\n{request}\r\n",
            request.len()
        )?;
        connected.line.write().await?;
        let reply = answer("STREAM.CREATE", connected.message()).await?;
        let reply: serde_json::Value = serde_json::from_slice(&reply)?;
        match reply.get("error") {
            Some(error) => Err(anyhow!("JetStream refused the stream: {error}")),
            None => Ok(()),
        }
    }
}

impl System for Nats {
    type Publisher = NatsLine;
    type Subscriber = NatsLine;
    type Bystander = NatsLine;

    async fn publisher(&self, number: usize) -> Result<NatsLine> {
        let mut connected = self.connect().await?;
        if let Some(storage) = self.stream {
            self.create_stream(storage).await?;
            let inbox = format!("{INBOX}.{number}");
            write!(connected.line.output, "SUB {inbox} 1\r\n")?;
            connected.publish = format!("PUB {SUBJECT} {inbox} ").into_bytes();
            connected.acks = Acks::Counted(0);
            connected.line.write().await?;
        }
        Ok(connected)
    }

    async fn subscriber(&self, _number: usize) -> Result<NatsLine> {
        let mut connected = self.connect().await?;
        write!(connected.line.output, "SUB {SUBJECT} 1\r\n")?;
        connected.round_trip().await?;
        Ok(connected)
    }

    async fn bystander(&self, number: usize, count: usize) -> Result<NatsLine> {
        let mut connected = self.connect().await?;
        for subscription in 0..count {
            write!(connected.line.output, "SUB other.c{number}s{subscription} {subscription}\r\n")?;
        }
        connected.round_trip().await?;
        Ok(connected)
    }

    async fn resubscribe(&self, bystander: &mut NatsLine, change: u64) -> Result<()> {
        let number = format!("x{change}");
        write!(bystander.line.output, "SUB other.{number} {number}\r\n")?;
        bystander.round_trip().await?;
        write!(bystander.line.output, "UNSUB {number}\r\n")?;
        Ok(())
    }
}

impl NatsLine {
    /// Writes everything and waits until the server has read it.
    async fn round_trip(&mut self) -> Result<()> {
        self.line.output.extend_from_slice(b"PING\r\n");
        self.line.write().await?;
        answer("PING", async {
            while self.said().await? != Said::Pong {}
            Ok(())
        })
        .await
    }

    /// The next message, without anything else.
    async fn message(&mut self) -> Result<Bytes> {
        loop {
            if let Said::Message(message) = self.said().await? {
                return Ok(message);
            }
        }
    }

    async fn said(&mut self) -> Result<Said> {
        loop {
            if let Some(said) = parse(&mut self.line.input)? {
                if said == Said::Ping {
                    self.line.output.extend_from_slice(b"PONG\r\n");
                    self.line.write().await?;
                }
                return Ok(said);
            }
            self.line.read().await?;
        }
    }

    /// Takes note of what the server has said without waiting for more.
    async fn listen(&mut self) -> Result<()> {
        while self.line.read_waiting()? {}
        while let Some(said) = parse(&mut self.line.input)? {
            match said {
                Said::Ping => self.line.output.extend_from_slice(b"PONG\r\n"),
                Said::Message(ack) => self.count_ack(&ack)?,
                Said::Pong | Said::Other => {}
            }
        }
        self.line.write().await
    }

    /// An acknowledgement names the place of the message in the stream.
    fn count_ack(&mut self, ack: &[u8]) -> Result<()> {
        let Acks::Counted(count) = &mut self.acks else { return Ok(()) };
        if !ack.windows(6).any(|word| word == b"\"seq\":") {
            bail!("JetStream refused a message: {}", String::from_utf8_lossy(ack));
        }
        *count += 1;
        Ok(())
    }
}

impl Publish for NatsLine {
    async fn put(&mut self, message: &[u8]) -> Result<()> {
        self.line.output.extend_from_slice(&self.publish);
        write!(self.line.output, "{}\r\n", message.len())?;
        self.line.output.extend_from_slice(message);
        self.line.output.extend_from_slice(b"\r\n");
        self.line.write_if_full().await
    }

    async fn flush(&mut self) -> Result<()> {
        self.line.write().await?;
        self.listen().await
    }

    async fn acknowledged(&mut self, wanted: u64) -> Result<u64> {
        self.flush().await?;
        loop {
            match self.acks {
                Acks::Pongs => {
                    self.round_trip().await?;
                    return Ok(wanted);
                }
                Acks::Counted(count) if count >= wanted => return Ok(count),
                Acks::Counted(_) => {}
            }
            tokio::time::timeout(ANSWER_DEADLINE, self.line.read())
                .await
                .context("JetStream stopped acknowledging")??;
            self.listen().await?;
        }
    }
}

impl Receive for NatsLine {
    async fn receive(&mut self, see: &mut (impl FnMut(&[u8]) + Send)) -> Result<()> {
        self.line.read().await?;
        while let Some(said) = parse(&mut self.line.input)? {
            match said {
                Said::Message(message) => see(&message),
                Said::Ping => {
                    self.line.output.extend_from_slice(b"PONG\r\n");
                    self.line.write().await?;
                }
                Said::Pong | Said::Other => {}
            }
        }
        Ok(())
    }
}

/// Takes the next thing that was said out of the input; `None` when it is not complete.
fn parse(input: &mut BytesMut) -> Result<Option<Said>> {
    let Some(end) = input.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
    let line = &input[..end];
    let said = match line {
        b"PING" => Said::Ping,
        b"PONG" => Said::Pong,
        _ if line.starts_with(b"MSG ") => {
            let size = line.rsplit(|byte| *byte == b' ').next().unwrap_or_default();
            let size: usize = std::str::from_utf8(size)?.parse().context("no size in a MSG")?;
            let start = end + 2;
            if input.len() < start + size + 2 {
                return Ok(None);
            }
            input.advance(start);
            let message = input.split_to(size).freeze();
            input.advance(2);
            return Ok(Some(Said::Message(message)));
        }
        _ if line.starts_with(b"-ERR") => bail!("NATS: {}", String::from_utf8_lossy(line)),
        _ => Said::Other,
    };
    input.advance(end + 2);
    Ok(Some(said))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_message_is_taken_only_whole() {
        let text: &[u8] = b"MSG bench.load 1 4\r\na\r\nb\r\nPING\r\n+OK\r\nPON";
        let mut input = BytesMut::new();
        let mut said = Vec::new();
        for byte in text {
            input.extend_from_slice(&[*byte]);
            said.extend(parse(&mut input).unwrap());
        }
        let message = Said::Message(Bytes::from_static(b"a\r\nb"));
        assert_eq!(said, [message, Said::Ping, Said::Other]);
        assert_eq!(&input[..], b"PON");
    }

    #[test]
    fn an_error_ends_the_run() {
        let mut input = BytesMut::from(&b"-ERR 'Slow Consumer'\r\n"[..]);
        assert!(parse(&mut input).unwrap_err().to_string().contains("Slow Consumer"));
    }
}
