//! What the folds promise, kept over their public interface.
//!
//! The oracles are naive models on `BTreeMap`s (`model.rs`), told the same entries; they know nothing of checksums, changes
//! or snapshots. `cuts.rs` takes any fold apart at every record and puts it together again.

#[path = "../../../topic/tests/it/board.rs"]
mod board;

mod any_bytes;
mod any_file;
mod book;
mod book_replicas;
mod cuts;
mod instruments;
mod kinds;
mod last_value;
mod model;
mod orders;
mod payloads;
mod real;
mod real_books;
mod record;
mod recordings;
mod replicas;
mod schedule;
mod simulator;
mod snapshots;
