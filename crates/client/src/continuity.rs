//! Checks that each received batch continues at the subscriber's position, so that missing records are always noticed.

use dunlin_frame::BatchHeader;
use dunlin_topic::Position;

/// How a received batch relates to the subscriber's position in the same log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BatchContinuity {
    /// The batch continues at the position. If the log has records between the position and the batch, they were
    /// filtered out or had expired.
    Follows,
    /// The subscriber already has all records of the batch, or a former owner of the topic sent it.
    Stale,
    /// The subscriber already has the first `skip` records of the batch.
    Overlaps {
        /// The number of records that the subscriber already has.
        skip: u32,
    },
    /// Records before the batch are missing.
    Missing {
        /// The first missing sequence number.
        first: u64,
        /// The last missing sequence number.
        last: u64,
    },
    /// The batch belongs to an epoch that was not announced.
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
        // At least the batch's last record is new, so the result is less than the batch's count, which is a u32.
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
    fn batch_is_classified_relative_to_the_subscribers_position() {
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
