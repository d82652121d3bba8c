//! `log dump`: what the logs behind topics hold right now.

use dunlin_topic::Start;

use crate::commands::parse;

#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print every record that is held, with position, times, key and headers, and end
    #[command(after_help = "\
Examples:
  dunlin log dump ticks
  dunlin log dump 'orders.>' --from 10m --count 100
  dunlin log dump ticks --json | jq .append_time")]
    Dump(Dump),
}

#[derive(Debug, clap::Args)]
struct Dump {
    /// Subjects; wildcards are fine
    pattern: String,
    /// Where to start: earliest, after a position EPOCH-SEQ, at a time (RFC 3339), or so long ago (5m)
    #[arg(long, value_name = "START", default_value = "earliest", value_parser = parse::start)]
    from: Start,
    /// Records at most
    #[arg(long, short = 'n', value_name = "COUNT")]
    count: Option<u64>,
}
