//! `dunlin`: the command line.
//!
//! A command is one file under `commands/`: what can be asked of it (its `Arguments`) and what it does (`run`). What a
//! command means beyond calling the node, the client or the benchmarks is decided in pure modules beside it.
//! Exit codes: 0 done, 1 refused, 2 failed; a command line that cannot be understood is 2.

mod arguments;
mod certificates;
mod commands;
mod config;
mod connect;
mod console;
mod demo;
mod feed;
mod follow;
mod format;
mod help;
mod input;
mod ladder;
mod outage;
mod outcome;
mod program;
mod progress;
mod running;
mod signals;
mod state;
mod table;
mod telemetry;
mod workers;

use std::process::ExitCode;

use clap::FromArgMatches;

use crate::arguments::Arguments;
use crate::console::Console;

fn main() -> ExitCode {
    signals::outlive_file_size_limit();
    let mut matches = help::command::<Arguments>().get_matches();
    let arguments = Arguments::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.exit());
    let console = Console::new(&arguments.global);
    match commands::run(&arguments.command, &arguments.global, &console) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => outcome::tell(&error, &console),
    }
}
