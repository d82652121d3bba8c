//! How the curve is cut, agreed on by one key.
//!
//! The owner of the first region weighs all, and writes the key where it is still as it was read and the region still its own. So of two
//! who take themselves for its owner one at most has its way, and partitions follow each other one by one. Who is in another's stretch
//! is handed over as ever: a process that has not heard of the last cut gives and takes as the one before says, and loses nothing.

use dunlin::space::Behaviour;
use dunlin::state::{Is, Target};
use dunlin_client::Transaction;

use super::keys::{Cut, Seen, key};
use super::thread::{KeepError, Keeper, Told};

impl<const D: usize, B: Behaviour<D> + Clone + Send + 'static> Keeper<D, B> {
    /// Goes by the newest cut that the cluster knows, before any region begins here.
    pub(super) fn adopt(&mut self, seen: &Seen) -> Result<(), KeepError> {
        let Some((_, cut)) = &seen.cut else { return Ok(()) };
        if cut.version <= self.cut_version {
            return Ok(());
        }
        match cut.partition(D) {
            Ok(partition) => self.space.order(move |runner| runner.cut(&partition))?,
            Err(why) => (self.tell)(Told::Away(format!("the cut that the cluster has is none: {why}"))),
        }
        self.cut_version = cut.version;
        Ok(())
    }

    /// Cuts the curve anew where loads have grown apart, if that is this process's to do.
    pub(super) fn balance(&mut self, seen: &Seen) -> Result<(), KeepError> {
        let Some(first) = self.config.regions.first().copied() else { return Ok(()) };
        let Some(epoch) = self.claims.get(&first).copied().filter(|_| !seen.hold) else { return Ok(()) };
        let Some(next) = self.space.ask(|runner| runner.next_cut())? else { return Ok(()) };
        let read = seen.cut.as_ref().map_or((0, 1), |(revision, cut)| (*revision, cut.version));
        if next.version() != read.1 + 1 {
            // What was read is older than what the runner goes by.
            return Ok(());
        }
        let (own, owner) = self.owner_key(first, epoch);
        let (cut_key, value) = (key(&self.config.world, "cut", 0), serde_json::to_vec(&Cut::of(&next)));
        let value = value.unwrap_or_default();
        let ours = Transaction::new().compare(&own, Is::Equal, Target::Value { value: &owner });
        let cut = ours.if_modified_at(&cut_key, read.0).put(&cut_key, &value);
        if self.kv.transact(&cut)?.succeeded {
            self.cut_version = next.version();
            (self.tell)(Told::Cut(next.version()));
            self.space.order(move |runner| runner.cut_for_all(&next))?;
        }
        Ok(())
    }
}
