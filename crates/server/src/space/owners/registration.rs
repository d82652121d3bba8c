//! A process registers in its world, learns the world's secret and meets the others.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use dunlin::space::Behaviour;
use dunlin::state::Operation;
use dunlin_client::Transaction;

use super::keys::{Cut, Place, Seen, key, secret_key};
use super::thread::{KeepError, Keeper, Told};
use crate::space::config::Peer;
use crate::space::description::Description;
use crate::space::error::SpaceError;
use crate::space::secret::{Secret, random};

/// Numbers of processes have at most so many digits that people can tell them apart.
const NUMBERS: u64 = 1_000_000;

/// A number for a process of a world, at random: a cluster that has lost its keys does not know which it has given out. A process
/// whose number is another's is told so, and is kept out of the world.
pub fn process_number() -> Result<u64, SpaceError> {
    let bytes = random()?;
    let number = bytes.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    Ok(1 + number % (NUMBERS - 1))
}

impl<const D: usize, B: Behaviour<D> + Clone + Send + 'static> Keeper<D, B> {
    /// Until when the lease is sure to last. A process that has none registers first: with what it has in memory, and under a number
    /// that nobody else has.
    pub(super) fn hold_lease(&mut self) -> Result<Instant, KeepError> {
        if let Some(lease) = &self.lease {
            return Ok(lease.check()?);
        }
        self.restore()?;
        let key = key(&self.config.world, "process", self.config.process);
        let memory = self.memory.iter().map(|(region, memory)| (region.0, *memory)).collect();
        let place = Place { address: self.config.address, url: self.config.url.clone(), memory };
        let found = self.kv.get(&key)?;
        if let Some(there) =
            found.as_ref().and_then(|entry| serde_json::from_slice::<Place>(&entry.value).ok())
            && there.address != place.address
        {
            return Err(KeepError::Number { process: self.config.process, address: there.address });
        }
        let mut lease = self.kv.lease(self.config.ttl)?;
        lease.keep()?;
        let value = serde_json::to_vec(&place).unwrap_or_default();
        let put = Operation::Put { key: &key, value: &value, lease: lease.id() };
        let register =
            Transaction::new().if_modified_at(&key, found.map_or(0, |entry| entry.modified)).then(put);
        if !self.kv.transact(&register)?.succeeded {
            return Err(KeepError::Registered);
        }
        let until = lease.check()?;
        self.lease = Some(lease);
        Ok(until)
    }

    /// Writes again what a cluster that has lost its keys knew of the world: that it was begun, and how it is cut.
    fn restore(&mut self) -> Result<(), KeepError> {
        let description = Description::key(&self.config.world);
        if self.began.is_empty() || self.kv.get(&description)?.is_some() {
            return Ok(());
        }
        (self.tell)(Told::KeysLost);
        let partition = self.space.ask(|runner| runner.host().partition().clone())?;
        let cut = Cut::of(&partition);
        if cut.version > 1 {
            self.create(key(&self.config.world, "cut", 0), &serde_json::to_vec(&cut).unwrap_or_default())?;
        }
        for region in self.began.clone() {
            self.create(key(&self.config.world, "began", region.0.into()), b"1")?;
        }
        // Last: while it is missing this is done again.
        self.create(description, &self.description.bytes())
    }

    /// Writes the world's description, if nobody has.
    pub(super) fn describe(&self, seen: &Seen) -> Result<(), KeepError> {
        if seen.described {
            return Ok(());
        }
        self.create(Description::key(&self.config.world), &self.description.bytes())
    }

    /// Writes a key that is not there.
    fn create(&self, key: Vec<u8>, value: &[u8]) -> Result<(), KeepError> {
        self.kv.transact(&Transaction::new().if_modified_at(&key, 0).put(&key, value))?;
        Ok(())
    }

    /// The world's secret is the one in its key; where there is none, because nobody was here before or because the cluster has
    /// lost its keys, it becomes ours.
    pub(super) fn hold_secret(&mut self, found: Option<Secret>) -> Result<(), KeepError> {
        let secret = match (found, self.secret) {
            (Some(found), _) => found,
            (None, own) => {
                let own = own.map_or_else(Secret::random, Ok)?;
                let (key, bytes) = (secret_key(&self.config.world), own.bytes());
                let create = Transaction::new().if_modified_at(&key, 0).put(&key, &bytes);
                if !self.kv.transact(&create)?.succeeded {
                    // Another process was faster: the next turn finds its secret.
                    return Ok(());
                }
                own
            }
        };
        if self.secret != Some(secret) {
            self.space.order(move |runner| runner.set_secret(secret))?;
            self.secret = Some(secret);
        }
        Ok(())
    }

    pub(super) fn meet_others(&mut self, seen: &Seen) -> Result<(), KeepError> {
        let others = || seen.processes.iter().filter(|(process, _)| **process != self.config.process);
        let now: BTreeMap<u64, SocketAddr> =
            others().map(|(process, place)| (*process, place.address)).collect();
        let gone: Vec<u64> =
            self.peers.keys().filter(|process| !now.contains_key(process)).copied().collect();
        let new: Vec<Peer> = now
            .iter()
            .filter(|(process, address)| self.peers.get(process) != Some(address))
            .map(|(process, address)| Peer { process: *process, address: *address })
            .collect();
        if !gone.is_empty() || !new.is_empty() {
            self.space.order(move |runner| {
                gone.into_iter().for_each(|process| runner.remove_peer(process));
                new.into_iter().for_each(|peer| runner.add_peer(peer));
            })?;
            self.peers = now;
        }
        Ok(())
    }
}
