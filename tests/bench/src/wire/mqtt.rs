//! MQTT through `rumqttc`: publish and subscribe at QoS 0 and 1.

use super::{Publish, Receive, WireSystem, answer};
use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use rumqttc::{
    AsyncClient, Event, EventLoop, MqttOptions, Outgoing, Packet, QoS, SubscribeFilter,
    SubscribeReasonCode,
};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The topic of the load.
const TOPIC: &str = "bench/load";
/// Most subscriptions in one SUBSCRIBE.
const TOPICS_A_PACKET: usize = 200;
/// Requests that wait for the connection; then the caller waits.
const REQUESTS: usize = 4096;
/// Messages without acknowledgement at QoS 1; then the connection waits.
const UNACKNOWLEDGED_MAX: u16 = 60_000;
/// Messages that wait for a subscriber; then its connection waits.
const RECEIVED: usize = 4096;
/// Largest packet.
const PACKET_BYTES_MAX: usize = 4 << 20;

/// A broker at a port.
#[derive(Debug)]
pub(crate) struct Mqtt {
    /// On loopback.
    pub(crate) port: u16,
    /// 0 or 1.
    pub(crate) qos: u8,
}

/// A connection, which a task drives.
pub(crate) struct MqttConnection {
    client: AsyncClient,
    qos: QoS,
    /// Messages that were written at QoS 0, or acknowledged at QoS 1.
    done: watch::Receiver<u64>,
    /// Granted subscriptions.
    granted: watch::Receiver<usize>,
    received: mpsc::Receiver<Bytes>,
}

/// The other ends of the channels of a [`MqttConnection`].
struct Driver {
    events: EventLoop,
    qos: QoS,
    done: watch::Sender<u64>,
    granted: watch::Sender<usize>,
    received: mpsc::Sender<Bytes>,
}

impl Driver {
    /// Drives the connection until it fails. The senders are dropped then.
    async fn run(mut self) {
        while let Ok(event) = self.events.poll().await {
            match event {
                Event::Outgoing(Outgoing::Publish(_)) if self.qos == QoS::AtMostOnce => {
                    self.done.send_modify(|count| *count += 1);
                }
                Event::Incoming(Packet::PubAck(_)) => self.done.send_modify(|count| *count += 1),
                Event::Incoming(Packet::SubAck(answer)) => {
                    let granted = |code: &&SubscribeReasonCode| {
                        **code == SubscribeReasonCode::Success(self.qos)
                    };
                    let count = answer.return_codes.iter().filter(granted).count();
                    self.granted.send_modify(|all| *all += count);
                }
                Event::Incoming(Packet::Publish(message)) => {
                    let sent = self.received.send(message.payload).await;
                    // A subscriber that is gone needs no messages.
                    if sent.is_err() {
                        return;
                    }
                }
                _ => {}
            }
        }
    }
}

impl Mqtt {
    fn connect(&self, name: &str) -> MqttConnection {
        let qos = if self.qos == 0 { QoS::AtMostOnce } else { QoS::AtLeastOnce };
        let mut options = MqttOptions::new(name, "127.0.0.1", self.port);
        options.set_keep_alive(Duration::from_secs(60)).set_inflight(UNACKNOWLEDGED_MAX);
        options.set_max_packet_size(PACKET_BYTES_MAX, PACKET_BYTES_MAX);
        let (client, mut events) = AsyncClient::new(options, REQUESTS);
        let mut network = events.network_options();
        network.set_tcp_nodelay(true);
        events.set_network_options(network);
        let (done_sender, done) = watch::channel(0);
        let (granted_sender, granted) = watch::channel(0);
        let (received_sender, received) = mpsc::channel(RECEIVED);
        let driver = Driver {
            events,
            qos,
            done: done_sender,
            granted: granted_sender,
            received: received_sender,
        };
        tokio::spawn(driver.run());
        MqttConnection { client, qos, done, granted, received }
    }
}

impl MqttConnection {
    async fn subscribe(&mut self, topics: &[String]) -> Result<()> {
        let wanted = *self.granted.borrow() + topics.len();
        let filters = topics.iter().map(|topic| SubscribeFilter::new(topic.clone(), self.qos));
        self.client.subscribe_many(filters).await?;
        let granted = async {
            let granted = self.granted.wait_for(|granted| *granted >= wanted).await;
            granted.map(drop).context("the broker hung up")
        };
        answer("SUBSCRIBE", granted).await
    }
}

impl WireSystem for Mqtt {
    type Publisher = MqttConnection;
    type Subscriber = MqttConnection;
    type Bystander = MqttConnection;

    async fn publisher(&self, number: usize) -> Result<MqttConnection> {
        Ok(self.connect(&format!("publisher{number}")))
    }

    async fn subscriber(&self, number: usize) -> Result<MqttConnection> {
        let mut connection = self.connect(&format!("subscriber{number}"));
        connection.subscribe(&[TOPIC.to_owned()]).await?;
        Ok(connection)
    }

    async fn bystander(&self, number: usize, count: usize) -> Result<MqttConnection> {
        let mut connection = self.connect(&format!("bystander{number}"));
        let topics: Vec<String> = (0..count).map(|topic| format!("o/{number}/{topic}")).collect();
        for topics in topics.chunks(TOPICS_A_PACKET) {
            connection.subscribe(topics).await?;
        }
        Ok(connection)
    }

    async fn resubscribe(&self, _bystander: &mut MqttConnection, _change: u64) -> Result<()> {
        bail!("changes of subscriptions are not measured with MQTT")
    }
}

impl Publish for MqttConnection {
    async fn put(&mut self, message: &[u8]) -> Result<()> {
        let message = Bytes::copy_from_slice(message);
        Ok(self.client.publish_bytes(TOPIC, self.qos, false, message).await?)
    }

    /// The task of the connection writes without delay.
    async fn flush(&mut self) -> Result<()> {
        ensure!(self.done.has_changed().is_ok(), "the broker hung up");
        Ok(())
    }

    /// At QoS 0 the broker acknowledges nothing: written messages count.
    async fn acknowledged(&mut self, wanted: u64) -> Result<u64> {
        let done = async {
            let done = self.done.wait_for(|done| *done >= wanted).await;
            done.map(|done| *done).context("the broker hung up")
        };
        answer("PUBLISH", done).await
    }
}

impl Receive for MqttConnection {
    async fn receive(&mut self, see: &mut (impl FnMut(&[u8]) + Send)) -> Result<()> {
        see(&self.received.recv().await.context("the broker hung up")?);
        while let Ok(message) = self.received.try_recv() {
            see(&message);
        }
        Ok(())
    }
}
