//! What a log promises, on a disk that tests can break.
//!
//! The truth of every test is what the test itself appended and what it was told was synced.

mod any_bytes;
mod ledger;
mod stage;

mod append;
mod crash;
mod damage;
mod full;
mod hostile;
mod keep;
mod layout;
mod real;
