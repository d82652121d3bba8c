//! The table of recorded test runs, `tests/runs.tsv`. Its columns are time, commit, step, busy threads per core,
//! minutes and result.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::{process, workspace};

const PATH: &str = "tests/runs.tsv";

/// The results of earlier test runs, the oldest first. Each result is a row of the table.
pub struct History(Vec<Row>);

struct Row {
    date: String,
    commit: String,
    what: String,
    busy: usize,
    minutes: String,
    verdict: String,
}

impl History {
    pub fn read() -> Result<History> {
        let text = std::fs::read_to_string(workspace::root().join(PATH))
            .with_context(|| format!("cannot read {PATH}"))?;
        History::parse(&text)
    }

    fn parse(text: &str) -> Result<History> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(Row::parse).collect::<Result<_>>().map(History)
    }

    /// Returns the commit of the working tree. Fails if a file other than the table has uncommitted changes.
    pub fn commit() -> Result<String> {
        let git = |arguments: &[&str]| {
            process::text(Command::new("git").args(arguments).current_dir(workspace::root()))
        };
        let changed = git(&["status", "--porcelain", "--", ".", &format!(":!{PATH}")])?;
        ensure!(
            changed.is_empty(),
            "the run is not recorded, because the tree differs from its commit:\n{changed}"
        );
        Ok(git(&["rev-parse", "--short", "HEAD"])?.trim().to_owned())
    }

    /// Adds a row to the table. Fails if the commit of the working tree is no longer `commit`.
    pub fn add(&self, commit: &str, what: &str, busy: usize, took: Duration, passed: bool) -> Result<()> {
        let now = History::commit()?;
        ensure!(
            now == commit,
            "the run is not recorded, because it began at commit {commit} and ended at {now}"
        );
        let date = process::text(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%MZ"]))?;
        let minutes = took.as_secs_f64() / 60.0;
        let verdict = if passed { "passed" } else { "failed" };
        let row = format!("{}\t{commit}\t{what}\t{busy}\t{minutes:.1}\t{verdict}\n", date.trim());
        let mut file = OpenOptions::new()
            .append(true)
            .open(workspace::root().join(PATH))
            .with_context(|| format!("cannot open {PATH}"))?;
        file.write_all(row.as_bytes()).with_context(|| format!("cannot write {PATH}"))
    }

    /// For each of these names, prints the newest run with this name, and the number of runs with this name that have
    /// passed since the last failed one.
    pub fn print<'n>(&self, names: impl Iterator<Item = &'n str>) {
        println!(
            "\n{:<18} {:<18} {:<9} {:>7}  {:<7} passed in a row (beside busy threads)",
            "what", "newest", "commit", "min", "verdict"
        );
        for name in names {
            match self.0.iter().rev().find(|row| row.what == name) {
                None => println!("{name:<18} never recorded"),
                Some(row) => println!(
                    "{name:<18} {:<18} {:<9} {:>7}  {:<7} {} ({})",
                    row.date,
                    row.commit,
                    row.minutes,
                    row.verdict,
                    self.consecutive_passes(name, |row| row.busy == 0),
                    self.consecutive_passes(name, |row| row.busy > 0),
                ),
            }
        }
    }

    /// Returns the number of runs named `what` that have passed since the last failed one. A run is counted only if
    /// `counts` returns `true` for it.
    fn consecutive_passes(&self, what: &str, counts: impl Fn(&Row) -> bool) -> usize {
        let newest_first = self.0.iter().rev().filter(|row| row.what == what);
        newest_first.take_while(|row| row.verdict == "passed").filter(|row| counts(row)).count()
    }
}

impl Row {
    fn parse(line: &str) -> Result<Row> {
        let fields: Vec<&str> = line.split('\t').collect();
        let [date, commit, what, busy, minutes, verdict] = fields[..] else {
            bail!("{PATH}: expected six fields, separated by tabs: {line}");
        };
        Ok(Row {
            date: date.to_owned(),
            commit: commit.to_owned(),
            what: what.to_owned(),
            busy: busy.parse().with_context(|| format!("{PATH}: cannot parse the line {line}"))?,
            minutes: minutes.to_owned(),
            verdict: verdict.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_run_resets_the_count_of_consecutive_successes() {
        let row =
            |busy: u32, verdict: &str| format!("2026-11-26T12:00Z\tabc\ttest\t{busy}\t9.0\t{verdict}\n");
        let text = [row(0, "passed"), row(0, "failed"), row(0, "passed"), row(2, "passed"), row(0, "passed")];
        let history = History::parse(&text.concat()).unwrap();
        assert_eq!(history.consecutive_passes("test", |row| row.busy == 0), 2);
        assert_eq!(history.consecutive_passes("test", |row| row.busy > 0), 1);
        assert_eq!(history.consecutive_passes("chaos", |_| true), 0);
        assert!(History::parse("one\ttwo\n").is_err());
    }

    #[test]
    fn table_of_past_test_runs_can_be_read() {
        History::read().unwrap();
    }
}
