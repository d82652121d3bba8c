//! Reads arbitrary bytes as records and snapshots of books and last values. The code must accept or refuse the bytes
//! without a panic.
#![no_main]

#[path = "../../crates/feed/tests/it/any_bytes.rs"]
mod any_bytes;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| any_bytes::try_states(bytes));
