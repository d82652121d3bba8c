//! Loads records from a log's files, after they have left memory.

use super::{LogScan, Reader, ScanItem};
use crate::error::ReadError;
use crate::position::{Hole, Position};

/// The result of loading records from a position: either records, or a range of records that can no longer be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadOutcome {
    /// The first records at or after the position.
    Records(LoadedRecords),
    /// The first records at or after the position are in this range, and can no longer be read.
    Hole(Hole),
}

/// Consecutive records of one epoch, loaded from disk.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadedRecords {
    /// The records' epoch.
    pub epoch: u32,
    /// Sequence number of the first record.
    pub first_seq: u64,
    /// Number of records.
    pub count: u32,
    /// Time at which the first record was appended, ns since 1970.
    pub first_time_ns: u64,
    /// Time at which the last record was appended, ns since 1970.
    pub last_time_ns: u64,
    /// The records' frames, which were validated.
    pub frames: Vec<u8>,
}

impl Reader {
    /// Loads the records from position `from` on: complete blocks of one epoch, up to about `bytes_max` bytes, but at
    /// least one block.
    ///
    /// Returns `None` if there is no record at or after `from`. If the epoch of `from` has no more records, the records
    /// are from a later epoch.
    ///
    /// # Errors
    /// Returns [`ReadError::Gone`] if `from` is before the oldest record.
    pub fn load(&self, from: Position, bytes_max: usize) -> Result<Option<LoadOutcome>, ReadError> {
        let Some(oldest) = self.oldest() else { return Ok(None) };
        if from < oldest {
            return Err(ReadError::Gone { position: from, oldest });
        }
        let mut scan = LogScan::of_bytes(self.shared.clone(), from, bytes_max);
        let mut loaded = LoadedRecords::default();
        while let Some(item) = scan.next()? {
            let records = match item {
                ScanItem::Hole(hole) if loaded.count == 0 => return Ok(Some(LoadOutcome::Hole(hole))),
                ScanItem::Hole(_) => break,
                ScanItem::Records(records) => records,
            };
            if loaded.count == 0 {
                loaded.epoch = records.epoch;
                loaded.first_seq = records.first_seq;
                loaded.first_time_ns = records.first_time_ns;
            } else if records.epoch != loaded.epoch || loaded.frames.len() + records.frames.len() > bytes_max
            {
                break;
            }
            loaded.count += records.count;
            loaded.last_time_ns = records.last_time_ns;
            loaded.frames.extend_from_slice(records.frames);
            if loaded.frames.len() >= bytes_max {
                break;
            }
        }
        // Retention may have dropped records since the scan began.
        match self.oldest() {
            Some(oldest) if from < oldest && Position::new(loaded.epoch, loaded.first_seq) > from => {
                Err(ReadError::Gone { position: from, oldest })
            }
            _ => Ok((loaded.count > 0).then_some(LoadOutcome::Records(loaded))),
        }
    }
}
