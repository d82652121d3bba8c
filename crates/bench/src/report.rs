//! The report: `docs/benchmarks.md`, made from kept runs and nothing else.
//!
//! Invariants: a ratio is taken within one run; the newest run that can tell a figure tells it, and is
//! named beside it; quick runs and debug builds are refused; a shortfall is marked, never left out.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::goal::{Claim, Goal, Verdict};
use crate::layout;
use crate::metric;
use crate::point::Suite;
use crate::store::KeptRun;
use crate::suites;
use crate::table::{Table, Tone};

/// What came of making the report.
#[derive(Debug, Default)]
pub struct Made {
    /// Runs that were left out, and why.
    pub refused: Vec<String>,
}

/// Makes the page from the runs in `runs_folder` and writes it to `page`.
pub fn write(runs_folder: &Path, page: &Path) -> Result<Made> {
    let (runs, refused): (Vec<_>, Vec<_>) =
        KeptRun::read_all(runs_folder)?.into_iter().partition(|run| run.refusal().is_none());
    let refused: Vec<String> = refused
        .iter()
        .map(|run| format!("{} {}: {}", run.date, run.name, run.refusal().unwrap_or_default()))
        .collect();
    ensure!(!runs.is_empty(), "no run in {} can be reported{}", runs_folder.display(), listed(&refused));
    if let Some(folder) = page.parent() {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    fs::write(page, markdown(&runs)).with_context(|| format!("writing {}", page.display()))?;
    Ok(Made { refused })
}

fn listed(refused: &[String]) -> String {
    if refused.is_empty() { String::new() } else { format!(" (refused: {})", refused.join("; ")) }
}

/// The page; the runs are in order of their dates.
pub fn markdown(runs: &[KeptRun]) -> String {
    let mut page = String::from(
        "# Benchmarks\n\nMade by `dunlin report` from the runs kept in `bench-runs/`; not edited by hand. \
         Medians over runs; MB is 10⁶ bytes. Ratios are taken within one run, since the machine's \
         mood changes between two. ✗ marks a shortfall.\n",
    );
    for suite in suites::SUITES {
        let of_suite: Vec<&KeptRun> =
            runs.iter().filter(|run| run.rows.iter().any(|row| row.suite == suite.name)).collect();
        if !of_suite.is_empty() {
            write_suite(&mut page, suite, &of_suite);
        }
    }
    page
}

fn write_suite(page: &mut String, suite: &Suite, runs: &[&KeptRun]) {
    let mut cited = Cited::new(runs);
    let goals = goals_table(suite.goals, &mut cited);
    let claims = claims_table(suite.claims, &mut cited);
    let tables = case_tables(suite, &mut cited);
    let _ = write!(page, "\n## Suite `{}`\n", suite.name);
    for (title, table) in [("Where it must be", goals), ("The document's figures", claims)] {
        if !table.is_empty() {
            let _ = write!(page, "\n### {title}\n\n{}", table.markdown());
        }
    }
    for (run, table) in tables {
        let _ = write!(page, "\n### {} (run {run})\n\n{}", table.title, table.markdown());
    }
    cited.write(page);
}

fn goals_table(goals: &[Goal], cited: &mut Cited) -> Table {
    let mut table = Table::new("", &["What", "Bar", "Measured", "Against", "Ratio", "Met", "Run"]);
    for goal in goals {
        let verdict = cited.newest(|run| goal.judge(&run.rows), |verdict| verdict.met.is_some());
        let (run, cells) = match verdict {
            Some((run, verdict)) => (run, goal_cells(goal, &verdict)),
            None => (String::new(), ["–".into(), String::new(), String::new(), "not measured".into()]),
        };
        let [measured, against, ratio, met] = cells;
        let what =
            vec![goal.what.to_owned(), goal.bar.text(goal.ours.metric), measured, against, ratio, met, run];
        table.line(Tone::Plain, what);
    }
    table
}

/// Measured, against, ratio, met.
pub fn goal_cells(goal: &Goal, verdict: &Verdict) -> [String; 4] {
    let metric = goal.ours.metric;
    let met = match (verdict.met, &verdict.why) {
        (Some(true), _) => "✓".to_owned(),
        (Some(false), _) => "✗".to_owned(),
        (None, why) => format!("? {}", why.as_deref().unwrap_or_default()),
    };
    let other =
        verdict.other.map(|other| metric::human(goal.bar.other().map_or(metric, |row| row.metric), other));
    let ratio = verdict.ratio.map(|ratio| format!("{} ×", metric::number(ratio)));
    [metric::human(metric, verdict.measured), other.unwrap_or_default(), ratio.unwrap_or_default(), met]
}

fn claims_table(claims: &[Claim], cited: &mut Cited) -> Table {
    let mut table =
        Table::new("", &["What", "Metric", "The document", "Measured", "Times better", "Beaten", "Run"]);
    for claim in claims {
        let metric = claim.ours.metric;
        let mut cells =
            vec![claim.what.to_owned(), format!("`{metric}`"), metric::human(metric, claim.figure)];
        match cited.newest(|run| run.rows.find(&claim.ours).map(|row| row.median), |_| true) {
            Some((run, measured)) => {
                let times = claim.times_better(measured);
                let beaten = if times >= 1.0 { "✓" } else { "✗" };
                cells.extend([
                    metric::human(metric, measured),
                    format!("{} ×", metric::number(times)),
                    beaten.to_owned(),
                    run,
                ]);
            }
            None => cells.extend(["–".into(), String::new(), "not measured".into()]),
        }
        table.line(Tone::Plain, cells);
    }
    table
}

/// Each case's tables, from the newest run that measured it.
fn case_tables(suite: &Suite, cited: &mut Cited) -> Vec<(String, Table)> {
    let mut tables = Vec::new();
    for case in suite.cases {
        let found = cited.newest(
            |run| {
                let mut rows = crate::row::RowSet::default();
                let of_case = run.rows.iter().filter(|row| row.suite == suite.name && row.case == *case);
                of_case.for_each(|row| drop(rows.push(row.clone())));
                layout::tables(suite.layouts, &rows).pop()
            },
            |_| true,
        );
        tables.extend(found);
    }
    tables
}

/// The runs the page speaks of, named A, B, … in the order they are first cited.
struct Cited<'a> {
    runs: &'a [&'a KeptRun],
    cited: Vec<usize>,
}

impl<'a> Cited<'a> {
    fn new(runs: &'a [&'a KeptRun]) -> Self {
        Self { runs, cited: Vec::new() }
    }

    /// What the newest run says that can say it well, else what the newest run says that says anything.
    fn newest<T>(
        &mut self,
        says: impl Fn(&KeptRun) -> Option<T>,
        well: impl Fn(&T) -> bool,
    ) -> Option<(String, T)> {
        let mut second_best = None;
        for (nth, run) in self.runs.iter().enumerate().rev() {
            match says(run) {
                Some(said) if well(&said) => return Some((self.cite(nth), said)),
                Some(said) if second_best.is_none() => second_best = Some((nth, said)),
                _ => {}
            }
        }
        second_best.map(|(nth, said)| (self.cite(nth), said))
    }

    fn cite(&mut self, nth: usize) -> String {
        let place = self.cited.iter().position(|cited| *cited == nth).unwrap_or_else(|| {
            self.cited.push(nth);
            self.cited.len() - 1
        });
        (place + 1).to_string()
    }

    fn write(&self, page: &mut String) {
        let _ = write!(page, "\n### Runs\n\n");
        for (place, nth) in self.cited.iter().enumerate() {
            let run = self.runs[*nth];
            let _ = writeln!(
                page,
                "{}. {}, commit `{}`, `{}`; {}.",
                place + 1,
                run.date,
                run.commit,
                run.command,
                run.machine
            );
            for (kind, lines) in
                [("warned", &run.warnings), ("skipped", &run.skipped), ("failed", &run.failed)]
            {
                for line in lines {
                    let _ = writeln!(page, "   - {kind}: {line}");
                }
            }
            for row in run.rows.iter().filter(|row| row.note.is_some()) {
                let _ = writeln!(
                    page,
                    "   - {} {} {}: {}",
                    row.target,
                    row.params,
                    row.metric,
                    row.note.as_deref().unwrap_or_default()
                );
            }
        }
    }
}
