//! Who owns which region, by leases of the cluster; who stands by for it; and what happens when somebody is gone.
//!
//! ```text
//!  space/WORLD/process/N     {"address", "url"}           under N's lease
//!  space/WORLD/region/R      {"process"}                  under its owner's lease; the revision that created it is the epoch
//!  space/WORLD/standby/R     {"process", "before"}        written by the owner alone; it stays when the owner is gone
//!  space/WORLD/began/R       once the region was begun
//!  space/WORLD/hold/0        while it is there nobody makes ticks; hand-overs come to their end
//!  space/WORLD/load/N        {"version", "regions"}      under N's lease: what its regions have to do since the curve was cut so
//!  space/WORLD/cuts/0        {"version", "cuts"}         how the curve is cut; nothing until it is cut anew
//! ```
//! A thread looks at all of it again and again, keeps the lease alive, and does what [`plan`](plan::plan) says.
//!
//! Invariants:
//! - A region acts until its owner's lease is sure to last, and no longer, whatever this thread does.
//! - Whoever goes on in an owner's place has all that the owner counted as known: `standby` names it, or, while it has yet to
//!   begin (`before` is there), the one before it. Both are told everything then, and the one before is who is waited for.
//! - The curve is cut anew by the process of the lowest number, from loads that all regions measured since the last cut. While some
//!   processes have yet to see the cut, an entity may be handed to and fro, but belongs to one.
//! - Who has no copy that counts begins a region without entities, when nobody else has come for so long, and says so.

mod balance;
mod keys;
mod plan;
mod thread;

use std::collections::BTreeMap;

use dunlin_client::{Kv, KvError};

pub use balance::Balance;
pub use thread::{Owners, OwnersConfig, Populate, Told};

/// The processes of a world, and where their nodes' doors are.
pub(super) fn processes(kv: &Kv, world: &str) -> Result<BTreeMap<u64, String>, KvError> {
    let seen = keys::Seen::of(world, &kv.prefix(keys::prefix(world))?);
    Ok(seen.processes.into_iter().map(|(number, place)| (number, place.url)).collect())
}
