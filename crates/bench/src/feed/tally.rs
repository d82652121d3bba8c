//! What a reader saw: how much, how late, and what went wrong.

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
    /// When the last update that counts was applied.
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
        self.last_ns = self.last_ns.max(other.last_ns);
        self.sent.add(&other.sent);
        self.direct.add(&other.direct);
        self.intended.add(&other.intended);
        self.stale.add(&other.stale);
        self.stale_by_processing.add(&other.stale_by_processing);
    }
}
