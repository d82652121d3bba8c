//! The program `dunlin-bench` as `dunlin` starts it.

mod demo;
mod program;
mod report;
mod scale;
mod world;
