//! Records which lines of a topic one reader has received from its node.

use std::collections::BTreeMap;

use dunlin_topic::{Event, Notice, Position};

use crate::demo::account::ContentDigest;

/// The progress of one reader in one topic: the position up to which the reader has received everything, and a hash of
/// the received lines.
#[derive(Debug, Default)]
pub struct TopicReadProgress {
    /// The position up to which the reader has received all records.
    pub through: Position,
    /// A running hash of the received lines.
    pub content: ContentDigest,
    /// The number of new epochs that the node reported.
    pub epochs: u64,
    /// The text of the first error that was found.
    pub fault: Option<String>,
}

/// The progress of one reader, by the name of the topic.
pub type ReadProgressByTopic = BTreeMap<String, TopicReadProgress>;

/// Adds an event, which is a record or a notice, to the reader's progress in its topic.
pub fn add_event(by_topic: &mut ReadProgressByTopic, event: &Event<'_>) {
    match event {
        Event::Record(record) => {
            progress_in(by_topic, &record.log.topic).record(record.position, record.payload())
        }
        Event::Notice(Notice::EpochChanged(change)) => {
            let progress = progress_in(by_topic, &change.log.topic);
            progress.epochs += 1;
            // The topic is durable, so a restart loses no records, and the new epoch must begin directly after the last
            // received record.
            if change.new_first.seq != progress.through.seq + 1 {
                progress.fault(format!(
                    "the last received record is {}, but the next epoch, {}, begins at record {}",
                    progress.through, change.new_first.epoch, change.new_first.seq
                ));
            }
            progress.through.epoch = change.new_first.epoch;
        }
        Event::Notice(Notice::Gap(gap)) => {
            progress_in(by_topic, &gap.log.topic).fault(format!("{} to {} are missing", gap.first, gap.last));
        }
        Event::Notice(_) => {}
    }
}

fn progress_in<'p>(by_topic: &'p mut ReadProgressByTopic, topic: &str) -> &'p mut TopicReadProgress {
    if !by_topic.contains_key(topic) {
        by_topic.insert(topic.to_owned(), TopicReadProgress::default());
    }
    by_topic.get_mut(topic).expect("the topic has an entry")
}

impl TopicReadProgress {
    fn record(&mut self, position: Position, line: &[u8]) {
        let expected = self.through.seq + 1;
        if position.seq != expected || position.epoch < self.through.epoch {
            self.fault(format!("{position} after {}", self.through));
        }
        self.through = position;
        self.content.add(line);
    }

    /// Stores an error, unless an earlier error is stored.
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
    fn missing_and_old_records_are_faults_but_new_epochs_are_not() {
        let mut progress = TopicReadProgress::default();
        [at(1, 1), at(1, 2), at(3, 3)].iter().for_each(|position| progress.record(*position, b"line"));
        assert_eq!((progress.through, &progress.fault), (at(3, 3), &None));
        for wrong in [at(3, 5), at(3, 3), at(2, 4)] {
            let mut progress = TopicReadProgress { through: at(3, 3), ..TopicReadProgress::default() };
            progress.record(wrong, b"line");
            assert!(progress.fault.is_some(), "{wrong}");
        }
    }
}
