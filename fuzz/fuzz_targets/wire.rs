//! Reads any bytes as messages of a client and as messages of a node. The code must parse or refuse them
//! without a panic.
#![no_main]

#[path = "../../crates/wire/tests/it/any_bytes.rs"]
mod any_bytes;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    any_bytes::try_messages(bytes);
});
