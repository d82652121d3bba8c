//! Keeps the batches of another node that wait for room in a full topic. The node's other batches are handled
//! meanwhile.
//!
//! Invariant: the batches of one publisher to one partition are appended in the order of their arrival.
//!
//! Limits: the batches of one connection take at most [`PARKED_BYTES_MAX`] bytes, which are charged to the node's
//! memory budget. A new batch and the waiting batches of its publisher to its partition may together take at most as
//! many bytes as are free under this limit before the new batch is added. The batches of one publisher to one partition
//! therefore take at most about half of the limit, and a single full topic leaves room for others. A batch beyond these
//! limits is refused at once, unless no other batch of the connection waits. In this case, the batch may be as large as
//! the limits for messages allow (`run_bytes_max` and `control_bytes_max` of [`ServerLimits`](crate::ServerLimits)).

use std::collections::VecDeque;
use std::time::Duration;

use dunlin::topic::{MemoryCharge, PublishError};
use dunlin::wire::{self, PublishHeader};
use dunlin::{Refused, steady_ns};

use super::{ExpectedTopic, RoomWait};
use crate::tcp::session::{CONTROL_BYTES_MAX, Session};

/// Maximum number of bytes in the waiting batches of one connection. A node may forward more bytes than this to one
/// owner (`forwarded_bytes_max`). The node's batches for other topics therefore still arrive while its batches for full
/// topics wait here.
const PARKED_BYTES_MAX: usize = 16 << 20;

/// The batches of a session that wait for room.
#[derive(Debug, Default)]
pub(super) struct ParkedBatches {
    queues: Vec<ParkedQueue>,
    /// The number of bytes in all queues.
    bytes: usize,
    /// Whether the first batch of each queue must be tried again.
    retry: bool,
}

/// The waiting batches of one publisher to one partition.
#[derive(Debug)]
struct ParkedQueue {
    publisher: u32,
    partition: u32,
    batches: VecDeque<ParkedBatch>,
    bytes: usize,
    /// The reason why the first batch waits.
    full: PublishError,
}

#[derive(Debug)]
struct ParkedBatch {
    header: PublishHeader,
    flags: u8,
    frames: Box<[u8]>,
    /// The topic that the batch's publisher expects.
    expected: Option<ExpectedTopic>,
    wait: RoomWait,
    /// The memory that the batch takes when it begins to wait.
    bytes: usize,
    charge: MemoryCharge,
}

impl ParkedBatches {
    pub(super) fn retry(&mut self) {
        self.retry = !self.queues.is_empty();
    }

    /// Drops the batches of a publisher that was closed.
    pub(super) fn remove(&mut self, publisher: u32) {
        for queue in self.queues.extract_if(.., |queue| queue.publisher == publisher) {
            self.bytes -= queue.bytes;
        }
    }

    fn queue(&self, header: &PublishHeader) -> Option<&ParkedQueue> {
        let is_same =
            |queue: &&ParkedQueue| (queue.publisher, queue.partition) == (header.publisher, header.partition);
        self.queues.iter().find(is_same)
    }

    /// If earlier batches of the same publisher to the same partition are waiting, a new batch must wait behind them.
    /// Returns the wait of such a new batch, and the reason for its wait.
    fn wait_behind(&self, header: &PublishHeader) -> Option<(RoomWait, PublishError)> {
        let queue = self.queue(header)?;
        let RoomWait { began_ns, deadline_ns } = queue.batches.front()?.wait;
        let wait_max = Duration::from_nanos(deadline_ns - began_ns);
        Some((RoomWait::begin(steady_ns(), wait_max), queue.full.clone()))
    }

    /// Whether a batch of `bytes` bytes may wait. If no other batch waits, it may have any size.
    fn has_room(&self, header: &PublishHeader, bytes: usize) -> bool {
        let queue_bytes = self.queue(header).map_or(0, |queue| queue.bytes);
        self.bytes == 0 || self.bytes + queue_bytes + bytes <= PARKED_BYTES_MAX
    }

    fn add(&mut self, batch: ParkedBatch, full: PublishError) {
        let PublishHeader { publisher, partition, .. } = batch.header;
        let bytes = batch.bytes;
        self.bytes += bytes;
        let is_same = |queue: &&mut ParkedQueue| (queue.publisher, queue.partition) == (publisher, partition);
        match self.queues.iter_mut().find(is_same) {
            Some(queue) => {
                queue.bytes += bytes;
                queue.batches.push_back(batch);
            }
            None => {
                let batches = VecDeque::from([batch]);
                self.queues.push(ParkedQueue { publisher, partition, batches, bytes, full });
            }
        }
    }
}

impl Session {
    /// Appends or refuses a batch that another node has forwarded. If its topic is full, lets the batch wait.
    pub(super) fn publish_or_park(&mut self, publish: &wire::Publish<'_>) {
        let wire::Publish { header, flags, frames } = *publish;
        let waiting = match self.publishing.parked.wait_behind(&header) {
            Some(waiting) => Some(waiting),
            None => self.try_publish(publish, None),
        };
        let Some((wait, full)) = waiting else { return };
        let charge = MemoryCharge::none(self.node.connection_budget());
        let expected = self.publishing.expected.take();
        let expected_bytes = expected.as_ref().map_or(0, ExpectedTopic::bytes);
        let bytes = size_of::<ParkedBatch>() + frames.len() + expected_bytes;
        let mut batch = ParkedBatch { header, flags, frames: frames.into(), expected, wait, bytes, charge };
        if !self.publishing.parked.has_room(&header, bytes) || batch.charge.grow_to(bytes).is_err() {
            return self.refuse_publish(&header, &Refused::from(&full));
        }
        self.publishing.parked.add(batch, full);
    }

    /// If a topic may have room, or a wait may be over, tries the waiting batches again.
    pub(in crate::tcp::session) fn retry_parked(&mut self) {
        if !std::mem::take(&mut self.publishing.parked.retry) || self.is_closing() {
            return;
        }
        let mut queues = std::mem::take(&mut self.publishing.parked.queues);
        queues.retain_mut(|queue| self.retry_queue(queue));
        self.publishing.parked.queues = queues;
        self.acknowledge();
    }

    /// Tries the batches of a queue in order. Returns whether some still wait.
    fn retry_queue(&mut self, queue: &mut ParkedQueue) -> bool {
        while let Some(first) = queue.batches.front_mut() {
            if self.outbound.control.len() > CONTROL_BYTES_MAX {
                // The next batches are tried when the other node has read the responses.
                self.publishing.parked.retry = true;
                return true;
            }
            let expected = std::mem::replace(&mut self.publishing.expected, first.expected.take());
            let publish = wire::Publish { header: first.header, flags: first.flags, frames: &first.frames };
            let waiting = self.try_publish(&publish, Some(first.wait));
            first.expected = std::mem::replace(&mut self.publishing.expected, expected);
            if let Some((_, full)) = waiting {
                queue.full = full;
                return true;
            }
            if let Some(done) = queue.batches.pop_front() {
                queue.bytes -= done.bytes;
                self.publishing.parked.bytes -= done.bytes;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oversized_batch_may_wait_alone_but_not_with_other_batches() {
        let header =
            PublishHeader { publisher: 1, partition: 0, expect_seq: 0, producer_seq: 1, count: 1, bytes: 0 };
        let mut parked = ParkedBatches::default();
        assert!(parked.has_room(&header, 2 * PARKED_BYTES_MAX));
        parked.bytes = 1;
        assert!(!parked.has_room(&header, PARKED_BYTES_MAX));
        assert!(parked.has_room(&header, PARKED_BYTES_MAX - 1));
    }
}
