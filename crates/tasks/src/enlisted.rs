//! Manages workers that joined in another shard and also work for this shard. Such a worker has the same id in both
//! shards.
//!
//! Each shard manages its own part of a worker's slots (see module `slot_allocation`). Every shard knows the worker's
//! lease, and knows whether the worker is draining.

use imbl::OrdMap;

use crate::command::NewWorker;
use crate::error::TaskRefusal;
use crate::reply::CommandReply;
use crate::shard::shard_of_id;
use crate::state::SchedulerState;

/// The workers that joined in another shard. `ids` maps a worker's index in this shard to the worker's id; `slots` maps
/// the id to the index.
#[derive(Debug, Clone, Default)]
pub(crate) struct Enlisted {
    ids: OrdMap<u32, u64>,
    slots: OrdMap<u64, u32>,
}

impl Enlisted {
    /// Adds the index and the id of a worker. Returns `false` if the index or the id was already in use.
    pub(crate) fn insert(&mut self, at: u32, id: u64) -> bool {
        self.ids.insert(at, id).is_none() && self.slots.insert(id, at).is_none()
    }

    pub(crate) fn remove(&mut self, at: u32) {
        if let Some(id) = self.ids.remove(&at) {
            self.slots.remove(&id);
        }
    }

    pub(crate) fn id(&self, at: u32) -> Option<u64> {
        self.ids.get(&at).copied()
    }

    pub(crate) fn find(&self, id: u64) -> Option<u32> {
        self.slots.get(&id).copied()
    }

    pub(crate) fn len(&self) -> u32 {
        self.ids.len() as u32
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u64)> {
        self.ids.iter().map(|(&at, &id)| (at, id))
    }
}

impl SchedulerState {
    /// Adds a worker of another shard, or renews the worker's lease if this shard already knows the worker.
    pub(crate) fn enlist(&mut self, id: u64, new: &NewWorker<'_>) -> Result<CommandReply, TaskRefusal> {
        if let Ok(at) = self.find_worker(id) {
            self.renew(at);
            return Ok(CommandReply::Joined { worker: id });
        }
        if shard_of_id(id) == self.shard {
            return Err(TaskRefusal::NoWorker { worker: id });
        }
        self.check_join(new)?;
        let at = self.add_worker(new);
        self.enlisted.insert(at, id);
        Ok(CommandReply::Joined { worker: id })
    }
}
