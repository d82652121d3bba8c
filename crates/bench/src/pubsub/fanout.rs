//! Measures one publisher and many subscribers of a broker. The publisher and each subscriber have a connection of
//! their own.
//!
//! A single thread reads from the connections of all subscribers, one after another, because many threads would compete
//! with the broker for cores.

use std::thread;

use anyhow::{Result, anyhow, ensure};

use super::broker::Broker;
use super::lane::{self, SHARED_BYTES, SubscribedConnection};
use super::throughput::{SUBJECT, publish};
use crate::clock::monotonic_ns;
use crate::timed::TimedTransfer;

/// Publishes `count` messages of `bytes` bytes. Each subscriber receives all of them. Every delivery is checked and
/// counted.
pub fn measure(broker: Broker, subscribers: usize, bytes: usize, count: u64) -> Result<TimedTransfer> {
    let endpoint = broker.endpoint();
    let mut broker = Some(broker);
    let mut lanes = (0..subscribers)
        .map(|_| SubscribedConnection::subscribe(endpoint, SUBJECT))
        .collect::<Result<Vec<_>>>()?;
    let publisher = thread::spawn(move || publish(endpoint, SUBJECT, bytes, count));
    let end_ns = receive(&mut lanes, count);
    if end_ns.is_err() {
        // Dropping the broker closes the publisher's connection, so that the publisher's thread ends.
        broker.take();
    }
    let start_ns = publisher.join().map_err(|_| anyhow!("the publishing thread panicked"))?;
    let (end_ns, start_ns) = (end_ns?, start_ns?);
    Ok(TimedTransfer { start_ns, end_ns, messages: count * subscribers as u64, bytes, touched: bytes })
}

/// Reads until each subscriber has received `count` messages. Returns the time in ns at which the last message was
/// checked.
pub fn receive(lanes: &mut [SubscribedConnection], count: u64) -> Result<u64> {
    let mut shared = vec![0; SHARED_BYTES];
    let mut unfinished = lanes.len();
    while unfinished > 0 {
        let (mut has_read, mut left) = (false, 0);
        for lane in lanes.iter_mut().filter(|lane| lane.received() < count) {
            has_read |= lane.read(&mut shared)?;
            ensure!(lane.received() <= count, "received more messages than were published");
            left += usize::from(lane.received() < count);
        }
        unfinished = left;
        if !has_read {
            lane::wait(lanes)?;
        }
    }
    Ok(monotonic_ns())
}
