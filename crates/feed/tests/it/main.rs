//! Tests of the reducers through the crate's public interface.
//!
//! The results are compared with oracles: simple models in `model.rs` that receive the same entries, and have no
//! checksums, merged records or snapshots. `cuts.rs` tests how a copy of a state, of any kind, catches up with later
//! records.

#[path = "../../../topic/tests/it/slot_values.rs"]
mod slot_values;

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
