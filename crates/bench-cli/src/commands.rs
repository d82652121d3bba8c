//! Runs the commands of the program `dunlin-bench`. The crate `dunlin-cli` parses the commands' arguments.

pub mod bench;
pub mod demo;
pub mod report;
pub mod scale;
