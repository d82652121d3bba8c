//! Reads arbitrary bytes as operations of publishers, subscribers, producers and group members on a topic. Each
//! operation takes four bytes. A simple model checks the results.
#![no_main]

#[path = "../../crates/topic/tests/it"]
mod it {
    pub mod play;
    #[allow(dead_code, reason = "other tests use the rest")]
    pub mod fixture;
}

use it::{fixture, play};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    play::play(bytes.as_chunks().0.iter().map(|&bytes| play::Operation::from(bytes)))
});
