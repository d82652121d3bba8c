//! Tests of logs on a disk with injected faults.
//!
//! A test remembers which records it has appended and which of them were acknowledged as synced, and compares the log's
//! content with these.

mod any_bytes;
mod fixture;
mod ledger;

mod append;
mod crash;
mod damage;
mod full;
mod hostile;
mod layout;
mod real;
mod retention;
