//! The option `--against RUN`: compares this run with a stored run, and reports which figures of Dunlin changed by more
//! than noise.
//!
//! The two runs may come from different hours or machines. If the figures of peers (other systems) and of raw sockets
//! changed too, the cause is the machine. A row of Dunlin counts as changed if its change exceeds each of three limits:
//! the spread within each run, the median change of the figures of peers and raw sockets, and [`NOISE_MIN`].

use serde::Serialize;

use crate::metric;
use crate::point::target;
use crate::row::{FigureRow, RowSet};
use crate::stats::Summary;
use crate::store::StoredRun;
use crate::table::{LineStyle, Table};

/// The smallest change that is reported, as a share. Changes of at most 5 % count as noise.
pub const NOISE_MIN: f64 = 0.05;
/// The smallest number of rows of other systems from which the machine's drift is computed. The drift is the change of
/// the machine's speed between the two runs.
const PEER_ROWS_MIN: usize = 5;

/// The change of one of Dunlin's measured figures between two benchmark runs.
#[derive(Clone, Debug, Serialize)]
pub struct RowComparison {
    /// The compared row: its case, its parameters and its metric.
    pub row: String,
    /// The name of the metric. The metric determines the unit, and whether more or less is better.
    pub metric: String,
    /// The median in the earlier, stored run.
    pub then: f64,
    /// The median in the new run.
    pub now: f64,
    /// The factor by which the figure improved. A factor below 1 means that the figure became worse.
    pub times_better: f64,
    /// The largest change that noise can explain, as a share.
    pub noise: f64,
}

impl RowComparison {
    /// Whether the figure became worse by more than noise can explain.
    pub fn is_worse(&self) -> bool {
        self.times_better < 1.0 / (1.0 + self.noise)
    }

    /// Whether the figure became better by more than noise can explain.
    pub fn is_better(&self) -> bool {
        self.times_better > 1.0 + self.noise
    }
}

/// The changes of all measured figures of Dunlin from a stored run to the new run.
#[derive(Clone, Debug)]
pub struct RunComparison {
    then: String,
    drift: Option<f64>,
    rows: Vec<RowComparison>,
}

impl RunComparison {
    /// Compares all rows of Dunlin that exist in both runs. In the result, the row that became worse by the largest
    /// factor comes first.
    pub fn of(now: &RowSet, then: &StoredRun) -> Self {
        let pairs: Vec<(&FigureRow, &FigureRow)> = now
            .iter()
            .filter_map(|row| Some((row, then.rows.iter().find(|other| is_same_figure(row, other))?)))
            .collect();
        let drift = drift(pairs.iter().filter(|(row, _)| row.target != target::DUNLIN));
        let ours = pairs.into_iter().filter(|(row, _)| row.target == target::DUNLIN);
        let mut rows: Vec<RowComparison> = ours.map(|(now, then)| compare_rows(now, then, drift)).collect();
        rows.sort_by(|left, right| left.times_better.total_cmp(&right.times_better));
        Self { then: format!("{} of {}, commit {}", then.name, then.date, then.commit), drift, rows }
    }

    /// Returns the comparisons of all rows that exist in both runs.
    pub fn rows(&self) -> &[RowComparison] {
        &self.rows
    }

    /// Returns a table of the rows that changed by more than noise.
    pub fn table(&self) -> Table {
        let title = format!("Against {}", self.then);
        let mut table = Table::new(&title, &["What changed", "Then", "Now", "Times better", "Noise"]);
        for row in self.rows.iter().filter(|row| row.is_worse() || row.is_better()) {
            let style = if row.is_worse() { LineStyle::Bad } else { LineStyle::Good };
            let cells = vec![
                row.row.clone(),
                metric::format_metric(&row.metric, row.then),
                metric::format_metric(&row.metric, row.now),
                format!("{} ×", metric::format_number(row.times_better)),
                format!("± {:.0} %", row.noise * 100.0),
            ];
            table.push_line(style, cells);
        }
        table
    }

    /// Returns a summary in one sentence.
    pub fn summary(&self) -> String {
        let worse = self.rows.iter().filter(|row| row.is_worse()).count();
        let better = self.rows.iter().filter(|row| row.is_better()).count();
        let drift = match self.drift {
            Some(drift) => format!(
                "the results of the other brokers, which both runs contain, drifted by {:.0} %",
                drift * 100.0
            ),
            None => "too few results of other brokers to compute the machine's drift".to_owned(),
        };
        format!(
            "compared with {}: {worse} of {} rows regressed, {better} improved, and the other differences \
             are within the noise; {drift}",
            self.then,
            self.rows.len()
        )
    }
}

fn is_same_figure(row: &FigureRow, other: &FigureRow) -> bool {
    row.suite == other.suite
        && row.case == other.case
        && row.target == other.target
        && row.metric == other.metric
        && row.params == other.params
        && other.median > 0.0
        && row.median > 0.0
}

/// Returns the median change of the rows of other systems, as a share without a sign. This change shows by how much the
/// machine's speed differs between the two runs. Returns `None` if there are fewer than `PEER_ROWS_MIN` rows.
fn drift<'a>(others: impl Iterator<Item = &'a (&'a FigureRow, &'a FigureRow)>) -> Option<f64> {
    let changes: Vec<f64> =
        others.map(|(now, then)| (now.median / then.median).ln().abs().exp_m1()).collect();
    if changes.len() < PEER_ROWS_MIN { None } else { Summary::of(&changes).map(|summary| summary.median) }
}

fn compare_rows(now: &FigureRow, then: &FigureRow, drift: Option<f64>) -> RowComparison {
    let less = metric::less_is_better(&now.metric);
    let times_better = if less { then.median / now.median } else { now.median / then.median };
    let spread = now.summary().spread().max(then.summary().spread());
    RowComparison {
        row: format!("{} {} {}", now.case, now.params, now.metric),
        metric: now.metric.clone(),
        then: then.median,
        now: now.median,
        times_better,
        noise: spread.max(drift.unwrap_or(0.0)).max(NOISE_MIN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::MachineDescription;
    use crate::params::Params;

    fn rows(figures: &[(&str, &str, u64, &[f64])]) -> RowSet {
        let mut rows = RowSet::default();
        for (target, metric, bytes, runs) in figures {
            let params = Params::new().with("bytes", *bytes);
            let row = FigureRow::new(
                "spot",
                "throughput",
                target,
                &params,
                metric,
                Summary::of(runs).unwrap(),
                true,
            );
            rows.push(row).unwrap();
        }
        rows
    }

    fn stored_run(rows: RowSet) -> StoredRun {
        StoredRun {
            name: "spot".into(),
            date: "2026-11-20T11:40:02Z".into(),
            machine: MachineDescription::default(),
            commit: "abc".into(),
            command: "dunlin bench spot".into(),
            quick: false,
            debug_build: false,
            warnings: Vec::new(),
            skipped: Vec::new(),
            failed: Vec::new(),
            rows,
        }
    }

    #[test]
    fn rate_drop_beyond_the_spread_is_a_regression() {
        let then = stored_run(rows(&[
            ("dunlin", "msgs_per_s", 64, &[98.0, 100.0]),
            ("dunlin", "p50_ns", 64, &[10.0]),
        ]));
        let now = rows(&[("dunlin", "msgs_per_s", 64, &[79.0, 81.0]), ("dunlin", "p50_ns", 64, &[10.3])]);
        let comparison = RunComparison::of(&now, &then);
        let worse: Vec<&RowComparison> = comparison.rows().iter().filter(|row| row.is_worse()).collect();
        assert_eq!(worse.len(), 1, "{comparison:?}");
        assert!(worse[0].row.ends_with("msgs_per_s"));
        assert!(
            comparison.summary().contains("1 of 2 rows regressed, 0 improved"),
            "{}",
            comparison.summary()
        );
    }

    #[test]
    fn rate_drop_within_a_wide_spread_is_no_regression() {
        let then = stored_run(rows(&[("dunlin", "msgs_per_s", 64, &[70.0, 100.0, 130.0])]));
        let comparison = RunComparison::of(&rows(&[("dunlin", "msgs_per_s", 64, &[80.0])]), &then);
        assert!(!comparison.rows()[0].is_worse());
    }

    #[test]
    fn rate_drop_that_all_peers_share_is_no_regression() {
        let peers = |value: f64| (0..5).map(move |bytes| ("nats", "msgs_per_s", bytes, value));
        let all = |ours: f64, theirs: f64| {
            let mut set = rows(&[("dunlin", "msgs_per_s", 64, &[ours])]);
            for (target, metric, bytes, value) in peers(theirs) {
                rows(&[(target, metric, bytes, &[value])])
                    .iter()
                    .for_each(|row| set.push(row.clone()).unwrap());
            }
            set
        };
        let slow_machine = RunComparison::of(&all(75.0, 70.0), &stored_run(all(100.0, 100.0)));
        assert!(!slow_machine.rows()[0].is_worse(), "{slow_machine:?}");
        let slow_dunlin = RunComparison::of(&all(75.0, 99.0), &stored_run(all(100.0, 100.0)));
        assert!(slow_dunlin.rows()[0].is_worse(), "{slow_dunlin:?}");
    }
}
