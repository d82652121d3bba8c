//! Stores a log on disk, repairs it after a crash, drops old records, saves snapshots, and verifies logs. The file
//! system is behind the interface [`Disk`], so that tests can inject faults.
//!
//! One directory holds one log. A log consists of files of bounded size, each with a header and blocks. Each commit
//! writes one block: a checksum and frames, which are the same as in memory and on the wire. `docs/journal.md` draws
//! the layout and defines the acknowledgement levels.
//!
//! # Writing
//! One thread calls a [`Journal`]. To commit several records, it calls [`append`](Journal::append) once and then
//! [`sync`](Journal::sync):
//!
//! ```
//! use std::{path::Path, sync::Arc};
//! use dunlin_frame::RecordMeta;
//! use dunlin_journal::{AppendBatch, FakeDisk, Journal, JournalConfig};
//!
//! let disk = Arc::new(FakeDisk::new(1)); // or RealDisk
//! let (mut journal, found) = Journal::open(disk, Path::new("/data/orders"), "orders", JournalConfig::default())?;
//! // After a clean end, the log continues in its epoch. For a new log, or after a crash, the caller chooses the epoch.
//! let epoch = found.next.epoch.max(1);
//! let mut frame = vec![0; 24];
//! let measured = RecordMeta::default().measure(3)?;
//! RecordMeta::default().encode(measured, 1_000, b"abc", &mut frame);
//! journal.append(&AppendBatch {
//!     epoch,
//!     first_seq: found.next.seq,
//!     count: 1,
//!     first_time_ns: 1_000,
//!     last_time_ns: 1_000,
//!     frames: &[&frame],
//! })?; // written: outlives the process
//! let durable = journal.sync()?; // synced: outlives the machine
//! assert_eq!(durable.unwrap().seq, 1);
//! journal.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`RecoveredLog`] reports the state at the start: the last record, the lowest possible next epoch, the removed
//!   bytes and the lost records.
//! - [`Journal::append_with_note`] also stores a note of the caller with the records; readers find it in
//!   [`Records::note`].
//! - [`Journal::reserve_room`] ensures room before records are numbered. After an error for which
//!   [`AppendError::allows_retry`] returns `true`, such as [`AppendError::Full`], the log is unchanged, and a retry may
//!   succeed. After any other failed write or sync of records, the log has ended.
//! - [`DiskReserve`] keeps room for the time when the disk is full. After [`Journal::end_file`], all files before the
//!   next record can be removed.
//! - [`Journal::retain`] and [`Journal::truncate_before`] drop whole files; [`Journal::save_snapshot`] saves a
//!   reducer's state.
//!
//! # Reading
//! [`Journal::reader`] makes a [`Reader`] for any thread. [`Reader::load`] loads records that are no longer in memory;
//! [`Reader::scan`] streams blocks; [`Reader::position_at`] finds the first record at or after a time. Readers deliver
//! only records that are on the disk, and a [`Hole`] for missing records.
//!
//! # Limits
//! See [`JournalLimits`] and [`JournalConfig`]. No length field in a file makes this crate allocate more than the
//! file's size.
//!
//! Not here: threads, clocks, topics, and the choice of epochs (`dunlin`).

mod disk;
mod error;
mod files;
mod layout;
mod limits;
mod measure;
mod position;
mod reader;
mod reserve;
mod scan;
mod snapshot;
mod survey;
mod verify;
mod writer;

pub use disk::{DirLock, Disk, DiskFile, FakeDisk, Faults, MemoryDisk, RealDisk, replace_file};
pub use error::{AppendError, DiskError, OpenError, ReadError, lacks_resource};
pub use layout::{BLOCK_ALIGN, BLOCK_HEADER_BYTES, FILE_HEADER_BYTES, FORMAT_VERSION};
pub use limits::{JournalConfig, JournalLimits};
pub use measure::{CommitLoad, DiskMeasurement, MeasureError, measure_commits, measure_replay};
pub use position::{Hole, HoleCause, Position};
pub use reader::{LoadOutcome, LoadedRecords, LogScan, Reader, Records, ScanItem};
pub use reserve::DiskReserve;
pub use snapshot::Snapshot;
pub use verify::{FileReport, JournalDefect, VerifyReport, verify};
pub use writer::{AppendBatch, Damage, Journal, RecoveredLog, TornTail};
