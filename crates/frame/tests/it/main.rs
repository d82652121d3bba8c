//! Tests of the stored layout: it never changes, and foreign bytes are refused without a panic.

mod any_bytes;
mod golden;
mod hostile;
mod round_trip;
