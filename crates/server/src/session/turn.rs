//! Limits the work that a session does in one turn. A turn is one poll of the session's task. After a turn, the other
//! sessions of the thread run, and then the session continues with the work that is left.
//!
//! Work is counted in units. A unit takes about 40 ns, so a turn takes about 20 µs, unless a single piece of work takes
//! longer. Without this limit, a client that sends many commands, or that subscribes to many logs, would delay all other
//! clients of its thread.
//!
//! Invariant: a session whose work is spent is polled again without waiting, so no work is left undone.

use dunlin::{LogSearch, LogsToRead, Node, SelectedLogs};

/// Work that a session may do in one turn, in units.
pub(crate) const WORK_PER_TURN: usize = 512;
/// Work of a command that creates or ends something, such as a subscription or a topic, and of opening or closing a log.
pub(crate) const COMMAND_WORK: usize = 8;
/// Number of topics that a session examines at once when it searches for the logs of a subscription.
pub(crate) const SEARCHED_TOPICS: usize = 512;
/// Number of logs that a session opens or closes, or of topics that it describes, in one turn.
pub(crate) const LOGS_PER_TURN: usize = WORK_PER_TURN / COMMAND_WORK;
/// Number of channels that a session may examine for each write, even if its turn's work is spent. Thus, other work,
/// such as a subscription to many logs, does not keep the session from delivering records. A turn opens no more
/// channels than this, so that channels do not enter the queue faster than they are examined.
pub(crate) const CHANNELS_PER_WRITE_MIN: usize = LOGS_PER_TURN;
/// Number of topics, subscriptions or channels whose examination is one unit of work.
const SCANNED_PER_UNIT: usize = 4;
/// Of a scan that is repeated in every turn, at most this many items are counted: an eighth of a turn's work.
const REPEATED_SCAN_MAX: usize = SCANNED_PER_UNIT * WORK_PER_TURN / 8;

/// The work that a session has done in its present turn. A TCP or NATS session has one counter for its client's commands
/// and one for deliveries, so that neither prevents the other.
#[derive(Debug, Default)]
pub(crate) struct TurnWork {
    units: usize,
}

impl TurnWork {
    /// Begins a turn.
    pub(crate) fn begin(&mut self) {
        self.units = 0;
    }

    #[inline]
    pub(crate) fn add(&mut self, units: usize) {
        self.units = self.units.saturating_add(units);
    }

    /// Counts the examination of this many topics, subscriptions or channels.
    pub(crate) fn add_scan(&mut self, scanned: usize) {
        self.add(scanned / SCANNED_PER_UNIT);
    }

    /// Like [`add_scan`](TurnWork::add_scan), for a scan that is repeated in every turn. Counts only a part of a large
    /// scan: otherwise, the scan alone would spend each turn, and the turn's other work would never be done.
    pub(crate) fn add_repeated_scan(&mut self, scanned: usize) {
        self.add_scan(scanned.min(REPEATED_SCAN_MAX));
    }

    /// Counts the beginning of a search for the logs of a subscription.
    pub(crate) fn add_search(&mut self, logs: &LogsToRead, rest: Option<&LogSearch>) {
        // A search that is continued later has examined some topics already.
        self.add_scan(logs.len() + rest.map_or(0, |_| 2 * SEARCHED_TOPICS));
    }

    /// Ends the turn: the session does no more of this work before its next turn.
    pub(crate) fn spend(&mut self) {
        self.units = self.units.max(WORK_PER_TURN);
    }

    /// Whether the rest of the work must wait for the next turn.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.units >= WORK_PER_TURN
    }
}

/// Lets the other sessions of the thread run. For loops over many logs or topics: called with the number of rounds that
/// the loop has made.
pub(crate) async fn pause_after(rounds: usize) {
    if rounds % LOGS_PER_TURN == LOGS_PER_TURN - 1 {
        tokio::task::yield_now().await;
    }
}

/// Completes the search for the existing logs of a subscription, in parts between which the thread's other sessions run.
/// Ends early if there are more than `logs_max` logs.
pub(crate) async fn find_logs(node: &Node, selected: &mut SelectedLogs, logs_max: usize) {
    while let Some(search) = &mut selected.search
        && selected.logs.len() <= logs_max
    {
        match node.search_logs(search, SEARCHED_TOPICS) {
            Some(found) => selected.logs.extend(found),
            None => selected.search = None,
        }
        tokio::task::yield_now().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_turn_ends_when_its_work_limit_is_reached() {
        let mut work = TurnWork::default();
        (1..WORK_PER_TURN).for_each(|_| work.add(1));
        assert!(!work.is_spent());
        work.add(1);
        assert!(work.is_spent());
        work.begin();
        work.add_scan(SCANNED_PER_UNIT * WORK_PER_TURN - 1);
        assert!(!work.is_spent());
        work.add(1);
        assert!(work.is_spent());
        work.begin();
        (0..7).for_each(|_| work.add_repeated_scan(usize::MAX));
        assert!(!work.is_spent(), "a scan that is repeated in every turn leaves room for other work");
    }
}
