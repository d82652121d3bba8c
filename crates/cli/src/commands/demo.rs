//! `demo`: its arguments; `dunlin-bench` runs it.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::commands::parse;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
One topic for each market, and the lines as they are. At the end a table says for each subscriber and
topic what it saw, what it was told it missed, and whether its bytes are the recording's. Exit code 2
if a single record is unaccounted for.

The recordings are fetched by `cargo xtask data`; `cargo xtask demo` does that first.

Examples:
  dunlin demo --data data                     over in about a minute; the node stays up to be looked at
  dunlin demo --data data --speed max --once
  dunlin demo --allow-generated               without the recordings
  dunlin demo --nodes 3                       over a cluster, whose nodes are killed and started again meanwhile
  dunlin demo --space                         aircraft and a flock of 50,000 over three processes
  dunlin demo --together                      all of it at once on the nodes of one cluster, with a dashboard

`cargo xtask demo` is `--together` with the tasks' program built for it; `--only FACE` shows one face.")]
pub struct Arguments {
    /// Directory of the recordings
    #[arg(long, value_name = "DIRECTORY", default_value = "data")]
    pub data: PathBuf,
    /// How fast: 1x is as recorded, 10x ten times that; 30s is each market within that time; max does not wait [default: 55s]
    #[arg(long, value_name = "SPEED")]
    pub speed: Option<Speed>,
    /// Replay over so many nodes that are one cluster, each a process of its own, and kill them one after another
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=9))]
    pub nodes: u32,
    /// With --nodes: how often a node is killed
    #[arg(long, value_name = "COUNT", default_value_t = 6, requires = "nodes")]
    pub kills: u32,
    /// Only so many lines of each market
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(2..))]
    pub lines: Option<u32>,
    /// Not markets, but a world: recorded aircraft and a flock over three processes, one of which is killed and comes back
    #[arg(long, group = "world", conflicts_with_all = ["nodes", "kills", "lines"])]
    pub space: bool,
    /// All faces at once: markets, books, tasks and a world on three nodes, one of which is killed and healed every minute
    #[arg(long, group = "world", conflicts_with_all = ["nodes", "kills"])]
    pub together: bool,
    /// With --together: how often a node is killed [default: 1m; 30s with --once]
    #[arg(long, value_name = "DURATION", requires = "together", value_parser = parse::positive_duration)]
    pub kill_every: Option<Duration>,
    /// With --together: where recordings.py and its worker are, clients/python/examples; without it nobody submits tasks
    #[arg(long, value_name = "DIRECTORY", requires = "together")]
    pub work: Option<PathBuf>,
    /// With --work: a Python that has the dunlin package
    #[arg(long, value_name = "FILE", default_value = "python3", requires = "work")]
    pub python: PathBuf,
    /// With --space or --together: how many flock [default: 50000; 10000 with --together]
    #[arg(long, value_name = "COUNT", requires = "world", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub flock: Option<u64>,
    /// End after the table instead of leaving the node up
    #[arg(long)]
    pub once: bool,
    /// Without recordings, replay made-up ones instead of failing
    #[arg(long)]
    pub allow_generated: bool,
}

/// How fast to replay.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// Each recording stretched or squeezed to this.
    Within(Duration),
    /// So many times as fast as recorded.
    Times(f64),
    /// Without waiting.
    Max,
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Speed, String> {
        if text == "max" {
            return Ok(Speed::Max);
        }
        if let Some(times) = text.strip_suffix('x').and_then(|number| number.parse::<f64>().ok())
            && times.is_finite()
            && times >= 1e-3
        {
            return Ok(Speed::Times(times));
        }
        match humantime::parse_duration(text) {
            Ok(within) if !within.is_zero() => Ok(Speed::Within(within)),
            _ => Err("expected a factor like 1x or 10x, the time it may take like 1m, or max".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_is_a_factor_or_max() {
        assert_eq!("10x".parse(), Ok(Speed::Times(10.0)));
        assert_eq!("0.5x".parse(), Ok(Speed::Times(0.5)));
        assert_eq!("2m".parse(), Ok(Speed::Within(Duration::from_secs(120))));
        assert_eq!("max".parse(), Ok(Speed::Max));
        for text in ["", "x", "0x", "-1x", "NaNx", "infx", "fast", "0s"] {
            assert!(text.parse::<Speed>().is_err(), "{text}");
        }
    }
}
