//! The position of an event stream in each of its logs. The ids of events contain these positions, so that a client can
//! resume.

use std::collections::BTreeMap;
use std::sync::Arc;

use dunlin::topic::{LogName, Position, Start, Subscriber};
use dunlin::wire;
use dunlin::wire::http::{LogKey, ResumeToken, write_position};

#[derive(Debug)]
pub(in crate::http) struct StreamPositions {
    /// Whether the stream has exactly one log. If it has, an event's id is only the position in this log.
    is_single_log: bool,
    /// Whether ids also contain logs from which no record was delivered yet, with their start positions.
    includes_start: bool,
    positions: BTreeMap<LogKey, wire::Position>,
    /// The log whose position changed last, with its key. The next change mostly concerns the same log, and then uses
    /// this key again.
    last: Option<(Arc<LogName>, LogKey)>,
    changed: bool,
}

impl StreamPositions {
    /// Creates an empty list of positions. If the stream starts with a state or at a time, start positions are left out
    /// of ids. A client that resumes at a start position would skip the requested state or records.
    pub(in crate::http) fn new(is_single_log: bool, start: Start, follows_state: bool) -> StreamPositions {
        let includes_start = !follows_state && !matches!(start, Start::Time(_));
        StreamPositions {
            is_single_log,
            includes_start,
            positions: BTreeMap::new(),
            last: None,
            changed: false,
        }
    }

    /// Sets the position in the log: all records up to it were delivered.
    pub(in crate::http) fn advance(&mut self, log: &Arc<LogName>, position: Position) {
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

    /// Copies the subscriber's positions. The copied positions are also past the records that the subscriber skipped.
    pub(in crate::http) fn copy_from(&mut self, subscriber: &mut Subscriber) {
        let mut found = Vec::new();
        subscriber.for_each_position(|log, position| found.push((Arc::clone(log), position)));
        for (log, position) in found {
            if self.includes_start || self.positions.contains_key(&LogKey::of(&log.topic, log.partition)) {
                self.advance(&log, position);
            }
        }
    }

    pub(in crate::http) fn remove(&mut self, log: &LogName) {
        self.changed |= self.positions.remove(&LogKey::of(&log.topic, log.partition)).is_some();
    }

    pub(in crate::http) fn log_count(&self) -> usize {
        self.positions.len()
    }

    /// Whether the stream has exactly one log. If it has, each event has its own id.
    pub(in crate::http) fn is_single_log(&self) -> bool {
        self.is_single_log
    }

    /// Returns the id for the current positions if they have changed since the last call.
    pub(in crate::http) fn take_id(&mut self) -> Option<String> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let mut id = String::new();
        match self.positions.first_key_value() {
            Some((_, position)) if self.is_single_log => write_position(*position, &mut id),
            _ => ResumeToken::Many(self.positions.clone()).write(&mut id),
        }
        Some(id)
    }
}
