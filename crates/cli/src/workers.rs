//! Starts the task workers of a node, as the configuration keys `workers` and `scale` request.

use std::process;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dunlin::Node;
use dunlin_scale::Policy;
use dunlin_server::workers::{WorkerCommand, Workers, WorkersLimits, node_load_reader};

use crate::config::RawConfig;
use crate::outcome::CommandRefusal;
use crate::program::ExternalProgram;

/// How long the workers may take to end when the node stops.
pub const GRACE: Duration = Duration::from_secs(10);

/// The configuration of the workers that a node starts: their command, and how many of them run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkersConfig {
    pub words: Vec<String>,
    pub min: u32,
    pub max: u32,
    /// How many idle workers are started in advance, so that new tasks need not wait.
    pub warm: u32,
    /// The period after which the load follows the same pattern again, such as a day.
    pub season: Option<Duration>,
}

/// The largest value of `scale_warm`. It is limited because idle processes use memory.
const WARM_MAX: u32 = 1_000;
/// The range of values that `scale_season` accepts.
const SEASON: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(60)..=Duration::from_secs(31 * 24 * 60 * 60);

impl WorkersConfig {
    /// Reads the keys `workers`, `scale`, `scale_warm` and `scale_season`. Returns `None` if `workers` is `off`.
    pub fn of(raw: &RawConfig) -> Result<Option<WorkersConfig>> {
        let (command, scale) = (raw.get("workers"), raw.get("scale"));
        let Some((min, max)) = bounds(&scale.text) else {
            let most = WorkersLimits::default().processes_max;
            bail!(
                "scale = {:?} ({}): expected MIN..MAX, the minimum and maximum number of workers, like 1..8; at most {most}",
                scale.text,
                scale.origin
            );
        };
        let (warm, season) = (warm(raw)?, season(raw)?);
        if command.text == "off" {
            return Ok(None);
        }
        match shlex::split(&command.text).filter(|words| !words.is_empty()) {
            Some(words) => Ok(Some(WorkersConfig { words, min, max, warm, season })),
            None => bail!(
                "workers = {:?} ({}): expected a command, like 'python3 worker.py', or off",
                command.text,
                command.origin
            ),
        }
    }

    /// Starts the workers of `node`. They connect to `url`, an address of this node.
    pub fn start(&self, node: &Node, url: String) -> Result<Workers> {
        ensure!(
            !url.is_empty(),
            CommandRefusal("workers need a listener: set listen or unix, or set workers to off".to_owned())
        );
        if let Some(why) = ExternalProgram::new(&self.words).and_then(|program| program.unrunnable_reason()) {
            bail!(CommandRefusal(format!("workers: {why}")));
        }
        let command = WorkerCommand {
            words: self.words.clone(),
            environment: vec![("DUNLIN_URL".to_owned(), url)],
            prefix: format!("{}-{}", rustix::system::uname().nodename().to_string_lossy(), process::id()),
        };
        let policy = Policy::local(self.min, self.max).with_local_pool(self.warm);
        let policy = match self.season {
            Some(season) => policy.with_season(season.as_millis() as u64),
            None => policy,
        };
        let load_source = node_load_reader(node, &command.prefix);
        Workers::start(policy, command, WorkersLimits::default(), load_source)
            .context("cannot start the workers")
    }
}

impl std::fmt::Display for WorkersConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let words = self.words.iter().map(String::as_str);
        let command = shlex::try_join(words).unwrap_or_else(|_| self.words.join(" "));
        write!(f, "{} to {} of: {command}", self.min, self.max)
    }
}

fn warm(raw: &RawConfig) -> Result<u32> {
    let warm = raw.get("scale_warm");
    match warm.text.parse() {
        Ok(count) if (0..=WARM_MAX).contains(&count) => Ok(count),
        _ => bail!("scale_warm = {:?} ({}): expected 0 to {WARM_MAX}", warm.text, warm.origin),
    }
}

fn season(raw: &RawConfig) -> Result<Option<Duration>> {
    let season = raw.get("scale_season");
    if season.text == "off" {
        return Ok(None);
    }
    match humantime::parse_duration(&season.text) {
        Ok(span) if SEASON.contains(&span) => Ok(Some(span)),
        _ => bail!("scale_season = {:?} ({}): expected 1m to 31d, or off", season.text, season.origin),
    }
}

fn bounds(text: &str) -> Option<(u32, u32)> {
    let (min, max) = text.split_once("..")?;
    let (min, max): (u32, u32) = (min.trim().parse().ok()?, max.trim().parse().ok()?);
    let is_possible = min <= max && (1..=WorkersLimits::default().processes_max).contains(&(max as usize));
    is_possible.then_some((min, max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_bounds_are_two_numbers_in_ascending_order() {
        assert_eq!(
            (bounds("1..8"), bounds("3 .. 3"), bounds("0..3")),
            (Some((1, 8)), Some((3, 3)), Some((0, 3)))
        );
        for text in ["0..0", "4..3", "1..", "..3", "3", "1..9999999", "a..b"] {
            assert_eq!(bounds(text), None, "{text}");
        }
    }

    #[test]
    fn worker_command_is_split_like_a_shell_command() {
        let mut raw = RawConfig::defaults();
        assert_eq!(WorkersConfig::of(&raw).unwrap(), None);
        raw.set_default("workers", "dunlin task worker --kind k -- sh -c 'sleep 1; wc -c'");
        raw.set_default("scale", "2..3");
        let workers = WorkersConfig::of(&raw).unwrap().unwrap();
        assert_eq!(workers.words[5..], ["--", "sh", "-c", "sleep 1; wc -c"]);
        assert_eq!(workers.to_string(), "2 to 3 of: dunlin task worker --kind k -- sh -c 'sleep 1; wc -c'");
        assert_eq!((workers.warm, workers.season), (0, None));
        raw.set_default("scale_warm", "3");
        assert_eq!(WorkersConfig::of(&raw).unwrap().unwrap().warm, 3);
        for wrong in ["-1", "1001", "some"] {
            raw.set_default("scale_warm", wrong);
            assert!(WorkersConfig::of(&raw).unwrap_err().to_string().contains("0 to 1000"), "{wrong}");
        }
        raw.set_default("scale_warm", "0");
        raw.set_default("scale_season", "90s");
        let season = WorkersConfig::of(&raw).unwrap().unwrap().season;
        assert_eq!(season, Some(Duration::from_secs(90)));
        for wrong in ["59s", "32d", "1", "often"] {
            raw.set_default("scale_season", wrong);
            assert!(WorkersConfig::of(&raw).unwrap_err().to_string().contains("1m to 31d"), "{wrong}");
        }
        raw.set_default("scale_season", "off");
        raw.set_default("workers", "sh -c 'never ends");
        assert!(WorkersConfig::of(&raw).unwrap_err().to_string().contains("never ends"));
    }
}
