//! A schedule of records at absolute times. The caller passes the time.
//!
//! Record k of an instrument with r changes a second is due k ÷ r seconds after the start, plus a fixed fraction of 1 ÷
//! r seconds. Because of this fraction, instruments of the same rate alternate. Delays do not move the schedule. A
//! delayed source sends its overdue records immediately, each with its intended time, and [`Lateness`] counts the
//! delay. Latency from the intended time therefore includes the source's own delay, which avoids coordinated omission.
//!
//! Invariants:
//! - The order of records and their intended times depend on the rates alone.
//! - Times are exact to the nanosecond, rounded down, for any length of run; they never go back.
//! - In the half-open time from the start to s seconds after it, an instrument of rate r has ⌈r × s⌉ records
//!   at most and ⌊r × s⌋ at least.
//!
//! The caller's thread waits. [`FeedSchedule::next_action`] advises to sleep until shortly before the next record and
//! then to spin, because a sleeping thread wakes late by tens of microseconds. If records follow each other too fast
//! for that, the schedule advises to sleep for [`DENSE_SLEEP_NS`] and then to send the due records. A thread that only
//! spins would take a core from the subscribers.

mod lane;
mod lateness;

use lane::InstrumentLane;
pub use lateness::Lateness;

/// Default time from the end of a source's sleep to the next record, ns: Linux' wake-up latency with a margin.
pub const SPIN_NS_DEFAULT: u64 = 30_000;
/// Length of a sleep if the mean time between records is shorter than the time to spin, ns.
pub const DENSE_SLEEP_NS: u64 = 50_000;
/// The weight of a new interval in the mean time between records is 1 ÷ `GAPS_IN_MEAN`.
const GAPS_IN_MEAN: u64 = 16;
const GAP_NS_MAX: u64 = 1_000_000_000;
/// Delay above which a taken record counts as late, by default, ns.
pub const LATE_NS_DEFAULT: u64 = 1_000_000;

/// The schedule of a simulator: when each instrument's next record is due, in order of time.
#[derive(Debug, Clone)]
pub struct FeedSchedule {
    lanes: Vec<InstrumentLane>,
    /// Index of the lane with the next record.
    next: usize,
    /// Intended time of the last record.
    last_ns: u64,
    /// Recent mean time between records.
    gap_ns: u64,
    spin_ns: u64,
    lateness: Lateness,
}

/// A record that is due: its instrument and its intended time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueRecord {
    /// Intended time: the record's event time, ns.
    pub at_ns: u64,
    /// Number of the instrument, from 0.
    pub instrument: usize,
}

/// The next step of a publisher: publish, spin, or sleep until a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleAction {
    /// A record is due: [`FeedSchedule::take`] it.
    Emit,
    /// The next record is too close for a sleep: call again immediately.
    Spin,
    /// The next record is further away: sleep, then call again.
    Sleep {
        /// End of the sleep, ns.
        until_ns: u64,
    },
}

impl FeedSchedule {
    /// Creates a schedule from `start_ns` on, with these rates in records a second. A rate of zero means no
    /// records.
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

    /// Sets how long to spin before each record. If records follow each other faster, the source sleeps instead. With
    /// 0, the source always sleeps; with `u64::MAX`, it always spins.
    pub fn with_spin_ns(mut self, spin_ns: u64) -> FeedSchedule {
        self.spin_ns = spin_ns;
        self
    }

    /// Sets the delay after which a record counts as late.
    pub fn with_late_after_ns(mut self, late_ns: u64) -> FeedSchedule {
        self.lateness = Lateness::new(late_ns);
        self
    }

    /// The next record, due or not; `None` without instruments.
    #[inline]
    pub fn peek(&self) -> Option<DueRecord> {
        self.lanes.get(self.next).map(InstrumentLane::next)
    }

    /// The next step of the source at this time. Without instruments, the source sleeps for ever.
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

    /// Takes the next record if it is due, and counts its delay.
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

    /// Whether records are so dense that a source would hardly ever sleep.
    fn is_dense(&self) -> bool {
        self.gap_ns <= self.spin_ns && self.spin_ns < u64::MAX
    }

    /// Number of records that are due by now, inclusive, and not taken.
    pub fn due(&self, now_ns: u64) -> u64 {
        self.lanes.iter().map(|lane| lane.scheduled_by(now_ns).saturating_sub(lane.taken())).sum()
    }

    /// Number of records intended up to now, inclusive, taken or not.
    pub fn scheduled_by(&self, now_ns: u64) -> u64 {
        self.lanes.iter().map(|lane| lane.scheduled_by(now_ns)).sum()
    }

    /// Delays so far.
    pub fn lateness(&self) -> &Lateness {
        &self.lateness
    }

    /// Finds the lane with the next record. If records of several lanes are due together, the first of these lanes is
    /// next.
    #[inline]
    fn find_next(&mut self) {
        let times = self.lanes.iter().map(|lane| lane.next().at_ns).enumerate();
        self.next = times.min_by_key(|(_, at_ns)| *at_ns).map_or(0, |(lane, _)| lane);
    }
}
