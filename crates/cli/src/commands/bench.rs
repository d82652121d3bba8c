//! `bench`: hands what was asked for to the benchmarks.

use std::path::PathBuf;

use anyhow::{Result, bail};
use dunlin_bench::child::ChildProgram;
use dunlin_bench::{RawFeedOptions, RawOptions, Request};

use crate::arguments::Global;
use crate::connect::tls;
use crate::outcome::Refusal;

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
    words: Vec<String>,
    /// Only this case; may be given several times
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
    /// Only points with this parameter; a name given twice means either value
    #[arg(long = "param", value_name = "NAME=VALUE")]
    params: Vec<String>,
    /// Runs that count [default: 3]
    #[arg(long, value_name = "COUNT")]
    runs: Option<u32>,
    /// Runs before them that do not [default: 1]; for feeds also a time, such as 1s, at the start of each run
    #[arg(long, value_name = "COUNT")]
    warmup: Option<String>,
    /// How long one run of a sustained measurement takes [default: 1s]
    #[arg(long, value_name = "DURATION")]
    time: Option<String>,
    /// Fewer and shorter runs, checked as strictly; implied by CI and GITHUB_ACTIONS
    #[arg(long)]
    quick: bool,
    /// A kept run: say which rows got worse since, beyond noise
    #[arg(long, value_name = "RUN")]
    against: Option<PathBuf>,
    #[command(flatten)]
    feed: FeedArguments,
    /// Where runs are kept
    #[arg(long, value_name = "DIRECTORY", default_value = "bench-runs")]
    keep: PathBuf,
}

/// What only suite `feed` takes.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Suite feed")]
struct FeedArguments {
    /// Instruments of your own instead of the five scenarios: a JSON or TOML file, or one that comes with Dunlin
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Clients, instead of each scenario's own
    #[arg(long, value_name = "COUNT")]
    clients: Option<usize>,
    /// Only this instrument; may be given several times
    #[arg(long = "instrument", value_name = "ID")]
    instruments: Vec<String>,
    /// Levels of a side that a view shows [default: 10]
    #[arg(long, value_name = "LEVELS")]
    depth: Option<usize>,
    /// What a client takes over each message
    #[arg(long, value_name = "MILLISECONDS")]
    delay_ms: Option<u64>,
    /// Withhold every so manyth update from the clients
    #[arg(long, value_name = "N")]
    drop_every_n: Option<u32>,
    /// What the made-up updates begin with [default: 123]
    #[arg(long)]
    seed: Option<u64>,
}

impl From<FeedArguments> for RawFeedOptions {
    fn from(typed: FeedArguments) -> RawFeedOptions {
        let FeedArguments { config, clients, instruments, depth, delay_ms, drop_every_n, seed } = typed;
        RawFeedOptions { config, clients, instruments, depth, delay_ms, drop_every_n, seed }
    }
}

pub fn run(arguments: &Arguments, global: &Global) -> Result<()> {
    let (with_peers, suite) = match arguments.words.as_slice() {
        [peers, suite] if peers == "peers" => (true, suite),
        [suite] if suite != "peers" => (false, suite),
        words => {
            return Err(Refusal(format!("expected SUITE or peers SUITE, not {:?}", words.join(" "))).into());
        }
    };
    let typed = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let request = Request {
        suite: suite.clone(),
        with_peers,
        options: options(arguments, global)?,
        command: format!("dunlin {typed}"),
        runs_folder: arguments.keep.clone(),
        against: arguments.against.clone(),
        child: ChildProgram::current()?,
    };
    if !dunlin_bench::run(request)? {
        bail!("not everything that was measured was right: see FAILED above");
    }
    Ok(())
}

fn options(arguments: &Arguments, global: &Global) -> Result<RawOptions> {
    Ok(RawOptions {
        cases: arguments.cases.clone(),
        params: arguments.params.clone(),
        runs: arguments.runs,
        warmup: arguments.warmup.clone(),
        time: arguments.time.clone(),
        url: global.url.clone(),
        tls: tls(global)?,
        quick: arguments.quick,
        json: global.json,
        feed: arguments.feed.clone().into(),
    })
}

#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct ChildArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub fn run_child(child: &ChildArguments) -> Result<()> {
    dunlin_bench::child_main(&child.arguments)
}
