//! `space`: a world full of moving entities, over as many processes as wanted.

mod command;
pub mod life;
mod map;
mod near;
mod owner;
mod pictures;
mod process;
mod run;
mod spawn;
pub mod spec;
pub mod watch;

use anyhow::Result;

use crate::arguments::Global;
use crate::console::Console;

#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "\
Try it, in three terminals:
  dunlin space run --processes 2 --flock 20000     the first process of a world, and its node
  dunlin space join                                the second: now the regions are shared out
  dunlin space watch                               the map
  dunlin space near 1000000 --within 40            who flies near one of them

Regions belong to processes by leases of the node or cluster at --url. Each has another process that
stands by for it: kill one, and its entities go on there, where they were at most one tick before.")]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Begin a world: its first process, beside a node that holds what the processes agree on
    Run(run::Arguments),
    /// Take part in a world that somebody began
    Join(process::Arguments),
    /// See it move: a map in the terminal, or a line a second
    Watch(watch::Arguments),
    /// Which process owns which region, and who stands by for it
    #[command(visible_alias = "owners")]
    Owner(owner::Arguments),
    /// Who is within so far of an entity, as they come and go, wherever it goes
    Near(near::Arguments),
    /// Change an entity: where it is, how fast, of which kind
    Command(command::Arguments),
    /// Spawn an entity at a place of the world
    Spawn(spawn::Arguments),
    /// Take an entity out of the world
    Despawn(spawn::Despawn),
}

pub fn run(arguments: &Arguments, global: &Global, console: &Console) -> Result<()> {
    match &arguments.verb {
        Verb::Run(arguments) => run::run(arguments, global, console),
        Verb::Join(arguments) => process::join(arguments, global, console),
        Verb::Watch(arguments) => watch::run(arguments, global, console),
        Verb::Owner(arguments) => owner::run(arguments, global, console),
        Verb::Near(arguments) => near::run(arguments, global, console),
        Verb::Command(arguments) => command::run(arguments, global, console),
        Verb::Spawn(arguments) => spawn::run(arguments, global, console),
        Verb::Despawn(arguments) => spawn::despawn(arguments, global, console),
    }
}
