//! The commands of `dunlin-bench`; their arguments are in `dunlin-cli`.

pub mod bench;
pub mod demo;
pub mod report;
pub mod scale;
