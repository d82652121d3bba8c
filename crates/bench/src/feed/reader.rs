//! A subscriber of a scenario. The subscriber keeps replicas of the order books, and checks and times every update.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use dunlin::now_ns;
use dunlin::topic::{LogName, Reducer, Subscribe, SubscribeError};
use dunlin_feed::{Book, ChangeCause, Instruments, Replica, ReplicaFault, ReplicaReport, StateChange};

use crate::feed::scenario::{FeedScenario, MeasuringWindow};
use crate::feed::source::InstrumentTotals;
use crate::feed::tally::DeliveryTally;

/// The totals of the published records of each instrument. The publisher sets these totals when it has published all
/// records; the subscribers read them.
pub type PublishedTotals = Arc<OnceLock<Vec<InstrumentTotals>>>;

/// The most changes that one call of `read` applies.
const BATCH_MAX: usize = 256;

/// A subscriber that keeps replicas of order books, and checks and times every update.
#[derive(Debug)]
pub struct FeedSubscriber<S> {
    replica: Replica<Book, S>,
    /// How long a slow subscriber sleeps after each read; `None` for a subscriber that does not sleep.
    delay: Option<Duration>,
    stats: ReaderStats,
}

#[derive(Debug)]
struct ReaderStats {
    window: MeasuringWindow,
    /// The time between two updates of a topic, in ns, by topic.
    intervals: HashMap<String, u64>,
    tally: DeliveryTally,
    /// Whether the subscriber sleeps after each read, in order to be slow.
    is_slow: bool,
    /// For each change in the current read: the due time of the change's oldest update, in ns. The ages of these
    /// updates are recorded when the sleep after the read has ended.
    read: Vec<u64>,
    /// The time at which the current read began, in ns. Only set for a slow subscriber.
    start_ns: u64,
    /// How long the previous read took, including the sleep after that read, in ns.
    previous_ns: Option<u64>,
    /// The topics with a loss that is being repaired. The value is the sequence number with which the repair is
    /// complete.
    repaired_to: HashMap<String, u64>,
}

impl<S: Subscribe> FeedSubscriber<S> {
    /// Creates a subscriber for the scenario. The new subscriber gets its records from `subscriber`.
    pub fn new(subscriber: S, scenario: &FeedScenario, instruments: &Instruments) -> Self {
        let interval = |rate: u32| 1_000_000_000 / u64::from(rate.max(1));
        let each = instruments.list().iter();
        let intervals =
            each.map(|instrument| (instrument.topic(), interval(instrument.updates_per_sec))).collect();
        Self {
            replica: Replica::new(subscriber, |_| Book::new(dunlin_feed::Scale::default())),
            delay: scenario.delay,
            stats: ReaderStats {
                window: MeasuringWindow::NEVER,
                intervals,
                tally: DeliveryTally::default(),
                is_slow: scenario.delay.is_some(),
                read: Vec::new(),
                start_ns: 0,
                previous_ns: None,
                repaired_to: HashMap::new(),
            },
        }
    }

    /// Sets the window. Updates that are due in the window count; updates that are due outside do not count.
    pub fn set_window(&mut self, window: MeasuringWindow) {
        self.stats.window = window;
    }

    /// Applies events that have arrived: at most `BATCH_MAX`, or only one if the subscriber is slow. Returns the number
    /// of applied events.
    pub fn read(&mut self) -> Result<usize> {
        let limit = if self.delay.is_some() { 1 } else { BATCH_MAX };
        let stats = &mut self.stats;
        stats.start_ns = if stats.is_slow { now_ns() } else { 0 };
        let read = self.replica.drain(now_ns(), limit, |report| stats.handle_report(&report))?;
        if read > 0
            && let Some(delay) = self.delay
        {
            thread::sleep(delay);
            self.stats.record_ages();
        }
        Ok(read)
    }

    /// Waits at most `longest` for an event. Returns `false` if no event arrives in this time.
    pub fn wait(&mut self, longest: Duration) -> Result<bool, SubscribeError> {
        self.replica.wait(Some(longest))
    }

    /// Returns the underlying subscriber, from which this reader's replica gets its records.
    pub fn subscriber(&mut self) -> &mut S {
        self.replica.subscriber()
    }

    /// Whether a book is incomplete. In this case, the caller must call `read` again soon, even if no event arrives:
    /// `read` repeats the request for the missing records.
    pub fn is_pending(&self) -> bool {
        !self.replica.is_whole()
    }

    /// Returns the number of changes applied so far.
    pub fn applied(&self) -> u64 {
        self.stats.tally.applied
    }

    /// Whether each book contains its last published record.
    pub fn has_read_all(&self, totals: &PublishedTotals) -> bool {
        let Some(lines) = totals.get() else { return false };
        let expected = lines.iter().filter(|line| self.stats.intervals.contains_key(&line.topic)).count();
        let of = |log: &LogName| lines.iter().find(|line| line.topic == log.topic);
        let has_reached_end = |(log, at, _): (&Arc<LogName>, dunlin::topic::Position, &Book)| {
            of(log).is_some_and(|line| at.seq >= line.last_seq)
        };
        self.replica.states().filter(|state| has_reached_end((state.0, state.1, state.2))).count() >= expected
    }

    /// Compares the books with the books of the topics' owner. Returns the results of this subscriber.
    pub fn finish(self, totals: &PublishedTotals) -> Result<DeliveryTally> {
        let lines = totals.get().context("the publisher did not report how many records it published")?;
        let mut tally = self.stats.tally;
        let counts = self.replica.counts();
        for (log, _, book) in self.replica.states() {
            let line = lines.iter().find(|line| line.topic == log.topic);
            tally.divergent += u64::from(line.is_none_or(|line| line.checksum != book.checksum()));
        }
        tally.holes = counts.holes;
        tally.gaps = counts.gaps;
        tally.resyncs = counts.resyncs + counts.snapshots.saturating_sub(lines.len() as u64);
        tally.healed = counts.gaps_healed;
        tally.divergent += counts.divergent;
        tally.errors = counts.refused;
        tally.checked = counts.checked;
        Ok(tally)
    }
}

impl ReaderStats {
    #[inline]
    fn handle_report(&mut self, report: &ReplicaReport<'_, Book>) {
        let change = match report {
            ReplicaReport::Changed(change) => change,
            ReplicaReport::Fault { log, fault: ReplicaFault::Hole { last, .. } } => {
                // The subscriber noticed the loss at a later update, `last + 1`. The owner sends this update again
                // after the lost ones, so the repair is complete after update `last + 1`.
                self.repaired_to.insert(log.topic.clone(), last + 1);
                return;
            }
            _ => return,
        };
        self.tally.applied += 1;
        let repairs = !self.repaired_to.is_empty() && self.repairs(change);
        let Some(due_ns) = change.event_time_ns() else { return };
        if !self.window.counts(due_ns) {
            return;
        }
        match change.cause {
            ChangeCause::Record(frame) => {
                let now = now_ns();
                self.tally.record_delivery(now);
                let sent_ns = now.saturating_sub(frame.append_time_ns());
                self.tally.sent.record(sent_ns);
                if !repairs {
                    self.tally.direct.record(sent_ns);
                }
                self.tally.intended.record(now.saturating_sub(due_ns));
            }
            ChangeCause::Merged(_) => self.tally.merged += change.to.seq - change.from.seq,
            ChangeCause::Snapshot => return,
        }
        if self.is_slow {
            let oldest = self.oldest_due(change, due_ns);
            self.read.push(oldest);
        }
    }

    /// Returns the due time of the oldest update in a change. `due_ns` is the due time of the newest update.
    fn oldest_due(&self, change: &StateChange<'_, Book>, due_ns: u64) -> u64 {
        let more = (change.to.seq - change.from.seq).saturating_sub(1);
        let interval = self.intervals.get(&change.log.topic).copied().unwrap_or_default();
        due_ns.saturating_sub(more * interval)
    }

    /// Whether a change belongs to the repair of a loss.
    #[cold]
    fn repairs(&mut self, change: &StateChange<'_, Book>) -> bool {
        let Some(&to) = self.repaired_to.get(&change.log.topic) else { return false };
        if change.to.seq >= to {
            self.repaired_to.remove(&change.log.topic);
        }
        change.to.seq <= to
    }

    /// Records the ages of the changes in the current read. Must be called after the sleep that follows the read.
    fn record_ages(&mut self) {
        let now = now_ns();
        let elapsed_ns = now.saturating_sub(self.start_ns);
        let previous_ns = self.previous_ns.replace(elapsed_ns);
        for due_ns in self.read.drain(..) {
            let stale_ns = now.saturating_sub(due_ns);
            self.tally.stale.record(stale_ns);
            if let Some(previous_ns) = previous_ns {
                self.tally.stale_by_processing.record(stale_ns * 2_000 / (elapsed_ns + previous_ns).max(1));
            }
        }
    }
}
