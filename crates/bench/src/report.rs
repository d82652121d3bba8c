//! Makes the benchmark report from stored runs: the file `docs/benchmarks.md`, or one HTML file with plots.
//!
//! Invariants: a ratio compares figures of one run. Each figure comes from the newest run that measured the figure. The
//! page names this run beside the figure. Quick runs and runs of debug builds are refused. The page contains missed
//! goals too, and marks them.

mod cases;
mod cited;
mod curves;
mod distributions;
mod html;
mod plot;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use cases::ReportSection;
use cited::CitedRuns;
use plot::Plot;

use crate::goal::{Goal, GoalVerdict, PeerClaim};
use crate::metric;
use crate::point::Suite;
use crate::store::StoredRun;
use crate::suites;
use crate::table::{LineStyle, Table};

/// The result of writing a report page: which stored runs the page omits, and why.
#[derive(Debug, Default)]
pub struct ReportOutcome {
    /// The files of the runs that were left out, each with the reason.
    pub refused: Vec<String>,
}

/// Makes the report from the runs in `runs_folder`, and writes it to `page`. If the name of `page` ends in `.html`, the
/// report is HTML with plots, otherwise Markdown.
pub fn write(runs_folder: &Path, page: &Path) -> Result<ReportOutcome> {
    let archive = StoredRun::read_all(runs_folder)?;
    let mut refused = archive.damaged;
    let (runs, omitted): (Vec<_>, Vec<_>) = archive.runs.into_iter().partition(|run| run.refusal().is_none());
    refused.extend(
        omitted.iter().map(|run| format!("{} {}: {}", run.date, run.name, run.refusal().unwrap_or_default())),
    );
    ensure!(
        !runs.is_empty(),
        "{} has no run that a report can show{}",
        runs_folder.display(),
        refusal_list(&refused)
    );
    if let Some(folder) = page.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let is_html = page.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html"));
    let text = if is_html { html_page(&runs)? } else { markdown(&runs) };
    fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))?;
    Ok(ReportOutcome { refused })
}

fn refusal_list(refused: &[String]) -> String {
    if refused.is_empty() { String::new() } else { format!(" (refused: {})", refused.join("; ")) }
}

const INTRODUCTION: &str = "# Benchmarks\n\n`dunlin report` writes this page from the runs in `bench-runs/`: do not edit it. \
     Figures are medians over runs; MB is 10⁶ bytes. Each ratio compares figures of the same run, because the machine's \
     speed varies between runs. *The document* of a suite is the specification or benchmark page of another system; the \
     suite compares Dunlin's figures with the figures in it. ✗ marks a missed goal, ! a \
     figure that differs by more than 10 % between runs.\n\nThe scenarios contain these words: `embedded`: one side of \
     a measurement runs in the node; `brokered`: both sides are clients of the node; `spin`, `parked`: a waiting thread \
     polls, or sleeps; `apart`, `free`: each side has a processor core of its own, or may run on any core; `copied`, \
     `by_ref`: the log copies payloads, or refers to them; `document`, `sustained`: the number of messages is that of the \
     document, or the run has a fixed duration; `of=rate`: the scenario finds the highest rate with which \
     subscribers keep up. The metric `holes` counts losses that subscribers detect by missing sequence \
     numbers.\n";

/// Returns the report in Markdown. `runs` must be sorted by date.
pub fn markdown(runs: &[StoredRun]) -> String {
    let chapters = chapters(runs);
    let sections = chapters.iter().map(|chapter| chapter.markdown.as_str());
    format!("{}{}", introduction(&chapters), sections.collect::<String>())
}

fn html_page(runs: &[StoredRun]) -> Result<String> {
    let chapters = chapters(runs);
    html::page(&introduction(&chapters), &chapters)
}

/// Returns the introduction, with a summary of each suite.
fn introduction(chapters: &[Chapter]) -> String {
    let columns = [
        "Suite",
        "Goals met",
        "Missed",
        "Undecided",
        "Figures of the document beaten",
        "Missed",
        "Undecided",
    ];
    let mut table = Table::new("", &columns);
    for Chapter { suite, goals, claims, .. } in chapters {
        let counts = [goals.met, goals.missed, goals.undecided, claims.met, claims.missed, claims.undecided];
        let cells = std::iter::once(format!("`{suite}`")).chain(counts.iter().map(ToString::to_string));
        table.push_line(LineStyle::Plain, cells.collect());
    }
    format!("{INTRODUCTION}\n{}", table.markdown())
}

/// The numbers of goals that are met, missed and undecided. For the claims of another system's document, these are the
/// numbers of figures that Dunlin reaches, misses, and did not measure.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    met: usize,
    missed: usize,
    undecided: usize,
}

impl Tally {
    fn count(&mut self, met: Option<bool>) {
        match met {
            Some(true) => self.met += 1,
            Some(false) => self.missed += 1,
            None => self.undecided += 1,
        }
    }
}

/// The part of the report about one suite.
struct Chapter {
    suite: &'static str,
    goals: Tally,
    claims: Tally,
    markdown: String,
    plots: Vec<Plot>,
}

fn chapters(runs: &[StoredRun]) -> Vec<Chapter> {
    let of_suite = |suite: &'static Suite| {
        let runs: Vec<&StoredRun> =
            runs.iter().filter(|run| run.rows.iter().any(|row| row.suite == suite.name)).collect();
        (!runs.is_empty()).then(|| chapter(suite, &runs))
    };
    suites::SUITES.iter().filter_map(of_suite).collect()
}

fn chapter(suite: &'static Suite, runs: &[&StoredRun]) -> Chapter {
    let mut page = String::new();
    let mut cited = CitedRuns::new(runs);
    let (goals, goals_table) = goals_table(suite.goals, &mut cited);
    let (claims, claims_table) = claims_table(suite.claims, &mut cited);
    let cases = cases::of(suite, runs, &mut cited);
    let _ = write!(page, "\n## Suite `{}`\n", suite.name);
    for (title, table) in [("Goals", goals_table), ("The document's figures", claims_table)] {
        if !table.is_empty() {
            let _ = write!(page, "\n### {title}\n\n{}", table.markdown());
        }
    }
    let mut plots = Vec::new();
    for ReportSection { title, table, rows } in cases {
        let _ = write!(page, "\n### {title}\n\n{}", table.markdown());
        plots.extend(curves::of(&title, &rows));
        plots.extend(distributions::of(&title, &rows));
    }
    cited.write(&mut page);
    Chapter { suite: suite.name, goals, claims, markdown: page, plots }
}

fn goals_table(goals: &[Goal], cited: &mut CitedRuns) -> (Tally, Table) {
    let mut tally = Tally::default();
    let mut table =
        Table::new("", &["Measurement", "Goal", "Result", "Compared with", "Ratio", "Met", "Run"]);
    for goal in goals {
        let verdict = cited.newest(|run| goal.judge(&run.rows), |verdict| verdict.met.is_some());
        tally.count(verdict.as_ref().and_then(|(_, verdict)| verdict.met));
        let (run, cells) = match verdict {
            Some((run, verdict)) => (run, goal_cells(goal, &verdict)),
            None => (String::new(), ["–".into(), String::new(), String::new(), "not measured".into()]),
        };
        let [measured, against, ratio, met] = cells;
        let cells = vec![
            goal.title.to_owned(),
            goal.threshold.text(goal.ours.metric),
            measured,
            against,
            ratio,
            met,
            run,
        ];
        table.push_line(LineStyle::Plain, cells);
    }
    (tally, table)
}

/// Returns the cells of the table row for a goal: the measured figure, the reference figure, the ratio of the two
/// figures, and whether the goal is met.
pub fn goal_cells(goal: &Goal, verdict: &GoalVerdict) -> [String; 4] {
    let metric = goal.ours.metric;
    let met = match (verdict.met, &verdict.reason) {
        (Some(true), _) => "✓".to_owned(),
        (Some(false), _) => "✗".to_owned(),
        (None, reason) => format!("? {}", reason.as_deref().unwrap_or_default()),
    };
    let other = verdict.reference.map(|reference| {
        metric::format_metric(goal.threshold.reference().map_or(metric, |row| row.metric), reference)
    });
    let ratio = verdict.ratio.map(|ratio| format!("{} ×", metric::format_number(ratio)));
    [
        metric::format_metric(metric, verdict.measured),
        other.unwrap_or_default(),
        ratio.unwrap_or_default(),
        met,
    ]
}

fn claims_table(claims: &[PeerClaim], cited: &mut CitedRuns) -> (Tally, Table) {
    let mut tally = Tally::default();
    let mut table = Table::new(
        "",
        &["Measurement", "Metric", "The document's figure", "Result", "Times better", "Beaten", "Run"],
    );
    for claim in claims {
        let metric = claim.ours.metric;
        let mut cells =
            vec![claim.title.to_owned(), format!("`{metric}`"), metric::format_metric(metric, claim.figure)];
        let measured = cited.newest(|run| run.rows.find(&claim.ours).map(|row| row.median), |_| true);
        tally.count(measured.as_ref().map(|(_, measured)| claim.times_better(*measured) >= 1.0));
        match measured {
            Some((run, measured)) => {
                let times = claim.times_better(measured);
                let beaten = if times >= 1.0 { "✓" } else { "✗" };
                cells.extend([
                    metric::format_metric(metric, measured),
                    format!("{} ×", metric::format_number(times)),
                    beaten.to_owned(),
                    run,
                ]);
            }
            None => cells.extend(["–".into(), String::new(), "not measured".into()]),
        }
        table.push_line(LineStyle::Plain, cells);
    }
    (tally, table)
}
