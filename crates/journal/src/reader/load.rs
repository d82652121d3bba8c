//! Loads a stretch of old records, to serve readers that stand below what memory holds.

use super::{Item, Reader, Scan};
use crate::error::ReadError;
use crate::position::{Hole, Position};

/// What a stretch of the log holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loaded {
    /// Records.
    Records(LoadedRecords),
    /// The records from the position on cannot be read, up to the end of the hole.
    Hole(Hole),
}

/// Consecutive records of one epoch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadedRecords {
    /// Their epoch.
    pub epoch: u32,
    /// The sequence of the first.
    pub first_seq: u64,
    /// How many.
    pub count: u32,
    /// When the first was appended.
    pub first_time_ns: u64,
    /// When the last was appended.
    pub last_time_ns: u64,
    /// Their frames, checked.
    pub frames: Vec<u8>,
}

impl Reader {
    /// The records from a position on: whole blocks of one epoch until `bytes_max` is reached, at least one block.
    ///
    /// `None` where nothing is on the disk at or behind the position. A position below what is held is
    /// [`ReadError::Gone`]. The first record may be of a later epoch, where that of the position has no more.
    pub fn load(&self, from: Position, bytes_max: usize) -> Result<Option<Loaded>, ReadError> {
        let Some(oldest) = self.oldest() else { return Ok(None) };
        if from < oldest {
            return Err(ReadError::Gone { position: from, oldest });
        }
        let mut scan = Scan::of_bytes(self.shared.clone(), from, bytes_max);
        let mut loaded = LoadedRecords::default();
        while let Some(item) = scan.next()? {
            let records = match item {
                Item::Hole(hole) if loaded.count == 0 => return Ok(Some(Loaded::Hole(hole))),
                Item::Hole(_) => break,
                Item::Records(records) => records,
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
        // What was there when the scan began may have been dropped before it came to it.
        match self.oldest() {
            Some(oldest) if from < oldest && Position::new(loaded.epoch, loaded.first_seq) > from => {
                Err(ReadError::Gone { position: from, oldest })
            }
            _ => Ok((loaded.count > 0).then_some(Loaded::Records(loaded))),
        }
    }
}
