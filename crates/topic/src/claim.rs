//! A publisher's claim that a topic's state includes the last record for which the publisher has an acknowledgement.
//!
//! Each record carries its publisher's claim to the topic's owner. An owner whose state lacks the claimed record
//! refuses with [`PublishError::StateLost`]. A claim that was refused stays refused: the owner appends no record with
//! this claim, not even records that the publisher sent before it received the error.

use std::sync::{Arc, Mutex, PoisonError};

use crate::event::Position;
use crate::publish::PublishError;

/// A publisher's last acknowledged record, which the owner of a state topic must still have.
#[derive(Debug, Default)]
pub struct StateClaim(Mutex<ClaimState>);

#[derive(Debug, Clone, Copy, Default)]
enum ClaimState {
    #[default]
    Nothing,
    Acknowledged(Position),
    Lost,
}

impl StateClaim {
    /// Creates the claim of a publisher whose last acknowledged record is `last`.
    pub fn after(last: Position) -> Arc<StateClaim> {
        Arc::new(StateClaim(Mutex::new(ClaimState::Acknowledged(last))))
    }

    /// Returns the position of the publisher's last acknowledged record.
    ///
    /// # Errors
    ///
    /// [`PublishError::StateLost`] with the topic's name if an owner has refused a record with this claim.
    pub fn last(&self, topic: &str) -> Result<Option<Position>, PublishError> {
        match *self.lock() {
            ClaimState::Nothing => Ok(None),
            ClaimState::Acknowledged(last) => Ok(Some(last)),
            ClaimState::Lost => Err(PublishError::StateLost(topic.to_owned())),
        }
    }

    /// Whether an owner has refused a record with this claim.
    pub fn is_lost(&self) -> bool {
        matches!(*self.lock(), ClaimState::Lost)
    }

    /// Stores that the owner has acknowledged `record`.
    pub fn record_ack(&self, record: Position) {
        let mut state = self.lock();
        match *state {
            ClaimState::Lost => {}
            ClaimState::Acknowledged(last) if last >= record => {}
            _ => *state = ClaimState::Acknowledged(record),
        }
    }

    /// Stores the outcome of appending a record with this claim.
    pub fn record_outcome(&self, outcome: Result<Position, &PublishError>) {
        match outcome {
            Ok(record) => self.record_ack(record),
            Err(PublishError::StateLost(_)) => *self.lock() = ClaimState::Lost,
            Err(_) => {}
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ClaimState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
