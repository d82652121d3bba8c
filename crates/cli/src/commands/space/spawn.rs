//! The commands `dunlin space spawn`, which adds an entity to a world, and `dunlin space despawn`, which removes one.

use std::time::Duration;

use anyhow::Result;
use dunlin_client::space::{Entity, EntityId};

use super::command::{point, print};
use crate::arguments::GlobalOptions;
use crate::commands::parse::{positive_duration, world};
use crate::connect::connect;
use crate::console::Console;
use crate::outcome::CommandRefusal;

/// Arguments of `dunlin space spawn`, which adds an entity to a world.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin space spawn 7 --position 500,500,500
  dunlin space spawn 7 birds --position 5,5,5 --velocity 1,0,0 --kind 2

The owner of the region at the position adds the entity, after every region has confirmed that no entity has this number.")]
pub struct Arguments {
    /// Id of the entity, which no other entity of the world has
    entity: u64,
    /// Name of the world
    #[arg(default_value = "world", value_parser = world)]
    name: String,
    /// Initial position, in units of the world
    #[arg(long, value_name = "X,Y,Z", value_parser = point, allow_hyphen_values = true)]
    position: [f32; 3],
    /// Initial velocity, in units per second
    #[arg(long, value_name = "X,Y,Z", value_parser = point, allow_hyphen_values = true, default_value = "0,0,0")]
    velocity: [f32; 3],
    /// Kind: a number whose meaning the world's program defines
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    kind: u32,
    /// Maximum time to wait until the entity is added
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = positive_duration)]
    timeout: Duration,
}

/// Arguments of `dunlin space despawn`, which removes one entity from a world.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  dunlin space despawn 7")]
pub struct DespawnArguments {
    /// Id of the entity
    entity: u64,
    /// Name of the world
    #[arg(default_value = "world", value_parser = world)]
    name: String,
    /// Maximum time to wait, for example while the entity changes its region
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = positive_duration)]
    timeout: Duration,
}

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let Arguments { entity, name, position, velocity, kind, timeout } = arguments;
    let one = Entity { velocity: *velocity, kind: *kind, ..Entity::at(*entity, *position) };
    let mut world = connect(global, "dunlin space spawn")?.world(name);
    let done = world.spawn(&one, *timeout).map_err(|why| CommandRefusal(why.to_string()))?;
    print(*entity, "spawned in", done, console)
}

pub fn despawn(arguments: &DespawnArguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let DespawnArguments { entity, name, timeout } = arguments;
    let mut world = connect(global, "dunlin space despawn")?.world(name);
    let done = world.despawn(EntityId(*entity), *timeout).map_err(|why| CommandRefusal(why.to_string()))?;
    print(*entity, "removed from", done, console)
}
