//! Assigns the regions of a world to processes: ownership by leases of the cluster, standbys, and takeover when an
//! owner is lost.
//!
//! ```text
//!  space/WORLD/world         the world's description (`description`)
//!  space/WORLD/process/N     {"address", "url", "memory", "settings"}   under N's lease; memory: regions whose state
//!                            N has; settings: {"processes", "standby", "recipe"}, missing for earlier versions
//!  space/WORLD/region/R      {"process", "epoch"}         under its owner's lease
//!  space/WORLD/epoch/R       the newest epoch in which the region was claimed
//!  space/WORLD/standby/R     {"process", "before", "epoch"}   written by the owner of this epoch; remains afterwards
//!  space/WORLD/began/R       exists once the region has begun
//!  space/WORLD/cut/0          {"version", "cuts"}         the curve's partition, written by the first region's owner
//!  space/WORLD/hold/0        while this key exists, no process makes ticks; handovers finish
//!  space-secret/WORLD        the secret that admits a process, written by the first process
//! ```
//! A user who may only read `space/WORLD/*` can watch the world, but not control it.
//!
//! A thread reads all these keys periodically, keeps the lease alive, and performs the actions of
//! [`plan`](plan::plan).
//!
//! Invariants:
//! - A region changes only while its owner's lease has certainly not ended, even if this thread stalls.
//! - The standby that takes over has everything that the owner counted as confirmed. `standby` names it;
//!   while a new standby has yet to begin (`before` is set), the previous one counts. Both standbys receive
//!   everything, and the owner waits for both once the new one has begun.
//! - A copy counts only for the owner whose epoch it has: a standby of an earlier owner cannot take over.
//! - If there is no other process, a region continues alone. Its owner first writes process 0 to the key `standby`, so
//!   that no older copy counts. If the owner names a standby later, the region stops before this write, until the
//!   standby has a copy.
//! - A lost response does no lasting harm: the next turn reads from the keys which writes of the last turn succeeded,
//!   and continues from there.
//! - Epochs only grow, even if the cluster has lost its keys. After such a loss, epochs continue from the cluster's
//!   epoch of revisions, which is higher.
//! - An owner whose lease expired keeps its regions' state, and continues unless another process has claimed them,
//!   which `epoch` shows.
//! - After the cluster has lost its keys, its processes write them again. Of the states in memory, the one with the
//!   highest epoch counts; within one epoch, the owner's state counts. A region continues once the expected processes
//!   are back, or the waiting time (`patience`) is over.
//! - If no copy counts and no process with a copy returns in time, a region begins without entities, and the loss is
//!   reported.

mod actions;
mod balance;
mod keys;
mod plan;
mod registration;
mod thread;

pub use registration::process_number;
pub use thread::{RegionOwnership, RegionOwnershipConfig, RegionPopulator, TTL_MIN, WorldEvent};
