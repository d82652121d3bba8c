//! Tests of the program `dunlin-bench`.

mod demo;
mod program;
mod report;
mod scale;
mod world;
