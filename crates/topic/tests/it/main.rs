//! Tests of topics through their public interface.
//!
//! The records that a subscriber must receive follow from the publishers' calls, and are never read from the log. The
//! tests provoke faults with short histories (64 KiB), slow subscribers, small budgets, and threads that sleep at the
//! worst moment.

mod disk;
mod fixture;
mod play;
mod slot_values;

mod batches;
mod by_ref;
mod crowd;
mod durable;
mod gaps;
mod info;
mod many;
mod memory;
mod mirror;
mod model;
mod order;
mod reliable;
mod retention;
mod skipping;
mod start;
mod stateful;
mod subject_sleep;
mod twin;
mod waking;
