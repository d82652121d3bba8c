//! What each command does; its arguments are in `dunlin-cli`.

pub mod bench;
pub mod demo;
pub mod report;
