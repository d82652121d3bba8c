//! The arguments of `dunlin demo`, a command that the program `dunlin-bench` runs.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::commands::parse;

/// Arguments of `dunlin demo`, which replays recorded markets and checks every record.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The demo publishes the lines of each recorded market to a topic. At the end, a table compares each subscriber's records
and gaps with the recording. Exit code 2 means that a record was neither received nor reported as missed, or that an
order book is wrong.

`cargo xtask data` downloads the recordings.

Examples:
  dunlin demo --data data                     about a minute; then the node stays up until Ctrl-C
  dunlin demo --data data --speed max --once
  dunlin demo --allow-generated               generated markets if the recordings are missing
  dunlin demo --nodes 3                       on a cluster whose nodes are killed and restarted
  dunlin demo --space                         a world of aircraft and 50,000 birds on three processes
  dunlin demo --together                      markets, books, tasks and a world on one cluster

`cargo xtask demo` downloads the recordings, builds all programs and runs `dunlin demo --together`.")]
pub struct Arguments {
    /// Directory of the recordings
    #[arg(long, value_name = "DIRECTORY", default_value = "data")]
    pub data: PathBuf,
    /// Speed of the replay: a factor such as 10x, a duration for each market such as 30s, or max [default: 55s]
    #[arg(long, value_name = "SPEED")]
    pub speed: Option<Speed>,
    /// Number of nodes; more than 1 form a cluster, in which one node after another is killed
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=9))]
    pub nodes: u32,
    /// Number of times that a node is killed; needs --nodes
    #[arg(long, value_name = "COUNT", default_value_t = 6, requires = "nodes")]
    pub kills: u32,
    /// Number of lines of each market to publish [default: all]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(2..))]
    pub lines: Option<u32>,
    /// Run a world instead of markets: recorded aircraft and birds on three processes, one of which is killed and
    /// restarted
    #[arg(long, group = "world", conflicts_with_all = ["nodes", "kills", "lines"])]
    pub space: bool,
    /// Run markets, books, tasks and a world on three nodes, one of which is killed and restarted repeatedly
    #[arg(long, group = "world", conflicts_with_all = ["nodes", "kills"])]
    pub together: bool,
    /// Time between two kills; needs --together [default: 1m; 30s with --once]
    #[arg(long, value_name = "DURATION", requires = "together", value_parser = parse::positive_duration)]
    pub kill_every: Option<Duration>,
    /// Directory of recordings.py, which submits tasks, and recordings_worker.py, which runs them; for example
    /// clients/python/examples; needs --together [default: no tasks]
    #[arg(long, value_name = "DIRECTORY", requires = "together")]
    pub work: Option<PathBuf>,
    /// Python interpreter that has the dunlin package; needs --work
    #[arg(long, value_name = "FILE", default_value = "python3", requires = "work")]
    pub python: PathBuf,
    /// Number of birds; needs --space or --together [default: 50000; 10000 with --together]
    #[arg(long, value_name = "COUNT", requires = "world", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub flock: Option<u64>,
    /// End after printing the results, instead of keeping the node running
    #[arg(long)]
    pub once: bool,
    /// Replay generated markets if the recordings are missing, instead of failing
    #[arg(long)]
    pub allow_generated: bool,
}

/// The speed of a replay: a factor, a duration for each recording, or as fast as possible.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Speed {
    /// Duration of each recording's replay.
    Within(Duration),
    /// Factor by which the replay is faster than the recording.
    Times(f64),
    /// Replay without pauses.
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
            _ => Err("expected a factor such as 10x, a duration such as 1m, or max".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demo_speed_may_be_a_factor_or_a_duration_or_max() {
        assert_eq!("10x".parse(), Ok(Speed::Times(10.0)));
        assert_eq!("0.5x".parse(), Ok(Speed::Times(0.5)));
        assert_eq!("2m".parse(), Ok(Speed::Within(Duration::from_secs(120))));
        assert_eq!("max".parse(), Ok(Speed::Max));
        for text in ["", "x", "0x", "-1x", "NaNx", "infx", "fast", "0s"] {
            assert!(text.parse::<Speed>().is_err(), "{text}");
        }
    }
}
