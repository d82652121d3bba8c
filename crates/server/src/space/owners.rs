//! Who owns which region, by leases of the cluster; who stands by for it; and what happens when somebody is gone.
//!
//! ```text
//!  space/WORLD/process/N     {"address", "url"}           under N's lease
//!  space/WORLD/region/R      {"process"}                  under its owner's lease; the revision that created it is the epoch
//!  space/WORLD/standby/R     {"process", "before", "epoch"}   written by the owner of this epoch alone; it stays when the owner is gone
//!  space/WORLD/began/R       once the region was begun
//!  space/WORLD/cut/0          {"version", "cuts"}           how the curve is cut; written by the owner of the first region, one after another
//!  space/WORLD/hold/0        while it is there nobody makes ticks; hand-overs come to their end
//! ```
//! A thread looks at all of it again and again, keeps the lease alive, and does what [`plan`](plan::plan) says.
//!
//! Invariants:
//! - A region acts until its owner's lease is sure to last, and no longer, whatever this thread does.
//! - Whoever goes on in an owner's place has all that the owner counted as known: `standby` names it, or, while it has yet to
//!   begin (`before` is there), the one before it. Both are told everything then, and both are waited for once the new one has begun.
//! - A copy counts only for the owner, by its epoch, whose region it is: who stood by for an owner before has nothing to go on from.
//! - Where there is no other process a region goes on alone: `standby` names process 0 first, so that no copy from before counts.
//!   It stands still again before somebody is named, until that one has a copy.
//! - An answer that is lost changes nothing for long: what a turn did, and was not told to have done, the next one sees and goes on with.
//! - Who has no copy that counts begins a region without entities, when nobody else has come for so long, and says so.

mod balance;
mod keys;
mod plan;
mod thread;

pub use thread::{Owners, OwnersConfig, Populate, Told};
