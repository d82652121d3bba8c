//! The layout is a promise: it is kept in files, and anything foreign is refused without a panic.

mod any_bytes;
mod golden;
mod hostile;
mod round_trip;
