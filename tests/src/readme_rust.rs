//! The program `readme-rust URL`: the Rust example program of the README, which subscribes to a topic. `build.rs`
//! extracts this program.

include!(concat!(env!("OUT_DIR"), "/subscribe.rs"));
