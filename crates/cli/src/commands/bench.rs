//! The arguments of `dunlin bench`, a command that the program `dunlin-bench` runs.

use std::path::PathBuf;

/// Arguments of `dunlin bench`, which runs benchmarks.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin bench spot                              all cases of one suite
  dunlin bench spot --case latency --param bytes=64 --runs 5
  dunlin bench peers spot                        the same work with libzmq, nats-server and raw sockets
  dunlin bench peers broker                      every protocol, compared with nats-server and Redis
  dunlin bench all --quick --json
  dunlin bench control --against bench-runs/2026-11-22T18-42-05Z-control-peers.json

Each result is the median of several runs. A delivered record counts only if its content is correct. The command stores
the results in the directory of --keep; `dunlin report` makes a page of them. With --url, it measures a running node.")]
pub struct Arguments {
    /// Suite to run, or `all`; `peers SUITE` also runs the same work with other systems
    #[arg(required = true, num_args = 1..=2, value_name = "SUITE")]
    pub words: Vec<String>,
    /// Case to run; may be given several times [default: all]
    #[arg(long = "case", value_name = "NAME")]
    pub cases: Vec<String>,
    /// Measure only rows in which the parameter NAME has this VALUE, such as bytes=64; may be given several times, to
    /// allow several values or to restrict several parameters [default: all values]
    #[arg(long = "param", value_name = "NAME=VALUE")]
    pub params: Vec<String>,
    /// Number of measured runs [default: 3]
    #[arg(long, value_name = "COUNT")]
    pub runs: Option<u32>,
    /// Number of warm-up runs, which are not measured [default: 1]; or, for feeds, the warm-up time of each run, such
    /// as 1s
    #[arg(long, value_name = "COUNT")]
    pub warmup: Option<String>,
    /// Duration of one run of a sustained measurement [default: 1s; 2s for feeds]
    #[arg(long, value_name = "DURATION")]
    pub time: Option<String>,
    /// Make fewer and shorter runs with the same checks; the default if CI or GITHUB_ACTIONS is set
    #[arg(long)]
    pub quick: bool,
    /// File of an earlier run to compare with; the output shows the rows that changed by more than the measuring noise
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    #[command(flatten)]
    pub feed: FeedArguments,
    /// Directory in which to store results
    #[arg(long, value_name = "DIRECTORY", default_value = "bench-runs")]
    pub keep: PathBuf,
}

/// Arguments of `dunlin bench` that apply to suite `feed` only.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Suite feed")]
pub struct FeedArguments {
    /// File with the instruments (JSON or TOML) to simulate instead of the suite's five scenarios, or the name of a
    /// built-in file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Number of clients [default: each scenario's own]
    #[arg(long, value_name = "COUNT")]
    pub clients: Option<usize>,
    /// Instrument to simulate, from the file of --config; may be given several times [default: all]
    #[arg(long = "instrument", value_name = "ID")]
    pub instruments: Vec<String>,
    /// Number of price levels per side that a client keeps [default: 10]
    #[arg(long, value_name = "COUNT")]
    pub depth: Option<usize>,
    /// Time that a client spends on each message, in milliseconds [default: 0]
    #[arg(long, value_name = "MILLISECONDS")]
    pub delay_ms: Option<u64>,
    /// Withhold every Nth update from the clients, without reporting a gap [default: none]
    #[arg(long, value_name = "N")]
    pub test_loss_every: Option<u32>,
    /// Seed of the generated updates [default: 123]
    #[arg(long)]
    pub seed: Option<u64>,
}
