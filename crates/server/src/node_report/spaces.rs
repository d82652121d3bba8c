//! Report `spaces`: the worlds whose processes coordinate through this node or its cluster, from the keys that
//! `crates/server/src/space/owners.rs` lists.

use std::collections::BTreeMap;

use dunlin::state::{ControlState, KeyWithItem, prefix_end};
use serde_json::{Map, Value, json};

use crate::shared::SharedServer;

const SPACES: &[u8] = b"space/";
/// Maximum number of keys that are read for one report.
const KEYS_MAX: u32 = 10_000;

/// The keys of one world.
#[derive(Debug, Default)]
struct WorldReport {
    spec: Option<Value>,
    held: bool,
    processes: BTreeMap<u64, Value>,
    regions: BTreeMap<u64, Map<String, Value>>,
}

pub(super) fn say(shared: &SharedServer) -> Value {
    let Some(control) = shared.node.control_if_any() else { return json!({"worlds": []}) };
    let look = |state: &ControlState| state.range(SPACES, &prefix_end(SPACES), KEYS_MAX).items;
    let mut worlds: BTreeMap<String, WorldReport> = BTreeMap::new();
    for pair in control.with(look).unwrap_or_default() {
        take(&pair, &mut worlds);
    }
    let worlds: Vec<Value> = worlds.into_iter().map(|(name, world)| world.say(&name)).collect();
    json!({"worlds": worlds})
}

fn take(pair: &KeyWithItem, worlds: &mut BTreeMap<String, WorldReport>) -> Option<()> {
    let rest = std::str::from_utf8(pair.key.get(SPACES.len()..)?).ok()?;
    let (name, rest) = rest.split_once('/')?;
    let world = worlds.entry(name.to_owned()).or_default();
    let value: Value = serde_json::from_slice(&pair.item.value).unwrap_or(Value::Null);
    let Some((what, number)) = rest.split_once('/') else {
        if rest == "world" {
            world.spec = Some(value);
        }
        return Some(());
    };
    let number: u64 = number.parse().ok()?;
    let mut of_region = |name: &str, value: Value| {
        world.regions.entry(number).or_default().insert(name.to_owned(), value);
    };
    match what {
        "process" => drop(world.processes.insert(number, value)),
        "hold" => world.held = true,
        "region" => {
            of_region("process", value["process"].clone());
            of_region("epoch", value["epoch"].clone());
        }
        "standby" => of_region("standby", value["process"].clone()),
        "began" => of_region("began", true.into()),
        _ => {}
    }
    Some(())
}

impl WorldReport {
    fn say(self, name: &str) -> Value {
        let of_spec = |what: &str| self.spec.as_ref().map(|spec| spec[what].clone());
        let processes: Vec<Value> = self
            .processes
            .into_iter()
            .map(|(process, place)| json!({"process": process, "address": place["address"], "url": place["url"]}))
            .collect();
        let regions: Vec<Value> = self
            .regions
            .into_iter()
            .map(|(region, mut said)| {
                said.insert("region".to_owned(), region.into());
                Value::Object(said)
            })
            .collect();
        json!({
            "world": name, "dimensions": of_spec("dimensions"), "low": of_spec("low"), "high": of_spec("high"),
            "kinds": of_spec("recipe").map(|recipe| recipe["kinds"].clone()),
            "tick_us": of_spec("tick_us"), "held": self.held, "processes": processes, "regions": regions,
        })
    }
}
