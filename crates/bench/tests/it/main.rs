//! Tests of the benchmarks with real processes: tiny runs of all measurements that need no installed peer.

mod broker;
mod children;
mod control;
mod feed;
mod program;
mod runs;
mod space;
mod tasks;
