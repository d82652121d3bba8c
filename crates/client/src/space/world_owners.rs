//! Reads from the cluster's keys which processes a world has, and which regions they own.

use std::collections::BTreeMap;
use std::time::Instant;

use dunlin_control::{ControlQuery, prefix_end};
use dunlin_space::{EntityId, RegionId, WorldNameError, check_world_name};
use serde_json::Value;

use super::World;
use super::command::{CommandError, entity_error};
use crate::client::Client;
use crate::kv::{KvEntry, KvError, KvPage, PendingQuery};
use crate::pending_request::deadline;

/// One region of a world, and the process that owns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionOwner {
    /// The region.
    pub region: RegionId,
    /// The number of the process that owns the region, and the epoch in which the process owns it; `None` if the region
    /// has no owner.
    pub owner: Option<(u64, u64)>,
}

/// The owners of a world's regions, and the addresses of the world's processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorldOwners {
    /// The world's name.
    pub world: String,
    /// The address of each process's node, by the number of the process.
    pub processes: BTreeMap<u64, String>,
    /// All regions that have an owner, or had one before.
    pub regions: Vec<RegionOwner>,
    /// How many processes must take part before the world begins; 0 if the world has no description.
    pub expected: usize,
}

impl WorldOwners {
    /// Fails if no process runs the world, or if the world has not begun.
    pub fn check(&self) -> Result<(), WorldOwnersError> {
        let world = self.world.clone();
        if self.processes.is_empty() {
            return Err(WorldOwnersError::NoProcess(world));
        }
        let (processes, expected) = (self.processes.len(), self.expected);
        if self.regions.is_empty() {
            Err(WorldOwnersError::NotBegun { world, processes, expected })
        } else {
            Ok(())
        }
    }

    /// Returns the error for an entity that was not found. `has_responded` says whether a process has responded: the
    /// entity may be in a region of a process that has not responded.
    pub fn entity_error(&self, id: EntityId, has_responded: impl Fn(u64) -> bool) -> CommandError {
        let has_owner =
            |region: &RegionOwner| region.owner.is_some_and(|(process, _)| has_responded(process));
        entity_error(id, self.regions_without(has_owner))
    }

    /// The regions for which `filter` returns `false`.
    pub(super) fn regions_without(&self, filter: impl Fn(&RegionOwner) -> bool) -> Vec<RegionId> {
        self.regions.iter().filter(|region| !filter(region)).map(|region| region.region).collect()
    }
}

/// A read of a world's owners that is in progress. No thread waits for it.
#[derive(Debug)]
pub(super) struct PendingWorldOwners {
    client: Client,
    world: String,
    /// The key at which the next page begins.
    start: Vec<u8>,
    end: Vec<u8>,
    /// The keys in the pages that have arrived so far.
    entries: Vec<KvEntry>,
    /// The query for the next page, and the time by which its response has to arrive.
    page: Option<(PendingQuery, Instant)>,
}

/// Why the owners of a world's regions cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorldOwnersError {
    /// The name is not a valid name of a world.
    #[error(transparent)]
    Name(#[from] WorldNameError),
    /// The node knows no world with this name.
    #[error("there is no world {0:?} at this node: start one with `dunlin space run`")]
    NoWorld(String),
    /// The world has not begun, because it waits for more processes.
    #[error(
        "world {world:?} has not begun: {processes} of {expected} processes take part; \
         `dunlin space join {world}` starts another"
    )]
    NotBegun {
        /// The world's name.
        world: String,
        /// How many processes take part.
        processes: usize,
        /// How many processes have to take part.
        expected: usize,
    },
    /// All processes of the world have ended.
    #[error(
        "no process runs world {0:?}: its processes have ended, or cannot reach this node; `dunlin space join {0}` starts one"
    )]
    NoProcess(String),
    /// The keys of the world could not be read.
    #[error(transparent)]
    Kv(#[from] KvError),
}

impl World {
    /// Reads the present owners of the world's regions.
    pub fn world_owners(&self) -> Result<WorldOwners, WorldOwnersError> {
        check_world_name(&self.name)?;
        WorldOwners::from_entries(&self.name, &self.client.kv().prefix(prefix_of(&self.name))?)
    }

    /// Like [`world_owners`](Self::world_owners), but fails if the owners were not read by the time `until`.
    pub(super) fn world_owners_until(&self, until: Instant) -> Result<WorldOwners, WorldOwnersError> {
        check_world_name(&self.name)?;
        let entries = self.client.kv().prefix_until(&prefix_of(&self.name), until)?;
        WorldOwners::from_entries(&self.name, &entries)
    }

    /// Begins to read the present owners. Does not wait.
    pub(super) fn begin_world_owners(&self) -> PendingWorldOwners {
        let prefix = prefix_of(&self.name).into_bytes();
        PendingWorldOwners {
            client: self.client.clone(),
            world: self.name.clone(),
            end: prefix_end(&prefix),
            start: prefix,
            entries: Vec::new(),
            page: None,
        }
    }
}

impl PendingWorldOwners {
    /// Continues the read without waiting. Returns the owners when all pages have arrived, and `None` before that.
    /// Fails if a page does not arrive in time. The first query is sent as soon as there is a connection.
    pub(super) fn poll(&mut self) -> Result<Option<WorldOwners>, WorldOwnersError> {
        loop {
            if let Some((answered, _)) = self.page.take_if(|(page, _)| page.poll_answered()) {
                let page = KvPage::from_answer(answered.wait()?)?;
                self.entries.extend(page.entries);
                match self.entries.last() {
                    Some(last) if page.more => self.start = [&last.key[..], &[0]].concat(),
                    _ => return WorldOwners::from_entries(&self.world, &self.entries).map(Some),
                }
            }
            if let Some((_, until)) = &self.page {
                if Instant::now() < *until {
                    return Ok(None);
                }
                return Err(KvError::Unknown("the node did not answer in time".to_owned()).into());
            }
            if !self.client.is_up() {
                drop(self.client.shared.try_pump());
                return Ok(None);
            }
            let query = ControlQuery::Range { start: &self.start, end: &self.end, limit: 0 };
            let kv = self.client.kv();
            self.page = Some((kv.begin_query(&query)?, deadline(kv.response_timeout())));
        }
    }
}

impl WorldOwners {
    fn from_entries(world: &str, entries: &[KvEntry]) -> Result<WorldOwners, WorldOwnersError> {
        let prefix = prefix_of(world);
        let described = entries.iter().find(|entry| entry.key == format!("{prefix}world").as_bytes());
        let described = described.and_then(|entry| serde_json::from_slice::<Value>(&entry.value).ok());
        let expected = described.as_ref().and_then(|described| described["processes"].as_u64()).unwrap_or(0);
        let mut map =
            WorldOwners { world: world.to_owned(), expected: expected as usize, ..WorldOwners::default() };
        let (mut owners, mut began) = (BTreeMap::new(), Vec::new());
        for entry in entries {
            let Some((kind, number)) = parse(&prefix, entry) else { continue };
            let value = || serde_json::from_slice::<Value>(&entry.value).ok();
            match kind {
                "process" => {
                    let url = value().and_then(|value| Some(value["url"].as_str()?.to_owned()));
                    map.processes.extend(url.map(|url| (number, url)));
                }
                "region" => {
                    let owner = value()
                        .and_then(|value| Some((value["process"].as_u64()?, value["epoch"].as_u64()?)));
                    owners.extend(owner.map(|owner| (number, owner)));
                }
                "began" => began.push(number),
                _ => {}
            }
        }
        began.extend(owners.keys().filter(|region| !began.contains(region)).copied().collect::<Vec<_>>());
        began.sort_unstable();
        if began.is_empty() && map.processes.is_empty() && described.is_none() {
            return Err(WorldOwnersError::NoWorld(world.to_owned()));
        }
        let region_owner =
            |number| Some(RegionOwner { region: region(number)?, owner: owners.get(&number).copied() });
        map.regions = began.into_iter().filter_map(region_owner).collect();
        Ok(map)
    }
}

/// Returns the prefix of all keys of a world.
fn prefix_of(world: &str) -> String {
    format!("space/{world}/")
}

fn region(number: u64) -> Option<RegionId> {
    u32::try_from(number).ok().map(RegionId)
}

fn parse<'a>(prefix: &str, entry: &'a KvEntry) -> Option<(&'a str, u64)> {
    let (kind, number) = std::str::from_utf8(&entry.key).ok()?.strip_prefix(prefix)?.split_once('/')?;
    Some((kind, number.parse().ok()?))
}
