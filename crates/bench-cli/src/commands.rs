//! The commands. Their arguments are in `dunlin-cli`.

pub mod bench;
pub mod demo;
pub mod report;
pub mod scale;
