//! Changes the partition of the curve. The cluster stores the partition in one key.
//!
//! The owner of the first region weighs all regions. It writes the key only if the key and its own region are unchanged
//! since it read them. If two processes both take themselves for this owner, at most one of them succeeds, so that
//! partitions change one after another. Entities that then belong to another region are handed over as usual. A process
//! that still has the old partition loses no entity.

use dunlin::space::Behaviour;
use dunlin::state::{ComparedProperty, Comparison};
use dunlin_client::Transaction;

use super::keys::{CurveStretches, WorldSnapshot, key};
use super::thread::{OwnershipError, OwnershipThread, WorldEvent};

impl<const D: usize, B: Behaviour<D> + Clone + Send + 'static> OwnershipThread<D, B> {
    /// Applies the newest partition of the cluster, before any region begins here.
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

    /// Changes the partition if loads have diverged and this process owns the first region.
    pub(super) fn balance(&mut self, snapshot: &WorldSnapshot) -> Result<(), OwnershipError> {
        let Some(first) = self.config.regions.first().copied() else { return Ok(()) };
        let Some(epoch) = self.claims.get(&first).copied().filter(|_| !snapshot.hold) else { return Ok(()) };
        let Some(next) = self.space.call(|runner| runner.next_partition())? else { return Ok(()) };
        let read = snapshot.cut.as_ref().map_or((0, 1), |(revision, cut)| (*revision, cut.version));
        if next.version() != read.1 + 1 {
            // The keys that were read are older than the partition that the runner uses.
            return Ok(());
        }
        let (own, owner) = self.owner_key(first, epoch);
        let (cut_key, value) =
            (key(&self.config.world, "cut", 0), serde_json::to_vec(&CurveStretches::of(&next)));
        let value = value.unwrap_or_default();
        let ours =
            Transaction::new().compare(&own, Comparison::Equal, ComparedProperty::Value { value: &owner });
        let cut = ours.if_modified_at(&cut_key, read.0).put(&cut_key, &value);
        if self.kv.transact(&cut)?.succeeded {
            self.cut_version = next.version();
            (self.on_event)(WorldEvent::Cut(next.version()));
            self.space.submit(move |runner| runner.broadcast_partition(&next))?;
        }
        Ok(())
    }
}
