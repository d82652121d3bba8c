//! The command `dunlin space owner`, which lists the regions of a world with their owners.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use dunlin_client::space::WorldOwnersError;
use dunlin_client::{Kv, KvEntry};
use dunlin_server::space::WorldDescription;
use serde_json::{Value, json};

use super::spec::describe;
use crate::arguments::GlobalOptions;
use crate::commands::parse::world;
use crate::connect::connect;
use crate::console::Console;
use crate::table::TextTable;

/// Arguments of `dunlin space owner`, which lists regions and their owners.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Name of the world
    #[arg(default_value = "world", value_parser = world)]
    name: String,
}

/// The status of one region of a world: its owner, and its standby.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegionStatus {
    pub region: u64,
    /// The number of the process that owns the region, and the epoch in which the process owns it; `None` if the region
    /// has no owner.
    pub owner: Option<(u64, u64)>,
    /// The address of the node that belongs to the owner.
    pub url: Option<String>,
    /// The process that is the region's standby; `None` if there is none.
    pub standby: Option<u64>,
    /// Whether the standby is still copying the region's state.
    pub is_copying: bool,
    /// Whether the region has had an owner before.
    pub had_owner: bool,
}

/// The status of a world: its processes, and its regions with their owners.
pub struct WorldStatus {
    world: String,
    processes: usize,
    /// The number of processes that must have joined before the regions receive owners.
    expected: usize,
    pub regions: Vec<RegionStatus>,
}

impl WorldStatus {
    /// Reads the status of the world `name`, with its processes and the regions in `regions`.
    pub fn find(kv: &Kv, name: &str, regions: &[u32]) -> Result<WorldStatus> {
        find(kv, name, regions)
    }

    /// Returns the reason why the entities of the world do not move; `None` if they move.
    pub fn problem(&self) -> Option<String> {
        let (world, processes, expected) = (self.world.clone(), self.processes, self.expected);
        let has_begun = self.regions.iter().any(|region| region.had_owner || region.owner.is_some());
        let why = match processes {
            0 => WorldOwnersError::NoProcess(world),
            _ if has_begun => return None,
            _ => WorldOwnersError::NotBegun { world, processes, expected },
        };
        Some(why.to_string())
    }
}

fn find(kv: &Kv, name: &str, regions: &[u32]) -> Result<WorldStatus> {
    let entries = kv.prefix(format!("space/{name}/"))?;
    let of = |what: &str| -> BTreeMap<u64, Value> {
        let prefix = format!("space/{name}/{what}/");
        let number = |entry: &KvEntry| str::from_utf8(&entry.key).ok()?.strip_prefix(&prefix)?.parse().ok();
        let value = |entry: &KvEntry| serde_json::from_slice(&entry.value).ok();
        entries.iter().filter_map(|entry| Some((number(entry)?, value(entry)?))).collect()
    };
    let (processes, owners, standbys, began) = (of("process"), of("region"), of("standby"), of("began"));
    let region = |region: &u32| {
        let region = u64::from(*region);
        let owner = owners
            .get(&region)
            .and_then(|value| Some((value["process"].as_u64()?, value["epoch"].as_u64()?)));
        let process_entry = owner.and_then(|(process, _)| processes.get(&process));
        // A standby with the process number 0 means that the region has no standby.
        let standby = standbys.get(&region).filter(|value| value["process"].as_u64() != Some(0));
        RegionStatus {
            region,
            owner,
            url: process_entry.and_then(|value| Some(value["url"].as_str()?.to_owned())),
            standby: standby.and_then(|value| value["process"].as_u64()),
            is_copying: standby.is_some_and(|value| value["before"].is_u64()),
            had_owner: began.contains_key(&region),
        }
    };
    let regions = regions.iter().map(region).collect();
    let described = entries.iter().find(|entry| entry.key == WorldDescription::key(name));
    let described = described.and_then(|entry| serde_json::from_slice::<Value>(&entry.value).ok());
    let expected = described.and_then(|described| described["processes"].as_u64()).unwrap_or(0) as usize;
    Ok(WorldStatus { world: name.to_owned(), processes: processes.len(), expected, regions })
}

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let kv = connect(global, "dunlin space owner")?.kv();
    let description = describe(&kv, &arguments.name)?;
    let found = WorldStatus::find(&kv, &arguments.name, &description.regions)?;
    if let Some(problem) = found.problem() {
        writeln!(std::io::stderr(), "{} {problem}", console.errors.warning("warning:"))?;
    }
    let regions = found.regions;
    let mut out = console.out();
    if console.json {
        for RegionStatus { region, owner, url, standby, is_copying, .. } in regions {
            let (process, epoch) = (owner.map(|owner| owner.0), owner.map(|owner| owner.1));
            let line = json!({
                "region": region, "process": process, "epoch": epoch, "url": url, "standby": standby, "standby_begins": is_copying,
            });
            writeln!(out, "{line}")?;
        }
    } else {
        let mut table = TextTable::new(&["REGION", "PROCESS", "EPOCH", "NODE", "STANDBY"]);
        let or_none =
            |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        for RegionStatus { region, owner, url, standby, is_copying, had_owner } in regions {
            let standby = or_none(standby) + if is_copying { " (copying)" } else { "" };
            table.row([
                region.to_string(),
                or_none(owner.map(|owner| owner.0)),
                or_none(owner.map(|owner| owner.1)),
                url.unwrap_or_else(|| {
                    if had_owner { "no owner: its entities do not move" } else { "has not begun" }.to_owned()
                }),
                standby,
            ]);
        }
        table.write(&mut out, console.paint)?;
    }
    Ok(out.flush()?)
}
