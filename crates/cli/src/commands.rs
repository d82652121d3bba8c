//! The commands, in the order in which the help lists them.

pub mod bench;
pub mod completions;
pub mod config;
pub mod demo;
pub mod dev;
pub mod errors;
pub mod log;
pub mod man;
pub mod parse;
pub mod publish;
pub mod reply;
pub mod report;
pub mod request;
pub mod serve;
pub mod subscribe;
pub mod topics;

use anyhow::Result;

use crate::arguments::{Command, Global};
use crate::console::Console;

pub fn run(command: &Command, global: &Global, console: &Console) -> Result<()> {
    match command {
        Command::Config(arguments) => config::run(arguments, console),
        Command::Completions(arguments) => completions::run(arguments),
        Command::Man(arguments) => man::run(arguments),
        Command::Errors(arguments) => errors::run(arguments, console),
        Command::Bench(arguments) => bench::run(arguments, global),
        Command::BenchChild(arguments) => bench::run_child(arguments),
        Command::Report(arguments) => report::run(arguments, console),
        _ => anyhow::bail!("this command is not built yet"),
    }
}
