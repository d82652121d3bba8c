//! Any bytes as a frame, and as a run's header: sound or refused, never a panic.
#![no_main]

#[path = "../../crates/frame/tests/it/any_bytes.rs"]
mod any_bytes;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| any_bytes::try_frame(bytes));
