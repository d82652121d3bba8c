//! Loads records from a log's files, after the records have left memory.

use super::{LogScan, Reader, ScanItem};
use crate::error::ReadError;
use crate::position::{Hole, Position};

/// The result of loading from a position: records, or a range of records that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadOutcome {
    /// The records from the position on.
    Records(LoadedRecords),
    /// The records from the position to the end of the hole cannot be read.
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
    /// The validated frames.
    pub frames: Vec<u8>,
}

impl Reader {
    /// Loads records from a position: whole blocks of one epoch up to about `bytes_max` bytes, at least one block.
    ///
    /// Returns `None` if there is no record at or after the position. If the position's epoch has no further records,
    /// the first record is of a later epoch.
    ///
    /// # Errors
    /// [`ReadError::Gone`] if the position is before the oldest record.
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
        // Records may have been dropped after the scan began.
        match self.oldest() {
            Some(oldest) if from < oldest && Position::new(loaded.epoch, loaded.first_seq) > from => {
                Err(ReadError::Gone { position: from, oldest })
            }
            _ => Ok((loaded.count > 0).then_some(LoadOutcome::Records(loaded))),
        }
    }
}
