//! Builds the reducer of a region's topic from the topic's configuration.
//!
//! ```text
//!  kind "region", options: region (its number),
//!                          min and max (coordinates separated by commas, one for each dimension),
//!                          components ("name:f32" or "name:BYTES", separated by commas; without this option, there are none)
//! ```

use std::collections::BTreeMap;

use dunlin_topic::{Reducer, ReducerConfig};

use crate::handover::{HandoverTiming, RegionId, StandbyMode};
use crate::limits::RegionLimits;
use crate::reducer::RegionReducer;
use crate::region::RegionSetup;
use crate::store::{Component, ComponentKind, Schema};
use crate::world::WorldBox;

/// The reducer kind in the configuration of a region's topic.
pub const REGION: &str = "region";

/// Longest name of a world, characters.
pub const WORLD_NAME_MAX: usize = 64;

/// The error for a text that is not a valid name of a world.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot name a world: use 1 to {WORLD_NAME_MAX} letters, digits, - and _")]
pub struct WorldNameError(pub String);

/// Checks a world's name, which becomes one token of subjects and one part of keys.
pub fn check_world_name(name: &str) -> Result<(), WorldNameError> {
    let has_valid_length = name.chars().nth(WORLD_NAME_MAX).is_none() && !name.is_empty();
    let has_valid_characters = name.chars().all(|c| c.is_alphanumeric() || "-_".contains(c));
    if has_valid_length && has_valid_characters { Ok(()) } else { Err(WorldNameError(name.to_owned())) }
}

/// Name of a region's topic.
pub fn topic_of(world: &str, region: RegionId) -> String {
    format!("space.{world}.region.{}", region.0)
}

/// Configuration of a region's topic.
pub fn reducer_config<const D: usize>(setup: &RegionSetup<D>) -> ReducerConfig {
    ReducerConfig { kind: REGION.to_owned(), options: options_of(setup.region, &setup.world, &setup.schema) }
}

fn options_of<const D: usize>(
    region: RegionId,
    world: &WorldBox<D>,
    schema: &Schema,
) -> BTreeMap<String, String> {
    let point = |point: [f32; D]| point.map(|along| along.to_string()).join(",");
    let component = |component: &Component| match component.kind {
        ComponentKind::F32 => format!("{}:f32", component.name),
        other => format!("{}:{}", component.name, other.size()),
    };
    let components: Vec<String> = schema.components().iter().map(component).collect();
    let mut options = BTreeMap::from([
        ("region".to_owned(), region.0.to_string()),
        ("min".to_owned(), point(world.min())),
        ("max".to_owned(), point(world.max())),
    ]);
    if !components.is_empty() {
        options.insert("components".to_owned(), components.join(","));
    }
    options
}

/// The state of a region of a world with two or with three dimensions.
#[derive(Debug)]
pub enum AnyRegion {
    /// A region of a world in two dimensions.
    Plane(RegionReducer<2>),
    /// A region of a world in three dimensions.
    Space(RegionReducer<3>),
}

impl AnyRegion {
    /// Builds the state from a topic's options. The error text names the wrong option.
    pub fn of(options: &BTreeMap<String, String>) -> Result<AnyRegion, String> {
        let known = ["region", "min", "max", "components"];
        if let Some(option) = options.keys().find(|option| !known.contains(&option.as_str())) {
            return Err(format!("regions have no option {option:?}: the options are {}", known.join(", ")));
        }
        let region = RegionId(number(options, "region")?);
        let (min, max) = (floats(options, "min")?, floats(options, "max")?);
        let schema = schema(options.get("components").map_or("", String::as_str))?;
        match (min.len(), max.len()) {
            (2, 2) => empty(region, &min, &max, schema).map(AnyRegion::Plane),
            (3, 3) => empty(region, &min, &max, schema).map(AnyRegion::Space),
            (low, high) => Err(format!(
                "min has {low} coordinates and max has {high}, but a world has 2 or 3 dimensions"
            )),
        }
    }

    /// The topic options from which this reducer can be built. Equal reducers have equal options, because each number
    /// and each list has only one written form.
    pub fn options(&self) -> BTreeMap<String, String> {
        fn of<const D: usize>(reducer: &RegionReducer<D>) -> BTreeMap<String, String> {
            let state = reducer.state();
            options_of(state.handover().region(), state.world(), state.store().schema())
        }
        match self {
            AnyRegion::Plane(reducer) => of(reducer),
            AnyRegion::Space(reducer) => of(reducer),
        }
    }

    /// Converts this region into a boxed reducer.
    pub fn boxed(self) -> Box<dyn Reducer> {
        match self {
            AnyRegion::Plane(reducer) => Box::new(reducer),
            AnyRegion::Space(reducer) => Box::new(reducer),
        }
    }

    /// Borrows the reducer.
    pub fn reducer(&self) -> &dyn Reducer {
        match self {
            AnyRegion::Plane(reducer) => reducer,
            AnyRegion::Space(reducer) => reducer,
        }
    }

    /// Borrows the reducer mutably.
    pub fn reducer_mut(&mut self) -> &mut dyn Reducer {
        match self {
            AnyRegion::Plane(reducer) => reducer,
            AnyRegion::Space(reducer) => reducer,
        }
    }

    /// Payload of a record that contains the whole present state of this region. A subscriber that applies the record
    /// replaces its copy of the state.
    pub fn whole(&self) -> Vec<u8> {
        match self {
            AnyRegion::Plane(reducer) => reducer.state().whole(),
            AnyRegion::Space(reducer) => reducer.state().whole(),
        }
    }
}

fn empty<const D: usize>(
    region: RegionId,
    min: &[f32],
    max: &[f32],
    schema: Schema,
) -> Result<RegionReducer<D>, String> {
    let corner = |ends: &[f32]| std::array::from_fn(|axis| ends[axis]);
    let world = WorldBox::<D>::new(corner(min), corner(max)).map_err(|error| error.to_string())?;
    let (limits, timing) = (RegionLimits::default(), HandoverTiming::default());
    Ok(RegionReducer::new(region, world, schema, limits, StandbyMode::None, timing))
}

fn text<'a>(options: &'a BTreeMap<String, String>, name: &str) -> Result<&'a str, String> {
    options.get(name).map(String::as_str).ok_or_else(|| format!("a region needs the option {name:?}"))
}

fn number(options: &BTreeMap<String, String>, name: &str) -> Result<u32, String> {
    let value = text(options, name)?;
    value.parse().map_err(|_| format!("{name} must be a number, not {value:?}"))
}

fn floats(options: &BTreeMap<String, String>, name: &str) -> Result<Vec<f32>, String> {
    let value = text(options, name)?;
    let parsed: Result<Vec<f32>, _> = value.split(',').map(|along| along.trim().parse()).collect();
    parsed.map_err(|_| format!("{name} must be coordinates separated by commas, not {value:?}"))
}

fn schema(components: &str) -> Result<Schema, String> {
    let mut schema = Schema::default();
    for component in components.split(',').filter(|component| !component.is_empty()) {
        let wrong = || format!("a component is name:f32 or name:BYTES, not {component:?}");
        let (name, size) = component.split_once(':').ok_or_else(wrong)?;
        let kind = match size {
            "f32" => ComponentKind::F32,
            bytes => ComponentKind::Bytes(bytes.parse().map_err(|_| wrong())?),
        };
        schema.register(name, kind).map_err(|error| error.to_string())?;
    }
    Ok(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_setup_is_restored_from_the_reducer_options() {
        let world = WorldBox::<3>::new([0.0, -1.5, 0.0], [100.0, 1.5, 1e6]).unwrap();
        let mut setup = RegionSetup::new(RegionId(7), world, 1.0);
        setup.schema.register("fuel", ComponentKind::F32).unwrap();
        setup.schema.register("name", ComponentKind::Bytes(16)).unwrap();
        let config = reducer_config(&setup);
        let AnyRegion::Space(region) = AnyRegion::of(&config.options).unwrap() else {
            panic!("it has three")
        };
        let state = region.state();
        assert_eq!((state.handover().region(), state.world()), (RegionId(7), &world));
        assert_eq!(state.store().schema(), &setup.schema);
    }

    #[test]
    fn configuration_error_names_the_invalid_option() {
        let with = |name: &str, value: &str| {
            let world = WorldBox::<2>::cube(10.0).unwrap();
            let mut options = reducer_config(&RegionSetup::new(RegionId(1), world, 1.0)).options;
            options.insert(name.to_owned(), value.to_owned());
            AnyRegion::of(&options).unwrap_err()
        };
        assert!(with("depth", "3").contains("\"depth\""));
        assert!(with("region", "one").contains("\"one\""));
        assert!(with("max", "10").contains("2 or 3 dimensions"));
        assert!(with("max", "10,0").contains("axis 1"));
        assert!(with("components", "fuel").contains("name:f32"));
    }
}
