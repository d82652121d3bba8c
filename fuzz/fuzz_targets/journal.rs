//! Any bytes as the files of a log: read, recovered or refused, never a panic.
#![no_main]

#[path = "../../crates/journal/tests/it/any_bytes.rs"]
mod any_bytes;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| any_bytes::try_log(bytes));
