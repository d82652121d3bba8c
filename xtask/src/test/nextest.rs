//! Runs tests with cargo-nextest, and detects flaky tests.
//!
//! A test that fails is run a second time, alone. A test that passes the second time is reported as flaky. A flaky test
//! makes the whole run fail, unless `tests/known-flaky.tsv` lists the test.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::process::cargo;
use crate::tools::NEXTEST;
use crate::workspace;

/// The file that lists the tests that may fail once. Each line has a test's name, a date, and the suspected cause.
const KNOWN_FLAKY: &str = "tests/known-flaky.tsv";
/// How many of the slowest tests are printed with their durations.
const SLOWEST_SHOWN: usize = 10;

/// Which tests to run, and in which environment.
#[derive(Debug, Clone, Default)]
pub struct TestSelection {
    /// The name of a profile in `.config/nextest.toml`.
    pub profile: &'static str,
    /// An expression in nextest's filter language that selects tests; `None` for all tests.
    pub filter: Option<String>,
    /// The packages whose tests run; empty for all packages.
    pub packages: Vec<String>,
    /// If set, only the tests marked `#[ignore]` run. Otherwise, only the tests without this mark run.
    pub ignored: bool,
    /// Environment variables for the tests, as pairs of name and value.
    pub environment: Vec<(String, String)>,
}

/// Runs the selected tests. The error names the tests that failed.
pub fn run(selection: &TestSelection) -> Result<()> {
    let first = run_once(selection, &[])?;
    if selection.filter.is_none() {
        first.print_slowest();
    }
    let failed: Vec<&Test> = first.tests.iter().filter(|test| !test.passed).collect();
    if failed.is_empty() {
        ensure!(first.succeeded, "cargo nextest failed: see its messages above");
        ensure!(!first.tests.is_empty(), "cargo nextest ran no test");
        return Ok(());
    }
    report_failures(selection, &failed)
}

fn report_failures(selection: &TestSelection, failed: &[&Test]) -> Result<()> {
    let known = known_flaky()?;
    let mut unexcused = Vec::new();
    for test in failed {
        println!("\n== {} failed; it is run again, alone", test.name);
        let alone = TestSelection { filter: Some(test.filter()?), ..selection.clone() };
        let second = run_once(&alone, &["--test-threads=1"])?;
        let verdict = if second.succeeded { "FLAKY" } else { "FAILED" };
        let cause = known.get(&test.name).filter(|_| second.succeeded);
        match cause {
            Some(cause) => println!("{verdict} {}: known: {cause}", test.name),
            None => {
                println!("{verdict} {}: the first failure is shown above", test.name);
                unexcused.push(format!("{verdict} {}", test.name));
            }
        }
    }
    ensure!(
        unexcused.is_empty(),
        "{} tests failed or are flaky:\n  {}",
        unexcused.len(),
        unexcused.join("\n  ")
    );
    Ok(())
}

/// Reads [`KNOWN_FLAKY`]. Returns the names of the listed tests with their suspected causes.
fn known_flaky() -> Result<HashMap<String, String>> {
    let text = std::fs::read_to_string(workspace::root().join(KNOWN_FLAKY))
        .with_context(|| format!("cannot read {KNOWN_FLAKY}"))?;
    parse_known_flaky(&text)
}

fn parse_known_flaky(text: &str) -> Result<HashMap<String, String>> {
    let mut known = HashMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, date, cause] = fields[..] else {
            bail!("{KNOWN_FLAKY}: expected name, date and suspected cause, separated by tabs: {line}");
        };
        known.insert(name.to_owned(), format!("{cause} (since {date})"));
    }
    Ok(known)
}

/// A test that has run, and its result.
struct Test {
    /// The test's name, in the form `package::binary$path`.
    name: String,
    passed: bool,
    took: Duration,
}

impl Test {
    /// Returns an expression in nextest's filter language that selects only this test.
    fn filter(&self) -> Result<String> {
        let (binary, path) = self.name.split_once('$').context("nextest listed a test without a binary")?;
        let (package, binary) =
            binary.split_once("::").context("nextest listed a binary without a package")?;
        Ok(format!("package(={package}) & binary(={binary}) & test(={path})"))
    }
}

#[derive(Default)]
struct Outcome {
    tests: Vec<Test>,
    succeeded: bool,
}

impl Outcome {
    fn print_slowest(&self) {
        let mut slowest: Vec<&Test> = self.tests.iter().collect();
        slowest.sort_by_key(|test| std::cmp::Reverse(test.took));
        let sum: Duration = self.tests.iter().map(|test| test.took).sum();
        println!("\n{} tests, {:.0} s in all of them; the slowest:", self.tests.len(), sum.as_secs_f64());
        for test in slowest.iter().take(SLOWEST_SHOWN) {
            println!("{:>8.1} s  {}", test.took.as_secs_f64(), test.name);
        }
    }

    /// Reads one line of nextest's machine-readable messages. If the line reports a test's result, adds the test.
    fn read(&mut self, line: &str) -> Result<()> {
        let message: Value = serde_json::from_str(line).context("cannot read nextest's messages")?;
        let passed = match message["event"].as_str() {
            Some("ok") => true,
            Some("failed") => false,
            _ => return Ok(()),
        };
        if message["type"] == "test" {
            let name = message["name"].as_str().context("nextest reported a test without a name")?.to_owned();
            let took = Duration::from_secs_f64(message["exec_time"].as_f64().unwrap_or_default());
            self.tests.push(Test { name, passed, took });
        }
        Ok(())
    }
}

fn run_once(selection: &TestSelection, more: &[&str]) -> Result<Outcome> {
    let mut command = command(selection)?;
    command.args(more).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start cargo nextest")?;
    let mut outcome = Outcome::default();
    for line in BufReader::new(child.stdout.take().context("standard output is not piped")?).lines() {
        outcome.read(&line?)?;
    }
    outcome.succeeded = child.wait()?.success();
    Ok(outcome)
}

fn command(selection: &TestSelection) -> Result<Command> {
    let mut command = Command::new(NEXTEST.path()?);
    command.args(["nextest", "run", "--no-tests=fail", "--profile", selection.profile]);
    if selection.packages.is_empty() {
        command.arg("--workspace");
    }
    command.args(selection.packages.iter().flat_map(|package| ["--package", package]));
    if let Some(filter) = &selection.filter {
        command.args(["-E", filter]);
    }
    if selection.ignored {
        command.args(["--run-ignored", "only"]);
    }
    // nextest prints machine-readable messages to standard output, and messages for people to standard error.
    command.args(["--message-format", "libtest-json", "--message-format-version", "0.1"]);
    command.env("NEXTEST_EXPERIMENTAL_LIBTEST_JSON", "1");
    command.env(runner_variable(), format!("{} run-test --", runner()?.display()));
    command.envs(selection.environment.iter().map(|(name, value)| (name, value)));
    // nextest itself starts cargo. nextest therefore gets the environment variables that this program sets for every
    // cargo that it starts.
    let base = cargo(&[]);
    command.current_dir(workspace::root());
    for (name, value) in base.get_envs() {
        if value.is_none() {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    Ok(command)
}

/// Copies this program, and returns the path of the copy. Tests are run through the copy, because a build of the
/// workspace replaces the original file.
fn runner() -> Result<PathBuf> {
    let folder = workspace::target_directory()?.join("tools");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let (runner, fresh) = (folder.join("run-test"), folder.join(format!("run-test.{}", std::process::id())));
    std::fs::copy("/proc/self/exe", &fresh).with_context(|| format!("cannot write {}", fresh.display()))?;
    std::fs::rename(&fresh, &runner).with_context(|| format!("cannot create {}", runner.display()))?;
    Ok(runner)
}

/// Returns the name of the environment variable through which cargo and nextest learn which program runs the tests.
fn runner_variable() -> String {
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    format!("CARGO_TARGET_{}_RUNNER", host.replace('-', "_").to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nextest_messages_become_test_outcomes() {
        let mut outcome = Outcome::default();
        for line in [
            r#"{"type":"suite","event":"started","test_count":2}"#,
            r#"{"type":"test","event":"started","name":"dunlin-topic::it$log::a"}"#,
            r#"{"type":"test","event":"ok","name":"dunlin-topic::it$log::a","exec_time":0.5}"#,
            r#"{"type":"test","event":"failed","name":"dunlin-topic::it$log::b","exec_time":1.5,"stdout":"why"}"#,
            r#"{"type":"suite","event":"failed","passed":1,"failed":1}"#,
        ] {
            outcome.read(line).unwrap();
        }
        let tests: Vec<_> = outcome.tests.iter().map(|test| (test.name.as_str(), test.passed)).collect();
        assert_eq!(tests, [("dunlin-topic::it$log::a", true), ("dunlin-topic::it$log::b", false)]);
        assert_eq!(
            outcome.tests[1].filter().unwrap(),
            "package(=dunlin-topic) & binary(=it) & test(=log::b)"
        );
        assert!(Outcome::default().read("no JSON").is_err());
    }

    #[test]
    fn known_flaky_test_needs_a_date_and_a_cause() {
        let known = parse_known_flaky("# comment\n\na::b$c\t2026-11-26\tport reused\n").unwrap();
        assert_eq!(known["a::b$c"], "port reused (since 2026-11-26)");
        assert!(parse_known_flaky("a::b$c\n").is_err());
    }

    #[test]
    fn list_of_known_flaky_tests_can_be_read() {
        known_flaky().unwrap();
    }
}
