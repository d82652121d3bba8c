//! Decides which process owns which region of a world. A process owns a region by a lease of the cluster. When an owner
//! is lost, the region's standby takes the region over.
//!
//! ```text
//!  space/WORLD/world         the world's description (`description`)
//!  space/WORLD/process/N     {"address", "url", "memory", "settings"}   under N's lease; memory: regions whose state
//!                            N has; settings: {"processes", "standby", "recipe"}, missing for earlier versions;
//!                            "leaving": true before the process ends
//!  space/WORLD/address/N     the address of process N; remains while N may have the state of a region
//!  space/WORLD/region/R      {"process", "epoch"}         under its owner's lease
//!  space/WORLD/epoch/R       the newest epoch in which the region was claimed
//!  space/WORLD/claim/R       {"process", "epoch"}         the newest claim; remains afterwards
//!  space/WORLD/standby/R     {"process", "before", "epoch"}   written by the owner of this epoch; remains afterwards;
//!                            "released": {"process", "epoch"} while another process keeps a valid state of this epoch
//!  space/WORLD/began/R       exists once the region has begun
//!  space/WORLD/cut/0         {"version", "cuts"}         how the space-filling curve is divided into regions;
//!                            written by the first region's owner
//!  space/WORLD/hold/0        while this key exists, no process makes ticks; handovers finish
//!  space-secret/WORLD        the secret that admits a process, written by the first process
//! ```
//! A user who may only read `space/WORLD/*` can watch the world, but not control it.
//!
//! In each process, a thread reads all these keys periodically, renews the process's lease, and performs the actions
//! that [`plan`](plan::plan) returns.
//!
//! Invariants:
//! - A region changes only while the lease of its owner is certain not to have ended, even if the owner's thread
//!   stalls.
//! - The standby that takes over has all changes that the owner counted as confirmed. The key `standby` names this
//!   standby. Until a new standby has a copy (`before` is set), the previous standby would take over. Both standbys
//!   receive all changes. Once the new standby has a copy, the owner waits for the confirmations of both.
//! - A copy belongs to an owner's epoch. A standby with a copy of an earlier owner's state cannot take over.
//! - A process that releases a region keeps the region's state, which is equal to the standby's copy. The key `standby`
//!   states this until the new owner has a standby with a copy or continues alone. Until then, the new owner counts no
//!   change as confirmed. If the new owner is lost, the former owner continues the region from the state that it keeps.
//! - If the owner of a region is lost and its standby claims the region, the previous owner's state stays valid in the
//!   same way, until the new owner has a standby with a copy. If the previous owner claims the region again, its
//!   standby's copy stays valid.
//! - If no other process stays, a region continues without a standby. Its owner first writes process 0 to the key
//!   `standby`, so that no process with an older copy takes over. If the owner names a standby later, the region stops
//!   before the key is written, and continues when the standby has a copy.
//! - A lost response does no lasting harm. When the thread reads the keys the next time, it sees which of its writes
//!   succeeded, and continues from there. If a process's lease ends before the response to its claim, the region has
//!   not run in the epoch of the claim. If the key `claim` still names this process, the process continues the region
//!   from its own state.
//! - A region's epochs only grow, even if the cluster has lost its keys. After such a loss, the epochs continue from
//!   the epoch of the cluster's revisions, which is higher than all earlier epochs.
//! - An owner whose lease has expired keeps the states of its regions. With a new lease, it continues the regions that
//!   no other process has claimed since, which the key `epoch` shows.
//! - If the cluster has lost the world's keys, the processes write them again. A region then continues from the state
//!   in a process's memory that has the highest epoch. If an owner and a standby have states of the same epoch, the
//!   owner's is used. The region waits until the expected processes are back, or until the time `patience` has passed.
//! - A key with an invalid value counts as missing, and the owner of the region overwrites it. A process that did not
//!   own the region waits for the time `patience` before it overwrites the owner's key, because the owner may still
//!   run.
//! - A process that leaves the world first marks its key as leaving. An owner gives a region to its standby only if the
//!   standby's key is unchanged. Once a process has marked its key, it therefore receives no more regions, and hands
//!   over those that it has. It ends when the regions that it released or copied have standbys at other processes.
//! - If no process with a valid copy of a region is present or returns in time, the region begins without entities, and
//!   the loss is reported. The region does not begin while a process that may have its state still runs: the key
//!   `address` shows where this process accepts connections.
//! - The times for which regions have had no owner begin anew with each lease of this process. Without a lease, this
//!   process does not see whether other processes could reach the cluster.

mod actions;
mod balance;
mod keys;
mod leave;
mod life_check;
mod memory;
mod plan;
mod registration;
mod thread;

pub use registration::{check_world_permissions, process_number};
pub use thread::{RegionOwnership, RegionOwnershipConfig, RegionPopulator, TTL_MIN, WorldEvent};
