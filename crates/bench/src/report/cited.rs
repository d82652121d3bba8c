//! The runs a chapter speaks of, numbered in the order in which they are first cited.

use std::fmt::Write as _;

use crate::store::KeptRun;

/// The runs of one chapter, oldest first, and which of them were cited.
pub struct Cited<'a> {
    runs: &'a [&'a KeptRun],
    cited: Vec<usize>,
}

impl<'a> Cited<'a> {
    /// None cited yet.
    pub fn new(runs: &'a [&'a KeptRun]) -> Self {
        Self { runs, cited: Vec::new() }
    }

    /// What the newest run says that can say it well, else what the newest run says that says anything.
    pub fn newest<T>(
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

    /// Cites the run at this place: its number on the page.
    pub fn cite(&mut self, nth: usize) -> String {
        let place = self.cited.iter().position(|cited| *cited == nth).unwrap_or_else(|| {
            self.cited.push(nth);
            self.cited.len() - 1
        });
        (place + 1).to_string()
    }

    /// The list of those cited, with all that must be known of them.
    pub fn write(&self, page: &mut String) {
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
