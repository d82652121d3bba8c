//! Tests of logs on a disk with injected faults.
//!
//! The expected records are those that the test appended and that were acknowledged as synced.

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
