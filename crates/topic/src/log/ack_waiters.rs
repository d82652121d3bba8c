//! The publishers that wait until a durable log has written or synced their records.
//!
//! A publisher waits with a [`Waiter`] and a token. For each waiter and token, at most two records are kept: the
//! earliest one whose write is awaited, and the earliest one whose sync is awaited. One thread may wait for tens of
//! thousands of records, with a waiter for each record. The time to add, find or remove a waiter therefore grows only
//! with the logarithm of the number of waiters.
//!
//! Invariant: each entry of `seqs` has exactly one entry with the same sequence number in `written` or `synced`. The
//! entry in `written` or `synced` keeps the waiter alive, so that no other waiter can have the same address.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use crate::publish::AckLevel;
use crate::wake::Waiter;

/// A waiter's address, its token, and whether a write (`true`) or a sync (`false`) of a record is awaited.
type WaiterKey = (usize, u32, bool);

/// A record's sequence number, and the address and the token of the waiter that waits for the record.
type RecordKey = (u64, usize, u32);

#[derive(Debug, Default)]
pub(super) struct AckWaiters {
    /// The sequence number of the earliest awaited record, for each key.
    seqs: BTreeMap<WaiterKey, u64>,
    written: BTreeMap<RecordKey, Arc<Waiter>>,
    /// The waiters for records that must be synced: those of all acknowledgement levels above [`AckLevel::Written`].
    synced: BTreeMap<RecordKey, Arc<Waiter>>,
}

impl AckWaiters {
    /// Adds a waiter for record `seq`, which must reach `level`. If the waiter already waits with the same token for a
    /// record at this level, only the earlier of the two records is kept.
    pub(super) fn add(&mut self, waiter: &Arc<Waiter>, token: u32, level: AckLevel, seq: u64) {
        let AckWaiters { seqs, written, synced } = self;
        let (address, is_written) = (address(waiter), level == AckLevel::Written);
        let by_record = if is_written { written } else { synced };
        match seqs.entry((address, token, is_written)) {
            Entry::Occupied(earliest) if *earliest.get() <= seq => return,
            Entry::Occupied(mut earliest) => {
                let later = earliest.insert(seq);
                by_record.remove(&(later, address, token));
            }
            Entry::Vacant(vacant) => {
                vacant.insert(seq);
            }
        }
        by_record.insert((seq, address, token), Arc::clone(waiter));
    }

    /// Removes the waiters that wait until a record up to `written` is written, or until a record up to `synced` is
    /// synced. Returns them with their tokens.
    pub(super) fn take_reached(&mut self, written: u64, synced: u64) -> Vec<(Arc<Waiter>, u32)> {
        let mut reached = Vec::new();
        for (by_record, is_written, through) in
            [(&mut self.written, true, written), (&mut self.synced, false, synced)]
        {
            while let Some(first) = by_record.first_entry().filter(|first| first.key().0 <= through) {
                let ((_, address, token), waiter) = first.remove_entry();
                self.seqs.remove(&(address, token, is_written));
                reached.push((waiter, token));
            }
        }
        reached
    }

    /// Removes all entries of a waiter, whatever their tokens.
    pub(super) fn remove(&mut self, waiter: &Arc<Waiter>) {
        let AckWaiters { seqs, written, synced } = self;
        let address = address(waiter);
        let of_waiter = (address, 0, false)..=(address, u32::MAX, true);
        for ((_, token, is_written), seq) in seqs.extract_if(of_waiter, |_, _| true) {
            let by_record = if is_written { &mut *written } else { &mut *synced };
            by_record.remove(&(seq, address, token));
        }
    }
}

fn address(waiter: &Arc<Waiter>) -> usize {
    Arc::as_ptr(waiter).addr()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An entry of a plain list: the waiter's index, its token, whether a write is awaited instead of a sync, and the
    /// record's sequence number.
    type Plain = (usize, u32, bool, u64);

    proptest! {
        #[test]
        fn list_of_ack_waiters_behaves_like_a_plain_list(
            steps in prop::collection::vec((0..8_u8, 0..4_usize, 0..3_u32, any::<bool>(), 0..40_u64), 1..200),
        ) {
            let waiters: Vec<_> = (0..4).map(|_| Waiter::new()).collect();
            let (mut indexed, mut plain) = (AckWaiters::default(), Vec::<Plain>::new());
            for (step, index, token, is_written, seq) in steps {
                match step {
                    0..5 => {
                        let level = if is_written { AckLevel::Written } else { AckLevel::Synced };
                        indexed.add(&waiters[index], token, level, seq);
                        let is_same = |known: &&mut Plain| (known.0, known.1, known.2) == (index, token, is_written);
                        match plain.iter_mut().find(is_same) {
                            Some(known) => known.3 = known.3.min(seq),
                            None => plain.push((index, token, is_written, seq)),
                        }
                    }
                    5..7 => {
                        let (written, synced) = (seq + u64::from(token), seq);
                        let taken = indexed.take_reached(written, synced).into_iter().map(|(waiter, token)| {
                            (waiters.iter().position(|other| Arc::ptr_eq(other, &waiter)), token)
                        });
                        let is_reached =
                            |known: &mut Plain| known.3 <= if known.2 { written } else { synced };
                        let expected =
                            plain.extract_if(.., is_reached).map(|known| (Some(known.0), known.1));
                        let (mut taken, mut expected): (Vec<_>, Vec<_>) = (taken.collect(), expected.collect());
                        taken.sort_unstable();
                        expected.sort_unstable();
                        prop_assert_eq!(taken, expected);
                    }
                    _ => {
                        indexed.remove(&waiters[index]);
                        plain.retain(|known| known.0 != index);
                    }
                }
                prop_assert_eq!(indexed.seqs.len(), plain.len());
                prop_assert_eq!(indexed.written.len() + indexed.synced.len(), plain.len());
            }
        }
    }
}
