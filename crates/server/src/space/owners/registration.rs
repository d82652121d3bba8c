//! Registers a process in its world, and tells the runner the world's secret and the other processes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

use dunlin::space::Behaviour;
use dunlin::state::KeyOperation;
use dunlin_client::{ErrorCode, Kv, KvError, Transaction};

use super::keys::{CurveStretches, ProcessRecord, RegionOwner, WorldSnapshot, key, prefix, secret_key};
use super::thread::{OwnershipError, OwnershipThread, WorldEvent};
use crate::space::config::WorldPeer;
use crate::space::description::WorldDescription;
use crate::space::error::SpaceError;
use crate::space::secret::{Secret, random};

/// Process numbers are below this number, so that they are short enough for people to read and compare.
const NUMBERS: u64 = 1_000_000;

/// Returns a random process number. The cluster does not assign numbers, because a cluster that has lost its keys would
/// no longer know them. A process whose number another process of the world already has is refused.
pub fn process_number() -> Result<u64, SpaceError> {
    let bytes = random()?;
    let number = bytes.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    Ok(1 + number % (NUMBERS - 1))
}

/// Checks that the user of `kv` may read and write the keys of a world and its secret, as a process of the world does.
/// Changes nothing. Without this check, a process that lacks these permissions would wait until they are granted.
pub fn check_world_permissions(kv: &Kv, world: &str) -> Result<(), KvError> {
    let (process, secret) = (key(world, "process", 0), secret_key(world));
    // No key has this revision, so nothing is written.
    let write_nothing = Transaction::new()
        .if_modified_at(&process, u64::MAX)
        .if_modified_at(&secret, u64::MAX)
        .put(&process, b"1")
        .put(&secret, b"1");
    match kv.transact(&write_nothing) {
        Err(error) if error.code() == Some(ErrorCode::Forbidden) => Err(error),
        // A process repeats requests that fail for other reasons.
        _ => Ok(()),
    }
}

impl<const D: usize, B: Behaviour<D> + Clone + Send + 'static> OwnershipThread<D, B> {
    /// Returns a time until which this process certainly has its lease. If the process has no lease, it first registers
    /// with a new one. The registration lists the regions that the process has in memory. Fails if another process has
    /// this process's number.
    pub(super) fn ensure_lease(&mut self) -> Result<Instant, OwnershipError> {
        if let Some(lease) = &self.lease {
            return Ok(lease.check()?);
        }
        self.restore()?;
        let key = key(&self.config.world, "process", self.config.process);
        let record = self.record();
        let found = self.kv.get(&key)?;
        if let Some(registered) =
            found.as_ref().and_then(|entry| serde_json::from_slice::<ProcessRecord>(&entry.value).ok())
            && registered.address != record.address
        {
            return Err(OwnershipError::Number { process: self.config.process, address: registered.address });
        }
        let mut lease = self.kv.lease(self.config.ttl)?;
        lease.start_renewal()?;
        let value = serde_json::to_vec(&record).unwrap_or_default();
        let put = KeyOperation::Put { key: &key, value: &value, lease: lease.id() };
        let (address_key, address) = self.address_entry(self.config.process, record.address);
        let register =
            Transaction::new().if_modified_at(&key, found.map_or(0, |entry| entry.modified)).then(put);
        let register = register.put(&address_key, &address);
        if !self.kv.transact(&register)?.succeeded {
            return Err(OwnershipError::Registered);
        }
        let until = lease.check()?;
        self.lease = Some(lease);
        Ok(until)
    }

    /// The key that states the address of a process, and the value of this key.
    fn address_entry(&self, process: u64, address: SocketAddr) -> (Vec<u8>, Vec<u8>) {
        let value = serde_json::to_vec(&address).unwrap_or_default();
        (key(&self.config.world, "address", process), value)
    }

    /// Deletes the addresses of processes that have ended and whose states are not needed.
    pub(super) fn delete_addresses(&self, snapshot: &WorldSnapshot) -> Result<(), OwnershipError> {
        for (process, revision) in snapshot.unneeded_addresses() {
            let of_process = |kind| key(&self.config.world, kind, process);
            let (address, registered) = (of_process("address"), of_process("process"));
            let unchanged =
                Transaction::new().if_modified_at(&registered, 0).if_modified_at(&address, revision);
            self.kv.transact(&unchanged.delete(&address))?;
        }
        Ok(())
    }

    /// The value of the key in which this process registers.
    fn record(&self) -> ProcessRecord {
        let memory = self.memory.iter().map(|(region, memory)| (region.0, *memory)).collect();
        let (address, url, settings) = (self.config.address, self.config.url.clone(), Some(self.settings));
        ProcessRecord { address, url, memory, settings, leaving: self.is_leaving }
    }

    /// Marks in the key of this process that the process leaves the world. Other processes then give it no more
    /// regions.
    pub(super) fn announce_leaving(&mut self) -> Result<(), OwnershipError> {
        let lease = self.lease.as_ref().ok_or(OwnershipError::Registered)?.id();
        let key = key(&self.config.world, "process", self.config.process);
        let found = self.kv.get(&key)?.filter(|entry| entry.lease == lease);
        let entry = found.ok_or(OwnershipError::Registered)?;
        let record = ProcessRecord { leaving: true, ..self.record() };
        let value = serde_json::to_vec(&record).unwrap_or_default();
        let put = KeyOperation::Put { key: &key, value: &value, lease };
        let announce = Transaction::new().if_modified_at(&key, entry.modified).then(put);
        self.is_leaving = self.kv.transact(&announce)?.succeeded;
        if self.is_leaving { Ok(()) } else { Err(OwnershipError::Registered) }
    }

    /// If the cluster has lost the world's keys, writes them again: the description, the partition, the key `hold` if
    /// ticks are suspended, and for each begun region a key `began`, its last claim, and the claimant's address. If
    /// another process has already written the description, keys also count as lost if a key `began` is missing.
    fn restore(&mut self) -> Result<(), OwnershipError> {
        if self.began.is_empty() {
            return Ok(());
        }
        let snapshot = WorldSnapshot::of(&self.config.world, &self.kv.prefix(prefix(&self.config.world))?);
        if snapshot.described && self.began.is_subset(&snapshot.began) {
            return Ok(());
        }
        (self.on_event)(WorldEvent::KeysLost);
        let partition = self.space.call(|runner| runner.host().partition().clone())?;
        let cut = CurveStretches::of(&partition);
        if cut.version > 1 {
            self.create(key(&self.config.world, "cut", 0), &serde_json::to_vec(&cut).unwrap_or_default())?;
        }
        // Writes the key `hold` before the keys `began`. A process that finds all keys `began` has therefore also found
        // `hold`.
        if self.is_on_hold {
            self.create(key(&self.config.world, "hold", 0), b"1")?;
        }
        // The claims are written before the keys `began`. A process that finds a key `began` therefore also finds which
        // process may have the region's state.
        for (region, (process, epoch)) in &self.last_claims {
            let claim = RegionOwner { process: *process, epoch: *epoch }.bytes();
            self.create(key(&self.config.world, "claim", region.0.into()), &claim)?;
            if let Some(address) = self.last_addresses.get(process) {
                let (key, value) = self.address_entry(*process, *address);
                self.create(key, &value)?;
            }
        }
        for region in self.began.clone() {
            self.create(key(&self.config.world, "began", region.0.into()), b"1")?;
        }
        // Writes the description last. If an earlier write fails, the description is still missing, and the keys are
        // restored later.
        self.create(WorldDescription::key(&self.config.world), &self.description.bytes())
    }

    /// Writes the world's description if it is missing.
    pub(super) fn describe(&self, snapshot: &WorldSnapshot) -> Result<(), OwnershipError> {
        if snapshot.described {
            return Ok(());
        }
        self.create(WorldDescription::key(&self.config.world), &self.description.bytes())
    }

    /// Writes a key if it does not exist.
    fn create(&self, key: Vec<u8>, value: &[u8]) -> Result<(), OwnershipError> {
        self.kv.transact(&Transaction::new().if_modified_at(&key, 0).put(&key, value))?;
        Ok(())
    }

    /// Uses the secret that was found in the world's key. If the key is missing, writes this process's secret to the
    /// key.
    pub(super) fn adopt_secret(&mut self, found: Option<Secret>) -> Result<(), OwnershipError> {
        let secret = match (found, self.secret) {
            (Some(found), _) => found,
            (None, own) => {
                let own = own.map_or_else(Secret::random, Ok)?;
                let (key, bytes) = (secret_key(&self.config.world), own.bytes());
                let create = Transaction::new().if_modified_at(&key, 0).put(&key, &bytes);
                if !self.kv.transact(&create)?.succeeded {
                    // Another process has written its secret first. This process reads that secret the next time.
                    return Ok(());
                }
                own
            }
        };
        if self.secret != Some(secret) {
            self.space.submit(move |runner| runner.set_secret(secret))?;
            self.secret = Some(secret);
        }
        Ok(())
    }

    pub(super) fn update_peers(&mut self, snapshot: &WorldSnapshot) -> Result<(), OwnershipError> {
        let others = || snapshot.processes.iter().filter(|(process, _)| **process != self.config.process);
        let current: BTreeMap<u64, SocketAddr> =
            others().map(|(process, record)| (*process, record.address)).collect();
        let removed: Vec<u64> =
            self.peers.keys().filter(|process| !current.contains_key(process)).copied().collect();
        let new: Vec<WorldPeer> = current
            .iter()
            .filter(|(process, address)| self.peers.get(process) != Some(address))
            .map(|(process, address)| WorldPeer { process: *process, address: *address })
            .collect();
        if !removed.is_empty() || !new.is_empty() {
            self.space.submit(move |runner| {
                removed.into_iter().for_each(|process| runner.remove_peer(process));
                new.into_iter().for_each(|peer| runner.add_peer(peer));
            })?;
            self.peers = current;
        }
        Ok(())
    }
}
