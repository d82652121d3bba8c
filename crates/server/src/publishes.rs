//! Remembers the state topics to which a connection has published with single requests. Until the connection closes, it
//! counts as a publisher of each of these topics.
//!
//! Limit: [`TOPICS_MAX`] topics for each connection; the oldest is forgotten first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin::topic::{PublisherRegistration, Topic};

/// Maximum number of topics that are remembered for a connection.
const TOPICS_MAX: usize = 256;

/// The state topics to which one connection has published with single requests.
#[derive(Debug, Default)]
pub(crate) struct PublishedTopics(Mutex<VecDeque<PublisherRegistration>>);

impl PublishedTopics {
    /// Remembers that the connection has published to the topic. Does nothing if the topic has no state.
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
