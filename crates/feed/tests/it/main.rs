//! Tests of the reducers through the crate's public interface.
//!
//! The oracles are simple models on `BTreeMap`s (`model.rs`) that receive the same entries. They have no checksums,
//! merged changes or snapshots. `cuts.rs` cuts the records of any reducer at every record.

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
