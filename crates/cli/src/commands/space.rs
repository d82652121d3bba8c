//! The command `dunlin space`, which runs and watches a world of moving entities on one or more processes.

mod command;
mod follow_fault;
pub mod life;
mod map;
mod near;
mod owner;
mod process;
mod run;
mod snapshots;
mod spawn;
pub mod spec;
pub mod watch;

use anyhow::Result;

use crate::arguments::GlobalOptions;
use crate::console::Console;

/// Arguments of `dunlin space`, which runs and watches a world.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "\
Try it, in three terminals:
  dunlin space run --processes 2 --flock 20000     start the world's first process, with its node
  dunlin space join                                start the second; each process then owns regions
  dunlin space watch                               show the map
  dunlin space near 1000000 --within 40            show the entities near entity 1000000

A process owns a region while it has the region's lease, which the node or cluster at --url grants. Another process is the
region's standby. If the owner dies, the standby continues the region from its copy, which is at most one tick old.")]
pub struct Arguments {
    #[command(subcommand)]
    subcommand: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Start a world: its first process, and a node that holds the world's leases
    Run(run::Arguments),
    /// Start another process for an existing world
    Join(process::Arguments),
    /// Watch a world: draw a map in the terminal, or print each region once a second
    Watch(watch::Arguments),
    /// List regions with their owners and standbys
    #[command(visible_alias = "owners")]
    Owner(owner::Arguments),
    /// List the entities within a distance of an entity, or print each that enters or leaves
    Near(near::Arguments),
    /// Change an entity's position, velocity or kind
    Command(command::Arguments),
    /// Add an entity to a world
    Spawn(spawn::Arguments),
    /// Remove an entity from a world
    Despawn(spawn::DespawnArguments),
}

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    match &arguments.subcommand {
        Subcommand::Run(arguments) => run::run(arguments, global, console),
        Subcommand::Join(arguments) => process::join(arguments, global, console),
        Subcommand::Watch(arguments) => watch::run(arguments, global, console),
        Subcommand::Owner(arguments) => owner::run(arguments, global, console),
        Subcommand::Near(arguments) => near::run(arguments, global, console),
        Subcommand::Command(arguments) => command::run(arguments, global, console),
        Subcommand::Spawn(arguments) => spawn::run(arguments, global, console),
        Subcommand::Despawn(arguments) => spawn::despawn(arguments, global, console),
    }
}
