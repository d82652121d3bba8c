//! The runs that a chapter of the report cites. The runs are numbered in the order in which the chapter first cites
//! them.

use std::fmt::Write as _;

use crate::store::StoredRun;

/// The stored runs that a chapter may cite, oldest first, and the runs that it has cited.
pub struct CitedRuns<'a> {
    runs: &'a [&'a StoredRun],
    cited: Vec<usize>,
}

impl<'a> CitedRuns<'a> {
    /// Creates a list in which no run is cited yet.
    pub fn new(runs: &'a [&'a StoredRun]) -> Self {
        Self { runs, cited: Vec::new() }
    }

    /// Calls `result_of` for the runs, newest first, until it returns a result for which `is_good` returns `true`. If
    /// no result is good, uses the newest result. Cites the run to which the result belongs. Returns the number of this
    /// run, and the result.
    pub fn newest<T>(
        &mut self,
        result_of: impl Fn(&StoredRun) -> Option<T>,
        is_good: impl Fn(&T) -> bool,
    ) -> Option<(String, T)> {
        let mut second_best = None;
        for (nth, run) in self.runs.iter().enumerate().rev() {
            match result_of(run) {
                Some(result) if is_good(&result) => return Some((self.cite(nth), result)),
                Some(result) if second_best.is_none() => second_best = Some((nth, result)),
                _ => {}
            }
        }
        second_best.map(|(nth, result)| (self.cite(nth), result))
    }

    /// Cites the run with index `nth`. Returns the number that this run has in the report.
    pub fn cite(&mut self, nth: usize) -> String {
        let position = self.cited.iter().position(|cited| *cited == nth).unwrap_or_else(|| {
            self.cited.push(nth);
            self.cited.len() - 1
        });
        (position + 1).to_string()
    }

    /// Writes the list of the cited runs, with their details, to the page.
    pub fn write(&self, page: &mut String) {
        let _ = write!(page, "\n### Runs\n\n");
        for (position, nth) in self.cited.iter().enumerate() {
            let run = self.runs[*nth];
            let _ = writeln!(
                page,
                "{}. {}, commit `{}`, `{}`; {}.",
                position + 1,
                run.date,
                run.commit,
                run.command,
                run.machine
            );
            for (kind, lines) in
                [("warning", &run.warnings), ("skipped", &run.skipped), ("failed", &run.failed)]
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
