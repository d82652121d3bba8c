//! Ownership of regions by leases of the cluster, their standbys, and takeover when an owner is lost.
//!
//! ```text
//!  space/WORLD/world         what the world is (`description`)
//!  space/WORLD/process/N     {"address", "url", "memory"}   under N's lease; its copies of regions when it registers
//!  space/WORLD/region/R      {"process", "epoch"}         under its owner's lease
//!  space/WORLD/epoch/R       the newest epoch in which it was claimed
//!  space/WORLD/standby/R     {"process", "before", "epoch"}   written by the owner of this epoch alone; it stays when the owner is gone
//!  space/WORLD/began/R       once the region was begun
//!  space/WORLD/cut/0          {"version", "cuts"}           how the curve is cut; written by the owner of the first region, one after another
//!  space/WORLD/hold/0        while this key exists no process makes ticks; handovers finish
//! ```
//! A thread reads all these keys periodically, keeps the lease alive, and performs the actions of
//! [`plan`](plan::plan).
//!
//! Invariants:
//! - A region acts until its owner's lease is sure to last, and no longer, whatever this thread does.
//! - Whoever goes on in an owner's place has all that the owner counted as known: `standby` names it, or, while it has yet to
//!   begin (`before` is there), the one before it. Both are told everything then, and both are waited for once the new one has begun.
//! - A copy counts only for the owner, by its epoch, whose region it is: who stood by for an owner before has nothing to go on from.
//! - Where there is no other process a region goes on alone: `standby` names process 0 first, so that no copy from before counts.
//!   It stands still again before somebody is named, until that one has a copy.
//! - An answer that is lost changes nothing for long: what a turn did, and was not told to have done, the next one sees and goes on with.
//! - An epoch is higher than any before it: also where the cluster has lost its keys, since the epoch of its revisions is later then.
//! - An owner whose lease ran out keeps what its regions hold, and goes on with it while nobody else has claimed them: `epoch` says so.
//! - A cluster that has lost its keys is told them again by whoever took part. Of what processes have in memory then the latest epoch counts,
//!   and of one epoch its owner's; it goes on once as many processes have come back as are waited for, or the patience is over.
//! - Who has no copy that counts begins a region without entities, when nobody else has come for so long, and says so.

mod balance;
mod deeds;
mod keys;
mod plan;
mod registration;
mod thread;

pub use registration::process_number;
pub use thread::{Owners, OwnersConfig, Populate, TTL_MIN, Told};
