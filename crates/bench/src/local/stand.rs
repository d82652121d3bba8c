//! Topics of this process, as the workloads need them.

use std::sync::Arc;

use anyhow::{Context, Result};
use dunlin_topic::{
    Budget, Clock, Consumption, Cursor, Reliable, Retention, Start, SubscribeOptions, Subscriber, Topic,
    TopicConfig, Wait,
};

use crate::child::PATIENCE;
use crate::clock::realtime_ns;

const MEMORY_BYTES_MAX: u64 = 8 << 30;
const IDLE_BYTES_MAX: usize = 64 << 20;

/// A memory budget, and topics under it.
#[derive(Debug)]
pub struct Stand {
    budget: Arc<Budget>,
}

impl Default for Stand {
    fn default() -> Self {
        Self { budget: Budget::node(MEMORY_BYTES_MAX, IDLE_BYTES_MAX) }
    }
}

impl Stand {
    /// A topic whose publisher waits for its registered readers, so that nothing is lost.
    pub fn lossless(&self, name: &str, history_bytes: u64) -> Result<Arc<Topic>> {
        let reliable = Reliable { wait_max: PATIENCE, ..Reliable::default() };
        self.topic(name, history_bytes, Some(reliable))
    }

    /// A topic whose publisher waits for nobody.
    pub fn volatile(&self, name: &str, history_bytes: u64) -> Result<Arc<Topic>> {
        self.topic(name, history_bytes, None)
    }

    fn topic(&self, name: &str, history_bytes: u64, reliable: Option<Reliable>) -> Result<Arc<Topic>> {
        let retention = Retention { bytes: history_bytes, ..Retention::default() };
        let config = TopicConfig { retention, reliable, ..TopicConfig::default() };
        let topic = Topic::new(name, Arc::new(config), &self.budget, Clock(realtime_ns), 1);
        topic.map(Arc::new).with_context(|| format!("making topic {name}"))
    }
}

/// A subscriber of one topic, from its first record on.
pub fn subscriber(topic: &Topic, wait: Wait) -> Result<Subscriber> {
    Ok(Subscriber::one(cursor(topic, wait)?, wait))
}

/// A subscriber of many topics, from their first records on.
pub fn subscriber_of_all(topics: &[Arc<Topic>], wait: Wait) -> Result<Subscriber> {
    let cursors = topics.iter().map(|topic| cursor(topic, wait)).collect::<Result<Vec<_>>>()?;
    Ok(Subscriber::many(cursors, None, options(wait), Clock(realtime_ns)))
}

fn cursor(topic: &Topic, wait: Wait) -> Result<Cursor> {
    let [log] = topic.logs() else { anyhow::bail!("a bench's topic has one partition") };
    Cursor::new(Arc::clone(log), &options(wait), None, Consumption::Reads).context("subscribing")
}

fn options(wait: Wait) -> SubscribeOptions {
    SubscribeOptions { start: Start::Earliest, registered: true, wait, ..SubscribeOptions::default() }
}
