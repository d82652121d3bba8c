//! A model of the producers of a log: for each of their records that the log must remember, the producer's number and
//! the sequence number.

use dunlin_topic::*;

use super::LIMITS;

/// The producers that the log must remember, the least recently used first.
#[derive(Default)]
pub(super) struct Producers(Vec<ProducerState>);

struct ProducerState {
    id: u64,
    epoch: u32,
    last: u64,
    /// The records that the log must remember. Each has the number that the producer gave it, and its sequence number
    /// in the log.
    records: Vec<(u64, u64)>,
}

impl Producers {
    /// Returns the mark for the producer's next record. Its number differs by `from_next` from the expected number, and
    /// its epoch by `epoch_step` from the producer's last epoch.
    pub(super) fn mark(&self, producer: u64, epoch_step: i32, from_next: i64) -> ProducerMark {
        let known = self.0.iter().find(|known| known.id == producer);
        let (epoch, last) = known.map_or((5, 0), |known| (known.epoch, known.last));
        ProducerMark {
            producer,
            producer_epoch: epoch.saturating_add_signed(epoch_step),
            producer_seq: (last + 1).saturating_add_signed(from_next).max(1),
        }
    }

    /// Returns the expected result of an append: `None` if the records are new, or, for a retry, the sequence number at
    /// which its last record was appended.
    pub(super) fn expected_outcome(
        &mut self,
        mark: ProducerMark,
        count: u64,
    ) -> Result<Option<u64>, PublishError> {
        let Some(at) = self.0.iter().position(|known| known.id == mark.producer) else { return Ok(None) };
        let known = self.0.remove(at);
        self.0.push(known);
        let known = &self.0[self.0.len() - 1];
        let (first, last) = (mark.producer_seq, mark.producer_seq + count - 1);
        if mark.producer_epoch < known.epoch {
            return Err(PublishError::ProducerFenced { epoch: mark.producer_epoch, current: known.epoch });
        }
        if mark.producer_epoch > known.epoch || first == known.last + 1 {
            return Ok(None);
        }
        if first > known.last {
            return Err(PublishError::ProducerGap { producer_seq: first, last: known.last });
        }
        if last > known.last {
            return Err(PublishError::Batch("a retry must not contain new records"));
        }
        let remembered_from = known.records.first().map_or(known.last + 1, |(number, _)| *number);
        if first < remembered_from {
            return Err(PublishError::DuplicateForgotten { producer_seq: first, remembered_from });
        }
        Ok(known.records.iter().find(|(number, _)| *number == last).map(|(_, seq)| *seq))
    }

    /// Remembers records that were appended.
    pub(super) fn record_append(&mut self, mark: ProducerMark, count: u64, first_seq: u64) {
        if self.0.iter().all(|known| known.id != mark.producer) {
            if self.0.len() == LIMITS.producers_max as usize {
                self.0.remove(0);
            }
            self.0.push(ProducerState {
                id: mark.producer,
                epoch: mark.producer_epoch,
                last: 0,
                records: Vec::new(),
            });
        }
        let Some(known) = self.0.iter_mut().find(|known| known.id == mark.producer) else { return };
        if known.epoch != mark.producer_epoch {
            known.epoch = mark.producer_epoch;
            known.records.clear();
        }
        known.last = mark.producer_seq + count - 1;
        known.records.extend((0..count).map(|n| (mark.producer_seq + n, first_seq + n)));
        known.drop_old_ranges();
    }
}

impl ProducerState {
    /// If the producer has more ranges of consecutive records than the limit, drops the oldest ranges.
    fn drop_old_ranges(&mut self) {
        let follows = |pair: &[(u64, u64)]| (pair[0].0 + 1, pair[0].1 + 1) == pair[1];
        let begins: Vec<usize> =
            (1..self.records.len()).filter(|&at| !follows(&self.records[at - 1..=at])).collect();
        let ranges = begins.len() + 1;
        if let Some(dropped) = ranges.checked_sub(LIMITS.producer_outcomes_max as usize + 1) {
            self.records.drain(..begins[dropped]);
        }
    }
}
