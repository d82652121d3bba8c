//! Where a stream of events stands in each of its logs, for the ids by which it resumes.

use std::collections::BTreeMap;
use std::sync::Arc;

use dunlin::topic::{LogName, Position, Start, Subscriber};
use dunlin::wire;
use dunlin::wire::http::{LogKey, Resume, write_one};

/// See the module.
#[derive(Debug)]
pub(in crate::http) struct Stands {
    /// It reads one log and no other can come: an id is a position.
    is_one: bool,
    /// Where it began is where it stands until it is given something.
    begins: bool,
    positions: BTreeMap<LogKey, wire::Position>,
    /// The log of the last position, which is that of the next one most often.
    last: Option<(Arc<LogName>, LogKey)>,
    changed: bool,
}

impl Stands {
    /// A reader that is to get a state, or what came after some time, stands nowhere before it got something: it would go
    /// on without.
    pub(in crate::http) fn new(is_one: bool, start: Start, follows_state: bool) -> Stands {
        let begins = !follows_state && !matches!(start, Start::Time(_));
        Stands { is_one, begins, positions: BTreeMap::new(), last: None, changed: false }
    }

    /// It was given everything of the log through here.
    pub(in crate::http) fn at(&mut self, log: &Arc<LogName>, position: Position) {
        let key = match &self.last {
            Some((last, key)) if Arc::ptr_eq(last, log) => *key,
            _ => {
                let key = LogKey::of(&log.topic, log.partition);
                self.last = Some((Arc::clone(log), key));
                key
            }
        };
        let position = wire::Position { epoch: position.epoch, seq: position.seq };
        self.changed |= self.positions.insert(key, position) != Some(position);
    }

    /// It is where the subscriber is, which may have skipped records.
    pub(in crate::http) fn look(&mut self, subscriber: &mut Subscriber) {
        let mut found = Vec::new();
        subscriber.for_each_position(|log, position| found.push((Arc::clone(log), position)));
        for (log, position) in found {
            if self.begins || self.positions.contains_key(&LogKey::of(&log.topic, log.partition)) {
                self.at(&log, position);
            }
        }
    }

    /// The log is gone.
    pub(in crate::http) fn left(&mut self, log: &LogName) {
        self.changed |= self.positions.remove(&LogKey::of(&log.topic, log.partition)).is_some();
    }

    pub(in crate::http) fn logs(&self) -> usize {
        self.positions.len()
    }

    /// Whether each event has an id of its own.
    pub(in crate::http) fn is_one(&self) -> bool {
        self.is_one
    }

    /// The id, if it is another than the last time.
    pub(in crate::http) fn take_id(&mut self) -> Option<String> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let mut id = String::new();
        match self.positions.first_key_value() {
            Some((_, position)) if self.is_one => write_one(*position, &mut id),
            _ => Resume::Many(self.positions.clone()).write(&mut id),
        }
        Some(id)
    }
}
