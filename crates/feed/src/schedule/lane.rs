//! A lane of a schedule: all instruments with the same rate. The instruments take turns, so that their records together
//! form one evenly spaced sequence.

use super::DueRecord;

const SECOND_NS: u64 = 1_000_000_000;

#[derive(Debug, Clone)]
pub(super) struct InstrumentLane {
    start_ns: u64,
    /// Number of records a second of each instrument.
    rate: u32,
    instruments: Vec<usize>,
    taken: u64,
    /// Index in `instruments` of the instrument to which the next record belongs.
    next_index: usize,
    /// Intended time of the next record, rounded down to nanoseconds.
    at_ns: u64,
    /// The fraction of a nanosecond by which the exact intended time is after `at_ns`, in units of 1 ns ÷ `per_second`.
    part: u64,
    /// Number of records a second of all instruments of the lane together.
    per_second: u64,
    /// Time between two records, rounded down to nanoseconds.
    step_ns: u64,
    /// The fraction of a nanosecond by which the exact time between two records is longer than `step_ns`, in units of 1
    /// ns ÷ `per_second`.
    step_part: u64,
}

impl InstrumentLane {
    pub(super) fn new(start_ns: u64, rate: u32, instrument: usize) -> InstrumentLane {
        let mut lane = InstrumentLane {
            start_ns,
            rate,
            instruments: Vec::new(),
            taken: 0,
            next_index: 0,
            at_ns: start_ns,
            part: 0,
            per_second: 0,
            step_ns: 0,
            step_part: 0,
        };
        lane.push(instrument);
        lane
    }

    /// Adds an instrument. May only be called before the first record is taken.
    pub(super) fn push(&mut self, instrument: usize) {
        self.instruments.push(instrument);
        self.per_second = u64::from(self.rate) * self.instruments.len() as u64;
        self.step_ns = SECOND_NS / self.per_second;
        self.step_part = SECOND_NS % self.per_second;
    }

    pub(super) fn rate(&self) -> u32 {
        self.rate
    }

    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    #[inline(always)]
    pub(super) fn next(&self) -> DueRecord {
        DueRecord { at_ns: self.at_ns, instrument: self.instruments[self.next_index] }
    }

    #[inline(always)]
    pub(super) fn step(&mut self) {
        self.taken += 1;
        self.at_ns += self.step_ns;
        self.part += self.step_part;
        if self.part >= self.per_second {
            self.part -= self.per_second;
            self.at_ns += 1;
        }
        self.next_index = if self.next_index + 1 == self.instruments.len() { 0 } else { self.next_index + 1 };
    }

    /// Returns how many records were due from the start of the schedule to `now_ns`, including those due at `now_ns`.
    /// Record j, counted from 0, is due ⌊j × second ÷ `per_second`⌋ ns after the start, where a second has 10⁹ ns. The
    /// records that are due are therefore all j for which j × second < (`since_ns` + 1) × `per_second`.
    pub(super) fn scheduled_by(&self, now_ns: u64) -> u64 {
        let Some(since_ns) = now_ns.checked_sub(self.start_ns) else { return 0 };
        let beyond = (u128::from(since_ns) + 1) * u128::from(self.per_second);
        u64::try_from(beyond.div_ceil(u128::from(SECOND_NS))).unwrap_or(u64::MAX)
    }
}
