//! `readme-rust URL`: the README's subscription in Rust, extracted by `build.rs`.

include!(concat!(env!("OUT_DIR"), "/subscribe.rs"));
