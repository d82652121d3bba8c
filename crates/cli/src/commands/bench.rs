//! `bench`: its arguments; `dunlin-bench` runs it.

use std::path::PathBuf;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin bench spot                              every case of one suite
  dunlin bench spot --case latency --param bytes=64 --runs 5
  dunlin bench peers spot                        the same work on libzmq, nats-server and raw sockets
  dunlin bench peers broker                      every door, beside nats-server and Redis
  dunlin bench all --quick --json
  dunlin bench control --against bench-runs/2026-11-22T18-42-05Z-control-peers.json

Figures are medians over runs, and deliveries count when their content was checked. Runs are kept;
`dunlin report` makes the page from them. --url measures a node that already runs elsewhere.")]
pub struct Arguments {
    /// `SUITE`, or `peers SUITE` to run the same work on real peers; `all` is every suite
    #[arg(required = true, num_args = 1..=2, value_name = "SUITE")]
    pub words: Vec<String>,
    /// Only this case; may be given several times
    #[arg(long = "case", value_name = "NAME")]
    pub cases: Vec<String>,
    /// Only points with this parameter; a name given twice means either value
    #[arg(long = "param", value_name = "NAME=VALUE")]
    pub params: Vec<String>,
    /// Runs that count [default: 3]
    #[arg(long, value_name = "COUNT")]
    pub runs: Option<u32>,
    /// Runs before them that do not [default: 1]; for feeds also a time, such as 1s, at the start of each run
    #[arg(long, value_name = "COUNT")]
    pub warmup: Option<String>,
    /// How long one run of a sustained measurement takes [default: 1s]
    #[arg(long, value_name = "DURATION")]
    pub time: Option<String>,
    /// Fewer and shorter runs, checked as strictly; implied by CI and GITHUB_ACTIONS
    #[arg(long)]
    pub quick: bool,
    /// A kept run: say which rows got worse since, beyond noise
    #[arg(long, value_name = "RUN")]
    pub against: Option<PathBuf>,
    #[command(flatten)]
    pub feed: FeedArguments,
    /// Where runs are kept
    #[arg(long, value_name = "DIRECTORY", default_value = "bench-runs")]
    pub keep: PathBuf,
}

/// What only suite `feed` takes.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Suite feed")]
pub struct FeedArguments {
    /// Instruments of your own instead of the five scenarios: a JSON or TOML file, or one that comes with Dunlin
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Clients, instead of each scenario's own
    #[arg(long, value_name = "COUNT")]
    pub clients: Option<usize>,
    /// Only this instrument; may be given several times
    #[arg(long = "instrument", value_name = "ID")]
    pub instruments: Vec<String>,
    /// Levels of a side that a view shows [default: 10]
    #[arg(long, value_name = "LEVELS")]
    pub depth: Option<usize>,
    /// What a client takes over each message
    #[arg(long, value_name = "MILLISECONDS")]
    pub delay_ms: Option<u64>,
    /// Withhold every so manyth update from the clients
    #[arg(long, value_name = "N")]
    pub drop_every_n: Option<u32>,
    /// What the made-up updates begin with [default: 123]
    #[arg(long)]
    pub seed: Option<u64>,
}
