//! Measures one publisher and one subscriber, in two threads on separate cores.

use std::thread;

use anyhow::{Result, anyhow};
use dunlin::topic::WaitStrategy;

use crate::cores::CorePinning;
use crate::local::node::LocalNode;
use crate::timed::TimedTransfer;
use crate::workload::{PublishMode, receive_all, send_all};

/// The retention in bytes. The retention is so small that the records fit into the processor's caches that both threads
/// share.
const HISTORY_BYTES: u64 = 4 << 20;
/// The retention in bytes for payloads that are published by reference. The topic does not copy such a payload, but
/// counts the payload's full size.
const HISTORY_BYTES_BY_REF: u64 = 256 << 20;

/// Publishes `count` records of `bytes` bytes in one thread, and reads these records in another thread.
pub fn measure(mode: PublishMode, bytes: usize, count: u64) -> Result<TimedTransfer> {
    let history_bytes = if mode == PublishMode::ByRef { HISTORY_BYTES_BY_REF } else { HISTORY_BYTES };
    let local_node = LocalNode::start()?;
    local_node.lossless("bench", history_bytes)?;
    let mut subscriber = local_node.subscriber("bench", WaitStrategy::Spin)?;
    let mut publisher = local_node.publisher("bench")?;
    let sending = thread::spawn(move || -> Result<u64> {
        let _pinned = CorePinning::Apart.side(1)?;
        send_all(&mut publisher, mode, bytes, count)
    });
    let received =
        CorePinning::Apart.side(0).and_then(|_pinned| receive_all(&mut subscriber, mode, 1, count));
    // Dropping the subscriber ends a pending call of the publisher.
    drop(subscriber);
    let start_ns = sending.join().map_err(|_| anyhow!("the publishing thread panicked"))??;
    Ok(TimedTransfer {
        start_ns,
        end_ns: received?,
        messages: count,
        bytes,
        touched: mode.read_extent().bytes(bytes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_publishing_method_delivers_all_records() {
        for (mode, bytes) in
            [(PublishMode::OneByOne, 64), (PublishMode::Batches(64), 64), (PublishMode::ByRef, 8192)]
        {
            let timed = measure(mode, bytes, 10_000).unwrap();
            assert!(timed.end_ns > timed.start_ns);
        }
    }
}
