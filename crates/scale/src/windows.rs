//! Defines the periods of a schedule: times of the week in which at least a given number of workers run.

use crate::policy::{PolicyError, check_range};

const DAY_MINUTES: u32 = 24 * 60;

/// A period on some days of the week, in UTC, in which at least a given number of workers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WeeklyWindow {
    /// The days of the week on which the period begins, one bit for each day. The lowest bit is for Monday.
    pub days: u8,
    /// The start of the period, in minutes after midnight.
    pub from_minute: u32,
    /// The end of the period, in minutes after midnight. If this is not after the start, the period ends on the next
    /// day.
    pub to_minute: u32,
    /// The minimum number of workers in the period.
    pub workers_min: u32,
}

impl WeeklyWindow {
    /// The days from Monday to Friday.
    pub const WORKDAYS: u8 = 0b001_1111;
    /// All days of the week.
    pub const DAILY: u8 = 0b111_1111;

    pub(crate) fn check(&self) -> Result<(), PolicyError> {
        check_range("the days of a window", f64::from(self.days), 0.0, f64::from(WeeklyWindow::DAILY))?;
        let last = f64::from(DAY_MINUTES);
        check_range("the beginning of a window, in minutes,", f64::from(self.from_minute), -1.0, last - 1.0)?;
        check_range("the end of a window, in minutes,", f64::from(self.to_minute), -1.0, last)
    }

    /// Whether the time `unix_ms`, in ms since 1970, is in the period. The first day of 1970 was a Thursday.
    pub fn contains(&self, unix_ms: u64) -> bool {
        let minutes = unix_ms / 60_000;
        let (day, minute) = (minutes / u64::from(DAY_MINUTES), (minutes % u64::from(DAY_MINUTES)) as u32);
        let is_on = |day: u64| self.days >> ((day + 3) % 7) & 1 == 1;
        if self.from_minute < self.to_minute {
            return is_on(day) && (self.from_minute..self.to_minute).contains(&minute);
        }
        is_on(day) && minute >= self.from_minute || is_on(day + 6) && minute < self.to_minute
    }
}
