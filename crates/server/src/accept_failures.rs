//! Counts a listener's failures to accept connections, and limits how often the log reports these failures. Also finds
//! out why the listeners cannot accept connections; while they cannot, the node is not ready.
//!
//! After a failure, a listener tries again 20 times a second. To keep the log short, each listener writes at most one
//! line in each [`REPORT_INTERVAL_NS`].

use std::io;
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

/// Shortest time between two lines that one listener writes to the log, ns.
const REPORT_INTERVAL_NS: u64 = 10_000_000_000;
/// For this time after a failure, ns, the node counts as not ready. The time is longer than the pause between two
/// attempts, so the node stays not ready while a listener continues to fail.
const RECENT_NS: u64 = 1_000_000_000;

/// Counts one listener's failures since its last line in the log.
#[derive(Debug, Default)]
pub(crate) struct AcceptFailures {
    unreported: u64,
    /// Time at which the listener last wrote a line to the log, ns.
    reported_ns: Option<u64>,
}

impl AcceptFailures {
    /// Counts a failure. If the listener may write a line to the log now, returns the number of failures since its last
    /// line.
    pub(crate) fn count(&mut self, now_ns: u64) -> Option<u64> {
        self.unreported += 1;
        if self.reported_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < REPORT_INTERVAL_NS) {
            return None;
        }
        self.reported_ns = Some(now_ns);
        Some(std::mem::take(&mut self.unreported))
    }
}

/// Whether a server's listeners can accept connections.
#[derive(Debug, Default)]
pub(crate) struct AcceptStatus {
    /// Time of the last failure of any listener, ns, and its error.
    last_failure: Mutex<Option<(u64, String)>>,
}

impl AcceptStatus {
    pub(crate) fn record_failure(&self, error: &io::Error, now_ns: u64) {
        *self.last_failure.lock().unwrap_or_else(PoisonError::into_inner) = Some((now_ns, error.to_string()));
    }

    /// Why the listeners cannot accept connections: a listener has failed to accept one within the last second, or the
    /// process has no free file descriptor. `None` if the listeners can accept connections.
    pub(crate) fn obstacle(&self, now_ns: u64) -> Option<String> {
        let last = self.last_failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let recent = last.filter(|(at_ns, _)| now_ns.saturating_sub(*at_ns) < RECENT_NS);
        let error = match recent {
            Some((_, error)) => error,
            // Creates an event descriptor and closes it at once, to find out whether a file descriptor is free.
            None => eventfd(0, EventfdFlags::CLOEXEC).err()?.to_string(),
        };
        Some(format!("the node cannot accept connections: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn accept_failures_are_counted_in_one_log_line_per_interval() {
        let mut failures = AcceptFailures::default();
        let lines: Vec<u64> = (0..400).filter_map(|attempt| failures.count(attempt * 50 * MS)).collect();
        assert_eq!(lines, [1, 200], "400 failures in 20 s");
        assert_eq!(failures.count(60_000 * MS), Some(200));
    }

    #[test]
    fn accept_failure_is_reported_for_at_most_one_second() {
        let status = AcceptStatus::default();
        assert_eq!(status.obstacle(5_000 * MS), None);
        status.record_failure(&io::Error::other("no buffer space"), 5_000 * MS);
        let obstacle = status.obstacle(5_050 * MS);
        assert_eq!(obstacle.as_deref(), Some("the node cannot accept connections: no buffer space"));
        assert_eq!(status.obstacle(6_000 * MS), None);
    }
}
