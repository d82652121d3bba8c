//! Checks that each received batch continues at the subscriber's position, so that the client notices all missing
//! records.

use dunlin_frame::BatchHeader;
use dunlin_topic::Position;

/// How a received batch relates to the subscriber's position in the same log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchContinuity {
    /// The batch continues at the position. If the log has records between the two, they were filtered out or had
    /// expired.
    Follows,
    /// The subscriber already has all records of the batch, or the batch comes from a former owner of the topic.
    Stale,
    /// The subscriber already has the first `skip` records of the batch.
    Overlaps {
        /// How many records of the batch the subscriber already has.
        skip: u32,
    },
    /// Records before the batch are missing.
    Missing {
        /// The sequence number of the first missing record.
        first: u64,
        /// The sequence number of the last missing record.
        last: u64,
    },
    /// The batch belongs to a later epoch, which the node has not announced.
    NewEpoch,
}

/// Compares `batch` with `at`, the subscriber's position in the same log.
#[inline]
pub(crate) fn classify(at: Position, batch: &BatchHeader) -> BatchContinuity {
    if batch.epoch == at.epoch && batch.prev_seq <= at.seq && at.seq < batch.first_seq {
        return BatchContinuity::Follows;
    }
    if batch.epoch > at.epoch {
        return BatchContinuity::NewEpoch;
    }
    if batch.epoch < at.epoch || batch.last_seq() <= at.seq {
        return BatchContinuity::Stale;
    }
    if batch.first_seq <= at.seq {
        // The last record of the batch is new, so `skip` is less than the number of records in the batch, which is a
        // u32.
        return BatchContinuity::Overlaps { skip: (at.seq - batch.first_seq + 1) as u32 };
    }
    BatchContinuity::Missing { first: at.seq + 1, last: batch.prev_seq }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify_at(at: (u32, u64), epoch: u32, prev_seq: u64, first_seq: u64, count: u32) -> BatchContinuity {
        let batch = BatchHeader { topic_id: 1, epoch, prev_seq, first_seq, count, bytes: 0 };
        classify(Position { epoch: at.0, seq: at.1 }, &batch)
    }

    #[test]
    fn subscriber_position_decides_if_a_batch_follows_or_is_stale() {
        assert_eq!(classify_at((2, 10), 2, 10, 11, 5), BatchContinuity::Follows);
        assert_eq!(classify_at((2, 10), 2, 10, 14, 5), BatchContinuity::Follows, "three were filtered out");
        assert_eq!(
            classify_at((2, 10), 2, 8, 11, 5),
            BatchContinuity::Follows,
            "the hole began before the subscriber"
        );
        assert_eq!(classify_at((2, 10), 2, 12, 13, 5), BatchContinuity::Missing { first: 11, last: 12 });
        assert_eq!(classify_at((2, 10), 2, 3, 4, 7), BatchContinuity::Stale);
        assert_eq!(classify_at((2, 10), 2, 3, 4, 8), BatchContinuity::Overlaps { skip: 7 });
        assert_eq!(classify_at((2, 10), 1, 10, 11, 5), BatchContinuity::Stale, "a replaced owner");
        assert_eq!(classify_at((2, 10), 3, 0, 1, 5), BatchContinuity::NewEpoch);
        assert_eq!(classify_at((2, 0), 2, 0, 1, 5), BatchContinuity::Follows);
    }
}
