//! Any bytes as what a client sends, and as what a node sends: understood or refused, never a panic.
#![no_main]

#[path = "../../crates/wire/tests/it/any_bytes.rs"]
mod any_bytes;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    any_bytes::try_messages(bytes);
});
