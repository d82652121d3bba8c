//! Any bytes as what a NATS client sends: understood, waited for or refused, never a panic.
#![no_main]

#[path = "../../crates/wire/tests/it/any_nats.rs"]
mod any_nats;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    any_nats::try_operations(bytes);
});
