//! The command `dunlin bench`: checks the machine, runs suites, prints the results and stores them.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::against::RunComparison;
use crate::child::ChildProgram;
use crate::goal::mark_unfair_peers;
use crate::layout;
use crate::machine::{self, MachineDescription};
use crate::options::{BenchOptions, RawOptions};
use crate::peers::PeerPrograms;
use crate::point::{BenchContext, Suite};
use crate::preflight::PreflightReport;
use crate::report;
use crate::row::RowSet;
use crate::runner::{self, SuiteOutcome};
use crate::store::StoredRun;
use crate::suites;
use crate::table::{LineStyle, Table};

/// The parsed command line of `dunlin bench`: the suite, the options, and the folder for stored runs.
#[derive(Clone, Debug)]
pub struct BenchRequest {
    /// The name of a suite, or `all`.
    pub suite: String,
    /// Whether to measure other systems (peers) too, as the command `bench peers` does.
    pub with_peers: bool,
    /// The options, as given on the command line.
    pub options: RawOptions,
    /// The whole command line. It is stored with the run.
    pub command: String,
    /// The folder in which runs are stored.
    pub runs_folder: PathBuf,
    /// A stored run with which the new run is compared.
    pub against: Option<PathBuf>,
    /// The command that starts a child process of the benchmark.
    pub child: ChildProgram,
}

/// Runs suites. Returns `false` if a measurement failed; a missed goal does not count as a failure.
pub fn run(request: BenchRequest) -> Result<bool> {
    let suites = suites::find(&request.suite).with_context(|| unknown_suite(&request.suite))?;
    let options = request.options.clone().validate(|name| std::env::var(name).ok())?;
    let against = request.against.as_deref().map(StoredRun::read).transpose()?;
    let warnings = PreflightReport::collect(options.quick).warnings();
    warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
    let bench = BenchContext { options, child: request.child.clone(), peers: PeerPrograms::find() };
    let mut succeeded = true;
    for suite in suites {
        let date = machine::now_utc();
        let mut outcome = runner::run(suite, &bench, request.with_peers)?;
        mark_unfair_peers(&mut outcome.rows, suite.peer_figures);
        print(suite, &bench.options, &outcome).context("cannot print the results")?;
        if let Some(stored) = &against {
            print_comparison(&RunComparison::of(&outcome.rows, stored), bench.options.json)?;
        }
        succeeded &= outcome.failed.is_empty();
        let path = stored_run(suite, &request, &bench.options, date, warnings.clone(), outcome)
            .save(&request.runs_folder)?;
        eprintln!("results stored in {}", path.display());
    }
    Ok(succeeded)
}

fn unknown_suite(name: &str) -> String {
    let names: Vec<&str> = suites::SUITES.iter().map(|suite| suite.name).collect();
    format!("there is no suite `{name}`: use one of {}, or `all`", names.join(", "))
}

fn stored_run(
    suite: &Suite,
    request: &BenchRequest,
    options: &BenchOptions,
    date: String,
    warnings: Vec<String>,
    outcome: SuiteOutcome,
) -> StoredRun {
    let name = if request.with_peers { format!("{}-peers", suite.name) } else { suite.name.to_owned() };
    StoredRun {
        name,
        date,
        machine: MachineDescription::current(),
        commit: machine::commit(),
        command: request.command.clone(),
        quick: options.quick,
        debug_build: cfg!(debug_assertions),
        warnings,
        skipped: outcome.skipped,
        failed: outcome.failed,
        rows: outcome.rows,
    }
}

fn print(suite: &Suite, options: &BenchOptions, outcome: &SuiteOutcome) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let colour = colour(&out);
    if options.json {
        for row in outcome.rows.iter() {
            writeln!(out, "{}", serde_json::to_string(row)?)?;
        }
    } else {
        for table in layout::tables(suite.layouts, &outcome.rows) {
            write!(out, "{}", table.text(colour))?;
        }
        out.write_all((suite.blocks)(&outcome.rows).as_bytes())?;
        let goals = goals_table(suite, &outcome.rows);
        if options.quick && !goals.is_empty() {
            // Goals apply only to full runs: a quick run makes too few requests to judge a goal.
            writeln!(out, "\nquick: goals are not judged, since they require full runs")?;
        } else if !goals.is_empty() {
            write!(out, "{}", goals.text(colour))?;
        }
    }
    out.flush()?;
    print_notes(outcome);
    Ok(())
}

fn print_comparison(comparison: &RunComparison, json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        for row in comparison.rows() {
            writeln!(out, "{}", serde_json::to_string(row)?)?;
        }
    } else {
        let table = comparison.table();
        if !table.is_empty() {
            write!(out, "{}", table.text(colour(&out)))?;
        }
    }
    out.flush()?;
    eprintln!("{}", comparison.summary());
    Ok(())
}

fn colour(out: &impl IsTerminal) -> bool {
    out.is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

fn print_notes(outcome: &SuiteOutcome) {
    let noisy = outcome.rows.iter().filter(|row| row.runs > 1 && row.summary().is_noisy()).count();
    if noisy > 0 {
        eprintln!(
            "warning: the results of {noisy} rows differ by more than 10 % between runs (marked with !)"
        );
    }
    for row in outcome.rows.iter().filter(|row| row.unfair) {
        eprintln!(
            "note: {} {} {}: {}",
            row.target,
            row.params,
            row.metric,
            row.note.as_deref().unwrap_or_default()
        );
    }
    outcome.skipped.iter().for_each(|skipped| eprintln!("skipped: {skipped}"));
    outcome.failed.iter().for_each(|failed| eprintln!("FAILED: {failed}"));
}

fn goals_table(suite: &Suite, rows: &RowSet) -> Table {
    let mut table = Table::new("Goals", &["Measurement", "Goal", "Result", "Compared with", "Ratio", "Met"]);
    for goal in suite.goals {
        let Some(verdict) = goal.judge(rows) else { continue };
        let style = match verdict.met {
            Some(true) => LineStyle::Good,
            Some(false) => LineStyle::Bad,
            None => LineStyle::Dim,
        };
        let head = [goal.title.to_owned(), goal.threshold.text(goal.ours.metric)];
        table.push_line(style, head.into_iter().chain(report::goal_cells(goal, &verdict)).collect());
    }
    table
}
