//! Writes the recent changes of keys into a snapshot, in addition to the state. Watches can therefore continue at a
//! node that was restored from the snapshot.
//!
//! ```text
//!  block = VERSION u8, KIND u8, epoch u32, first revision u64, changes
//!  change = length in bytes u32, bytes
//! ```
//! Integers are little-endian. In a snapshot, these blocks follow the blocks of the state
//! ([`dunlin_control::FrozenControlState`]), which have another `KIND`. Nodes hold different numbers of changes, and
//! may write different blocks.

use std::io;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes};
use dunlin_control::Change;
use dunlin_topic::{
    ConsumeMode, Cursor, Log, OnGap, Position, ReadOutcome, Start, SubscribeOptions, WaitStrategy,
};

const VERSION: u8 = 1;
const KIND: u8 = 6;
/// The approximate size of a block in bytes. A block with one large change may be larger.
const BLOCK_BYTES: usize = 64 << 10;
/// The maximum size of a change in a snapshot, in bytes. A limit is needed because a block is one journal record. If a
/// change is larger, the snapshot contains neither this change nor the changes before it.
const CHANGE_BYTES_MAX: usize = 8 << 20;

/// The changes of keys up to the position `last`, for a snapshot. While the snapshot is written, the log may drop the
/// oldest of these changes; the snapshot then lacks them.
#[derive(Debug)]
pub(in crate::control) struct PastChanges {
    log: Arc<Log>,
    last: Position,
}

impl PastChanges {
    pub(super) fn of(log: Arc<Log>, last: Position) -> PastChanges {
        PastChanges { log, last }
    }

    /// Passes the blocks to `write_block` one by one. Stops at the first error, and returns it.
    pub(in crate::control) fn write(
        &self,
        write_block: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let options = SubscribeOptions {
            start: Start::Earliest,
            on_gap: OnGap::Oldest,
            wait: WaitStrategy::Parked,
            ..SubscribeOptions::default()
        };
        let cursor = Cursor::new(Arc::clone(&self.log), &options, None, ConsumeMode::Reads);
        // If a cursor cannot be created, the snapshot contains no changes.
        let Ok(mut cursor) = cursor else { return Ok(()) };
        let mut block = Block::default();
        while cursor.next() <= self.last {
            match cursor.fill() {
                ReadOutcome::Records => {
                    let mut written = Ok(());
                    cursor.drain(usize::MAX, |record| {
                        if written.is_ok() && record.position <= self.last {
                            written = block.push(record.position, record.payload(), write_block);
                        }
                    });
                    written?;
                }
                ReadOutcome::Notice(_) | ReadOutcome::Skipped => {}
                ReadOutcome::Empty | ReadOutcome::Closed => break,
            }
        }
        block.end(write_block)
    }
}

/// A block that is being written.
#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    next: Position,
}

impl Block {
    fn push(
        &mut self,
        at: Position,
        change: &[u8],
        write_block: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        if change.len() > CHANGE_BYTES_MAX {
            return self.end(write_block);
        }
        if at != self.next || self.bytes.len() + change.len() > BLOCK_BYTES {
            self.end(write_block)?;
        }
        if self.bytes.is_empty() {
            self.bytes.extend_from_slice(&[VERSION, KIND]);
            self.bytes.put_u32_le(at.epoch);
            self.bytes.put_u64_le(at.seq);
        }
        self.bytes.put_u32_le(change.len() as u32);
        self.bytes.extend_from_slice(change);
        self.next = Position { seq: at.seq + 1, ..at };
        Ok(())
    }

    fn end(&mut self, write_block: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        if !self.bytes.is_empty() {
            write_block(&self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}

/// Whether a block of a snapshot contains changes.
pub(in crate::control) fn is_past(block: &[u8]) -> bool {
    block.starts_with(&[VERSION, KIND])
}

/// Returns the changes of `epoch` in these blocks. If changes in the middle are missing, returns only the changes after
/// the last missing one.
pub(super) fn changes(epoch: u32, blocks: &[Bytes]) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    for mut block in blocks.iter().cloned() {
        block.advance(2);
        let (Ok(block_epoch), Ok(mut revision)) = (block.try_get_u32_le(), block.try_get_u64_le()) else {
            continue;
        };
        let joins = changes.last().is_none_or(|last| last.revision + 1 == revision);
        if block_epoch != epoch || !joins {
            changes.clear();
        }
        if block_epoch != epoch {
            continue;
        }
        while let Ok(len) = block.try_get_u32_le() {
            if len as usize > block.len() {
                break;
            }
            changes.push(Change { revision, bytes: block.split_to(len as usize).into() });
            revision += 1;
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(changes: &[(u32, u64, &[u8])]) -> Vec<Bytes> {
        let (mut blocks, mut block) = (Vec::new(), Block::default());
        let mut write_block = |bytes: &[u8]| {
            blocks.push(Bytes::copy_from_slice(bytes));
            Ok(())
        };
        for (epoch, seq, change) in changes {
            block.push(Position { epoch: *epoch, seq: *seq }, change, &mut write_block).unwrap();
        }
        block.end(&mut write_block).unwrap();
        blocks
    }

    fn revisions(epoch: u32, blocks: &[Bytes]) -> Vec<u64> {
        changes(epoch, blocks).iter().map(|change| change.revision).collect()
    }

    #[test]
    fn changes_written_to_blocks_are_read_back_equal() {
        let large = vec![7; BLOCK_BYTES];
        let written = blocks(&[(3, 1, b"one"), (3, 2, &large), (3, 3, b"")]);
        assert!(written.len() > 1 && written.iter().all(|block| is_past(block)));
        let read = changes(3, &written);
        let expected = [(1, b"one".to_vec()), (2, large), (3, Vec::new())];
        assert!(read.iter().map(|change| (change.revision, change.bytes.clone())).eq(expected));
    }

    #[test]
    fn key_history_omits_changes_before_a_missing_one() {
        assert_eq!(revisions(3, &blocks(&[(3, 1, b"1"), (3, 3, b"3"), (3, 4, b"4")])), [3, 4]);
        assert_eq!(revisions(4, &blocks(&[(3, 1, b"1"), (4, 2, b"2")])), [2]);
        assert!(revisions(3, &blocks(&[(3, 1, b"1"), (4, 2, b"2")])).is_empty());
        let long = vec![0; CHANGE_BYTES_MAX + 1];
        assert_eq!(revisions(3, &blocks(&[(3, 1, b"1"), (3, 2, &long), (3, 3, b"3")])), [3]);
    }

    #[test]
    fn truncated_block_yields_only_complete_changes() {
        let block = blocks(&[(3, 1, b"one"), (3, 2, b"two")]).remove(0);
        for bytes in 2..block.len() {
            assert!(changes(3, &[block.slice(..bytes)]).len() < 2);
        }
    }
}
