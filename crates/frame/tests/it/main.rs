//! Tests of the byte layout of records: the layout never changes, and invalid bytes are refused without a panic.

mod any_bytes;
mod golden;
mod hostile;
mod round_trip;
