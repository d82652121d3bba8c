//! Measures how late a source takes its records from its schedule.

use std::fmt;

/// The number of records that a source took from its schedule, how many of these were late, and how large the delays
/// were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lateness {
    /// Delay above which a record counts as late, ns.
    pub late_after_ns: u64,
    /// Number of records that were taken.
    pub taken: u64,
    /// Number of late records.
    pub late: u64,
    /// Number of late records that do not directly follow another late record. Each of them begins a period of
    /// lateness.
    pub episodes: u64,
    /// Longest delay, ns.
    pub worst_ns: u64,
    /// Sum of all delays, ns.
    pub total_ns: u64,
    last_was_late: bool,
}

impl Lateness {
    pub(super) fn new(late_after_ns: u64) -> Lateness {
        Lateness {
            late_after_ns,
            taken: 0,
            late: 0,
            episodes: 0,
            worst_ns: 0,
            total_ns: 0,
            last_was_late: false,
        }
    }

    #[inline(always)]
    pub(super) fn record(&mut self, late_ns: u64) {
        let late = late_ns > self.late_after_ns;
        self.taken += 1;
        self.late += u64::from(late);
        self.episodes += u64::from(late && !self.last_was_late);
        self.worst_ns = self.worst_ns.max(late_ns);
        self.total_ns = self.total_ns.saturating_add(late_ns);
        self.last_was_late = late;
    }

    /// Mean delay of all records, ns.
    pub fn mean_ns(&self) -> u64 {
        self.total_ns.checked_div(self.taken).unwrap_or(0)
    }
}

impl fmt::Display for Lateness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lateness { taken, late, episodes, worst_ns, .. } = self;
        let limit_ms = self.late_after_ns as f64 / 1e6;
        if *late == 0 {
            return write!(f, "on schedule: none of {taken} records later than {limit_ms} ms");
        }
        write!(
            f,
            "the source slipped {episodes} times: {late} of {taken} records later than {limit_ms} ms, \
             the worst by {:.1} ms",
            *worst_ns as f64 / 1e6
        )
    }
}
