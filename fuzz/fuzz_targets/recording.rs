//! Reads arbitrary bytes as a recording and as a file of instruments. The code must return valid records, or refuse the
//! bytes. It must never panic.
#![no_main]

#[path = "../../crates/feed/tests/it/any_file.rs"]
mod any_file;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    any_file::try_recording(bytes);
    any_file::try_instruments(bytes);
});
