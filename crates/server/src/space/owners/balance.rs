//! Changes the partition: how the world's space-filling curve is divided into the stretches that are the regions. The
//! cluster stores the partition in one key.
//!
//! The owner of the first region compares the loads of all regions. This owner writes the key only if neither the key
//! nor the ownership of the first region has changed since it read both. Even if two processes consider themselves the
//! owner, only one of their writes succeeds, so partitions change one after another. Entities that belong to another
//! region in the new partition are handed over as usual. No entity is lost while some processes still have the old
//! partition.

use dunlin::space::Behaviour;

use super::keys::{CurveStretches, WorldSnapshot, if_value, key};
use super::thread::{OwnershipError, OwnershipThread, WorldEvent};

impl<const D: usize, B: Behaviour<D> + Clone + Send + 'static> OwnershipThread<D, B> {
    /// Applies the partition that the cluster stores, if it is newer than the partition that this process uses. Called
    /// before this process begins any region.
    pub(super) fn adopt_partition(&mut self, snapshot: &WorldSnapshot) -> Result<(), OwnershipError> {
        let Some((_, cut)) = &snapshot.cut else { return Ok(()) };
        if cut.version <= self.cut_version {
            return Ok(());
        }
        match cut.partition(D) {
            Ok(partition) => self.space.submit(move |runner| runner.set_partition(&partition))?,
            Err(why) => {
                (self.on_event)(WorldEvent::Away(format!("the cluster's partition is invalid: {why}")))
            }
        }
        self.cut_version = cut.version;
        Ok(())
    }

    /// Changes the partition if the regions' loads have diverged and this process owns the first region.
    pub(super) fn balance(&mut self, snapshot: &WorldSnapshot) -> Result<(), OwnershipError> {
        let Some(first) = self.config.regions.first().copied() else { return Ok(()) };
        let Some(epoch) = self.claims.get(&first).copied().filter(|_| !snapshot.hold) else { return Ok(()) };
        let Some(next) = self.space.call(|runner| runner.next_partition())? else { return Ok(()) };
        // If the key's value is invalid, the transaction below overwrites the key.
        let unread = || (snapshot.invalid_revision("cut", 0), self.cut_version.max(1));
        let read = snapshot.cut.as_ref().map_or_else(unread, |(revision, cut)| (*revision, cut.version));
        if next.version() != read.1 + 1 {
            // The runner already uses a newer partition than the one in the keys that were read.
            return Ok(());
        }
        let (own, owner) = self.owner_key(first, epoch);
        let (cut_key, value) =
            (key(&self.config.world, "cut", 0), serde_json::to_vec(&CurveStretches::of(&next)));
        let value = value.unwrap_or_default();
        let cut = if_value(&own, &owner).if_modified_at(&cut_key, read.0).put(&cut_key, &value);
        if self.kv.transact(&cut)?.succeeded {
            self.cut_version = next.version();
            (self.on_event)(WorldEvent::Cut(next.version()));
            self.space.submit(move |runner| runner.broadcast_partition(&next))?;
        }
        Ok(())
    }
}
