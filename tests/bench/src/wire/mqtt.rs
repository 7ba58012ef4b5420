//! MQTT 3.1.1, client side, as much as the bench needs: publish and subscribe at QoS 0 and 1.
//! Source: MQTT Version 3.1.1, OASIS Standard.

use super::{ANSWER_DEADLINE, Line, Publish, Receive, System, answer};
use anyhow::{Context as _, Result, bail};
use bytes::{Buf as _, Bytes, BytesMut};

/// What the load publishes to.
const TOPIC: &str = "bench/load";
/// Most subscriptions in one SUBSCRIBE.
const TOPICS_A_PACKET: usize = 200;

const CONNECT: u8 = 0x10;
const CONNACK: u8 = 0x20;
const PUBLISH: u8 = 0x30;
const PUBACK: u8 = 0x40;
const SUBSCRIBE: u8 = 0x82;
const SUBACK: u8 = 0x90;

/// A broker at a port.
#[derive(Debug)]
pub(crate) struct Mqtt {
    /// On loopback.
    pub(crate) port: u16,
    /// 0 or 1.
    pub(crate) qos: u8,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct MqttLine {
    line: Line,
    qos: u8,
    /// Put so far; its low bits are the next packet id.
    put: u64,
    acked: u64,
}

/// One packet: the first byte, and what follows the length.
#[derive(Debug, PartialEq, Eq)]
struct Packet {
    kind: u8,
    body: Bytes,
}

impl Mqtt {
    async fn connect(&self, name: &str) -> Result<MqttLine> {
        let mut line = Line::connect(self.port).await?;
        let mut body = Vec::new();
        text(&mut body, "MQTT")?;
        // Protocol level 4, clean session, no keep-alive.
        body.extend_from_slice(&[4, 0x02, 0, 0]);
        text(&mut body, name)?;
        packet(&mut line.output, CONNECT, &[&body]);
        line.write().await?;
        let mut connected = MqttLine { line, qos: self.qos, put: 0, acked: 0 };
        let connack = answer("CONNECT", connected.next_of(CONNACK)).await?;
        if connack.get(1) != Some(&0) {
            bail!("the broker refused the connection: {connack:?}");
        }
        Ok(connected)
    }

    async fn subscribe(&self, connected: &mut MqttLine, topics: &[String]) -> Result<()> {
        let mut body = vec![0, 1];
        for topic in topics {
            text(&mut body, topic)?;
            body.push(self.qos);
        }
        packet(&mut connected.line.output, SUBSCRIBE, &[&body]);
        connected.line.write().await?;
        let suback = answer("SUBSCRIBE", connected.next_of(SUBACK)).await?;
        if suback.iter().skip(2).any(|granted| *granted != self.qos) {
            bail!("the broker refused a subscription");
        }
        Ok(())
    }
}

impl System for Mqtt {
    type Publisher = MqttLine;
    type Subscriber = MqttLine;
    type Bystander = MqttLine;

    async fn publisher(&self, number: usize) -> Result<MqttLine> {
        self.connect(&format!("publisher{number}")).await
    }

    async fn subscriber(&self, number: usize) -> Result<MqttLine> {
        let mut connected = self.connect(&format!("subscriber{number}")).await?;
        self.subscribe(&mut connected, &[TOPIC.to_owned()]).await?;
        Ok(connected)
    }

    async fn bystander(&self, number: usize, count: usize) -> Result<MqttLine> {
        let mut connected = self.connect(&format!("bystander{number}")).await?;
        let topics: Vec<String> = (0..count).map(|topic| format!("o/{number}/{topic}")).collect();
        for topics in topics.chunks(TOPICS_A_PACKET) {
            self.subscribe(&mut connected, topics).await?;
        }
        Ok(connected)
    }

    async fn resubscribe(&self, _bystander: &mut MqttLine, _change: u64) -> Result<()> {
        bail!("changes of subscriptions are not measured with MQTT")
    }
}

impl MqttLine {
    /// Waits for a packet of that kind and gives its body.
    async fn next_of(&mut self, kind: u8) -> Result<Bytes> {
        loop {
            while let Some(packet) = parse(&mut self.line.input)? {
                if packet.kind == kind {
                    return Ok(packet.body);
                }
            }
            self.line.read().await?;
        }
    }

    fn count_acks(&mut self) -> Result<()> {
        while let Some(packet) = parse(&mut self.line.input)? {
            if packet.kind == PUBACK {
                self.acked += 1;
            }
        }
        Ok(())
    }
}

impl Publish for MqttLine {
    async fn put(&mut self, message: &[u8]) -> Result<()> {
        let mut head = Vec::with_capacity(TOPIC.len() + 4);
        text(&mut head, TOPIC)?;
        if self.qos > 0 {
            // Any number but 0; the window keeps far fewer than 65535 in flight.
            let id = u16::try_from(self.put % 65_535 + 1).context("no packet id")?;
            head.extend_from_slice(&id.to_be_bytes());
        }
        self.put += 1;
        packet(&mut self.line.output, PUBLISH | (self.qos << 1), &[&head, message]);
        self.line.write_if_full().await
    }

    async fn flush(&mut self) -> Result<()> {
        self.line.write().await?;
        while self.line.read_waiting()? {}
        self.count_acks()
    }

    /// At QoS 0 the broker says nothing back: what is written counts.
    async fn acknowledged(&mut self, wanted: u64) -> Result<u64> {
        self.flush().await?;
        if self.qos == 0 {
            return Ok(self.put);
        }
        while self.acked < wanted {
            tokio::time::timeout(ANSWER_DEADLINE, self.line.read())
                .await
                .context("the broker stopped acknowledging")??;
            self.count_acks()?;
        }
        Ok(self.acked)
    }
}

impl Receive for MqttLine {
    async fn receive(&mut self, see: &mut (impl FnMut(&[u8]) + Send)) -> Result<()> {
        self.line.read().await?;
        while let Some(Packet { kind, mut body }) = parse(&mut self.line.input)? {
            if kind & 0xf0 != PUBLISH {
                continue;
            }
            let topic = body.try_get_u16().context("a PUBLISH without topic")?;
            body.advance(usize::from(topic).min(body.len()));
            if kind & 0x06 != 0 {
                let id = body.try_get_u16().context("a PUBLISH without packet id")?;
                packet(&mut self.line.output, PUBACK, &[&id.to_be_bytes()]);
            }
            see(&body);
        }
        self.line.write().await
    }
}

fn text(output: &mut Vec<u8>, text: &str) -> Result<()> {
    let length = u16::try_from(text.len()).context("the text is too long for MQTT")?;
    output.extend_from_slice(&length.to_be_bytes());
    output.extend_from_slice(text.as_bytes());
    Ok(())
}

/// Appends a packet: kind, length in groups of seven bits, body.
fn packet(output: &mut Vec<u8>, kind: u8, body: &[&[u8]]) {
    output.push(kind);
    let mut length: usize = body.iter().map(|part| part.len()).sum();
    loop {
        let more = if length > 0x7f { 0x80 } else { 0 };
        output.push((length & 0x7f) as u8 | more);
        length >>= 7;
        if length == 0 {
            break;
        }
    }
    body.iter().for_each(|part| output.extend_from_slice(part));
}

/// Takes the next packet out of the input; `None` when it is not complete.
fn parse(input: &mut BytesMut) -> Result<Option<Packet>> {
    let Some((&kind, rest)) = input.split_first() else { return Ok(None) };
    let mut length = 0_usize;
    for (place, &byte) in rest.iter().enumerate() {
        if place == 4 {
            bail!("the broker sent a length of more than four bytes");
        }
        length |= usize::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            let start = place + 2;
            if input.len() < start + length {
                return Ok(None);
            }
            input.advance(start);
            return Ok(Some(Packet { kind, body: input.split_to(length).freeze() }));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn packets_of_every_length_come_back_whole() {
        for size in [0, 1, 127, 128, 16_383, 16_384, 70_000] {
            let body = vec![0x5a; size];
            let mut wire = Vec::new();
            packet(&mut wire, PUBLISH, &[&body[..size / 2], &body[size / 2..]]);
            let mut input = BytesMut::from(&wire[..wire.len() - 1]);
            assert_eq!(parse(&mut input).unwrap(), None);
            input.extend_from_slice(&wire[wire.len() - 1..]);
            let parsed = parse(&mut input).unwrap().unwrap();
            assert_eq!((parsed.kind, parsed.body.len()), (PUBLISH, size));
            assert!(input.is_empty());
        }
    }

    #[test]
    fn an_endless_length_is_refused() {
        assert!(parse(&mut BytesMut::from(&[0x30, 0x80, 0x80, 0x80, 0x80, 0x01][..])).is_err());
    }
}
