//! The demo's ledger, which counts the published lines of each topic. At the end, the demo compares the ledger with the
//! records and gaps that the readers received.

use std::collections::BTreeMap;

use super::account::{ContentDigest, MissedRecords, TopicReadReport};
use super::recording::MarketRecording;

/// The recording of each topic, and how many of the recording's lines have been published. At the end, the demo
/// compares these lines with the lines that readers received.
#[derive(Debug, Default)]
pub struct LineLedger<'a> {
    topics: BTreeMap<String, Entry<'a>>,
}

#[derive(Debug)]
struct Entry<'a> {
    recording: &'a MarketRecording,
    published: u64,
}

/// The result of comparing the published lines with the lines that one reader received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadVerdict {
    pub published: u64,
    pub received: u64,
    pub gaps: usize,
    pub missed: u64,
    /// The number of records for which the reader received neither the record nor a gap notice. The number is at least
    /// the number of errors in the reader's account.
    pub unaccounted: u64,
    pub bytes: ContentMatch,
    pub faults: Vec<String>,
}

/// Whether the received lines equal the published lines: they are equal, equal except for gaps, or different.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentMatch {
    /// The reader received every published line.
    Equal,
    /// The reader received every published line except the lines in reported gaps.
    EqualButGaps,
    Different,
}

impl<'a> LineLedger<'a> {
    /// Adds a topic to which the lines of `recording` are published.
    pub fn add_topic(&mut self, topic: &str, recording: &'a MarketRecording) {
        self.topics.insert(topic.to_owned(), Entry { recording, published: 0 });
    }

    /// Counts one more published line of the topic. Returns the number of this line; the first line has number 1.
    ///
    /// # Panics
    ///
    /// If the topic was not added, or if all lines of its recording are already counted.
    pub fn count_published(&mut self, topic: &str) -> u64 {
        let entry = self.topics.get_mut(topic).expect("`open` has added the topic");
        entry.published += 1;
        assert!(entry.published <= entry.recording.len() as u64, "more lines than were recorded");
        entry.published
    }

    pub fn count(&self, topic: &str) -> u64 {
        self.topics.get(topic).map_or(0, |entry| entry.published)
    }

    /// Compares a reader's account of a topic with the ledger. For each published record, the reader must have received
    /// either the record itself, exactly once, or a gap that contains the record. The received lines must equal the
    /// published lines.
    pub fn judge(&self, topic: &str, account: &TopicReadReport) -> ReadVerdict {
        let published = self.count(topic);
        let missed = account.missed_records();
        let accounted = account.received.saturating_add(missed);
        let missing = published.abs_diff(accounted).max(account.through.seq.abs_diff(published));
        let same = self
            .topics
            .get(topic)
            .is_some_and(|entry| entry.digest_without(&account.missed) == account.content);
        let bytes = match (same, account.missed.is_empty()) {
            (true, true) if account.received == published => ContentMatch::Equal,
            (true, false) => ContentMatch::EqualButGaps,
            _ => ContentMatch::Different,
        };
        let unaccounted_min = account.faults.len() as u64 + u64::from(bytes == ContentMatch::Different);
        ReadVerdict {
            published,
            received: account.received,
            gaps: account.missed.len(),
            missed,
            unaccounted: missing.max(unaccounted_min),
            bytes,
            faults: account.faults.clone(),
        }
    }
}

impl Entry<'_> {
    /// Returns the hash of all published lines except those in the gaps `missed`. The gaps may overlap.
    fn digest_without(&self, missed: &[MissedRecords]) -> ContentDigest {
        let mut content = ContentDigest::default();
        let mut gaps = missed.iter().peekable();
        for seq in 1..=self.published {
            while gaps.peek().is_some_and(|gap| gap.last < seq) {
                gaps.next();
            }
            if gaps.peek().is_none_or(|gap| seq < gap.first) {
                content.add(self.recording.line(seq as usize - 1));
            }
        }
        content
    }
}

#[cfg(test)]
mod tests {
    use dunlin_topic::Position;

    use super::super::recording::MarketRecordingFormat;
    use super::*;

    fn recording() -> MarketRecording {
        let text: String = (0..10).map(|at| format!("{{\"pt\":{at},\"mc\":[{{\"id\":\"1\"}}]}}\n")).collect();
        MarketRecording::parse("a", text.into_bytes(), MarketRecordingFormat::Betfair).unwrap()
    }

    /// Returns the account of a reader that received the lines `received` and the gaps `missed`.
    fn account(recording: &MarketRecording, received: &[u64], missed: &[(u64, u64)]) -> TopicReadReport {
        let mut account = TopicReadReport { received: received.len() as u64, ..TopicReadReport::default() };
        received.iter().for_each(|&seq| account.content.add(recording.line(seq as usize - 1)));
        account.missed = missed.iter().map(|&(first, last)| MissedRecords { first, last }).collect();
        let last = received.iter().copied().chain(missed.iter().map(|gap| gap.1)).max().unwrap_or(0);
        account.through = Position { epoch: 1, seq: last };
        account
    }

    fn judge(received: &[u64], missed: &[(u64, u64)]) -> ReadVerdict {
        let recording = recording();
        let mut ledger = LineLedger::default();
        ledger.add_topic("t", &recording);
        (0..10).for_each(|_| assert!(ledger.count_published("t") > 0));
        ledger.judge("t", &account(&recording, received, missed))
    }

    #[test]
    fn received_bytes_equal_the_recording_if_no_record_is_missing() {
        let verdict = judge(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], &[]);
        assert_eq!((verdict.unaccounted, verdict.bytes), (0, ContentMatch::Equal));
    }

    #[test]
    fn gaps_account_for_exactly_the_missed_records() {
        let verdict = judge(&[3, 4, 8], &[(1, 2), (5, 7), (9, 10)]);
        assert_eq!((verdict.unaccounted, verdict.bytes, verdict.missed), (0, ContentMatch::EqualButGaps, 7));
    }

    #[test]
    fn one_missing_or_surplus_record_is_unaccounted_for() {
        assert_eq!(judge(&[1, 2, 3, 4, 5, 6, 7, 8, 9], &[]).unaccounted, 1);
        assert_eq!(judge(&[1, 2, 3, 4, 6, 7, 8, 9, 10], &[]).unaccounted, 1);
        assert_eq!(judge(&[1, 2, 3, 4, 6, 7, 8, 9, 10], &[(4, 5)]).unaccounted, 1);
        assert_eq!(judge(&[1, 2], &[(3, 9)]).unaccounted, 1);
        assert_eq!(judge(&[], &[]).unaccounted, 10);
    }

    #[test]
    fn swapped_or_repeated_records_are_unaccounted_for() {
        let verdict = judge(&[1, 2, 4, 3, 5, 6, 7, 8, 9, 10], &[]);
        assert_eq!((verdict.unaccounted, verdict.bytes), (1, ContentMatch::Different));
        let verdict = judge(&[1, 2, 3, 4, 5, 6, 7, 8, 8, 10], &[]);
        assert_eq!((verdict.unaccounted, verdict.bytes), (1, ContentMatch::Different));
    }
}
