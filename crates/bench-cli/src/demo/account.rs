//! A reader's account of the records and gaps that it received from one log. The demo compares the account with the
//! published records. Each record and each gap must begin directly after the previous record or gap; otherwise an error
//! is added to the account. The account contains a running hash of the received lines, so that a reader in another
//! process can report the hash instead of all lines.

use std::collections::BTreeMap;

use dunlin_topic::{EpochChanged, Event, Gap, Notice, Position};

/// A running hash (FNV-1a, 64 bits) of received lines. The hash detects mistakes, not forgery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentDigest(pub u64);

impl Default for ContentDigest {
    fn default() -> ContentDigest {
        ContentDigest(0xcbf2_9ce4_8422_2325)
    }
}

impl ContentDigest {
    pub fn add(&mut self, line: &[u8]) {
        for &byte in line.iter().chain(b"\n") {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

/// The records of one gap, as a range of sequence numbers that includes both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissedRecords {
    pub first: u64,
    pub last: u64,
}

impl MissedRecords {
    pub fn records(self) -> u64 {
        self.last - self.first + 1
    }
}

/// The records of one topic that a reader of the demo received, and the gaps that the node reported to this reader.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopicReadReport {
    /// The reader has received every record up to this position, or a gap that contains the record.
    pub through: Position,
    /// The number of received records.
    pub received: u64,
    /// A running hash of the received lines.
    pub content: ContentDigest,
    /// The reported gaps, in the order in which the node reported them.
    pub missed: Vec<MissedRecords>,
    /// The number of notices that warned the reader of its lag: the reader may soon miss records.
    pub warnings: u64,
    /// The errors that were found, as text.
    pub faults: Vec<String>,
}

/// The accounts of one reader, by the name of the topic.
pub type ReadReportsByTopic = BTreeMap<String, TopicReadReport>;

/// Adds an event, which is a record or a notice, to the account of its topic.
pub fn add_event(accounts: &mut ReadReportsByTopic, event: &Event<'_>) {
    let topic = match event {
        Event::Record(record) => &record.log.topic,
        Event::Notice(notice) => match notice {
            Notice::Gap(gap) => &gap.log.topic,
            Notice::Lagging(lagging) => &lagging.log.topic,
            Notice::EpochChanged(change) => &change.log.topic,
            Notice::Advance { log, .. } | Notice::Deleted { log, .. } => &log.topic,
            _ => return,
        },
    };
    // Most events belong to a topic that has an account already. `entry` would copy the topic's name for every event.
    if !accounts.contains_key(topic) {
        accounts.insert(topic.clone(), TopicReadReport::default());
    }
    if let Some(account) = accounts.get_mut(topic) {
        account.event(event);
    }
}

impl TopicReadReport {
    fn event(&mut self, event: &Event<'_>) {
        match event {
            Event::Record(record) => self.record(record.position, record.payload()),
            Event::Notice(Notice::Gap(gap)) => self.gap(gap),
            Event::Notice(Notice::Lagging(_)) => self.warnings += 1,
            Event::Notice(Notice::EpochChanged(change)) => self.epoch_changed(change),
            // This notice contains a position and no record, so it does not change the account. If records were lost
            // before this position, the account counts an error at the next record, which does not follow the last
            // counted one.
            Event::Notice(Notice::Advance { .. }) => {}
            Event::Notice(other) => self.faults.push(format!("unexpected notice: {other:?}")),
        }
    }

    pub fn record(&mut self, position: Position, line: &[u8]) {
        self.advance(position.epoch, position.seq, position.seq);
        self.received += 1;
        self.content.add(line);
    }

    pub fn gap(&mut self, gap: &Gap) {
        if gap.last < gap.first {
            self.faults.push(format!(
                "a gap from record {} to record {} ends before it begins",
                gap.first, gap.last
            ));
            return;
        }
        self.advance(gap.epoch, gap.first, gap.last);
        self.missed.push(MissedRecords { first: gap.first, last: gap.last });
    }

    /// Adds an error to the account: the demo's node does not restart, so no new epoch may begin.
    pub fn epoch_changed(&mut self, change: &EpochChanged) {
        self.faults.push(format!("the epoch changed from {} to {}", change.old, change.new_first.epoch));
    }

    pub fn missed_records(&self) -> u64 {
        self.missed.iter().map(|missed| missed.records()).sum()
    }

    fn advance(&mut self, epoch: u32, first: u64, last: u64) {
        let expected = self.through.seq + 1;
        let same_epoch = self.through.epoch == epoch || self.through == Position::default();
        if !same_epoch {
            self.faults.push(format!("epoch {epoch} began unexpectedly after epoch {}", self.through.epoch));
        } else if first != expected {
            self.faults.push(format!("received record {first}, but expected record {expected}"));
        }
        self.through = Position { epoch, seq: last };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use dunlin_topic::LogName;

    use super::*;

    pub fn gap(first: u64, last: u64) -> Gap {
        let log = LogName { topic: "t".into(), subject_prefix: "t".into(), partition: 0 };
        Gap { log: Arc::new(log), epoch: 1, first, last }
    }

    fn at(seq: u64) -> Position {
        Position { epoch: 1, seq }
    }

    #[test]
    fn consecutive_records_and_reported_gaps_are_no_fault() {
        let mut account = TopicReadReport::default();
        account.gap(&gap(1, 4));
        account.record(at(5), b"a");
        account.record(at(6), b"b");
        account.gap(&gap(7, 9));
        assert_eq!((account.received, account.missed_records(), account.through), (2, 7, at(9)));
        assert!(account.faults.is_empty(), "{:?}", account.faults);
        let mut content = ContentDigest::default();
        content.add(b"a");
        content.add(b"b");
        assert_eq!(account.content, content);
    }

    #[test]
    fn missing_and_repeated_records_and_new_epochs_are_faults() {
        let mut account = TopicReadReport::default();
        account.record(at(2), b"");
        account.record(at(2), b"");
        account.gap(&gap(9, 9));
        account.record(Position { epoch: 2, seq: 10 }, b"");
        account.gap(&gap(12, 11));
        let expected = [
            "received record 2, but expected record 1",
            "received record 2, but expected record 3",
            "received record 9, but expected record 3",
            "epoch 2 began unexpectedly after epoch 1",
            "a gap from record 12 to record 11 ends before it begins",
        ];
        assert_eq!(account.faults, expected);
    }

    #[test]
    fn content_digest_depends_on_line_boundaries() {
        let content = |lines: &[&[u8]]| {
            let mut content = ContentDigest::default();
            lines.iter().for_each(|line| content.add(line));
            content
        };
        assert_ne!(content(&[b"ab", b"c"]), content(&[b"a", b"bc"]));
        assert_eq!(content(&[b"a\nb"]), content(&[b"a", b"b"]), "but a newline within is the file's own");
    }
}
