//! `demo`: recorded markets, replayed line by line to many subscribers, with every record accounted for.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Who reads: one subscriber in this process, and in processes of their own, over TCP: one that joins late, one that is
killed and comes back, a brisk one and a slow one on a topic with a short history. The slow one misses records; it
must be told exactly which. Ends with a table, and a failure if a single record is unaccounted for.

The recordings are fetched by `cargo xtask data`; `cargo xtask demo` does that first.

Examples:
  dunlin demo --data data                        over in about a minute; the node stays up to be looked at
  dunlin demo --data data --speed max --once")]
pub struct Arguments {
    /// Directory of the recordings
    #[arg(long, value_name = "DIRECTORY", default_value = "data")]
    data: PathBuf,
    /// How fast: `1x` is as recorded, `10x`, …, or `max` [default: each market in about a minute]
    #[arg(long)]
    speed: Option<String>,
    /// End after the table instead of leaving the node up
    #[arg(long)]
    once: bool,
    /// Without recordings, replay made-up ones instead of failing
    #[arg(long)]
    allow_generated: bool,
}

#[derive(Debug, clap::Args)]
pub struct ChildArguments {
    /// The reader's name
    #[arg(long)]
    name: String,
}
