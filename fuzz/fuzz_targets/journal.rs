//! Reads arbitrary bytes as the files of a log. The code must read, recover or refuse the files without a panic.
#![no_main]

#[path = "../../crates/journal/tests/it/any_bytes.rs"]
mod any_bytes;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| any_bytes::try_log(bytes));
