//! The commands of `dunlin-bench`. The crate `dunlin-cli` parses their arguments.

pub mod bench;
pub mod demo;
pub mod report;
pub mod scale;
