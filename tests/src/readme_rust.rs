//! The program `readme-rust URL`: the README's Rust example of a subscription, which `build.rs` extracts.

include!(concat!(env!("OUT_DIR"), "/subscribe.rs"));
