//! Measures `rtrb`, a ring for one producer and one consumer, with records of 64 bytes. The ring is the floor for
//! passing records from one thread to another.

use std::thread;

use anyhow::{Result, ensure};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::clock::monotonic_ns;
use crate::cores::CorePinning;
use crate::payload::ReadExtent;
use crate::timed::TimedTransfer;

/// A record. Its first word and its last word are the sequence number.
type Record = [u64; 8];

const RING_RECORDS: usize = 4096;

/// Passes `count` records from one thread to another, in batches of `batch` records. Both threads are pinned.
pub fn measure(count: u64, batch: usize) -> Result<TimedTransfer> {
    let (producer, consumer) = RingBuffer::<Record>::new(RING_RECORDS);
    let start_ns = thread::scope(|scope| {
        let sender = scope.spawn(move || -> Result<u64> {
            let _pinned = CorePinning::Apart.side(1)?;
            let start_ns = monotonic_ns();
            send(producer, count, batch);
            Ok(start_ns)
        });
        let received = receive(consumer, count, batch);
        let start_ns = sender.join().map_err(|_| anyhow::anyhow!("the sending thread panicked"))??;
        Ok::<_, anyhow::Error>((start_ns, received?))
    });
    let (start_ns, end_ns) = start_ns?;
    let bytes = size_of::<Record>();
    Ok(TimedTransfer { start_ns, end_ns, messages: count, bytes, touched: ReadExtent::Ends.bytes(bytes) })
}

fn send(mut producer: Producer<Record>, count: u64, batch: usize) {
    let mut next = 0;
    while next < count && !producer.is_abandoned() {
        let chunk_len = batch.min((count - next) as usize);
        if batch == 1 {
            next += u64::from(producer.push(record(next)).is_ok());
        } else if let Ok(chunk) = producer.write_chunk_uninit(chunk_len) {
            next += chunk.fill_from_iter((next..).map(record)) as u64;
        } else {
            std::hint::spin_loop();
        }
    }
}

fn record(seq: u64) -> Record {
    let mut record = [crate::payload::FILLER; 8];
    (record[0], record[7]) = (seq, seq);
    record
}

fn receive(mut consumer: Consumer<Record>, count: u64, batch: usize) -> Result<u64> {
    let _pinned = CorePinning::Apart.side(0)?;
    let mut next = 0;
    while next < count {
        if batch == 1 {
            let Ok(record) = consumer.pop() else {
                ensure!(!consumer.is_abandoned() || consumer.slots() > 0, "the sending thread ended early");
                continue;
            };
            ensure!(
                record[0] == next && record[7] == next,
                "record {next} has the wrong number {}",
                record[0]
            );
            next += 1;
        } else {
            let slots = consumer.slots();
            ensure!(
                slots > 0 || !consumer.is_abandoned() || consumer.slots() > 0,
                "the sending thread ended early"
            );
            for record in consumer.read_chunk(batch.min(slots))? {
                ensure!(
                    record[0] == next && record[7] == next,
                    "record {next} has the wrong number {}",
                    record[0]
                );
                next += 1;
            }
        }
    }
    Ok(monotonic_ns())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_arrives_in_order_one_by_one_and_in_batches() {
        if thread::available_parallelism().map_or(1, usize::from) < 2 {
            return;
        }
        for batch in [1, 64] {
            let timed = measure(20_000, batch).unwrap();
            assert!(timed.end_ns > timed.start_ns);
        }
    }
}
