//! Reads arbitrary bytes as messages of a client and as messages of a node. The code must parse the bytes or refuse
//! them. It must never panic.
#![no_main]

#[path = "../../crates/wire/tests/it/any_bytes.rs"]
mod any_bytes;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    any_bytes::try_messages(bytes);
});
