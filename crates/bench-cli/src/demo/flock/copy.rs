//! The lines of one topic as the reader of one node received them.

use std::collections::BTreeMap;

use dunlin_topic::{Event, Notice, Position};

use crate::demo::account::ContentDigest;

/// One reader's copy of a topic: the position up to which it is complete, and a hash of its lines.
#[derive(Debug, Default)]
pub struct TopicCopy {
    /// The position up to which the reader has received every record.
    pub through: Position,
    /// A running hash of the lines.
    pub content: ContentDigest,
    /// The number of new epochs that the node reported.
    pub epochs: u64,
    /// The text of the first error.
    pub fault: Option<String>,
}

/// One reader's copies of all topics that it reads, by topic.
pub type TopicCopies = BTreeMap<String, TopicCopy>;

/// Adds a record or notice to the copy of its topic.
pub fn add_event(copies: &mut TopicCopies, event: &Event<'_>) {
    match event {
        Event::Record(record) => copy_of(copies, &record.log.topic).record(record.position, record.payload()),
        Event::Notice(Notice::EpochChanged(change)) => {
            let copy = copy_of(copies, &change.log.topic);
            copy.epochs += 1;
            // A durable topic loses no records, so the new epoch must begin directly after the last record read.
            if change.new_first.seq != copy.through.seq + 1 {
                copy.fault(format!(
                    "after {} epoch {} begins at {}",
                    copy.through, change.new_first.epoch, change.new_first.seq
                ));
            }
            copy.through.epoch = change.new_first.epoch;
        }
        Event::Notice(Notice::Gap(gap)) => {
            copy_of(copies, &gap.log.topic).fault(format!("{} to {} are missing", gap.first, gap.last));
        }
        Event::Notice(_) => {}
    }
}

fn copy_of<'c>(copies: &'c mut TopicCopies, topic: &str) -> &'c mut TopicCopy {
    if !copies.contains_key(topic) {
        copies.insert(topic.to_owned(), TopicCopy::default());
    }
    copies.get_mut(topic).expect("a copy of the topic exists")
}

impl TopicCopy {
    fn record(&mut self, position: Position, line: &[u8]) {
        let expected = self.through.seq + 1;
        if position.seq != expected || position.epoch < self.through.epoch {
            self.fault(format!("{position} after {}", self.through));
        }
        self.through = position;
        self.content.add(line);
    }

    /// Stores an error, unless one is already stored.
    pub fn fault(&mut self, text: String) {
        self.fault.get_or_insert(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u32, seq: u64) -> Position {
        Position { epoch, seq }
    }

    #[test]
    fn topic_copy_accepts_new_epochs_but_no_missing_or_old_record() {
        let mut copy = TopicCopy::default();
        [at(1, 1), at(1, 2), at(3, 3)].iter().for_each(|position| copy.record(*position, b"line"));
        assert_eq!((copy.through, &copy.fault), (at(3, 3), &None));
        for wrong in [at(3, 5), at(3, 3), at(2, 4)] {
            let mut copy = TopicCopy { through: at(3, 3), ..TopicCopy::default() };
            copy.record(wrong, b"line");
            assert!(copy.fault.is_some(), "{wrong}");
        }
    }
}
