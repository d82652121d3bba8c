//! What stands in the cluster of a world.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use dunlin::space::{Partition, PartitionError, RegionId};
use dunlin_client::Entry;
use serde::{Deserialize, Serialize};

use crate::space::secret::Secret;

/// Where a process is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// For the others of its world.
    pub(super) address: SocketAddr,
    /// Its node's door, for clients.
    pub(super) url: String,
    /// What it had in memory of regions when it registered: a cluster that has lost its keys knows nothing of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) memory: BTreeMap<u32, Memory>,
}

/// A state that a process has of a region that it does not own. Of two the later epoch counts, of one epoch its owner's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Memory {
    /// The epoch of the owner whose state it is.
    pub(super) epoch: u64,
    /// The process was that owner; else it stood by for it, and its copy counted.
    pub(super) owner: bool,
}

/// Whose a region is, and in which epoch: higher than any before it, also where the cluster has lost its keys in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    pub(super) process: u64,
    pub(super) epoch: u64,
}

impl Owner {
    pub(super) fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// Who stands by for it, and who did before and still counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StandbyKey {
    pub(super) process: u64,
    /// 0 for nobody.
    pub(super) before: Option<u64>,
    /// The owner's whose copy it is: one of another epoch is of no use.
    pub(super) epoch: u64,
}

impl StandbyKey {
    /// Nobody is there who could stand by: the owner of this epoch goes on alone, and no copy counts.
    pub(super) fn nobody(epoch: u64) -> StandbyKey {
        StandbyKey { process: 0, before: None, epoch }
    }

    pub(super) fn is_nobody(&self) -> bool {
        self.process == 0
    }

    /// Whether this process goes on when the owner is gone, if it has a copy.
    pub(super) fn counts(&self, process: u64) -> bool {
        match self.before {
            None | Some(0) => self.process == process,
            Some(before) => before == process,
        }
    }
}

/// How the curve is cut: first keys and whose they are, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cut {
    pub(super) version: u64,
    pub(super) cuts: Vec<(u64, u32)>,
}

impl Cut {
    pub(super) fn of(partition: &Partition) -> Cut {
        let cuts = partition.regions().iter().map(|(first, region)| (*first, region.0)).collect();
        Cut { version: partition.version(), cuts }
    }

    pub(super) fn partition(&self, dimensions: usize) -> Result<Partition, PartitionError> {
        let cuts = self.cuts.iter().map(|(first, region)| (*first, RegionId(*region))).collect();
        Partition::of(dimensions, self.version, cuts)
    }
}

/// All of it, as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) processes: BTreeMap<u64, Place>,
    /// Owner, and the epoch.
    pub(super) owners: BTreeMap<RegionId, (u64, u64)>,
    pub(super) standbys: BTreeMap<RegionId, StandbyKey>,
    pub(super) began: BTreeSet<RegionId>,
    /// The newest epoch in which a region was claimed, and the revision that wrote it.
    pub(super) epochs: BTreeMap<RegionId, (u64, u64)>,
    /// The world's description is there.
    pub(super) described: bool,
    /// Nobody makes ticks.
    pub(super) hold: bool,
    /// What lets processes into the world.
    pub(super) secret: Option<Secret>,
    /// How the curve is cut, and the revision by which it was; nothing while it is as at first.
    pub(super) cut: Option<(u64, Cut)>,
}

/// The key of what lets processes into a world.
pub(super) fn secret_key(world: &str) -> Vec<u8> {
    key(world, "secret", 0)
}

/// What lets processes into a world, as its key holds it.
pub(super) fn secret_of(value: &[u8]) -> Option<Secret> {
    value.try_into().ok().map(Secret::of)
}

/// What a world's keys begin with.
pub(super) fn prefix(world: &str) -> String {
    format!("space/{world}/")
}

/// The key of something of a world.
pub(super) fn key(world: &str, what: &str, number: u64) -> Vec<u8> {
    format!("space/{world}/{what}/{number}").into_bytes()
}

impl Seen {
    /// Of a world's keys; what cannot be read is as good as not there.
    pub(super) fn of(world: &str, entries: &[Entry]) -> Seen {
        let (prefix, mut seen) = (prefix(world), Seen::default());
        for entry in entries {
            let Some(rest) = str::from_utf8(&entry.key).ok().and_then(|key| key.strip_prefix(&prefix)) else {
                continue;
            };
            let Some((what, number)) = rest.split_once('/') else {
                seen.described |= rest == "world";
                continue;
            };
            let Ok(number) = number.parse::<u64>() else { continue };
            let region = RegionId(number as u32);
            match what {
                "process" => {
                    if let Ok(place) = serde_json::from_slice(&entry.value) {
                        seen.processes.insert(number, place);
                    }
                }
                "region" => {
                    if let Ok(Owner { process, epoch }) = serde_json::from_slice(&entry.value) {
                        seen.owners.insert(region, (process, epoch));
                    }
                }
                "standby" => {
                    if let Ok(standby) = serde_json::from_slice(&entry.value) {
                        seen.standbys.insert(region, standby);
                    }
                }
                "epoch" => {
                    if let Ok(epoch) = serde_json::from_slice(&entry.value) {
                        seen.epochs.insert(region, (epoch, entry.modified));
                    }
                }
                "hold" => seen.hold = true,
                "secret" => seen.secret = secret_of(&entry.value),
                "cut" => {
                    let cut = serde_json::from_slice(&entry.value).ok();
                    seen.cut = cut.map(|cut| (entry.modified, cut));
                }
                "began" => drop(seen.began.insert(region)),
                _ => {}
            }
        }
        seen
    }

    /// The process whose memory of a region counts most.
    pub(super) fn best_memory(&self, region: RegionId) -> Option<u64> {
        let memory = |(process, place): (&u64, &Place)| Some((*place.memory.get(&region.0)?, *process));
        self.processes.iter().filter_map(memory).max().map(|(_, process)| process)
    }

    /// How many regions a process owns.
    pub(super) fn count(&self, process: u64) -> usize {
        self.owners.values().filter(|(owner, _)| *owner == process).count()
    }
}
