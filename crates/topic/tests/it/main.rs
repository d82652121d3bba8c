//! What a topic promises, kept over its public interface.
//!
//! The truth of every test is the publisher's own ledger, never what the log says of itself. Faults are small
//! histories (64 KiB), slow readers, small budgets and threads that go to sleep at the worst moment.

mod board;
mod disk;
mod play;
mod stage;

mod batches;
mod by_ref;
mod crowd;
mod durable;
mod gaps;
mod many;
mod memory;
mod mirror;
mod model;
mod narrow;
mod order;
mod reading;
mod reliable;
mod retention;
mod start;
mod stateful;
mod twin;
mod waking;
