//! A schedule for a source of records: at which times the source has to publish the records of its instruments. The
//! caller passes the current time.
//!
//! Record k of an instrument with r records a second is due k ÷ r seconds after the start, plus a fixed part of 1 ÷ r
//! seconds. This part differs between instruments with the same rate, so that they alternate. A delay does not move the
//! schedule: a source that is late publishes its overdue records immediately, each with its intended time, and
//! [`Lateness`] counts the delay. If a latency is measured from the intended time, it therefore includes the source's
//! own delay (no coordinated omission).
//!
//! Invariants:
//! - The order of the records and their intended times depend only on the start and the rates.
//! - However long the schedule runs, intended times are exact, rounded down to nanoseconds. They never decrease.
//! - In the first s seconds (the end excluded), an instrument with r records a second has at least ⌊r × s⌋ and at most
//!   ⌈r × s⌉ records.
//!
//! The schedule does not wait; the caller's thread does. [`FeedSchedule::next_action`] advises to sleep until shortly
//! before the next record and then to spin, because a sleeping thread wakes late by tens of microseconds. If records
//! follow each other so fast that the source would spin all the time, it would take a core from the subscribers. In
//! this case, the schedule advises to sleep for [`DENSE_SLEEP_NS`], and then to publish the records that are due.

mod lane;
mod lateness;

use lane::InstrumentLane;
pub use lateness::Lateness;

/// Default for [`FeedSchedule::with_spin_ns`]: a source's sleep ends this many ns before the next record. This is the
/// time in which Linux wakes a thread, with a margin.
pub const SPIN_NS_DEFAULT: u64 = 30_000;
/// Length of a sleep, in ns, when the mean time between records is shorter than the time for which the source would
/// spin before each record.
pub const DENSE_SLEEP_NS: u64 = 50_000;
/// The mean time between records is a moving average, in which the newest interval has the weight 1 ÷ `GAPS_IN_MEAN`.
const GAPS_IN_MEAN: u64 = 16;
const GAP_NS_MAX: u64 = 1_000_000_000;
/// Default for [`FeedSchedule::with_late_after_ns`]: a record with a longer delay, in ns, counts as late.
pub const LATE_NS_DEFAULT: u64 = 1_000_000;

/// The schedule by which a source publishes: when the next record of each instrument is due.
#[derive(Debug, Clone)]
pub struct FeedSchedule {
    lanes: Vec<InstrumentLane>,
    /// Index of the lane whose record is due first. A lane has all instruments with the same rate.
    next: usize,
    /// Intended time of the record that was taken last.
    last_ns: u64,
    /// Moving average of the time between two records.
    gap_ns: u64,
    spin_ns: u64,
    lateness: Lateness,
}

/// A record that is due: its instrument and its intended time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueRecord {
    /// Intended time of the record in ns. This is also the record's event time.
    pub at_ns: u64,
    /// Number of the instrument, from 0.
    pub instrument: usize,
}

/// The next action of a source: publish, spin, or sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleAction {
    /// A record is due: call [`FeedSchedule::take`] and publish the record.
    Emit,
    /// The next record is due too soon for a sleep: call [`FeedSchedule::next_action`] again immediately.
    Spin,
    /// The next record is due later: sleep, then call [`FeedSchedule::next_action`] again.
    Sleep {
        /// Time at which the sleep must end, ns.
        until_ns: u64,
    },
}

impl FeedSchedule {
    /// Creates a schedule that begins at `start_ns`. `rates` has, for each instrument, its number of records a second.
    /// An instrument with rate 0 has no records.
    pub fn new(start_ns: u64, rates: impl IntoIterator<Item = u32>) -> FeedSchedule {
        let mut lanes: Vec<InstrumentLane> = Vec::new();
        for (instrument, rate) in rates.into_iter().enumerate().filter(|(_, rate)| *rate > 0) {
            match lanes.iter_mut().find(|lane| lane.rate() == rate) {
                Some(lane) => lane.push(instrument),
                None => lanes.push(InstrumentLane::new(start_ns, rate, instrument)),
            }
        }
        let mut schedule = FeedSchedule {
            lanes,
            next: 0,
            last_ns: start_ns,
            gap_ns: GAP_NS_MAX,
            spin_ns: SPIN_NS_DEFAULT,
            lateness: Lateness::new(LATE_NS_DEFAULT),
        };
        schedule.find_next();
        schedule
    }

    /// Sets for how long the source spins before each record, in ns. If the mean time between records is not longer
    /// than `spin_ns`, the source would spin all the time, so it sleeps instead. With 0, the source never spins; with
    /// `u64::MAX`, it always spins.
    pub fn with_spin_ns(mut self, spin_ns: u64) -> FeedSchedule {
        self.spin_ns = spin_ns;
        self
    }

    /// Sets the delay, in ns, above which a record counts as late.
    pub fn with_late_after_ns(mut self, late_ns: u64) -> FeedSchedule {
        self.lateness = Lateness::new(late_ns);
        self
    }

    /// Returns the next record, whether it is due or not; `None` if no instrument has a rate above 0.
    #[inline]
    pub fn peek(&self) -> Option<DueRecord> {
        self.lanes.get(self.next).map(InstrumentLane::next)
    }

    /// Returns what the source has to do at the time `now_ns`. If no instrument has a rate above 0, the source sleeps
    /// for ever.
    #[inline]
    pub fn next_action(&self, now_ns: u64) -> ScheduleAction {
        let Some(next) = self.peek() else { return ScheduleAction::Sleep { until_ns: u64::MAX } };
        match next.at_ns {
            at if at <= now_ns => ScheduleAction::Emit,
            at if at - now_ns > self.spin_ns => ScheduleAction::Sleep { until_ns: at - self.spin_ns },
            _ if self.is_dense() => ScheduleAction::Sleep { until_ns: now_ns + DENSE_SLEEP_NS },
            _ => ScheduleAction::Spin,
        }
    }

    /// Returns the next record if it is due at the time `now_ns`, removes it from the schedule, and counts its delay.
    #[inline]
    pub fn take(&mut self, now_ns: u64) -> Option<DueRecord> {
        let next = self.peek().filter(|next| next.at_ns <= now_ns)?;
        self.lateness.record(now_ns - next.at_ns);
        self.gap_ns = (GAPS_IN_MEAN - 1) * self.gap_ns.min(GAP_NS_MAX) / GAPS_IN_MEAN
            + (next.at_ns - self.last_ns) / GAPS_IN_MEAN;
        self.last_ns = next.at_ns;
        self.lanes[self.next].step();
        if self.lanes.len() > 1 {
            self.find_next();
        }
        Some(next)
    }

    /// Whether records follow each other so closely that a source would hardly ever sleep.
    fn is_dense(&self) -> bool {
        self.gap_ns <= self.spin_ns && self.spin_ns < u64::MAX
    }

    /// Number of records that are due at `now_ns` or earlier and have not been taken yet.
    pub fn due(&self, now_ns: u64) -> u64 {
        self.lanes.iter().map(|lane| lane.scheduled_by(now_ns).saturating_sub(lane.taken())).sum()
    }

    /// Number of records whose intended time is `now_ns` or earlier, whether they were taken or not.
    pub fn scheduled_by(&self, now_ns: u64) -> u64 {
        self.lanes.iter().map(|lane| lane.scheduled_by(now_ns)).sum()
    }

    /// The delays of the records taken so far.
    pub fn lateness(&self) -> &Lateness {
        &self.lateness
    }

    /// Finds the lane whose record is due next. If several lanes have a record at the same time, the first of these
    /// lanes is next.
    #[inline]
    fn find_next(&mut self) {
        let times = self.lanes.iter().map(|lane| lane.next().at_ns).enumerate();
        self.next = times.min_by_key(|(_, at_ns)| *at_ns).map_or(0, |(lane, _)| lane);
    }
}
