//! A publisher's claim to the owner of a state topic: the topic's state must include the last record whose
//! acknowledgement the publisher has received.
//!
//! Each record that the publisher sends carries the claim. An owner whose state lacks the claimed record refuses the
//! new record with [`PublishError::StateLost`]. From then on, all records with this claim are refused, even records
//! that the publisher sent before it received the error.

use std::sync::{Arc, Mutex, PoisonError};

use crate::event::Position;
use crate::publish::PublishError;

/// A publisher's claim: the publisher's last acknowledged record, which the state of the topic must still include.
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

    /// Stores that the owner has acknowledged `record`, so that the claim names this record.
    pub fn record_ack(&self, record: Position) {
        let mut state = self.lock();
        match *state {
            ClaimState::Lost => {}
            ClaimState::Acknowledged(last) if last >= record => {}
            _ => *state = ClaimState::Acknowledged(record),
        }
    }

    /// Stores the outcome of an append with this claim. After a success, the claim names the appended record. If the
    /// owner lacked the claimed record, the claim is lost.
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
