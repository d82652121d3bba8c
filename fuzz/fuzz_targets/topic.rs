//! Any bytes as operations on a topic, four each: what comes of them is judged by a plain list.
#![no_main]

#[path = "../../crates/topic/tests/it/play.rs"]
mod play;
#[path = "../../crates/topic/tests/it/stage.rs"]
#[allow(dead_code, reason = "the other tests' stage too")]
mod stage;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    play::play(bytes.as_chunks().0.iter().map(|&bytes| play::Operation::from(bytes)))
});
