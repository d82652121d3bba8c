//! Topics with a state to which a connection has published by requests: it is one of their publishers until it ends.
//!
//! Limit: [`TOPICS_MAX`] topics of one connection; with one more it is no publisher any longer of the one that came first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin::topic::{PublisherPlace, Topic};

/// Topics of one connection.
const TOPICS_MAX: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Publishes(Mutex<VecDeque<PublisherPlace>>);

impl Publishes {
    /// The connection has published to a topic.
    pub(crate) fn to(&self, topic: &Arc<Topic>) {
        if topic.config().fold.is_none() {
            return;
        }
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.iter().rev().any(|place| Arc::ptr_eq(place, topic)) {
            return;
        }
        let first = if places.len() >= TOPICS_MAX { places.pop_front() } else { None };
        places.push_back(topic.publisher_place());
        drop((places, first));
    }
}
