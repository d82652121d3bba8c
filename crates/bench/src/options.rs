//! The options of `dunlin bench`, before and after validation.
//!
//! With `--quick`, runs are fewer and shorter, but all checks are made. If the environment variable `CI` or
//! `GITHUB_ACTIONS` is set, runs are quick even without the option.

mod feed;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use dunlin_client::tls::TlsOptions;

use crate::params::{ParamValue, Params};

pub use feed::{FeedOptions, RawFeedOptions};

/// The options of `dunlin bench` as the user typed them, before validation.
#[derive(Clone, Debug, Default)]
pub struct RawOptions {
    /// `--case`: run only these cases.
    pub cases: Vec<String>,
    /// `--param name=value`: run only measurements with this parameter value. If the option is given several times with
    /// one name, each of the values is allowed.
    pub params: Vec<String>,
    /// `--runs`: the number of measured rounds.
    pub runs: Option<u32>,
    /// `--warmup`: the number of unmeasured rounds. For suite `feed`, the value may be a duration such as `1s` instead:
    /// the first part of each run lasts for this duration, and updates that are due in it do not count.
    pub warmup: Option<String>,
    /// `--time`: the duration of a sustained run, such as `1s` or `500ms`.
    pub time: Option<String>,
    /// `--url`: the URL of a running node to measure.
    pub url: Option<String>,
    /// `--ca`, `--client-cert` and `--client-key`: the TLS files with which to connect to a running node.
    pub tls: TlsOptions,
    /// `--quick`: make fewer and shorter runs.
    pub quick: bool,
    /// `--json`: print one JSON object on each line instead of tables.
    pub json: bool,
    /// The options of suite `feed`.
    pub feed: RawFeedOptions,
}

/// The validated options of `dunlin bench`.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// The cases to run; if there are none, all cases.
    pub cases: Vec<String>,
    /// The parameters by which measurements are selected. Each entry is a parameter's name and the allowed values. A
    /// measurement runs only if, for each of these names, its value is allowed.
    pub params: Vec<(String, Vec<ParamValue>)>,
    /// The number of measured rounds.
    pub runs: u32,
    /// The number of unmeasured rounds before the measured rounds.
    pub warmup: u32,
    /// The duration of a sustained run.
    pub time: Duration,
    /// The URL of a running node to measure; without it, the benchmark starts its own nodes.
    pub url: Option<String>,
    /// The TLS files with which to connect to the running node.
    pub tls: TlsOptions,
    /// Whether to make fewer and shorter runs. `dunlin report` refuses such runs.
    pub quick: bool,
    /// Whether to print one JSON object on each line instead of tables.
    pub json: bool,
    /// Options of suite `feed`.
    pub feed: FeedOptions,
}

const RUNS_MAX: u32 = 1_000;
const TIME_MAX: Duration = Duration::from_secs(600);

impl RawOptions {
    /// Validates the options. `env` returns the value of the environment variable with a given name.
    pub fn validate(self, env: impl Fn(&str) -> Option<String>) -> Result<BenchOptions> {
        let quick = self.quick || is_quick_implied(env);
        let time = match &self.time {
            Some(text) => humantime::parse_duration(text)
                .with_context(|| format!("--time {text}: expected a time like 1s"))?,
            None => Duration::from_millis(if quick { 50 } else { 700 }),
        };
        ensure!(!time.is_zero() && time <= TIME_MAX, "--time must be above 0 and at most ten minutes");
        let runs = self.runs.unwrap_or(if quick { 1 } else { 3 });
        ensure!((1..=RUNS_MAX).contains(&runs), "--runs must be from 1 to {RUNS_MAX}");
        let (warmup, warmup_time) = parse_warmup(self.warmup.as_deref())?;
        let times = (warmup_time, self.time.is_some().then_some(time));
        Ok(BenchOptions {
            cases: self.cases,
            params: parse_params(&self.params)?,
            runs,
            warmup,
            time,
            url: self.url,
            tls: self.tls,
            quick,
            json: self.json,
            feed: self.feed.validate(times, quick)?,
        })
    }
}

fn is_quick_implied(env: impl Fn(&str) -> Option<String>) -> bool {
    ["CI", "GITHUB_ACTIONS"]
        .iter()
        .any(|name| matches!(env(name).as_deref(), Some(value) if !matches!(value, "" | "0" | "false")))
}

/// Parses `--warmup`, which is a number of rounds or a duration. If the option is absent, returns one round and no
/// duration.
fn parse_warmup(typed: Option<&str>) -> Result<(u32, Option<Duration>)> {
    let Some(text) = typed else { return Ok((1, None)) };
    if let Ok(rounds) = text.parse() {
        ensure!(rounds <= RUNS_MAX, "--warmup must be at most {RUNS_MAX}");
        return Ok((rounds, None));
    }
    let time = humantime::parse_duration(text)
        .with_context(|| format!("--warmup {text}: give a number of warm-up runs, or a time such as 1s"))?;
    ensure!(time <= TIME_MAX, "--warmup must be at most ten minutes");
    Ok((0, Some(time)))
}

fn parse_params(typed: &[String]) -> Result<Vec<(String, Vec<ParamValue>)>> {
    let mut params: Vec<(String, Vec<ParamValue>)> = Vec::new();
    for text in typed {
        let Some((name, value)) =
            text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty())
        else {
            bail!("--param {text}: expected name=value, such as bytes=64");
        };
        match params.iter_mut().find(|(known, _)| known == name) {
            Some((_, values)) => values.push(value.into()),
            None => params.push((name.to_owned(), vec![value.into()])),
        }
    }
    Ok(params)
}

impl BenchOptions {
    /// Whether the options select a measurement with this case and these parameters.
    pub fn selects(&self, case: &str, params: &Params) -> bool {
        let is_case_selected = self.cases.is_empty() || self.cases.iter().any(|selected| selected == case);
        is_case_selected
            && self
                .params
                .iter()
                .all(|(name, values)| params.get(name).is_some_and(|value| values.contains(value)))
    }

    /// Returns `quick` if the run is quick, otherwise `full`.
    pub fn count(&self, full: u64, quick: u64) -> u64 {
        if self.quick { quick } else { full }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_env(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn ci_option_implies_the_quick_option() {
        let ci = |name: &str| (name == "CI").then(|| "true".to_owned());
        assert!(RawOptions::default().validate(ci).unwrap().quick);
        let not_ci = |name: &str| (name == "CI").then(|| "false".to_owned());
        assert!(!RawOptions::default().validate(not_ci).unwrap().quick);
        assert!(!RawOptions::default().validate(no_env).unwrap().quick);
    }

    #[test]
    fn option_param_may_be_repeated_to_select_more_values() {
        let raw = RawOptions {
            params: vec!["bytes=64".into(), "bytes=1024".into(), "transport=tcp".into()],
            ..RawOptions::default()
        };
        let options = raw.validate(no_env).unwrap();
        let point = |bytes: u64| Params::new().with("transport", "tcp").with("bytes", bytes);
        assert!(options.selects("throughput", &point(64)));
        assert!(options.selects("throughput", &point(1024)));
        assert!(!options.selects("throughput", &point(8192)));
        assert!(!options.selects("throughput", &Params::new()));
    }

    #[test]
    fn error_for_an_invalid_value_names_the_option() {
        let refused = |raw: RawOptions| raw.validate(no_env).unwrap_err().to_string();
        assert!(
            refused(RawOptions { params: vec!["bytes".into()], ..RawOptions::default() })
                .contains("--param bytes")
        );
        assert!(
            refused(RawOptions { time: Some("soon".into()), ..RawOptions::default() })
                .contains("--time soon")
        );
        assert!(refused(RawOptions { runs: Some(0), ..RawOptions::default() }).contains("--runs"));
    }
}
