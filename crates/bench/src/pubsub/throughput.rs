//! Measures one publisher and one subscriber, which are both clients of a broker. Each message is transferred twice:
//! from the publisher to the broker, and from the broker to the subscriber.

use std::thread;

use anyhow::{Result, anyhow, ensure};

use super::broker::{Broker, BrokerEndpoint};
use super::client::RawClient;
use crate::clock::monotonic_ns;
use crate::payload::{NumberedPayload, ReadExtent};
use crate::timed::TimedTransfer;

/// The subject to which the messages are published.
pub const SUBJECT: &str = "b";
/// The approximate size of each write in bytes.
const WRITE_BYTES: usize = 64 * 1024;

/// Publishes `count` messages of `bytes` bytes. The subscriber checks each of them.
pub fn measure(broker: Broker, bytes: usize, count: u64) -> Result<TimedTransfer> {
    let endpoint = broker.endpoint();
    let mut broker = Some(broker);
    let mut subscriber = RawClient::connect(endpoint)?;
    subscriber.subscribe(SUBJECT)?;
    let publisher = thread::spawn(move || publish(endpoint, SUBJECT, bytes, count));
    let end_ns = receive(&mut subscriber, count);
    if end_ns.is_err() {
        // Dropping the broker closes the publisher's connection, so that the publisher's thread ends.
        broker.take();
    }
    let start_ns = publisher.join().map_err(|_| anyhow!("the publishing thread panicked"))?;
    let (end_ns, start_ns) = (end_ns?, start_ns?);
    Ok(TimedTransfer { start_ns, end_ns, messages: count, bytes, touched: bytes })
}

/// Publishes `count` messages of `bytes` bytes as fast as possible. Returns a time in ns, taken directly before the
/// first message was sent.
pub fn publish(endpoint: BrokerEndpoint, subject: &str, bytes: usize, count: u64) -> Result<u64> {
    let mut client = RawClient::connect(endpoint)?;
    client.disable_confirmations()?;
    let head = endpoint.dialect.publish_head(subject, bytes);
    let batch = (WRITE_BYTES / (head.len() + bytes + 2)).max(1) as u64;
    let mut payload = NumberedPayload::new(bytes);
    let mut write = Vec::with_capacity(2 * WRITE_BYTES + bytes);
    let start_ns = monotonic_ns();
    let mut next = 0;
    while next < count {
        let until = count.min(next + batch);
        write.clear();
        for seq in next..until {
            write.extend_from_slice(&head);
            write.extend_from_slice(payload.with_seq(seq));
            write.extend_from_slice(b"\r\n");
        }
        client.send(&write)?;
        next = until;
    }
    client.flush()?;
    Ok(start_ns)
}

fn receive(subscriber: &mut RawClient, count: u64) -> Result<u64> {
    for seq in 0..count {
        let (_, payload) = subscriber.next_message()?;
        ensure!(ReadExtent::All.check(payload, seq), "message {seq} of {count} was lost or damaged");
    }
    Ok(monotonic_ns())
}
