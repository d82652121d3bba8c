//! The command line: the program `dunlin`, and code shared with `dunlin-bench`.
//!
//! Each command is a file under `commands/`, which contains the type `Arguments` and the function `run`. Code that
//! neither reads input nor prints output is in separate modules. The program `dunlin-bench` runs the commands `bench`,
//! `report`, `demo` and `scale`, but `dunlin` also parses their arguments, so that the help, completions and manual of
//! `dunlin` are complete. Exit codes: 0 success, 1 refused, 2 failed or invalid command line.
#![allow(missing_docs, reason = "a library for the two programs alone")]

pub mod arguments;
mod bench_program;
mod certificates;
pub mod commands;
pub mod config;
pub mod connect;
pub mod console;
mod follow;
mod format;
mod help;
mod input;
mod ladder;
mod outage;
pub mod outcome;
mod program;
mod progress;
pub mod running;
mod sender;
pub mod signals;
pub mod state;
pub mod table;
mod telemetry;
mod workers;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use crate::arguments::{Arguments, GlobalOptions, prefer_command_line};
use crate::console::Console;

/// Runs the program `dunlin`.
pub fn main() -> ExitCode {
    start(
        |arguments: &Arguments| &arguments.global,
        |arguments, console| commands::run(&arguments.command, &arguments.global, console),
    )
}

/// Parses the command line of this process and runs the command. Reports an error on standard error, and returns the
/// exit code.
pub fn start<A: Parser>(
    global: impl FnOnce(&A) -> &GlobalOptions,
    run: impl FnOnce(&A, &Console) -> Result<()>,
) -> ExitCode {
    signals::ignore_file_size_signal();
    let mut matches = help::matches(help::command::<A>());
    prefer_command_line(&mut matches);
    let arguments = A::from_arg_matches_mut(&mut matches).unwrap_or_else(|error| error.exit());
    let console = Console::new(global(&arguments));
    match run(&arguments, &console) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => outcome::report(&error, &console),
    }
}
