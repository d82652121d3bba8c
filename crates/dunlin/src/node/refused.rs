//! Handles topics whose files could not be opened. Their subjects stay reserved until an operator deletes these topics.

use dunlin_topic::Pattern;
use dunlin_wire::ErrorCode;

use super::Node;
use crate::error::TopicError;
use crate::refusal::Refused;
use crate::storage::{RefusedTopic, Storage};
use crate::waiting;

impl Node {
    /// The topics whose files could not be opened, sorted by name. No other topic can own their subjects.
    pub fn refused_topics(&self) -> Vec<RefusedTopic> {
        let mut refused = self.storage().map_or_else(Vec::new, Storage::refused);
        refused.retain(|refused| self.is_pattern_visible(&refused.name, &refused.pattern));
        refused
    }

    /// The names of open durable topics whose disk has failed, sorted. These topics accept no records until the node is
    /// started again.
    pub fn failed_topics(&self) -> Vec<String> {
        let mut failed = self.storage().map_or_else(Vec::new, Storage::failed_topics);
        failed.retain(|name| {
            let topic = self.registry().get(name);
            topic.is_some_and(|topic| self.is_pattern_visible(name, topic.pattern()))
        });
        failed.sort_unstable();
        failed
    }

    /// The error for a topic that is not open: its files could not be opened, or no such topic exists.
    pub fn missing_topic_error(&self, name: &str) -> Refused {
        match self.refused_topics().into_iter().find(|refused| refused.name == name) {
            Some(refused) => Refused::new(ErrorCode::DiskFailed, refused.why),
            None => Refused::new(ErrorCode::NoTopic, name),
        }
    }

    /// Returns an error if the files of a topic with this name, or of a topic whose pattern overlaps `pattern`, could
    /// not be opened.
    pub(crate) fn check_refused(&self, name: &str, pattern: &Pattern) -> Result<(), TopicError> {
        let conflicts = |refused: &RefusedTopic| {
            let owned = Pattern::parse(&refused.pattern).ok();
            refused.name == name || owned.is_some_and(|owned| owned.overlaps(pattern))
        };
        match self.unguarded().refused_topics().iter().find(|refused| conflicts(refused)) {
            Some(RefusedTopic { name, why, .. }) => Err(TopicError::Disk(format!(
                "topic {name:?} exists on disk, but could not be opened: {why}"
            ))),
            None => Ok(()),
        }
    }

    /// Whether the files of the topic with this name could not be opened, and no open topic has the name.
    pub(crate) fn has_refused(&self, name: &str) -> bool {
        let has_refused = |storage: &Storage| storage.has_refused(name);
        self.storage().is_some_and(has_refused) && self.registry().get(name).is_none()
    }

    /// Deletes a topic whose files could not be opened, with its records, here and in the cluster.
    pub(super) fn delete_refused(&self, name: &str) -> Result<(), TopicError> {
        waiting::check();
        match self.ownership().map(|ownership| ownership.delete(self, name)) {
            None | Some(Ok(()) | Err(TopicError::Unknown(_))) => {}
            Some(failed) => return failed,
        }
        let _one_at_a_time = self.lock_durable_topics();
        let Some(storage) = self.storage() else { return Ok(()) };
        Ok(storage.delete_refused(name)?)
    }
}
