//! When records are due: an absolute schedule, with the time as an argument.
//!
//! Record k of an instrument that changes r times a second is due k ÷ r seconds after the start (and a fixed part of 1 ÷ r,
//! so that instruments of one rate take turns). Nothing that happens moves the schedule: a source that was held up finds
//! its records overdue, sends them at once, each still with the time it was meant for, and [`Slips`] says how late it was.
//! Latency taken from the intended time therefore includes the source's own delay: no coordinated omission.
//!
//! Invariants:
//! - The order of records and their intended times depend on the rates alone.
//! - Times are exact to the nanosecond, rounded down, however long it runs; they never go back.
//! - In the half-open time from the start to s seconds after it, an instrument of rate r has ⌈r × s⌉ records at most and
//!   ⌊r × s⌋ at least.
//!
//! How to wait is for the caller's thread to carry out: [`Schedule::next_action`] advises to sleep until shortly before the
//! next record and to spin for the rest, since a sleeping thread is woken late by tens of microseconds. Where records are
//! so dense that it would never come to sleep, it advises to sleep for a grain and to send what has become due by then: a
//! thread that only spins takes a core from those who are to read.

mod lane;
mod slips;

use lane::Lane;
pub use slips::Slips;

/// How long before a record a sleeper should be up: what Linux takes to wake a thread, with some to spare.
pub const SPIN_NS_DEFAULT: u64 = 30_000;
/// How long to sleep where records are due closer to each other than the time to spin.
pub const GRAIN_NS: u64 = 50_000;
/// The time between two records is known as the mean of about so many, and taken for this at first.
const GAPS: u64 = 16;
const SPARSE_NS: u64 = 1_000_000_000;
/// A record that was taken no later than this is on time.
pub const LATE_NS_DEFAULT: u64 = 1_000_000;

/// The records of many instruments in the order in which they are due.
#[derive(Debug, Clone)]
pub struct Schedule {
    lanes: Vec<Lane>,
    /// The lane whose record is next.
    next: usize,
    /// When the last record that was taken was due, and the time between two of late.
    last_ns: u64,
    gap_ns: u64,
    spin_ns: u64,
    slips: Slips,
}

/// A record that is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The time it is meant for: the record's event time.
    pub at_ns: u64,
    /// Which instrument, counted from 0.
    pub instrument: usize,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A record is due: [`Schedule::take`] it.
    Emit,
    /// The next is due so soon that a sleep would end too late: ask again.
    Spin,
    /// Nothing is due before long: sleep until then, and ask again.
    Sleep {
        /// When to be up.
        until_ns: u64,
    },
}

impl Schedule {
    /// From `start_ns` on, as many records a second of each instrument. A rate of zero is none at all.
    pub fn new(start_ns: u64, rates: impl IntoIterator<Item = u32>) -> Schedule {
        let mut lanes: Vec<Lane> = Vec::new();
        for (instrument, rate) in rates.into_iter().enumerate().filter(|(_, rate)| *rate > 0) {
            match lanes.iter_mut().find(|lane| lane.rate() == rate) {
                Some(lane) => lane.push(instrument),
                None => lanes.push(Lane::new(start_ns, rate, instrument)),
            }
        }
        let mut schedule = Schedule {
            lanes,
            next: 0,
            last_ns: start_ns,
            gap_ns: SPARSE_NS,
            spin_ns: SPIN_NS_DEFAULT,
            slips: Slips::later_than(LATE_NS_DEFAULT),
        };
        schedule.find_next();
        schedule
    }

    /// Advises to spin for this long before a record, unless they are denser than that; 0 to sleep throughout,
    /// `u64::MAX` to spin throughout.
    pub fn spinning(mut self, spin_ns: u64) -> Schedule {
        self.spin_ns = spin_ns;
        self
    }

    /// Counts a record as late when it is taken later than this.
    pub fn late_after(mut self, late_ns: u64) -> Schedule {
        self.slips = Slips::later_than(late_ns);
        self
    }

    /// The next record, due or not. `None` when there is no instrument.
    #[inline]
    pub fn peek(&self) -> Option<Due> {
        self.lanes.get(self.next).map(Lane::next)
    }

    /// What to do at this time. With no instrument: to sleep for ever.
    #[inline]
    pub fn next_action(&self, now_ns: u64) -> Action {
        let Some(next) = self.peek() else { return Action::Sleep { until_ns: u64::MAX } };
        match next.at_ns {
            at if at <= now_ns => Action::Emit,
            at if at - now_ns > self.spin_ns => Action::Sleep { until_ns: at - self.spin_ns },
            _ if self.is_dense() => Action::Sleep { until_ns: now_ns + GRAIN_NS },
            _ => Action::Spin,
        }
    }

    /// The next record if it is due, with its intended time, and notes how late it is.
    #[inline]
    pub fn take(&mut self, now_ns: u64) -> Option<Due> {
        let next = self.peek().filter(|next| next.at_ns <= now_ns)?;
        self.slips.note(now_ns - next.at_ns);
        self.gap_ns = (GAPS - 1) * self.gap_ns.min(SPARSE_NS) / GAPS + (next.at_ns - self.last_ns) / GAPS;
        self.last_ns = next.at_ns;
        self.lanes[self.next].step();
        if self.lanes.len() > 1 {
            self.find_next();
        }
        Some(next)
    }

    /// Whether whoever spins before each record hardly ever sleeps.
    fn is_dense(&self) -> bool {
        self.gap_ns <= self.spin_ns && self.spin_ns < u64::MAX
    }

    /// How many records are due by now, inclusive, and not taken.
    pub fn due(&self, now_ns: u64) -> u64 {
        self.lanes.iter().map(|lane| lane.meant_by(now_ns).saturating_sub(lane.taken())).sum()
    }

    /// How many records were meant for the time up to now, inclusive, taken or not.
    pub fn meant_by(&self, now_ns: u64) -> u64 {
        self.lanes.iter().map(|lane| lane.meant_by(now_ns)).sum()
    }

    /// How late records were taken so far.
    pub fn slips(&self) -> &Slips {
        &self.slips
    }

    /// Of records due together, the one of the lane that was there first: rates in the order of their first instrument.
    #[inline]
    fn find_next(&mut self) {
        let times = self.lanes.iter().map(|lane| lane.next().at_ns).enumerate();
        self.next = times.min_by_key(|(_, at_ns)| *at_ns).map_or(0, |(lane, _)| lane);
    }
}
