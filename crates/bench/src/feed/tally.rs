//! Results of subscribers: counts, latencies and errors.

use std::time::Duration;

use crate::stats::Latencies;

/// The counts and latencies of the updates that subscribers received.
#[derive(Clone, Debug, Default)]
pub struct DeliveryTally {
    /// Counted updates that were applied one by one.
    pub delivered: u64,
    /// Counted updates that arrived in a merged record or a snapshot.
    pub merged: u64,
    /// Number of changes in the whole run; it shows that the subscriber still works.
    pub applied: u64,
    /// Latency of each applied update from its publication.
    pub sent: Latencies,
    /// The latencies of updates without a loss. Lost updates and those that revealed a loss do not count,
    /// because they are applied only after a repair. The MDD-Sim document counts in the same way.
    pub direct: Latencies,
    /// Latency of each applied update from the intended time of publication.
    pub intended: Latencies,
    /// Age of the oldest update at each change.
    pub stale: Latencies,
    /// The age of the oldest update at each change, in thousandths of the mean processing time of this update
    /// and the one before. The value is 2000 for a subscriber that processes one update, then a merged one of
    /// all that arrived meanwhile.
    pub stale_by_processing: Latencies,
    /// Losses that subscribers detected themselves.
    pub holes: u64,
    /// Losses that the node reported to subscribers.
    pub gaps: u64,
    /// Requests for missing data, and states that were received in place of records.
    pub resyncs: u64,
    /// Losses that were repaired.
    pub healed: u64,
    /// Books that differed from their owner's at the same position.
    pub divergent: u64,
    /// Events that must not happen.
    pub errors: u64,
    /// Time of the first counted update; `None` before that update.
    pub first_ns: Option<u64>,
    /// Time of the last counted update.
    pub last_ns: u64,
    /// Checksums that agreed.
    pub checked: u64,
}

impl DeliveryTally {
    /// Adds another subscriber's results.
    pub fn add(&mut self, other: &Self) {
        let counts = [
            (&mut self.delivered, other.delivered),
            (&mut self.merged, other.merged),
            (&mut self.applied, other.applied),
            (&mut self.holes, other.holes),
            (&mut self.gaps, other.gaps),
            (&mut self.resyncs, other.resyncs),
            (&mut self.healed, other.healed),
            (&mut self.divergent, other.divergent),
            (&mut self.errors, other.errors),
            (&mut self.checked, other.checked),
        ];
        counts.into_iter().for_each(|(mine, theirs)| *mine += theirs);
        self.first_ns = self.first_ns.into_iter().chain(other.first_ns).min();
        self.last_ns = self.last_ns.max(other.last_ns);
        self.sent.add(&other.sent);
        self.direct.add(&other.direct);
        self.intended.add(&other.intended);
        self.stale.add(&other.stale);
        self.stale_by_processing.add(&other.stale_by_processing);
    }

    /// Counts an applied update.
    pub fn deliver(&mut self, now_ns: u64) {
        self.delivered += 1;
        self.first_ns.get_or_insert(now_ns);
        self.last_ns = now_ns;
    }

    /// Time from the first counted update to the last. This time exceeds the time of publication if subscribers
    /// fell behind.
    pub fn read_ns(&self) -> u64 {
        self.first_ns.map_or(0, |first_ns| self.last_ns.saturating_sub(first_ns))
    }

    /// Updates applied in a second, over the time that subscribers needed, at least the time of publication.
    pub fn per_s(&self, published: Duration) -> f64 {
        self.delivered as f64 * 1e9 / (self.read_ns() as f64).max(published.as_nanos() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn read_at(times_ns: impl Iterator<Item = u64>) -> DeliveryTally {
        let mut tally = DeliveryTally::default();
        times_ns.for_each(|now_ns| tally.deliver(now_ns));
        tally
    }

    #[test]
    fn delivery_rate_counts_the_time_that_slow_reading_takes() {
        // 1,000 records a second were published for one second, and read at 200 a second.
        let mut tally = read_at((0..1_000).map(|nth| nth * S / 200));
        assert_eq!(tally.per_s(Duration::from_secs(1)).round(), 200.0);
        // A second later, another subscriber reads equally slowly.
        tally.add(&read_at((0..1_000).map(|nth| S + nth * S / 200)));
        assert_eq!(tally.per_s(Duration::from_secs(1)).round(), 334.0);
    }

    #[test]
    fn rate_of_a_fast_client_is_the_published_rate() {
        let tally = read_at((0..1_000).map(|nth| 5 + nth * S / 1_000));
        assert_eq!(tally.per_s(Duration::from_secs(1)), 1_000.0);
        assert_eq!(DeliveryTally::default().per_s(Duration::from_secs(1)), 0.0);
    }
}
