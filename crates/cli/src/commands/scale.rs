//! The arguments of `dunlin scale`, a command that the program `dunlin-bench` runs.

use std::path::PathBuf;

use clap::ValueEnum;

/// Arguments of `dunlin scale`, which calculates the number of workers that tasks need.
#[derive(Debug, clap::Args)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    pub subcommand: Subcommand,
}

/// The subcommands of `dunlin scale`.
#[derive(Debug, clap::Subcommand)]
pub enum Subcommand {
    /// Calculate the cost and load of the cluster that a file describes, and warn of problems
    Plan(PlanArguments),
    /// Recommend machines and worker counts for a measured load
    Recommend(RecommendArguments),
    /// Simulate clusters in virtual time and print the results
    Simulate(SimulateArguments),
    /// Print the built-in machine prices as a file that --prices accepts
    Prices,
}

/// Arguments that describe the load of tasks on a cluster.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Load")]
pub struct LoadArguments {
    /// Average number of tasks that arrive per second
    #[arg(long, value_name = "TASKS_PER_SECOND", allow_negative_numbers = true)]
    pub per_s: f64,
    /// Highest number of tasks that arrive per second [default: twice --per-s]
    #[arg(long, value_name = "TASKS_PER_SECOND")]
    pub peak_per_s: Option<f64>,
    /// Duration of a task in milliseconds
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 11.76)]
    pub task_ms: f64,
    /// Maximum number of tasks that wait at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 1_000_000)]
    pub queued: u64,
    /// Size of a task's payload in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 200)]
    pub payload_bytes: u64,
}

/// Arguments of `dunlin scale plan`, which calculates the cost and load of a described cluster.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin scale plan cluster.yaml --per-s 5000 --peak-per-s 11000
  dunlin scale prices > prices.toml; dunlin scale plan cluster.yaml --per-s 5000 --prices prices.toml

The file describes coordinators, workers and scaling; docs/autoscaling.md has an example.")]
pub struct PlanArguments {
    /// File that describes the cluster (YAML)
    pub file: PathBuf,
    #[command(flatten)]
    pub load: LoadArguments,
    /// File with machine prices, as `dunlin scale prices` prints it [default: built-in prices]
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
}

/// Arguments of `dunlin scale recommend`, which recommends machines and a number of workers.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin scale recommend --per-s 5000 --peak-per-s 11000 --cpus 1.4 --memory-gib 4.6
  dunlin scale recommend cluster.yaml --per-s 5000 --used used.txt

The command prints the recommendation as a description of a cluster. With FILE, it also prints the differences from that
description.")]
pub struct RecommendArguments {
    /// File that describes the present cluster, to compare with (YAML)
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub load: LoadArguments,
    /// 95th percentile of the number of processors that a worker uses
    #[arg(long, value_name = "COUNT", required_unless_present = "used")]
    pub cpus: Option<f64>,
    /// 99th percentile of the memory that a worker uses, in GiB
    #[arg(long, value_name = "GIB", required_unless_present = "used")]
    pub memory_gib: Option<f64>,
    /// File with one measurement of a worker on each line, as `PROCESSORS GIB`; replaces --cpus and --memory-gib
    #[arg(long, value_name = "FILE", conflicts_with_all = ["cpus", "memory_gib"])]
    pub used: Option<PathBuf>,
    /// Percentage of the other workers to run on spot machines; half of the minimum number of workers always runs on
    /// demand
    #[arg(long, value_name = "PERCENT", default_value_t = 70)]
    pub spot: u32,
    /// File with machine prices, as `dunlin scale prices` prints it [default: built-in prices]
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
}

/// Arguments of `dunlin scale simulate`, which simulates clusters in virtual time.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  dunlin scale simulate                               all tables, about a minute
  dunlin scale simulate throughput --workers 100000 --tasks 10000000
  cargo xtask data; dunlin scale simulate policies --series data/taylor.py

The simulation uses the scheduler and the autoscaler of the nodes. The durations of tasks and machine starts are models,
which docs/autoscaling.md describes. The same seed gives the same numbers.")]
pub struct SimulateArguments {
    /// Tables to print [default: all]
    #[arg(value_enum)]
    pub tables: Vec<SimulationTable>,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Numbers of workers to simulate in table `throughput`, separated by commas; each number gives one row
    #[arg(long, value_name = "COUNT", value_delimiter = ',', default_value = "10,25,50,75,100,150,200,1000")]
    pub workers: Vec<u32>,
    /// Number of tasks in each row of table `throughput`
    #[arg(long, value_name = "COUNT", default_value_t = 200_000)]
    pub tasks: u64,
    /// Number of shards of the task scheduler in table `throughput`
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub shards: u32,
    /// File with the load in every half-hour, as a list of numbers in Python or JSON notation; for table `policies`
    #[arg(long, value_name = "FILE")]
    pub series: Option<PathBuf>,
    /// Duration of each task for tables `policies` and `cost`, in milliseconds
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 500.0)]
    pub task_ms: f64,
    /// Number of workers at peak load, for tables `policies` and `cost`
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    pub peak: u32,
    /// File with machine prices, for table `cost` [default: built-in prices]
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
}

/// A table that `dunlin scale simulate` can print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SimulationTable {
    /// Tasks per second, efficiency and bottleneck
    Throughput,
    /// Time from exceeding a threshold until additional workers run
    Out,
    /// Time from falling load until surplus workers are removed
    In,
    /// Time to start workers, and failed starts, with and without a warm pool
    Warm,
    /// Processors and memory that each tenant uses, compared with its quota
    Tenants,
    /// Effect on other tenants if one tenant submits ten times as many tasks
    Noisy,
    /// Reactive and predictive scaling, compared with ideal scaling (an oracle)
    Policies,
    /// Cost per month, and what each measure saves
    Cost,
}
