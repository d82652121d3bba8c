//! The command `dunlin space command`, which changes an entity, whatever region the entity is in.

use std::io::Write;
use std::time::Duration;

use anyhow::{Result, bail};
use dunlin_client::space::{CommandResult, EntityCommand, EntityId};
use serde_json::json;

use crate::arguments::GlobalOptions;
use crate::commands::parse::{positive_duration, world};
use crate::connect::connect;
use crate::console::Console;
use crate::outcome::CommandRefusal;

/// Arguments of `dunlin space command`, which changes an entity.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin space command 1000000 --velocity 0,0,9     make the entity fly up
  dunlin space command 1000000 birds --position 5,5,5 --kind 2

Properties that are not given stay as they are. The command ends when the entity's owner has made the change. If the owner
is killed, changes of its last tick are lost; repeating the command is harmless.")]
pub struct Arguments {
    /// Id of the entity
    entity: u64,
    /// Name of the world
    #[arg(default_value = "world", value_parser = world)]
    name: String,
    /// New position, in units of the world
    #[arg(long, value_name = "X,Y,Z", value_parser = point, allow_hyphen_values = true)]
    position: Option<[f32; 3]>,
    /// New velocity, in units per second
    #[arg(long, value_name = "X,Y,Z", value_parser = point, allow_hyphen_values = true)]
    velocity: Option<[f32; 3]>,
    /// New kind: a number whose meaning the world's program defines
    #[arg(long, value_name = "NUMBER")]
    kind: Option<u32>,
    /// Maximum time to wait, for example while the entity changes its region
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = positive_duration)]
    timeout: Duration,
}

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    let Arguments { entity, name, position, velocity, kind, timeout } = arguments;
    if position.is_none() && velocity.is_none() && kind.is_none() {
        bail!(CommandRefusal("nothing to change: give --position, --velocity or --kind".to_owned()));
    }
    let command = EntityCommand::<3> {
        position: *position,
        velocity: *velocity,
        kind: *kind,
        ..EntityCommand::of(EntityId(*entity))
    };
    let mut world = connect(global, "dunlin space command")?.world(name);
    let done = world.command(&command, *timeout).map_err(|why| CommandRefusal(why.to_string()))?;
    print(*entity, "changed in", done, console)
}

/// Prints the result of a command on an entity; `what` says what was done, such as "changed in", and precedes the
/// region.
pub(super) fn print(entity: u64, what: &str, done: CommandResult, console: &Console) -> Result<()> {
    let CommandResult { process, region, tick } = done;
    let mut out = console.out();
    if console.json {
        let line =
            json!({"entity": entity.to_string(), "process": process, "region": region.0, "after_tick": tick});
        writeln!(out, "{line}")?;
    } else {
        writeln!(
            out,
            "entity {entity} is {what} region {} of process {process}, after tick {tick}",
            region.0
        )?;
    }
    Ok(out.flush()?)
}

/// Parses the three coordinates of a point, separated by commas.
pub(super) fn point(text: &str) -> Result<[f32; 3], String> {
    let coordinates: Result<Vec<f32>, _> =
        text.split(',').map(|coordinate| coordinate.trim().parse()).collect();
    let point: Option<[f32; 3]> = coordinates.ok().and_then(|coordinates| coordinates.try_into().ok());
    let point = point.filter(|point| point.iter().all(|coordinate| coordinate.is_finite()));
    point.ok_or_else(|| format!("{text:?} is not three numbers like 1,2.5,-3"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn point_is_exactly_three_finite_numbers() {
        assert_eq!(point("1, 2.5,-3"), Ok([1.0, 2.5, -3.0]));
        for wrong in ["1,2", "1,2,3,4", "1,2,x", "1,2,NaN", ""] {
            assert!(point(wrong).is_err(), "{wrong}");
        }
    }
}
