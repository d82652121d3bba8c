//! `space owner`: which process owns which region.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use dunlin_client::{Entry, Kv};
use serde_json::{Value, json};

use super::spec::describe;
use crate::arguments::Global;
use crate::connect::connect;
use crate::console::Console;
use crate::table::Table;

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The world's name
    #[arg(default_value = "world")]
    name: String,
}

/// What is known of a region.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owned {
    pub region: u64,
    /// Its owner's process and its epoch.
    pub owner: Option<(u64, u64)>,
    /// Where its owner's node is.
    pub url: Option<String>,
    pub standby: Option<u64>,
    /// The standby has yet to begin.
    pub begins: bool,
}

/// All regions of a world, as they are now.
pub fn regions(kv: &Kv, name: &str, regions: &[u32]) -> Result<Vec<Owned>> {
    let entries = kv.prefix(format!("space/{name}/"))?;
    let of = |what: &str| -> BTreeMap<u64, Value> {
        let prefix = format!("space/{name}/{what}/");
        let number = |entry: &Entry| str::from_utf8(&entry.key).ok()?.strip_prefix(&prefix)?.parse().ok();
        let value = |entry: &Entry| serde_json::from_slice(&entry.value).ok();
        entries.iter().filter_map(|entry| Some((number(entry)?, value(entry)?))).collect()
    };
    let (processes, owners, standbys) = (of("process"), of("region"), of("standby"));
    let region = |region: &u32| {
        let region = u64::from(*region);
        let owner = owners
            .get(&region)
            .and_then(|value| Some((value["process"].as_u64()?, value["epoch"].as_u64()?)));
        let place = owner.and_then(|(process, _)| processes.get(&process));
        let standby = standbys.get(&region);
        Owned {
            region,
            owner,
            url: place.and_then(|value| Some(value["url"].as_str()?.to_owned())),
            // Process 0 is nobody.
            standby: standby.and_then(|value| value["process"].as_u64()).filter(|process| *process != 0),
            begins: standby.is_some_and(|value| value["before"].is_u64()),
        }
    };
    Ok(regions.iter().map(region).collect())
}

pub fn run(arguments: &Arguments, global: &Global, console: &Console) -> Result<()> {
    let kv = connect(global, "dunlin space owner")?.kv();
    let description = describe(&kv, &arguments.name)?;
    let regions = regions(&kv, &arguments.name, &description.regions)?;
    let mut out = console.out();
    if console.json {
        for Owned { region, owner, url, standby, begins } in regions {
            let (process, epoch) = (owner.map(|owner| owner.0), owner.map(|owner| owner.1));
            let line = json!({
                "region": region, "process": process, "epoch": epoch, "url": url, "standby": standby, "standby_begins": begins,
            });
            writeln!(out, "{line}")?;
        }
    } else {
        let mut table = Table::new(&["REGION", "PROCESS", "EPOCH", "NODE", "STANDS BY"]);
        let or_none =
            |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
        for Owned { region, owner, url, standby, begins } in regions {
            let standby = or_none(standby) + if begins { " (begins)" } else { "" };
            table.row([
                region.to_string(),
                or_none(owner.map(|owner| owner.0)),
                or_none(owner.map(|owner| owner.1)),
                url.unwrap_or_else(|| "nobody: its entities stand still".to_owned()),
                standby,
            ]);
        }
        table.write(&mut out, console.paint)?;
    }
    Ok(out.flush()?)
}
