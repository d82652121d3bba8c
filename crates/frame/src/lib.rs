//! The bytes of a record: one layout for memory, wire and disk.
//!
//! A **frame** is one record; a **run** is a header and the frames of consecutive records of one
//! log. Frames lie 8-aligned, one after another, and hold no topic, no sequence and no checksum,
//! so the bytes a publisher sends are the bytes a subscriber gets.
//!
//! Invariants:
//! - [`Frame::check`] is the only way foreign bytes become frames; whatever it accepts, every
//!   accessor of [`Frame`] reads without a panic.
//! - Nothing here allocates, and nothing here copies more than the bytes it was asked to encode.
//!
//! Not here: who may append ([topic](https://docs.rs/dunlin-topic)), messages between processes
//! (`wire`), checksums (blocks of the journal carry those).

mod check;
mod encode;
mod error;
mod frame;
mod run;

pub use encode::{Encoded, Meta};
pub use error::FrameError;
pub use frame::{
    APPEND_TIME_AT, FLAG_BY_REF, FLAG_EVENT_TIME, FLAG_EXPIRES, FLAG_HEADERS, FLAG_KEY, FLAG_REPLY,
    FLAG_SUBJECT, FRAME_ALIGN, Frame, HEAD_BYTES, Headers, KIND_RECORD, META_BYTES_MIN, padded,
};
pub use run::{RUN_HEADER_BYTES, RunHeader};
