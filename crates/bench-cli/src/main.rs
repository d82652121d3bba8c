//! The program `dunlin-bench`, which runs the commands `bench`, `report`, `demo` and `scale` of `dunlin`.
//!
//! The program `dunlin` parses the command line of these commands, and then starts this program. This separate program
//! exists because it depends on code that no node needs: clients of other systems, plots, recordings and simulations.
//! The library `dunlin-cli` contains the code that both programs share.

mod commands;
mod demo;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use dunlin_cli::arguments::{GlobalOptions, STYLES};
use dunlin_cli::commands::{bench, demo as demos, report, scale, serve, space};
use dunlin_cli::console::Console;
use dunlin_cli::outcome::EXIT_CODES;

/// Run the commands bench, report, demo and scale of `dunlin`
#[derive(Debug, Parser)]
#[command(name = "dunlin-bench", version, styles = STYLES, max_term_width = 80, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    global: GlobalOptions,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Replay recorded markets to many subscribers, and check that none loses a record unnoticed
    Demo(demos::Arguments),
    /// Measure the performance of Dunlin, alone or compared with other systems
    Bench(bench::Arguments),
    /// Write a report page from benchmark runs
    Report(report::Arguments),
    /// Plan, recommend or simulate the number of workers for tasks
    Scale(scale::Arguments),
    /// Run a child process of a benchmark
    #[command(hide = true)]
    BenchChild(commands::bench::BenchChildArguments),
    /// Run a subscriber of the demo
    #[command(hide = true)]
    DemoChild(commands::demo::DemoChildArguments),
    /// Run a node of the demo
    #[command(hide = true)]
    Serve(serve::Arguments),
    /// Run a process of the demo's world
    #[command(hide = true)]
    Space(space::Arguments),
}

fn main() -> ExitCode {
    dunlin_cli::start(|arguments: &Arguments| &arguments.global, run)
}

fn run(arguments: &Arguments, console: &Console) -> Result<()> {
    let global = &arguments.global;
    match &arguments.command {
        Command::Demo(arguments) => commands::demo::run(arguments, console),
        Command::Bench(arguments) => commands::bench::run(arguments, global),
        Command::Report(arguments) => commands::report::run(arguments, console),
        Command::Scale(arguments) => commands::scale::run(arguments, console),
        Command::BenchChild(arguments) => commands::bench::run_child(arguments),
        Command::DemoChild(arguments) => commands::demo::run_child(arguments, global),
        Command::Serve(arguments) => serve::run(arguments, global, console),
        Command::Space(arguments) => space::run(arguments, global, console),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn bench_command_tree_passes_the_debug_checks_of_clap() {
        Arguments::command().debug_assert();
    }
}
