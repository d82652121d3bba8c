//! Where a recording's records go.

use anyhow::{Context, Result};
use dunlin_client::{Client, Publisher};
use dunlin_feed::recording::Recorded;
use dunlin_topic::{Draft, FoldConfig, Meta, Payload, Publish, PublishError, Retention, TopicConfig};

use crate::console::Paint;
use crate::outage::Outage;
use crate::signals::Stop;

/// Takes a recording's books and records, in their order.
pub trait Outlet {
    /// The next book.
    fn book(&mut self, recorded: &Recorded) -> Result<()>;

    /// A record of one of the books.
    fn record(&mut self, book: usize, event_time_ns: u64, payload: &[u8]) -> Result<()>;

    /// Waits until all is stored; how many records are, where that is what this is for.
    fn finish(&mut self) -> Result<Option<u64>>;
}

/// For reading alone.
pub struct Nowhere;

impl Outlet for Nowhere {
    fn book(&mut self, _: &Recorded) -> Result<()> {
        Ok(())
    }

    fn record(&mut self, _: usize, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> Result<Option<u64>> {
        Ok(None)
    }
}

/// A running node: a topic for each book.
pub struct Node<'a> {
    client: &'a Client,
    /// 0 for the node's default.
    retention_bytes: u64,
    topics: Vec<(String, Publisher)>,
    outage: Outage,
    stop: Stop,
    errors: Paint,
}

impl<'a> Node<'a> {
    pub fn new(client: &'a Client, retention_bytes: u64, stop: Stop, errors: Paint) -> Node<'a> {
        Node { client, retention_bytes, topics: Vec::new(), outage: Outage::default(), stop, errors }
    }

    /// Repeats what fails for want of a node. One that is told to stop meanwhile leaves it at that.
    fn persist<T>(
        &mut self,
        topic: usize,
        mut attempt: impl FnMut(&mut Publisher) -> Result<T, PublishError>,
    ) -> Result<Option<T>> {
        let (name, publisher) = &mut self.topics[topic];
        loop {
            match attempt(publisher) {
                Ok(done) => {
                    self.outage.over();
                    return Ok(Some(done));
                }
                Err(PublishError::Unknown(_)) if self.stop.is_set() => return Ok(None),
                Err(PublishError::Unknown(why)) => self.outage.said_once(&why, self.errors)?,
                Err(refused) => return Err(refused).with_context(|| format!("cannot publish to {name}")),
            }
        }
    }
}

impl Outlet for Node<'_> {
    fn book(&mut self, recorded: &Recorded) -> Result<()> {
        let topic = recorded.topic.clone();
        let fold = FoldConfig { kind: recorded.kind.to_owned(), options: recorded.scale.options() };
        let retention = Retention { bytes: self.retention_bytes, ..Retention::default() };
        let config = TopicConfig { fold: Some(fold), retention, ..node_defaults() };
        let created = self.client.create_topic(&topic, &config, true);
        created.with_context(|| format!("cannot create {topic}"))?;
        let publisher =
            self.client.publisher(&topic).with_context(|| format!("cannot publish to {topic}"))?;
        self.topics.push((topic, publisher));
        Ok(())
    }

    fn record(&mut self, book: usize, event_time_ns: u64, payload: &[u8]) -> Result<()> {
        if self.stop.is_set() {
            return Ok(());
        }
        let meta = Meta { event_time_ns: Some(event_time_ns), ..Meta::default() };
        self.persist(book, |publisher| publisher.send(Draft { meta, payload: Payload::Copied(payload) }))?;
        Ok(())
    }

    fn finish(&mut self) -> Result<Option<u64>> {
        for topic in 0..self.topics.len() {
            self.persist(topic, Publisher::flush)?;
        }
        Ok(Some(self.topics.iter().map(|(_, publisher)| publisher.acknowledged_records()).sum()))
    }
}

/// 0 asks for the node's default.
fn node_defaults() -> TopicConfig {
    TopicConfig { partitions: 0, record_bytes_max: 0, ..TopicConfig::default() }
}
