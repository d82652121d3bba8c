//! The publisher and the subscriber for a node's listener `nats` and for nats-server, with the minimal client
//! [`RawClient`].

use anyhow::Result;

use super::route::{Sink, Source};
use crate::pubsub::{BrokerEndpoint, RawClient};

/// The approximate size of a full write in bytes. If fewer records are due, a write is smaller.
const WRITE_BYTES: usize = 64 * 1024;

/// Publishes records over the NATS protocol. Records that must be acknowledged are sent over a second connection.
pub struct NatsPublisher {
    endpoint: BrokerEndpoint,
    subject: String,
    client: RawClient,
    verbose_client: Option<RawClient>,
    /// The size of the last payload in bytes, and the header that precedes a payload of this size.
    head: (usize, Vec<u8>),
    write: Vec<u8>,
}

impl NatsPublisher {
    /// Connects to the broker at `endpoint`.
    pub fn open(endpoint: BrokerEndpoint, subject: &str) -> Result<Self> {
        let client = RawClient::connect(endpoint)?;
        let (subject, head) = (subject.to_owned(), (0, Vec::new()));
        Ok(Self { endpoint, subject, client, verbose_client: None, head, write: Vec::new() })
    }

    fn write(&mut self, payload: &[u8]) {
        if self.head.0 != payload.len() {
            self.head = (payload.len(), self.endpoint.dialect.publish_head(&self.subject, payload.len()));
        }
        self.write.extend_from_slice(&self.head.1);
        self.write.extend_from_slice(payload);
        self.write.extend_from_slice(b"\r\n");
    }
}

impl Source for NatsPublisher {
    fn publish(&mut self, payload: &[u8]) -> Result<()> {
        if self.verbose_client.is_none() {
            self.verbose_client = Some(RawClient::connect_verbose(self.endpoint)?);
        }
        self.write(payload);
        if let Some(client) = &mut self.verbose_client {
            client.send(&self.write)?;
            client.wait_for_ok()?;
        }
        self.write.clear();
        Ok(())
    }

    fn send(&mut self, payload: &[u8]) -> Result<()> {
        self.write(payload);
        if self.write.len() < WRITE_BYTES { Ok(()) } else { self.push() }
    }

    fn push(&mut self) -> Result<()> {
        self.client.send(&self.write)?;
        self.write.clear();
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.push()?;
        self.client.flush()
    }
}

/// Receives the records of a subject over the NATS protocol.
pub struct NatsReader(RawClient);

impl NatsReader {
    /// Connects and subscribes.
    pub fn open(endpoint: BrokerEndpoint, subject: &str) -> Result<Self> {
        let mut client = RawClient::connect(endpoint)?;
        client.subscribe(subject)?;
        Ok(Self(client))
    }
}

impl Sink for NatsReader {
    fn read(&mut self, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (_, payload) = self.0.next_message()?;
        each(payload)?;
        while let Some((_, payload)) = self.0.buffered_message()? {
            each(payload)?;
        }
        Ok(())
    }
}
