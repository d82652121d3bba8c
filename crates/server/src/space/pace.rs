//! The schedule of a process's ticks.

use rustix::time::{ClockId, clock_gettime};

/// The pace of a process's ticks: no ticks, one in each interval, or one directly after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TickPace {
    /// No ticks are made, but messages are handled.
    Hold,
    /// One tick in each interval of this length, in nanoseconds. The processes of a machine make their ticks at the
    /// same times.
    Every(u64),
    /// Each tick begins directly after the previous one.
    FlatOut,
}

/// The time since the machine started, by the monotonic clock, ns. It is the same for all processes of a machine.
#[inline]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Schedules ticks at multiples of their interval. Late ticks are made one directly after another. If more than
/// `behind_max` ticks are late, only one of them is made, and the rest is skipped.
#[derive(Debug)]
pub(super) struct TickSchedule {
    pace: TickPace,
    due_ns: u64,
    behind_max: u64,
    /// Number of ticks that are still to be made; `None` if there is no limit.
    ticks_left: Option<u64>,
}

impl TickSchedule {
    pub(super) fn new(pace: TickPace, behind_max: u64, now_ns: u64) -> TickSchedule {
        let mut schedule = TickSchedule { pace, due_ns: 0, behind_max, ticks_left: None };
        schedule.set(pace, None, now_ns);
        schedule
    }

    pub(super) fn set(&mut self, pace: TickPace, ticks: Option<u64>, now_ns: u64) {
        (self.pace, self.ticks_left) = (pace, ticks);
        self.due_ns = match pace {
            TickPace::Every(length_ns) => now_ns.next_multiple_of(length_ns.max(1)),
            TickPace::Hold | TickPace::FlatOut => now_ns,
        };
    }

    /// Time at which the next tick is due; `None` while ticks are suspended.
    pub(super) fn due_ns(&self) -> Option<u64> {
        (self.pace != TickPace::Hold && self.ticks_left != Some(0)).then_some(self.due_ns)
    }

    /// Begins a tick. Returns by how much it is late, ns, and how many ticks are skipped. Both are 0 unless the pace is
    /// [`TickPace::Every`].
    pub(super) fn begin(&mut self, now_ns: u64) -> (u64, u64) {
        self.ticks_left = self.ticks_left.map(|ticks_left| ticks_left - 1);
        let late_ns = now_ns.saturating_sub(self.due_ns);
        let TickPace::Every(length_ns) = self.pace else {
            self.due_ns = now_ns;
            return (0, 0);
        };
        let length_ns = length_ns.max(1);
        let behind = late_ns / length_ns;
        let skipped = if behind > self.behind_max { behind } else { 0 };
        self.due_ns += length_ns * (1 + skipped);
        (late_ns, skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedule_catches_up_after_a_short_delay_but_not_a_long_one() {
        let mut schedule = TickSchedule::new(TickPace::Every(10), 5, 101);
        assert_eq!((schedule.due_ns(), schedule.begin(110)), (Some(110), (0, 0)));
        assert_eq!((schedule.due_ns(), schedule.begin(155)), (Some(120), (35, 0)));
        assert_eq!(schedule.due_ns(), Some(130));
        assert_eq!((schedule.begin(200), schedule.due_ns()), ((70, 7), Some(210)));
    }

    #[test]
    fn schedule_ends_after_the_given_number_of_ticks() {
        let mut schedule = TickSchedule::new(TickPace::Hold, 5, 0);
        assert_eq!(schedule.due_ns(), None);
        schedule.set(TickPace::FlatOut, Some(2), 7);
        schedule.begin(7);
        assert!(schedule.due_ns().is_some());
        schedule.begin(8);
        assert_eq!(schedule.due_ns(), None);
    }
}
