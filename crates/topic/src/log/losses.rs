//! Counts and reports the records that logs have lost. A lost record counts once for each log, however many subscribers
//! miss it.
//!
//! Limits: [`RANGES_MAX`] ranges of lost records for each log, and [`REPORTS_MAX`] reports for each node that wait to be
//! taken. Counters have no limit.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::event::{Gap, LogName, Position};
use crate::log::Log;

/// The maximum number of separate ranges that a log remembers as lost. Beyond it, the two oldest ranges are joined.
const RANGES_MAX: usize = 64;
/// The maximum number of reports that wait to be taken, one for each log, cause and epoch.
const REPORTS_MAX: usize = 1_024;

/// The reason why a log has lost records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LossCause {
    /// Files of a durable topic are damaged, missing or unreadable.
    Damaged,
    /// An epoch has ended without its last records: a node with records in memory only has restarted or failed.
    Restart,
    /// The owner of the topic, which is another node, could not send these records to this node.
    Mirror,
    /// The log has dropped the records before a subscriber read them.
    Overwritten,
}

impl LossCause {
    /// All causes.
    pub const ALL: [LossCause; 4] =
        [LossCause::Damaged, LossCause::Restart, LossCause::Mirror, LossCause::Overwritten];

    /// The cause's name in metrics and in the node's log.
    pub fn name(self) -> &'static str {
        match self {
            LossCause::Damaged => "damaged",
            LossCause::Restart => "restart",
            LossCause::Mirror => "mirror",
            LossCause::Overwritten => "overwritten",
        }
    }
}

/// Records that a log has lost for the same reason. If several ranges were lost, `first` and `last` enclose all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LossReport {
    /// The log.
    pub log: Arc<LogName>,
    /// The reason of the loss.
    pub cause: LossCause,
    /// The first lost record.
    pub first: Position,
    /// Sequence number of the last lost record; `None` if it is unknown.
    pub last: Option<u64>,
    /// Number of lost records, as far as it is known.
    pub records: u64,
    /// Number of ranges of lost records.
    pub ranges: u64,
}

impl LossReport {
    /// Adds a later report about the same log, cause and epoch.
    pub fn add(&mut self, other: &LossReport) {
        self.first = self.first.min(other.first);
        self.last = self.last.zip(other.last).map(|(one, other)| one.max(other));
        self.records += other.records;
        self.ranges += other.ranges;
    }
}

/// The number of losses and of lost records with one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossTotals {
    /// The reason of the losses.
    pub cause: LossCause,
    /// Number of ranges of lost records.
    pub ranges: u64,
    /// Number of lost records, as far as it is known.
    pub records: u64,
}

/// The losses of all logs of a node: counters, and reports for the operator's log.
#[derive(Debug, Default)]
pub struct LossReports {
    /// For each cause, in the order of [`LossCause::ALL`]: the numbers of ranges and of records.
    totals: [(AtomicU64, AtomicU64); LossCause::ALL.len()],
    /// The reports that wait to be taken, by the log's number, the cause and the epoch.
    reports: Mutex<HashMap<(u64, LossCause, u32), LossReport>>,
}

impl LossReports {
    fn add(&self, log: u64, report: LossReport) {
        let (ranges, records) = &self.totals[report.cause as usize];
        ranges.fetch_add(report.ranges, Ordering::Relaxed);
        records.fetch_add(report.records, Ordering::Relaxed);
        let mut reports = lock(&self.reports);
        let key = (log, report.cause, report.first.epoch);
        let has_room = reports.len() < REPORTS_MAX;
        match reports.get_mut(&key) {
            Some(earlier) => earlier.add(&report),
            None if has_room => drop(reports.insert(key, report)),
            None => {}
        }
    }

    /// The counters, one entry for each cause.
    pub fn totals(&self) -> [LossTotals; LossCause::ALL.len()] {
        LossCause::ALL.map(|cause| {
            let (ranges, records) = &self.totals[cause as usize];
            let (ranges, records) = (ranges.load(Ordering::Relaxed), records.load(Ordering::Relaxed));
            LossTotals { cause, ranges, records }
        })
    }

    /// Takes the reports since the last call, sorted by topic, partition and position. If very many logs lose records
    /// between two calls, some reports are missing, but [`totals`](LossReports::totals) counts all losses.
    pub fn take(&self) -> Vec<LossReport> {
        let mut taken: Vec<LossReport> = std::mem::take(&mut *lock(&self.reports)).into_values().collect();
        taken.sort_by(|one, other| {
            let key = |report: &LossReport| (report.log.partition, report.first);
            one.log.topic.cmp(&other.log.topic).then_with(|| key(one).cmp(&key(other)))
        });
        taken
    }
}

/// The lost records of one log. A log shares them with its private mirrors.
#[derive(Debug, Default)]
pub(crate) struct LogLosses(Mutex<LostRanges>);

#[derive(Debug, Default)]
struct LostRanges {
    /// Disjoint ranges that were counted, in ascending order: the epoch, and the first and last sequence number. The
    /// last sequence number is `u64::MAX` if the end is unknown.
    counted: Vec<(u32, u64, u64)>,
    /// Reports from the time before the log was connected to the node's [`LossReports`], one for each cause and epoch.
    unreported: Vec<LossReport>,
}

impl LostRanges {
    /// Adds the records from `first` to `last` of an epoch. Returns the parts that were not counted before.
    fn add(&mut self, epoch: u32, first: u64, last: u64) -> Vec<(u64, u64)> {
        let (mut begin, mut end, mut fresh) = (first, last, Vec::new());
        // The first record that no earlier range contains; `None` if the earlier ranges reach to the highest number.
        let mut next = Some(first);
        self.counted.retain(|&(of_epoch, counted_first, counted_last)| {
            let touches = of_epoch == epoch
                && counted_first <= last.saturating_add(1)
                && first <= counted_last.saturating_add(1);
            if !touches {
                return true;
            }
            if let Some(uncounted) = next.filter(|&uncounted| uncounted < counted_first && uncounted <= last)
            {
                fresh.push((uncounted, last.min(counted_first - 1)));
            }
            next = next.and_then(|next| counted_last.checked_add(1).map(|after| after.max(next)));
            (begin, end) = (begin.min(counted_first), end.max(counted_last));
            false
        });
        fresh.extend(next.filter(|&next| next <= last).map(|next| (next, last)));
        let at = self.counted.partition_point(|&(of_epoch, first, _)| (of_epoch, first) < (epoch, begin));
        self.counted.insert(at, (epoch, begin, end));
        if self.counted.len() > RANGES_MAX {
            let (epoch, first, _) = self.counted.remove(0);
            self.counted
                .iter_mut()
                .take(1)
                .filter(|second| second.0 == epoch)
                .for_each(|second| second.1 = first);
        }
        fresh
    }

    fn keep_unreported(&mut self, report: LossReport) {
        let key = |report: &LossReport| (report.cause, report.first.epoch);
        match self.unreported.iter().position(|earlier| key(earlier) == key(&report)) {
            Some(at) => self.unreported[at].add(&report),
            None if self.unreported.len() < RANGES_MAX => self.unreported.push(report),
            None => {}
        }
    }
}

impl Log {
    /// Connects the log to the node's counters and reports of losses. Only the first call has an effect.
    pub(crate) fn report_losses_to(&self, reports: &Arc<LossReports>) {
        if self.loss_reports.set(Arc::clone(reports)).is_err() {
            return;
        }
        if let Some(losses) = self.lost.get() {
            let earlier = std::mem::take(&mut lock(&losses.0).unreported);
            earlier.into_iter().for_each(|report| reports.add(self.number, report));
        }
    }

    /// Makes this log, a private mirror, count losses together with the log `of`.
    pub(in crate::log) fn share_losses_of(&mut self, of: &Log) {
        self.lost = OnceLock::from(Arc::clone(of.lost.get_or_init(Arc::default)));
        if let Some(reports) = of.loss_reports.get() {
            self.loss_reports = OnceLock::from(Arc::clone(reports));
        }
    }

    /// Counts and reports the records from `first` to `last` as lost, as far as they were not counted before. `None`
    /// for `last` means that the end is unknown. The caller must not hold the log's lock.
    pub fn record_loss(&self, cause: LossCause, first: Position, last: Option<u64>) {
        let last = last.or_else(|| self.last_stored_of(first));
        self.record_known_loss(cause, first, last);
    }

    /// Like [`record_loss`](Log::record_loss), but does not take the log's lock.
    pub(in crate::log) fn record_known_loss(&self, cause: LossCause, first: Position, last: Option<u64>) {
        if last.is_some_and(|last| last < first.seq) {
            return;
        }
        let losses = self.lost.get_or_init(Arc::default);
        let mut ranges = lock(&losses.0);
        let fresh = ranges.add(first.epoch, first.seq, last.unwrap_or(u64::MAX));
        let (Some(&(begin, _)), Some(&(_, end))) = (fresh.first(), fresh.last()) else { return };
        let is_end_known = end < u64::MAX;
        let known = fresh.iter().filter(|(_, last)| *last < u64::MAX);
        let report = LossReport {
            log: Arc::clone(&self.name),
            cause,
            first: Position { seq: begin, ..first },
            last: is_end_known.then_some(end),
            records: known.map(|(first, last)| last - first + 1).sum(),
            ranges: fresh.len() as u64,
        };
        match self.loss_reports.get() {
            Some(reports) => {
                drop(ranges);
                reports.add(self.number, report);
            }
            None => ranges.keep_unreported(report),
        }
    }

    /// Counts a gap that a subscriber received.
    #[cold]
    pub(crate) fn count_gap(&self, gap: &Gap) {
        let lost_through = {
            let mut state = self.lock();
            let losses = &mut state.rare().losses;
            losses.gaps += 1;
            losses.records += gap.records();
            // A subscriber may have requested to skip records that the log still has. These are not lost.
            let oldest = state.oldest_seq(&self.config);
            match gap.epoch == state.epoch || self.is_durable {
                true => gap.last.min(oldest.saturating_sub(1)),
                false => gap.last,
            }
        };
        let first = Position { epoch: gap.epoch, seq: gap.first };
        self.record_known_loss(LossCause::Overwritten, first, Some(lost_through));
    }

    /// The last record in the epoch of `first`, if the log is durable and knows the epoch's end.
    fn last_stored_of(&self, first: Position) -> Option<u64> {
        let state = self.lock();
        let stored = state.stored()?;
        match first.epoch == state.epoch {
            true => Some(stored.synced),
            false => stored.end_of(first).map(|(last, _)| last),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_lost_record_is_counted_once() {
        let mut lost = LostRanges::default();
        assert_eq!(lost.add(1, 10, 19), [(10, 19)]);
        assert!(lost.add(1, 10, 19).is_empty());
        assert_eq!(lost.add(1, 5, 24), [(5, 9), (20, 24)]);
        assert_eq!(lost.add(1, 30, 30), [(30, 30)]);
        assert_eq!(lost.add(1, 1, 40), [(1, 4), (25, 29), (31, 40)]);
        assert_eq!(lost.counted, [(1, 1, 40)]);
        assert_eq!(lost.add(2, 1, 40), [(1, 40)], "another epoch has other records");
        assert_eq!(lost.add(1, 41, u64::MAX), [(41, u64::MAX)]);
        assert!(lost.add(1, 20, 90).is_empty());
        assert!(lost.add(1, 50, u64::MAX).is_empty());
    }

    #[test]
    fn oldest_lost_ranges_merge_when_there_are_too_many() {
        let mut lost = LostRanges::default();
        for n in 0..1_000 {
            assert_eq!(lost.add(1, 10 * n, 10 * n), [(10 * n, 10 * n)]);
        }
        assert_eq!(lost.counted.len(), RANGES_MAX);
        assert!(lost.add(1, 15, 15).is_empty(), "old ranges were joined");
    }
}
