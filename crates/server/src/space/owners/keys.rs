//! The keys that a world has in its cluster, and their values.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use dunlin::space::{Partition, PartitionError, RegionId};
use dunlin::state::{ComparedProperty, Comparison};
use dunlin_client::{KvEntry, Transaction};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::thread::OwnershipError;
use crate::space::description::WorldDescription;
use crate::space::hello::hash_of;
use crate::space::secret::Secret;

/// The value of the key in which a process registers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessRecord {
    /// The address at which the process accepts other processes of the world.
    pub(super) address: SocketAddr,
    /// The address at which clients reach the process's node.
    pub(super) url: String,
    /// The regions whose state the process had in memory when it wrote the key. Used if the cluster has lost its keys.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) memory: BTreeMap<u32, RegionMemory>,
    /// Settings that other processes compare with their own settings; `None` if an earlier version of Dunlin wrote the
    /// key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) settings: Option<ProcessSettings>,
    /// Whether the process is about to end. If it is, it must not receive regions. Earlier versions of Dunlin ignore
    /// this field.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) leaving: bool,
}

/// Settings of a world that may differ between two processes without preventing them from exchanging entities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessSettings {
    /// Number of processes that must be present before the regions are distributed.
    pub(super) processes: usize,
    /// Whether each region needs a standby.
    pub(super) standby: bool,
    /// Hash of the field `recipe` in the world's description.
    pub(super) recipe: u64,
}

impl ProcessSettings {
    pub(super) fn of(description: &WorldDescription) -> ProcessSettings {
        let WorldDescription { processes, standby, recipe, .. } = description;
        let recipe = hash_of(recipe.to_string().as_bytes());
        ProcessSettings { processes: *processes, standby: *standby, recipe }
    }

    /// Describes in which settings another process differs from this process; `None` if there is no difference.
    pub(super) fn difference(&self, other: &ProcessSettings) -> Option<String> {
        let mut parts = Vec::new();
        if self.processes != other.processes {
            parts.push(format!(
                "it expects {} processes, but this process expects {}",
                other.processes, self.processes
            ));
        }
        if self.standby != other.standby {
            let with = |standby| if standby { "with" } else { "without" };
            let (theirs, ours) = (with(other.standby), with(self.standby));
            parts.push(format!("it runs its regions {theirs} standbys, but this process {ours} standbys"));
        }
        // A recipe may contain the settings above. A different recipe is therefore reported only if these settings are
        // equal.
        if parts.is_empty() && self.recipe != other.recipe {
            parts.push(
                "its recipe of the world (of `dunlin space run`: --flock, --aircraft, --speed) is another one"
                    .to_owned(),
            );
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// Describes the state of a region that a process has in memory without owning the region. The values are ordered: a
/// region continues from the state with the greatest value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct RegionMemory {
    /// The epoch of the owner whose state this is.
    pub(super) epoch: u64,
    /// Whether the process itself was the owner in this epoch. If not, the process was the standby that would have
    /// taken over.
    pub(super) owner: bool,
}

/// The process that owns a region, and the epoch in which it owns the region. Epochs only grow, even if the cluster
/// loses its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RegionOwner {
    pub(super) process: u64,
    pub(super) epoch: u64,
}

impl RegionOwner {
    pub(super) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The value of the key that names a region's standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StandbyKey {
    pub(super) process: u64,
    /// The previous standby; 0 if there was none. Until the process that this key names has a copy, the previous
    /// standby would take over. `None` once the named process has a copy.
    pub(super) before: Option<u64>,
    /// The epoch of the owner from which the standby has its copy.
    pub(super) epoch: u64,
    /// A process that keeps a valid state of the region, and the epoch of this state. It continues the region if the
    /// owner is lost: it is the former owner, or the standby of an owner that has claimed the region again. `None` once
    /// a standby of the owner has a copy, or the owner continues alone. Earlier versions of Dunlin ignore this field,
    /// and delete the key when they claim the region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) released: Option<RegionOwner>,
}

impl StandbyKey {
    /// The value once `process` has a copy of the state of the owner of this epoch.
    pub(super) fn complete(process: u64, epoch: u64) -> StandbyKey {
        StandbyKey { process, before: None, epoch, released: None }
    }

    /// The value for a region without a standby: the owner of this epoch continues alone, and no process may take over.
    pub(super) fn empty(epoch: u64) -> StandbyKey {
        StandbyKey::complete(0, epoch)
    }

    /// The value after a claim: no standby is named yet, and `released` is the process that keeps a valid state.
    pub(super) fn claimed(epoch: u64, released: RegionOwner) -> StandbyKey {
        StandbyKey { process: 0, before: Some(0), epoch, released: Some(released) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.process == 0 && self.before.is_none()
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Whether `process` keeps a valid state of the region, although it does not own the region.
    pub(super) fn is_released_by(&self, process: u64) -> bool {
        self.released.is_some_and(|released| released.process == process)
    }

    /// The process that would take over the region if the owner were lost, provided that it has a copy; 0 if there is
    /// none.
    pub(super) fn heir(&self) -> u64 {
        self.before.filter(|before| *before != 0).unwrap_or(self.process)
    }

    /// Whether `process` would take over the region if the owner were lost, provided that `process` has a copy.
    pub(super) fn counts(&self, process: u64) -> bool {
        self.heir() == process
    }
}

/// A partition of the space-filling curve: for each stretch in order, the first position on the curve, and the region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CurveStretches {
    pub(super) version: u64,
    pub(super) cuts: Vec<(u64, u32)>,
}

impl CurveStretches {
    pub(super) fn of(partition: &Partition) -> CurveStretches {
        let cuts = partition.regions().iter().map(|(first, region)| (*first, region.0)).collect();
        CurveStretches { version: partition.version(), cuts }
    }

    pub(super) fn partition(&self, dimensions: usize) -> Result<Partition, PartitionError> {
        let cuts = self.cuts.iter().map(|(first, region)| (*first, RegionId(*region))).collect();
        Partition::of(dimensions, self.version, cuts)
    }
}

/// All keys of a world except its secret, read at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct WorldSnapshot {
    pub(super) processes: BTreeMap<u64, ProcessRecord>,
    /// For each process, the revision of the key in which it is registered.
    pub(super) registered: BTreeMap<u64, u64>,
    /// For each process that may have the state of a region, even if it is not registered: the address at which it
    /// accepts other processes of the world, and the revision of the key that states this.
    pub(super) addresses: BTreeMap<u64, (SocketAddr, u64)>,
    /// For each region that has an owner: the owner's process number, and the epoch.
    pub(super) owners: BTreeMap<RegionId, (u64, u64)>,
    pub(super) standbys: BTreeMap<RegionId, StandbyKey>,
    pub(super) began: BTreeSet<RegionId>,
    /// For each region, the highest epoch in which it was claimed, and the revision of the key that states this.
    pub(super) epochs: BTreeMap<RegionId, (u64, u64)>,
    /// For each region, the process that claimed it last, and the epoch of this claim. Earlier versions of Dunlin claim
    /// regions without this key, so the claim may have a lower epoch than the one in `epochs`.
    pub(super) claims: BTreeMap<RegionId, (u64, u64)>,
    /// Whether the world's description exists.
    pub(super) described: bool,
    /// Whether ticks are suspended in the whole world.
    pub(super) hold: bool,
    /// The partition, and the revision of its key; `None` while the initial partition is used.
    pub(super) cut: Option<(u64, CurveStretches)>,
    /// The keys whose values are invalid: for each kind and number of a key, the revision.
    pub(super) invalid: BTreeMap<(String, u64), u64>,
}

/// Highest epoch or version that is accepted from a key. The limit leaves room for higher numbers.
const EPOCH_MAX: u64 = u64::MAX / 2;

/// The key of a world's secret. It does not begin with the world's [`prefix`], so that a user who may read the world's
/// other keys does not learn the secret.
pub(super) fn secret_key(world: &str) -> Vec<u8> {
    format!("space-secret/{world}").into_bytes()
}

/// Decodes the value of the key with a world's secret. Fails if the value has the wrong length.
pub(super) fn decode_secret(world: &str, value: &[u8]) -> Result<Secret, OwnershipError> {
    value.try_into().map(Secret::of).map_err(|_| OwnershipError::Secret {
        key: String::from_utf8_lossy(&secret_key(world)).into_owned(),
        bytes: value.len(),
    })
}

fn decode<T: DeserializeOwned>(value: &[u8]) -> Option<T> {
    serde_json::from_slice(value).ok()
}

/// The beginning of all keys of a world except its secret.
pub(super) fn prefix(world: &str) -> String {
    format!("space/{world}/")
}

/// The key of a process or region: `what` is the kind of the key, and `number` is the process or region.
pub(super) fn key(world: &str, what: &str, number: u64) -> Vec<u8> {
    format!("space/{world}/{what}/{number}").into_bytes()
}

/// Begins a transaction that changes nothing unless the key has this value.
pub(super) fn if_value<'a>(key: &'a [u8], value: &'a [u8]) -> Transaction<'a> {
    Transaction::new().compare(key, Comparison::Equal, ComparedProperty::Value { value })
}

impl WorldSnapshot {
    /// Decodes the keys of a world. A key whose value is invalid counts as missing, and is listed in `invalid`.
    pub(super) fn of(world: &str, entries: &[KvEntry]) -> WorldSnapshot {
        let (prefix, mut snapshot) = (prefix(world), WorldSnapshot::default());
        for entry in entries {
            let Some(rest) = str::from_utf8(&entry.key).ok().and_then(|key| key.strip_prefix(&prefix)) else {
                continue;
            };
            let Some((what, digits)) = rest.split_once('/') else {
                snapshot.described |= rest == "world";
                continue;
            };
            let Ok(number) = digits.parse::<u64>() else { continue };
            let region = RegionId(number as u32);
            // A key with another spelling of the number, such as 01, must not replace the region's key.
            let is_of_region = !matches!(what, "process" | "address");
            if number.to_string() != digits || is_of_region && u64::from(region.0) != number {
                continue;
            }
            let (value, modified) = (&entry.value[..], entry.modified);
            let decoded = match what {
                "process" => decode(value).map(|record| {
                    snapshot.processes.insert(number, record);
                    snapshot.registered.insert(number, modified);
                }),
                "address" => {
                    decode(value).map(|address| _ = snapshot.addresses.insert(number, (address, modified)))
                }
                "region" => decode(value)
                    .filter(|owner: &RegionOwner| owner.epoch <= EPOCH_MAX)
                    .map(|owner| _ = snapshot.owners.insert(region, (owner.process, owner.epoch))),
                "standby" => decode(value)
                    .filter(|standby: &StandbyKey| standby.epoch <= EPOCH_MAX)
                    .map(|standby| _ = snapshot.standbys.insert(region, standby)),
                "epoch" => decode(value)
                    .filter(|epoch: &u64| *epoch <= EPOCH_MAX)
                    .map(|epoch| _ = snapshot.epochs.insert(region, (epoch, modified))),
                "claim" => decode(value)
                    .filter(|claim: &RegionOwner| claim.epoch <= EPOCH_MAX)
                    .map(|claim| _ = snapshot.claims.insert(region, (claim.process, claim.epoch))),
                "cut" => decode(value)
                    .filter(|cut: &CurveStretches| cut.version <= EPOCH_MAX)
                    .map(|cut| snapshot.cut = Some((modified, cut))),
                "hold" => {
                    snapshot.hold = true;
                    Some(())
                }
                "began" => {
                    snapshot.began.insert(region);
                    Some(())
                }
                _ => Some(()),
            };
            if decoded.is_none() {
                snapshot.invalid.insert((what.to_owned(), number), modified);
            }
        }
        snapshot
    }

    /// The revision of a key whose value is invalid; 0 if the key is valid or missing.
    pub(super) fn invalid_revision(&self, what: &str, number: u64) -> u64 {
        self.invalid.get(&(what.to_owned(), number)).copied().unwrap_or(0)
    }

    /// The revision of the key in which a process is registered, even if the key's value is invalid; 0 if the key is
    /// missing.
    pub(super) fn registered_at(&self, process: u64) -> u64 {
        let registered = self.registered.get(&process).copied();
        registered.unwrap_or_else(|| self.invalid_revision("process", process))
    }

    /// The process whose state of a region in memory has the greatest [`RegionMemory`]. This process continues the
    /// region after the cluster has lost its keys. `None` if no process has a state of the region.
    pub(super) fn best_memory(&self, region: RegionId) -> Option<u64> {
        let memory =
            |(process, record): (&u64, &ProcessRecord)| Some((*record.memory.get(&region.0)?, *process));
        self.processes.iter().filter_map(memory).max().map(|(_, process)| process)
    }

    /// The processes to which `process` may give a region: all other processes that are not leaving the world.
    pub(super) fn heirs(&self, process: u64) -> impl Iterator<Item = u64> {
        let stay = self.processes.iter().filter(|(_, record)| !record.leaving);
        stay.map(|(other, _)| *other).filter(move |other| *other != process)
    }

    pub(super) fn is_leaving(&self, process: u64) -> bool {
        self.processes.get(&process).is_some_and(|record| record.leaving)
    }

    /// The processes that may have the newest state of a region, according to the keys: the process that claimed the
    /// region last, and those that would take over if this process were lost. They may be registered or not.
    pub(super) fn holders(&self, region: RegionId) -> BTreeSet<u64> {
        let newest = self.epochs.get(&region).map(|(epoch, _)| *epoch);
        let is_newest = |epoch: u64| newest.is_none_or(|newest| newest == epoch);
        let claim = self.claims.get(&region).filter(|(_, epoch)| is_newest(*epoch));
        let standby = self.standbys.get(&region);
        let heir = standby.filter(|standby| is_newest(standby.epoch)).map(StandbyKey::heir);
        let keeper = standby.and_then(|standby| standby.released).map(|keeper| keeper.process);
        let all = claim.map(|(process, _)| *process).into_iter().chain(heir).chain(keeper);
        all.filter(|process| *process != 0).collect()
    }

    /// The process that has a valid state of a region until the owner's standby has a copy, if `claimant` continues the
    /// region now from another valid state: the previous owner or, if this is `claimant` itself, its standby.
    pub(super) fn keeper(&self, region: RegionId, claimant: u64) -> Option<RegionOwner> {
        let standby = self.standbys.get(&region);
        let kept = standby.and_then(|standby| standby.released);
        let previous = || {
            let (newest, _) = self.epochs.get(&region)?;
            let (process, epoch) = self.claims.get(&region).filter(|(_, epoch)| epoch == newest)?;
            // If `before` is 0, the named standby may have no copy yet.
            let copied = standby.filter(|standby| standby.epoch == *epoch && standby.before != Some(0));
            let heir = copied.map(StandbyKey::heir);
            let process = if *process == claimant { heir? } else { *process };
            (process != 0 && process != claimant).then_some(RegionOwner { process, epoch: *epoch })
        };
        kept.or_else(previous)
    }

    /// The addresses of processes that are not registered and have no state that is needed: the number of each process,
    /// and the revision of its key.
    pub(super) fn unneeded_addresses(&self) -> Vec<(u64, u64)> {
        let absent = self.addresses.iter().filter(|(process, _)| self.registered_at(**process) == 0);
        let mut unneeded: Vec<(u64, u64)> =
            absent.map(|(process, (_, revision))| (*process, *revision)).collect();
        if !unneeded.is_empty() {
            let regions = self.claims.keys().chain(self.standbys.keys());
            let holders: BTreeSet<u64> = regions.flat_map(|region| self.holders(*region)).collect();
            unneeded.retain(|(process, _)| !holders.contains(process));
        }
        unneeded
    }

    /// Whether the keys name this process as one that must keep its state of a region, although it does not own the
    /// region.
    pub(super) fn must_keep(&self, region: RegionId, former: RegionOwner) -> bool {
        self.standbys.get(&region).is_some_and(|standby| standby.released == Some(former))
    }

    /// Whether the cluster has lost the keys of a region that has begun, and no process has claimed it since.
    pub(super) fn has_lost_keys(&self, region: RegionId) -> bool {
        !self.epochs.contains_key(&region)
    }

    /// Whether the end of `process`, which leaves the world, would leave a region without a second copy. This is true
    /// if the process owns the region, keeps the region's state after a release, or is the region's standby although
    /// another process could be the standby. `has_standbys` says whether the world's regions have standbys.
    pub(super) fn needs(&self, process: u64, has_standbys: bool) -> bool {
        let is_standby = |(region, standby): (&RegionId, &StandbyKey)| {
            let owner = self.owners.get(region).map(|(owner, _)| *owner);
            has_standbys && standby.counts(process) && self.heirs(process).any(|heir| Some(heir) != owner)
        };
        self.count(process) > 0
            || self.standbys.values().any(|standby| standby.is_released_by(process))
            || self.standbys.iter().any(is_standby)
    }

    /// Number of regions that the process owns.
    pub(super) fn count(&self, process: u64) -> usize {
        self.owners.values().filter(|(owner, _)| *owner == process).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_about_conflicting_settings_contains_both_values() {
        let own = ProcessSettings { processes: 2, standby: true, recipe: 1 };
        assert_eq!(own.difference(&own), None);
        let difference = |other: ProcessSettings| own.difference(&other).unwrap();
        assert_eq!(
            difference(ProcessSettings { processes: 3, standby: false, recipe: 2 }),
            "it expects 3 processes, but this process expects 2; it runs its regions without standbys, but \
             this process with standbys"
        );
        assert!(difference(ProcessSettings { recipe: 2, ..own }).starts_with("its recipe of the world"));
    }

    #[test]
    fn invalid_keys_are_listed_and_do_not_replace_valid_ones() {
        let entry = |key: &str, value: &str, modified| KvEntry {
            key: format!("space/birds/{key}").into_bytes(),
            value: value.as_bytes().into(),
            created: modified,
            modified,
            version: 1,
            lease: 0,
        };
        let entries = [
            entry("epoch/1", &u64::MAX.to_string(), 3),
            entry("region/01", r#"{"process":9,"epoch":9}"#, 4),
            entry("region/1", r#"{"process":5,"epoch":7}"#, 5),
            entry("region/2", "garbage", 6),
            entry("region/4294967297", r#"{"process":9,"epoch":9}"#, 7),
            entry("standby/1", "1", 8),
        ];
        let snapshot = WorldSnapshot::of("birds", &entries);
        assert_eq!(snapshot.owners, BTreeMap::from([(RegionId(1), (5, 7))]));
        let invalid = [("epoch", 1_u64, 3_u64), ("region", 2, 6), ("standby", 1, 8)];
        let invalid = invalid.map(|(what, number, modified)| ((what.to_owned(), number), modified));
        assert_eq!(snapshot.invalid, BTreeMap::from(invalid));
    }

    #[test]
    fn process_may_leave_only_when_two_others_hold_each_region() {
        let record = || ProcessRecord {
            address: "127.0.0.1:1".parse().unwrap(),
            url: String::new(),
            memory: [].into(),
            settings: None,
            leaving: false,
        };
        let region = RegionId(1);
        let needs_first = |processes: &[u64], owner: u64, standby: StandbyKey| {
            let snapshot = WorldSnapshot {
                processes: processes.iter().map(|process| (*process, record())).collect(),
                owners: [(region, (owner, 7))].into(),
                standbys: [(region, standby)].into(),
                ..WorldSnapshot::default()
            };
            (snapshot.needs(1, true), snapshot.needs(1, false))
        };
        let complete = |process| StandbyKey::complete(process, 7);
        assert_eq!(needs_first(&[1, 2, 3], 1, complete(2)), (true, true), "it owns the region");
        let released = StandbyKey::claimed(7, RegionOwner { process: 1, epoch: 6 });
        assert_eq!(needs_first(&[1, 2, 3], 2, released), (true, true), "process 2 has no standby yet");
        assert_eq!(needs_first(&[1, 2, 3], 2, complete(1)), (true, false), "process 3 can be the standby");
        let copying = StandbyKey { before: Some(1), ..complete(3) };
        assert_eq!(needs_first(&[1, 2, 3], 2, copying), (true, false), "process 3 has no copy yet");
        assert_eq!(needs_first(&[1, 2, 3], 2, complete(3)), (false, false));
        assert_eq!(
            needs_first(&[1, 2], 2, complete(1)),
            (false, false),
            "no other process can be the standby"
        );
    }

    /// The keys of a region that process 1 has claimed in epoch 7.
    fn claimed_by_first(standby: StandbyKey) -> WorldSnapshot {
        let region = RegionId(1);
        WorldSnapshot {
            epochs: [(region, (7, 1))].into(),
            claims: [(region, (1, 7))].into(),
            standbys: [(region, standby)].into(),
            ..WorldSnapshot::default()
        }
    }

    #[test]
    fn only_owner_and_successors_can_hold_the_newest_region_state() {
        let holders = |standby| claimed_by_first(standby).holders(RegionId(1));
        assert_eq!(holders(StandbyKey::complete(2, 7)), [1, 2].into());
        assert_eq!(holders(StandbyKey { before: Some(3), ..StandbyKey::complete(2, 7) }), [1, 3].into());
        assert_eq!(holders(StandbyKey::empty(7)), [1].into());
        assert_eq!(holders(StandbyKey::complete(2, 6)), [1].into(), "its copy is of an earlier epoch");
        let kept = RegionOwner { process: 4, epoch: 6 };
        assert_eq!(holders(StandbyKey::claimed(7, kept)), [1, 4].into());
        let mut superseded = claimed_by_first(StandbyKey::empty(7));
        superseded.epochs.insert(RegionId(1), (8, 2));
        assert_eq!(superseded.holders(RegionId(1)), [].into(), "an earlier version claimed it in epoch 8");
        let lost_keys = WorldSnapshot { epochs: [].into(), ..claimed_by_first(StandbyKey::empty(7)) };
        assert_eq!(lost_keys.holders(RegionId(1)), [1].into());
    }

    #[test]
    fn new_owner_records_which_process_has_a_valid_state() {
        let keeper = |standby, claimant| claimed_by_first(standby).keeper(RegionId(1), claimant);
        let of = |process| Some(RegionOwner { process, epoch: 7 });
        let complete = StandbyKey::complete(2, 7);
        assert_eq!(keeper(complete, 2), of(1), "the previous owner");
        assert_eq!(keeper(complete, 1), of(2), "the standby of an owner that claims its region again");
        assert_eq!(keeper(StandbyKey { before: Some(3), ..complete }, 1), of(3), "process 2 has no copy yet");
        assert_eq!(keeper(StandbyKey { before: Some(0), ..complete }, 1), None, "no process has a copy");
        assert_eq!(keeper(StandbyKey::empty(7), 1), None, "it ran alone");
        let kept = RegionOwner { process: 4, epoch: 6 };
        assert_eq!(
            keeper(StandbyKey::claimed(7, kept), 1),
            Some(kept),
            "nothing was confirmed since epoch 6"
        );
    }

    #[test]
    fn address_of_a_standby_is_kept_while_its_copy_is_valid() {
        let address = "127.0.0.1:1".parse().unwrap();
        let addresses = (1..=4).map(|process| (process, (address, 10 + process))).collect();
        let mut snapshot = WorldSnapshot { addresses, ..claimed_by_first(StandbyKey::complete(2, 7)) };
        assert_eq!(snapshot.unneeded_addresses(), [(3, 13), (4, 14)]);
        snapshot.standbys.insert(RegionId(1), StandbyKey::empty(7));
        assert_eq!(snapshot.unneeded_addresses(), [(2, 12), (3, 13), (4, 14)]);
    }

    #[test]
    fn process_counts_as_registered_even_if_its_key_is_invalid() {
        let address = "127.0.0.1:1".parse().unwrap();
        let snapshot = WorldSnapshot {
            addresses: [(3, (address, 13)), (4, (address, 14))].into(),
            registered: [(2, 5)].into(),
            invalid: [(("process".to_owned(), 3), 6)].into(),
            ..WorldSnapshot::default()
        };
        assert_eq!([2, 3, 4].map(|process| snapshot.registered_at(process)), [5, 6, 0]);
        assert_eq!(snapshot.unneeded_addresses(), [(4, 14)], "the key of process 3 may become valid again");
    }

    #[test]
    fn standby_key_written_by_an_earlier_version_can_be_read() {
        let earlier = br#"{"process":2,"before":null,"epoch":7}"#;
        assert_eq!(serde_json::from_slice::<StandbyKey>(earlier).unwrap(), StandbyKey::complete(2, 7));
        assert_eq!(StandbyKey::complete(2, 7).bytes(), earlier);
    }

    #[test]
    fn process_entry_written_by_an_older_version_has_no_settings() {
        let earlier = br#"{"address":"127.0.0.1:1","url":"dunlin://127.0.0.1:2"}"#;
        let record = serde_json::from_slice::<ProcessRecord>(earlier).unwrap();
        assert_eq!((record.settings, record.leaving), (None, false));
        assert!(!String::from_utf8(serde_json::to_vec(&record).unwrap()).unwrap().contains("leaving"));
    }
}
