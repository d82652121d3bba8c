//! `scale`: its arguments; `dunlin-bench` runs it.

use std::path::PathBuf;

use clap::ValueEnum;

#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
pub enum Verb {
    /// What a described cluster would cost and carry, and what is wrong with it
    Plan(PlanArguments),
    /// What a cluster should be, by what was measured
    Recommend(RecommendArguments),
    /// Run clusters in virtual time, and print what came of it
    Simulate(SimulateArguments),
    /// Print the table of prices, to be edited
    Prices,
}

/// What is asked of a cluster.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What is asked of it")]
pub struct Asked {
    /// Tasks that arrive in a second, on average
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub per_s: f64,
    /// And at the most [default: twice that]
    #[arg(long, value_name = "COUNT")]
    pub peak_per_s: Option<f64>,
    /// How long a task takes, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 11.76)]
    pub task_ms: f64,
    /// Tasks that wait at the most
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000)]
    pub queued: u64,
    /// Bytes of a task's payload
    #[arg(long, value_name = "BYTES", default_value_t = 200)]
    pub payload_bytes: u64,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin scale plan cluster.yaml --per-s 5000 --peak-per-s 11000
  dunlin scale prices > prices.toml; dunlin scale plan cluster.yaml --per-s 5000 --prices prices.toml

The file describes coordinators, workers and scaling: docs/autoscaling.md has one.")]
pub struct PlanArguments {
    /// The description, YAML
    pub file: PathBuf,
    #[command(flatten)]
    pub asked: Asked,
    /// A table of prices
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin scale recommend --per-s 5000 --peak-per-s 11000 --cpus 1.4 --memory-gib 4.6
  dunlin scale recommend cluster.yaml --per-s 5000 --used used.txt

--used is what workers were measured to use: a line for each measurement, processors and GiB.
The recommendation is such a description itself; with a FILE it is held against that.")]
pub struct RecommendArguments {
    /// A description to hold it against, YAML
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub asked: Asked,
    /// Processors that a worker uses, 95 times in 100
    #[arg(long, value_name = "COUNT", required_unless_present = "used")]
    pub cpus: Option<f64>,
    /// GiB that a worker uses, 99 times in 100
    #[arg(long, value_name = "GIB", required_unless_present = "used")]
    pub memory_gib: Option<f64>,
    /// Measurements of both, in their place
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cpus", "memory_gib"])]
    pub used: Option<PathBuf>,
    /// Of workers beyond the least, so many in a hundred on the spot market
    #[arg(long, value_name = "PERCENT", default_value_t = 70)]
    pub spot: u32,
    /// A table of prices
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin scale simulate                               all tables, about a minute
  dunlin scale simulate throughput --workers 100000 --tasks 10000000
  cargo xtask data; dunlin scale simulate policies --series data/taylor.py

The scheduler and the scaler are the ones that nodes run; how long tasks and machines take is made up:
docs/autoscaling.md says how. The same seed gives the same numbers.")]
pub struct SimulateArguments {
    /// Which tables; all without
    #[arg(value_enum)]
    pub tables: Vec<Which>,
    /// Seed of all random choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Workers, for throughput
    #[arg(long, value_name = "COUNT", value_delimiter = ',', default_value = "10,25,50,75,100,150,200,1000")]
    pub workers: Vec<u32>,
    /// Tasks of each of its rows
    #[arg(long, value_name = "COUNT", default_value_t = 200_000)]
    pub tasks: u64,
    /// Groups that tenants are sharded over, for throughput
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub shards: u32,
    /// A series of half-hourly values, for policies: data/taylor.py, of which the ninth week is run
    #[arg(long, value_name = "FILE")]
    pub series: Option<PathBuf>,
    /// How long a task takes, for policies and cost, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 500.0)]
    pub task_ms: f64,
    /// Workers that the peak takes, for policies and cost
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    pub peak: u32,
    /// A table of prices, for cost
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Which {
    /// Tasks in a second, efficiency, bottleneck
    Throughput,
    /// From a threshold to more workers
    Out,
    /// From too many workers to fewer
    In,
    /// With and without prepared workers
    Warm,
    /// Share of its quota that each tenant gets
    Tenants,
    /// Effect of one tenant's flood on the others
    Noisy,
    /// Reactive, predictive and an oracle
    Policies,
    /// Cost of a month, and how much each measure would save
    Cost,
}
