//! The log on disk: blocks of group commit, recovery, retention, snapshots and verification, behind a [`Disk`] that
//! tests can break.
//!
//! One directory holds one log: files of bounded size, each with a header and blocks; a block is what one commit wrote,
//! with a checksum over the very frames that lie in memory and go over the wire. `docs/journal.md` draws the bytes and
//! says what each acknowledgement means.
//!
//! # Writing
//! One thread drives a [`Journal`]; a commit of a group of records is one [`append`](Journal::append) and one
//! [`sync`](Journal::sync):
//!
//! ```
//! use std::{path::Path, sync::Arc};
//! use dunlin_frame::Meta;
//! use dunlin_journal::{Batch, Config, FakeDisk, Journal};
//!
//! let disk = Arc::new(FakeDisk::new(1)); // or RealDisk
//! let (mut journal, found) = Journal::open(disk, Path::new("/data/orders"), "orders", Config::default())?;
//! // A clean end goes on in its epoch; a new log, or one that a crash ended, in the one the caller chooses.
//! let epoch = found.next.epoch.max(1);
//! let mut frame = vec![0; 24];
//! let measured = Meta::default().measure(3)?;
//! Meta::default().encode(measured, 1_000, b"abc", &mut frame);
//! journal.append(&Batch {
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
//! - [`Recovered`] says what was found: `last`, `clean`, the least epoch that may follow, what was cut, what is lost.
//! - [`Journal::append_noted`] writes a note of the caller's beside the records, which readers find in [`Records::note`].
//! - [`Journal::room`] makes sure that so much can be written, before records are numbered; [`AppendError::Full`] means
//!   that nothing was changed and that it may be tried again. After any other failure of the disk the log has ended.
//! - [`Reserve`] keeps room free that a log on a full disk can give up; [`Journal::end_file`] lets the files before the next
//!   record be dropped.
//! - [`Journal::retain`] and [`Journal::truncate_before`] drop whole files; [`Journal::save_snapshot`] keeps a fold's state.
//!
//! # Reading
//! [`Journal::reader`] gives a [`Reader`] for any thread. [`Reader::load`] answers a reader that stands below what
//! memory holds; [`Reader::scan`] streams blocks, for replay and for the start; [`Reader::position_at`] finds a time.
//! Both give records only as far as they are on the disk, and a [`Hole`] where something is missing.
//!
//! # Limits
//! See [`Limits`] and [`Config`]. No length in a file makes this crate allocate more than the file holds.
//!
//! Not here: threads, clocks, what a topic is; who decides on epochs (`dunlin`).

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

pub use disk::{DirLock, Disk, DiskFile, FakeDisk, Faults, MemoryDisk, RealDisk};
pub use error::{AppendError, DiskError, OpenError, ReadError};
pub use layout::{BLOCK_ALIGN, BLOCK_HEADER_BYTES, FILE_HEADER_BYTES, FORMAT_VERSION};
pub use limits::{Config, Limits};
pub use measure::{Load, MeasureError, Measured, measure_commits, measure_replay};
pub use position::{Hole, HoleCause, Position};
pub use reader::{Item, Loaded, LoadedRecords, Reader, Records, Scan};
pub use reserve::Reserve;
pub use snapshot::Snapshot;
pub use verify::{FileReport, Problem, Report, verify};
pub use writer::{Batch, Cut, Damage, Journal, Recovered};
