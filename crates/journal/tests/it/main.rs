//! Tests of logs on a disk with injected faults.
//!
//! A test keeps the records that it appended, and knows which of them were acknowledged as synced. The log's records
//! are compared with these.

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
