//! What a reader saw: how much, how late, and what went wrong.

use std::time::Duration;

use crate::stats::Latencies;

/// The counts and latencies of one or several readers.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Updates that count, each applied by itself.
    pub delivered: u64,
    /// Updates that count and are in the book by a merged record or a snapshot.
    pub merged: u64,
    /// Changes of a book in the whole run: a sign of life.
    pub applied: u64,
    /// Of each applied update, from the moment it was published.
    pub sent: Latencies,
    /// The same of those that came by themselves: not of what was lost on the way, nor of the update that told so,
    /// which are applied when they have been asked for. The document counts no others.
    pub direct: Latencies,
    /// The same from the moment it was meant to be published.
    pub intended: Latencies,
    /// At each change, how long the oldest update in it had been due.
    pub stale: Latencies,
    /// That, in thousandths of what the reader took to process an update, the mean of this one and the one before:
    /// 2000 for who processes one, and then another in which is all that came meanwhile.
    pub stale_by_processing: Latencies,
    /// How often a reader found out by itself that something was missing.
    pub holes: u64,
    /// How often it was told.
    pub gaps: u64,
    /// How often a reader asked to be brought back, or was given the state in the place of records.
    pub resyncs: u64,
    /// Holes and gaps after which the book was whole again.
    pub healed: u64,
    /// Books that were not their owner's at the same position.
    pub divergent: u64,
    /// What must not happen.
    pub errors: u64,
    /// When the first update that counts was applied; `None` before it.
    pub first_ns: Option<u64>,
    /// When the last was.
    pub last_ns: u64,
    /// Times that the owner's checksum was compared, and agreed.
    pub checked: u64,
}

impl Tally {
    /// Takes in another's.
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

    /// An update that counts was applied.
    pub fn deliver(&mut self, now_ns: u64) {
        self.delivered += 1;
        self.first_ns.get_or_insert(now_ns);
        self.last_ns = now_ns;
    }

    /// From the first update that counts to the last: longer than the source published where readers fell behind.
    pub fn read_ns(&self) -> u64 {
        self.first_ns.map_or(0, |first_ns| self.last_ns.saturating_sub(first_ns))
    }

    /// Updates applied in a second, over the time that readers took for them, which is at least as long as the source published.
    pub fn per_s(&self, published: Duration) -> f64 {
        self.delivered as f64 * 1e9 / (self.read_ns() as f64).max(published.as_nanos() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn read_at(times_ns: impl Iterator<Item = u64>) -> Tally {
        let mut tally = Tally::default();
        times_ns.for_each(|now_ns| tally.deliver(now_ns));
        tally
    }

    #[test]
    fn rate_of_a_slow_reader_is_over_its_reading_time() {
        // Published at 1,000 a second for a second, read at 200 a second.
        let mut tally = read_at((0..1_000).map(|nth| nth * S / 200));
        assert_eq!(tally.per_s(Duration::from_secs(1)).round(), 200.0);
        // Another as slow, a second later.
        tally.add(&read_at((0..1_000).map(|nth| S + nth * S / 200)));
        assert_eq!(tally.per_s(Duration::from_secs(1)).round(), 334.0);
    }

    #[test]
    fn rate_of_a_reader_that_keeps_up_is_the_published_rate() {
        let tally = read_at((0..1_000).map(|nth| 5 + nth * S / 1_000));
        assert_eq!(tally.per_s(Duration::from_secs(1)), 1_000.0);
        assert_eq!(Tally::default().per_s(Duration::from_secs(1)), 0.0);
    }
}
