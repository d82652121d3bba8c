//! What a publisher knows of a topic's state: the last of its records that was acknowledged.
//!
//! A claim goes with each record of the publisher to the topic's owner, over other nodes and over changes of the owner. An owner
//! whose state lacks the acknowledged record refuses with [`PublishError::StateLost`]. From then on the claim is lost: no
//! record with this claim is appended any more, also not one that was sent before the publisher heard of the loss.

use std::sync::{Arc, Mutex, PoisonError};

use crate::event::Position;
use crate::publish::PublishError;

/// See the module. One for each publisher and partition of a state topic.
#[derive(Debug, Default)]
pub struct StateClaim(Mutex<Claimed>);

#[derive(Debug, Clone, Copy, Default)]
enum Claimed {
    #[default]
    Nothing,
    Acknowledged(Position),
    Lost,
}

impl StateClaim {
    /// A claim of a publisher whose last acknowledged record is this one.
    pub fn after(last: Position) -> Arc<StateClaim> {
        Arc::new(StateClaim(Mutex::new(Claimed::Acknowledged(last))))
    }

    /// The last record that was acknowledged.
    ///
    /// # Errors
    ///
    /// [`PublishError::StateLost`] with the topic's name where an owner has refused a record with this claim.
    pub fn last(&self, topic: &str) -> Result<Option<Position>, PublishError> {
        match *self.claimed() {
            Claimed::Nothing => Ok(None),
            Claimed::Acknowledged(last) => Ok(Some(last)),
            Claimed::Lost => Err(PublishError::StateLost(topic.to_owned())),
        }
    }

    /// Whether an owner has refused a record with this claim.
    pub fn is_lost(&self) -> bool {
        matches!(*self.claimed(), Claimed::Lost)
    }

    /// Takes note of a record that was acknowledged.
    pub fn acknowledged(&self, record: Position) {
        let mut claimed = self.claimed();
        match *claimed {
            Claimed::Lost => {}
            Claimed::Acknowledged(last) if last >= record => {}
            _ => *claimed = Claimed::Acknowledged(record),
        }
    }

    /// Takes note of what became of a record with this claim.
    pub fn settled(&self, outcome: Result<Position, &PublishError>) {
        match outcome {
            Ok(record) => self.acknowledged(record),
            Err(PublishError::StateLost(_)) => *self.claimed() = Claimed::Lost,
            Err(_) => {}
        }
    }

    fn claimed(&self) -> std::sync::MutexGuard<'_, Claimed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
