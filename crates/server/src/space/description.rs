//! The description of a world, which is stored in a key of the cluster.
//!
//! ```text
//!  space/WORLD/world   {"version": 2, "dimensions", "low", "high", "regions", "processes", "standby", "tick_us",
//!                       "components": [{"name", "bytes"}], "recipe"}       "bytes" is null for a component that is one f32
//! ```
//! A world's processes write the description if it is missing, so that every world can be found.

use dunlin::space::{ComponentKind, RegionId, RegionSetup, Schema, WorldBox};
use dunlin_client::{Kv, KvError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const VERSION: u32 = 2;

/// A component that the world's entities have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Component {
    name: String,
    /// Size in bytes; `None` for a component that is one f32.
    bytes: Option<u32>,
}

/// The description of a world, which the world's processes store in the cluster: its extent, regions and components.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorldDescription {
    version: u32,
    /// Number of dimensions: 2 or 3.
    pub dimensions: usize,
    /// The lowest coordinates of the world, one for each dimension.
    pub low: Vec<f32>,
    /// The highest coordinates of the world, one for each dimension.
    pub high: Vec<f32>,
    /// The numbers of all regions.
    pub regions: Vec<u32>,
    /// Number of processes that must be present before the world's regions are distributed among them.
    pub processes: usize,
    /// Whether each region needs a standby.
    pub standby: bool,
    /// Length of a tick, µs.
    pub tick_us: u64,
    components: Vec<Component>,
    /// Data from which the program that created the world can create it again; null if the program needs none.
    pub recipe: Value,
}

/// The reason why the description of a world cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorldDescriptionError {
    /// There is no such world.
    #[error("there is no world {name:?} at this node, which {}; `dunlin space run` starts a world", list(.known))]
    Unknown {
        /// The name that was requested.
        name: String,
        /// The names of the existing worlds.
        known: Vec<String>,
    },
    /// Another version of Dunlin has written the description, and this version cannot read it.
    #[error("another version of Dunlin wrote the description of world {name:?}: {why}")]
    Unreadable {
        /// The world's name.
        name: String,
        /// Why this version cannot read the description.
        why: String,
    },
    /// The cluster could not read the key.
    #[error(transparent)]
    Kv(#[from] KvError),
}

fn list(known: &[String]) -> String {
    if known.is_empty() {
        "has no worlds".to_owned()
    } else {
        format!("has these worlds: {}", known.join(", "))
    }
}

impl WorldDescription {
    /// Creates the description of a world from the setup of its regions, and from values for the fields with the same
    /// names.
    pub fn of<const D: usize>(
        setup: &RegionSetup<D>,
        regions: &[RegionId],
        processes: usize,
        standby: bool,
        recipe: Value,
    ) -> WorldDescription {
        let component = |component: &dunlin::space::Component| Component {
            name: component.name.clone(),
            bytes: match component.kind {
                ComponentKind::Bytes(bytes) => Some(bytes),
                _ => None,
            },
        };
        WorldDescription {
            version: VERSION,
            dimensions: D,
            low: setup.world.min().to_vec(),
            high: setup.world.max().to_vec(),
            regions: regions.iter().map(|region| region.0).collect(),
            processes,
            standby,
            tick_us: setup.tick_ns / 1_000,
            components: setup.schema.components().iter().map(component).collect(),
            recipe,
        }
    }

    /// The key in which a world's description is stored.
    pub fn key(world: &str) -> Vec<u8> {
        format!("space/{world}/world").into_bytes()
    }

    /// Encodes the description as JSON, the value of its key.
    pub fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads the description of the world with this name from the cluster.
    pub fn read(kv: &Kv, name: &str) -> Result<WorldDescription, WorldDescriptionError> {
        let Some(entry) = kv.get(WorldDescription::key(name))? else {
            let world = |key: &[u8]| {
                let key = str::from_utf8(key).ok()?;
                Some(key.strip_prefix("space/")?.strip_suffix("/world")?.to_owned())
            };
            let known = kv.prefix("space/")?.iter().filter_map(|entry| world(&entry.key)).collect();
            return Err(WorldDescriptionError::Unknown { name: name.to_owned(), known });
        };
        let unreadable = |why: String| WorldDescriptionError::Unreadable { name: name.to_owned(), why };
        let read: WorldDescription =
            serde_json::from_slice(&entry.value).map_err(|why| unreadable(why.to_string()))?;
        match read.version {
            VERSION => Ok(read),
            version => Err(unreadable(format!("version {version} is unknown"))),
        }
    }

    /// The world's extent; `None` if the world has another number of dimensions than `D`.
    pub fn world<const D: usize>(&self) -> Option<WorldBox<D>> {
        let corner = |corner: &[f32]| <[f32; D]>::try_from(corner).ok();
        WorldBox::new(corner(&self.low)?, corner(&self.high)?).ok()
    }

    /// The components of the world's entities.
    pub fn schema(&self) -> Schema {
        let mut schema = Schema::default();
        for Component { name, bytes } in &self.components {
            // Registering cannot fail, because the components come from a valid schema.
            let _ = schema.register(name, bytes.map_or(ComponentKind::F32, ComponentKind::Bytes));
        }
        schema
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn world_description_is_read_back_as_written() {
        let world = WorldBox::new([0.0, -1.0, 2.5], [10.0, 1.0, 3.0]).unwrap();
        let mut setup = RegionSetup::new(RegionId(0), world, 1.0);
        setup.schema.register("fuel", ComponentKind::F32).unwrap();
        setup.schema.register("name", ComponentKind::Bytes(7)).unwrap();
        let described = WorldDescription::of(&setup, &[RegionId(1), RegionId(4)], 2, true, Value::Null);
        let read: WorldDescription = serde_json::from_slice(&described.bytes()).unwrap();
        assert_eq!(read, described);
        assert_eq!(read.world::<3>().map(|world| world.max()), Some([10.0, 1.0, 3.0]));
        assert!(read.world::<2>().is_none());
        assert_eq!(read.schema(), setup.schema);
    }
}
