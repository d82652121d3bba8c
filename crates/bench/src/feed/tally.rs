//! The results of the subscribers: counts, latencies and errors.

use std::time::Duration;

use crate::stats::Latencies;

/// The results of one subscriber, or the sum over several subscribers: counts, latencies and errors.
#[derive(Clone, Debug, Default)]
pub struct DeliveryTally {
    /// The number of counted updates that were received and applied one by one.
    pub delivered: u64,
    /// The number of counted updates that were received in merged records.
    pub merged: u64,
    /// The number of changes that were applied in the whole run. While a subscriber still receives changes, this number
    /// grows.
    pub applied: u64,
    /// The latency of each counted update, from its publication.
    pub sent: Latencies,
    /// The latency of each counted update that no loss delayed, from its publication. The repair of a loss delays the
    /// lost updates and the update at which the subscriber noticed the loss; these updates are left out. The published
    /// benchmark of MDD-Sim (another system) leaves them out too.
    pub direct: Latencies,
    /// The latency of each counted update, from the time when it was due.
    pub intended: Latencies,
    /// For each change at a slow subscriber: the age of the change's oldest update when the change has been processed.
    pub stale: Latencies,
    /// The ages in [`stale`](Self::stale), each divided by the mean processing time of its change and of the change
    /// before, in thousandths. An example with the value 2000: a subscriber processes one update; meanwhile further
    /// updates arrive; then it processes one record that merges them.
    pub stale_by_processing: Latencies,
    /// The number of losses that subscribers detected because sequence numbers were missing.
    pub holes: u64,
    /// The number of gaps that the node reported to subscribers.
    pub gaps: u64,
    /// The number of requests for missing records, plus the number of snapshots that replaced records.
    pub resyncs: u64,
    /// The number of losses that were repaired.
    pub healed: u64,
    /// The number of books that differed from the owner's book at the same position.
    pub divergent: u64,
    /// The number of records and snapshots that replicas refused, which must be 0.
    pub errors: u64,
    /// The time at which the first counted update was applied, in ns; `None` if there was none.
    pub first_ns: Option<u64>,
    /// The time at which the last counted update was applied, in ns.
    pub last_ns: u64,
    /// How many times a subscriber's book had the same checksum as the owner's book.
    pub checked: u64,
}

impl DeliveryTally {
    /// Adds the results of another subscriber.
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

    /// Counts an update that was applied at the time `now_ns`.
    pub fn record_delivery(&mut self, now_ns: u64) {
        self.delivered += 1;
        self.first_ns.get_or_insert(now_ns);
        self.last_ns = now_ns;
    }

    /// Returns the time in ns from the first to the last counted update. If subscribers fell behind, this time is
    /// longer than the time of publication.
    pub fn read_ns(&self) -> u64 {
        self.first_ns.map_or(0, |first_ns| self.last_ns.saturating_sub(first_ns))
    }

    /// Returns the number of counted updates per second. The rate is computed over the time that the subscribers took,
    /// or over the time of publication (`published`) if that is longer.
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
        times_ns.for_each(|now_ns| tally.record_delivery(now_ns));
        tally
    }

    #[test]
    fn slow_reading_lowers_the_measured_delivery_rate() {
        // 1,000 records were published within one second, and read at 200 records per second.
        let mut tally = read_at((0..1_000).map(|nth| nth * S / 200));
        assert_eq!(tally.per_s(Duration::from_secs(1)).round(), 200.0);
        // A second subscriber starts one second later, and also reads 200 records per second.
        tally.add(&read_at((0..1_000).map(|nth| S + nth * S / 200)));
        assert_eq!(tally.per_s(Duration::from_secs(1)).round(), 334.0);
    }

    #[test]
    fn delivery_rate_to_a_fast_client_equals_the_publish_rate() {
        let tally = read_at((0..1_000).map(|nth| 5 + nth * S / 1_000));
        assert_eq!(tally.per_s(Duration::from_secs(1)), 1_000.0);
        assert_eq!(DeliveryTally::default().per_s(Duration::from_secs(1)), 0.0);
    }
}
