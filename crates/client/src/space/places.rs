//! Where a world's processes are, and which regions they own: as the keys say by which they agree.

use std::collections::BTreeMap;

use dunlin_space::RegionId;
use serde_json::Value;

use super::World;
use crate::kv::{Entry, KvError};

/// One region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which.
    pub region: RegionId,
    /// The process that owns it and the epoch of that; nothing while nobody does.
    pub owner: Option<(u64, u64)>,
}

/// A world as it is spread now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    /// The addresses of the processes' nodes.
    pub processes: BTreeMap<u64, String>,
    /// All regions that ever began.
    pub regions: Vec<Place>,
}

/// Why it is not known where a world is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacesError {
    /// Nobody began it.
    #[error("no world {0:?} has begun at this node: `dunlin space run` begins one")]
    NoWorld(String),
    /// It cannot be asked.
    #[error(transparent)]
    Kv(#[from] KvError),
}

impl World {
    /// Where its regions are now.
    pub fn places(&self) -> Result<Places, PlacesError> {
        let prefix = format!("space/{}/", self.name);
        let entries = self.client.kv().prefix(&prefix)?;
        let mut places = Places::default();
        let (mut owners, mut began) = (BTreeMap::new(), Vec::new());
        for entry in &entries {
            let Some((what, number)) = parse(&prefix, entry) else { continue };
            let value = || serde_json::from_slice::<Value>(&entry.value).ok();
            match what {
                "process" => {
                    let url = value().and_then(|value| Some(value["url"].as_str()?.to_owned()));
                    places.processes.extend(url.map(|url| (number, url)));
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
        if began.is_empty() && places.processes.is_empty() {
            return Err(PlacesError::NoWorld(self.name.clone()));
        }
        let place = |number| Some(Place { region: region(number)?, owner: owners.get(&number).copied() });
        places.regions = began.into_iter().filter_map(place).collect();
        Ok(places)
    }
}

fn region(number: u64) -> Option<RegionId> {
    u32::try_from(number).ok().map(RegionId)
}

fn parse<'a>(prefix: &str, entry: &'a Entry) -> Option<(&'a str, u64)> {
    let (what, number) = std::str::from_utf8(&entry.key).ok()?.strip_prefix(prefix)?.split_once('/')?;
    Some((what, number.parse().ok()?))
}
