//! Makes the tables of the benchmark cases, with a line for each measurement. The whole line comes from the newest run
//! that made the measurement.
//!
//! Invariants: all figures of a line come from one run. A measurement that only older runs made is shown only if it is
//! still part of the suite. Measurements that were renamed or removed since are therefore not shown.

use std::collections::HashMap;

use crate::layout::{self, PointText};
use crate::options::RawOptions;
use crate::params::Params;
use crate::point::Suite;
use crate::report::cited::CitedRuns;
use crate::row::{FigureRow, RowSet};
use crate::store::StoredRun;
use crate::table::Table;

/// The section of the report about one benchmark case: a title, a table, and the rows with the table's figures.
pub struct ReportSection {
    /// The title. It contains the numbers of the cited runs.
    pub title: String,
    /// The table with a line for each measurement.
    pub table: Table,
    /// The rows whose figures are in the table.
    pub rows: RowSet,
}

/// Returns a section for each case of the suite that was measured. `runs` must be the runs with which `cited` was
/// created, oldest first.
pub fn of(suite: &Suite, runs: &[&StoredRun], cited: &mut CitedRuns) -> Vec<ReportSection> {
    let order = point_order(suite);
    suite.cases.iter().filter_map(|case| build_case(suite, case, &order, runs, cited)).collect()
}

/// The position of each measurement in its suite, by case, target and parameters.
type PointOrder = HashMap<(String, String, Params), usize>;

fn point_order(suite: &Suite) -> PointOrder {
    let Ok(options) = RawOptions::default().validate(|_| None) else { return PointOrder::new() };
    let points = (suite.groups)(&options, true).into_iter().flatten();
    points
        .enumerate()
        .map(|(nth, point)| ((point.case.to_owned(), point.target.to_owned(), point.params), nth))
        .collect()
}

/// A measurement to show, and the run that supplies its line.
struct Chosen<'a> {
    position: Option<usize>,
    run: usize,
    point: PointText<'a>,
}

fn build_case(
    suite: &Suite,
    case: &str,
    order: &PointOrder,
    runs: &[&StoredRun],
    cited: &mut CitedRuns,
) -> Option<ReportSection> {
    let sets: Vec<RowSet> = runs.iter().map(|run| rows_of_case(run, suite, case)).collect();
    let newest = sets.iter().rposition(|rows| rows.iter().next().is_some())?;
    let mut chosen: Vec<Chosen> = Vec::new();
    for (run, rows) in sets.iter().enumerate().rev() {
        for point in layout::points(suite.layouts, case, rows) {
            let FigureRow { case, target, params, .. } = point.row;
            let position = order.get(&(case.clone(), target.clone(), params.clone())).copied();
            let is_new = !chosen.iter().any(|other| layout::same_point(other.point.row, point.row));
            if is_new && (position.is_some() || run == newest) {
                chosen.push(Chosen { position, run, point });
            }
        }
    }
    let several = chosen.iter().any(|other| other.run != newest);
    if several {
        // A measurement that the suite no longer has comes last.
        chosen.sort_by_key(|chosen| chosen.position.unwrap_or(usize::MAX));
    }
    let mut table = layout::empty_table(suite.layouts, case, several.then_some("Run"));
    let (mut rows, mut numbers) = (RowSet::default(), Vec::new());
    for Chosen { run, point, .. } in chosen {
        let number = cited.cite(run);
        for mut cells in point.lines {
            cells.extend(several.then(|| number.clone()));
            table.push_line(point.style, cells);
        }
        if !numbers.contains(&number) {
            numbers.push(number);
        }
        // All rows of the measurement are added. They differ only in the metric.
        let of_point = sets[run].iter().filter(|row| layout::same_point(row, point.row));
        of_point.for_each(|row| drop(rows.push(row.clone())));
    }
    numbers.sort_by_key(|number| number.parse::<usize>().unwrap_or(usize::MAX));
    let named = if several { "runs" } else { "run" };
    Some(ReportSection { title: format!("{} ({named} {})", table.title, numbers.join(", ")), table, rows })
}

fn rows_of_case(run: &StoredRun, suite: &Suite, case: &str) -> RowSet {
    let mut rows = RowSet::default();
    let of_case = run.rows.iter().filter(|row| row.suite == suite.name && row.case == case);
    of_case.for_each(|row| drop(rows.push(row.clone())));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::MachineDescription;
    use crate::stats::Summary;
    use crate::tasks;

    fn run(date: &str, points: &[(&str, u64, f64)]) -> StoredRun {
        let mut rows = RowSet::default();
        for (via, workers, per_s) in points {
            let params = Params::new().with("via", *via).with("workers", *workers);
            let params = if *via == "node" {
                params.with("nodes", 1u64).with("shards", 1u64).with("tenants", 1u64)
            } else {
                params
            };
            let summary = Summary::of(&[*per_s]).unwrap();
            rows.push(FigureRow::new("tasks", "scaling", "dunlin", &params, "ops_per_s", summary, true))
                .unwrap();
        }
        StoredRun {
            name: "tasks".into(),
            date: date.into(),
            machine: MachineDescription::default(),
            commit: "abc".into(),
            command: "dunlin bench tasks".into(),
            quick: false,
            debug_build: false,
            warnings: Vec::new(),
            skipped: Vec::new(),
            failed: Vec::new(),
            rows,
        }
    }

    fn title_and_lines(runs: &[StoredRun]) -> (String, Vec<String>) {
        let runs: Vec<&StoredRun> = runs.iter().collect();
        let mut cases = of(&tasks::SUITE, &runs, &mut CitedRuns::new(&runs));
        assert_eq!(cases.len(), 1);
        let case = cases.remove(0);
        (case.title, case.table.markdown().lines().skip(2).map(str::to_owned).collect())
    }

    #[test]
    fn each_report_row_shows_the_newest_run_and_its_number() {
        let older = run("1", &[("simulator", 10, 851.0), ("simulator", 25, 2_100.0)]);
        let newer = run("2", &[("node", 200, 16_000.0), ("simulator", 10, 850.0)]);
        let (title, lines) = title_and_lines(&[older, newer]);
        assert!(title.ends_with("(runs 1, 2)"), "{title}");
        let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
        let shown: Vec<[String; 3]> = lines
            .iter()
            .map(|line| cells(line))
            .map(|cells| [cells[2].clone(), cells[7].clone(), cells[cells.len() - 2].clone()])
            .collect();
        // The lines have the order of the suite. The run that is cited first has number 1.
        let expected = [["node", "16.0 k/s", "1"], ["simulator", "850/s", "1"], ["simulator", "2100/s", "2"]];
        assert_eq!(shown, expected.map(|line| line.map(str::to_owned)));
    }

    #[test]
    fn result_for_parameters_outside_the_suite_is_not_shown() {
        let (title, lines) =
            title_and_lines(&[run("1", &[("simulator", 77, 9.0)]), run("2", &[("simulator", 10, 850.0)])]);
        assert!(title.ends_with("(run 1)"), "{title}");
        assert_eq!(lines.len(), 1);
        let (_, lines) = title_and_lines(&[run("1", &[("simulator", 77, 9.0)])]);
        assert_eq!(lines.len(), 1, "the newest run supplies the whole line");
    }
}
