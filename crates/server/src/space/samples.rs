//! A histogram of durations. Quantiles have a relative error of at most 1/32; the maximum, the mean and the count are
//! exact.

/// Number of buckets for the durations between two powers of two.
const PARTS: usize = 32;

/// A histogram of durations in nanoseconds.
#[derive(Debug, Clone)]
pub struct DurationHistogram {
    counts: Vec<u64>,
    total: u64,
    sum_ns: u128,
    max_ns: u64,
}

impl Default for DurationHistogram {
    fn default() -> DurationHistogram {
        DurationHistogram { counts: vec![0; PARTS * 60], total: 0, sum_ns: 0, max_ns: 0 }
    }
}

impl DurationHistogram {
    /// Records one duration.
    pub fn record(&mut self, ns: u64) {
        self.record_many(ns, 1);
    }

    /// Records the same duration `count` times.
    pub fn record_many(&mut self, ns: u64, count: u64) {
        self.counts[bucket(ns)] += count;
        self.total += count;
        self.sum_ns += u128::from(ns) * u128::from(count);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Number of recorded durations.
    pub fn count(&self) -> u64 {
        self.total
    }

    /// The longest recorded duration, ns.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The mean of the recorded durations, ns; 0 if none was recorded.
    pub fn mean_ns(&self) -> u64 {
        (self.sum_ns / u128::from(self.total.max(1))) as u64
    }

    /// The duration, ns, that this share (0 to 1) of the recorded durations does not exceed; `None` if none was
    /// recorded.
    pub fn quantile_ns(&self, share: f64) -> Option<u64> {
        if self.total == 0 {
            return None;
        }
        let rank = ((self.total as f64 * share).ceil() as u64).clamp(1, self.total);
        let mut sum = 0;
        for (at, count) in self.counts.iter().enumerate() {
            sum += count;
            if sum >= rank {
                return Some(bucket_max(at).min(self.max_ns));
            }
        }
        Some(self.max_ns)
    }
}

fn bucket(ns: u64) -> usize {
    if ns < PARTS as u64 {
        return ns as usize;
    }
    let doublings = ns.ilog2() - PARTS.ilog2();
    (doublings as usize + 1) * PARTS + ((ns >> doublings) as usize - PARTS)
}

/// The upper bound of the durations in a bucket, ns.
fn bucket_max(bucket: usize) -> u64 {
    let (doublings, part) = (bucket / PARTS, bucket % PARTS);
    if doublings == 0 {
        return part as u64;
    }
    // The bound of the last bucket is above the largest number, so it is limited to `u64::MAX`.
    u64::try_from(((PARTS + part + 1) as u128) << (doublings - 1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_quantiles_are_accurate_to_one_part_in_32() {
        let mut samples = DurationHistogram::default();
        assert_eq!(samples.quantile_ns(0.99), None);
        (1..=100_000).for_each(|ns| samples.record(ns * 17));
        for share in [0.01, 0.5, 0.95, 0.99] {
            let (quantile, exact) = (samples.quantile_ns(share).unwrap() as f64, share * 1_700_000.0);
            assert!(quantile >= exact && quantile <= exact * 33.5 / 32.0, "{share}: {quantile}, {exact}");
        }
        assert_eq!((samples.max_ns(), samples.quantile_ns(1.0)), (1_700_000, Some(1_700_000)));
        samples.record(u64::MAX);
        assert_eq!(samples.quantile_ns(1.0), Some(u64::MAX));
    }
}
