//! `readme-rust URL`: the README's subscription in Rust, as `build.rs` finds it there.

include!(concat!(env!("OUT_DIR"), "/subscribe.rs"));
