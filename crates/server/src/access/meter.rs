//! Limits a rate with a token bucket, whose capacity is the amount for one second.
//!
//! An amount larger than the capacity passes when the bucket is full. Afterwards, the bucket's level is negative, and
//! later amounts wait until the level is high enough again.

use std::time::Duration;

/// A rate limit and the state of its token bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RateMeter {
    per_s: u64,
    /// The level of the bucket; a negative level is a debt.
    level: f64,
    /// The time of the last check, ns by the monotonic clock.
    updated_ns: u64,
}

/// The error for an amount that would exceed a rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OverRate {
    pub(crate) per_s: u64,
    /// Time until the amount would pass.
    pub(crate) retry_after: Duration,
}

impl RateMeter {
    pub(crate) fn new(per_s: u64, now_ns: u64) -> RateMeter {
        RateMeter { per_s, level: per_s as f64, updated_ns: now_ns }
    }

    /// The rate per second.
    pub(crate) fn per_s(&self) -> u64 {
        self.per_s
    }

    /// Changes the rate. A debt is kept.
    pub(crate) fn set(&mut self, per_s: u64) {
        if per_s != self.per_s {
            // Scales the level with the rate. The bucket stays equally full, and a debt is paid in the same time as
            // before.
            self.level *= per_s as f64 / self.per_s.max(1) as f64;
            self.per_s = per_s;
        }
    }

    /// Checks whether the amount may pass now, but does not take it from the bucket.
    pub(crate) fn check(&mut self, amount: u64, now_ns: u64) -> Result<(), OverRate> {
        let capacity = self.per_s as f64;
        let elapsed_s = now_ns.saturating_sub(self.updated_ns) as f64 / 1e9;
        self.level = (self.level + elapsed_s * capacity).min(capacity);
        self.updated_ns = self.updated_ns.max(now_ns);
        let missing = (amount as f64).min(capacity) - self.level;
        // If so little is missing, the difference is only a rounding error.
        if missing <= 1e-6 {
            return Ok(());
        }
        Err(OverRate { per_s: self.per_s, retry_after: Duration::from_secs_f64(missing / capacity) })
    }

    pub(crate) fn take(&mut self, amount: u64) {
        self.level -= amount as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn pass(meter: &mut RateMeter, amount: u64, now_ns: u64) -> Result<(), Duration> {
        meter.check(amount, now_ns).map_err(|excess| excess.retry_after)?;
        meter.take(amount);
        Ok(())
    }

    #[test]
    fn meter_allows_a_burst_of_one_second_and_then_the_rate() {
        let mut meter = RateMeter::new(10, 5 * SECOND);
        for _ in 0..10 {
            assert_eq!(pass(&mut meter, 1, 5 * SECOND), Ok(()));
        }
        assert_eq!(pass(&mut meter, 1, 5 * SECOND), Err(Duration::from_millis(100)));
        assert_eq!(pass(&mut meter, 1, 5 * SECOND + SECOND / 10), Ok(()));
        assert_eq!(pass(&mut meter, 5, 5 * SECOND + SECOND / 10), Err(Duration::from_millis(500)));
        // After a long pause, the bucket holds the amount for one second, not for the whole pause.
        assert_eq!(pass(&mut meter, 10, 500 * SECOND), Ok(()));
        assert!(pass(&mut meter, 1, 500 * SECOND).is_err());
    }

    #[test]
    fn meter_admits_a_large_request_and_delays_later_requests() {
        let mut meter = RateMeter::new(100, 0);
        assert_eq!(pass(&mut meter, 300, 0), Ok(()));
        assert_eq!(pass(&mut meter, 1, SECOND), Err(Duration::from_millis(1_010)));
        assert_eq!(pass(&mut meter, 100, 3 * SECOND), Ok(()));
    }

    #[test]
    fn new_rate_limit_keeps_the_delay_of_earlier_requests() {
        let mut meter = RateMeter::new(100, 0);
        assert_eq!(pass(&mut meter, 300, 0), Ok(()));
        meter.set(100);
        assert_eq!(pass(&mut meter, 1, 0), Err(Duration::from_millis(2_010)));
        meter.set(1_000);
        assert_eq!(pass(&mut meter, 1, 0), Err(Duration::from_millis(2_001)));
        assert_eq!(pass(&mut meter, 1_000, 3 * SECOND), Ok(()));
    }

    #[test]
    fn setting_the_clock_back_grants_no_extra_rate() {
        let mut meter = RateMeter::new(1, 9 * SECOND);
        assert_eq!(pass(&mut meter, 1, 9 * SECOND), Ok(()));
        assert!(pass(&mut meter, 1, SECOND).is_err() && pass(&mut meter, 1, 9 * SECOND).is_err());
    }
}
