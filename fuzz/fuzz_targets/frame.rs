//! Reads arbitrary bytes as a frame and as a batch header. The code must accept the bytes or refuse them. It must never
//! panic.
#![no_main]

#[path = "../../crates/frame/tests/it/any_bytes.rs"]
mod any_bytes;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| any_bytes::try_frame(bytes));
