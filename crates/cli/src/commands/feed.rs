//! The command `dunlin feed`, which simulates, watches, records and replays order books and other states.

mod import;
mod record;
pub mod recording;
mod replay;
mod serve;
mod verify;
mod watch;

use std::path::Path;

use anyhow::{Context, Result};
use dunlin_feed::{InstrumentsText, Notation, SCENARIOS};
use dunlin_server::read_text;

use crate::arguments::GlobalOptions;
use crate::console::Console;

/// Arguments of `dunlin feed`, which simulates, watches, records and replays state topics.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = "\
Try it:
  dunlin feed serve --config baseline_1x1_10k   run a simulated order book
  dunlin feed watch md.BTC-USD                  show the book live
  dunlin feed import --check data/*             check recordings of exchanges
  dunlin feed record --out rec/ 'md.>' --time 10s
  dunlin feed verify --strict rec/")]
pub struct Arguments {
    #[command(subcommand)]
    subcommand: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Publish simulated order books, on a new node or a running one
    Serve(serve::Arguments),
    /// Watch order books: a live view in the terminal, or one line for each change
    Watch(watch::Arguments),
    /// Publish exchanges' recordings as order books
    Import(import::Arguments),
    /// Record state topics to files
    Record(record::Arguments),
    /// Publish a recording again
    Replay(replay::Arguments),
    /// Check that a recording is complete and its states are correct
    Verify(verify::Arguments),
}

pub fn run(arguments: &Arguments, global: &GlobalOptions, console: &Console) -> Result<()> {
    match &arguments.subcommand {
        Subcommand::Serve(arguments) => serve::run(arguments, global, console),
        Subcommand::Watch(arguments) => watch::run(arguments, global, console),
        Subcommand::Import(arguments) => import::run(arguments, global, console),
        Subcommand::Record(arguments) => record::run(arguments, global, console),
        Subcommand::Replay(arguments) => replay::run(arguments, global, console),
        Subcommand::Verify(arguments) => verify::run(arguments, console),
    }
}

/// Reads a file that lists instruments. If `file` is the name of a built-in list, returns the built-in text instead.
pub fn read_instruments(file: &Path) -> Result<InstrumentsText> {
    if let Some(scenario) = file.to_str().and_then(InstrumentsText::scenario) {
        return Ok(scenario);
    }
    let text = read_text(file).with_context(|| {
        let names = SCENARIOS.map(|(name, _)| name).join(", ");
        format!("cannot read {} (built-in files: {names})", file.display())
    })?;
    let notation = file.to_str().map_or(Notation::Json, Notation::of_file);
    Ok(InstrumentsText { text, notation })
}
