//! Defines the byte layout of records, which is the same in memory, on the wire and on disk.
//!
//! A **frame** is one record; a **batch** is a header and the frames of consecutive records of one log. Frames are
//! 8-byte aligned. Frames hold no topic, sequence number or checksum, so subscribers receive the same bytes that
//! publishers send.
//!
//! Invariants:
//! - [`Frame::check`] is the only way to turn foreign bytes into frames. No accessor of [`Frame`] panics on bytes that
//!   `check` accepted.
//! - Only [`Frame::append_to`] allocates, for its output. Nothing is copied except the encoded bytes.
//!
//! The crate also formats durations for people, because all crates with texts about durations can use it.
//!
//! Other crates append records to logs ([topic](https://docs.rs/dunlin-topic)), define the messages between processes
//! (`wire`), and compute checksums (`journal`).

mod batch;
mod check;
mod duration;
mod encode;
mod error;
mod frame;

pub use batch::{BATCH_HEADER_BYTES, BatchHeader};
pub use duration::format_duration;
pub use encode::{FrameLayout, RecordMeta};
pub use error::FrameError;
pub use frame::{
    APPEND_TIME_AT, FLAG_BY_REF, FLAG_EVENT_TIME, FLAG_EXPIRES, FLAG_HEADERS, FLAG_KEY, FLAG_REPLY,
    FLAG_SUBJECT, FRAME_ALIGN, Frame, HEAD_BYTES, Headers, KIND_RECORD, META_BYTES_MIN, padded,
};
