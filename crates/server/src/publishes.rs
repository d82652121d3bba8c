//! The state topics to which a connection has published by single requests. The connection counts as a publisher of
//! each until it closes.
//!
//! Limit: [`TOPICS_MAX`] topics for each connection; above it, the oldest topic is dropped.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin::topic::{PublisherRegistration, Topic};

/// Maximum number of topics that are remembered for one connection.
const TOPICS_MAX: usize = 256;

/// The state topics to which one connection has published.
#[derive(Debug, Default)]
pub(crate) struct PublishedTopics(Mutex<VecDeque<PublisherRegistration>>);

impl PublishedTopics {
    /// Stores that the connection has published to the topic.
    pub(crate) fn add(&self, topic: &Arc<Topic>) {
        if topic.config().reducer.is_none() {
            return;
        }
        let mut registrations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if registrations.iter().rev().any(|registration| Arc::ptr_eq(registration, topic)) {
            return;
        }
        let evicted = if registrations.len() >= TOPICS_MAX { registrations.pop_front() } else { None };
        registrations.push_back(topic.register_publisher());
        drop((registrations, evicted));
    }
}
