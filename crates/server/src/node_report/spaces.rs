//! Builds the report `spaces`: the worlds whose processes coordinate through this node or its cluster. The data comes
//! from the keys that `crates/server/src/space/owners.rs` lists.

use std::collections::BTreeMap;

use dunlin::state::{ControlState, FoundKey, prefix_end};
use serde_json::{Map, Value, json};

use crate::shared::SharedServer;

const SPACES: &[u8] = b"space/";
/// Maximum number of keys that one report reads.
const KEYS_MAX: u32 = 10_000;

/// The state of one world, collected from the world's keys.
#[derive(Debug, Default)]
struct WorldReport {
    spec: Option<Value>,
    is_held: bool,
    processes: BTreeMap<u64, Value>,
    regions: BTreeMap<u64, Map<String, Value>>,
}

pub(super) fn build(shared: &SharedServer) -> Value {
    let Some(control) = shared.node.control_if_any() else { return json!({"worlds": []}) };
    let read = |state: &ControlState| state.range(SPACES, &prefix_end(SPACES), KEYS_MAX).items;
    let mut worlds: BTreeMap<String, WorldReport> = BTreeMap::new();
    for pair in control.with(read).unwrap_or_default() {
        add_key(&pair, &mut worlds);
    }
    let worlds: Vec<Value> = worlds.into_iter().map(|(name, world)| world.into_json(&name)).collect();
    json!({"worlds": worlds})
}

fn add_key(pair: &FoundKey, worlds: &mut BTreeMap<String, WorldReport>) -> Option<()> {
    let rest = std::str::from_utf8(pair.key.get(SPACES.len()..)?).ok()?;
    let (name, rest) = rest.split_once('/')?;
    let world = worlds.entry(name.to_owned()).or_default();
    let value: Value = serde_json::from_slice(&pair.item.value).unwrap_or(Value::Null);
    let Some((kind, number)) = rest.split_once('/') else {
        if rest == "world" {
            world.spec = Some(value);
        }
        return Some(());
    };
    let number: u64 = number.parse().ok()?;
    let mut set_region_entry = |name: &str, value: Value| {
        world.regions.entry(number).or_default().insert(name.to_owned(), value);
    };
    match kind {
        "process" => drop(world.processes.insert(number, value)),
        "hold" => world.is_held = true,
        "region" => {
            set_region_entry("process", value["process"].clone());
            set_region_entry("epoch", value["epoch"].clone());
        }
        "standby" => set_region_entry("standby", value["process"].clone()),
        "began" => set_region_entry("began", true.into()),
        _ => {}
    }
    Some(())
}

impl WorldReport {
    fn into_json(self, name: &str) -> Value {
        let spec_value = |name: &str| self.spec.as_ref().map(|spec| spec[name].clone());
        let processes: Vec<Value> = self
            .processes
            .into_iter()
            .map(|(process, entry)| json!({"process": process, "address": entry["address"], "url": entry["url"]}))
            .collect();
        let regions: Vec<Value> = self
            .regions
            .into_iter()
            .map(|(region, mut entries)| {
                entries.insert("region".to_owned(), region.into());
                Value::Object(entries)
            })
            .collect();
        json!({
            "world": name, "dimensions": spec_value("dimensions"),
            "low": spec_value("low"), "high": spec_value("high"),
            "kinds": spec_value("recipe").map(|recipe| recipe["kinds"].clone()),
            "tick_us": spec_value("tick_us"), "held": self.is_held, "processes": processes, "regions": regions,
        })
    }
}
