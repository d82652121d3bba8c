//! Tests of the benchmarks with real processes. They make tiny runs of all measurements that need no other system.

mod broker;
mod children;
mod control;
mod feed;
mod program;
mod runs;
mod space;
mod tasks;
