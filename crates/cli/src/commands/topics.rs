//! `topics`: what topics there are, and what each promises.

use std::time::Duration;

use clap::ValueEnum;

use crate::commands::parse;
use crate::config::Size;

#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List topics
    #[command(visible_alias = "ls")]
    List {
        /// Only names that match
        #[arg(default_value = ">", hide_default_value = true)]
        pattern: String,
    },
    /// Create a topic; a first publish does that too, with the node's defaults
    #[command(after_help = "\
Examples:
  dunlin topics create ticks --retain-bytes 256MiB --retain-age 1h
  dunlin topics create orders --subjects 'orders.>' --partitions 4
  dunlin topics create fills --reliable --readers-max 2 --wait-ms-max 500 --when-full evict")]
    Create(Create),
    /// Delete a topic and everything it holds; its readers are told
    #[command(visible_alias = "rm")]
    Delete {
        /// Topics to delete
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Show one topic: its options, its logs, and what they hold
    Describe {
        /// Topics to describe
        #[arg(required = true)]
        names: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
struct Create {
    /// The topic's name
    name: String,
    /// The subjects it owns
    #[arg(long, value_name = "PATTERN", help = "The subjects it owns [default: just its name]")]
    subjects: Option<String>,
    /// Logs its keys are spread over
    #[arg(long, value_name = "COUNT")]
    partitions: Option<u16>,
    /// History it keeps, bytes
    #[arg(long, value_name = "SIZE")]
    retain_bytes: Option<Size>,
    /// History it keeps, records
    #[arg(long, value_name = "COUNT")]
    retain_records: Option<u64>,
    /// History it keeps, age
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    retain_age: Option<Duration>,
    /// Size of one record at most
    #[arg(long, value_name = "SIZE")]
    record_bytes_max: Option<Size>,
    /// Registered readers lose nothing: when the history is full, the publisher waits for the slowest
    #[arg(long)]
    reliable: bool,
    /// Registered readers at most
    #[arg(long, value_name = "COUNT", requires = "reliable")]
    readers_max: Option<u32>,
    /// How long a publisher waits for room
    #[arg(long, value_name = "MILLISECONDS", requires = "reliable")]
    wait_ms_max: Option<u64>,
    /// And then: refuse the record, or evict the slowest reader (which is told its gap)
    #[arg(long, value_enum, requires = "reliable")]
    when_full: Option<WhenFull>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum WhenFull {
    Refuse,
    Evict,
}
