//! Reads arbitrary bytes as messages of a NATS client. The code must parse the bytes, wait for more, or refuse them. It
//! must never panic.
#![no_main]

#[path = "../../crates/wire/tests/it/any_nats.rs"]
mod any_nats;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    any_nats::try_operations(bytes);
});
