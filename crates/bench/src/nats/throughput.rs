//! One publisher, one subscriber, both clients of a nats-server: two hops, as our brokered topology.

use std::net::SocketAddr;
use std::thread;

use anyhow::{Result, anyhow, ensure};

use crate::clock::monotonic_ns;
use crate::nats::client::NatsClient;
use crate::nats::server::NatsServer;
use crate::payload::{Payload, Touch};
use crate::point::Bench;
use crate::timed::Timed;

const SUBJECT: &str = "b";
/// Messages are gathered to writes of about this size.
const WRITE_BYTES: usize = 64 * 1024;

/// Sends `count` messages of `bytes`; every one is checked by the subscriber.
pub fn measure(bench: &Bench, bytes: usize, count: u64) -> Result<Timed> {
    let server = NatsServer::start(bench)?;
    let address = server.address();
    let mut server = Some(server);
    let mut subscriber = NatsClient::connect(address)?;
    subscriber.subscribe(SUBJECT)?;
    let publisher = thread::spawn(move || publish(address, bytes, count));
    let end_ns = receive(&mut subscriber, count);
    if end_ns.is_err() {
        // The server goes, and with it the publisher's connection.
        server.take();
    }
    let start_ns = publisher.join().map_err(|_| anyhow!("the publishing thread panicked"))?;
    let (end_ns, start_ns) = (end_ns?, start_ns?);
    Ok(Timed { start_ns, end_ns, messages: count, bytes, touched: bytes })
}

fn publish(address: SocketAddr, bytes: usize, count: u64) -> Result<u64> {
    let mut client = NatsClient::connect(address)?;
    let head = format!("PUB {SUBJECT} {bytes}\r\n");
    let batch = (WRITE_BYTES / (head.len() + bytes + 2)).max(1) as u64;
    let mut payload = Payload::new(bytes);
    let mut write = Vec::with_capacity(2 * WRITE_BYTES + bytes);
    let start_ns = monotonic_ns();
    let mut next = 0;
    while next < count {
        let until = count.min(next + batch);
        write.clear();
        for seq in next..until {
            write.extend_from_slice(head.as_bytes());
            write.extend_from_slice(payload.of(seq));
            write.extend_from_slice(b"\r\n");
        }
        client.send(&write)?;
        next = until;
    }
    client.settle()?;
    Ok(start_ns)
}

fn receive(subscriber: &mut NatsClient, count: u64) -> Result<u64> {
    for seq in 0..count {
        let (_, payload) = subscriber.message()?;
        ensure!(Touch::All.check(payload, seq), "message {seq} of {count} was lost or damaged");
    }
    Ok(monotonic_ns())
}
